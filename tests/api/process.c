/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* process.c - children, signals, threads: what a program does around its memory */
#include <pthread.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "harness.h"

extern char **environ;

static int wait_for(pid_t pid)
{
	int status = -1;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "killed by signal %d",
		      WTERMSIG(status));
	return WEXITSTATUS(status);
}

/* Exits with the number of the first thing that is not as it should be. */
static int child(char *p)
{
	struct gm_where w;
	struct gm_stats s;
	int ends[2];

	if (touch_signal(p, 0) != SIGSEGV || touch_signal(p, 1) != SIGSEGV)
		return 1;
	if (pipe(ends) || write(ends[1], p, 1) != -1 || errno != EFAULT)
		return 2;
	if (gm_mmap(NULL, PAGE, RW, UNIFIED, -1, 0) != MAP_FAILED ||
	    errno != EPERM || !strstr(gm_error(), "fork"))
		return 3;
	if (gm_munmap(p, PAGE) != -1 || gm_mprotect(p, PAGE, RW) != -1 ||
	    gmadvise(0, p, PAGE, GM_WILLNEED) != -1 ||
	    gmemcpy(0, p, p, 1) != -1 || errno != EPERM)
		return 4;
	if (gm_where(p, &w) != -EPERM || gm_process_stats(&s) != -EPERM ||
	    gm_nodes(NULL, 0) != -EPERM)
		return 5;
	if (gm_sgpu_attach(gpu.sgpu, NULL) >= 0)
		return 6;
	return 0;
}

START_TEST(child_of_fork_has_no_unified_memory)
{
	char *p = um(2);
	pid_t pid;

	gpu_start(&gpu, 4);
	put(&gpu, p, 2 * PAGE, 1, (enum place)_i);
	pid = fork();
	if (!pid)
		_exit(child(p));
	ck_assert_int_eq(wait_for(pid), 0);
	/* Nothing has changed for the parent, nor does a page stay shared. */
	gpu_check(&gpu, p, 2 * PAGE, 1);
	cpu_check(p, 2 * PAGE, 1);
	gpu_fill(&gpu, p, 2 * PAGE, 2);
	cpu_check(p, 2 * PAGE, 2);
}
END_TEST

START_TEST(parent_runs_on_while_children_live)
{
	char *p = um(2);
	int ends[2];
	pid_t pid;
	char c;

	gpu_start(&gpu, 4);
	cpu_fill(p, 2 * PAGE, 1);
	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (!pid) {
		close(ends[1]);
		_exit(read(ends[0], &c, 1) != 0);
	}
	for (uint64_t i = 0; i < 3; i++) {
		gpu_fill(&gpu, p, 2 * PAGE, i);
		cpu_check(p, 2 * PAGE, i);
		evict_all(&gpu);
	}
	close(ends[1]);
	ck_assert_int_eq(wait_for(pid), 0);
	close(ends[0]);
}
END_TEST

/* The child starts a program; its arguments are in memory that is away. */
START_TEST(spawn_with_arguments_that_are_away)
{
	char **argv = um(1), *text = um(1);
	pid_t pid;
	int ret;

	gpu_start(&gpu, 4);
	strcpy(text, "exit 42");
	argv[0] = strcpy(text + 100, "sh");
	argv[1] = strcpy(text + 200, "-c");
	argv[2] = text;
	argv[3] = NULL;
	gpu_poke(&gpu, text + PAGE / 2, 1, 1);
	gpu_poke(&gpu, argv + WORDS / 2, 1, 1);
	ck_assert_int_eq(where(text).node, gpu.node);
	if (_i) {
		ret = posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ);
		ck_assert_int_eq(ret, 0);
	} else {
		pid = vfork();
		if (!pid) {
			execv("/bin/sh", argv);
			_exit(1);
		}
	}
	ck_assert_int_eq(wait_for(pid), 42);
	gpu_poke(&gpu, text + PAGE / 2, 1, 1);
	ck_assert_int_eq(WEXITSTATUS(system(text)), 42);
}
END_TEST

static _Atomic int handled;
static char *handler_page;

static void handler(int sig)
{
	handled += handler_page[handled % 7 * 100] == 1;
}

