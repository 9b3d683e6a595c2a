/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* advise.c - gmadvise(): what each hint does, and what it never does */
#include "harness.h"

START_TEST(arguments)
{
	char *p = um(2);

	gpu_start(&gpu, 4);
	cpu_fill(p, 2 * PAGE, 1);
	fails(gmadvise(gpu.node, p, PAGE, 0), EINVAL);
	fails(gmadvise(gpu.node, p, PAGE, MADV_HUGEPAGE), EINVAL);
	fails(gmadvise(gpu.node, p, PAGE, 0x2000), EINVAL);
	for (int i = 0; i < 3; i++) {
		static const int looks[] = { GM_WILLNEED, GM_PIN, GM_COLD };

		fails(gmadvise(63, p, PAGE, looks[i]), EINVAL);
		fails(gmadvise(64, p, PAGE, looks[i]), EINVAL);
		fails(gmadvise(-2, p, PAGE, looks[i]), EINVAL);
		fails(gmadvise(GM_NODE_NONE, p, PAGE, looks[i]), EINVAL);
	}
	fails(gmadvise(gpu.node, p, SIZE_MAX, GM_WILLNEED), EINVAL);
	fails(gmadvise(gpu.node, (void *)-1, 2, GM_DONTNEED), EINVAL);
	/* The node is not looked at. */
	works(gmadvise(99, p, PAGE, GM_READ_MOSTLY));
	works(gmadvise(99, p, PAGE, GM_NOT_READ_MOSTLY));
	works(gmadvise(99, p, PAGE, GM_UNPIN));
	cpu_check(p, 2 * PAGE, 1);
}
END_TEST

START_TEST(zero_length_does_nothing)
{
	static const int all[] = { GM_WILLNEED,	   GM_DONTNEED,
				   GM_READ_MOSTLY, GM_NOT_READ_MOSTLY,
				   GM_PREFERRED,   GM_COLD,
				   GM_PIN,	   GM_UNPIN };
	char *p = um(1);

	cpu_fill(p, PAGE, 1);
	for (size_t i = 0; i < sizeof(all) / sizeof(int); i++) {
		works(gmadvise(HOST, p, 0, all[i]));
		works(gmadvise(HOST, p + 5, 0, all[i]));
	}
	cpu_check(p, PAGE, 1);
}
END_TEST

START_TEST(willneed_moves_both_ways_and_rounds_outward)
{
	char *p = um(4);
	struct gm_stats s;

	gpu_start(&gpu, 8);
	put(&gpu, p, 4 * PAGE, 1, (enum place)_i);
	s = stats();
	works(gmadvise(gpu.node, p + PAGE + 5, PAGE, GM_WILLNEED));
	ck_assert_uint_eq(where(p + PAGE).copies >> gpu.node & 1, 1);
	ck_assert_uint_eq(where(p + 2 * PAGE).copies >> gpu.node & 1, 1);
	if (_i == ON_CPU) {
		ck_assert_uint_eq(since(s, to_xpu), 2);
		ck_assert_uint_eq(since(s, prefetched), 2);
		ck_assert_uint_eq(where(p).mapped, 1);
		ck_assert_uint_eq(where(p + 3 * PAGE).mapped, 1);
	}
	/* No fault is left to be served. */
	s = stats();
	gpu_peek(&gpu, p + PAGE, 2);
	ck_assert_uint_eq(since(s, faults_xpu_read), 0);
	works(gmadvise(HOST, p + PAGE - 1, 2, GM_WILLNEED));
	ck_assert_uint_eq(where(p).mapped, 1);
	ck_assert_uint_eq(where(p + PAGE).mapped, 1);
	s = stats();
	cpu_check(p, 2 * PAGE, 1);
	ck_assert_uint_eq(since(s, faults_cpu), 0);
	cpu_check(p, 4 * PAGE, 1);
	gpu_check(&gpu, p, 4 * PAGE, 1);
}
END_TEST

START_TEST(willneed_of_fresh_memory_zeroes)
{
	char *p = um(4);
	struct gm_stats s = stats();

	gpu_start(&gpu, 8);
	works(gmadvise(gpu.node, p, 4 * PAGE, GM_WILLNEED));
	all_in(p, 4, GM_STATE_MODIFIED, 1ull << gpu.node);
	ck_assert_uint_eq(since(s, zeroed), 4);
	ck_assert_uint_eq(since(s, bytes_to_xpu), 0);
	gpu_sum_is(&gpu, p, 4 * PAGE, 0);
	all_zero(p, 4 * PAGE);
}
END_TEST

