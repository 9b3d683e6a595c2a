/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * gm_sgpu.c - the driver of the software GPU
 *
 * Device addresses are offsets in the GPU's memory; its page table is keyed by
 * the program's own addresses. Copies go through the memory window, by the
 * thread that wants them.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "gmm/kpi.h"
#include "gm_sgpu.h"
#include "sgpu.h"
#include "sgpu_hw.h"

#define GM_SGPU_API __attribute__((visibility("default")))

/* One thread copies while the other takes the next faults. */
#define FAULT_THREADS 2
#define FAULT_BATCH 32

_Static_assert(SGPU_HW_PAGE == GM_PAGE_SIZE, "the grain is the manager's");
_Static_assert(SGPU_HW_READ == GM_PROT_READ && SGPU_HW_WRITE == GM_PROT_WRITE &&
		       SGPU_HW_READ == GM_READ && SGPU_HW_WRITE == GM_WRITE,
	       "rights and accesses pass through as they are");

/**
 * struct gm_sgpu - one attached GPU
 * @next: A: of the list
 * @gpu: constant
 * @info: constant, but for the pid, which is not used
 * @as: constant
 * @dev: constant while fault threads run
 * @threads: A: that serve faults
 * @nr_threads: A: how many run
 * @lost: the manager has been told
 */