/* Signals come while threads wait for pages, and their handlers fault too. */
START_TEST(signals_during_faults)
{
	struct sigaction action = { .sa_handler = handler,
				    .sa_flags = SA_RESTART };
	char *p = um(8);
	timer_t timer;
	struct itimerspec every = { .it_interval.tv_nsec = 300000,
				    .it_value.tv_nsec = 300000 };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
				  .sigev_signo = SIGUSR1 };

	gpu_start(&gpu, 4);
	handler_page = um(1);
	memset(handler_page, 1, PAGE);
	sigaction(SIGUSR1, &action, NULL);
	ck_assert_int_eq(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	timer_settime(timer, 0, &every, NULL);
	for (uint64_t i = 0; i < 4; i++) {
		gpu_fill(&gpu, p, 8 * PAGE, i);
		gpu_peek(&gpu, handler_page, 1);
		cpu_check(p, 8 * PAGE, i);
	}
	timer_delete(timer);
	ck_assert_int_gt(handled, 0);
}
END_TEST

static void touch_first(int sig)
{
	(void)*(volatile char *)handler_page;
	handled++;
}

/*
 * The handler wants the page that the call it interrupts is moving: calls of
 * the library, or (_i) of the driver.
 */
START_TEST(signals_during_calls)
{
	struct sigaction action = { .sa_handler = touch_first,
				    .sa_flags = SA_RESTART };
	struct itimerval every = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
	char *p = um(4);

	gpu_start(&gpu, 4);
	if (_i)
		gpu_open(&gpu2, 4);
	handler_page = p;
	cpu_fill(p, 4 * PAGE, 1);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < (_i ? 20 : 300); i++) {
		if (_i) {
			gpu_attach(&gpu2);
			works(gmadvise(gpu2.node, p, 4 * PAGE, GM_WILLNEED));
			gpu_detach(&gpu2);
		} else {
			works(gmadvise(gpu.node, p, 4 * PAGE, GM_WILLNEED));
			works(gmemcpy(gpu.node, p + PAGE, p, PAGE));
			works(gmemcpy(GM_NODE_NONE, p, p + PAGE, PAGE));
		}
	}
	setitimer(ITIMER_REAL, &never, NULL);
	ck_assert_int_gt(handled, 0);
	cpu_check(p, PAGE, 1);
}
END_TEST

