/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * threads.c - the library's threads, and work shared among them
 *
 * They are started when the first range is tracked: a program that attaches no
 * XPU has none. All signals are blocked in them. They never touch a unified
 * address, and never call what the program could be inside of: its allocator,
 * stdio, the dynamic loader.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys.h"
#include "user.h"

#define MAX_THREADS (3 + 2 * GM_MAX_WORKERS)
#define STACK_SIZE (256UL << 10)

static struct {
	struct gm_lock lock; /* starting and stopping */
	struct gm_thread all[MAX_THREADS]; /* (lock), @tid and on (A) */
	unsigned int nr; /* (A) */
	bool stopping; /* (A) */
} threads;

/**
 * struct job - a gm_host_parallel() that runs
 * @next: the next job in the queue
 * @fn: what is to be done
 * @arg: its argument
 * @n: how often
 * @taken: indices that somebody does or has done
 * @width: threads that may still join
 * @users: helpers that are inside
 * @text: what a helper said that went wrong
 */
struct job {
	struct job *next; /* (jobs.lock) */
	void (*fn)(void *arg, unsigned int i);
	void *arg;
	unsigned int n;
	uint32_t taken; /* (A) */
	unsigned int width; /* (jobs.lock) */
	uint32_t users; /* (A) */
	char text[256]; /* (jobs.lock) */
};

static struct {
	struct gm_lock lock;
	struct job *first; /* (lock) */
	uint32_t posted; /* (A), futex of the helpers */
} jobs;

bool gm_threads_stopping(void)
{
	return __atomic_load_n(&threads.stopping, __ATOMIC_ACQUIRE);
}

static GM_TLS struct gm_thread *thread_self;

bool gm_thread_must_not_touch(pid_t tid)
{
	unsigned int i, n = gm_load(&threads.nr);

	for (i = 0; i < n; i++) {
		if (gm_load(&threads.all[i].tid) == tid)
			return !gm_load(&threads.all[i].touches);
	}
	return false;
}

void gm_thread_touches(bool may)
{
	if (thread_self)
		gm_store(&thread_self->touches, may);
}

bool gm_threads_own(uint64_t va, uint64_t len)
{
	unsigned int i, n = gm_load(&threads.nr);

	for (i = 0; i < n; i++) {
		uint64_t stack = gm_load(&threads.all[i].stack);

		/* Not there yet: wherever it comes, it may be there. */
		if (!stack || (stack + GM_OWN_STACK > va &&
			       stack < va + len + GM_OWN_STACK))
			return true;
	}
	return false;
}

/* --- work shared among threads ------------------------------------------ */

static void run_job(struct job *job)
{
	uint32_t i;

	while ((i = __atomic_fetch_add(&job->taken, 1, __ATOMIC_RELAXED)) <
	       job->n)
		job->fn(job->arg, i);
}

/* The error's text belongs to the thread whose call it was. */
static void help(struct job *job)
{
	gm_error_clear();
	run_job(job);
	if (!gm_error()[0])
		return;
	gm_lock_raw(&jobs.lock);
	if (!job->text[0])
		snprintf(job->text, sizeof(job->text), "%s", gm_error());
	gm_unlock_raw(&jobs.lock);
}

static struct job *join_job(void)
{
	struct job *job;

	gm_lock_raw(&jobs.lock);
	for (job = jobs.first; job; job = job->next) {
		if (job->width && gm_load(&job->taken) < job->n)
			break;
	}
	if (job) {
		job->width--;
		gm_add(&job->users, 1);
	}
	gm_unlock_raw(&jobs.lock);
	return job;
}

/* The last one out wakes the caller, who may then forget the job. */
static void leave_job(struct job *job)
{
	uint32_t *users = &job->users;

	if (__atomic_sub_fetch(users, 1, __ATOMIC_ACQ_REL) == 0)
		gm_futex_wake(users, 1);
}

static void helper(struct gm_thread *self)
{
	struct job *job;
	uint32_t seen;

	while (!gm_threads_stopping()) {
		seen = gm_load(&jobs.posted);
		job = join_job();
		if (job) {
			help(job);
			leave_job(job);
		} else {
			gm_futex_wait(&jobs.posted, seen, 0);
		}
	}
}