struct gm_sgpu {
	struct gm_sgpu *next;
	struct sgpu *gpu;
	struct sgpu_hw_info info;
	struct gm_as *as;
	struct gm_dev *dev;
	pthread_t threads[FAULT_THREADS];
	unsigned int nr_threads;
	_Atomic bool lost;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* A */
static struct gm_sgpu *attached; /* A */
static unsigned int count; /* A: for names */

static int sgpu_va_examine(void *pmap, uint64_t va, uint64_t len)
{
	const struct sgpu_hw_info *info = &((struct gm_sgpu *)pmap)->info;
	uint64_t off = va - info->arena_base;

	return off < info->arena_len && len <= info->arena_len - off
		       ? 0
		       : -EADDRNOTAVAIL;
}

static int sgpu_enter_runs(void *pmap, const struct gm_pmap_run *runs,
			   unsigned int n)
{
	struct gm_sgpu *s = pmap;
	struct sgpu_hw_run hw[SGPU_HW_RUNS];

	if (n > SGPU_HW_RUNS)
		return -E2BIG;
	for (unsigned int i = 0; i < n; i++)
		hw[i] = (struct sgpu_hw_run){ .va = runs[i].va,
					      .daddr = runs[i].daddr,
					      .len = runs[i].len,
					      .prot = runs[i].prot };
	return sgpu_hw_map(s->gpu, hw, n);
}

static int sgpu_enter(void *pmap, const struct gm_pmap_run *run)
{
	return sgpu_enter_runs(pmap, run, 1);
}

static int sgpu_clear_runs(void *pmap, const struct gm_pmap_run *runs,
			   unsigned int n)
{
	struct gm_sgpu *s = pmap;
	struct sgpu_hw_run hw[SGPU_HW_RUNS];

	if (n > SGPU_HW_RUNS)
		return -E2BIG;
	for (unsigned int i = 0; i < n; i++)
		hw[i] = (struct sgpu_hw_run){ .va = runs[i].va,
					      .len = runs[i].len };
	return sgpu_hw_unmap(s->gpu, hw, n);
}

static int sgpu_clear(void *pmap, uint64_t va, uint64_t len)
{
	struct gm_sgpu *s = pmap;
	struct sgpu_hw_run run = { .va = va, .len = len };

	return sgpu_hw_unmap(s->gpu, &run, 1);
}

static int sgpu_protect(void *pmap, uint64_t va, uint64_t len,
			unsigned int prot)
{
	struct gm_sgpu *s = pmap;
	struct sgpu_hw_run run = { .va = va, .len = len, .prot = prot };

	return sgpu_hw_protect(s->gpu, &run, 1);
}

static int sgpu_memcpy(void *data, const struct gm_copy *copy)
{
	static const enum sgpu_hw_dir dirs[] = {
		[GM_COPY_TO_DEV] = SGPU_HW_TO_DEV,
		[GM_COPY_FROM_DEV] = SGPU_HW_FROM_DEV,
		[GM_COPY_IN_DEV] = SGPU_HW_IN_DEV,
	};
	struct gm_sgpu *s = data;

	return sgpu_hw_copy(s->gpu, dirs[copy->dir], copy->dst, copy->src,
			    copy->len);
}

static int sgpu_zero(void *data, uint64_t daddr, uint64_t len)
{
	struct gm_sgpu *s = data;

	return sgpu_hw_zero(s->gpu, daddr, len);
}

static const struct gm_dev_ops ops = {
	.size = sizeof(ops),
	.version = GM_DEV_OPS_VERSION,
	.va_examine = sgpu_va_examine,
	.pmap_enter = sgpu_enter,
	.pmap_clear = sgpu_clear,
	.memcpy = sgpu_memcpy,
	.zero = sgpu_zero,
	.pmap_protect = sgpu_protect,
	.pmap_enter_runs = sgpu_enter_runs,
	.pmap_clear_runs = sgpu_clear_runs,
};

static void serve(struct gm_sgpu *s, const struct sgpu_hw_fault *faults,
		  unsigned int n)
{
	uint64_t vas[FAULT_BATCH];
	enum gm_access access[FAULT_BATCH];
	int status[FAULT_BATCH];

	for (unsigned int i = 0; i < n; i++) {
		vas[i] = faults[i].addr;
		access[i] = (enum gm_access)faults[i].access;
	}
	gm_dev_fault_many(s->as, vas, n, s->dev, access, status);
	for (unsigned int i = 0; i < n; i++) {
		/* A context that died meanwhile: nobody waits for this. */
		if (status[i] == -EAGAIN)
			status[i] = 0;
		sgpu_hw_fault_done(s->gpu, &faults[i], status[i]);
	}
}

/*
 * The old context is dead and maps fail until the restart, so page table and
 * manager agree throughout: nothing is mapped.
 */
static void replace_context(struct gm_sgpu *s)
{
	gm_as_reset(s->as, s->dev);
	/* If it fails the GPU is gone, and the next wait says so. */
	sgpu_hw_restart(s->gpu);
}

static void *fault_thread(void *arg)
{
	struct gm_sgpu *s = arg;
	struct sgpu_hw_fault faults[FAULT_BATCH];

	for (;;) {
		int n = sgpu_hw_fault_wait(s->gpu, faults, FAULT_BATCH);

		if (n > 0) {
			serve(s, faults, (unsigned int)n);
		} else if (n == -ECONNRESET) {
			replace_context(s);
		} else {
			if (n == -ENODEV && !atomic_exchange(&s->lost, true))
				gm_dev_lost(s->dev);
			return NULL;
		}
	}
}

static void stop_threads(struct gm_sgpu *s)
{
	sgpu_hw_fault_stop(s->gpu);
	while (s->nr_threads)
		pthread_join(s->threads[--s->nr_threads], NULL);
}

/*
 * A handler of the program's may touch unified memory: it must not run on a
 * thread that the manager has given a page's lock. Nor may such a thread be
 * cancelled.
 */
struct quiet {
	sigset_t mask;
	int cancel;
};

static void be_quiet(struct quiet *quiet)
{
	sigset_t all;

	sigfillset(&all);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &quiet->cancel);
	pthread_sigmask(SIG_SETMASK, &all, &quiet->mask);
}

static void be_loud(const struct quiet *quiet)
{
	pthread_sigmask(SIG_SETMASK, &quiet->mask, NULL);
	pthread_setcancelstate(quiet->cancel, NULL);
}

/* With all signals blocked: no handler of the program's runs on them. */
static int start_threads(struct gm_sgpu *s)
{
	sigset_t all, old;
	int ret = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!ret && s->nr_threads < FAULT_THREADS) {
		pthread_t *thread = &s->threads[s->nr_threads];

		ret = -pthread_create(thread, NULL, fault_thread, s);
		if (!ret) {
			pthread_setname_np(*thread, "gm-sgpu-fault");
			s->nr_threads++;
		}
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		stop_threads(s);
	return ret == -EAGAIN ? -ENOMEM : ret;
}

