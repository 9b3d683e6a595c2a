/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * internal.h - what the core's files offer each other
 *
 * `_locked`: the caller holds the lock of the entry (or of what the comment
 * says). All else is called without any lock, unless said otherwise.
 */
#ifndef GMM_CORE_INTERNAL_H
#define GMM_CORE_INTERNAL_H

#include "core/manager.h"
#include "core/list.h"

/* --- directory.c: entries, and which copies they have ------------------ */

struct gm_dir *gm_dir_create(struct gm_as *as, uint64_t nr_slots,
			     unsigned int prot, enum gm_page_state fresh);
void gm_dir_get(struct gm_dir *dir);
void gm_dir_put(struct gm_dir *dir);
/* Makes it if need be; NULL if there is no memory for it. */
struct gm_entry *gm_dir_entry(struct gm_dir *dir, uint64_t slot);
/* NULL if nobody has made it yet. */
struct gm_entry *gm_dir_peek(struct gm_dir *dir, uint64_t slot);

unsigned int gm_entry_prot(const struct gm_dir *dir, const struct gm_entry *e);
/* The copy at rest on a host node, and that of a context; NULL if none. */
struct gm_page *gm_entry_host_copy(const struct gm_entry *e);
struct gm_page *gm_entry_ctx_copy(const struct gm_entry *e, unsigned int ctx);
/* Until when the processor that got it last may keep it. */
uint64_t gm_entry_resident_until(const struct gm_entry *e);
/* Another processor wants the page of the one that got it last. Returns when
 * it may be taken. */
uint64_t gm_entry_claim_locked(struct gm_entry *e);
/* A processor (context index, 0 the CPU) has got it, by a fault or a hint:
 * only what it asked for itself is it given time to use. */
void gm_entry_got_locked(struct gm_entry *e, unsigned int who, int hint);
/* The CPU has it mapped, as far as the directory knows. */
int gm_entry_on_cpu(const struct gm_entry *e);
/* Link and unlink a copy and set the state that follows; the page's node
 * learns of it. Unlinked pages are the caller's. */
void gm_entry_add_locked(struct gm_dir *dir, struct gm_entry *e,
			 struct gm_page *page, uint64_t va);
void gm_entry_remove_locked(struct gm_entry *e, struct gm_page *page);
/* Two entries that have one copy each, which nobody has mapped, and neither of
 * which is pinned, have the other's from now on. */
void gm_entries_swap_locked(struct gm_entry *a, struct gm_entry *b);
/* No copies any more: Empty, Poison, or Modified by the CPU. */
void gm_entry_set_locked(struct gm_entry *e, enum gm_page_state state);

/* --- region.c: which addresses are windows on which directory ---------- */

struct gm_region *gm_region_lookup(struct gm_as *as, uint64_t va);
/* The region at @va or the first one above it that starts below @end. */
struct gm_region *gm_region_next(struct gm_as *as, uint64_t va, uint64_t end);
void gm_region_put(struct gm_region *r);
uint64_t gm_region_slot(const struct gm_region *r, uint64_t va);
/* Before a page of it that is Untracked is taken off the CPU: without an XPU
 * nobody may be watching, and its next touch would find silent zeros. */
int gm_region_track(struct gm_region *r);
/* Overlaps a region, or one that is being torn down. as->lock is held. */
int gm_region_overlaps_locked(struct gm_as *as, uint64_t va, uint64_t len);
int gm_region_dying_locked(struct gm_as *as, uint64_t va, uint64_t len);
/* Take as->lock when no region is being torn down: those that are still give
 * their addresses back to the contexts that are attached then. */
void gm_as_lock_quiet(struct gm_as *as);

/**
 * struct gm_table_change - one change of the region table
 * @old: the table that was replaced
 * @gone: windows on what left the table, linked by next_gone
 */
struct gm_table_change {
	struct gm_region_table *old;
	struct gm_region *gone;
};

/*
 * Take [start, end) out of the table, and put @add (may be NULL) in. as->lock
 * is held; afterwards, without it, gm_table_settle(). -ENOMEM changes nothing.
 */
