/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the program does itself is followed, and none of the ways to hang that
 * userfaultfd offers is taken: each test that could must end by itself.
 */
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "fake.h"

extern char **environ;

static void wait_for(uint32_t *count, uint32_t n)
{
	uint64_t until = gm_host_now() + 10000000000ULL;

	while (gm_load(count) < n && gm_host_now() < until)
		gm_host_sleep_until(gm_host_now() + 100000);
	ck_assert_uint_ge(gm_load(count), n);
}

START_TEST(unmap_is_reported)
{
	fake_start(8, 1);
	memset(fake_ptr(0), 1, 8 * GM_PAGE_SIZE);
	munmap(fake_ptr(2) + 4096, 2 * GM_PAGE_SIZE);
	wait_for(&fake_unmapped, 1);
	ck_assert_uint_eq(gm_load(&fake_last_va), (uint64_t)fake_ptr(2) + 4096);
	ck_assert_uint_eq(gm_load(&fake_last_len), 2 * GM_PAGE_SIZE);
	fake_stop();
}
END_TEST

START_TEST(discard_is_reported)
{
	fake_start(8, 1);
	memset(fake_ptr(0), 1, 8 * GM_PAGE_SIZE);
	ck_assert_int_eq(fake_take(3), 0);
	madvise(fake_ptr(3), GM_PAGE_SIZE, MADV_DONTNEED);
	/* At once, though the core may not have heard of it yet. */
	ck_assert_int_eq(fake_ptr(3)[7], 0);
	wait_for(&fake_discarded, 1);
	ck_assert_uint_eq(gm_load(&fake_last_va), (uint64_t)fake_ptr(3));
	ck_assert_uint_eq(gm_load(&fake_last_len), GM_PAGE_SIZE);
	madvise(fake_ptr(4), 8192, MADV_FREE);
	wait_for(&fake_discarded, 2);
	fake_stop();
}
END_TEST

START_TEST(slow_core_still_finds_zeros)
{
	unsigned int i;

	fake_start(8, 1);
	gm_store(&fake_event_ms, 20);
	for (i = 0; i < 8; i++) {
		memset(fake_ptr(i), 1, GM_PAGE_SIZE);
		ck_assert_int_eq(fake_take(i), 0);
		madvise(fake_ptr(i), GM_PAGE_SIZE, MADV_DONTNEED);
		ck_assert_int_eq(fake_ptr(i)[100], 0);
		fake_ptr(i)[100] = (char)(i + 1);
	}
	gm_events_barrier();
	for (i = 0; i < 8; i++)
		ck_assert_int_eq(fake_ptr(i)[100], (char)(i + 1));
	fake_stop();
}
END_TEST