static void drop_job(struct job *job)
{
	struct job **at;
	uint32_t users;

	gm_lock_raw(&jobs.lock);
	for (at = &jobs.first; *at != job; at = &(*at)->next)
		;
	*at = job->next;
	gm_unlock_raw(&jobs.lock);
	while ((users = gm_load(&job->users)) != 0)
		gm_futex_wait(&job->users, users, 0);
}

void gm_host_parallel(void (*fn)(void *arg, unsigned int i), void *arg,
		      unsigned int n, unsigned int width)
{
	struct job job = { .fn = fn, .arg = arg, .n = n };

	gm_assert_below((enum gm_rank)(GM_RANK_ENTRY + 1));
	width = GM_MIN(GM_MIN(width, n), gm_user.nr_helpers + 1);
	width = width ? width - 1 : 0; /* not counting the caller */
	job.width = width;
	if (!width || !gm_load(&threads.nr)) {
		run_job(&job);
		return;
	}
	gm_lock_raw(&jobs.lock);
	job.next = jobs.first;
	jobs.first = &job;
	gm_unlock_raw(&jobs.lock);
	gm_add(&jobs.posted, 1);
	gm_futex_wake(&jobs.posted, (int)width);
	run_job(&job);
	drop_job(&job);
	if (job.text[0])
		gm_host_error(0, "%s", job.text);
}

/* --- starting and stopping ---------------------------------------------- */

static void *thread_main(void *arg)
{
	struct gm_thread *self = arg;

	gm_store(&self->stack, (uint64_t)__builtin_frame_address(0));
	thread_self = self;
	gm_store(&self->tid, (pid_t)syscall(SYS_gettid));
	prctl(PR_SET_NAME, "gmm");
	/* The first use of RCU registers the thread: not in a fault. */
	gm_rcu_read_lock();
	gm_rcu_read_unlock();
	self->run(self);
	return NULL;
}

static int start_one(void (*run)(struct gm_thread *), unsigned int index)
{
	struct gm_thread *thread = &threads.all[threads.nr];
	pthread_attr_t attr;
	sigset_t all, old;
	int rc;

	if (gm_sys_fails(GM_SYS_THREAD, index))
		return -errno;
	thread->run = run;
	thread->index = index;
	rc = pthread_attr_init(&attr);
	if (rc)
		return -rc;
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread->handle, &attr, thread_main, thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (!rc)
		gm_add(&threads.nr, 1);
	return -rc;
}

static void stop_locked(void)
{
	unsigned int i;

	if (!threads.nr) /* not even the reader, who answers the bell */
		return;
	__atomic_store_n(&threads.stopping, true, __ATOMIC_RELEASE);
	gm_events_ring();
	gm_frames_ring();
	gm_add(&jobs.posted, 1);
	gm_futex_wake(&jobs.posted, INT_MAX);
	for (i = 0; i < threads.nr; i++) {
		pthread_join(threads.all[i].handle, NULL);
		gm_store(&threads.all[i].tid, 0);
	}
	gm_store(&threads.nr, 0);
	__atomic_store_n(&threads.stopping, false, __ATOMIC_RELEASE);
}

static int start_all_locked(struct gm_as *as)
{
	unsigned int i;
	int rc;

	gm_copy_calibrate();
	rc = gm_events_init(as);
	if (rc)
		return rc;
	rc = start_one(gm_events_reader, 0);
	if (!rc)
		rc = start_one(gm_events_server, 0);
	if (!rc)
		rc = start_one(gm_frames_keeper, 0);
	for (i = 0; !rc && i < gm_user.nr_workers; i++)
		rc = start_one(gm_events_worker, i);
	for (i = 0; !rc && i < gm_user.nr_helpers; i++)
		rc = start_one(helper, i);
	if (rc)
		gm_host_error(rc, "cannot start a thread of the library");
	else
		rc = gm_frames_reserve();
	if (rc) {
		stop_locked();
		gm_events_exit();
	}
	return rc;
}

int gm_threads_start(struct gm_as *as)
{
	int rc = 0;

	if (gm_load(&threads.nr))
		return 0;
	gm_lock_raw(&threads.lock);
	if (!threads.nr)
		rc = start_all_locked(as);
	gm_unlock_raw(&threads.lock);
	return rc;
}

void gm_threads_stop(void)
{
	gm_lock_raw(&threads.lock);
	if (threads.nr) {
		stop_locked();
		gm_events_exit();
	}
	gm_unlock_raw(&threads.lock);
}