int gm_table_change_locked(struct gm_as *as, uint64_t start, uint64_t end,
			   struct gm_region *const *add, unsigned int nr_add,
			   struct gm_table_change *change);
/* Wait until no lookup can still find what has left. */
void gm_table_settle(struct gm_as *as, struct gm_table_change *change);
/* What left has been torn down: let its addresses be used again. */
void gm_table_done(struct gm_as *as, struct gm_table_change *change);
struct gm_region *gm_region_create(uint64_t start, uint64_t end,
				   struct gm_dir *dir, uint64_t first);

/* --- as.c -------------------------------------------------------------- */

/* What has happened cannot be refused: wait for a little of the manager's own
 * memory, and try again. */
void gm_wait_for_memory(void);

/* Whole pages leave the table and are freed; with @unmap, the program's
 * mapping goes as well. */
int gm_region_remove(struct gm_as *as, uint64_t start, uint64_t end, int unmap);

/* --- node.c: page frames and their lists ------------------------------- */

struct gm_node *gm_node_create(struct gm_dev *dev, int nid);
struct gm_node *gm_node_find(int nid);
/* Up to @n free pages, without reclaim. Returns how many. */
unsigned int gm_node_take(struct gm_node *node, struct gm_page **pages,
			  unsigned int n);
/*
 * Up to @n pages, reclaiming and waiting until there is at least one. With
 * @may_wait 0, for a thread that has pages in hand, what is free: maybe none.
 * Returns how many, -ENOMEM if all is wired, or -ENODEV.
 */
/* The error that @n pages cannot be had, with its text. */
int gm_node_full(struct gm_node *node, unsigned int n);
int gm_node_alloc(struct gm_node *node, struct gm_page **pages, unsigned int n,
		  int may_wait);
/* The page holds no data any more; it may be held by an evictor. */
void gm_page_free(struct gm_page *page);
/* As above, but a context may still have it mapped where @dir had it: out of
 * use until that address space's context is reset or detached. */
void gm_page_free_stuck(struct gm_page *page, struct gm_dir *dir);
void gm_node_unstick(struct gm_node *node, const struct gm_as *as);
/* An evictor is done with it. */
void gm_page_unbusy(struct gm_page *page);
/* A page in hand will be a copy of @e, which is locked; or not, with NULL. */
void gm_page_intend(struct gm_page *page, struct gm_dir *dir,
		    struct gm_entry *e);
/* Make it the most, or the least recently used. */
void gm_page_touch(struct gm_page *page);
void gm_page_cool(struct gm_page *page);
void gm_page_wire(struct gm_page *page, int wired);
void gm_page_prefer(struct gm_page *page, int preferred);
struct gm_node *gm_page_node(const struct gm_page *page);
int gm_page_is_host(const struct gm_page *page);

/**
 * struct gm_walk - what is done with all pages of a device
 * @before: called without locks before each page; may be NULL
 * @page: called with the page's entry locked; an error ends the walk
 * @arg: for both
 */
struct gm_walk {
	void (*before)(struct gm_dir *dir, void *arg);
	int (*page)(struct gm_page *page, void *arg);
	void *arg;
};

/* All pages that hold data, or those of one range. dev->lock is held. */
int gm_node_walk(struct gm_node *node, const struct gm_physmem *only,
		 const struct gm_walk *walk);

#define gm_count(node, field, n) \
	((void)__atomic_fetch_add(&(node)->stats.field, n, __ATOMIC_RELAXED))

/* --- discard.c --------------------------------------------------------- */

/*
 * Free all copies of an entry; it is Empty afterwards. A page whose mapping
 * cannot be revoked fails it, and leaves the rest as it was, or with @force
 * is put out of use.
 */
int gm_entry_drop_locked(struct gm_dir *dir, struct gm_entry *e, int force);

/* GM_DONTNEED. */
int gm_as_discard(struct gm_as *as, uint64_t va, uint64_t len);

/* --- reclaim.c --------------------------------------------------------- */

