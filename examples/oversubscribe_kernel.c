// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * oversubscribe_kernel.c - runs on the GPU, once for each page of the data
 */
#include "oversubscribe.h"
#include "sgpu_kernel.h"

SGPU_KERNEL(increment)
{
	const struct oversubscribe_args *a = args;
	uint64_t *page = a->data + thread->index * WORDS_PER_PAGE;

	for (uint64_t i = 0; i < WORDS_PER_PAGE; i++)
		page[i]++;
}