START_TEST(willneed_of_more_than_fits_fails_nothing_lost)
{
	char *p = um(8);

	gpu_start(&gpu, 4);
	cpu_fill(p, 8 * PAGE, 3);
	/* Best effort: the later pages push the earlier ones out. */
	gmadvise(gpu.node, p, 8 * PAGE, GM_WILLNEED);
	cpu_check(p, 8 * PAGE, 3);
}
END_TEST

START_TEST(holes_are_skipped_and_reported)
{
	char *p = um(5);

	gpu_start(&gpu, 8);
	cpu_fill(p, 5 * PAGE, 1);
	works(gm_munmap(p + 2 * PAGE, PAGE));
	fails(gmadvise(gpu.node, p, 5 * PAGE, GM_WILLNEED), ENOMEM);
	for (int i = 0; i < 5; i++)
		if (i != 2)
			ck_assert_uint_eq(
				where(p + i * PAGE).copies >> gpu.node & 1, 1);
	fails(gmadvise(gpu.node, p, 5 * PAGE, GM_PREFERRED), ENOMEM);
	fails(gmadvise(gpu.node, p, 5 * PAGE, GM_COLD), ENOMEM);
	fails(gmadvise(0, p, 5 * PAGE, GM_READ_MOSTLY), ENOMEM);
	cpu_check(p, 2 * PAGE, 1);
	fails(gmadvise(0, p, 5 * PAGE, GM_DONTNEED), ENOMEM);
	all_zero(p, 2 * PAGE);
	all_zero(p + 3 * PAGE, 2 * PAGE);
}
END_TEST

/* --- GM_DONTNEED ------------------------------------------------------------ */

START_TEST(dontneed_is_exact)
{
	static const size_t ranges[][2] = {
		{ 0, 1 },	 { 1, 1 },	   { 2, 2 * PAGE },
		{ PAGE - 1, 2 }, { PAGE, PAGE },   { PAGE + 7, PAGE - 7 },
		{ 0, 3 * PAGE }, { SMALL, SMALL }, { PAGE - 3, PAGE + 6 },
	};
	unsigned char *p = um(3), *model = plain(3 * PAGE);

	gpu_start(&gpu, 4);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		put(&gpu, p, 3 * PAGE, i, (enum place)_i);
		cpu_fill(model, 3 * PAGE, i);
		works(gmadvise(GM_NODE_NONE, p + ranges[i][0], ranges[i][1],
			       GM_DONTNEED));
		memset(model + ranges[i][0], 0, ranges[i][1]);
		ck_assert_int_eq(memcmp(p, model, 3 * PAGE), 0);
	}
	munmap(model, 3 * PAGE);
}
END_TEST

START_TEST(dontneed_frees_memory_everywhere)
{
	struct gm_node_info nodes[8];
	char *p = um(3);
	int n;

	gpu_start(&gpu, 4);
	put(&gpu, p, 3 * PAGE, 2, (enum place)_i);
	works(gmadvise(GM_NODE_NONE, p, 3 * PAGE, GM_DONTNEED));
	all_in(p, 3, GM_STATE_EMPTY, 0);
	n = gm_nodes(nodes, 8);
	for (int i = 0; i < n; i++)
		ck_assert_uint_eq(nodes[i].resident, 0);
	gpu_sum_is(&gpu, p, 3 * PAGE, 0);
}
END_TEST

START_TEST(dontneed_of_untouched_memory)
{
	char *p = um(1000);

	works(gmadvise(GM_NODE_NONE, p, 1000 * PAGE, GM_DONTNEED));
	gpu_start(&gpu, 4);
	works(gmadvise(GM_NODE_NONE, p + 1, 999 * PAGE, GM_DONTNEED));
	all_zero(p + 500 * PAGE, PAGE);
}
END_TEST

START_TEST(dontneed_zeroes_parts_where_they_live)
{
	char *p = um(1);

	gpu_start(&gpu, 4);
	put(&gpu, p, PAGE, 1, ON_XPU);
	works(gmadvise(GM_NODE_NONE, p + SMALL, SMALL, GM_DONTNEED));
	ck_assert_uint_eq(where(p).copies, 1ull << gpu.node);
}
END_TEST

