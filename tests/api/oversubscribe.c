/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* oversubscribe.c - working sets larger than the XPU's memory */
#include "harness.h"

enum { GPU_PAGES = 8 };

static uint64_t sum_of(const uint64_t *p, size_t words)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < words; i++)
		sum += p[i];
	return sum;
}

/* _i times the memory, only read: nothing is ever copied back. */
START_TEST(reading_evicts_clean)
{
	size_t pages = (size_t)_i * GPU_PAGES;
	uint64_t *p = um(pages), sum;
	struct gm_stats s;

	gpu_start(&gpu, GPU_PAGES);
	cpu_fill(p, pages * PAGE, 1);
	sum = sum_of(p, pages * WORDS);
	s = stats();
	for (int round = 0; round < 2; round++) {
		struct kargs a = { .src = p, .n = pages };
		struct kargs b = { .src = p, .n = pages * WORDS };

		gpu_run(&gpu, "peek", 1, &a);
		gpu_run(&gpu, "sum", pages, &b);
	}
	ck_assert_uint_gt(since(s, evicted_clean), pages);
	ck_assert_uint_eq(since(s, evicted_dirty), 0);
	ck_assert_uint_eq(since(s, bytes_to_host), 0);
	gpu_sum_is(&gpu, p, pages * PAGE, sum);
	cpu_check(p, pages * PAGE, 1);
}
END_TEST

START_TEST(writing_evicts_dirty)
{
	size_t pages = (size_t)_i * GPU_PAGES;
	uint64_t *p = um(pages);
	struct kargs a = { .dst = p, .n = pages * WORDS, .seed = 1 };
	struct gm_stats s;

	gpu_start(&gpu, GPU_PAGES);
	s = stats();
	for (int round = 0; round < 3; round++)
		gpu_run(&gpu, "increment", pages, &a);
	ck_assert_uint_ge(since(s, evicted_dirty), 2 * (pages - GPU_PAGES));
	gpu_sum_is(&gpu, p, pages * PAGE, 3 * pages * WORDS);
	ck_assert_uint_eq(sum_of(p, pages * WORDS), 3 * pages * WORDS);
}
END_TEST

START_TEST(copy_between_two_large_regions)
{
	size_t pages = 2 * GPU_PAGES;
	uint64_t *a = um(pages), *b = um(pages);
	struct kargs args = { .dst = b, .src = a, .n = pages * WORDS };

	gpu_start(&gpu, GPU_PAGES);
	cpu_fill(a, pages * PAGE, 4);
	gpu_run(&gpu, "copy", pages, &args);
	cpu_check(b, pages * PAGE, 4);
	cpu_check(a, pages * PAGE, 4);
}
END_TEST

/* The smallest there is: each page pushes the other out. */
START_TEST(one_page_of_memory)
{
	uint64_t *a = um(1), *b = um(1);
	struct kargs args = { .dst = b, .src = a, .n = 200 };

	gpu_start(&gpu, 1);
	cpu_fill(a, PAGE, 4);
	gpu_run(&gpu, "copy", 1, &args);
	cpu_check(b, 200 * 8, 4);
	gpu_check(&gpu, a, PAGE, 4);
}
END_TEST

START_TEST(resident_never_exceeds_memory)
{
	struct gm_node_info nodes[8];
	uint64_t *p = um(4 * GPU_PAGES);
	int n;

	gpu_start(&gpu, GPU_PAGES);
	gpu_fill(&gpu, p, 4 * GPU_PAGES * PAGE, 1);
	n = gm_nodes(nodes, 8);
	for (int i = 0; i < n; i++) {
		if (nodes[i].id != gpu.node)
			continue;
		ck_assert_uint_eq(nodes[i].total, GPU_PAGES * PAGE);
		ck_assert_uint_eq(nodes[i].resident + nodes[i].free,
				  GPU_PAGES * PAGE);
	}
	cpu_check(p, 4 * GPU_PAGES * PAGE, 1);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, reading_evicts_clean, 2, 3);
	tcase_add_loop_test(tc, reading_evicts_clean, 4, 5);
	tcase_add_loop_test(tc, writing_evicts_dirty, 2, 3);
	tcase_add_loop_test(tc, writing_evicts_dirty, 4, 5);
	tcase_add_test(tc, copy_between_two_large_regions);
	tcase_add_test(tc, one_page_of_memory);
	tcase_add_test(tc, resident_never_exceeds_memory);
}

int main(void)
{
	return run_suite("oversubscribe", add);
}
