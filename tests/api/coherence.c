/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* coherence.c - every read returns the last write, and at what cost */
#include <sched.h>

#include "harness.h"

START_TEST(cpu_and_xpu_alternate)
{
	char *p = um(3);

	gpu_start(&gpu, 4);
	for (uint64_t i = 0; i < 6; i += 2) {
		gpu_fill(&gpu, p, 3 * PAGE, i);
		cpu_check(p, 3 * PAGE, i);
		cpu_fill(p, 3 * PAGE, i + 1);
		gpu_check(&gpu, p, 3 * PAGE, i + 1);
	}
}
END_TEST

START_TEST(increments_of_both_add_up)
{
	uint64_t *p = um(2);
	struct kargs a = { .dst = p, .n = 2 * WORDS, .seed = 3 };

	gpu_start(&gpu, 4);
	for (int round = 0; round < 3; round++) {
		gpu_run(&gpu, "increment", 2, &a);
		for (size_t i = 0; i < 2 * WORDS; i++)
			p[i] += 1;
	}
	for (size_t i = 0; i < 2 * WORDS; i++)
		if (p[i] != 12)
			ck_abort_msg("word %zu is %llu", i,
				     (unsigned long long)p[i]);
}
END_TEST

START_TEST(pointers_are_the_same_on_both)
{
	enum { STEPS = 1000 };
	uint64_t *p = um(4), *out = um(1), at = 0;
	struct kargs a = { .src = p, .n = STEPS, .out = out };

	gpu_start(&gpu, 4);
	for (int i = 0; i < STEPS; i++) {
		uint64_t next = (uint64_t)(i + 1) * 1048573 % (4 * WORDS);

		p[at] = (uint64_t)(uintptr_t)&p[next];
		at = next;
	}
	gpu_run(&gpu, "chase", 1, &a);
	ck_assert_uint_eq(*out, (uint64_t)(uintptr_t)&p[at]);
}
END_TEST

/* What an XPU only reads is not written back, however often it is evicted. */
START_TEST(read_pages_keep_their_host_replica)
{
	char *p = um(3);
	struct gm_stats s;

	gpu_start(&gpu, 4);
	cpu_fill(p, 3 * PAGE, 1);
	gpu_peek(&gpu, p, 3);
	all_in(p, 3, GM_STATE_SHARED, 1 | 1ull << gpu.node);
	s = stats();
	evict_all(&gpu);
	ck_assert_uint_ge(since(s, evicted_clean), 3);
	all_in(p, 3, GM_STATE_MODIFIED, 1);
	gpu_peek(&gpu, p, 3);
	evict_all(&gpu);
	ck_assert_uint_ge(since(s, evicted_clean), 6);
	ck_assert_uint_eq(since(s, evicted_dirty), 0);
	ck_assert_uint_eq(since(s, bytes_to_host), 0);
	/* The CPU wants it: mapped, not copied. */
	s = stats();
	cpu_check(p, 3 * PAGE, 1);
	/* Counted after the thread that waited has been woken. */
	while (since(s, mapped_home) < 3)
		sched_yield();
	ck_assert_uint_eq(since(s, mapped_home), 3);
	ck_assert_uint_eq(since(s, bytes_to_host), 0);
}
END_TEST

START_TEST(write_upgrades_without_a_copy)
{
	char *p = um(2);
	struct gm_stats s;

	gpu_start(&gpu, 4);
	cpu_fill(p, 2 * PAGE, 1);
	gpu_peek(&gpu, p, 2);
	s = stats();
	gpu_poke(&gpu, p, 2, 7);
	ck_assert_uint_eq(since(s, upgraded), 2);
	ck_assert_uint_eq(since(s, bytes_to_xpu), 0);
	ck_assert_uint_eq(since(s, bytes_to_host), 0);
	all_in(p, 2, GM_STATE_MODIFIED, 1ull << gpu.node);
	ck_assert_uint_eq(*(uint64_t *)p, 7);
	cpu_check_from(p, 1, WORDS, 1);
	/* It has been written: the next time it comes writable at once. */
	s = stats();
	gpu_peek(&gpu, p, 1);
	gpu_poke(&gpu, p, 1, 8);
	ck_assert_uint_eq(since(s, faults_xpu_read), 1);
	ck_assert_uint_eq(since(s, faults_xpu_write), 0);
}
END_TEST