START_TEST(dontneed_of_cut_pages)
{
	char *p = um(1);

	gpu_start(&gpu, 4);
	put(&gpu, p, PAGE, 1, ON_XPU);
	works(gm_mprotect(p, SMALL, PROT_READ));
	ck_assert_int_eq(where(p).state, GM_STATE_FRAGMENTED);
	works(gmadvise(GM_NODE_NONE, p + 2 * SMALL, SMALL, GM_DONTNEED));
	cpu_check_from(p, 0, 2 * SMALL / 8, 1);
	all_zero(p + 2 * SMALL, SMALL);
	cpu_check_from(p, 3 * SMALL / 8, WORDS, 1);
}
END_TEST

/* --- what changes the order of eviction -------------------------------------- */

/* The GPU is full, and two more pages come: sixteen have to go. */
static void press(void)
{
	char *more = um(2);

	works(gmadvise(gpu.node, more, 2 * PAGE, GM_WILLNEED));
}

static int there(const char *p)
{
	return where(p).copies >> gpu.node & 1;
}

START_TEST(pinned_pages_stay)
{
	char *p = um(4), *more = um(16);

	gpu_start(&gpu, 4);
	cpu_fill(p, 4 * PAGE, 1);
	works(gmadvise(gpu.node, p, 2 * PAGE, GM_PIN));
	ck_assert(there(p) && there(p + PAGE));
	ck_assert_int_eq(where(p).pinned, 1);
	works(gmadvise(gpu.node, p + 2 * PAGE, 2 * PAGE, GM_WILLNEED));
	gpu_fill(&gpu, more, 16 * PAGE, 2);
	ck_assert(there(p) && there(p + PAGE));
	ck_assert(!there(p + 2 * PAGE) && !there(p + 3 * PAGE));
	works(gmadvise(GM_NODE_NONE, p, 2 * PAGE, GM_UNPIN));
	ck_assert_int_eq(where(p).pinned, 0);
	gpu_check(&gpu, more, 16 * PAGE, 2);
	ck_assert(!there(p) && !there(p + PAGE));
	cpu_check(p, 4 * PAGE, 1);
}
END_TEST

START_TEST(pinned_page_is_taken_by_the_cpu_and_pinned_again)
{
	char *p = um(1), *more = um(8);

	gpu_start(&gpu, 4);
	cpu_fill(p, PAGE, 1);
	works(gmadvise(gpu.node, p, PAGE, GM_PIN));
	p[0] = 1;
	p[0] = (char)pattern(1, 0);
	ck_assert(!there(p));
	gpu_check(&gpu, p, PAGE, 1);
	ck_assert(there(p));
	gpu_fill(&gpu, more, 8 * PAGE, 2);
	ck_assert(there(p));
}
END_TEST

START_TEST(page_pinned_to_the_host_is_refused_to_an_xpu)
{
	char *p = um(2);
	struct kargs a = { .src = (uint64_t *)p, .n = 1 };

	gpu_start(&gpu, 4);
	gpu_fill(&gpu, p, 2 * PAGE, 3);
	works(gmadvise(HOST, p, PAGE, GM_PIN));
	ck_assert_uint_eq(where(p).mapped, 1);
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &a), -EBUSY);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	fails(gmadvise(gpu.node, p, 2 * PAGE, GM_WILLNEED), EBUSY);
	ck_assert(there(p + PAGE)); /* the others follow */
	cpu_check(p, PAGE, 3);
	works(gmadvise(HOST, p, PAGE, GM_UNPIN));
	gpu_check(&gpu, p, 2 * PAGE, 3);
}
END_TEST

START_TEST(memory_full_of_pins_fails_launch_and_says_so)
{
	static const char *const words[] = { "asked", "free", "resident",
					     "evictable", "wired" };
	char *p = um(4), *q = um(1);
	struct kargs a = { .dst = (uint64_t *)q, .n = 1, .seed = 1 };

	gpu_start(&gpu, 4);
	works(gmadvise(gpu.node, p, 4 * PAGE, GM_PIN));
	ck_assert_int_eq(gpu_try(&gpu, "poke", 1, &a), -ENOMEM);
	fails(gmadvise(gpu.node, q, PAGE, GM_WILLNEED), ENOMEM);
	for (int i = 0; i < 5; i++)
		ck_assert_msg(strstr(gm_error(), words[i]) != NULL,
			      "no '%s' in: %s", words[i], gm_error());
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	works(gmadvise(GM_NODE_NONE, p, PAGE, GM_UNPIN));
	gpu_run(&gpu, "poke", 1, &a);
	ck_assert_uint_eq(*(uint64_t *)q, 1);
}
END_TEST

