/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* test_error.c - kernels that crash, contexts and memories that die */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "kernels.h"
#include "suites.h"

static struct rig rig;

static const struct {
	struct crash crash;
	int err;
	const char *text;
} crashes[] = {
	{ { CRASH_NULL, 5, 8 }, -EFAULT, "wild write at address 0x8" },
	{ { CRASH_NONCANONICAL, 5, 0 }, -EFAULT, "address unknown" },
	{ { CRASH_DIVIDE, 5, 0 }, -ECANCELED, "signal 8 " },
	{ { CRASH_ABORT, 5, 0 }, -ECANCELED, "signal 6 " },
	{ { CRASH_ILL, 5, 0 }, -ECANCELED, "signal 4 " },
	{ { CRASH_WILD, 5, 0x12345000 },
	  -EFAULT,
	  "read at address 0x12345000" },
	{ { CRASH_JUMP, 5, 0x300000200000 }, -EFAULT, "0x300000200000" },
};

START_TEST(crash_is_told)
{
	struct span a;
	const char *text;

	rig_open(&rig, NULL);
	*frame(&rig, 9) = 77;
	ck_assert_int_eq(rig_run(&rig, "crash", 10, &crashes[_i].crash,
				 sizeof(struct crash)),
			 crashes[_i].err);
	text = sgpu_error(rig.gpu);
	ck_assert_msg(strstr(text, crashes[_i].text) &&
			      strstr(text, "kernel crash,") &&
			      strstr(text, "index 5"),
		      "%s", text);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), crashes[_i].err);
	ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 9), 1, NULL };
	ck_assert_int_eq(rig_run(&rig, "count", 3, &a, sizeof(a)), 0);
	ck_assert_uint_eq(*frame(&rig, 9), 80);
	ck_assert_uint_eq(rig.deaths, 1);
	rig_close(&rig);
}
END_TEST

/* No handler runs: the death itself is what is seen. */
START_TEST(silent_deaths)
{
	static const struct crash quiet[] = {
		{ CRASH_EXIT, 0, 0 }, { CRASH_BLOCKED, 0, 0x300000200000 }
	};
	static const char *const texts[] = { "exited with status 3",
					     "killed by signal 11" };

	rig_open(&rig, NULL);
	ck_assert_int_eq(
		rig_run(&rig, "crash", 1, &quiet[_i], sizeof(quiet[_i])),
		-ECANCELED);
	ck_assert_msg(strstr(sgpu_error(rig.gpu), texts[_i]) != NULL, "%s",
		      sgpu_error(rig.gpu));
	ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	ck_assert_int_eq(rig_run(&rig, "nothing", 1, NULL, 0), 0);
	rig_close(&rig);
}
END_TEST

/* Without a driver there is nobody to serve a fault, and reset restarts. */
START_TEST(no_driver)
{
	struct span a;

	rig_open_bare(&rig, NULL);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 9), 1, NULL };
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(rig_run(&rig, "nothing", 5, NULL, 0), 0);
		ck_assert_int_eq(rig_run(&rig, "count", 3, &a, sizeof(a)),
				 -EFAULT);
		ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	}
	rig_close(&rig);
}
END_TEST

START_TEST(killed_while_it_runs)
{
	struct sgpu_hw_info info;
	struct span wait, a;
	pid_t old;

	rig_open(&rig, NULL);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 8), 5, NULL };
	ck_assert_int_eq(rig_run(&rig, "count", 4, &a, sizeof(a)), 0);
	wait = (struct span){ (void *)(uintptr_t)va(&rig, 9), 0, NULL };
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL,
				     rig_kernel(&rig, "wait_word"), 1, &wait,
				     sizeof(wait)),
			 0);
	ck_assert(becomes(&rig.reads, 1));
	old = rig.info.pid;
	ck_assert_int_eq(kill(old, SIGKILL), 0);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), -ECANCELED);
	ck_assert_ptr_nonnull(
		strstr(sgpu_error(rig.gpu), "killed by signal 9"));
	ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	ck_assert_int_eq(sgpu_hw_info(rig.gpu, &info), 0);
	ck_assert_int_ne(info.pid, old);
	ck_assert_uint_eq(*frame(&rig, 8), 20);
	ck_assert_int_eq(rig_run(&rig, "count", 4, &a, sizeof(a)), 0);
	ck_assert_uint_eq(*frame(&rig, 8), 40);
	rig_close(&rig);
}
END_TEST

