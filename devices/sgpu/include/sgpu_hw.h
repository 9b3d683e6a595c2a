/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sgpu_hw.h - the hardware of the software GPU, as its driver sees it
 *
 * A GPU is a separate process: the *context*. It holds the page table (its
 * own mappings, at the program's addresses) and runs the kernels. The GPU's
 * memory belongs to the runtime, so that it outlives contexts; a device
 * address is an offset in it. The grain of everything is 2 MiB.
 *
 * A driver's life:
 *
 *	sgpu_hw_bind()
 *	threads: sgpu_hw_fault_wait(), serve, sgpu_hw_fault_done()
 *	commands and copies from any thread
 *	sgpu_hw_fault_stop(), join the threads, sgpu_hw_unbind()
 *
 * Without a driver every access to the arena is a wild access.
 *
 * When a context dies (a crash, a failed fault, a kill) its page table is
 * empty for good. One sgpu_hw_fault_wait() then returns -ECONNRESET. Until
 * sgpu_hw_restart(), unmap and protect succeed, for there is nothing left to
 * revoke, and map fails with -EAGAIN: the driver can bring its manager's view
 * (all unmapped) in line without losing a mapping made in between.
 *
 * A command past its deadline, or the loss of the memory, ends the GPU: from
 * then on everything returns -ENODEV.
 *
 * All calls may be made from several threads at once. What the context says
 * (indices, addresses, lengths, ids) is checked before it is used. In a child
 * of fork() all calls return -ENODEV.
 */
#ifndef SGPU_HW_H
#define SGPU_HW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sgpu;

#define SGPU_HW_PAGE ((uint64_t)2 << 20)

/* Runs that one command carries at most. */
#define SGPU_HW_RUNS 128

#define SGPU_HW_READ 1u
#define SGPU_HW_WRITE 2u

/**
 * struct sgpu_hw_info - what the GPU is
 * @window: its memory, mapped in this process at a multiple of 2 MiB
 * @memory: bytes of it
 * @arena_base: first address that the GPU can map
 * @arena_len: bytes that follow
 * @workers: how many threads run kernels
 * @pid: the context's process; changes at sgpu_hw_restart()
 */
struct sgpu_hw_info {
	void *window;
	uint64_t memory;
	uint64_t arena_base;
	uint64_t arena_len;
	uint32_t workers;
	int pid;
};

/**
 * struct sgpu_hw_run - neighbouring pages with neighbouring frames
 * @va: in the arena, a multiple of SGPU_HW_PAGE
 * @daddr: a multiple of SGPU_HW_PAGE (unmap and protect do not look at it)
 * @len: a multiple of SGPU_HW_PAGE, not 0
 * @prot: SGPU_HW_READ, or both (unmap does not look at it)
 */
struct sgpu_hw_run {
	uint64_t va;
	uint64_t daddr;
	uint64_t len;
	uint32_t prot;
};

/**
 * struct sgpu_hw_fault - a page that the GPU waits for
 * @addr: the address of one of the accesses
 * @access: SGPU_HW_READ or SGPU_HW_WRITE; a write if any waiter writes
 * @worker: which worker, ~0 if it is a thread that a kernel has started
 * @launch: which launch
 * @index: of its grid
 * @waiters: the threads that wait for this page; for sgpu_hw_fault_done()
 * @epoch: the context's number; for sgpu_hw_fault_done()
 */
struct sgpu_hw_fault {
	uint64_t addr;
	uint32_t access;
	uint32_t worker;
	uint64_t launch;
	uint64_t index;
	uint64_t waiters;
	uint64_t epoch;
};

enum sgpu_hw_dir { SGPU_HW_TO_DEV, SGPU_HW_FROM_DEV, SGPU_HW_IN_DEV };

/* Return: 0; -EBUSY if a driver has it or launches run; -ENODEV. */
int sgpu_hw_bind(struct sgpu *gpu, struct sgpu_hw_info *info);
/* Inverse. The fault threads must be gone; the page table is emptied. */
void sgpu_hw_unbind(struct sgpu *gpu);
/**
 * sgpu_hw_on_close() - be asked to let go when the program closes the GPU
 * @gpu: bound; unbinding takes this back
 * @detach: called by sgpu_close() with nothing running. It unbinds the GPU and
 *	returns 0, or the GPU stays open.
 */
void sgpu_hw_on_close(struct sgpu *gpu, int (*detach)(struct sgpu *gpu));
/* Like bind's @info, at any time. */
int sgpu_hw_info(struct sgpu *gpu, struct sgpu_hw_info *info);

/**
 * sgpu_hw_map() - enter runs into the page table, replacing what is there
 * @runs: they do not overlap
 * @n: at most SGPU_HW_RUNS
 *
 * As sgpu_hw_unmap() and sgpu_hw_protect(): complete when it returns, old
 * translations flushed; all runs or none. Unmapping what is not mapped
 * succeeds; protecting skips it.
 *
 * Return: 0; -EINVAL; -EAGAIN (map alone) while a dead context has not been
 * restarted; -ENOMEM if the page table is full; -ETIMEDOUT at the deadline;
 * -ENODEV ever after; an injected error.
 */
int sgpu_hw_map(struct sgpu *gpu, const struct sgpu_hw_run *runs,
		unsigned int n);
int sgpu_hw_unmap(struct sgpu *gpu, const struct sgpu_hw_run *runs,
		  unsigned int n);
int sgpu_hw_protect(struct sgpu *gpu, const struct sgpu_hw_run *runs,
		    unsigned int n);

/**
 * sgpu_hw_copy() - copy over the link, by the calling thread
 * @dir: which sides are device addresses; the other is a pointer
 *
 * Return: 0; -EINVAL if a device address is outside; -ENODEV; an injected
 * error, before anything is written.
 */
int sgpu_hw_copy(struct sgpu *gpu, enum sgpu_hw_dir dir, uint64_t dst,
		 uint64_t src, uint64_t len);
/* Fill with zeros; as sgpu_hw_copy(), at the memory's own speed. */
int sgpu_hw_zero(struct sgpu *gpu, uint64_t daddr, uint64_t len);

/**
 * sgpu_hw_fault_wait() - wait for faults
 * @out: distinct pages
 * @n: room in @out
 *
 * Return: how many (at least 1); -ECONNRESET once per death of a context;
 * -ENODEV, to every caller, if the GPU is gone for good; -ESHUTDOWN after
 * sgpu_hw_fault_stop().
 */
int sgpu_hw_fault_wait(struct sgpu *gpu, struct sgpu_hw_fault *out,
		       unsigned int n);

/**
 * sgpu_hw_fault_done() - answer a fault
 * @status: 0: replay. A negative errno ends the context with that sticky
 *	error, naming kernel, index and address.
 *
 * A fault of a context that has died meanwhile is ignored.
 */
void sgpu_hw_fault_done(struct sgpu *gpu, const struct sgpu_hw_fault *fault,
			int status);

/* Make all waits of this binding return -ESHUTDOWN, now and later. */
void sgpu_hw_fault_stop(struct sgpu *gpu);

/**
 * sgpu_hw_restart() - replace a dead context by a new one, page table empty
 *
 * Return: 0, also if it is not dead; -ENODEV if none can be started: the GPU
 * is then gone for good.
 */
int sgpu_hw_restart(struct sgpu *gpu);

/**
 * sgpu_hw_inject() - make hardware fail, for tests
 * @spec: "what:N" fails the Nth from now, "what:N+" that and all after it;
 *	several with commas between; "" or NULL takes all back. What can be
 *
 *	map, unmap, protect, copy, zero	-EIO, nothing changed
 *	die	the context is killed as the Nth command comes
 *	hang	the Nth command is never answered: -ETIMEDOUT at the deadline
 *	lost	the memory is lost as the Nth command or copy comes: -ENODEV
 *
 * Return: 0; -EINVAL, with nothing changed.
 */
int sgpu_hw_inject(struct sgpu *gpu, const char *spec);

/* How long a command may take; 5000 at the start. */
void sgpu_hw_deadline(struct sgpu *gpu, uint32_t ms);

#ifdef __cplusplus
}
#endif

#endif /* SGPU_HW_H */
