// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * oversubscribe.c - a GPU with 32 MiB works on 96 MiB of data
 *
 * The program does nothing for it: what the GPU needs comes in, what it has
 * not used for longest goes out. Only what was written is copied back.
 */
#include <inttypes.h>
#include <stdio.h>

#include "oversubscribe.h"
#include "util/util.h"

#define PAGES 48
#define PASSES 3

int main(void)
{
	uint64_t n = PAGES * WORDS_PER_PAGE;
	uint64_t *data = unified(PAGES * GM_PAGE_SIZE);
	struct oversubscribe_args args = { data };
	struct gpu gpu = gpu_open(16 * GM_PAGE_SIZE, "oversubscribe_kernel.so");
	struct sgpu_kernel *increment = gpu_kernel(&gpu, "increment");
	struct gm_stats s;

	for (uint64_t i = 0; i < n; i++)
		data[i] = i;
	for (int pass = 0; pass < PASSES; pass++)
		gpu_run(&gpu, increment, PAGES, &args, sizeof(args));
	for (uint64_t i = 0; i < n; i++)
		must(data[i] == i + PASSES, "wrong data",
		     "an increment was lost or doubled");

	must(!gm_process_stats(&s), "no statistics", gm_error());
	printf("%d pages, %d times, on a GPU with room for 16: all right\n",
	       PAGES, PASSES);
	printf("copied to the GPU %" PRIu64 ", back to make room %" PRIu64
	       ", dropped without a copy %" PRIu64 " pages\n",
	       s.to_xpu, s.evicted_dirty, s.evicted_clean);
	must(s.evicted_dirty > 0, "nothing was evicted", "but it cannot fit");
	gpu_close(&gpu);
	return 0;
}
