/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * gmm.h - unified memory: one pointer, valid on the CPU and on every XPU
 *
 * The calls shaped like system calls (gm_mmap() to gmemcpy()) return -1 or
 * MAP_FAILED and set errno; all others return 0 or a negative errno. After
 * any failure gm_error() says in one sentence what was wrong.
 *
 * The library makes itself ready at the first call. What it needs from the
 * machine, and what it says when something is missing, is in README.md.
 */
#ifndef GMM_GMM_H
#define GMM_GMM_H

#include "gmm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flag of gm_mmap(), and of mmap() under the preload library. */
#define MAP_XPU_VISIBLE 0x8000000

/**
 * enum gm_advice - what gmadvise() can be told
 * @GM_WILLNEED: move the pages to the node and make them its most recently
 *	used. The range is rounded outward to whole pages.
 * @GM_DONTNEED: exactly this range reads as zeros afterwards. Whole pages are
 *	freed on every node, parts are zeroed where they live. The node is not
 *	looked at.
 * @GM_READ_MOSTLY: writes are rare: an XPU's read keeps the other copies even
 *	of a page that was written before. The node is not looked at.
 * @GM_NOT_READ_MOSTLY: takes GM_READ_MOSTLY back
 * @GM_PREFERRED: when the node is full, evict other pages before these.
 *	GM_NODE_NONE takes it back.
 * @GM_COLD: evict these pages of the node first
 * @GM_PIN: move the pages to the node and keep them. On a host node they then
 *	never leave it: an XPU's access fails with -EBUSY (what a page needs
 *	that the kernel holds by vmsplice() or MSG_ZEROCOPY). On an XPU's node
 *	they are not evicted; another processor's access still takes them, for
 *	coherence comes first, and they are pinned again when they are back.
 * @GM_UNPIN: takes GM_PIN back. The node is not looked at.
 *
 * The first two have the values of MADV_WILLNEED and MADV_DONTNEED.
 */
enum gm_advice {
	GM_WILLNEED = 3,
	GM_DONTNEED = 4,
	GM_READ_MOSTLY = 0x1000,
	GM_NOT_READ_MOSTLY,
	GM_PREFERRED,
	GM_COLD,
	GM_PIN,
	GM_UNPIN,
};

/**
 * gm_mmap() - make unified memory
 * @addr: NULL, or where it is wanted: a hint, or with MAP_FIXED the place
 * @len: bytes; rounded up to 2 MiB
 * @prot: PROT_NONE, PROT_READ or PROT_READ | PROT_WRITE
 * @flags: MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE, and any of MAP_FIXED,
 *	MAP_FIXED_NOREPLACE, MAP_NORESERVE
 * @fd: -1
 * @offset: 0
 *
 * Works with no XPU attached; one attached later sees the memory too. No
 * memory is used until a processor touches it. A child of fork() does not
 * inherit it.
 *
 * Context: Any thread, but not a signal handler. Waits for the teardown of
 * earlier memory at the same place.
 * Return: The address, a multiple of 2 MiB; or MAP_FAILED and errno: EINVAL
 * for a length of 0 or flags, rights, fd, offset or (MAP_FIXED) an address
 * that cannot be; EEXIST with MAP_FIXED_NOREPLACE for a place in use; ENOMEM
 * if no place was found that every XPU accepts, in ten tries; EPERM or ENOSYS
 * if the machine lacks what the library needs.
 *
 * GMM paper, sections 4.1 and 4.2: mmap() with MAP_XPU_VISIBLE.
 */
void *gm_mmap(void *addr, size_t len, int prot, int flags, int fd,
	      int64_t offset);

/**
 * gm_munmap() - end unified memory
 * @addr: a multiple of 4 KiB
 * @len: bytes; rounded up to 4 KiB
 *
 * A range that cuts a 2 MiB page leaves the rest of that page on the CPU for
 * good (gm_where() calls it fragmented). Addresses in the range that are not
 * unified memory are left alone. When it returns, every XPU's mapping of the
 * range is gone.
 *
 * Context: Any thread, but not a signal handler.
 * Return: 0; or -1 and errno: EINVAL if @addr is not a multiple of 4 KiB, @len
 * is 0, the range wraps around or holds no unified memory.
 */
