/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* test_life.c - open and close, streams, modules, forks, the end */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "kernels.h"
#include "suites.h"

#ifdef __SANITIZE_THREAD__
#define TSAN 1
#else
#define TSAN 0
#endif

static struct rig rig;

static unsigned int entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned int n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	int c;

	ck_assert_ptr_nonnull(f);
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* The address sanitizer's allocator takes more now and then. */
#ifdef __SANITIZE_ADDRESS__
#define MAPS_SLACK 20
#else
#define MAPS_SLACK 2
#endif

START_TEST(open_close_leaks_nothing)
{
	unsigned int fds = 0, maps = 0, threads = 0;
	struct span a;

	for (int i = 0; i < 50; i++) {
		rig_open(&rig, NULL);
		a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
		ck_assert_int_eq(rig_run(&rig, "count", 2, &a, sizeof(a)), 0);
		rig_close(&rig);
		ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
		ck_assert_int_eq(errno, ECHILD);
		if (i == 2) {
			threads = entries("/proc/self/task");
			fds = entries("/proc/self/fd");
			maps = mappings();
		}
	}
	ck_assert_uint_eq(entries("/proc/self/task"), threads);
	ck_assert_uint_eq(entries("/proc/self/fd"), fds);
	if (!TSAN) /* which makes some for each thread */
		ck_assert_uint_le(mappings(),
				  maps + MAPS_SLACK); /* malloc's own */
}
END_TEST

START_TEST(bad_configs)
{
	const struct sgpu_config bad[] = {
		{ .memory = 4096 },
		{ .memory = PAGE + 1 },
		{ .memory = ~(PAGE - 1) },
		{ .workers = 100000 },
		{ .arena_base = 0x300000000000 },
		{ .arena_len = PAGE },
		{ .arena_base = 0x300000001000, .arena_len = PAGE },
		{ .arena_base = 0x300000000000, .arena_len = 100 },
		{ .arena_base = 0x7ffffff00000 & ~(PAGE - 1),
		  .arena_len = ~(PAGE - 1) },
		{ .fail = "sometimes" },
	};
	struct sgpu_config none = { .program = "/nonexistent/sgpu-device" };
	struct sgpu_config wrong = { .program = "/bin/true" };
	struct sgpu *gpu = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(sgpu_open(&bad[i], &gpu) == -EINVAL, "%zu", i);
		ck_assert_ptr_null(gpu);
		ck_assert_str_ne(sgpu_error(NULL), "");
	}
	ck_assert_int_eq(sgpu_open(&none, &gpu), -ENOENT);
	ck_assert_int_eq(sgpu_open(&wrong, &gpu), -EIO);
	ck_assert_ptr_null(gpu);
	ck_assert_int_eq(sgpu_open(NULL, NULL), -EINVAL);
	sgpu_close(NULL);
}
END_TEST

START_TEST(environment)
{
	static const char *const bad[] = { "12X", "M",	"-2M", "4M4",
					   " 2M", "2m", "3K",  "99999999999G",
					   "0",	  "0x", "2MB" };
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = { { "4M", 4 << 20 },
		     { "2048K", 2 << 20 },
		     { "1G", 1 << 30 },
		     { "0x400000", 4 << 20 },
		     { "6291456", 6 << 20 } };
	struct sgpu *gpu = NULL;
	struct sgpu_hw_info info;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("SGPU_MEMORY", bad[i], 1);
		ck_assert_msg(sgpu_open(NULL, &gpu) == -EINVAL, "%s", bad[i]);
		ck_assert_str_ne(sgpu_error(NULL), "");
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		setenv("SGPU_MEMORY", good[i].text, 1);
		ck_assert_int_eq(sgpu_open(NULL, &gpu), 0);
		ck_assert_int_eq(sgpu_hw_info(gpu, &info), 0);
		ck_assert_uint_eq(info.memory, good[i].bytes);
		ck_assert_uint_eq((uintptr_t)info.window % PAGE, 0);
		sgpu_close(gpu);
	}
	setenv("SGPU_WORKERS", "3", 1);
	ck_assert_int_eq(sgpu_open(NULL, &gpu), 0);
	ck_assert_int_eq(sgpu_hw_info(gpu, &info), 0);
	ck_assert_uint_eq(info.workers, 3);
	sgpu_close(gpu);
	setenv("SGPU_WORKERS", "3K", 1);
	ck_assert_int_eq(sgpu_open(NULL, &gpu), -EINVAL);
	unsetenv("SGPU_WORKERS");
	setenv("SGPU_FAIL", "map:x", 1);
	ck_assert_int_eq(sgpu_open(NULL, &gpu), -EINVAL);
	ck_assert_ptr_nonnull(strstr(sgpu_error(NULL), "map:x"));
}
END_TEST

