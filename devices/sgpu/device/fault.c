/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * fault.c - the fault unit
 *
 * SIGSEGV in the arena queues address and access and waits for the replay; the
 * thread goes on where it was, on its own stack. All else that kills a program
 * is a crash of the kernel: it is written down and the context ends itself,
 * for a thread in the middle of somebody's code cannot be unwound.
 */
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

#include "device.h"

#ifndef __x86_64__
#error "the fault unit reads x86-64 page-fault error codes"
#endif

/* Page-fault error code of x86. */
#define PF_WRITE 2
#define PF_FETCH 16

_Atomic uint64_t last_launch;
__thread struct running running;

static _Atomic uint64_t slots; /* bit i: wire_fault i is in use */

static uint64_t my_launch(void)
{
	return running.launch ? running.launch : atomic_load(&last_launch);
}

static __attribute__((noreturn)) void crash(int sig, int code, uint64_t addr,
					    uint32_t access)
{
	static _Atomic uint32_t taken;
	struct wire_crash *c = &control->crash;

	while (atomic_exchange(&taken, 1)) /* the first one ends all */
		syscall(SYS_pause);
	c->signal = sig;
	c->code = code;
	c->addr = addr;
	c->access = access;
	c->launch = my_launch();
	c->index = running.index;
	atomic_store(&c->valid, 1);
	for (;;)
		syscall(SYS_exit_group, 128 + sig);
}

static unsigned int slot_take(void)
{
	for (;;) {
		uint64_t old = atomic_load(&slots);

		if (~old == 0) { /* more threads wait than there are slots */
			syscall(SYS_sched_yield);
			continue;
		}
		unsigned int i = (unsigned int)__builtin_ctzll(~old);

		if (atomic_compare_exchange_weak(&slots, &old, old | 1ull << i))
			return i;
	}
}

/* While it waits, the thread helps with commands: it may be its own map. */
static bool replayed(void *arg)
{
	struct wire_fault *f = arg;

	if (!control->latency_us)
		mmu_serve();
	return atomic_load_explicit(&f->state, memory_order_acquire) ==
	       WIRE_DONE;
}

static void fault(uint64_t addr, uint32_t access)
{
	static struct wire_spin spin = { 2 * WIRE_SPIN_MIN };
	unsigned int i = slot_take();
	struct wire_fault *f = &control->fault[i];
	uint32_t busy = WIRE_BUSY;

	f->addr = addr;
	f->access = access;
	f->worker = running.launch ? running.worker : ~0u;
	f->launch = my_launch();
	f->index = running.index;
	atomic_store(&f->state, WIRE_BUSY);
	atomic_fetch_or(&control->faults, 1ull << i);
	wire_ring(&control->fault_bell, &control->fault_sleeps);

	if (!wire_spin(&spin, replayed, f) &&
	    atomic_compare_exchange_strong(&f->state, &busy,
					   WIRE_BUSY_SLEEPING)) {
		while (atomic_load(&f->state) != WIRE_DONE)
			wire_futex_wait(&f->state, WIRE_BUSY_SLEEPING, NULL);
	}
	atomic_fetch_and(&slots, ~(1ull << i));
}

static void on_segv(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;
	uint64_t code = (uint64_t)uc->uc_mcontext.gregs[REG_ERR];
	uint64_t addr = (uint64_t)(uintptr_t)info->si_addr;
	uint32_t access = code & PF_WRITE ? 2 : 1;
	int saved = errno;

	/* Neither a sent signal nor a non-canonical address has one. */
	if (info->si_code != SEGV_MAPERR && info->si_code != SEGV_ACCERR)
		crash(sig, info->si_code, 0, 0);
	if (!in_arena(addr) || code & PF_FETCH || !atomic_load(&control->bound))
		crash(sig, info->si_code, addr, access);
	fault(addr, access);
	errno = saved;
}

static void on_crash(int sig, siginfo_t *info, void *context)
{
	crash(sig, info->si_code, (uint64_t)(uintptr_t)info->si_addr, 0);
}

int fault_init(void)
{
	static const int crashes[] = { SIGBUS,	SIGFPE,	 SIGILL,
				       SIGABRT, SIGTRAP, SIGSYS };
	/* SA_NODEFER: a handler that faults itself is not killed unheard. */
	struct sigaction sa = { .sa_flags = SA_SIGINFO | SA_NODEFER };

	sa.sa_sigaction = on_segv;
	if (sigaction(SIGSEGV, &sa, NULL))
		return -errno;
	sa.sa_sigaction = on_crash;
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++) {
		if (sigaction(crashes[i], &sa, NULL))
			return -errno;
	}
	return 0;
}
