/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * kpi.h - the interface between the manager and the driver of an XPU
 *
 * A driver brings five operators (struct gm_dev_ops) and calls the functions
 * below; everything else, from page lists to coherence, is the manager's.
 * The order of a driver's life, each step with its inverse:
 *
 *	gm_dev_create()			gm_dev_destroy()
 *	gm_dev_register_physmem()	gm_dev_unregister_physmem()
 *	gm_as_attach()			gm_as_detach()
 *	gm_dev_fault(), gm_as_reset(), gm_dev_lost()
 *
 * The program's signal handlers may touch unified memory, so they must not run
 * on a thread that is in here: a driver calls with all signals blocked, and with
 * cancellation disabled.
 *
 * GMM paper, section 4.1, table 3.
 */
#ifndef GMM_KPI_H
#define GMM_KPI_H

#include "gmm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gm_as;
struct gm_dev;

#define GM_DEV_OPS_VERSION 1

/**
 * enum gm_dev_cap - what an XPU can do
 * @GM_CAP_REPLAY: a faulting access waits and is replayed. Without it the
 *	working set must be wired before a launch.
 * @GM_CAP_WRITE_FAULT: a store to a read-only mapping faults, and the fault
 *	says that it was a store. Without it every page is taken exclusively.
 * @GM_CAP_COPY_ENGINES: memcpy() and zero() run well from several threads
 */
enum gm_dev_cap {
	GM_CAP_REPLAY = 1 << 0,
	GM_CAP_WRITE_FAULT = 1 << 1,
	GM_CAP_COPY_ENGINES = 1 << 2,
};

/**
 * enum gm_copy_dir - which side of a copy is memory of the XPU
 * @GM_COPY_TO_DEV: from host memory into the XPU's
 * @GM_COPY_FROM_DEV: from the XPU's memory into the host's
 * @GM_COPY_IN_DEV: both sides in the XPU's memory
 */
enum gm_copy_dir {
	GM_COPY_TO_DEV,
	GM_COPY_FROM_DEV,
	GM_COPY_IN_DEV,
};

/**
 * struct gm_copy - one copy, as the memcpy operator gets it
 * @dir: which of the two sides are device addresses
 * @dst: destination: a device address, or a host pointer as an integer
 * @src: source: a device address, or a host pointer as an integer
 * @len: bytes; any number up to one page, at any alignment
 *
 * The two sides never overlap, and neither crosses a page of the manager.
 */
struct gm_copy {
	enum gm_copy_dir dir;
	uint64_t dst;
	uint64_t src;
	uint64_t len;
};

/**
 * struct gm_pmap_run - neighbouring pages with neighbouring frames
 * @va: first virtual address, a multiple of GM_PAGE_SIZE
 * @daddr: device address of the first frame (not used when clearing)
 * @len: bytes, a multiple of GM_PAGE_SIZE
 * @prot: rights, enum gm_prot (not used when clearing)
 */
struct gm_pmap_run {
	uint64_t va;
	uint64_t daddr;
	uint64_t len;
	unsigned int prot;
};

/**
 * struct gm_dev_ops - the operators of a driver
 * @size: sizeof(struct gm_dev_ops) as the driver was compiled
 * @version: GM_DEV_OPS_VERSION as the driver was compiled
 * @va_examine: may [va, va + len) hold unified memory on this XPU? 0 if so,
 *	-EADDRINUSE or -EADDRNOTAVAIL if not (another range is then tried)
 * @va_release: undo a va_examine() that returned 0. Optional.
 * @pmap_enter: install the run in the XPU's page table, replacing what was
 *	mapped at those addresses. It may not be lazy: when it returns 0 the
 *	next access sees the new mapping.
 * @pmap_clear: revoke every mapping of [va, va + len), TLBs included. When it
 *	returns 0 no access through an old mapping is under way or can start.
 *	Clearing what is not mapped succeeds.
 * @memcpy: copy, as struct gm_copy says; complete when it returns
 * @zero: fill with zeros; complete when it returns
 * @pmap_protect: change the rights of mapped pages, TLBs included. Optional;
 *	without it the manager clears and enters again.
 * @pmap_enter_runs: pmap_enter() for @n runs; all or none. Optional.
 * @pmap_clear_runs: pmap_clear() for @n runs; all or none. Optional.
 *
 * The first argument of each operator is the pmap given to gm_as_attach() or
 * the data given to gm_dev_create(), as its name says. Operators:
 *
 * * are synchronous, and called from several threads at once;
 * * change nothing when they fail;
 * * return 0 or a negative errno. -ENODEV means that the XPU is gone for good
 *   and makes the manager treat the device as lost; -ETIMEDOUT the same.
 *   -EAGAIN means that it will do in a moment, when a context that has died
 *   has been replaced: hints wait for that, and a fault gets it as its result.
 *   Every operator must return within a bounded time.
 * * may not call back into the manager, and may not touch unified memory.
 *
 * Context: called with the lock of one or more directory entries held.
 */