START_TEST(modules_and_kernels)
{
	struct sgpu_module *module = NULL;
	struct sgpu_kernel *kernel = NULL, *again = NULL;
	unsigned char args[SGPU_ARGS_MAX + 1] = { 0 };

	rig_open_bare(&rig, NULL);
	ck_assert_int_eq(sgpu_module_load(rig.gpu, "/nonexistent.so", &module),
			 -ENOENT);
	ck_assert_int_eq(sgpu_module_load(rig.gpu, "/etc/passwd", &module),
			 -ENOEXEC);
	ck_assert_ptr_nonnull(strstr(sgpu_error(rig.gpu), "/etc/passwd"));
	ck_assert_ptr_null(module);
	ck_assert_int_eq(sgpu_kernel_find(rig.module, "no_such", &kernel),
			 -ENOENT);
	ck_assert_int_eq(sgpu_kernel_find(rig.module, "nothing", &kernel), 0);
	ck_assert_int_eq(sgpu_kernel_find(rig.module, "nothing", &again), 0);
	ck_assert_ptr_eq(kernel, again);
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL, kernel, 0, NULL, 0),
			 -EINVAL);
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL, kernel, 1, NULL, 8),
			 -EINVAL);
	ck_assert_int_eq(
		sgpu_launch(rig.gpu, NULL, kernel, 1, args, SGPU_ARGS_MAX + 1),
		-EINVAL);
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL, NULL, 1, NULL, 0), -EINVAL);
	ck_assert_int_eq(
		sgpu_launch(rig.gpu, NULL, kernel, 1, args, SGPU_ARGS_MAX), 0);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), 0);
	rig_close(&rig);
}
END_TEST

/* Loop: one worker, four. */
START_TEST(a_stream_is_in_order)
{
	struct sgpu_config c = { .workers = _i ? 4 : 1 };
	struct sgpu_stream *stream;
	struct span a;

	rig_open(&rig, &c);
	ck_assert_int_eq(sgpu_stream_create(rig.gpu, &stream), 0);
	for (uint64_t i = 1; i <= 9; i++) {
		a = (struct span){ (void *)(uintptr_t)va(&rig, 0), i, NULL };
		ck_assert_int_eq(sgpu_launch(rig.gpu, stream,
					     rig_kernel(&rig, "append"), 1, &a,
					     sizeof(a)),
				 0);
	}
	ck_assert_int_eq(sgpu_sync(rig.gpu, stream), 0);
	ck_assert_uint_eq(*frame(&rig, 0), 123456789);
	sgpu_stream_destroy(stream);
	rig_close(&rig);
}
END_TEST

/* A launch of one stream waits for one of another: both must run. */
START_TEST(streams_are_concurrent)
{
	struct sgpu_config c = { .workers = 2 };
	struct sgpu_stream *one, *two;
	struct span a;

	rig_open(&rig, &c);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, 3), 0);
	ck_assert_int_eq(sgpu_stream_create(rig.gpu, &one), 0);
	ck_assert_int_eq(sgpu_stream_create(rig.gpu, &two), 0);
	ck_assert_int_eq(sgpu_launch(rig.gpu, one,
				     rig_kernel(&rig, "wait_word"), 1, &a,
				     sizeof(a)),
			 0);
	ck_assert_int_eq(sgpu_launch(rig.gpu, two, rig_kernel(&rig, "count"),
				     10, &a, sizeof(a)),
			 0);
	ck_assert_int_eq(sgpu_sync(rig.gpu, two), 0);
	ck_assert_int_eq(sgpu_sync(rig.gpu, one), 0);
	ck_assert_uint_eq(*frame(&rig, 0), 10);
	rig_close(&rig);
}
END_TEST

/* More launches than the queue holds; each index runs once. */
START_TEST(many_launches)
{
	struct sgpu_config c = { .workers = 3 };
	struct span a;

	rig_open(&rig, &c);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
	for (unsigned int i = 0; i < 1000; i++)
		ck_assert_int_eq(sgpu_launch(rig.gpu, NULL,
					     rig_kernel(&rig, "count"),
					     1 + i % 50, &a, sizeof(a)),
				 0);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), 0);
	ck_assert_uint_eq(*frame(&rig, 0), 20 * (50 * 51 / 2));
	rig_close(&rig);
}
END_TEST

START_TEST(no_files_of_the_program)
{
	struct span a;

	ck_assert_int_ge(dup2(2, 40), 0); /* not close-on-exec */
	rig_open(&rig, NULL);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
	ck_assert_int_eq(rig_run(&rig, "open_files", 1, &a, sizeof(a)), 0);
	/* Its own three, null, null, standard error, the parent's pidfd. */
	ck_assert_uint_eq(*frame(&rig, 0), 0x7f);
	rig_close(&rig);
}
END_TEST

