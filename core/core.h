/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * core.h - the manager's own types
 *
 * Letters beside the fields say what protects them:
 *
 *	(A) atomic
 *	(C) constant after creation
 *	(D) the device's lock
 *	(E) the lock of the entry that the object belongs to
 *	(H) the host's
 *	(M) the machine lock
 *	(N) the lock of the node that the page belongs to
 *	(R) read under RCU, changed under the address space's lock
 *	(S) the address space's lock
 *
 * With two letters, either is enough to read and both are needed to write.
 */
#ifndef GMM_CORE_H
#define GMM_CORE_H

#include "gmm/gmm.h"
#include "gmm/kpi.h"
#include "core/host.h"

#define GM_BATCH 16 /* pages that go through the engine together */
#define GM_MAX_NODES 64
#define GM_MAX_DEVS 32
#define GM_LEAF_ENTRIES 512

#define GM_MIN(a, b) ((a) < (b) ? (a) : (b))
#define GM_MAX(a, b) ((a) > (b) ? (a) : (b))
#define GM_BUG_ON(cond)                                         \
	do {                                                    \
		if (__builtin_expect(!!(cond), 0))              \
			gm_host_bug(__FILE__, __LINE__, #cond); \
	} while (0)

#define gm_load(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define gm_store(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define gm_add(p, v) __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL)

struct gm_list {
	struct gm_list *prev;
	struct gm_list *next;
};

struct gm_dir;
struct gm_entry;

/* On which of its node's lists a page is. */
enum gm_page_list {
	GM_PAGE_NOWHERE, /* in the hands of one thread, or a host place */
	GM_PAGE_FREE,
	GM_PAGE_ACTIVE,
	GM_PAGE_STUCK, /* data given up, but the XPU may still have it mapped */
	GM_PAGE_COLLECTED, /* free, and its range is being unregistered */
};

enum gm_page_flags {
	GM_PAGE_BUSY = 1 << 0, /* an evictor has chosen it */
	GM_PAGE_WIRED = 1 << 1, /* not to be evicted */
	GM_PAGE_PREFERRED = 1 << 2, /* evicted after the others */
	GM_PAGE_LEAVING = 1 << 3, /* its range is being unregistered */
	GM_PAGE_GIVEN = 1 << 4, /* freed: its evictor puts it on the list */
};

/**
 * struct gm_page - one page frame of a node, or a host place at rest
 * @link: on a list of the node
 * @next: the next copy of the same virtual page
 * @entry: the entry whose data it holds, NULL if none
 * @dir: the directory of that entry, or, stuck, of the one it was for
 * @va: where the XPU has, had or will have it mapped
 * @addr: device address; for a host place, the host's
 * @nid: its node
 * @list: enum gm_page_list
 * @flags: enum gm_page_flags
 * @ctx: index of the context that uses it, 0 for a host place
 * @prot: rights with which that context has it mapped, 0 if it has not
 * @vacant: a host place without memory
 */
struct gm_page {
	struct gm_list link; /* (N) */
	struct gm_page *next; /* (E) */
	struct gm_entry *entry; /* (E+N) */
	struct gm_dir *dir; /* (E+N) */
	uint64_t va; /* (E) */
	uint64_t addr; /* (C) */
	int16_t nid; /* (C) */
	uint8_t list; /* (N) */
	uint8_t flags; /* (N) */
	uint8_t ctx; /* (E) */
	uint8_t prot; /* (E) */
	uint8_t vacant; /* (H) */
};

_Static_assert(sizeof(struct gm_page) <= 64, "64 bytes a page");

enum gm_entry_flags {
	GM_ENTRY_WRITTEN = 1 << 0, /* an XPU has written it: map writable */
	GM_ENTRY_READ_MOSTLY = 1 << 1,
	GM_ENTRY_PINNED = 1 << 2, /* to the node in @node */
	GM_ENTRY_PREFERRED = 1 << 3, /* for the node in @node */
	GM_ENTRY_CUT = 1 << 4, /* while it was poison: fragmented afterwards */
};

#define GM_ENTRY_OWN_PROT 0x80

/**
 * struct gm_entry - the logical mapping of one 2 MiB virtual page
 * @lock: of this entry; its holder may copy
 * @copies: the valid copies that have a struct gm_page
 * @mapped_at: when a processor last got it by a fault
 * @faults: fetches, for statistics
 * @node: of GM_ENTRY_PINNED or GM_ENTRY_PREFERRED
 * @state: enum gm_page_state; read without the lock only as a hint
 * @flags: enum gm_entry_flags
 * @prot: rights of the program, GM_PROT_* | GM_ENTRY_OWN_PROT; 0: the
 *	directory's
 * @holder: the processor that got it last: a context index, 0 for the CPU
 * @pingpong: how often in a row it has changed hands within its residence
 *
 * Modified, with no copy listed: the CPU has it mapped and the page table is
 * the truth. Modified with one copy: that one, a host place (evicted, or not
 * yet wanted by the CPU) or an XPU's page. Shared: at least two copies, at
 * most one of them a host place, every mapping read-only, none on the CPU.
 * Fragmented with a copy: that copy still has to be put in place. In all
 * other states no copy is listed.
 */
struct gm_entry {
	struct gm_lock lock;
	struct gm_page *copies; /* (E) */
	uint64_t mapped_at; /* (E) */
	uint32_t faults; /* (E) */
	int16_t node; /* (E) */
	uint8_t state; /* (E) */
	uint8_t flags; /* (E) */
	uint8_t prot; /* (E) */
	uint8_t holder; /* (E) */
	uint8_t pingpong; /* (E) */
};

_Static_assert(sizeof(struct gm_entry) <= 64, "64 bytes an entry");

struct gm_leaf {
	struct gm_entry entries[GM_LEAF_ENTRIES];
};

/**
 * struct gm_dir - the entries of what one gm_mmap() made
 * @refs: one for each region that is a window on it, one for each user
 * @as: the address space
 * @nr_slots: its size in pages
 * @fresh: the state of entries that nobody has touched
 * @prot: the rights of entries that have none of their own
 * @leaves: made when first touched, published by compare-and-swap
 */
struct gm_dir {
	uint32_t refs; /* (A) */
	struct gm_as *as; /* (C) */
	uint64_t nr_slots; /* (C) */
	uint8_t fresh; /* (C) */
	uint8_t prot; /* (A) */
	struct gm_leaf *leaves[]; /* (A) */
};

/**
 * struct gm_region - a window of addresses on a directory
 * @start: first address
 * @end: the address after the last
 * @dir: the directory
 * @first: the slot of @dir at @start
 * @refs: one for the table, one for each user
 * @dead: it is no longer in the table; whoever finds this, with an entry
 *	locked, starts anew
 * @dying: on the address space's list until it is torn down
 * @next_gone: the next one that left in the same change
 *
 * Never changed: splitting, trimming and moving make new windows on the same
 * directory, so entries never move.
 */
struct gm_region {
	uint64_t start; /* (C) */
	uint64_t end; /* (C) */
	struct gm_dir *dir; /* (C) */
	uint64_t first; /* (C) */
	uint32_t refs; /* (A) */
	uint8_t dead; /* (A) */
	struct gm_list dying; /* (S) */
	struct gm_region *next_gone; /* of the thread that removed it */
};

/* All regions in the order of their addresses. Replaced whole. */
struct gm_region_table {
	uint32_t nr;
	uint32_t room;
	struct gm_region *regions[];
};

/**
 * struct gm_ctx - an XPU context attached to an address space
 * @as: the address space
 * @dev: the device
 * @pmap: the driver's page table
 * @index: its number in the address space, from 1
 * @users: threads that are serving for it
 * @dead: being detached
 */
struct gm_ctx {
	struct gm_as *as; /* (C) */
	struct gm_dev *dev; /* (C) */
	void *pmap; /* (C) */
	uint8_t index; /* (C) */
	uint32_t users; /* (A) */
	uint8_t dead; /* (A) */
};

/**
 * struct gm_as - an address space
 * @lock: for changes of @table
 * @table: the regions
 * @dying: regions out of the table but not yet torn down
 * @changed: woken when a region has been torn down or a context is unused
 * @ctxs: attached contexts by index; ctxs[0] stays NULL, it is the CPU
 * @nr_ctxs: how many
 * @moving: threads that are moving memory to other addresses themselves
 * @host: the host's part
 */
struct gm_as {
	struct gm_lock lock;
	struct gm_region_table *table; /* (R) */
	struct gm_list dying; /* (S) */
	struct gm_waitq changed;
	struct gm_ctx *ctxs[GM_MAX_CTX + 1]; /* (R) */
	uint32_t nr_ctxs; /* (S) */
	uint32_t moving; /* (A) */
	struct gm_host_as host; /* (H) */
};

struct gm_physmem {
	struct gm_list link; /* (D) */
	uint64_t begin; /* (C) */
	uint64_t end; /* (C) */
	struct gm_page *pages; /* (C) */
};

/**
 * struct gm_node - one memory
 * @lock: of the lists and counts
 * @free: pages to be had
 * @active: pages in use, in LRU-FIFO order: the next victim first. On a host
 *	node: the replicas that can be dropped.
 * @stuck: pages that wait for their context's reset or detach
 * @changed: woken when pages were freed or an eviction has ended
 * @dev: the device, NULL for host memory
 * @nid: its id
 * @nr_total: pages registered
 * @nr_free: on @free
 * @nr_active: on @active
 * @nr_wired: those of them that are wired
 * @nr_busy: those of them that an evictor has chosen
 * @nr_hand: in the hands of a thread: soon active or free (XPU)
 * @max_active: host: the budget of replicas
 * @stats: what has happened here
 */
struct gm_node {
	struct gm_lock lock;
	struct gm_list free; /* (N) */
	struct gm_list active; /* (N) */
	struct gm_list stuck; /* (N) */
	struct gm_waitq changed;
	struct gm_dev *dev; /* (C) */
	int nid; /* (C) */
	uint64_t nr_total; /* (N) */
	uint64_t nr_free; /* (N) */
	uint64_t nr_active; /* (N) */
	uint64_t nr_wired; /* (N) */
	uint64_t nr_busy; /* (N) */
	uint64_t nr_hand; /* (N) */
	uint64_t max_active; /* (A) */
	struct gm_stats stats; /* (A) */
};

enum gm_dev_health {
	GM_DEV_WELL,
	GM_DEV_DEAD, /* no longer obeys; what can be read is saved */
	GM_DEV_LOST, /* its memory is gone */
};

struct gm_dev {
	struct gm_lock lock;
	struct gm_dev_ops ops; /* (C), missing optional ones NULL */
	void *data; /* (C) */
	char name[32]; /* (C) */
	unsigned int caps; /* (C) */
	struct gm_node *node; /* (C) */
	struct gm_list physmem; /* (D) */
	uint32_t attached; /* (D) */
	uint8_t health; /* (A) enum gm_dev_health */
	uint32_t pins; /* (M) threads that settle it */
	uint8_t settled; /* (A) its pages have been given up */
};

/* All there is. One in a process; the simulated machine resets it. */
struct gm_machine {
	struct gm_lock lock;
	struct gm_node *nodes[GM_MAX_NODES]; /* (A), changed under (M) */
	struct gm_dev *devs[GM_MAX_DEVS]; /* (M) */
	int nr_host_nodes; /* (C) */
	uint32_t unsettled; /* (A) devices died and their pages wait for it */
};

extern struct gm_machine gm_machine;

/* What an entry can meet; the rows of GM_COVER(). */
/* clang-format off */
#define GM_EVENTS(X)                                                          \
	X(CPU_FAULT) X(XPU_READ) X(XPU_WRITE) X(EVICT) X(DROP_REPLICA)        \
	X(PREFETCH_HOST) X(PREFETCH_XPU) X(DISCARD) X(DISCARD_PART)           \
	X(COPY_FROM) X(COPY_OVER) X(COPY_INTO) X(PIN) X(PROTECT) X(UNMAP)     \
	X(CUT) X(REMAP) X(RESET) X(LOST) X(DETACH) X(EXCHANGE)
/* clang-format on */
#define GM_EVENT_ENUM(name) GM_ON_##name,
enum gm_entry_event { GM_EVENTS(GM_EVENT_ENUM) GM_NR_EVENTS };
#undef GM_EVENT_ENUM

#endif /* GMM_CORE_H */