struct gm_dev_ops {
	uint32_t size;
	uint32_t version;
	int (*va_examine)(void *pmap, uint64_t va, uint64_t len);
	void (*va_release)(void *pmap, uint64_t va, uint64_t len);
	int (*pmap_enter)(void *pmap, const struct gm_pmap_run *run);
	int (*pmap_clear)(void *pmap, uint64_t va, uint64_t len);
	int (*memcpy)(void *data, const struct gm_copy *copy);
	int (*zero)(void *data, uint64_t daddr, uint64_t len);
	int (*pmap_protect)(void *pmap, uint64_t va, uint64_t len,
			    unsigned int prot);
	int (*pmap_enter_runs)(void *pmap, const struct gm_pmap_run *runs,
			       unsigned int n);
	int (*pmap_clear_runs)(void *pmap, const struct gm_pmap_run *runs,
			       unsigned int n);
};

/**
 * gm_dev_create() - make a device known to the manager
 * @ops: the operators; must live as long as the device
 * @data: handed to the operators that work on the device's memory
 * @name: a short name for messages and listings; copied, at most 31 bytes
 * @caps: enum gm_dev_cap, or'ed
 * @out: the device
 *
 * The device gets a node of its own, without memory yet. Nothing of @ops is
 * called before gm_as_attach().
 *
 * Context: Any thread of the driver. Takes the machine lock.
 * Return: 0; -EINVAL if @ops or @out is NULL, or @ops too short, of another version or lacks a
 * required operator (gm_error() names it), or @name is empty or too long;
 * -ENOSPC if there are already as many devices as the manager can hold;
 * -ENOMEM.
 */
int gm_dev_create(const struct gm_dev_ops *ops, void *data, const char *name,
		  unsigned int caps, struct gm_dev **out);

/**
 * gm_dev_destroy() - forget a device
 * @dev: the device
 *
 * Context: Any thread of the driver that is not inside an operator. Takes the
 * machine lock and the device's.
 * Return: 0; -EBUSY while it is attached to an address space or has memory
 * registered.
 */
int gm_dev_destroy(struct gm_dev *dev);

/**
 * gm_dev_node() - the id of a device's memory
 * @dev: the device
 *
 * Return: The node id; ids of host memory are Linux's, those of XPU memories
 * follow.
 */
int gm_dev_node(const struct gm_dev *dev);

/**
 * gm_dev_register_physmem() - hand page frames to the manager
 * @dev: the device
 * @begin: device address of the first frame; opaque but for its alignment
 * @end: device address after the last frame
 *
 * May be called again, also while the device is in use, with ranges that do
 * not overlap earlier ones.
 *
 * Context: Any thread. Takes the device's lock and the node's.
 * Return: 0; -EINVAL if the range is empty, not aligned to GM_PAGE_SIZE or
 * wraps around; -EEXIST if it overlaps a registered range; -ENOMEM.
 */
int gm_dev_register_physmem(struct gm_dev *dev, uint64_t begin, uint64_t end);

/**
 * gm_dev_unregister_physmem() - take page frames back
 * @dev: the device
 * @begin: as it was registered
 * @end: as it was registered
 *
 * What lives in the range is evicted first. On failure the whole range is in
 * use again, with what was already evicted left in host memory.
 *
 * Context: Any thread that is not inside an operator. Sleeps while it evicts.
 * Return: 0; -ENOENT if exactly this range is not registered; -EBUSY if a
 * page in it is wired, or a context that has not obeyed may still use one,
 * until its gm_as_reset() or gm_as_detach(); -ENOMEM if host memory cannot take
 * what lives there; else what an operator returned.
 */
