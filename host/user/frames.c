/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * frames.c - the dock: places outside all regions where pages are at rest
 *
 * One large private mapping, cut into slots of 2 MiB. A slot is vacant or
 * holds a page's memory. Free slots that hold memory are kept, bounded: fresh
 * memory can be forty times dearer than used memory. One thread, the keeper,
 * keeps some of them zeroed, and gives back to Linux what is too much.
 *
 * Only the low part of the dock is accessible and grows: mlockall() populates
 * whatever can be touched.
 */
#include <string.h>

#include "sys.h"
#include "uffd.h"
#include "user.h"

#define GROW_SLOTS 128ULL
#define WORD_BITS 64U

enum { DIRTY, ZEROED, NR_KINDS };

/**
 * struct pool - free slots that hold memory of one node
 * @lists: by kind
 * @nr: how many
 */
struct pool {
	struct gm_list lists[NR_KINDS];
	uint64_t nr[NR_KINDS];
};

/**
 * struct dock - all places
 * @lock: rank POOL
 * @work: woken when the keeper has something to do
 * @base: address of slot 0
 * @nr_slots: how many there can be
 * @nr_ready: how many are accessible
 * @pages: one for each slot
 * @vacant: a bit for each slot that is vacant and free
 * @hint: word of @vacant at which to look first
 * @pools: by host node
 * @nr_free: slots in the pools
 * @nr_zeroed: those of them that are zeroed
 * @target: zeroed slots wanted
 * @stale: to be given back to Linux
 */
static struct dock {
	struct gm_lock lock;
	struct gm_waitq work;
	uint64_t base; /* (C) */
	uint64_t nr_slots; /* (C) */
	uint64_t nr_ready; /* (lock) */
	struct gm_page *pages; /* (C), contents: see struct gm_page */
	uint64_t *vacant; /* (lock) */
	uint64_t hint; /* (lock) */
	struct pool pools[GM_MAX_HOST_NODES]; /* (lock) */
	uint64_t nr_free; /* (lock) */
	uint64_t nr_zeroed; /* (lock) */
	uint64_t target; /* (A) */
	struct gm_list stale; /* (lock) */
} dock;

static void list_init(struct gm_list *l)
{
	l->prev = l;
	l->next = l;
}

static void list_push(struct gm_list *l, struct gm_list *item)
{
	item->next = l->next;
	item->prev = l;
	l->next->prev = item;
	l->next = item;
}

static struct gm_list *list_pop(struct gm_list *l)
{
	struct gm_list *item = l->next;

	if (item == l)
		return NULL;
	l->next = item->next;
	item->next->prev = l;
	return item;
}

static uint64_t slot_of(const struct gm_page *page)
{
	return (page->addr - dock.base) >> GM_PAGE_SHIFT;
}

static uint64_t meta_len(void)
{
	return dock.nr_slots * sizeof(struct gm_page);
}

/* Virtual room for all pages that memory and swap could hold, if it may be. */
static int map_dock(void)
{
	uint64_t len = GM_MAX(gm_user.ram * 4, 16ULL << 30) & ~GM_PAGE_MASK;
	uint64_t head, raw;
	void *p;

	for (;; len = (len / 2) & ~GM_PAGE_MASK) {
		p = gm_sys_mmap(0, len + GM_PAGE_SIZE, PROT_NONE,
				MAP_NORESERVE);
		if (p != MAP_FAILED)
			break;
		if (len <= 1ULL << 28)
			return gm_host_error(-ENOMEM,
					     "no room in the address "
					     "space for pages at rest");
	}
	raw = (uint64_t)p;
	dock.base = (raw + GM_PAGE_MASK) & ~GM_PAGE_MASK;
	head = dock.base - raw;
	if (head)
		gm_sys_munmap(raw, head);
	if (head < GM_PAGE_SIZE)
		gm_sys_munmap(dock.base + len, GM_PAGE_SIZE - head);
	dock.nr_slots = len >> GM_PAGE_SHIFT;
	if (gm_sys_madvise(dock.base, len, MADV_DONTFORK) ||
	    gm_sys_madvise(dock.base, len, MADV_HUGEPAGE))
		return gm_host_error(-errno, "cannot have huge pages");
	return 0;
}

