/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * kernel_args.h - what the kernels of index_kernel.c are given
 */
#ifndef KERNEL_ARGS_H
#define KERNEL_ARGS_H

#include "index.h"

#define PAGE_BYTES (2ul << 20)

struct read_args {
	const char *start;
	uint64_t *sum;
};

struct answer_args {
	const struct index *index;
	struct query *queries;
};

struct count_args {
	const struct index *index;
};

#endif