int gm_dev_unregister_physmem(struct gm_dev *dev, uint64_t begin, uint64_t end);

/**
 * gm_as_current() - the address space of this process
 *
 * Makes the library ready if that has not happened yet.
 *
 * Return: The address space, or NULL; gm_error() then says what is missing
 * on this machine and how to get it.
 */
struct gm_as *gm_as_current(void);

/**
 * gm_as_attach() - let an XPU context take part in an address space
 * @as: the address space
 * @dev: the device
 * @pmap: the driver's page table for this context; handed to the operators
 *
 * Every region that exists is examined; afterwards faults may come.
 *
 * Context: Any thread that is not inside an operator.
 * Return: 0; -EEXIST if @dev is already attached to @as; -ENOSPC if GM_MAX_CTX
 * contexts are; -EADDRINUSE if the XPU refuses a region's addresses
 * (gm_error() names the range); -ENODEV if the device is lost; -ENOMEM; what
 * the host says if it cannot watch the regions.
 */
int gm_as_attach(struct gm_as *as, struct gm_dev *dev, void *pmap);

/**
 * gm_as_detach() - end a context's part in an address space
 * @as: the address space
 * @dev: the device
 *
 * Its pages go to host memory, its mappings are cleared. The driver must have
 * stopped the context: a fault that comes later gets -ENODEV.
 *
 * Context: Any thread that is not inside an operator. Sleeps while it evicts.
 * Return: 0; -ENOENT if it is not attached; -ENOMEM if host memory cannot
 * take the pages: it is then still attached. A failing operator does not keep
 * a context attached: what cannot be read is treated as by gm_dev_lost().
 */
int gm_as_detach(struct gm_as *as, struct gm_dev *dev);

/**
 * gm_dev_fault() - serve a fault of an XPU
 * @as: the address space of the faulting context
 * @va: the address, any alignment
 * @dev: the device
 * @access: what the context tried
 *
 * When it returns 0 the access can be replayed. It may fault again at once if
 * another processor took the page in between.
 *
 * Context: Any thread that is not inside an operator, several at once. Sleeps.
 * Return: 0; -EINVAL if @access is neither; -EFAULT if @va is not unified
 * memory; -EACCES if its protection forbids @access; -EBUSY if the kernel or a GM_PIN holds the page where it
 * is; -ENOMEM if no memory can be freed for it; -EHWPOISON if the page's data
 * was lost with an XPU; -ENODEV if @dev is lost or not attached; else what an
 * operator returned. gm_error() explains.
 */
int gm_dev_fault(struct gm_as *as, uint64_t va, struct gm_dev *dev,
		 enum gm_access access);

/**
 * gm_dev_fault_many() - serve several faults of an XPU together
 * @as: the address space of the faulting context
 * @vas: the addresses, any alignment, any order, doubles allowed
 * @n: how many
 * @dev: the device
 * @access: what the context tried, one for each address
 * @status: for each address, what gm_dev_fault() would have returned
 *
 * Neighbours are served with one unmap, one copy phase and one map.
 *
 * Context: As gm_dev_fault().
 * Return: The number of addresses that were served.
 */
int gm_dev_fault_many(struct gm_as *as, const uint64_t *vas, unsigned int n,
		      struct gm_dev *dev, const enum gm_access *access,
		      int *status);

/**
 * gm_as_reset() - the context's page table is empty again
 * @as: the address space
 * @dev: the device
 *
 * For a driver whose context died and was replaced while the device's memory
 * stayed: no page is lost, each is mapped again at its next fault. The driver
 * must have stopped the old context.
 *
 * Context: Any thread that is not inside an operator.
 * Return: 0; -ENOENT if @dev is not attached to @as.
 */
int gm_as_reset(struct gm_as *as, struct gm_dev *dev);

/**
 * gm_dev_lost() - the device's memory is gone
 * @dev: the device
 *
 * Pages whose only valid copy was there become poison: a touch of them gets
 * SIGBUS on the CPU and -EHWPOISON on an XPU. Every other page lives on. The
 * device can then only be detached and destroyed.
 *
 * Context: Any thread that is not inside an operator.
 */
void gm_dev_lost(struct gm_dev *dev);

#ifdef __cplusplus
}
#endif

#endif /* GMM_KPI_H */