/*
 * Evict up to @want pages of a node (a host node: drop replicas). Returns how
 * many were freed.
 */
unsigned int gm_reclaim(struct gm_node *node, unsigned int want);
/* A host place with memory, for which replicas are dropped if need be. */
int gm_home_page_get(struct gm_as *as, unsigned int flags,
		     struct gm_page **page);
/* gm_host_slots_get(), with a text if it fails. */
int gm_home_slots_get(struct gm_as *as, struct gm_page **slots, unsigned int n);
/* Send one page home, whose mapping is revoked. The entry is locked; @host (with memory) is used up and
 * set to NULL if it was needed. */
int gm_evict_locked(struct gm_page *page, struct gm_page **host);
/* Drop the replicas that are over the node's budget. */
void gm_replicas_trim(struct gm_node *node);

/* --- migrate.c: the engine --------------------------------------------- */

enum gm_outcome {
	GM_OUT_PENDING,
	GM_OUT_DONE, /* it is there and mapped */
	GM_OUT_ALREADY, /* it was, before we came */
	GM_OUT_RESTART, /* the world changed, or something more is needed */
	GM_OUT_NOREGION,
	GM_OUT_DENIED,
	GM_OUT_BUSY, /* the kernel holds the page; worth a wait */
	GM_OUT_PINNED,
	GM_OUT_NOMEM,
	GM_OUT_POISON,
	GM_OUT_ABSENT, /* a move, and there is no data to be moved */
	GM_OUT_FRAGMENTED,
	GM_OUT_DEVICE, /* an operator failed, see gm_fault.err */
	GM_OUT_HOST, /* the host failed, see gm_fault.err */
};

/**
 * struct gm_fault - one page on its way to one processor
 * @va: the page
 * @access: what the processor tried
 * @entry: locked between gm_faults_lock() and gm_faults_unlock()
 * @page: got before the lock: a frame of the target node, or for the CPU a
 *	host place with memory. NULL when used.
 * @slot: got before the lock: a vacant host place for what the CPU has
 *	mapped. NULL when used.
 * @bounce: got before the lock: a host place with memory, for data that goes
 *	from one device to another. NULL when used.
 * @want_page: a page is needed: the entry said so
 * @want_slot: a slot is needed
 * @want_bounce: a bounce page is needed
 * @locked: @entry is locked by us
 * @zeroed: @page reads as zeros
 * @exclusive: the other copies go
 * @fresh: there is no data: zeros
 * @relocate: the CPU has it mapped, on another host node than wanted
 * @src: the copy to take the data from
 * @dst: the copy that the processor will have mapped
 * @from: node the data came from, for the trace
 * @copied: bytes
 * @outcome: what became of it
 * @err: with GM_OUT_DEVICE and GM_OUT_HOST
 */
struct gm_fault {
	uint64_t va;
	enum gm_access access;
	struct gm_entry *entry;
	struct gm_page *page;
	struct gm_page *slot;
	struct gm_page *bounce;
	uint8_t want_page;
	uint8_t want_slot;
	uint8_t want_bounce;
	uint8_t locked;
	uint8_t zeroed;
	uint8_t exclusive;
	uint8_t fresh;
	uint8_t relocate;
	struct gm_page *src;
	struct gm_page *dst;
	int from;
	uint32_t copied;
	enum gm_outcome outcome;
	int err;
};

/**
 * struct gm_batch - pages of one region on their way to one processor
 * @as: the address space
 * @region: all pages are in it; referenced
 * @ctx: the XPU context, NULL for the CPU
 * @nid: for the CPU, the host node for new pages, or GM_NODE_NONE
 * @hint: a hint, not a fault: what the CPU has mapped on its node is at home
 * @move: gm_move_pages(): what has no data stays without
 * @width: threads that may copy one page together
 * @n: how many
 * @faults: in ascending order of their addresses
 */
struct gm_batch {
	struct gm_as *as;
	struct gm_region *region;
	struct gm_ctx *ctx;
	int nid;
	uint8_t hint;
	uint8_t move;
	uint8_t width;
	unsigned int n;
	struct gm_fault faults[GM_BATCH];
};

