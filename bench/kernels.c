// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * kernels.c - what the XPU runs for gmm-bench: touching pages
 */
#include <time.h>

#include "kernels.h"
#include "sgpu_kernel.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void make_order(uint16_t *order, uint64_t pages, uint64_t seed)
{
	for (uint64_t i = 0; i < pages; i++)
		order[i] = (uint16_t)i;
	if (!seed)
		return;
	for (uint64_t i = pages - 1; i > 0; i--) {
		uint16_t was = order[i];
		uint64_t j;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		j = (seed >> 33) % (i + 1);
		order[i] = order[j];
		order[j] = was;
	}
}

/* Results are written when all is read: only reads are measured. */
SGPU_KERNEL(touch)
{
	const struct touch_args *a = args;
	uint16_t order[BENCH_MAX_PAGES];
	uint32_t ns[BENCH_MAX_PAGES];
	uint64_t sum = 0;

	make_order(order, a->pages, a->seed);
	for (uint64_t i = thread->index; i < a->pages; i += thread->grid) {
		uint64_t start = a->timed ? now_ns() : 0;

		sum += *(const volatile uint64_t *)(a->data +
						    order[i] * BENCH_PAGE);
		if (a->timed)
			ns[i] = (uint32_t)(now_ns() - start);
	}
	a->result->sums[thread->index] = sum;
	for (uint64_t i = thread->index; a->timed && i < a->pages;
	     i += thread->grid)
		a->result->ns[i] = ns[i];
}

SGPU_KERNEL(nothing)
{
}