int gm_munmap(void *addr, size_t len);

/**
 * gm_mprotect() - change the rights of unified memory, on every processor
 * @addr: a multiple of 4 KiB
 * @len: bytes; rounded up to 4 KiB
 * @prot: PROT_NONE, PROT_READ or PROT_READ | PROT_WRITE
 *
 * Context: Any thread, but not a signal handler.
 * Return: 0; or -1 and errno: EINVAL for an alignment, length or rights that
 * cannot be; ENOMEM if part of the range is not unified memory (nothing is
 * changed).
 */
int gm_mprotect(void *addr, size_t len, int prot);

/**
 * gm_mremap() - resize or move unified memory
 * @addr: start of unified memory, a multiple of 2 MiB
 * @old_len: bytes there now
 * @new_len: bytes wanted; rounded up to 2 MiB
 * @flags: 0 or MREMAP_MAYMOVE
 *
 * Pages keep their places on all nodes; only their addresses change.
 *
 * Context: Any thread, but not a signal handler.
 * Return: The new address; or MAP_FAILED and errno: EINVAL for an alignment,
 * length or flag that cannot be; EFAULT if the old range is not unified
 * memory, or has to move and was made by several calls; ENOMEM if it cannot
 * grow in place and may not move, or no place was found.
 */
void *gm_mremap(void *addr, size_t old_len, size_t new_len, int flags);

/**
 * gmadvise() - say how a range will be used
 * @node: the node it is about, where the advice looks at one
 * @addr: any alignment
 * @len: bytes; 0 does nothing and succeeds
 * @advice: enum gm_advice
 *
 * Best effort: a page that cannot follow stays as it is, the others follow,
 * and the first reason is returned. No data is ever lost by a hint.
 *
 * Context: Any thread, but not a signal handler. GM_WILLNEED and GM_PIN return
 * when the pages have moved; up to four threads move them.
 * Return: 0; or -1 and errno: EINVAL for an unknown advice, an unknown node or
 * a range that wraps around; ENOMEM if part of the range is not unified memory
 * (the rest is done) or does not fit on the node; EBUSY if a page is held
 * where it is; EIO, ENODEV or what else the XPU's driver said.
 *
 * GMM paper, section 4.6: gmadvise().
 */
int gmadvise(int node, void *addr, size_t len, int advice);

/**
 * gmemcpy() - copy, with the destination ending on a node
 * @node: where the destination's pages are to live; GM_NODE_NONE leaves them
 *	where they are. If it is a host node that is full, another will do
 * @dst: unified or plain memory, any alignment
 * @src: unified or plain memory, any alignment
 * @len: bytes; 0 does nothing and succeeds
 *
 * A destination page that is wholly overwritten is not migrated first. The
 * source is not moved. If the ranges overlap it behaves as memmove(). A plain
 * destination stays where it is, whatever @node says.
 *
 * Context: Any thread, but not a signal handler.
 * Return: 0; or -1 and errno, and an unspecified part of the copy done: EINVAL
 * for an unknown node or a range that wraps around; EFAULT if a plain side is
 * not readable or writable memory; EACCES if the protection of a unified side
 * forbids it; ENOMEM, EBUSY, EHWPOISON, EIO and ENODEV as gm_dev_fault().
 *
 * GMM paper, section 4.1: gmemcpy().
 */
int gmemcpy(int node, void *dst, const void *src, size_t len);

/**
 * enum gm_move_flags - how gm_move_pages() and gm_exchange_pages() go about it
 * @GM_MOVE_PARALLEL: a huge page is cut in parts, which several threads copy,
 *	the caller among them
 * @GM_MOVE_CONCURRENT: pages go in batches: all are unmapped, then all are
 *	copied, then all are mapped
 *
 * Two bits of their own, so that they can be added to what move_pages() takes.
 */
enum gm_move_flags {
	GM_MOVE_PARALLEL = 1 << 6,
	GM_MOVE_CONCURRENT = 1 << 7,
};

