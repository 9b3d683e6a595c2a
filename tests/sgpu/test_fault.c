/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* test_fault.c - the fault unit */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "kernels.h"
#include "suites.h"

static struct rig rig;

/* One fault of the right kind each, at the right page. */
START_TEST(read_told_from_write)
{
	struct access a;
	bool write = _i >= ACCESS_FIRST_WRITE;

	rig_open(&rig, NULL);
	a = (struct access){ (void *)(uintptr_t)(va(&rig, 4) + 128),
			     (uint64_t)_i };
	ck_assert_int_eq(rig_run(&rig, "access", 1, &a, sizeof(a)), 0);
	ck_assert_uint_eq(rig.reads, !write);
	ck_assert_uint_eq(rig.writes, write);
	ck_assert_uint_eq(rig.last_addr, va(&rig, 4) + 128);
	/* A write to what was mapped for reading faults once more. */
	if (!write) {
		a.how = ACCESS_STORE;
		ck_assert_int_eq(rig_run(&rig, "access", 1, &a, sizeof(a)), 0);
		ck_assert_uint_eq(rig.writes, 1);
	}
	rig_close(&rig);
}
END_TEST

START_TEST(registers_survive)
{
	struct span a;
	uint64_t want[2] = { 0, 0 };

	rig_open(&rig, NULL);
	for (uint64_t i = 0; i < 50; i++) {
		frame(&rig, i)[0] = i * 3;
		frame(&rig, i)[1] = i + 1000;
		want[0] += i * 3;
		want[1] += i + 1000;
	}
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 50,
			   (void *)(uintptr_t)va(&rig, 60) };
	ck_assert_int_eq(rig_run(&rig, "vector_sum", 1, &a, sizeof(a)), 0);
	ck_assert_mem_eq(frame(&rig, 60), want, sizeof(want));
	ck_assert_uint_eq(rig.reads, 50);
	ck_assert_uint_eq(rig.writes, 1);
	rig_close(&rig);
}
END_TEST

START_TEST(vector_add)
{
	enum { N = 600000 };
	struct three a;

	rig_open(&rig, NULL);
	a = (struct three){ (void *)(uintptr_t)va(&rig, 0),
			    (void *)(uintptr_t)va(&rig, 10),
			    (void *)(uintptr_t)va(&rig, 20) };
	for (uint64_t i = 0; i < N; i++) {
		frame(&rig, 0)[i] = i;
		frame(&rig, 10)[i] = 5 * i;
	}
	ck_assert_int_eq(rig_run(&rig, "add", N, &a, sizeof(a)), 0);
	for (uint64_t i = 0; i < N; i++)
		ck_assert_uint_eq(frame(&rig, 20)[i], 6 * i);
	rig_close(&rig);
}
END_TEST

START_TEST(many_workers_one_page)
{
	struct sgpu_config c = { .workers = 8 };
	struct span a;

	rig_open(&rig, &c);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 1), 1, NULL };
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(rig_unmap(&rig, 1, 1), 0);
		ck_assert_int_eq(rig_run(&rig, "count", 500, &a, sizeof(a)), 0);
	}
	ck_assert_uint_eq(*frame(&rig, 1), 20 * 500);
	rig_close(&rig);
}
END_TEST

START_TEST(many_workers_many_pages)
{
	struct sgpu_config c = { .workers = 16 };
	struct span a;

	rig_open(&rig, &c);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(rig_unmap(&rig, 0, 128), 0);
		ck_assert_int_eq(
			rig_run(&rig, "touch_pages", 120, &a, sizeof(a)), 0);
	}
	for (uint64_t i = 0; i < 120; i++)
		ck_assert_uint_eq(*frame(&rig, i), 10);
	ck_assert_uint_ge(rig.writes, 1200);
	rig_close(&rig);
}
END_TEST

/* More threads wait than the queue has room for. */
START_TEST(faults_wait_for_an_answer)
{
	struct sgpu_config c = { .workers = 12 };
	struct span a;
	struct sgpu_hw_fault faults[16];
	uint64_t waiters = 0;
	int n = 0;

	rig_open_bare(&rig, &c);
	ck_assert_int_eq(sgpu_hw_bind(rig.gpu, &rig.info), 0);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL,
				     rig_kernel(&rig, "touch_pages"), 12, &a,
				     sizeof(a)),
			 0);
	while (n < 12) {
		int k = sgpu_hw_fault_wait(rig.gpu, faults + n, 5);

		ck_assert_int_gt(k, 0);
		ck_assert_int_le(k, 5);
		n += k;
	}
	for (int i = 0; i < 12; i++) {
		uint64_t page = (faults[i].addr - va(&rig, 0)) / PAGE;

		ck_assert_uint_eq(faults[i].access, SGPU_HW_WRITE);
		ck_assert_uint_lt(faults[i].worker, 12);
		ck_assert_uint_eq(faults[i].index, page);
		ck_assert_uint_eq(waiters & faults[i].waiters, 0);
		waiters |= faults[i].waiters;
		ck_assert_int_eq(rig_map(&rig, page, page, 1, 3), 0);
		sgpu_hw_fault_done(rig.gpu, &faults[i], 0);
	}
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), 0);
	sgpu_hw_fault_stop(rig.gpu);
	ck_assert_int_eq(sgpu_hw_fault_wait(rig.gpu, faults, 1), -ESHUTDOWN);
	sgpu_hw_unbind(rig.gpu);
	rig_close(&rig);
}
END_TEST