/* Between the death and the restart. */
START_TEST(commands_without_context)
{
	struct sgpu_hw_fault fault;
	struct sgpu_hw_info info;

	rig_open_bare(&rig, NULL);
	ck_assert_int_eq(sgpu_hw_bind(rig.gpu, &rig.info), 0);
	ck_assert_int_eq(rig_map(&rig, 1, 1, 1, 3), 0);
	ck_assert_int_eq(kill(rig.info.pid, SIGKILL), 0);
	ck_assert_int_eq(sgpu_hw_fault_wait(rig.gpu, &fault, 1), -ECONNRESET);
	ck_assert_int_eq(rig_unmap(&rig, 1, 1), 0);
	ck_assert_int_eq(rig_protect(&rig, 1, 1, 1), 0);
	ck_assert_int_eq(rig_map(&rig, 1, 1, 1, 3), -EAGAIN);
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, 0, 64), 0);
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL, NULL, 1, NULL, 0), -EINVAL);
	ck_assert_int_eq(sgpu_hw_restart(rig.gpu), 0);
	ck_assert_int_eq(sgpu_hw_restart(rig.gpu), 0);
	ck_assert_int_eq(rig_map(&rig, 1, 1, 1, 3), 0);
	ck_assert_int_eq(sgpu_hw_info(rig.gpu, &info), 0);
	ck_assert_int_ne(info.pid, rig.info.pid);
	ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	sgpu_hw_fault_stop(rig.gpu);
	sgpu_hw_unbind(rig.gpu);
	rig_close(&rig);
}
END_TEST

START_TEST(die_on_command)
{
	rig_open(&rig, NULL);
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, 3), 0);
	ck_assert_int_eq(sgpu_hw_inject(rig.gpu, "die:2"), 0);
	ck_assert_int_eq(rig_map(&rig, 1, 1, 1, 3), 0);
	/* Whether it is revoked by the command or the death: it is. */
	ck_assert_int_eq(rig_unmap(&rig, 0, 1), 0);
	ck_assert(becomes(&rig.deaths, 1));
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), -ECANCELED);
	ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	ck_assert_int_eq(rig_run(&rig, "nothing", 4, NULL, 0), 0);
	rig_close(&rig);
}
END_TEST

START_TEST(hang_ends_at_the_deadline)
{
	struct sgpu_kernel *kernel;
	uint64_t begin, took;

	rig_open(&rig, NULL);
	kernel = rig_kernel(&rig, "nothing");
	sgpu_hw_deadline(rig.gpu, 200);
	ck_assert_int_eq(sgpu_hw_inject(rig.gpu, "hang:1"), 0);
	begin = now_us();
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, 3), -ETIMEDOUT);
	took = now_us() - begin;
	ck_assert_msg(took >= 200000 && took < 5000000, "%llu us",
		      (unsigned long long)took);
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, 3), -ENODEV);
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, 0, 8), -ENODEV);
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL, kernel, 1, NULL, 0),
			 -ENODEV);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), -ENODEV);
	ck_assert_int_eq(sgpu_reset(rig.gpu), -ENODEV);
	ck_assert(becomes(&rig.gone, 2));
	ck_assert_int_ne(kill(rig.info.pid, 0), 0);
	rig_close(&rig);
}
END_TEST

/* Loop: lost by a command, by a copy. */
START_TEST(memory_lost)
{
	struct span wait;

	rig_open(&rig, NULL);
	wait = (struct span){ (void *)(uintptr_t)va(&rig, 9), 0, NULL };
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL,
				     rig_kernel(&rig, "wait_word"), 1, &wait,
				     sizeof(wait)),
			 0);
	ck_assert(becomes(&rig.reads, 1));
	ck_assert_int_eq(sgpu_hw_inject(rig.gpu, "lost:1"), 0);
	if (_i)
		ck_assert_int_eq(sgpu_hw_zero(rig.gpu, 0, 8), -ENODEV);
	else
		ck_assert_int_eq(rig_unmap(&rig, 9, 1), -ENODEV);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), -ENODEV);
	ck_assert_ptr_nonnull(strstr(sgpu_error(rig.gpu), "lost"));
	ck_assert_int_eq(rig_unmap(&rig, 9, 1), -ENODEV);
	ck_assert_int_eq(sgpu_hw_copy(rig.gpu, SGPU_HW_IN_DEV, 0, PAGE, 8),
			 -ENODEV);
	ck_assert_int_eq(sgpu_reset(rig.gpu), -ENODEV);
	ck_assert(becomes(&rig.gone, 2));
	rig_close(&rig);
}
END_TEST

