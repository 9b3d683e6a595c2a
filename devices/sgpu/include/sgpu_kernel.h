/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sgpu_kernel.h - device code of the software GPU
 *
 * A kernel is a C function in a shared object (-shared -fPIC). It runs in the
 * GPU's own process; memory that is not mapped there faults and is waited for.
 * It may use libc, but a system call on memory that is not mapped yet fails
 * with EFAULT, as a GPU has no system calls at all.
 *
 *	SGPU_KERNEL(scale)
 *	{
 *		const struct args *a = args;
 *		a->x[thread->index] *= a->factor;
 *	}
 */
#ifndef SGPU_KERNEL_H
#define SGPU_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct sgpu_thread - which part of a launch this call is
 * @index: below @grid
 * @grid: as launched
 * @worker: the worker that runs it, below @workers
 * @workers: how many the GPU has
 */
struct sgpu_thread {
	uint64_t index;
	uint64_t grid;
	uint32_t worker;
	uint32_t workers;
};

#define SGPU_KERNEL(name)                                               \
	__attribute__((visibility("default"))) void sgpu_kernel_##name( \
		const struct sgpu_thread *thread, const void *args);    \
	void sgpu_kernel_##name(__attribute__((unused))                 \
				const struct sgpu_thread *thread,       \
				__attribute__((unused)) const void *args)

#endif /* SGPU_KERNEL_H */