START_TEST(cpu_touch_of_a_shared_page_takes_it)
{
	char *p = um(1);

	gpu_start(&gpu, 4);
	put(&gpu, p, PAGE, 1, ON_BOTH);
	cpu_check(p, PAGE, 1);
	all_in(p, 1, GM_STATE_MODIFIED, 1);
	ck_assert_uint_eq(where(p).mapped, 1);
}
END_TEST

START_TEST(first_touch_decides_the_place)
{
	char *p = um(2);

	gpu_start(&gpu, 4);
	gpu_poke(&gpu, p, 1, 1);
	p[PAGE] = 1;
	ck_assert_int_eq(where(p).node, gpu.node);
	ck_assert_int_eq(where(p + PAGE).node, HOST);
}
END_TEST

/* A flag that both watch goes to and fro, and both get on. */
START_TEST(ping_pong_makes_progress)
{
	enum { TURNS = 60 };
	uint64_t *p = um(1);
	struct kargs a = { .dst = p, .n = TURNS };
	struct gm_region_stats r;

	gpu_start(&gpu, 4);
	gpu_launch(&gpu, "pingpong", 1, &a);
	for (uint64_t i = 0; i < TURNS; i++) {
		while (__atomic_load_n(p, __ATOMIC_ACQUIRE) != 2 * i)
			;
		__atomic_store_n(p, 2 * i + 1, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(p, __ATOMIC_ACQUIRE) != 2 * TURNS)
		;
	ck_assert_int_eq(sgpu_sync(gpu.sgpu, NULL), 0);
	works(gm_region_stats(p, &r));
	ck_assert_uint_ge(r.faults, TURNS);
}
END_TEST

/* Two words of one page: the XPU waits for one, the CPU counts in the other. */
START_TEST(false_sharing_is_named_and_loses_nothing)
{
	uint64_t *p = um(3), *fought = p + WORDS, n = 0;
	struct kargs a = { .dst = fought, .seed = 1 };
	volatile uint64_t *mine = fought + 1000;
	struct gm_region_stats r = { 0 };

	gpu_start(&gpu, 4);
	gpu_launch(&gpu, "spin", 1, &a);
	while (!r.false_sharing) {
		for (int i = 0; i < 1000; i++, n++)
			++*mine;
		works(gm_region_stats(p, &r));
	}
	ck_assert_uint_eq(r.false_sharing, 1);
	ck_assert_uint_eq(r.worst, (uintptr_t)fought);
	*fought = 1;
	ck_assert_int_eq(sgpu_sync(gpu.sgpu, NULL), 0);
	ck_assert_uint_eq(*mine, n);
}
END_TEST

START_TEST(atomics_of_both_add_up)
{
	enum { N = 200000 };
	uint64_t *p = um(1);
	struct kargs a = { .dst = p, .n = N };

	gpu_start(&gpu, 4);
	gpu_launch(&gpu, "count", 2, &a);
	for (int i = 0; i < N; i++)
		__atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
	ck_assert_int_eq(sgpu_sync(gpu.sgpu, NULL), 0);
	ck_assert_uint_eq(*p, 3 * N);
}
END_TEST

/* A fault already served is not served again; an eviction undoes that. */
START_TEST(coalesced_faults_and_evictions)
{
	char *p = um(1);
	struct gm_stats s;

	gpu_start(&gpu, 4);
	cpu_fill(p, PAGE, 1);
	for (int i = 0; i < 4; i++) {
		struct kargs a = { .src = (uint64_t *)p, .n = WORDS };

		s = stats();
		gpu_run(&gpu, "sum", 8, &a);
		ck_assert_uint_eq(since(s, bytes_to_xpu), PAGE);
		evict_all(&gpu);
	}
	cpu_check(p, PAGE, 1);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, cpu_and_xpu_alternate);
	tcase_add_test(tc, increments_of_both_add_up);
	tcase_add_test(tc, pointers_are_the_same_on_both);
	tcase_add_test(tc, read_pages_keep_their_host_replica);
	tcase_add_test(tc, write_upgrades_without_a_copy);
	tcase_add_test(tc, cpu_touch_of_a_shared_page_takes_it);
	tcase_add_test(tc, first_touch_decides_the_place);
	tcase_add_test(tc, ping_pong_makes_progress);
	tcase_add_test(tc, false_sharing_is_named_and_loses_nothing);
	tcase_add_test(tc, atomics_of_both_add_up);
	tcase_add_test(tc, coalesced_faults_and_evictions);
}

int main(void)
{
	return run_suite("coherence", add);
}