START_TEST(preferred_pages_go_last)
{
	char *p = um(20);

	gpu_start(&gpu, 20);
	gpu_fill(&gpu, p, 20 * PAGE, 1);
	works(gmadvise(gpu.node, p, 2 * PAGE, GM_PREFERRED));
	press();
	ck_assert(there(p) && there(p + PAGE));
	ck_assert(!there(p + 2 * PAGE));
	works(gmadvise(GM_NODE_NONE, p, 2 * PAGE, GM_PREFERRED));
	cpu_check(p, 20 * PAGE, 1);
}
END_TEST

START_TEST(cold_pages_go_first)
{
	char *p = um(20);

	gpu_start(&gpu, 20);
	gpu_fill(&gpu, p, 20 * PAGE, 1);
	works(gmadvise(gpu.node, p + 18 * PAGE, 2 * PAGE, GM_COLD));
	press();
	ck_assert(!there(p + 18 * PAGE) && !there(p + 19 * PAGE));
	ck_assert(there(p + 17 * PAGE));
	cpu_check(p, 20 * PAGE, 1);
}
END_TEST

START_TEST(willneed_makes_pages_recent)
{
	char *p = um(20);

	gpu_start(&gpu, 20);
	gpu_fill(&gpu, p, 20 * PAGE, 1);
	works(gmadvise(gpu.node, p, 2 * PAGE, GM_WILLNEED));
	press();
	ck_assert(there(p) && there(p + PAGE));
	cpu_check(p, 20 * PAGE, 1);
}
END_TEST

START_TEST(read_mostly_keeps_copies_of_written_pages)
{
	char *p = um(2);

	gpu_start(&gpu, 4);
	gpu_fill(&gpu, p, 2 * PAGE, 1); /* it has been written by an XPU */
	cpu_check(p, 2 * PAGE, 1);
	works(gmadvise(GM_NODE_NONE, p, PAGE, GM_READ_MOSTLY));
	gpu_peek(&gpu, p, 2);
	all_in(p, 1, GM_STATE_SHARED, 1 | 1ull << gpu.node);
	all_in(p + PAGE, 1, GM_STATE_MODIFIED, 1ull << gpu.node);
	works(gmadvise(GM_NODE_NONE, p, PAGE, GM_NOT_READ_MOSTLY));
	cpu_check(p, 2 * PAGE, 1);
	gpu_peek(&gpu, p, 1);
	all_in(p, 1, GM_STATE_MODIFIED, 1ull << gpu.node);
	/* Written all the same: a hint forbids nothing. */
	works(gmadvise(GM_NODE_NONE, p, PAGE, GM_READ_MOSTLY));
	gpu_fill(&gpu, p, PAGE, 2);
	cpu_check(p, PAGE, 2);
}
END_TEST

START_TEST(node_of_a_detached_gpu_is_unknown)
{
	char *p = um(1);
	int node;

	gpu_start(&gpu, 4);
	node = gpu.node;
	gpu_detach(&gpu);
	fails(gmadvise(node, p, PAGE, GM_WILLNEED), EINVAL);
	fails(gmemcpy(node, p, "x", 1), EINVAL);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, arguments);
	tcase_add_test(tc, zero_length_does_nothing);
	tcase_add_loop_test(tc, willneed_moves_both_ways_and_rounds_outward, 0,
			    NR_PLACES);
	tcase_add_test(tc, willneed_of_fresh_memory_zeroes);
	tcase_add_test(tc, willneed_of_more_than_fits_fails_nothing_lost);
	tcase_add_test(tc, holes_are_skipped_and_reported);
	tcase_add_loop_test(tc, dontneed_is_exact, 0, NR_PLACES);
	tcase_add_loop_test(tc, dontneed_frees_memory_everywhere, 0, NR_PLACES);
	tcase_add_test(tc, dontneed_of_untouched_memory);
	tcase_add_test(tc, dontneed_zeroes_parts_where_they_live);
	tcase_add_test(tc, dontneed_of_cut_pages);
	tcase_add_test(tc, pinned_pages_stay);
	tcase_add_test(tc, pinned_page_is_taken_by_the_cpu_and_pinned_again);
	tcase_add_test(tc, page_pinned_to_the_host_is_refused_to_an_xpu);
	tcase_add_test(tc, memory_full_of_pins_fails_launch_and_says_so);
	tcase_add_test(tc, preferred_pages_go_last);
	tcase_add_test(tc, cold_pages_go_first);
	tcase_add_test(tc, willneed_makes_pages_recent);
	tcase_add_test(tc, read_mostly_keeps_copies_of_written_pages);
	tcase_add_test(tc, node_of_a_detached_gpu_is_unknown);
}

int main(void)
{
	return run_suite("advise", add);
}
