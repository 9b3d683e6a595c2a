/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * directory.c - the logical mapping: one entry a virtual page, and its copies
 *
 * The directory of a cache-coherence protocol of the MSI kind, with pages for
 * lines: the paper's logical mapping is the special case without Shared.
 * Looking an entry up takes no lock; leaves are made when first touched and
 * stay as long as the directory.
 */
#include "core/internal.h"

static size_t dir_size(uint64_t nr_slots)
{
	uint64_t leaves = (nr_slots + GM_LEAF_ENTRIES - 1) / GM_LEAF_ENTRIES;

	return sizeof(struct gm_dir) + leaves * sizeof(struct gm_leaf *);
}

struct gm_dir *gm_dir_create(struct gm_as *as, uint64_t nr_slots,
			     unsigned int prot, enum gm_page_state fresh)
{
	struct gm_dir *dir = gm_host_zalloc(dir_size(nr_slots));

	if (!dir)
		return NULL;
	dir->refs = 1;
	dir->as = as;
	dir->nr_slots = nr_slots;
	dir->fresh = fresh;
	dir->prot = prot;
	return dir;
}

void gm_dir_get(struct gm_dir *dir)
{
	gm_add(&dir->refs, 1);
}

void gm_dir_put(struct gm_dir *dir)
{
	uint64_t i;

	if (gm_add(&dir->refs, -1) != 1)
		return;
	for (i = 0; i * GM_LEAF_ENTRIES < dir->nr_slots; i++)
		gm_host_zfree(dir->leaves[i], sizeof(struct gm_leaf));
	gm_host_zfree(dir, dir_size(dir->nr_slots));
}

static struct gm_leaf *leaf_make(struct gm_dir *dir, struct gm_leaf **where)
{
	struct gm_leaf *leaf = gm_host_zalloc(sizeof(*leaf));
	struct gm_leaf *other = NULL;
	unsigned int i;

