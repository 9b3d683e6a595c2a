/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * mmu.c - the page table: mappings of frames at the program's addresses
 *
 * The kernel's page table is the hardware's; mmap() and mprotect() return
 * after remote TLBs were flushed. The table here says what is mapped, so that
 * clearing nothing costs no system call and a failed command can be undone.
 * The driver never has two commands under way that overlap.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "device.h"

/* A page of the arena: 0, or (frame + 1) << 2 | PROT_READ | PROT_WRITE */
static _Atomic uint32_t *table;
static struct wire_spin spin = { 2 * WIRE_SPIN_MIN };
/* What has ever been mapped lies between; clearing the arena looks only there */
static _Atomic uint64_t low = UINT64_MAX;
static _Atomic uint64_t high;

int mmu_init(void)
{
	size_t len = (size_t)(control->arena_len >> WIRE_PAGE_SHIFT) *
		     sizeof(*table);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	table = p;
	return 0;
}

static _Atomic uint32_t *entry(uint64_t va)
{
	return &table[(va - control->arena_base) >> WIRE_PAGE_SHIFT];
}

static int map(uint64_t va, uint64_t daddr, uint64_t len, uint64_t prot)
{
	void *p = mmap((void *)(uintptr_t)va, len, (int)prot,
		       MAP_SHARED | MAP_FIXED, WIRE_FD_MEMORY, (off_t)daddr);

	return p == MAP_FAILED ? -errno : 0;
}

/* Never munmap(): the arena stays reserved. */
static int clear(uint64_t va, uint64_t len)
{
	void *p = mmap((void *)(uintptr_t)va, len, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		       -1, 0);

	return p == MAP_FAILED ? -errno : 0;
}

static void note_mapped(const struct wire_run *run)
{
	uint64_t old = atomic_load(&low);

	while (run->va < old &&
	       !atomic_compare_exchange_weak(&low, &old, run->va))
		;
	old = atomic_load(&high);
	while (run->va + run->len > old &&
	       !atomic_compare_exchange_weak(&high, &old, run->va + run->len))
		;
}

static int clear_run(const struct wire_run *run)
{
	uint64_t lo = atomic_load(&low);
	uint64_t hi = atomic_load(&high);
	uint64_t end = run->va + run->len < hi ? run->va + run->len : hi;
	uint64_t va = run->va > lo ? run->va : lo;

	while (va < end) {
		uint64_t from;

		if (!atomic_load(entry(va))) {
			va += WIRE_PAGE;
			continue;
		}
		for (from = va; va < end && atomic_load(entry(va));)
			va += WIRE_PAGE;
		int ret = clear(from, va - from);

		if (ret)
			return ret;
	}
	return 0;
}

static int protect_run(const struct wire_run *run)
{
	uint64_t end = run->va + run->len;
	uint64_t va = run->va;

	while (va < end) {
		uint64_t from;

		if (!atomic_load(entry(va))) {
			va += WIRE_PAGE;
			continue;
		}
		for (from = va; va < end && atomic_load(entry(va));)
			va += WIRE_PAGE;
		if (mprotect((void *)(uintptr_t)from, va - from,
			     (int)run->prot))
			return -errno;
	}
	return 0;
}

/* The mappings are made; say so in the table. */
static void commit(uint32_t op, const struct wire_run *run)
{
	uint64_t off = 0;
	uint64_t end = run->len;

	if (op == WIRE_CLEAR) {
		uint64_t lo = atomic_load(&low);
		uint64_t hi = atomic_load(&high);

		off = lo > run->va ? lo - run->va : 0;
		end = hi < run->va + run->len ? hi - run->va : run->len;
		if (hi <= run->va)
			return;
	}
	for (; off < end; off += WIRE_PAGE) {
		_Atomic uint32_t *e = entry(run->va + off);
		uint32_t old = atomic_load(e);
		uint64_t frame = (run->daddr + off) >> WIRE_PAGE_SHIFT;

		if (op == WIRE_MAP)
			atomic_store(e,
				     (uint32_t)((frame + 1) << 2 | run->prot));
		else if (op == WIRE_CLEAR)
			atomic_store(e, 0);
		else if (old)
			atomic_store(e, (old & ~3u) | (uint32_t)run->prot);
	}
}

/*
 * Bring back what the table says. A context whose page table is in doubt must
 * not live on.
 */
static void undo(const struct wire_run *run)
{
	for (uint64_t off = 0; off < run->len; off += WIRE_PAGE) {
		uint64_t va = run->va + off;
		uint32_t e = atomic_load(entry(va));
		int ret;

		if (e)
			ret = map(va,
				  (uint64_t)((e >> 2) - 1) << WIRE_PAGE_SHIFT,
				  WIRE_PAGE, e & 3);
		else
			ret = clear(va, WIRE_PAGE);
		if (ret)
			abort();
	}
}

static int execute(const struct wire_command *cmd)
{
	uint32_t i;
	int ret = 0;

	if (cmd->inject)
		return cmd->inject;
	for (i = 0; i < cmd->n; i++) {
		const struct wire_run *run = &cmd->runs[i];

		if (cmd->op == WIRE_MAP)
			note_mapped(run);
		if (cmd->op == WIRE_MAP)
			ret = map(run->va, run->daddr, run->len, run->prot);
		else if (cmd->op == WIRE_CLEAR)
			ret = clear_run(run);
		else
			ret = protect_run(run);
		if (ret)
			break;
	}
	if (ret) {
		for (uint32_t j = 0; j <= i; j++)
			undo(&cmd->runs[j]);
		return ret;
	}
	for (i = 0; i < cmd->n; i++)
		commit(cmd->op, &cmd->runs[i]);
	return 0;
}

static void delay(void)
{
	struct timespec ts = {
		.tv_sec = control->latency_us / 1000000,
		.tv_nsec = (long)(control->latency_us % 1000000) * 1000,
	};

	if (control->latency_us)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

bool mmu_serve(void)
{
	uint32_t bits =
		atomic_load_explicit(&control->posted, memory_order_relaxed);
	int saved = errno;

	if (bits)
		bits = atomic_exchange(&control->posted, 0);
	if (!bits)
		return false;
	for (uint32_t i = 0; i < WIRE_COMMANDS; i++) {
		struct wire_command *cmd = &control->command[i];

		if (!(bits & 1u << i) || cmd->inject == WIRE_HANG)
			continue;
		delay();
		cmd->status = execute(cmd);
		if (atomic_exchange(&cmd->done, WIRE_DONE) ==
		    WIRE_BUSY_SLEEPING)
			wire_futex_wake(&cmd->done, 1);
	}
	errno = saved;
	return true;
}

static bool ready(void *arg)
{
	return atomic_load_explicit(&control->posted, memory_order_relaxed);
}

static void *mmu_thread(void *arg)
{
	setpriority(PRIO_PROCESS, 0, -10); /* needs a right; a help if there */
	for (;;) {
		if (mmu_serve() || wire_spin(&spin, ready, NULL))
			continue;
		atomic_store(&control->mmu_sleeps, 1);
		if (!atomic_load(&control->posted))
			wire_futex_wait(&control->posted, 0, NULL);
		atomic_store(&control->mmu_sleeps, 0);
	}
	return NULL;
}

int mmu_start(void)
{
	pthread_t thread;

	return -pthread_create(&thread, NULL, mmu_thread, NULL);
}
