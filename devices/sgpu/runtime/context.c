/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * context.c - the device process: start, death, restart
 *
 * A monitor thread waits for the end of each process. Only when the process
 * has been reaped, and none of its threads can touch memory any more, is the
 * context called dead and are those woken who wait for it.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "runtime.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

extern char **environ;

void gpu_error(struct sgpu *gpu, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	pthread_mutex_lock(&gpu->lock);
	vsnprintf(gpu->error, sizeof(gpu->error), fmt, ap);
	pthread_mutex_unlock(&gpu->lock);
	va_end(ap);
}

static void send_kill_locked(struct sgpu *gpu)
{
	if (gpu->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, gpu->pidfd, SIGKILL, NULL, 0);
}

/* Each looks at the state before it sleeps again. */
static void wake_all(struct sgpu *gpu)
{
	struct wire_control *control = gpu->control;

	for (unsigned int i = 0; i < WIRE_COMMANDS; i++) {
		/* Changed, so that one about to sleep does not. */
		atomic_store(&control->command[i].done, WIRE_BUSY);
		wire_futex_wake(&control->command[i].done, INT32_MAX);
	}
	bell_ring(gpu);
}

/* What a crash record says, once it has been looked at with care. */
static int crash_text(struct sgpu *gpu, const siginfo_t *how, char *text,
		      size_t len)
{
	const struct wire_crash *shared = &gpu->control->crash;
	struct wire_crash c = *(const volatile struct wire_crash *)shared;
	bool known = c.signal > 0 && c.signal < 65;

	if (!c.valid || !known) {
		bool killed = how->si_code != CLD_EXITED;

		snprintf(text, len, "the context %s %d",
			 killed ? "was killed by signal" : "exited with status",
			 how->si_status);
		return -ECANCELED;
	}
	if (c.signal == SIGSEGV && c.access) {
		snprintf(text, len,
			 "kernel %s, index %llu: wild %s at address %#llx",
			 launch_name(gpu, c.launch),
			 (unsigned long long)c.index,
			 c.access == SGPU_HW_WRITE ? "write" : "read",
			 (unsigned long long)c.addr);
		return -EFAULT;
	}
	snprintf(
		text, len,
		c.signal == SIGSEGV
			? "kernel %s, index %llu: wild access, signal %d (%s), "
			  "address unknown"
			: "kernel %s, index %llu: signal %d (%s) at %#llx",
		launch_name(gpu, c.launch), (unsigned long long)c.index,
		c.signal, strsignal(c.signal), (unsigned long long)c.addr);
	return c.signal == SIGSEGV ? -EFAULT : -ECANCELED;
}

static void on_death(struct sgpu *gpu, const siginfo_t *how)
{
	char text[SGPU_ERROR_MAX];
	int err = crash_text(gpu, how, text, sizeof(text));

	pthread_mutex_lock(&gpu->lock);
	if (!gpu->sticky && !gpu->doomed) {
		gpu->sticky = err;
		memcpy(gpu->error, text, sizeof(text));
	}
	close(gpu->pidfd);
	gpu->pidfd = -1;
	gpu->pid = 0;
	gpu->dying = false;
	gpu->told = false;
	gpu->state = gpu->doomed ? GPU_GONE : GPU_DEAD;
	gpu->epoch++;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	launches_drop(gpu);
	wake_all(gpu);
}

static void *monitor(void *arg)
{
	struct sgpu *gpu = arg;
	siginfo_t how = { 0 };
	struct pollfd fds[2] = { { .events = POLLIN },
				 { .fd = gpu->stop_fd, .events = POLLIN } };

	pthread_mutex_lock(&gpu->lock);
	fds[0].fd = gpu->pidfd;
	pthread_mutex_unlock(&gpu->lock);
	while (poll(fds, 2, -1) < 0 || !(fds[0].revents | fds[1].revents))
		;
	if (!fds[0].revents) { /* sgpu_close() */
		syscall(SYS_pidfd_send_signal, fds[0].fd, SIGKILL, NULL, 0);
		while (poll(fds, 1, -1) != 1)
			;
	}
	/* The program may have reaped it; then how it ended is not known. */
	while (waitid((idtype_t)P_PIDFD, (id_t)fds[0].fd, &how, WEXITED) &&
	       errno == EINTR)
		;
	on_death(gpu, &how);
	return NULL;
}

