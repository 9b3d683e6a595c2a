/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "wire_device.h"

/* What a look at the clock takes. */
#define STEP_NS 25000
#define FAKE_PID 4194303

struct device device;

/* --- what it does ------------------------------------------------------- */

static uint64_t bad_address(struct input *in)
{
	const struct sgpu_config *c = &device.gpu->config;

	switch (below(in, 4)) {
	case 0:
		return c->arena_base + below(in, c->arena_len);
	case 1:
		return c->arena_base + c->arena_len - below(in, 3);
	case 2:
		return c->arena_base - below(in, 3);
	default:
		return number(in);
	}
}

static void report_fault(struct wire_control *c, struct input *in)
{
	unsigned int i = (unsigned int)below(in, WIRE_FAULTS);
	struct wire_fault *f = &c->fault[i];

	f->addr = bad_address(in);
	f->access = (uint32_t)(below(in, 4) ? 1 + below(in, 2) : number(in));
	f->worker = (uint32_t)number(in);
	f->launch = below(in, 2) ? device.gpu->head - below(in, 3) : number(in);
	f->index = number(in);
	atomic_store(&f->state, below(in, 4));
	atomic_fetch_or(&c->faults, 1ull << i);
	wire_ring(&c->fault_bell, &c->fault_sleeps);
}

static void answer_commands(struct wire_control *c, struct input *in)
{
	for (unsigned int i = 0; i < WIRE_COMMANDS; i++) {
		c->command[i].status = below(in, 3) ? 0 : (int32_t)number(in);
		atomic_store(&c->command[i].done,
			     below(in, 4) ? WIRE_DONE : (uint32_t)number(in));
	}
	atomic_store(&c->posted, 0);
}

static void end_launch(struct wire_control *c, struct input *in)
{
	uint64_t id =
		below(in, 2) ? device.gpu->tail + below(in, 4) : number(in);

	atomic_store(&c->launch[id % WIRE_LAUNCHES].done,
		     below(in, 4) ? id : number(in));
	wire_ring(&c->done_bell, &c->done_sleeps);
}

static void record_crash(struct wire_control *c, struct input *in)
{
	c->crash.signal = (int32_t)(below(in, 2) ? below(in, 70) : number(in));
	c->crash.code = (int32_t)number(in);
	c->crash.access = (uint32_t)below(in, 4);
	c->crash.addr = number(in);
	c->crash.launch = number(in);
	c->crash.index = number(in);
	atomic_store(&c->crash.valid, 1);
}

static void scribble(struct wire_control *c, struct input *in)
{
	volatile uint32_t *words = (volatile uint32_t *)c;

	for (uint64_t n = 1 + below(in, 32); n; n--)
		words[below(in, sizeof(*c) / sizeof(*words))] =
			(uint32_t)number(in);
}

/* It was handed both files: it may try to take them away. */
static void shrink_files(struct input *in)
{
	int fd = below(in, 2) ? device.gpu->control_fd : device.gpu->memory_fd;

	if (ftruncate(fd, (off_t)(below(in, 2) << 12)) == 0)
		wrong("the device can take the runtime's memory away");
}

static void act(void)
{
	struct wire_control *c;
	struct input *in = device.in;

	if (!device.gpu || !device.alive)
		return;
	c = device.gpu->control;
	if (in->at >= in->end) { /* all ends */
		device.killed = true;
		return;
	}
	switch (below(in, 24)) {
	case 0 ... 4:
		answer_commands(c, in);
		break;
	case 5 ... 8:
		report_fault(c, in);
		break;
	case 9 ... 12:
		end_launch(c, in);
		break;
	case 13:
		record_crash(c, in);
		device.killed = below(in, 2);
		break;
	case 14:
		device.killed = below(in, 4) == 0;
		break;
	case 15:
		scribble(c, in);
		break;
	case 16:
		atomic_store(&c->faults, number(in));
		wire_ring(&c->fault_bell, &c->fault_sleeps);
		break;
	case 17: /* the bells back */
		atomic_fetch_sub(&c->fault_bell, 1 + below(in, 2));
		atomic_fetch_sub(&c->done_bell, 1);
		break;
	case 18:
		atomic_store(&c->fault_sleeps, 0);
		atomic_store(&c->done_sleeps, 0);
		break;
	case 19:
		shrink_files(in);
		break;
	case 20: /* another thread of the driver's */
		if (below(in, 4) == 0 && device.gpu->bound) {
			sgpu_hw_fault_stop(device.gpu);
			device.stopped = true;
			atomic_fetch_sub(&c->fault_bell, below(in, 3));
		}
		break;
	default:
		break;
	}
}

