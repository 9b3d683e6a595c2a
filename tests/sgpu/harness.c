/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness.h"

/* Not Check's: the benchmark uses the harness too. A failed test is one. */
static void must(struct rig *rig, const char *what, int ret)
{
	if (!ret)
		return;
	fprintf(stderr, "%s: %d %s\n", what, ret, sgpu_error(rig->gpu));
	abort();
}

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

bool becomes(_Atomic unsigned int *word, unsigned int value)
{
	uint64_t end = now_us() + 10000000;

	while (*word != value && now_us() < end)
		sched_yield();
	return *word == value;
}

static void answer(struct rig *rig, const struct sgpu_hw_fault *f)
{
	uint64_t page = (f->addr - rig->info.arena_base) / PAGE;
	int ret;

	rig->last_addr = f->addr;
	if (f->access == SGPU_HW_WRITE)
		rig->writes++;
	else
		rig->reads++;
	if (rig->hold)
		return;
	if (rig->copy)
		sgpu_hw_copy(rig->gpu, SGPU_HW_TO_DEV, page * PAGE,
			     (uint64_t)(uintptr_t)rig->copy, PAGE);
	if (page == 63 && rig->answer)
		ret = rig->answer;
	else if (page >= rig->info.memory / PAGE)
		ret = -EFAULT;
	else
		ret = rig_map(rig, page, page, 1,
			      f->access == SGPU_HW_WRITE
				      ? SGPU_HW_READ | SGPU_HW_WRITE
				      : SGPU_HW_READ);
	sgpu_hw_fault_done(rig->gpu, f, ret == -EAGAIN ? 0 : ret);
}

static void *serve(void *arg)
{
	struct rig *rig = arg;
	struct sgpu_hw_fault faults[16];

	for (;;) {
		int n = sgpu_hw_fault_wait(rig->gpu, faults, 16);

		for (int i = 0; i < n; i++)
			answer(rig, &faults[i]);
		if (n == -ECONNRESET) {
			rig->deaths++;
			sgpu_hw_restart(rig->gpu);
		} else if (n < 0) {
			rig->gone += n == -ENODEV;
			return NULL;
		}
	}
}

void rig_open_bare(struct rig *rig, const struct sgpu_config *config)
{
	memset(rig, 0, sizeof(*rig));
	must(rig, "open", sgpu_open(config, &rig->gpu));
	must(rig, "load",
	     sgpu_module_load(rig->gpu, getenv("SGPU_TEST_KERNELS"),
			      &rig->module));
	must(rig, "info", sgpu_hw_info(rig->gpu, &rig->info));
}

void rig_bind(struct rig *rig)
{
	must(rig, "bind", sgpu_hw_bind(rig->gpu, &rig->info));
	for (; rig->nr_threads < 2; rig->nr_threads++)
		must(rig, "thread",
		     -pthread_create(&rig->threads[rig->nr_threads], NULL,
				     serve, rig));
}

void rig_unbind(struct rig *rig)
{
	sgpu_hw_fault_stop(rig->gpu);
	while (rig->nr_threads)
		pthread_join(rig->threads[--rig->nr_threads], NULL);
	sgpu_hw_unbind(rig->gpu);
}

void rig_open(struct rig *rig, const struct sgpu_config *config)
{
	rig_open_bare(rig, config);
	rig_bind(rig);
}

void rig_close(struct rig *rig)
{
	if (rig->nr_threads)
		rig_unbind(rig);
	sgpu_close(rig->gpu);
}

struct sgpu_kernel *rig_kernel(struct rig *rig, const char *name)
{
	struct sgpu_kernel *kernel;

	must(rig, name, sgpu_kernel_find(rig->module, name, &kernel));
	return kernel;
}

int rig_run(struct rig *rig, const char *name, uint64_t grid, const void *args,
	    size_t len)
{
	int ret = sgpu_launch(rig->gpu, NULL, rig_kernel(rig, name), grid, args,
			      len);

	return ret ? ret : sgpu_sync(rig->gpu, NULL);
}

int rig_map(struct rig *rig, uint64_t page, uint64_t frame_nr, uint64_t n,
	    uint32_t prot)
{
	struct sgpu_hw_run run = { .va = va(rig, page),
				   .daddr = frame_nr * PAGE,
				   .len = n * PAGE,
				   .prot = prot };

	return sgpu_hw_map(rig->gpu, &run, 1);
}

int rig_unmap(struct rig *rig, uint64_t page, uint64_t n)
{
	struct sgpu_hw_run run = { .va = va(rig, page), .len = n * PAGE };

	return sgpu_hw_unmap(rig->gpu, &run, 1);
}

int rig_protect(struct rig *rig, uint64_t page, uint64_t n, uint32_t prot)
{
	struct sgpu_hw_run run = { .va = va(rig, page),
				   .len = n * PAGE,
				   .prot = prot };

	return sgpu_hw_protect(rig->gpu, &run, 1);
}