START_TEST(a_fork_gets_clear_errors)
{
	struct sgpu_hw_fault fault;
	struct sgpu_module *module;
	struct sgpu_stream *stream;
	int status;
	pid_t pid;

	rig_open(&rig, NULL);
	pid = fork();
	if (!pid) {
		int bad = sgpu_launch(rig.gpu, NULL, (void *)1, 1, NULL, 0) !=
				  -ENODEV ||
			  sgpu_sync(rig.gpu, NULL) != -ENODEV ||
			  sgpu_reset(rig.gpu) != -ENODEV ||
			  sgpu_module_load(rig.gpu, "/x", &module) != -ENODEV ||
			  sgpu_stream_create(rig.gpu, &stream) != -ENODEV ||
			  rig_map(&rig, 0, 0, 1, 3) != -ENODEV ||
			  sgpu_hw_zero(rig.gpu, 0, 8) != -ENODEV ||
			  sgpu_hw_fault_wait(rig.gpu, &fault, 1) != -ENODEV ||
			  !strstr(sgpu_error(rig.gpu), "forked");
		struct sgpu *own = NULL;

		sgpu_close(rig.gpu);
		if (!TSAN) /* which allows a fork no threads */
			bad = bad || sgpu_open(NULL, &own);
		if (!bad)
			sgpu_close(own);
		_exit(bad);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(rig_run(&rig, "nothing", 1, NULL, 0), 0);
	rig_close(&rig);
}
END_TEST

/* Of a child; orphans become ours, as this process reaps. */
static bool ends_in_a_second(pid_t pid)
{
	uint64_t end = now_us() + 1000000;

	while (waitpid(pid, NULL, WNOHANG) != pid) {
		if (now_us() >= end)
			return false;
		usleep(1000);
	}
	return true;
}

/*
 * The program is killed while a kernel runs for ever; with a fork of it alive,
 * which holds all its files, too.
 */
START_TEST(killed_program_takes_the_device_along)
{
	int ends[2], status;
	pid_t pid, pids[2];

	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (!pid) {
		struct span a;

		rig_open(&rig, NULL);
		a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 0, NULL };
		sgpu_launch(rig.gpu, NULL, rig_kernel(&rig, "wait_word"), 1, &a,
			    sizeof(a));
		while (!rig.reads)
			usleep(1000);
		pids[0] = rig.info.pid;
		pids[1] = fork();
		if (pids[1] && write(ends[1], pids, sizeof(pids)) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	close(ends[1]);
	ck_assert_int_eq(read(ends[0], pids, sizeof(pids)), sizeof(pids));
	ck_assert_int_eq(kill(pids[0], 0), 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(ends_in_a_second(pids[0]));
	ck_assert_int_eq(kill(pids[1], SIGKILL), 0);
	ck_assert(ends_in_a_second(pids[1]));
}
END_TEST

/* A launch that never ends does not keep sgpu_close() from ending. */
START_TEST(close_ends_what_runs)
{
	struct span a;
	pid_t pid;

	rig_open(&rig, NULL);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 0, NULL };
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL,
				     rig_kernel(&rig, "wait_word"), 1, &a,
				     sizeof(a)),
			 0);
	ck_assert(becomes(&rig.reads, 1));
	pid = rig.info.pid;
	rig_close(&rig);
	ck_assert_int_ne(kill(pid, 0), 0);
}
END_TEST

START_TEST(bind_once)
{
	struct sgpu_hw_info info;
	struct span a;

	rig_open(&rig, NULL);
	ck_assert_int_eq(sgpu_hw_bind(rig.gpu, &info), -EBUSY);
	ck_assert_int_eq(rig_map(&rig, 5, 5, 1, 3), 0);
	rig_unbind(&rig);
	/* Unbinding emptied the page table. */
	a = (struct span){ (void *)(uintptr_t)va(&rig, 5), 1, NULL };
	ck_assert_int_eq(rig_run(&rig, "count", 1, &a, sizeof(a)), -EFAULT);
	ck_assert_int_eq(sgpu_reset(rig.gpu), 0);
	rig_bind(&rig);
	ck_assert_int_eq(rig_run(&rig, "count", 1, &a, sizeof(a)), 0);
	rig_close(&rig);
}
END_TEST

Suite *life_suite(void)
{
	Suite *s = suite_create("life");
	TCase *t = tcase_create("life");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, open_close_leaks_nothing);
	tcase_add_test(t, bad_configs);
	tcase_add_test(t, environment);
	tcase_add_test(t, modules_and_kernels);
	tcase_add_loop_test(t, a_stream_is_in_order, 0, 2);
	tcase_add_test(t, streams_are_concurrent);
	tcase_add_test(t, many_launches);
	tcase_add_test(t, no_files_of_the_program);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* A sanitizer's own locks may be held when a thread forks. */
	tcase_add_test(t, a_fork_gets_clear_errors);
#else
	(void)a_fork_gets_clear_errors;
#endif
	tcase_add_test(t, killed_program_takes_the_device_along);
	tcase_add_test(t, close_ends_what_runs);
	tcase_add_test(t, bind_once);
	suite_add_tcase(s, t);
	return s;
}