/* pre: neither of the runtime's innermost locks is held. */
static void bury(void)
{
	void *(*monitor)(void *) = device.monitor;

	device.alive = false;
	if (!monitor)
		return;
	device.monitor = NULL;
	device.in_monitor = true;
	monitor(device.monitor_arg);
	device.in_monitor = false;
}

static void act_and_bury(void)
{
	if (device.in_monitor)
		return;
	act();
	if (device.killed)
		bury();
}

/* --- time --------------------------------------------------------------- */

int fuzz_clock_gettime(clockid_t clock, struct timespec *ts);
int fuzz_clock_gettime(clockid_t clock, struct timespec *ts)
{
	device.now += STEP_NS;
	if (clock == CLOCK_MONOTONIC)
		act_and_bury();
	ts->tv_sec = (time_t)(device.now / 1000000000u);
	ts->tv_nsec = (long)(device.now % 1000000000u);
	return 0;
}

int fuzz_clock_nanosleep(clockid_t clock, int flags, const struct timespec *ts,
			 struct timespec *left);
int fuzz_clock_nanosleep(clockid_t clock, int flags, const struct timespec *ts,
			 struct timespec *left)
{
	(void)clock, (void)flags, (void)left;
	device.now = (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec;
	return 0;
}

/* --- futexes ------------------------------------------------------------ */

struct word {
	const _Atomic uint32_t *at;
	uint32_t val;
};

static bool changed(const struct word *words, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		if (atomic_load(words[i].at) != words[i].val)
			return true;
	}
	return false;
}

static int wait_words(const struct word *words, unsigned int n,
		      const struct timespec *timeout)
{
	bool ended = device.stopped;

	if (changed(words, n)) {
		errno = EAGAIN;
		return -1;
	}
	if (timeout) {
		act_and_bury();
		device.now += (uint64_t)timeout->tv_sec * 1000000000u +
			      (uint64_t)timeout->tv_nsec;
		errno = changed(words, n) ? EINTR : ETIMEDOUT;
		return -1;
	}
	while (!changed(words, n)) {
		bool was_there = device.monitor;

		act_and_bury();
		if (changed(words, n))
			break;
		/* Nothing that the runtime itself did may be lost. */
		if (device.stopped && !ended)
			wrong("a thread sleeps through the stop");
		if (!was_there)
			wrong("a thread sleeps for ever");
	}
	return 0;
}

static long futex(va_list ap)
{
	const _Atomic uint32_t *word = va_arg(ap, const _Atomic uint32_t *);
	int op = va_arg(ap, int);
	struct word w = { .at = word, .val = va_arg(ap, uint32_t) };
	const struct timespec *timeout = va_arg(ap, const struct timespec *);

	if (op == FUTEX_WAKE)
		return 0;
	return wait_words(&w, 1, timeout);
}

static long futex_waitv(va_list ap)
{
	const struct futex_waitv *v = va_arg(ap, const struct futex_waitv *);
	unsigned int n = va_arg(ap, unsigned int);
	struct word w[2];

	if (n > 2)
		wrong("%u words to wait for", n);
	for (unsigned int i = 0; i < n; i++)
		w[i] = (struct word){
			.at = (const _Atomic uint32_t *)(uintptr_t)v[i].uaddr,
			.val = (uint32_t)v[i].val
		};
	return wait_words(w, n, NULL);
}

long fuzz_syscall(long number, ...);
long fuzz_syscall(long number, ...)
{
	long ret = 0;
	va_list ap;

	va_start(ap, number);
	if (number == SYS_futex) {
		ret = futex(ap);
	} else if (number == SYS_futex_waitv) {
		ret = futex_waitv(ap);
	} else if (number == SYS_pidfd_send_signal) {
		device.killed = true;
	} else if (number == SYS_pidfd_open) {
		ret = eventfd(0, EFD_CLOEXEC);
	} else {
		wrong("system call %ld", number);
	}
	va_end(ap);
	return ret;
}

/* --- its process, and the runtime's monitor of it ----------------------- */

int fuzz_posix_spawn(pid_t *pid, const char *path,
		     const posix_spawn_file_actions_t *fa,
		     const posix_spawnattr_t *attr, char *const argv[],
		     char *const env[]);
int fuzz_posix_spawn(pid_t *pid, const char *path,
		     const posix_spawn_file_actions_t *fa,
		     const posix_spawnattr_t *attr, char *const argv[],
		     char *const env[])
{
	(void)path, (void)fa, (void)attr, (void)argv, (void)env;
	if (device.gpu && below(device.in, 32) == 31)
		return EAGAIN;
	*pid = FAKE_PID;
	device.alive = true;
	device.killed = false;
	return 0;
}