/* Eight threads, one page: it comes as one fault, or few, with a write. */
START_TEST(one_page_is_one_fault)
{
	struct sgpu_config c = { .workers = 8 };
	struct span a;
	struct sgpu_hw_fault fault;
	uint64_t waiters = 0;

	rig_open_bare(&rig, &c);
	ck_assert_int_eq(sgpu_hw_bind(rig.gpu, &rig.info), 0);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 2), 1, NULL };
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL, rig_kernel(&rig, "count"),
				     8, &a, sizeof(a)),
			 0);
	while (__builtin_popcountll(waiters) < 8) {
		ck_assert_int_eq(sgpu_hw_fault_wait(rig.gpu, &fault, 1), 1);
		ck_assert_uint_eq(fault.access, SGPU_HW_WRITE);
		ck_assert_uint_eq(waiters & fault.waiters, 0);
		waiters |= fault.waiters;
	}
	ck_assert_int_eq(rig_map(&rig, 2, 2, 1, 3), 0);
	fault.waiters = waiters;
	sgpu_hw_fault_done(rig.gpu, &fault, 0);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), 0);
	ck_assert_uint_eq(*frame(&rig, 2), 8);
	sgpu_hw_fault_stop(rig.gpu);
	sgpu_hw_unbind(rig.gpu);
	rig_close(&rig);
}
END_TEST

START_TEST(threads_of_a_kernel)
{
	struct span a;

	rig_open(&rig, NULL);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 6), 0, NULL };
	ck_assert_int_eq(rig_run(&rig, "own_thread", 1, &a, sizeof(a)), 0);
	ck_assert_uint_eq(*frame(&rig, 6), 11);
	/* And its failure is the launch's. */
	rig.answer = -EACCES;
	a.p = (void *)(uintptr_t)va(&rig, 63);
	ck_assert_int_eq(rig_run(&rig, "own_thread", 1, &a, sizeof(a)),
			 -EACCES);
	ck_assert_ptr_nonnull(strstr(sgpu_error(rig.gpu), "own_thread"));
	rig_close(&rig);
}
END_TEST

START_TEST(failed_fault_is_sticky)
{
	static const int codes[] = { -EFAULT, -EACCES,	  -ENOMEM,
				     -EBUSY,  -EHWPOISON, -EIO };
	struct span a;
	char text[32];

	rig_open(&rig, NULL);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 60), 1, NULL };
	*frame(&rig, 62) = 100;
	rig.answer = codes[_i];
	snprintf(text, sizeof(text), "%#llx", (unsigned long long)va(&rig, 63));
	ck_assert_int_eq(rig_run(&rig, "touch_pages", 4, &a, sizeof(a)),
			 codes[_i]);
	ck_assert_ptr_nonnull(strstr(sgpu_error(rig.gpu), "touch_pages"));
	ck_assert_ptr_nonnull(strstr(sgpu_error(rig.gpu), "index 3"));
	ck_assert_ptr_nonnull(strstr(sgpu_error(rig.gpu), text));
	/* Sticky until the reset, then all is as before: memory is kept. */
	ck_assert_int_eq(rig_run(&rig, "touch_pages", 3, &a, sizeof(a)),
			 codes[_i]);
	ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	ck_assert_uint_eq(rig.deaths, 1);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), 0);
	rig.answer = 0;
	rig.writes = 0;
	ck_assert_int_eq(rig_run(&rig, "touch_pages", 4, &a, sizeof(a)), 0);
	ck_assert_uint_eq(rig.writes, 4); /* the page table was empty */
	ck_assert_uint_ge(*frame(&rig, 62), 101);
	ck_assert_uint_eq(*frame(&rig, 63), 1);
	rig_close(&rig);
}
END_TEST

Suite *fault_suite(void)
{
	Suite *s = suite_create("fault");
	TCase *t = tcase_create("fault");

	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, read_told_from_write, 0, ACCESS_NR);
	tcase_add_test(t, registers_survive);
	tcase_add_test(t, vector_add);
	tcase_add_test(t, many_workers_one_page);
	tcase_add_test(t, many_workers_many_pages);
	tcase_add_test(t, faults_wait_for_an_answer);
	tcase_add_test(t, one_page_is_one_fault);
	tcase_add_test(t, threads_of_a_kernel);
	tcase_add_loop_test(t, failed_fault_is_sticky, 0, 6);
	suite_add_tcase(s, t);
	return s;
}