/**
 * gm_move_pages() - move pages to the nodes that are named for each
 * @count: how many pages
 * @pages: an address in each, unified or plain memory
 * @nodes: where each is to go; NULL: nothing moves, @status says where they are
 * @status: for each, the node that it is on now, or a negative errno: ENOENT
 *	if there is no page, EBUSY if the kernel or a GM_PIN holds it, EACCES
 *	if its protection or somebody else's mapping of it forbids, ENOMEM if
 *	the node is full, EHWPOISON if it was lost, EFAULT if there is no
 *	memory or a unified page was cut, ENODEV if an XPU cannot have plain
 *	memory or is not attached, EIO or what else the XPU's driver said
 * @flags: 0, or enum gm_move_flags
 *
 * Shaped as move_pages(2), for the calling process. Unified memory goes between
 * any two nodes, in its pages of 2 MiB, and is on that node alone afterwards,
 * unless GM_READ_MOSTLY said that copies may stay. Plain memory goes between host nodes, in the
 * kernel's pages; huge pages of private anonymous memory are moved by the
 * library and stay huge, all others are left to move_pages(2) itself. A store
 * that is made meanwhile is not lost: it waits. So do first touches of the same
 * mapping, and fork(), for as long as a batch takes.
 *
 * Where the library cannot be made ready, for want of a right, say, plain memory
 * is moved by move_pages(2) alone, and one line on the standard error says so.
 *
 * Context: Any thread, but not a signal handler.
 * Return: 0; how many pages have a negative status; or -1 and errno, nothing
 * done: EINVAL for an unknown flag, ENODEV for an unknown node, EFAULT if
 * @pages, @nodes or @status is not memory with the right needed.
 *
 * Nimble (ASPLOS 2019): move_pages() with MPOL_MF_MOVE_MT and _CONCUR.
 */
int gm_move_pages(unsigned long count, void **pages, const int *nodes,
		  int *status, int flags);

/**
 * gm_exchange_pages() - let pages of two nodes change places
 * @count: how many pairs
 * @from: an address in the one page of each pair
 * @to: an address in the other
 * @status: for each, the node that the page of @from is on now, or a negative
 *	errno as gm_move_pages() says; EINVAL if one page is unified and the
 *	other is not, or they are plain and of two sizes; EACCES if one is plain,
 *	and not private anonymous memory that may be written
 * @flags: 0, or enum gm_move_flags
 *
 * The contents change places in the memory that they have, and no third page
 * takes part: it works where both nodes are full. Addresses keep their
 * contents. Two pages of the same node stay as they are, and succeed. A pair
 * that somebody holds is tried three times. If an XPU's operator fails in the
 * middle, both pages end on the host; if its memory is lost in the middle, both
 * may be.
 *
 * Context: Any thread, but not a signal handler.
 * Return: 0; how many pairs have a negative status; or -1 and errno, nothing
 * done: EINVAL for an unknown flag, EFAULT if @from, @to or @status is not
 * memory with the right needed.
 *
 * Nimble (ASPLOS 2019): exchange_pages().
 */
int gm_exchange_pages(unsigned long count, void **from, void **to, int *status,
		      int flags);

/**
 * enum gm_page_state - what the directory knows of a page
 * @GM_STATE_UNTRACKED: the CPU owns it and nobody has looked
 * @GM_STATE_EMPTY: no page anywhere; the first touch finds zeros
 * @GM_STATE_MODIFIED: one valid copy, on one node
 * @GM_STATE_SHARED: several valid copies
 * @GM_STATE_FRAGMENTED: cut by a 4 KiB-grained call; on the CPU for good
 * @GM_STATE_POISON: its data was lost with an XPU
 */
enum gm_page_state {
	GM_STATE_UNTRACKED,
	GM_STATE_EMPTY,
	GM_STATE_MODIFIED,
	GM_STATE_SHARED,
	GM_STATE_FRAGMENTED,
	GM_STATE_POISON,
	GM_NR_STATES
};

/**
 * struct gm_where - where one page lives
 * @addr: start of the 2 MiB page
 * @state: enum gm_page_state
 * @node: a node with a valid copy, GM_NODE_NONE if there is none
 * @copies: bit i is set if node i has a valid copy
 * @mapped: bit i is set if the processor of node i has it mapped
 * @pinned: it is pinned
 * @faults: how often a processor had to fetch it
 * @false_sharing: two processors keep taking it from each other
 */