START_TEST(mremap_is_reported)
{
	char *to;

	fake_start(4, 1);
	memset(fake_ptr(0), 1, 4 * GM_PAGE_SIZE);
	to = mmap(NULL, 3 * GM_PAGE_SIZE, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	to = mremap(fake_ptr(2), 2 * GM_PAGE_SIZE, 3 * GM_PAGE_SIZE,
		    MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ck_assert_ptr_ne(to, MAP_FAILED);
	wait_for(&fake_remapped, 1);
	ck_assert_int_eq(to[0], 1);
	/* Nobody knows what follows: it is plain memory now. */
	to[2 * GM_PAGE_SIZE + 5] = 5;
	ck_assert_int_eq(to[2 * GM_PAGE_SIZE + 5], 5);
	munmap(to, 3 * GM_PAGE_SIZE);
	fake_stop();
}
END_TEST

/* 1: a library thread unmaps and zaps a watched range. */
START_TEST(hang_own_unmap)
{
	uint64_t va;

	fake_start(2, 1);
	ck_assert_int_eq(gm_host_range_map(fake_as, 0, 4 * GM_PAGE_SIZE, 3,
					   GM_RANGE_TRACKED, &va),
			 0);
	*(volatile char *)va = 1;
	ck_assert_int_eq(gm_events_zap(va, GM_PAGE_SIZE), 0);
	gm_host_range_unmap(fake_as, va, 4 * GM_PAGE_SIZE);
	gm_events_barrier();
	ck_assert_uint_eq(fake_discarded + fake_unmapped, 0);
	fake_stop();
}
END_TEST

static uint32_t stop;

static void *unmapper(void *arg)
{
	char *p = arg;

	while (!gm_load(&stop)) {
		madvise(p, GM_PAGE_SIZE, MADV_DONTNEED);
		madvise(p + GM_PAGE_SIZE, 4096, MADV_DONTNEED);
	}
	return NULL;
}

/* 2: moves in and out while events are unread. */
START_TEST(hang_move_against_events)
{
	uint64_t until;
	pthread_t t;

	fake_start(4, 1);
	pthread_create(&t, NULL, unmapper, fake_ptr(2));
	for (until = gm_host_now() + 2000000000; gm_host_now() < until;) {
		fake_ptr(0)[0]++;
		fake_ptr(1)[0]++;
		fake_ptr(3)[8192] = 1;
		fake_take(0);
		fake_take(1);
		fake_take(2);
		fake_take(3);
	}
	gm_store(&stop, 1);
	pthread_join(t, NULL);
	fake_stop();
}
END_TEST

/* 3: the program's munmap() waits for the reader, not for the core. */
START_TEST(hang_munmap_behind_core)
{
	uint64_t start;

	fake_start(8, 1);
	memset(fake_ptr(0), 1, 8 * GM_PAGE_SIZE);
	gm_store(&fake_event_ms, 300);
	munmap(fake_ptr(6), GM_PAGE_SIZE);
	start = gm_host_now();
	munmap(fake_ptr(7), GM_PAGE_SIZE);
	ck_assert_uint_lt(gm_host_now() - start, 250000000);
	gm_store(&fake_event_ms, 0);
	fake_stop();
}
END_TEST

static void *toucher(void *arg)
{
	unsigned int i;

	while (!gm_load(&stop)) {
		for (i = 0; i < 4; i++)
			fake_ptr(i)[64]++;
	}
	return NULL;
}

static void *taker(void *arg)
{
	unsigned int i = 0;

	while (!gm_load(&stop))
		fake_take(i++ & 3);
	return NULL;
}

/* 4: fork() while pages come and go and every thread allocates. */
START_TEST(hang_fork)
{
	pthread_t t[2];
	int i, status;
	pid_t pid;

	fake_start(4, 1);
	pthread_create(&t[0], NULL, toucher, NULL);
	pthread_create(&t[1], NULL, taker, NULL);
	for (i = 0; i < 50; i++) {
		pid = fork();
		if (pid == 0) {
			free(malloc(100000));
			_exit(gm_as_current() ? 1 : 0);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	gm_store(&stop, 1);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	fake_stop();
}
END_TEST

/* 5: a system call holds a lock of the kernel while it waits for a page. */
START_TEST(hang_pipe)
{
	pthread_t t;
	char buf[4096];
	int fd[2], i;

	fake_start(4, 1);
	for (i = 0; i < 4; i++)
		memset(fake_ptr((unsigned int)i), 'x', GM_PAGE_SIZE);
	ck_assert_int_eq(pipe(fd), 0);
	pthread_create(&t, NULL, taker, NULL);
	for (i = 0; i < 2000; i++) {
		ck_assert_int_eq(write(fd[1],
				       fake_ptr((unsigned int)i & 3) + i * 64,
				       512),
				 512);
		ck_assert_int_eq(read(fd[0], buf, sizeof(buf)), 512);
		ck_assert_int_eq(buf[0], 'x');
		ck_assert_int_eq(buf[511], 'x');
	}
	gm_store(&stop, 1);
	pthread_join(t, NULL);
	fake_stop();
}
END_TEST

static sigjmp_buf jump;
static void *bus_addr;
static int bus_code;

static void on_bus(int sig, siginfo_t *info, void *context)
{
	bus_addr = info->si_addr;
	bus_code = info->si_code;
	siglongjmp(jump, sig);
}

static int touch(char *p)
{
	int sig = sigsetjmp(jump, 1);

	if (!sig)
		*(volatile char *)p = 1;
	return sig;
}

START_TEST(failed_fault_is_a_signal)
{
	struct sigaction sa = { .sa_sigaction = on_bus,
				.sa_flags = SA_SIGINFO };

	fake_start(3, 1);
	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	gm_store(&fake_error, -ENOMEM);
	ck_assert_int_eq(touch(fake_ptr(0) + 4321), SIGBUS);
	ck_assert_ptr_eq(bus_addr, fake_ptr(0) + 4321);
	ck_assert_int_eq(bus_code, SI_QUEUE);
	/* It was for that touch; the page is as it was. */
	gm_store(&fake_error, 0);
	ck_assert_int_eq(touch(fake_ptr(0) + 4321), 0);
	ck_assert_uint_eq(fake_huge(fake_ptr(0), GM_PAGE_SIZE), GM_PAGE_SIZE);

	gm_store(&fake_error, -EHWPOISON);
	ck_assert_int_eq(touch(fake_ptr(1) + 999), SIGBUS);
	gm_store(&fake_error, 0);
	ck_assert_int_eq(touch(fake_ptr(1) + 999), SIGBUS); /* for good */
	mprotect(fake_ptr(2), GM_PAGE_SIZE, PROT_READ);
	ck_assert_int_eq(touch(fake_ptr(2)), SIGSEGV);
	munmap(fake_ptr(2), GM_PAGE_SIZE);
	ck_assert_int_eq(touch(fake_ptr(2)), SIGSEGV);
	fake_stop();
}
END_TEST

static void on_alarm(int sig)
{
}

START_TEST(signals_during_faults)
{
	struct itimerval timer = { { 0, 200 }, { 0, 200 } };
	pthread_t t;
	int i;

	fake_start(4, 1);
	signal(SIGALRM, on_alarm);
	pthread_create(&t, NULL, taker, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (i = 0; i < 3000; i++)
		fake_ptr((unsigned int)i & 3)[128]++;
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_REAL, &timer, NULL);
	gm_store(&stop, 1);
	pthread_join(t, NULL);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq((unsigned char)fake_ptr((unsigned int)i)[128],
				 750 & 255);
	fake_stop();
}
END_TEST

static void *many(void *arg)
{
	unsigned int i;

	for (i = 0; i < 300; i++)
		__atomic_fetch_add((uint32_t *)fake_ptr(i & 3), 1,
				   __ATOMIC_RELAXED);
	return NULL;
}

START_TEST(many_threads)
{
	pthread_t t[200], taking;
	unsigned int i;

	fake_start(4, 1);
	pthread_create(&taking, NULL, taker, NULL);
	for (i = 0; i < 200; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, many, NULL), 0);
	for (i = 0; i < 200; i++)
		pthread_join(t[i], NULL);
	gm_store(&stop, 1);
	pthread_join(taking, NULL);
	for (i = 0; i < 4; i++)
		ck_assert_uint_eq(*(uint32_t *)fake_ptr(i), 200 * 75);
	fake_stop();
}
END_TEST

START_TEST(spawn_with_arguments_that_are_away)
{
	char *path = NULL, **argv;
	int status;
	pid_t pid;

	fake_start(2, 1);
	path = fake_ptr(0);
	strcpy(path, "/bin/sh");
	strcpy(path + 100, "-c");
	strcpy(path + 200, "exit 7");
	argv = (char **)fake_ptr(1);
	argv[0] = path;
	argv[1] = path + 100;
	argv[2] = path + 200;
	argv[3] = NULL;
	ck_assert_int_eq(fake_take(0), 0);
	ck_assert_int_eq(fake_take(1), 0);
	ck_assert_int_eq(posix_spawn(&pid, path, NULL, NULL, argv, environ), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
	ck_assert_int_eq(fake_take(0), 0);
	ck_assert_int_eq(WEXITSTATUS(system("exit 3")), 3);
	fake_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("events");

	fake_add(suite, unmap_is_reported);
	fake_add(suite, discard_is_reported);
	fake_add(suite, slow_core_still_finds_zeros);
	fake_add(suite, mremap_is_reported);
	fake_add(suite, hang_own_unmap);
	fake_add(suite, hang_move_against_events);
	fake_add(suite, hang_munmap_behind_core);
	fake_add(suite, hang_fork);
	fake_add(suite, hang_pipe);
	fake_add(suite, failed_fault_is_a_signal);
	fake_add(suite, signals_during_faults);
	fake_add(suite, many_threads);
	fake_add(suite, spawn_with_arguments_that_are_away);
	return fake_run(suite);
}