/* A child has the GPU's handle: each call with it ends, with an error. */
START_TEST(child_of_fork_gives_up_the_gpu)
{
	int status, node;
	pid_t pid;

	gpu_start(&gpu, 2);
	gpu_poke(&gpu, um(1), 1, 1);
	pid = fork();
	if (!pid) {
		alarm(20);
		if (gm_sgpu_detach(gpu.sgpu) != -EPERM || !*gm_error())
			_exit(1);
		if (gm_sgpu_attach(gpu.sgpu, &node) != -EPERM || !*gm_error())
			_exit(2);
		if (sgpu_sync(gpu.sgpu, NULL) != -ENODEV)
			_exit(3);
		sgpu_close(gpu.sgpu);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	gpu_poke(&gpu, um(1), 1, 1);
}
END_TEST

/* _i: while a kernel runs that would never end. */
START_TEST(close_of_an_attached_gpu)
{
	char *p = um(4);
	struct kargs args = { .dst = (uint64_t *)(p + 3 * PAGE), .seed = 5 };

	gpu_start(&gpu, 8);
	gpu_fill(&gpu, p, 3 * PAGE, 1);
	if (_i) {
		gpu_launch(&gpu, "spin", 1, &args);
		eventually(where(p + 3 * PAGE).copies & 1u << gpu.node);
	}
	sgpu_close(gpu.sgpu);
	gpu.sgpu = NULL;
	gpu.attached = 0;
	cpu_check(p, 3 * PAGE, 1);
	gpu_start(&gpu, 8);
	gpu_check(&gpu, p, 3 * PAGE, 1);
}
END_TEST

struct toucher {
	pthread_t thread;
	char *p;
	size_t first, step, pages;
	uint64_t sum;
};

static void *touch_pages(void *arg)
{
	struct toucher *t = arg;

	for (size_t i = t->first; i < t->pages; i += t->step)
		t->sum += *(volatile uint64_t *)(t->p + i * PAGE);
	return NULL;
}

/* _i: all threads the same pages, or each its own. */
START_TEST(many_threads_fault)
{
	enum { THREADS = 8, PAGES = 16 };
	struct toucher t[THREADS];
	char *p = um(PAGES);

	gpu_start(&gpu, PAGES);
	for (int round = 0; round < 5; round++) {
		uint64_t sum = 0;

		gpu_poke(&gpu, p, PAGES, 1000);
		for (size_t i = 0; i < THREADS; i++) {
			t[i] = (struct toucher){ .p = p, .pages = PAGES };
			t[i].step = _i ? THREADS : 1;
			t[i].first = _i ? i : 0;
			pthread_create(&t[i].thread, NULL, touch_pages, &t[i]);
		}
		for (int i = 0; i < THREADS; i++) {
			pthread_join(t[i].thread, NULL);
			sum += t[i].sum;
		}
		ck_assert_uint_eq(sum, (uint64_t)(1000 * PAGES +
						  PAGES * (PAGES - 1) / 2) *
					       (_i ? 1 : THREADS));
	}
}
END_TEST

START_TEST(mlockall_is_followed)
{
	char *p = um(2);
	int ret = mlockall(MCL_CURRENT | (_i ? MCL_FUTURE : 0));

	if (ret)
		return; /* no right to lock memory: nothing to be followed */
	gpu_start(&gpu, 4);
	for (uint64_t i = 0; i < 3; i++) {
		cpu_fill(p, 2 * PAGE, i);
		gpu_check(&gpu, p, 2 * PAGE, i);
		gpu_fill(&gpu, p, 2 * PAGE, i + 10);
		if (i == 1)
			munlockall();
		evict_all(&gpu);
		cpu_check(p, 2 * PAGE, i + 10);
	}
}
END_TEST

/* _i: with a GPU attached, or before. */
START_TEST(mlockall_comes_first)
{
	char *p;

	if (_i)
		gpu_start(&gpu, 8);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		return; /* no right to lock memory: nothing to be followed */
	if (!_i)
		gpu_start(&gpu, 8);
	for (uint64_t i = 0; i < 3; i++) {
		p = um(2);
		if (i == 1)
			cpu_fill(p, 2 * PAGE, i);
		gpu_fill(&gpu, p, 2 * PAGE, i + 10);
		cpu_check(p, 2 * PAGE, i + 10);
		p = gm_mremap(p, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
		ck_assert_ptr_ne(p, MAP_FAILED);
		gpu_fill(&gpu, p, 4 * PAGE, i + 20);
		cpu_check(p, 4 * PAGE, i + 20);
		works(gm_mprotect(p, 4 * PAGE, PROT_NONE));
		works(gm_mprotect(p, 4 * PAGE, RW));
		gpu_check(&gpu, p, 4 * PAGE, i + 20);
		gpu_fill(&gpu, p, 4 * PAGE, i + 30);
		cpu_check(p, 4 * PAGE, i + 30);
		works(gm_munmap(p, 4 * PAGE));
	}
}
END_TEST

START_TEST(mlock_of_a_region)
{
	char *p = um(2);

	gpu_start(&gpu, 4);
	if (mlock(p, 2 * PAGE))
		return; /* the limit is lower than this */
	for (uint64_t i = 0; i < 2; i++) {
		cpu_fill(p, 2 * PAGE, i);
		gpu_check(&gpu, p, 2 * PAGE, i);
		gpu_fill(&gpu, p, 2 * PAGE, i + 10);
		cpu_check(p, 2 * PAGE, i + 10);
		munlock(p, 2 * PAGE);
	}
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, child_of_fork_has_no_unified_memory, 0,
			    NR_PLACES);
	tcase_add_test(tc, parent_runs_on_while_children_live);
	tcase_add_loop_test(tc, spawn_with_arguments_that_are_away, 0, 2);
	tcase_add_test(tc, signals_during_faults);
	tcase_add_loop_test(tc, signals_during_calls, 0, 2);
	tcase_add_loop_test(tc, close_of_an_attached_gpu, 0, 2);
	tcase_add_test(tc, child_of_fork_gives_up_the_gpu);
	tcase_add_loop_test(tc, many_threads_fault, 0, 2);
	tcase_add_loop_test(tc, mlockall_is_followed, 0, 2);
	tcase_add_loop_test(tc, mlockall_comes_first, 0, 2);
	tcase_add_test(tc, mlock_of_a_region);
}

int main(void)
{
	return run_suite("process", add);
}
