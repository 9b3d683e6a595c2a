/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * check.h - the same questions, answered by the CPU in another way
 */
#ifndef CHECK_H
#define CHECK_H

#include "build.h"

/* @n queries with words from the documents; always the same ones. */
void make_queries(const struct index *index, struct query *queries, size_t n);

/*
 * Read the documents anew, into ordinary memory and without the index, and
 * compare what the XPU answered. Exits if an answer is wrong.
 */
void check_answers(const struct file_list *files, const struct index *index,
		   const struct query *queries, size_t n);

/* Compare the XPU's word counts with those of the index. Exits if one differs.
 * Return: the sum of all. */
uint64_t check_counts(const struct index *index);

/* Write "count word" lines, as the XPU counted. */
void write_counts(const struct index *index, const char *path);

#endif