struct gm_where {
	uint64_t addr;
	int state;
	int node;
	uint64_t copies;
	uint64_t mapped;
	int pinned;
	uint32_t faults;
	int false_sharing;
};

/**
 * gm_where() - find out where a unified address lives
 * @addr: any address
 * @out: filled in
 *
 * Return: 0; -EFAULT if @addr is not unified memory.
 */
int gm_where(const void *addr, struct gm_where *out);

/**
 * struct gm_node_info - one memory
 * @id: node id: Linux's own for host memory, the next ones for XPUs
 * @is_xpu: 0 for host memory
 * @name: the device's name, or "host"
 * @total: bytes (host: what Linux says)
 * @free: bytes (host: also what the kernel could drop of its caches)
 * @resident: bytes of unified pages there (host: only the replicas, for what the
 *	CPU has mapped or could map is the program's ordinary memory)
 * @replicas: bytes of @resident that could be dropped without a copy
 * @pinned: bytes of @resident that cannot be evicted
 * @lost: the device's memory is gone
 */
struct gm_node_info {
	int id;
	int is_xpu;
	char name[32];
	uint64_t total;
	uint64_t free;
	uint64_t resident;
	uint64_t replicas;
	uint64_t pinned;
	int lost;
};

/**
 * gm_nodes() - list the memories
 * @out: filled with up to @n
 * @n: room in @out
 *
 * Return: How many there are, which may be more than @n; or a negative errno
 * if the library could not be made ready.
 */
int gm_nodes(struct gm_node_info *out, size_t n);

/**
 * struct gm_stats - what has happened, in pages of 2 MiB unless said
 * @faults_cpu: CPU faults served
 * @faults_xpu_read: XPU read faults served
 * @faults_xpu_write: XPU write faults served
 * @faults_coalesced: faults that found their page already there
 * @faults_failed: faults that ended in an error
 * @zeroed: first touches, filled with zeros
 * @to_xpu: copied from a host node to an XPU
 * @to_host: copied from an XPU to a host node
 * @xpu_to_xpu: copied from one XPU to another
 * @prefetched: those of the above that a hint asked for
 * @evicted_clean: dropped from an XPU with no copy back
 * @evicted_dirty: written back from an XPU to make room
 * @upgraded: made writable without a copy
 * @mapped_home: evicted or replicated, then wanted by the CPU: no copy
 * @replicas_dropped: host replicas dropped to free host memory
 * @bytes_to_xpu: bytes copied into XPU memories
 * @bytes_to_host: bytes copied out of them
 * @bytes_memcpy: bytes copied by gmemcpy()
 * @ns_copying: nanoseconds spent in copies, summed over threads
 * @ns_faults: nanoseconds spent serving XPU faults, summed over threads
 * @residence_waits: times a processor waited for another's residence time
 * @busy_waits: times a page held by the kernel was waited for
 * @fragmented: pages cut by 4 KiB-grained calls
 * @poisoned: pages lost with an XPU
 * @reclaims: rounds of reclaim
 * @operator_errors: operators that failed
 * @between_hosts: copied from one host node to another
 * @moved: pages that gm_move_pages() moved (plain memory: of any size)
 * @exchanged: pairs that gm_exchange_pages() exchanged
 * @move_absent: pages or pairs that neither could move, for there was no data
 * @move_busy: for the kernel or a GM_PIN held them
 * @move_denied: for the protection forbids it
 * @move_nomem: for the node was full
 * @move_failed: for another reason
 * @move_kernel: pages of plain memory left to Linux's own move_pages()
 */