int fuzz_waitid(idtype_t type, id_t id, siginfo_t *how, int options);
int fuzz_waitid(idtype_t type, id_t id, siginfo_t *how, int options)
{
	(void)type, (void)id, (void)options;
	if (!device.killed)
		wrong("waits for a process that lives");
	device.alive = false;
	memset(how, 0, sizeof(*how));
	how->si_code = below(device.in, 2) ? CLD_KILLED : CLD_EXITED;
	how->si_status = (int)take(device.in, 1);
	return 0;
}

pid_t fuzz_waitpid(pid_t pid, int *status, int options);
pid_t fuzz_waitpid(pid_t pid, int *status, int options)
{
	(void)status, (void)options;
	return pid;
}

int fuzz_kill(pid_t pid, int sig);
int fuzz_kill(pid_t pid, int sig)
{
	if (pid != FAKE_PID || sig != SIGKILL)
		wrong("kill(%d, %d)", pid, sig);
	device.killed = true;
	return 0;
}

int fuzz_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			void *(*start)(void *), void *arg);
int fuzz_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			void *(*start)(void *), void *arg)
{
	(void)attr;
	if (device.gpu && below(device.in, 32) == 31)
		return EAGAIN;
	*thread = pthread_self();
	device.monitor = start;
	device.monitor_arg = arg;
	return 0;
}

int fuzz_pthread_join(pthread_t thread, void **ret);
int fuzz_pthread_join(pthread_t thread, void **ret)
{
	(void)thread, (void)ret;
	bury(); /* it has been told to end it, or it has ended */
	return 0;
}

/* Whoever waits for a change of the state, waits for a death. */
static bool state_changes(pthread_mutex_t *mutex)
{
	struct sgpu *gpu = device.gpu;
	bool dead = device.killed && device.monitor;
	bool driver = gpu && gpu->state == GPU_DEAD && gpu->bound;

	pthread_mutex_unlock(mutex);
	if (dead)
		bury();
	else if (driver)
		sgpu_hw_restart(gpu);
	pthread_mutex_lock(mutex);
	return dead || driver;
}

int fuzz_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int fuzz_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	(void)cond;
	if (!state_changes(mutex))
		wrong("a thread waits for ever for the state to change");
	return 0;
}

int fuzz_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				const struct timespec *end);
int fuzz_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
				const struct timespec *end)
{
	(void)cond, (void)end;
	return state_changes(mutex) ? 0 : ETIMEDOUT;
}

/* --- the socket --------------------------------------------------------- */

int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout);
int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (device.in_monitor) {
		fds[0].revents = device.killed ? POLLIN : 0;
		if (n > 1)
			fds[1].revents = device.killed ? 0 : POLLIN;
		device.killed = true;
		return 1;
	}
	if (n != 1 || timeout < 0)
		wrong("waits without a deadline for the socket");
	act_and_bury();
	if (device.gpu && below(device.in, 16) == 15) {
		if (below(device.in, 2)) {
			errno = EINTR;
			return -1;
		}
		device.now += (uint64_t)timeout * 1000000u;
		return 0;
	}
	return 1;
}

static uint32_t asked;

ssize_t fuzz_send(int fd, const void *data, size_t len, int flags);
ssize_t fuzz_send(int fd, const void *data, size_t len, int flags)
{
	const struct wire_msg *msg = data;

	(void)fd;
	if (len > sizeof(*msg))
		wrong("sends %zu bytes", len);
	/* A device need not read: then there is no room at last. */
	if (!(flags & MSG_DONTWAIT))
		wrong("may wait for ever for the device to read");
	asked = msg->verb;
	if (!device.alive || below(device.in, 32) == 31) {
		errno = device.alive ? EAGAIN : EPIPE;
		return -1;
	}
	return (ssize_t)len;
}

ssize_t fuzz_recv(int fd, void *data, size_t len, int flags);
ssize_t fuzz_recv(int fd, void *data, size_t len, int flags)
{
	struct wire_msg *msg = data;
	struct input *in = device.in;
	size_t n;

	(void)fd, (void)flags;
	if (!device.gpu) { /* hello */
		memset(msg, 0, sizeof(*msg));
		msg->verb = WIRE_HELLO;
		return offsetof(struct wire_msg, text) + 1;
	}
	if (!device.alive)
		return 0;
	n = below(in, 4) ? offsetof(struct wire_msg, text) + 1 : below(in, len);
	memset(data, 'x', n);
	msg->verb = below(in, 8) ? asked : (uint32_t)number(in);
	msg->status = below(in, 2) ? 0 : (int32_t)number(in);
	asked = WIRE_HELLO;
	return below(in, 32) == 31 ? -1 : (ssize_t)n;
}

int fuzz_madvise(void *p, size_t len, int advice);
int fuzz_madvise(void *p, size_t len, int advice)
{
	(void)p, (void)len, (void)advice;
	return 0;
}
