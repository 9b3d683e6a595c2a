/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* command.c - page table commands */
#include <signal.h>

#include "runtime.h"

static int check_run(const struct sgpu *gpu, enum wire_op op,
		     const struct sgpu_hw_run *run)
{
	const struct sgpu_config *c = &gpu->config;
	uint64_t off = run->va - c->arena_base;

	if (!run->len || (run->va | run->len) % WIRE_PAGE ||
	    off >= c->arena_len || run->len > c->arena_len - off)
		return -EINVAL;
	if (op != WIRE_CLEAR && run->prot != SGPU_HW_READ &&
	    run->prot != (SGPU_HW_READ | SGPU_HW_WRITE))
		return -EINVAL;
	if (op == WIRE_MAP && (run->daddr % WIRE_PAGE || run->len > c->memory ||
			       run->daddr > c->memory - run->len))
		return -EINVAL;
	return 0;
}

static int check_runs(const struct sgpu *gpu, enum wire_op op,
		      const struct sgpu_hw_run *runs, unsigned int n)
{
	int ret = runs && n && n <= WIRE_RUNS ? 0 : -EINVAL;

	for (unsigned int i = 0; !ret && i < n; i++)
		ret = check_run(gpu, op, &runs[i]);
	return ret;
}

/* There are more commands than threads that are likely to have one. */
static unsigned int claim(struct sgpu *gpu)
{
	for (;;) {
		uint32_t old = atomic_load(&gpu->claimed);
		uint32_t free = ~old & ((1u << WIRE_COMMANDS) - 1);

		if (!free) {
			atomic_fetch_add(&gpu->claimants, 1);
			wire_futex_wait(&gpu->claimed, old, NULL);
			atomic_fetch_sub(&gpu->claimants, 1);
			continue;
		}
		unsigned int i = (unsigned int)__builtin_ctz(free);

		if (atomic_compare_exchange_weak(&gpu->claimed, &old,
						 old | 1u << i))
			return i;
	}
}

static void unclaim(struct sgpu *gpu, unsigned int i)
{
	atomic_fetch_and(&gpu->claimed, ~(1u << i));
	/* One for each that is given back: several may wait. */
	if (atomic_load(&gpu->claimants))
		wire_futex_wake(&gpu->claimed, 1);
}

static void post(struct sgpu *gpu, unsigned int i, enum wire_op op,
		 const struct sgpu_hw_run *runs, unsigned int n, int inject)
{
	struct wire_control *control = gpu->control;
	struct wire_command *cmd = &control->command[i];

	cmd->op = op;
	cmd->n = n;
	cmd->inject = inject;
	cmd->status = -EIO;
	for (unsigned int k = 0; k < n; k++) {
		cmd->runs[k].va = runs[k].va;
		cmd->runs[k].daddr = runs[k].daddr;
		cmd->runs[k].len = runs[k].len;
		cmd->runs[k].prot = runs[k].prot;
	}
	atomic_store(&cmd->done, WIRE_BUSY);
	atomic_fetch_or(&control->posted, 1u << i);
	if (atomic_load(&control->mmu_sleeps))
		wire_futex_wake(&control->posted, 1);
}

struct waiting {
	struct sgpu *gpu;
	struct wire_command *cmd;
	uint64_t epoch;
};

static bool over(const struct waiting *w)
{
	return atomic_load(&w->gpu->state) != GPU_RUNS ||
	       atomic_load(&w->gpu->epoch) != w->epoch;
}

static bool answered(void *arg)
{
	const struct waiting *w = arg;

	return atomic_load_explicit(&w->cmd->done, memory_order_acquire) ==
	       WIRE_DONE;
}

/* Return: 0 when answered, -ECONNRESET if the context died, -ETIMEDOUT. */
static int await(struct waiting *w)
{
	uint64_t now = wire_now();
	uint64_t end = now + atomic_load(&w->gpu->deadline_ms) * 1000000ull;
	uint32_t busy = WIRE_BUSY;

	if (wire_spin(&w->gpu->command_spin, answered, w))
		return 0;
	atomic_compare_exchange_strong(&w->cmd->done, &busy,
				       WIRE_BUSY_SLEEPING);
	/* Anything but an answer is no reason to look less than now and then. */
	for (;; now = wire_now()) {
		struct timespec ts = { 0 };

		if (answered(w))
			return 0;
		if (over(w))
			return -ECONNRESET;
		if (now >= end)
			return -ETIMEDOUT;
		ts.tv_sec = (time_t)((end - now) / 1000000000u);
		ts.tv_nsec = (long)((end - now) % 1000000000u);
		if (wire_futex_wait(&w->cmd->done, WIRE_BUSY_SLEEPING, &ts) &&
		    errno == EAGAIN && !answered(w))
			atomic_store(&w->cmd->done, WIRE_BUSY_SLEEPING);
	}
}