/* Unmap all, copy all, map all: for the planned ones of a locked batch. */
void gm_batch_move_locked(struct gm_batch *b);
/* Copy one page, between any two nodes. Entries are locked. */
int gm_page_copy(struct gm_page *dst, struct gm_page *src);
int gm_page_copy_part(struct gm_page *dst, uint64_t dst_off,
		      struct gm_page *src, uint64_t src_off, uint64_t len);
int gm_page_zero(struct gm_page *page, uint64_t off, uint64_t len);
/* Between a page and the core's own memory. */
int gm_page_read(void *dst, struct gm_page *src, uint64_t off, uint64_t len);
int gm_page_write(struct gm_page *dst, uint64_t off, const void *src,
		  uint64_t len);
/* Revoke the mappings of up to GM_BATCH XPU pages; their entries are locked.
 * status[i]: 0 or an errno. */
void gm_pages_unmap(struct gm_page **pages, unsigned int n, int *status);
int gm_page_unmap(struct gm_page *page);
/* Map them for their contexts, with page->prot; likewise. */
void gm_pages_map(struct gm_page **pages, unsigned int n, int *status);
/* Make the mapping read-only. */
int gm_page_unwrite(struct gm_page *page);
/* Unlink a copy that holds nothing of value, and give its page back. */
void gm_copy_drop_locked(struct gm_entry *e, struct gm_page *page);

/* --- cut.c: one page over several threads, and two that change places ---- */

#define GM_CUTS 4 /* parts that a page is cut into */
#define GM_SWAP_CHUNK (GM_PAGE_SIZE / 32)
#define GM_SWAP_BUF (2 * GM_CUTS * GM_SWAP_CHUNK)

/* gm_page_copy() by up to @width threads. Entries are locked. */
int gm_page_copy_wide(struct gm_page *dst, struct gm_page *src,
		      unsigned int width);

/**
 * struct gm_swap - two pages of different nodes that change contents
 * @pages: the two
 * @buf: GM_SWAP_BUF bytes
 * @done: by cut: chunks that have changed places
 * @stage: by cut: how far the next one got
 * @err: what an operator said
 */
struct gm_swap {
	struct gm_page *pages[2];
	char *buf;
	unsigned int done[GM_CUTS];
	uint8_t stage[GM_CUTS];
	int err;
};

/* In place, chunk by chunk. Entries are locked, and nobody has them mapped. */
int gm_swap_run(struct gm_swap *s, unsigned int width);
/*
 * It failed in the middle: gather what page @which held before in a host place
 * with memory, wherever its chunks are. -EIO: some cannot be read any more.
 */
int gm_swap_rescue(struct gm_swap *s, unsigned int which, struct gm_page *to);

/* --- fault.c, serve.c -------------------------------------------------- */

/*
 * Bring the pages of a batch to its processor. Their outcomes are
 * GM_OUT_RESTART before, to begin with, and afterwards only if the region has
 * died.
 */
void gm_batch_serve(struct gm_batch *b);

/**
 * struct gm_target - a processor that pages are to go to
 * @as: the address space
 * @ctx: the XPU context, NULL for the CPU
 * @nid: for the CPU, the host node, or GM_NODE_NONE
 * @hint: a hint asks for it, not a fault
 * @move: gm_move_pages() does
 * @width: threads that may copy one page together
 */
struct gm_target {
	struct gm_as *as;
	struct gm_ctx *ctx;
	int nid;
	uint8_t hint;
	uint8_t move;
	uint8_t width;
};

/* The processor of a node; an XPU's context is to be put afterwards. */
int gm_target_of(struct gm_as *as, int node, struct gm_target *t);

/*
 * Serve up to GM_BATCH addresses, ascending, without doubles. status[i] is 0 or
 * what gm_dev_fault() returns; gm_error() is about the last that failed.
 */
void gm_target_serve(const struct gm_target *t, const uint64_t *vas,
		     unsigned int n, const enum gm_access *access, int *status);