static int start_monitor(struct sgpu *gpu)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = -pthread_create(&gpu->monitor, NULL, monitor, gpu);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	gpu->monitored = !ret;
	return ret;
}

/* A preload library of the program's is none of the device's. */
static char **device_environ(void)
{
	size_t n = 0, k = 0;
	char **env;

	while (environ && environ[n])
		n++;
	env = calloc(n + 1, sizeof(*env));
	for (size_t i = 0; env && i < n; i++) {
		if (strncmp(environ[i], "LD_PRELOAD=", 11))
			env[k++] = environ[i];
	}
	return env;
}

/* The child gets the three files, /dev/null twice and our standard error. */
static int spawn_with(struct sgpu *gpu, const int fds[3], pid_t *pid)
{
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	char base[32], len[32];
	char *argv[] = { (char *)"sgpu-device", base, len, NULL };
	char **env = device_environ();
	sigset_t set;
	int ret;

	if (!env)
		return -ENOMEM;
	snprintf(base, sizeof(base), "%llx",
		 (unsigned long long)gpu->config.arena_base);
	snprintf(len, sizeof(len), "%llx",
		 (unsigned long long)gpu->config.arena_len);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	for (int i = 0; i < 3; i++)
		posix_spawn_file_actions_adddup2(&fa, fds[i],
						 WIRE_FD_SOCKET + i);
	posix_spawn_file_actions_addclosefrom_np(&fa, WIRE_FD_END);
	sigfillset(&set);
	posix_spawnattr_setsigdefault(&attr, &set);
	sigemptyset(&set);
	posix_spawnattr_setsigmask(&attr, &set);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF |
						POSIX_SPAWN_SETSIGMASK);
	ret = -posix_spawn(pid, gpu->program, &fa, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&fa);
	free(env);
	return ret;
}

/* Above the numbers they get in the child, where dup2() would mix them up. */
static int spawn(struct sgpu *gpu, int peer, pid_t *pid)
{
	const int fds[3] = { peer, gpu->control_fd, gpu->memory_fd };
	int high[3];
	int ret = 0;

	for (int i = 0; i < 3; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, WIRE_FD_END);
		if (high[i] < 0)
			ret = -errno;
	}
	if (!ret)
		ret = spawn_with(gpu, high, pid);
	for (int i = 0; i < 3; i++) {
		if (high[i] >= 0)
			close(high[i]);
	}
	return ret;
}

/* All that a dead context has left behind, but not what our waiters own. */
static void reset_control(struct sgpu *gpu)
{
	struct wire_control *c = gpu->control;

	c->magic = WIRE_MAGIC;
	c->workers = gpu->config.workers;
	c->latency_us = gpu->config.latency_us;
	c->parent = getpid();
	c->memory = gpu->config.memory;
	c->arena_base = gpu->config.arena_base;
	c->arena_len = gpu->config.arena_len;
	atomic_store(&c->bound, gpu->bound);
	atomic_store(&c->posted, 0);
	atomic_store(&c->mmu_sleeps, 0);
	atomic_store(&c->faults, 0);
	atomic_store(&c->head, gpu->head);
	atomic_store(&c->launch_sleeps, 0);
	memset(&c->crash, 0, sizeof(c->crash));
	for (unsigned int i = 0; i < WIRE_LAUNCHES; i++)
		atomic_store(&c->launch[i].done, 0);
}

static int wait_hello(struct sgpu *gpu)
{
	struct wire_msg *msg = calloc(1, sizeof(*msg));
	int ret;

	if (!msg)
		return -ENOMEM;
	msg->verb = WIRE_HELLO;
	ret = message(gpu, msg);
	if (!ret && msg->status)
		ret = msg->status < 0 && msg->status > -4096 ? msg->status
							     : -EIO;
	free(msg);
	return ret;
}

static void discard(int pidfd)
{
	siginfo_t how;

	if (pidfd < 0)
		return;
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	while (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &how, WEXITED) &&
	       errno == EINTR)
		;
	close(pidfd);
}