/* A status that the device made up must not look like one of ours. */
static int check_status(int status)
{
	switch (status) {
	case 0:
	case -ENOMEM:
	case -EIO:
		return status;
	default:
		return -EIO;
	}
}

/* With no context there is nothing to revoke, and nothing to map into. */
static int without_context(struct sgpu *gpu, enum wire_op op)
{
	if (atomic_load(&gpu->state) == GPU_GONE)
		return -ENODEV;
	return op == WIRE_MAP ? -EAGAIN : 0;
}

static int exchange(struct sgpu *gpu, enum wire_op op,
		    const struct sgpu_hw_run *runs, unsigned int n, int inject)
{
	struct waiting w = { .gpu = gpu, .epoch = atomic_load(&gpu->epoch) };
	unsigned int i;
	int ret;

	if (over(&w))
		return without_context(gpu, op);
	i = claim(gpu);
	w.cmd = &gpu->control->command[i];
	post(gpu, i, op, runs, n, inject);
	ret = await(&w);
	if (!ret)
		ret = check_status(w.cmd->status);
	else if (ret == -ECONNRESET)
		ret = without_context(gpu, op);
	else
		ret = gpu_gone(gpu, -ETIMEDOUT, false,
			       "a command was not answered in time");
	unclaim(gpu, i);
	return ret;
}

static void kill_context(struct sgpu *gpu)
{
	uint64_t epoch;

	pthread_mutex_lock(&gpu->lock);
	epoch = gpu->epoch;
	if (gpu->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, gpu->pidfd, SIGKILL, NULL, 0);
	while (gpu->state == GPU_RUNS && gpu->epoch == epoch)
		pthread_cond_wait(&gpu->changed, &gpu->lock);
	pthread_mutex_unlock(&gpu->lock);
}

static int command(struct sgpu *gpu, enum wire_op op, enum inject_what what,
		   const struct sgpu_hw_run *runs, unsigned int n)
{
	int inject = 0;
	int ret = gpu_check(gpu);

	if (!ret)
		ret = check_runs(gpu, op, runs, n);
	if (ret)
		return ret;
	if (inject_hit(gpu, INJECT_LOST))
		return gpu_gone(gpu, -ENODEV, true, "its memory is lost");
	if (inject_hit(gpu, what))
		inject = -EIO;
	if (inject_hit(gpu, INJECT_HANG))
		inject = WIRE_HANG;
	if (inject_hit(gpu, INJECT_DIE))
		kill_context(gpu);
	if (op == WIRE_MAP && atomic_load(&gpu->state) == GPU_RUNS) {
		for (unsigned int i = 0; i < n; i++)
			frames_ready(gpu, runs[i].daddr, runs[i].len);
	}
	/* No context starts while a command is on its way to the old one. */
	pthread_rwlock_rdlock(&gpu->context_lock);
	ret = exchange(gpu, op, runs, n, inject);
	pthread_rwlock_unlock(&gpu->context_lock);
	return ret;
}

SGPU_API int sgpu_hw_map(struct sgpu *gpu, const struct sgpu_hw_run *runs,
			 unsigned int n)
{
	return command(gpu, WIRE_MAP, INJECT_MAP, runs, n);
}

SGPU_API int sgpu_hw_unmap(struct sgpu *gpu, const struct sgpu_hw_run *runs,
			   unsigned int n)
{
	return command(gpu, WIRE_CLEAR, INJECT_UNMAP, runs, n);
}

SGPU_API int sgpu_hw_protect(struct sgpu *gpu, const struct sgpu_hw_run *runs,
			     unsigned int n)
{
	return command(gpu, WIRE_PROTECT, INJECT_PROTECT, runs, n);
}

SGPU_API void sgpu_hw_deadline(struct sgpu *gpu, uint32_t ms)
{
	if (!gpu_check(gpu))
		atomic_store(&gpu->deadline_ms, ms);
}