/* --- fragment.c: pages that are no longer whole ------------------------ */

/* Fragmented from now on, and counted once. */
void gm_entry_fragment_locked(struct gm_entry *e);
/* The host says -EXDEV: fragmented, which returns -EXDEV, unless we are just
 * moving the region ourselves, which returns -EAGAIN. */
int gm_entry_not_whole_locked(struct gm_region *r, struct gm_entry *e);
/*
 * The mapping of the page at @va has been cut. Returns how many bytes of it
 * the program still has.
 */
int64_t gm_page_cut(struct gm_region *r, uint64_t va);
/* The CPU faults in a page that is fragmented. */
int gm_fragment_fault(struct gm_region *r, uint64_t va);
/* The data of the page that was at @from is at no page's place now: the bytes
 * [off, off + len) belong to @to + off. */
void gm_page_scatter(struct gm_region *r, uint64_t from, uint64_t to,
		     uint64_t off, uint64_t len);

/* --- dev.c: devices and their frames ------------------------------------ */

int gm_dev_alive(const struct gm_dev *dev);
void gm_dev_died(struct gm_dev *dev, enum gm_dev_health how);
/* A dead device's pages are to be given up (again) by gm_machine_settle(). */
void gm_dev_unsettle(struct gm_dev *dev);
/* Every operator's result passes here: counts, and notices a dead device. */
int gm_dev_result(struct gm_dev *dev, int err);

/* The first range that overlaps. dev->lock is held. */
struct gm_physmem *gm_physmem_find(struct gm_dev *dev, uint64_t begin,
				   uint64_t end);
uint64_t gm_physmem_pages(const struct gm_physmem *pm);
/* Its pages that are on the list @from become free. */
void gm_physmem_release(struct gm_node *node, struct gm_physmem *pm,
			enum gm_page_list from);
void gm_physmem_free(struct gm_physmem *pm);

/* --- leave.c: pages leave a device for good ----------------------------- */

/**
 * struct gm_leave - which pages leave, and how
 * @as: only those of this address space, or NULL for all
 * @host: a place for the next one's data, or NULL
 * @host_as: of @host
 * @on: why
 * @hopeless: the data cannot be read: do not try
 * @forgive: what cannot be read is poison; otherwise it fails
 * @skip: pass over what an operator refuses: it stays as it is
 * @stale: a page has left whose mapping may still be there
 */
struct gm_leave {
	struct gm_as *as;
	struct gm_page *host;
	struct gm_as *host_as;
	enum gm_entry_event on;
	uint8_t hopeless;
	uint8_t forgive;
	uint8_t skip;
	uint8_t stale;
};

/* dev->lock is held. */
int gm_leave_all(struct gm_node *node, const struct gm_physmem *pm,
		 struct gm_leave *l);
/* Give up the pages of devices that died. Called at the end of every call
 * that may have run an operator, with no context in use. */
void gm_machine_settle(void);

/* --- ctx.c: contexts in address spaces ---------------------------------- */

/* The context of a device; counted as in use until gm_ctx_put(). */
struct gm_ctx *gm_ctx_get(struct gm_as *as, const struct gm_dev *dev);
struct gm_ctx *gm_ctx_of_node(struct gm_as *as, int nid);
void gm_ctx_put(struct gm_ctx *ctx);
/* @ctx may be NULL. */
void gm_ctx_release_va(struct gm_ctx *ctx, uint64_t va, uint64_t len);

/* --- move.c ------------------------------------------------------------- */

/* Count a page that gm_move_pages() or gm_exchange_pages() could not move. */
void gm_move_failed(struct gm_node *node, int err);
/* The host node of what the CPU has mapped; 0 if that cannot be said. */
int gm_cpu_node(struct gm_as *as, uint64_t va);

/* --- stats.c ----------------------------------------------------------- */

void gm_trace(enum gm_event_kind kind, enum gm_access access, uint64_t va,
	      uint32_t bytes, int from, int to, uint64_t since, int err);

#endif /* GMM_CORE_INTERNAL_H */
