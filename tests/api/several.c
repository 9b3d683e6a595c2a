/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* several.c - two XPUs in one address space, and XPUs that come and go */
#include "fake.h"

START_TEST(both_see_what_either_writes)
{
	char *p = um(3);

	gpu_start(&gpu, 4);
	gpu_start(&gpu2, 4);
	ck_assert_int_ne(gpu.node, gpu2.node);
	for (uint64_t i = 0; i < 4; i += 2) {
		struct gm_stats s = stats();

		gpu_fill(&gpu, p, 3 * PAGE, i);
		gpu_check(&gpu2, p, 3 * PAGE, i);
		gpu_fill(&gpu2, p, 3 * PAGE, i + 1);
		ck_assert_uint_gt(since(s, xpu_to_xpu), 0);
		gpu_check(&gpu, p, 3 * PAGE, i + 1);
		cpu_check(p, 3 * PAGE, i + 1);
	}
}
END_TEST

START_TEST(all_three_share_what_they_only_read)
{
	char *p = um(2);

	gpu_start(&gpu, 4);
	gpu_start(&gpu2, 4);
	cpu_fill(p, 2 * PAGE, 1);
	gpu_peek(&gpu, p, 2);
	gpu_peek(&gpu2, p, 2);
	all_in(p, 2, GM_STATE_SHARED, 1 | 1ull << gpu.node | 1ull << gpu2.node);
	/* A write takes it from all others. */
	gpu_poke(&gpu2, p, 1, 7);
	all_in(p, 1, GM_STATE_MODIFIED, 1ull << gpu2.node);
	gpu_sum_is(&gpu, p, 8, 7);
	cpu_check_from(p, WORDS, 2 * WORDS, 1);
}
END_TEST

START_TEST(two_gpus_fight_for_a_page)
{
	enum { N = 100000 };
	uint64_t *p = um(1);
	struct kargs a = { .dst = p, .n = N };

	gpu_start(&gpu, 4);
	gpu_start(&gpu2, 4);
	gpu_launch(&gpu, "count", 1, &a);
	gpu_launch(&gpu2, "count", 1, &a);
	for (int i = 0; i < N; i++)
		__atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
	ck_assert_int_eq(sgpu_sync(gpu.sgpu, NULL), 0);
	ck_assert_int_eq(sgpu_sync(gpu2.sgpu, NULL), 0);
	ck_assert_uint_eq(*p, 3 * N);
}
END_TEST

START_TEST(gmemcpy_between_two)
{
	char *p = um(2), *q = um(2);

	gpu_start(&gpu, 4);
	gpu_start(&gpu2, 4);
	put(&gpu, p, 2 * PAGE, 1, ON_XPU);
	works(gmemcpy(gpu2.node, q, p, 2 * PAGE));
	ck_assert_uint_eq(where(q).copies, 1ull << gpu2.node);
	ck_assert_uint_eq(where(p).copies, 1ull << gpu.node);
	works(gmemcpy(gpu2.node, q + 13, p + 5, PAGE));
	ck_assert_int_eq(memcmp(q + 13, p + 5, PAGE), 0);
	works(gmadvise(gpu2.node, p, 2 * PAGE, GM_WILLNEED));
	gpu_check(&gpu2, p, 2 * PAGE, 1);
}
END_TEST

START_TEST(one_detaches_while_the_other_runs)
{
	char *p = um(2), *q = um(4), *flag = um(1);
	struct kargs a = { .dst = (uint64_t *)flag, .seed = 5 };

	gpu_start(&gpu, 8);
	gpu_start(&gpu2, 4);
	gpu_fill(&gpu2, p, 2 * PAGE, 1);
	gpu_fill(&gpu, q, 4 * PAGE, 2);
	gpu_launch(&gpu, "spin", 1, &a);
	gpu_detach(&gpu2);
	cpu_check(p, 2 * PAGE, 1);
	*(uint64_t *)flag = 5;
	ck_assert_int_eq(sgpu_sync(gpu.sgpu, NULL), 0);
	gpu_check(&gpu, p, 2 * PAGE, 1);
	gpu_check(&gpu, q, 4 * PAGE, 2);
	gpu_attach(&gpu2);
	gpu_check(&gpu2, q, 4 * PAGE, 2);
}
END_TEST

START_TEST(fifty_attaches_leave_nothing)
{
	char *p = um(2);
	unsigned int fds = 0, threads = 0, vmas = 0;

	gpu_open(&gpu, 4);
	for (uint64_t i = 0; i < 50; i++) {
		gpu_attach(&gpu);
		gpu_poke(&gpu, p, 2, i);
		gpu_detach(&gpu);
		ck_assert_uint_eq(*(uint64_t *)p, i);
		if (i == 4) {
			fds = count_fds();
			threads = count_threads();
			vmas = count_vmas();
		}
	}
	ck_assert_uint_le(count_fds(), fds);
	eventually(count_threads() <= threads);
	ck_assert_uint_le(count_vmas(), vmas + 4 + SANITIZER_VMAS);
}
END_TEST

