/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* test_driver.c - the driver under the manager: unified pointers in kernels */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gm_sgpu.h"
#include "gmm/gmm.h"
#include "harness.h"
#include "kernels.h"

static struct rig rig;
static int node;

static void *unified(size_t len)
{
	void *p = gm_mmap(NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE, -1, 0);

	ck_assert_msg(p != MAP_FAILED, "%s", gm_error());
	return p;
}

static void start(const struct sgpu_config *config)
{
	int ret;

	rig_open_bare(&rig, config);
	ret = gm_sgpu_attach(rig.gpu, &node);
	ck_assert_msg(ret == 0, "%d %s", ret, gm_error());
}

static void finish(void)
{
	int ret = gm_sgpu_detach(rig.gpu);

	ck_assert_msg(ret == 0, "%d %s", ret, gm_error());
	rig_close(&rig);
}

static void run(const char *name, uint64_t grid, const void *args, size_t len)
{
	int ret = rig_run(&rig, name, grid, args, len);

	ck_assert_msg(ret == 0, "%s: %d %s", name, ret, sgpu_error(rig.gpu));
}

START_TEST(attach_detach)
{
	start(NULL);
	ck_assert_int_eq(gm_sgpu_attach(rig.gpu, NULL), -EEXIST);
	ck_assert_int_eq(gm_sgpu_detach(rig.gpu), 0);
	ck_assert_int_eq(gm_sgpu_detach(rig.gpu), -ENOENT);
	ck_assert_int_eq(gm_sgpu_attach(rig.gpu, NULL), 0);
	finish();
}
END_TEST

START_TEST(vector_add)
{
	enum { N = 1000000 };
	struct three a;
	uint64_t *x, *y, *z;

	start(NULL);
	x = unified(N * 8);
	y = unified(N * 8);
	z = unified(N * 8);
	for (uint64_t i = 0; i < N; i++) {
		x[i] = i;
		y[i] = 7 * i;
	}
	a = (struct three){ x, y, z };
	run("add", N, &a, sizeof(a));
	for (uint64_t i = 0; i < N; i++)
		ck_assert_uint_eq(z[i], 8 * i);
	/* What the CPU changes is seen, and the other way round. */
	x[5] = 1000;
	run("add", N, &a, sizeof(a));
	ck_assert_uint_eq(z[5], 1035);
	finish();
	ck_assert_uint_eq(z[6], 48);
}
END_TEST

START_TEST(many_workers)
{
	struct sgpu_config c = { .workers = 8 };
	uint64_t *p;
	struct span a;

	start(&c);
	p = unified(40 * PAGE);
	a = (struct span){ p, 1, NULL };
	for (int i = 0; i < 5; i++) {
		run("touch_pages", 40, &a, sizeof(a));
		run("count", 200, &a, sizeof(a));
		for (uint64_t k = 0; k < 40; k++)
			ck_assert_uint_eq(p[k * PAGE / 8],
					  (uint64_t)(i + 1) * (k ? 1 : 201));
	}
	finish();
}
END_TEST

/* Three times as much as there is room for. */
START_TEST(oversubscribed)
{
	struct sgpu_config c = { .memory = 16 * PAGE, .workers = 2 };
	uint64_t *p;
	struct span a;

	start(&c);
	p = unified(48 * PAGE);
	a = (struct span){ p, 3, NULL };
	for (int i = 0; i < 4; i++)
		run("touch_pages", 48, &a, sizeof(a));
	for (uint64_t k = 0; k < 48; k++)
		ck_assert_uint_eq(p[k * PAGE / 8], 12);
	finish();
}
END_TEST

START_TEST(oversubscribed_and_back)
{
	struct sgpu_config c = { .memory = 16 * PAGE };
	uint64_t *p;
	struct span a;

	start(&c);
	p = unified(48 * PAGE);
	a = (struct span){ p, 1, NULL };
	run("touch_pages", 48, &a, sizeof(a));
	finish();
	for (uint64_t k = 0; k < 48; k++)
		ck_assert_uint_eq(p[k * PAGE / 8], 1);
}
END_TEST

START_TEST(wild_access)
{
	struct span a;
	uint64_t *p;

	start(NULL);
	p = unified(2 * PAGE);
	a = (struct span){ p, 5, NULL };
	run("count", 2, &a, sizeof(a));
	a.p = (char *)p + 100 * PAGE; /* in the arena, not unified */
	ck_assert_int_eq(rig_run(&rig, "count", 2, &a, sizeof(a)), -EFAULT);
	ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	a.p = p;
	run("count", 2, &a, sizeof(a));
	ck_assert_uint_eq(*p, 20);
	finish();
}
END_TEST

START_TEST(context_death_loses_nothing)
{
	struct sgpu_hw_info info;
	struct span a;
	uint64_t *p;

	start(NULL);
	p = unified(20 * PAGE);
	a = (struct span){ p, 1, NULL };
	for (uint64_t i = 1; i <= 3; i++) {
		run("touch_pages", 20, &a, sizeof(a));
		ck_assert_int_eq(sgpu_hw_info(rig.gpu, &info), 0);
		ck_assert_int_eq(kill(info.pid, SIGKILL), 0);
		while (!sgpu_sync(rig.gpu, NULL))
			;
		ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	}
	run("touch_pages", 20, &a, sizeof(a));
	for (uint64_t k = 0; k < 20; k++)
		ck_assert_uint_eq(p[k * PAGE / 8], 4);
	finish();
}
END_TEST

START_TEST(memory_lost_is_told)
{
	struct gm_where where;
	struct span a;
	uint64_t *p;

	start(NULL);
	p = unified(4 * PAGE);
	p[3 * PAGE / 8] = 9;
	a = (struct span){ p, 1, NULL };
	run("touch_pages", 2, &a, sizeof(a));
	ck_assert_int_eq(sgpu_hw_inject(rig.gpu, "lost:1"), 0);
	ck_assert_int_ne(sgpu_hw_zero(rig.gpu, 0, 8), 0);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), -ENODEV);
	for (uint64_t end = now_us() + 10000000; now_us() < end;) {
		ck_assert_int_eq(gm_where(p, &where), 0);
		if (where.state == GM_STATE_POISON)
			break;
	}
	ck_assert_int_eq(where.state, GM_STATE_POISON);
	ck_assert_uint_eq(p[3 * PAGE / 8], 9);
	finish();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("driver");
	TCase *t = tcase_create("driver");
	SRunner *runner;
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, attach_detach);
	tcase_add_test(t, vector_add);
	tcase_add_test(t, many_workers);
	tcase_add_test(t, oversubscribed);
	tcase_add_test(t, oversubscribed_and_back);
	tcase_add_test(t, wild_access);
	tcase_add_test(t, context_death_loses_nothing);
	tcase_add_test(t, memory_lost_is_told);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
