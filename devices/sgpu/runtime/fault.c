/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* fault.c - the fault queue, and what binds a driver to it */
#include <string.h>

#include "runtime.h"

/* Read one entry, once; false if it cannot be. */
static bool read_fault(struct sgpu *gpu, unsigned int i,
		       struct sgpu_hw_fault *out)
{
	const volatile struct wire_fault *f = &gpu->control->fault[i];

	*out = (struct sgpu_hw_fault){
		.addr = f->addr,
		.access = f->access,
		.worker = f->worker,
		.launch = f->launch,
		.index = f->index,
		.waiters = 1ull << i,
	};
	return out->addr - gpu->config.arena_base < gpu->config.arena_len &&
	       (out->access == SGPU_HW_READ || out->access == SGPU_HW_WRITE);
}

static bool merge(struct sgpu_hw_fault *out, unsigned int n,
		  const struct sgpu_hw_fault *fault)
{
	for (unsigned int i = 0; i < n; i++) {
		uint64_t waiters = out[i].waiters | fault->waiters;

		if ((out[i].addr ^ fault->addr) & ~(WIRE_PAGE - 1))
			continue;
		/* Who writes needs more, and is who fails first. */
		if (fault->access > out[i].access)
			out[i] = *fault;
		out[i].waiters = waiters;
		return true;
	}
	return false;
}

static unsigned int collect(struct sgpu *gpu, struct sgpu_hw_fault *out,
			    unsigned int n)
{
	struct wire_control *control = gpu->control;
	uint64_t epoch = atomic_load(&gpu->epoch);
	uint64_t bits = atomic_load(&control->faults);
	uint64_t rest = 0;
	unsigned int k = 0;

	if (bits)
		bits = atomic_exchange(&control->faults, 0);
	for (; bits; bits &= bits - 1) {
		unsigned int i = (unsigned int)__builtin_ctzll(bits);
		struct sgpu_hw_fault fault;

		if (!read_fault(gpu, i, &fault)) {
			context_fail(gpu, epoch, -EIO,
				     "the device reported a fault that cannot "
				     "be");
			return 0;
		}
		fault.epoch = epoch;
		if (merge(out, k, &fault))
			continue;
		if (k < n)
			out[k++] = fault;
		else
			rest |= fault.waiters;
	}
	if (rest) { /* for another thread, or the next call */
		atomic_fetch_or(&control->faults, rest);
		wire_ring(&control->fault_bell, &control->fault_sleeps);
	}
	return k;
}

static bool take_death(struct sgpu *gpu)
{
	bool mine;

	pthread_mutex_lock(&gpu->lock);
	mine = gpu->state == GPU_DEAD && !gpu->told;
	if (mine)
		gpu->told = true;
	pthread_mutex_unlock(&gpu->lock);
	return mine;
}

SGPU_API int sgpu_hw_fault_wait(struct sgpu *gpu, struct sgpu_hw_fault *out,
				unsigned int n)
{
	int ret = gpu_check(gpu);
	struct ear ear;

	if (ret || !out || !n)
		return ret ? ret : -EINVAL;
	ear = (struct ear){ .gpu = gpu,
			    .bell = &gpu->control->fault_bell,
			    .sleeps = &gpu->control->fault_sleeps };
	for (;;) {
		unsigned int k;
		int state;

		bell_read(&ear);
		state = atomic_load(&gpu->state);
		if (atomic_load(&gpu->stopping))
			return -ESHUTDOWN;
		if (state == GPU_GONE)
			return -ENODEV;
		if (state == GPU_DEAD && take_death(gpu))
			return -ECONNRESET;
		k = state == GPU_RUNS ? collect(gpu, out, n) : 0;
		if (k)
			return (int)k;
		bell_wait(&ear, &gpu->fault_spin);
	}
}

SGPU_API void sgpu_hw_fault_done(struct sgpu *gpu,
				 const struct sgpu_hw_fault *fault, int status)
{
	if (gpu_check(gpu) || atomic_load(&gpu->epoch) != fault->epoch)
		return;
	if (status) {
		const char *name = launch_name(gpu, fault->launch);

		context_fail(gpu, fault->epoch, status < 0 ? status : -EIO,
			     "kernel %s, index %llu: %s at address %#llx: %s",
			     name, (unsigned long long)fault->index,
			     fault->access == SGPU_HW_WRITE ? "write" : "read",
			     (unsigned long long)fault->addr,
			     status < 0 ? strerrordesc_np(-status) : "?");
		return;
	}
	/* One for a context that has just died is a needless replay at worst. */
	for (uint64_t bits = fault->waiters; bits; bits &= bits - 1) {
		_Atomic uint32_t *state =
			&gpu->control->fault[__builtin_ctzll(bits)].state;

		if (atomic_exchange(state, WIRE_DONE) == WIRE_BUSY_SLEEPING)
			wire_futex_wake(state, 1);
	}
}

SGPU_API void sgpu_hw_fault_stop(struct sgpu *gpu)
{
	if (gpu_check(gpu))
		return;
	atomic_store(&gpu->stopping, true);
	bell_ring(gpu);
}

SGPU_API int sgpu_hw_info(struct sgpu *gpu, struct sgpu_hw_info *info)
{
	int ret = gpu_check(gpu);

	if (ret || !info)
		return ret ? ret : -EINVAL;
	pthread_mutex_lock(&gpu->lock);
	*info = (struct sgpu_hw_info){
		.window = gpu->window,
		.memory = gpu->config.memory,
		.arena_base = gpu->config.arena_base,
		.arena_len = gpu->config.arena_len,
		.workers = gpu->config.workers,
		.pid = gpu->pid,
	};
	pthread_mutex_unlock(&gpu->lock);
	return 0;
}

SGPU_API int sgpu_hw_bind(struct sgpu *gpu, struct sgpu_hw_info *info)
{
	int ret = sgpu_hw_info(gpu, info);

	if (ret)
		return ret;
	if (launches_running(gpu))
		return -EBUSY;
	pthread_mutex_lock(&gpu->lock);
	if (gpu->state == GPU_GONE)
		ret = -ENODEV;
	else if (gpu->bound)
		ret = -EBUSY;
	if (!ret) {
		gpu->bound = true;
		gpu->told = false;
		atomic_store(&gpu->stopping, false);
		atomic_store(&gpu->control->bound, 1);
	}
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

SGPU_API void sgpu_hw_on_close(struct sgpu *gpu,
			       int (*detach)(struct sgpu *gpu))
{
	if (gpu_check(gpu))
		return;
	pthread_mutex_lock(&gpu->lock);
	gpu->on_close = detach;
	pthread_mutex_unlock(&gpu->lock);
}

SGPU_API void sgpu_hw_unbind(struct sgpu *gpu)
{
	struct sgpu_hw_run all;

	if (gpu_check(gpu))
		return;
	all = (struct sgpu_hw_run){ .va = gpu->config.arena_base,
				    .len = gpu->config.arena_len };
	sgpu_hw_unmap(gpu, &all, 1);
	pthread_mutex_lock(&gpu->lock);
	gpu->bound = false;
	gpu->on_close = NULL;
	atomic_store(&gpu->control->bound, 0);
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->lock);
}