/* Crash after crash; the GPU is as good as new each time. */
START_TEST(many_resets)
{
	struct crash c = { CRASH_NULL, 0, 0 };
	struct span a;

	rig_open(&rig, NULL);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
	for (unsigned int i = 1; i <= 15; i++) {
		ck_assert_int_eq(rig_run(&rig, "crash", 2, &c, sizeof(c)),
				 -EFAULT);
		ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
		ck_assert_int_eq(rig_run(&rig, "count", 2, &a, sizeof(a)), 0);
		ck_assert_uint_eq(rig.deaths, i);
	}
	ck_assert_uint_eq(*frame(&rig, 0), 30);
	rig_close(&rig);
}
END_TEST

static void *serve_nonsense(void *arg)
{
	struct sgpu_hw_fault faults[8];
	int n;

	do {
		n = sgpu_hw_fault_wait(rig.gpu, faults, 8);
		for (int i = 0; i < n; i++) {
			ck_assert(faults[i].access == SGPU_HW_READ ||
				  faults[i].access == SGPU_HW_WRITE);
			ck_assert_uint_lt(faults[i].addr - rig.info.arena_base,
					  rig.info.arena_len);
			sgpu_hw_fault_done(rig.gpu, &faults[i], 0);
		}
		if (n == -ECONNRESET) {
			sgpu_hw_restart(rig.gpu);
			sgpu_reset(rig.gpu);
		}
	} while (n > 0 || n == -ECONNRESET);
	return NULL;
}

/*
 * Whatever a device makes of its registers: calls return in time, with one of
 * the errors they may return, and the memory is as it was.
 */
START_TEST(hostile_device)
{
	struct sgpu_config c = { .program = getenv("SGPU_TEST_HOSTILE"),
				 .memory = 16 * PAGE };
	struct sgpu_kernel *kernel = NULL;
	pthread_t thread;
	uint64_t end = now_us() + 1500000;
	unsigned int rounds = 0;

	ck_assert_int_eq(sgpu_open(&c, &rig.gpu), 0);
	sgpu_hw_deadline(rig.gpu, 2000);
	ck_assert_int_eq(sgpu_hw_bind(rig.gpu, &rig.info), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, serve_nonsense, NULL),
			 0);
	*frame(&rig, 3) = 33;
	while (now_us() < end) {
		int ret = rig_map(&rig, rounds % 16, rounds % 16, 1, 3);

		ck_assert_msg(ret == 0 || ret == -EAGAIN || ret == -EIO ||
				      ret == -ENOMEM || ret == -ETIMEDOUT ||
				      ret == -ENODEV,
			      "%d", ret);
		rig_unmap(&rig, rounds % 16, 1);
		if (!rig.module)
			sgpu_module_load(rig.gpu, getenv("SGPU_TEST_KERNELS"),
					 &rig.module);
		if (rig.module && !kernel)
			sgpu_kernel_find(rig.module, "nothing", &kernel);
		if (kernel && rounds % 100 < 2)
			sgpu_launch(rig.gpu, NULL, kernel, 1, NULL, 0);
		rounds++;
		if (ret == -ETIMEDOUT || ret == -ENODEV)
			break;
	}
	ck_assert_uint_gt(rounds, 0);
	ck_assert_uint_eq(*frame(&rig, 3), 33);
	sgpu_hw_fault_stop(rig.gpu);
	pthread_join(thread, NULL);
	sgpu_hw_unbind(rig.gpu);
	sgpu_close(rig.gpu);
}
END_TEST

Suite *error_suite(void)
{
	Suite *s = suite_create("error");
	TCase *t = tcase_create("error");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, crash_is_told, 0,
			    sizeof(crashes) / sizeof(crashes[0]));
	tcase_add_loop_test(t, silent_deaths, 0, 2);
	tcase_add_test(t, no_driver);
	tcase_add_test(t, killed_while_it_runs);
	tcase_add_test(t, commands_without_context);
	tcase_add_test(t, die_on_command);
	tcase_add_test(t, hang_ends_at_the_deadline);
	tcase_add_loop_test(t, memory_lost, 0, 2);
	tcase_add_test(t, many_resets);
	tcase_add_loop_test(t, hostile_device, 0, 4);
	suite_add_tcase(s, t);
	return s;
}