struct gm_stats {
	uint64_t faults_cpu;
	uint64_t faults_xpu_read;
	uint64_t faults_xpu_write;
	uint64_t faults_coalesced;
	uint64_t faults_failed;
	uint64_t zeroed;
	uint64_t to_xpu;
	uint64_t to_host;
	uint64_t xpu_to_xpu;
	uint64_t prefetched;
	uint64_t evicted_clean;
	uint64_t evicted_dirty;
	uint64_t upgraded;
	uint64_t mapped_home;
	uint64_t replicas_dropped;
	uint64_t bytes_to_xpu;
	uint64_t bytes_to_host;
	uint64_t bytes_memcpy;
	uint64_t ns_copying;
	uint64_t ns_faults;
	uint64_t residence_waits;
	uint64_t busy_waits;
	uint64_t fragmented;
	uint64_t poisoned;
	uint64_t reclaims;
	uint64_t operator_errors;
	uint64_t between_hosts;
	uint64_t moved;
	uint64_t exchanged;
	uint64_t move_absent;
	uint64_t move_busy;
	uint64_t move_denied;
	uint64_t move_nomem;
	uint64_t move_failed;
	uint64_t move_kernel;
};

/**
 * gm_process_stats() - what has happened in this process
 * @out: filled in
 *
 * Return: 0; a negative errno if the library could not be made ready.
 */
int gm_process_stats(struct gm_stats *out);

/**
 * gm_node_stats() - what has happened on one node
 * @node: its id
 * @out: filled in; counters that are not about a node stay 0
 *
 * Return: 0; -EINVAL for an unknown node.
 */
int gm_node_stats(int node, struct gm_stats *out);

/**
 * struct gm_region_stats - one region, counted page by page
 * @start: its first address
 * @end: the address after its last
 * @prot: its rights, GM_PROT_*
 * @states: pages in each enum gm_page_state
 * @on_node: pages with a valid copy on node i
 * @faults: fetches of its pages
 * @false_sharing: pages that two processors keep taking from each other
 * @worst: the page with the most fetches, if any is falsely shared
 */
struct gm_region_stats {
	uint64_t start;
	uint64_t end;
	int prot;
	uint64_t states[GM_NR_STATES];
	uint64_t on_node[64];
	uint64_t faults;
	uint64_t false_sharing;
	uint64_t worst;
};

/**
 * gm_region_stats() - count the region around an address
 * @addr: any address in it
 * @out: filled in
 *
 * Walks the region; not for hot paths.
 *
 * Return: 0; -EFAULT if @addr is not unified memory.
 */
int gm_region_stats(const void *addr, struct gm_region_stats *out);

/**
 * enum gm_event_kind - kinds of events in the trace
 * @GM_EV_FAULT: a fault was served (@from is where the data was)
 * @GM_EV_EVICT: an XPU page was evicted; @bytes is 0 if it was dropped
 * @GM_EV_PREFETCH: a hint moved a page
 * @GM_EV_DISCARD: a page was freed by GM_DONTNEED or an unmap
 * @GM_EV_ERROR: a fault or operator failed; @error says how
 */
enum gm_event_kind {
	GM_EV_FAULT,
	GM_EV_EVICT,
	GM_EV_PREFETCH,
	GM_EV_DISCARD,
	GM_EV_ERROR,
};

/**
 * struct gm_event - one event
 * @time: nanoseconds, CLOCK_MONOTONIC, when it ended
 * @duration: nanoseconds
 * @addr: the page
 * @bytes: copied
 * @kind: enum gm_event_kind
 * @access: enum gm_access, 0 where it does not apply
 * @from: node the data came from, GM_NODE_NONE for zeros
 * @to: node it went to
 * @error: 0 or a negative errno
 */
struct gm_event {
	uint64_t time;
	uint64_t duration;
	uint64_t addr;
	uint32_t bytes;
	uint8_t kind;
	uint8_t access;
	int16_t from;
	int16_t to;
	int16_t error;
};

/**
 * gm_trace_start() - keep the last events in a ring
 * @capacity: how many; 0 ends the trace
 *
 * Return: 0; -ENOMEM.
 */
int gm_trace_start(size_t capacity);

/**
 * gm_trace_read() - take events out of the ring, oldest first
 * @out: filled with up to @n
 * @n: room in @out
 * @lost: if not NULL, how many were overwritten since the last call
 *
 * Return: How many were taken.
 */
size_t gm_trace_read(struct gm_event *out, size_t n, uint64_t *lost);

/**
 * gm_error() - why this thread's last call failed
 *
 * Return: One sentence that stays valid until the thread's next call; "" if
 * none has failed.
 */
const char *gm_error(void);

#ifdef __cplusplus
}
#endif

#endif /* GMM_GMM_H */