static int start_process(struct sgpu *gpu, pid_t *pid, int *pidfd)
{
	int pair[2];
	int ret;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	ret = spawn(gpu, pair[1], pid);
	close(pair[1]);
	if (ret) {
		close(pair[0]);
		return ret;
	}
	if (gpu->socket >= 0)
		close(gpu->socket);
	gpu->socket = pair[0];
	*pidfd = (int)syscall(SYS_pidfd_open, *pid, 0);
	if (*pidfd < 0) {
		ret = -errno;
		kill(*pid, SIGKILL);
		waitpid(*pid, NULL, 0);
		return ret;
	}
	return wait_hello(gpu);
}

/* It is the context from here on, unless the GPU ended in the meantime. */
static int adopt(struct sgpu *gpu, pid_t pid, int pidfd)
{
	int ret = -ENODEV;

	pthread_mutex_lock(&gpu->lock);
	gpu->pidfd = pidfd;
	gpu->pid = pid;
	if (!gpu->doomed)
		ret = start_monitor(gpu);
	if (!ret)
		gpu->state = GPU_RUNS;
	if (ret) {
		gpu->pidfd = -1;
		gpu->pid = 0;
	}
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

/* pre: C is held alone, there is no context. */
int context_start_locked(struct sgpu *gpu)
{
	pid_t pid = 0;
	int pidfd = -1;
	int ret;

	if (gpu->monitored)
		pthread_join(gpu->monitor, NULL);
	gpu->monitored = false;
	pthread_mutex_lock(&gpu->socket_lock);
	reset_control(gpu);
	ret = start_process(gpu, &pid, &pidfd);
	if (!ret)
		ret = modules_reload_locked(gpu);
	if (!ret)
		ret = adopt(gpu, pid, pidfd);
	if (ret)
		discard(pidfd);
	pthread_mutex_unlock(&gpu->socket_lock);
	return ret;
}

void context_stop(struct sgpu *gpu)
{
	uint64_t one = 1;

	if (!gpu->monitored)
		return;
	if (write(gpu->stop_fd, &one, sizeof(one)) != sizeof(one))
		abort(); /* it is empty: cannot be */
	pthread_join(gpu->monitor, NULL);
	gpu->monitored = false;
}

void context_fail(struct sgpu *gpu, uint64_t epoch, int err, const char *fmt,
		  ...)
{
	va_list ap;

	va_start(ap, fmt);
	pthread_mutex_lock(&gpu->lock);
	if (gpu->epoch == epoch && gpu->state == GPU_RUNS) {
		if (!gpu->sticky) {
			gpu->sticky = err;
			vsnprintf(gpu->error, sizeof(gpu->error), fmt, ap);
		}
		gpu->dying = true;
		send_kill_locked(gpu);
	}
	pthread_mutex_unlock(&gpu->lock);
	va_end(ap);
}

int gpu_gone(struct sgpu *gpu, int err, bool lost, const char *why)
{
	pthread_mutex_lock(&gpu->lock);
	if (!gpu->doomed) {
		gpu->doomed = true;
		gpu->sticky = -ENODEV;
		snprintf(gpu->error, sizeof(gpu->error), "the GPU is gone: %s",
			 why);
		send_kill_locked(gpu);
	}
	if (lost)
		atomic_store(&gpu->lost, true);
	while (gpu->state == GPU_RUNS)
		pthread_cond_wait(&gpu->changed, &gpu->lock);
	gpu->state = GPU_GONE;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
	wake_all(gpu);
	return err;
}

/* One that was killed while it started says nothing about the next. */
#define STARTS 3

SGPU_API int sgpu_hw_restart(struct sgpu *gpu)
{
	int ret = gpu_check(gpu);

	if (ret)
		return ret;
	pthread_rwlock_wrlock(&gpu->context_lock);
	if (gpu->state == GPU_DEAD) {
		for (int i = 0; i < STARTS && (!i || ret); i++)
			ret = context_start_locked(gpu);
		if (ret)
			ret = gpu_gone(gpu, -ENODEV, false,
				       "no new context could be started");
	} else if (gpu->state == GPU_GONE) {
		ret = -ENODEV;
	}
	pthread_rwlock_unlock(&gpu->context_lock);
	return ret;
}
