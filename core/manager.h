/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * manager.h - what a host calls in the core
 *
 * The functions of gmm/kpi.h but gm_as_current(), and gm_trace_start() and
 * gm_trace_read(), are the core's too, and are called by drivers and programs
 * directly. Unless said otherwise: the caller holds no lock, the call may
 * sleep, and it returns 0 or a negative errno with a text for gm_error().
 */
#ifndef GMM_CORE_MANAGER_H
#define GMM_CORE_MANAGER_H

#include "core/core.h"

/*
 * Make gm_machine ready, with host nodes 0 to @nr_host_nodes - 1, each of
 * which may hold @max_replicas pages that are only replicas. And take it
 * down: all devices are destroyed by then.
 */
int gm_machine_init(int nr_host_nodes, uint64_t max_replicas);
void gm_machine_exit(void);

/* as->host is the host's to set up before. Exit: nothing runs any more;
 * regions and pages are given back, contexts are detached. */
int gm_as_init(struct gm_as *as);
void gm_as_exit(struct gm_as *as);

/*
 * What gm_mmap(), gm_munmap(), gm_mprotect(), gm_mremap(), gmadvise() and
 * gmemcpy() do, once their arguments are known to be well formed:
 * @len > 0 and nothing wraps around; gm_as_map(): whole pages, @hint aligned,
 * @range_flags of enum gm_range_flags; unmap, protect: multiples of 4 KiB.
 */
int gm_as_map(struct gm_as *as, uint64_t hint, uint64_t len, unsigned int prot,
	      unsigned int range_flags, uint64_t *va);
int gm_as_unmap(struct gm_as *as, uint64_t va, uint64_t len);
int gm_as_protect(struct gm_as *as, uint64_t va, uint64_t len,
		  unsigned int prot);
int gm_as_remap(struct gm_as *as, uint64_t va, uint64_t old_len,
		uint64_t new_len, int may_move, uint64_t *new_va);
int gm_as_advise(struct gm_as *as, int node, uint64_t va, uint64_t len,
		 int advice);
int gm_as_copy(struct gm_as *as, int node, uint64_t dst, uint64_t src,
	       uint64_t len);

/*
 * What gm_move_pages() and gm_exchange_pages() do with pages of unified memory.
 * status[i] is the node that vas[i]'s data is on afterwards, or a negative
 * errno. @nodes may be NULL: only report. All nodes are known to exist, and
 * flags are of enum gm_move_flags. Return: how many pages, or pairs, failed.
 */
uint64_t gm_as_move(struct gm_as *as, uint64_t n, const uint64_t *vas,
		    const int *nodes, int *status, unsigned int flags);
uint64_t gm_as_exchange(struct gm_as *as, uint64_t n, const uint64_t *from,
			const uint64_t *to, int *status, unsigned int flags);
/* The node that a page's data is on, or what gm_as_move() would say. */
int gm_as_node_of(struct gm_as *as, uint64_t va);
/* 0 if pages can go there; otherwise -ENODEV and a text. */
int gm_machine_has_node(int nid);

/* GM_WILLNEED for all regions. */
int gm_as_prefetch_all(struct gm_as *as, int node);

/* Non-zero if [va, va + len) overlaps a region. Takes no lock. */
int gm_as_overlaps(struct gm_as *as, uint64_t va, uint64_t len);

/*
 * For gm_host_range_map() only, which is called with as->lock held: non-zero
 * if a region, or what is left of one, is there. The program may have unmapped
 * it already; while the core has not been told, nothing new may be put there.
 */
int gm_as_taken(struct gm_as *as, uint64_t va, uint64_t len);

/*
 * A thread of the program faults at @va, any alignment, in a tracked range. The
 * events that were read before the fault have been told.
 * On success it has been woken, or will not find the page missing any more.
 * Return: 0; -EFAULT if this is no region (any more); -EACCES; -EHWPOISON if
 * the data is lost, and the page table says so by now; -ENOMEM, or what an
 * operator returned, after the bounded retries.
 */
int gm_cpu_fault(struct gm_as *as, uint64_t va, enum gm_access access);

/*
 * The program has, by itself, unmapped or is about to discard or has moved
 * memory of tracked ranges. Multiples of 4 KiB. What was moved is not unmapped
 * as well: somebody may have made new memory at @from by then.
 */
void gm_as_unmapped(struct gm_as *as, uint64_t va, uint64_t len);
void gm_as_remapped(struct gm_as *as, uint64_t from, uint64_t to, uint64_t len);
void gm_as_discarded(struct gm_as *as, uint64_t va, uint64_t len);

int gm_as_where(struct gm_as *as, uint64_t va, struct gm_where *out);
int gm_as_region_stats(struct gm_as *as, uint64_t va,
		       struct gm_region_stats *out);
int gm_machine_nodes(struct gm_node_info *out, size_t n);
int gm_machine_stats(int nid, struct gm_stats *out); /* GM_NODE_NONE: all */

#endif /* GMM_CORE_MANAGER_H */
