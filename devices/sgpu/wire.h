/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * wire.h - the registers that runtime and device program share
 *
 * One mapping of shared memory, plus a socket for what is slow and rare (load
 * a module, find a kernel). The runtime never trusts what it reads here; the
 * device trusts the runtime.
 *
 * Each word that somebody sleeps on (a bell) has a companion that says so. The
 * sleeper sets the companion and looks again before it sleeps; who rings
 * changes the bell, takes the companion back and wakes all. So no wake is lost
 * and none is paid for that nobody needs.
 */
#ifndef SGPU_WIRE_H
#define SGPU_WIRE_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WIRE_MAGIC 0x55504753u
#define WIRE_PAGE_SHIFT 21
#define WIRE_PAGE ((uint64_t)1 << WIRE_PAGE_SHIFT)
#define WIRE_COMMANDS 16
#define WIRE_RUNS 128
#define WIRE_FAULTS 64
#define WIRE_LAUNCHES 256
#define WIRE_LANES 64
#define WIRE_ARGS 256
#define WIRE_WORKERS 48
#define WIRE_KERNELS 1024
#define WIRE_MODULES 128

/* What the device program finds open. */
enum { WIRE_FD_SOCKET = 3, WIRE_FD_CONTROL, WIRE_FD_MEMORY, WIRE_FD_END };

enum wire_op { WIRE_MAP = 1, WIRE_CLEAR, WIRE_PROTECT };

/* wire_command.done and wire_fault.state */
enum { WIRE_BUSY, WIRE_DONE, WIRE_BUSY_SLEEPING };

/* wire_command.inject: do not answer */
#define WIRE_HANG 1

struct wire_run {
	uint64_t va;
	uint64_t daddr;
	uint64_t len;
	uint64_t prot;
};

struct wire_command {
	_Alignas(64) _Atomic uint32_t done;
	uint32_t op;
	uint32_t n;
	int32_t inject;
	int32_t status;
	struct wire_run runs[WIRE_RUNS];
};

struct wire_fault {
	_Alignas(64) _Atomic uint32_t state;
	uint32_t access;
	uint32_t worker;
	uint64_t addr;
	uint64_t launch;
	uint64_t index;
};

struct wire_launch {
	_Alignas(64) _Atomic uint64_t done; /* id of the launch that ended */
	uint64_t id;
	uint64_t grid;
	uint32_t kernel;
	uint32_t lane;
	uint32_t len;
	_Alignas(64) unsigned char args[WIRE_ARGS];
};

/* Why the context ends itself. */
struct wire_crash {
	_Atomic uint32_t valid;
	int32_t signal;
	int32_t code;
	uint32_t access; /* 0: unknown */
	uint64_t addr;
	uint64_t launch;
	uint64_t index;
};

struct wire_control {
	uint32_t magic;
	uint32_t workers;
	uint32_t latency_us;
	int32_t parent;
	uint64_t memory;
	uint64_t arena_base;
	uint64_t arena_len;
	/* runtime -> device: a driver serves faults */
	_Atomic uint32_t bound;

	/* runtime -> device: bit i is command i */
	_Alignas(64) _Atomic uint32_t posted;
	_Atomic uint32_t mmu_sleeps;

	/* device -> runtime: bit i is fault i */
	_Alignas(64) _Atomic uint64_t faults;
	_Atomic uint32_t fault_bell;
	_Atomic uint32_t fault_sleeps;

	/* runtime -> device: the id after the last launch */
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint32_t launch_bell;
	_Atomic uint32_t launch_sleeps;

	/* device -> runtime: some launch ended */
	_Alignas(64) _Atomic uint32_t done_bell;
	_Atomic uint32_t done_sleeps;

	struct wire_crash crash;
	struct wire_command command[WIRE_COMMANDS];
	struct wire_fault fault[WIRE_FAULTS];
	struct wire_launch launch[WIRE_LAUNCHES];
};

/* Over the socket; each request is answered by the same struct. */
enum wire_verb { WIRE_HELLO = 1, WIRE_LOAD, WIRE_FIND };

#define WIRE_TEXT 4608

struct wire_msg {
	uint32_t verb;
	uint32_t module;
	uint32_t kernel;
	int32_t status;
	char text[WIRE_TEXT];
};

static inline int wire_futex_wait(_Atomic uint32_t *word, uint32_t val,
				  const struct timespec *timeout)
{
	return (int)syscall(SYS_futex, word, FUTEX_WAIT, val, timeout, NULL, 0);
}

static inline void wire_futex_wake(_Atomic uint32_t *word, int n)
{
	syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);
}

static inline void wire_ring(_Atomic uint32_t *bell, _Atomic uint32_t *sleeps)
{
	atomic_fetch_add(bell, 1);
	if (atomic_load(sleeps) && atomic_exchange(sleeps, 0))
		wire_futex_wake(bell, INT32_MAX);
}

/* Sleep unless the bell has rung since @heard was read. */
static inline void wire_hear(_Atomic uint32_t *bell, _Atomic uint32_t *sleeps,
			     uint32_t heard)
{
	atomic_store(sleeps, 1);
	if (atomic_load(bell) == heard)
		wire_futex_wait(bell, heard, NULL);
}

static inline uint64_t wire_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline void wire_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/*
 * How long a waiter spins before it sleeps: the double after each success, the
 * half after each failure, so that a waiter which is always late to be served
 * costs its CPU next to nothing.
 */
#define WIRE_SPIN_MIN 1000u
#define WIRE_SPIN_MAX 50000u

struct wire_spin {
	_Atomic uint32_t ns;
};

static inline bool wire_spin(struct wire_spin *spin, bool (*ready)(void *),
			     void *arg)
{
	uint32_t ns = atomic_load_explicit(&spin->ns, memory_order_relaxed);
	uint64_t end = wire_now() + ns;
	bool ok;

	do {
		for (int i = 0; i < 32; i++) {
			ok = ready(arg);
			if (ok)
				goto out;
			wire_relax();
		}
	} while (wire_now() < end);
out:
	ns = ok ? 2 * ns : ns / 2;
	if (ns < WIRE_SPIN_MIN)
		ns = WIRE_SPIN_MIN;
	if (ns > WIRE_SPIN_MAX)
		ns = WIRE_SPIN_MAX;
	atomic_store_explicit(&spin->ns, ns, memory_order_relaxed);
	return ok;
}

#endif /* SGPU_WIRE_H */