static int attach_memory(struct gm_sgpu *s)
{
	char name[32];
	int ret;

	snprintf(name, sizeof(name), "sgpu%u", count);
	ret = gm_dev_create(&ops, s, name,
			    GM_CAP_REPLAY | GM_CAP_WRITE_FAULT |
				    GM_CAP_COPY_ENGINES,
			    &s->dev);
	if (ret)
		return ret;
	ret = gm_dev_register_physmem(s->dev, 0, s->info.memory);
	if (ret)
		gm_dev_destroy(s->dev);
	return ret;
}

static int attach(struct gm_sgpu *s)
{
	int ret = sgpu_hw_bind(s->gpu, &s->info);

	if (ret)
		return ret;
	ret = attach_memory(s);
	if (ret)
		goto unbind;
	ret = start_threads(s);
	if (ret)
		goto memory;
	ret = gm_as_attach(s->as, s->dev, s);
	if (!ret) {
		sgpu_hw_on_close(s->gpu, gm_sgpu_detach);
		return 0;
	}
	stop_threads(s);
memory:
	gm_dev_unregister_physmem(s->dev, 0, s->info.memory);
	gm_dev_destroy(s->dev);
unbind:
	sgpu_hw_unbind(s->gpu);
	return ret;
}

static struct gm_sgpu **find_locked(struct sgpu *gpu)
{
	struct gm_sgpu **link = &attached;

	while (*link && (*link)->gpu != gpu)
		link = &(*link)->next;
	return link;
}

GM_SGPU_API int gm_sgpu_attach(struct sgpu *gpu, int *node)
{
	struct quiet quiet;
	struct gm_as *as;
	struct gm_sgpu *s;
	int ret, id = 0;

	if (!gpu)
		return -EINVAL;
	as = gm_as_current();
	if (!as)
		return -errno;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->gpu = gpu;
	s->as = as;
	be_quiet(&quiet);
	pthread_mutex_lock(&lock);
	ret = *find_locked(gpu) ? -EEXIST : attach(s);
	if (!ret) {
		s->next = attached;
		attached = s;
		count++;
		id = gm_dev_node(s->dev);
	}
	pthread_mutex_unlock(&lock);
	be_loud(&quiet);
	if (ret)
		free(s);
	else if (node)
		*node = id;
	return ret;
}

/*
 * The fault threads run until the manager has let go, so that a detach which
 * fails leaves everything as it was. One that got further and then failed goes
 * on from there when it is called again.
 */
static int detach(struct gm_sgpu *s)
{
	int ret;

	ret = gm_as_detach(s->as, s->dev);
	if (ret && ret != -ENOENT)
		return ret;
	stop_threads(s);
	ret = gm_dev_unregister_physmem(s->dev, 0, s->info.memory);
	if (ret && ret != -ENOENT)
		return ret;
	ret = gm_dev_destroy(s->dev);
	if (ret)
		return ret;
	sgpu_hw_unbind(s->gpu);
	return 0;
}

static bool is_attached(struct sgpu *gpu)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = *find_locked(gpu);
	pthread_mutex_unlock(&lock);
	return found;
}

GM_SGPU_API int gm_sgpu_detach(struct sgpu *gpu)
{
	struct gm_sgpu **link, *s;
	struct quiet quiet;
	int ret = -ENOENT;

	/* A child of fork() has copies of our lists, but no threads. */
	if (!gm_as_current())
		return -errno;
	if (!is_attached(gpu))
		return -ENOENT;
	/*
	 * Its error is the program's to collect. Without the lock: a kernel
	 * that never ends is no other GPU's matter.
	 */
	sgpu_sync(gpu, NULL);
	be_quiet(&quiet);
	pthread_mutex_lock(&lock);
	link = find_locked(gpu);
	s = *link;
	if (s)
		ret = detach(s);
	if (!ret)
		*link = s->next;
	pthread_mutex_unlock(&lock);
	be_loud(&quiet);
	if (!ret)
		free(s);
	return ret;
}