START_TEST(ten_gpus_opened_and_closed)
{
	char *p = um(2);

	for (uint64_t i = 0; i < 10; i++) {
		gpu_start(&gpu, 2);
		gpu_fill(&gpu, p, 2 * PAGE, i);
		gpu_close(&gpu);
		cpu_check(p, 2 * PAGE, i);
	}
}
END_TEST

/* Frames come and go while the device is attached. */
START_TEST(physmem_is_added_and_removed_live)
{
	const uint64_t more = 0x80000000;
	struct fake f;
	uint64_t value;
	char *p = um(8);

	fake_open(&f, 4, GM_CAP_REPLAY | GM_CAP_WRITE_FAULT);
	ck_assert_int_eq(fake_attach(&f), 0);
	ck_assert_int_eq(gm_dev_register_physmem(f.dev, more, more), -EINVAL);
	ck_assert_int_eq(gm_dev_register_physmem(f.dev, more + 1, more + PAGE),
			 -EINVAL);
	ck_assert_int_eq(
		gm_dev_register_physmem(f.dev, 0x40000000, 0x40000000 + PAGE),
		-EEXIST);
	ck_assert_int_eq(gm_dev_unregister_physmem(f.dev, more, more + PAGE),
			 -ENOENT);
	for (uint64_t i = 0; i < 8; i++)
		ck_assert_int_eq(fake_store(&f, (uint64_t *)(p + i * PAGE), i),
				 0);
	ck_assert_int_eq(gm_dev_destroy(f.dev), -EBUSY);
	works(gmadvise(f.node, p, PAGE, GM_PIN));
	ck_assert_int_eq(gm_dev_unregister_physmem(f.dev, 0x40000000,
						   0x40000000 + 4 * PAGE),
			 -EBUSY);
	works(gmadvise(0, p, PAGE, GM_UNPIN));
	ck_assert_int_eq(gm_dev_unregister_physmem(f.dev, 0x40000000,
						   0x40000000 + 4 * PAGE),
			 0);
	ck_assert_int_eq(fake_load(&f, (uint64_t *)p, &value), -ENOMEM);
	for (uint64_t i = 0; i < 8; i++)
		ck_assert_uint_eq(*(uint64_t *)(p + i * PAGE), i);
	ck_assert_int_eq(gm_dev_register_physmem(f.dev, 0x40000000,
						 0x40000000 + 4 * PAGE),
			 0);
	for (uint64_t i = 0; i < 8; i++) {
		ck_assert_int_eq(
			fake_load(&f, (uint64_t *)(p + i * PAGE), &value), 0);
		ck_assert_uint_eq(value, i);
	}
	fake_detach(&f);
	fake_close(&f);
}
END_TEST

/* An XPU that cannot tell a store from a load takes every page for itself. */
START_TEST(xpu_without_write_faults)
{
	struct fake f;
	uint64_t value;
	char *p = um(2);

	fake_open(&f, 2, GM_CAP_REPLAY);
	ck_assert_int_eq(fake_attach(&f), 0);
	cpu_fill(p, 2 * PAGE, 1);
	ck_assert_int_eq(fake_load(&f, (uint64_t *)p, &value), 0);
	ck_assert_uint_eq(value, pattern(1, 0));
	all_in(p, 1, GM_STATE_MODIFIED, 1ull << f.node);
	cpu_check(p, 2 * PAGE, 1);
	fake_detach(&f);
	fake_close(&f);
}
END_TEST

START_TEST(context_that_is_reset_loses_nothing)
{
	struct fake f;
	uint64_t value;
	char *p = um(2);

	fake_open(&f, 2, GM_CAP_REPLAY | GM_CAP_WRITE_FAULT);
	ck_assert_int_eq(fake_attach(&f), 0);
	ck_assert_int_eq(gm_as_attach(f.as, f.dev, &f), -EEXIST);
	ck_assert_int_eq(fake_store(&f, (uint64_t *)p, 8), 0);
	memset(f.va, 0, sizeof(f.va));
	ck_assert_int_eq(gm_as_reset(f.as, f.dev), 0);
	ck_assert_int_eq(fake_load(&f, (uint64_t *)p, &value), 0);
	ck_assert_uint_eq(value, 8);
	fake_detach(&f);
	ck_assert_int_eq(gm_as_detach(f.as, f.dev), -ENOENT);
	ck_assert_int_eq(gm_as_reset(f.as, f.dev), -ENOENT);
	fake_close(&f);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, both_see_what_either_writes);
	tcase_add_test(tc, all_three_share_what_they_only_read);
	tcase_add_test(tc, two_gpus_fight_for_a_page);
	tcase_add_test(tc, gmemcpy_between_two);
	tcase_add_test(tc, one_detaches_while_the_other_runs);
	tcase_add_test(tc, fifty_attaches_leave_nothing);
	tcase_add_test(tc, ten_gpus_opened_and_closed);
	tcase_add_test(tc, physmem_is_added_and_removed_live);
	tcase_add_test(tc, xpu_without_write_faults);
	tcase_add_test(tc, context_that_is_reset_loses_nothing);
}

int main(void)
{
	return run_suite("several", add);
}
