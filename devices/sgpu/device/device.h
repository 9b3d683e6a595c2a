/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * device.h - inside the device program
 *
 *	main.c		start, the socket, the end
 *	mmu.c		the page table: commands
 *	fault.c		SIGSEGV as the fault unit; crashes
 *	worker.c	which part of which launch runs next
 */
#ifndef SGPU_DEVICE_H
#define SGPU_DEVICE_H

#include "../wire.h"
#include "sgpu_kernel.h"

typedef void sgpu_kernel_fn(const struct sgpu_thread *thread, const void *args);

/* What a thread runs; read by its own signal handler. */
struct running {
	uint64_t launch;
	uint64_t index;
	uint32_t worker;
};

extern struct wire_control *control;
extern __thread struct running running
	__attribute__((tls_model("initial-exec")));

/* The launch begun last: what a thread that a kernel has started works for. */
extern _Atomic uint64_t last_launch;

static inline bool in_arena(uint64_t addr)
{
	return addr - control->arena_base < control->arena_len;
}

int mmu_init(void);
int mmu_start(void);
/* Serve what is posted. Async-signal-safe. Returns whether there was any. */
bool mmu_serve(void);

int fault_init(void);

int workers_start(void);
void kernel_set(uint32_t id, sgpu_kernel_fn *fn);

#endif /* SGPU_DEVICE_H */