static int register_dock(void)
{
	struct uffdio_register reg = {
		.range = { dock.base, dock.nr_slots << GM_PAGE_SHIFT },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	if (gm_sys_ioctl(gm_user.fd_dock, UFFDIO_REGISTER, &reg))
		return gm_host_error(-errno, "cannot watch the pages at rest");
	return 0;
}

static int map_meta(void)
{
	void *p = gm_sys_mmap(0, meta_len(), PROT_READ | PROT_WRITE,
			      MAP_NORESERVE);
	uint64_t words = (dock.nr_slots + WORD_BITS - 1) / WORD_BITS;

	if (p == MAP_FAILED)
		return gm_host_error(-ENOMEM, "no memory");
	dock.pages = p;
	dock.vacant = gm_host_zalloc(words * sizeof(uint64_t));
	return dock.vacant ? 0 : gm_host_error(-ENOMEM, "no memory");
}

int gm_frames_init(void)
{
	int nid, rc;

	memset(&dock, 0, sizeof(dock));
	list_init(&dock.stale);
	for (nid = 0; nid < GM_MAX_HOST_NODES; nid++) {
		list_init(&dock.pools[nid].lists[DIRTY]);
		list_init(&dock.pools[nid].lists[ZEROED]);
	}
	dock.target = GM_RESERVE_FRAMES + GM_ZEROED_FRAMES;
	rc = map_dock();
	if (!rc)
		rc = register_dock();
	if (!rc)
		rc = map_meta();
	if (rc)
		gm_frames_exit();
	return rc;
}

void gm_frames_exit(void)
{
	if (dock.base)
		gm_sys_munmap(dock.base, dock.nr_slots << GM_PAGE_SHIFT);
	if (dock.pages)
		gm_sys_munmap((uint64_t)dock.pages, meta_len());
	gm_host_zfree(dock.vacant, (dock.nr_slots + WORD_BITS - 1) / WORD_BITS *
					   sizeof(uint64_t));
	memset(&dock, 0, sizeof(dock));
}

static bool overlap(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
	return a < b + b_len && b < a + a_len;
}

bool gm_frames_own(uint64_t va, uint64_t len)
{
	return overlap(va, len, dock.base, dock.nr_slots << GM_PAGE_SHIFT) ||
	       overlap(va, len, (uint64_t)dock.pages, meta_len());
}

/* --- vacant slots ------------------------------------------------------- */

static int grow_locked(void)
{
	uint64_t n = GM_MIN(GROW_SLOTS, dock.nr_slots - dock.nr_ready);
	uint64_t i;

	if (!n || gm_sys_mprotect(dock.base + (dock.nr_ready << GM_PAGE_SHIFT),
				  n << GM_PAGE_SHIFT, PROT_READ | PROT_WRITE))
		return -ENOMEM;
	for (i = dock.nr_ready; i < dock.nr_ready + n; i++) {
		dock.pages[i].addr = dock.base + (i << GM_PAGE_SHIFT);
		dock.vacant[i / WORD_BITS] |= 1ULL << (i % WORD_BITS);
	}
	dock.hint = dock.nr_ready / WORD_BITS;
	dock.nr_ready += n;
	return 0;
}

/* The lowest bit that starts a run of @n ones in @word, or -1. */
static int find_run(uint64_t word, unsigned int n)
{
	uint64_t starts = word;
	unsigned int i;

	for (i = 1; i < n && starts; i++)
		starts &= word >> i;
	return starts ? __builtin_ctzll(starts) : -1;
}

/* A fresh struct gm_page for the core; only @addr and @vacant mean anything. */
static struct gm_page *hand_out(uint64_t slot, uint8_t vacant)
{
	struct gm_page *page = &dock.pages[slot];
	uint64_t addr = page->addr;
	int16_t nid = page->nid;

	memset(page, 0, sizeof(*page));
	page->addr = addr;
	page->nid = nid;
	page->list = GM_PAGE_NOWHERE;
	page->vacant = vacant;
	return page;
}

static void put_vacant_locked(uint64_t slot)
{
	dock.vacant[slot / WORD_BITS] |= 1ULL << (slot % WORD_BITS);
	dock.hint = GM_MIN(dock.hint, slot / WORD_BITS);
}

/* @n neighbours. */
static int take_run_locked(struct gm_page **slots, unsigned int n)
{
	uint64_t words = (dock.nr_ready + WORD_BITS - 1) / WORD_BITS;
	uint64_t w, mask;
	unsigned int i;
	int bit;

	for (w = dock.hint; w < words; w++) {
		bit = find_run(dock.vacant[w], n);
		if (bit < 0)
			continue;
		mask = (n == WORD_BITS ? ~0ULL : (1ULL << n) - 1) << bit;
		dock.vacant[w] &= ~mask;
		for (i = 0; i < n; i++)
			slots[i] = hand_out(
				w * WORD_BITS + (unsigned int)bit + i, 1);
		if (n == 1)
			dock.hint = w;
		return 0;
	}
	return -ENOMEM;
}

/* Neighbours from below; then neighbours in new room; then what there is. */
static int take_slots_locked(struct gm_page **slots, unsigned int n)
{
	unsigned int i;

	if (take_run_locked(slots, n) == 0)
		return 0;
	if (grow_locked() == 0 && take_run_locked(slots, n) == 0)
		return 0;
	dock.hint = 0;
	for (i = 0; i < n && take_run_locked(&slots[i], 1) == 0; i++)
		;
	if (i == n)
		return 0;
	while (i-- > 0)
		put_vacant_locked(slot_of(slots[i]));
	return -ENOMEM;
}

int gm_host_slots_get(struct gm_as *as, struct gm_page **slots, unsigned int n)
{
	struct gm_page *got[GM_BATCH];
	int rc;

	gm_assert_below(GM_RANK_ENTRY);
	gm_lock(&dock.lock, GM_RANK_POOL);
	rc = take_slots_locked(got, n);
	gm_unlock(&dock.lock, GM_RANK_POOL);
	if (rc)
		return gm_host_error(rc, "no room for pages at rest");
	memcpy(slots, got, n * sizeof(*slots));
	return 0;
}

/* --- slots with memory -------------------------------------------------- */

static struct gm_page *take_kind_locked(int nid, int kind)
{
	struct pool *pool = &dock.pools[nid];
	struct gm_list *link = list_pop(&pool->lists[kind]);

	if (!link)
		return NULL;
	pool->nr[kind]--;
	dock.nr_free--;
	dock.nr_zeroed -= kind == ZEROED;
	return hand_out(slot_of(gm_page_of(link)), 0);
}

static void put_kind_locked(struct gm_page *page, int kind)
{
	struct pool *pool = &dock.pools[page->nid];

	list_push(&pool->lists[kind], &page->link);
	pool->nr[kind]++;
	dock.nr_free++;
	dock.nr_zeroed += kind == ZEROED;
}

/* *@zeroed: wanted, if possible; then: is it? */
static struct gm_page *take_page_locked(int nid, bool *zeroed, bool reserve)
{
	struct gm_page *page;
	int first = *zeroed ? ZEROED : DIRTY;

	if (dock.nr_free <= (reserve ? 0 : GM_RESERVE_FRAMES))
		return NULL;
	page = take_kind_locked(nid, first);
	*zeroed = page ? first == ZEROED : first == DIRTY;
	return page ? page : take_kind_locked(nid, !first);
}

static bool keeper_needed_locked(void)
{
	return dock.stale.next != &dock.stale ||
	       dock.nr_zeroed * 2 < dock.target ||
	       dock.nr_free > gm_user.recycle + dock.target;
}

static struct gm_page *fresh_page(int nid)
{
	struct gm_page *page;
	int rc;

	gm_lock(&dock.lock, GM_RANK_POOL);
	rc = take_slots_locked(&page, 1);
	gm_unlock(&dock.lock, GM_RANK_POOL);
	if (rc)
		return NULL;
	rc = gm_memory_populate(page->addr, GM_PAGE_SIZE, nid);
	if (rc) {
		gm_frames_discard(page);
		gm_host_page_put(NULL, page);
		return NULL;
	}
	page->nid = (int16_t)gm_memory_node_at(page->addr);
	page->vacant = 0;
	return page;
}

static struct gm_page *pool_page(int nid, bool *zeroed, bool reserve)
{
	struct gm_page *page;
	bool wake;

	gm_lock(&dock.lock, GM_RANK_POOL);
	page = take_page_locked(nid, zeroed, reserve);
	wake = keeper_needed_locked();
	gm_unlock(&dock.lock, GM_RANK_POOL);
	if (wake)
		gm_waitq_wake(&dock.work);
	return page;
}

static int this_node(int nid)
{
	unsigned int cpu, node = 0;

	if (gm_user.nr_nodes == 1)
		return 0;
	if (nid >= 0 && nid < gm_user.nr_nodes)
		return nid;
	syscall(SYS_getcpu, &cpu, &node, NULL);
	return node < (unsigned int)gm_user.nr_nodes ? (int)node : 0;
}

int gm_host_page_get(struct gm_as *as, int nid, unsigned int flags,
		     struct gm_page **out)
{
	bool want = flags & GM_HOST_ZEROED, zeroed = want;
	struct gm_page *page;
	int i;

	gm_assert_below(GM_RANK_ENTRY);
	nid = this_node(nid);
	page = pool_page(nid, &zeroed, false);
	if (!page) {
		zeroed = true;
		page = fresh_page(nid);
	}
	/* Linux has none: any that we have, those of the reserve last. */
	for (i = 0; !page && i < gm_user.nr_nodes; i++) {
		zeroed = want;
		page = pool_page(i, &zeroed, flags & GM_HOST_RESERVE);
	}
	if (!page)
		return gm_host_error(-ENOMEM, "no host memory for a page");
	if (want && !zeroed)
		gm_host_zero((void *)page->addr, GM_PAGE_SIZE);
	*out = page;
	return 0;
}

struct gm_page *gm_frames_try_get(bool zeroed)
{
	bool is = zeroed;
	struct gm_page *page = pool_page(this_node(GM_NODE_NONE), &is, false);

	if (!page) {
		is = true;
		page = fresh_page(GM_NODE_NONE);
	}
	if (page && zeroed && !is)
		gm_host_zero((void *)page->addr, GM_PAGE_SIZE);
	return page;
}

void gm_host_page_put(struct gm_as *as, struct gm_page *page)
{
	bool wake;

	gm_lock(&dock.lock, GM_RANK_POOL);
	if (page->vacant)
		put_vacant_locked(slot_of(page));
	else if (gm_user.recycle)
		put_kind_locked(page, DIRTY);
	else
		list_push(&dock.stale, &page->link);
	wake = keeper_needed_locked();
	gm_unlock(&dock.lock, GM_RANK_POOL);
	if (wake)
		gm_waitq_wake(&dock.work);
}

void *gm_host_page_ptr(const struct gm_page *page)
{
	return (void *)page->addr;
}

/* Empty a slot, page table included. It is vacant then. */
void gm_frames_discard(struct gm_page *page)
{
	if (gm_sys_madvise(page->addr, GM_PAGE_SIZE, MADV_DONTNEED_LOCKED))
		gm_sys_madvise(page->addr, GM_PAGE_SIZE, MADV_DONTNEED);
	page->vacant = 1;
}

/* --- the keeper --------------------------------------------------------- */

/* Give one page back to Linux, if there is one too many. */
static bool trim(void)
{
	struct gm_page *page = NULL;
	struct gm_list *link;
	int nid;

	gm_lock(&dock.lock, GM_RANK_POOL);
	link = list_pop(&dock.stale);
	if (link)
		page = gm_page_of(link);
	for (nid = 0; !page && nid < gm_user.nr_nodes; nid++) {
		if (dock.nr_free > gm_user.recycle + dock.target)
			page = take_kind_locked(nid, DIRTY);
	}
	gm_unlock(&dock.lock, GM_RANK_POOL);
	if (!page)
		return false;
	gm_frames_discard(page);
	gm_host_page_put(NULL, page);
	return true;
}

/* Make one more zeroed page, if there are too few. */
static bool refill(void)
{
	struct gm_page *page = NULL;
	int nid;

	gm_lock(&dock.lock, GM_RANK_POOL);
	if (dock.nr_zeroed >= dock.target) {
		gm_unlock(&dock.lock, GM_RANK_POOL);
		return false;
	}
	for (nid = 0; !page && nid < gm_user.nr_nodes; nid++)
		page = take_kind_locked(nid, DIRTY);
	gm_unlock(&dock.lock, GM_RANK_POOL);
	if (page)
		gm_host_zero((void *)page->addr, GM_PAGE_SIZE);
	else
		page = fresh_page(GM_NODE_NONE);
	if (!page)
		return false;
	gm_lock(&dock.lock, GM_RANK_POOL);
	put_kind_locked(page, ZEROED);
	gm_unlock(&dock.lock, GM_RANK_POOL);
	return true;
}

void gm_frames_keeper(struct gm_thread *self)
{
	uint32_t seen;

	for (;;) {
		seen = gm_waitq_read(&dock.work);
		while (!gm_threads_stopping() && (trim() || refill()))
			;
		if (gm_threads_stopping())
			return;
		gm_waitq_wait(&dock.work, seen);
	}
}

void gm_frames_ring(void)
{
	gm_waitq_wake(&dock.work);
}

/* Fill the reserve before there is anybody who may need it. */
int gm_frames_reserve(void)
{
	struct gm_page *page;
	uint64_t have;

	for (;;) {
		gm_lock(&dock.lock, GM_RANK_POOL);
		have = dock.nr_free;
		gm_unlock(&dock.lock, GM_RANK_POOL);
		if (have >= GM_RESERVE_FRAMES)
			return 0;
		page = fresh_page(GM_NODE_NONE);
		if (!page)
			return gm_host_error(-ENOMEM, "no host memory for the "
						      "reserve of eviction");
		gm_lock(&dock.lock, GM_RANK_POOL);
		put_kind_locked(page, ZEROED);
		gm_unlock(&dock.lock, GM_RANK_POOL);
	}
}
