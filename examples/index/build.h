/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * build.h - reading documents and building their index, on the CPU
 */
#ifndef BUILD_H
#define BUILD_H

#include <stddef.h>

#include "index.h"

/* Unified memory that is handed out from its start and never given back. */
struct arena {
	const char *what;
	char *start;
	char *at;
	char *end;
};

enum { TEXT, WORDS, POSTINGS, PAIRS, NR_ARENAS };

/* The names of the documents, and how big they are together. */
struct file_list {
	char **names;
	size_t nr;
	size_t bytes;
};

struct file_list read_list(const char *path);
void free_list(struct file_list *files);

/* Read the documents into unified memory and build their index there. */
struct index *build_index(const struct file_list *files,
			  struct arena arenas[NR_ARENAS]);

size_t arena_pages(const struct arena *arena);

#endif