	if (!leaf)
		return NULL;
	for (i = 0; i < GM_LEAF_ENTRIES; i++)
		leaf->entries[i].state = dir->fresh;
	if (__atomic_compare_exchange_n(where, &other, leaf, 0,
					__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return leaf;
	gm_host_zfree(leaf, sizeof(*leaf));
	return other;
}

struct gm_entry *gm_dir_peek(struct gm_dir *dir, uint64_t slot)
{
	struct gm_leaf *leaf;

	GM_BUG_ON(slot >= dir->nr_slots);
	leaf = gm_load(&dir->leaves[slot / GM_LEAF_ENTRIES]);
	return leaf ? &leaf->entries[slot % GM_LEAF_ENTRIES] : NULL;
}

struct gm_entry *gm_dir_entry(struct gm_dir *dir, uint64_t slot)
{
	struct gm_leaf **where, *leaf;

	GM_BUG_ON(slot >= dir->nr_slots);
	where = &dir->leaves[slot / GM_LEAF_ENTRIES];
	leaf = gm_load(where);
	if (!leaf)
		leaf = leaf_make(dir, where);
	return leaf ? &leaf->entries[slot % GM_LEAF_ENTRIES] : NULL;
}

unsigned int gm_entry_prot(const struct gm_dir *dir, const struct gm_entry *e)
{
	unsigned int own = gm_load(&e->prot);

	if (own & GM_ENTRY_OWN_PROT)
		return own & ~GM_ENTRY_OWN_PROT;
	return gm_load(&dir->prot);
}

struct gm_page *gm_entry_host_copy(const struct gm_entry *e)
{
	return gm_entry_ctx_copy(e, 0);
}

struct gm_page *gm_entry_ctx_copy(const struct gm_entry *e, unsigned int ctx)
{
	struct gm_page *page;

	for (page = e->copies; page; page = page->next)
		if (page->ctx == ctx)
			return page;
	return NULL;
}

/*
 * A page that two processors take from each other stays with each for a
 * while, or neither would get anything done. The time doubles while they go
 * on, and so does what each gets done between two moves.
 */
#define RESIDENCE_NS 100000
#define RESIDENCE_STEPS 7 /* 100 us << 7 is over the most, 10 ms */
#define RESIDENCE_MAX_NS 10000000

uint64_t gm_entry_resident_until(const struct gm_entry *e)
{
	uint64_t at = gm_load(&e->mapped_at);
	uint64_t ns = (uint64_t)RESIDENCE_NS << gm_load(&e->pingpong);

	return at ? at + GM_MIN(ns, (uint64_t)RESIDENCE_MAX_NS) : 0;
}

uint64_t gm_entry_claim_locked(struct gm_entry *e)
{
	uint64_t now = gm_host_now(), until = gm_entry_resident_until(e);
	int steps = e->pingpong;

	gm_assert_held(&e->lock, GM_RANK_ENTRY);
	/* Wanted as soon as its time is over, or before: it is fought for. */
	if (until && now < until + (until - e->mapped_at))
		steps = GM_MIN(steps + 1, RESIDENCE_STEPS);
	else
		steps = GM_MAX(steps - 1, 0);
	gm_store(&e->pingpong, steps);
	return until;
}

void gm_entry_got_locked(struct gm_entry *e, unsigned int who, int hint)
{
	gm_assert_held(&e->lock, GM_RANK_ENTRY);
	gm_store(&e->holder, who);
	gm_store(&e->mapped_at, hint ? 0 : gm_host_now());
	e->faults++;
}

int gm_entry_on_cpu(const struct gm_entry *e)
{
	return e->state == GM_STATE_UNTRACKED ||
	       (e->state == GM_STATE_MODIFIED && !e->copies);
}

/*
 * An XPU's page joins the active list of its node. A host copy does so only
 * while it is a replica: then, and only then, it may be dropped.
 */
static void page_join(struct gm_node *node, struct gm_page *page)
{
	if (page->list == GM_PAGE_NOWHERE) {
		page->list = GM_PAGE_ACTIVE;
		gm_list_add_tail(&node->active, &page->link);
		node->nr_active++;
		if (node->dev)
			node->nr_hand--;
	}
}

static void page_leave(struct gm_node *node, struct gm_page *page)
{
	if (page->list != GM_PAGE_ACTIVE)
		return;
	gm_list_del(&page->link);
	page->list = GM_PAGE_NOWHERE;
	node->nr_active--;
	if (node->dev)
		node->nr_hand++;
	if (page->flags & GM_PAGE_WIRED)
		node->nr_wired--;
	page->flags &= ~(GM_PAGE_WIRED | GM_PAGE_PREFERRED);
}

/* The host's copy is a replica if there are others. */
static void host_copy_settle(struct gm_entry *e)
{
	struct gm_page *page = gm_entry_host_copy(e);
	struct gm_node *node;

	if (!page)
		return;
	node = gm_page_node(page);
	gm_lock(&node->lock, GM_RANK_NODE);
	if (e->state == GM_STATE_SHARED)
		page_join(node, page);
	else
		page_leave(node, page);
	gm_unlock(&node->lock, GM_RANK_NODE);
}

static void entry_count_copies(struct gm_entry *e)
{
	if (e->state != GM_STATE_FRAGMENTED)
		gm_store(&e->state, e->copies && e->copies->next
					    ? GM_STATE_SHARED
					    : GM_STATE_MODIFIED);
	host_copy_settle(e);
}

void gm_entry_add_locked(struct gm_dir *dir, struct gm_entry *e,
			 struct gm_page *page, uint64_t va)
{
	struct gm_node *node = gm_page_node(page);

	gm_assert_held(&e->lock, GM_RANK_ENTRY);
	GM_BUG_ON((page->entry && page->entry != e) || page->next);
	page->next = e->copies;
	page->va = va;
	e->copies = page;
	gm_lock(&node->lock, GM_RANK_NODE);
	gm_store(&page->entry, e);
	page->dir = dir;
	if (!gm_page_is_host(page))
		page_join(node, page);
	if (e->flags & GM_ENTRY_PREFERRED && e->node == page->nid)
		page->flags |= GM_PAGE_PREFERRED;
	if (e->flags & GM_ENTRY_PINNED && e->node == page->nid &&
	    !gm_page_is_host(page)) {
		page->flags |= GM_PAGE_WIRED;
		node->nr_wired++;
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
	gm_waitq_wake(&node->changed);
	entry_count_copies(e);
}

void gm_entry_remove_locked(struct gm_entry *e, struct gm_page *page)
{
	struct gm_node *node = gm_page_node(page);
	struct gm_page **link = &e->copies;

	gm_assert_held(&e->lock, GM_RANK_ENTRY);
	while (*link != page) {
		GM_BUG_ON(!*link);
		link = &(*link)->next;
	}
	*link = page->next;
	page->next = NULL;
	page->prot = 0;
	gm_lock(&node->lock, GM_RANK_NODE);
	page_leave(node, page);
	gm_store(&page->entry, NULL);
	page->dir = NULL;
	gm_unlock(&node->lock, GM_RANK_NODE);
	entry_count_copies(e);
}

static void page_owner(struct gm_page *page, struct gm_entry *e,
		       struct gm_dir *dir, uint64_t va)
{
	struct gm_node *node = gm_page_node(page);

	page->va = va;
	gm_lock(&node->lock, GM_RANK_NODE);
	gm_store(&page->entry, e);
	page->dir = dir;
	page->flags &= ~GM_PAGE_PREFERRED;
	if (e->flags & GM_ENTRY_PREFERRED && e->node == page->nid)
		page->flags |= GM_PAGE_PREFERRED;
	gm_unlock(&node->lock, GM_RANK_NODE);
}

/* At no time is one of the pages nobody's: whoever walks over them would pass
 * it by. */
void gm_entries_swap_locked(struct gm_entry *a, struct gm_entry *b)
{
	struct gm_page *pa = a->copies, *pb = b->copies;
	struct gm_dir *dir = pa->dir;
	uint64_t va = pa->va;

	gm_assert_held(&a->lock, GM_RANK_ENTRY);
	gm_assert_held(&b->lock, GM_RANK_ENTRY);
	GM_BUG_ON(pa->next || pb->next || pa->prot || pb->prot);
	a->copies = pb;
	b->copies = pa;
	page_owner(pa, b, pb->dir, pb->va);
	page_owner(pb, a, dir, va);
}

void gm_entry_set_locked(struct gm_entry *e, enum gm_page_state state)
{
	gm_assert_held(&e->lock, GM_RANK_ENTRY);
	GM_BUG_ON(e->copies);
	gm_store(&e->state, state);
}
