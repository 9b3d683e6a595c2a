/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * node.c - memories: page frames, and the lists that they are on
 *
 * An XPU's page is free, in use (active, in the LRU-FIFO order of the paper's
 * section 4.4: whatever maps it moves it to the recent end), or in the hands
 * of the thread that took it. A host place is listed only while it is a
 * replica, that is, while it can be dropped.
 */
#include "core/internal.h"

struct gm_machine gm_machine;

/* Rounds of reclaim without a victim until a node counts as full. */
#define GM_ALLOC_TRIES 8
/* And until those of others no longer count as a reason to wait. */
#define GM_ALLOC_ROUNDS 64

struct gm_node *gm_node_create(struct gm_dev *dev, int nid)
{
	struct gm_node *node = gm_host_zalloc(sizeof(*node));

	if (!node)
		return NULL;
	gm_list_init(&node->free);
	gm_list_init(&node->active);
	gm_list_init(&node->stuck);
	node->dev = dev;
	node->nid = nid;
	return node;
}

struct gm_node *gm_node_find(int nid)
{
	if (nid < 0 || nid >= GM_MAX_NODES)
		return NULL;
	return gm_load(&gm_machine.nodes[nid]);
}

struct gm_node *gm_page_node(const struct gm_page *page)
{
	return gm_machine.nodes[page->nid];
}

int gm_page_is_host(const struct gm_page *page)
{
	return page->nid < gm_machine.nr_host_nodes;
}

unsigned int gm_node_take(struct gm_node *node, struct gm_page **pages,
			  unsigned int n)
{
	unsigned int i;

	gm_lock(&node->lock, GM_RANK_NODE);
	for (i = 0; i < n && !gm_list_empty(&node->free); i++) {
		pages[i] = gm_container(node->free.next, struct gm_page, link);
		gm_list_del(&pages[i]->link);
		pages[i]->list = GM_PAGE_NOWHERE;
		node->nr_free--;
		node->nr_hand++;
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
	return i;
}

int gm_node_full(struct gm_node *node, unsigned int n)
{
	const uint64_t mb = GM_PAGE_SIZE;
	uint64_t free, active, wired;

	gm_lock(&node->lock, GM_RANK_NODE);
	free = node->nr_free;
	active = node->nr_active;
	wired = node->nr_wired;
	gm_unlock(&node->lock, GM_RANK_NODE);
	return gm_host_error(-ENOMEM,
			     "node %d (%s) is full: asked for %llu bytes, free "
			     "%llu, resident %llu, evictable %llu, wired %llu; "
			     "unpin memory, or give the XPU more",
			     node->nid, node->dev->name,
			     (unsigned long long)(n * mb),
			     (unsigned long long)(free * mb),
			     (unsigned long long)(active * mb),
			     (unsigned long long)((active - wired) * mb),
			     (unsigned long long)(wired * mb));
}

/* Pages that others evict, or have in hand, will soon be free or evictable. */
static int node_moving(struct gm_node *node)
{
	int moving;

	gm_lock(&node->lock, GM_RANK_NODE);
	moving = node->nr_busy || node->nr_hand || node->nr_free;
	gm_unlock(&node->lock, GM_RANK_NODE);
	return moving;
}

int gm_node_alloc(struct gm_node *node, struct gm_page **pages, unsigned int n,
		  int may_wait)
{
	unsigned int got, tries = 0, rounds = 0;

	for (;;) {
		uint32_t seen = gm_waitq_read(&node->changed);

		got = gm_node_take(node, pages, n);
		if (got || !may_wait)
			return got;
		if (gm_reclaim(node, GM_BATCH))
			continue;
		if (!gm_dev_alive(node->dev))
			return gm_host_error(-ENODEV, "device %s is lost",
					     node->dev->name);
		/* Two that find nothing to free see each other at it. */
		if (node_moving(node) && ++rounds < GM_ALLOC_ROUNDS)
			gm_waitq_wait(&node->changed, seen);
		else if (++tries > GM_ALLOC_TRIES)
			return gm_node_full(node, n);
	}
}

/* A page that has no data any more, onto the list where it belongs. */
static void page_free_locked(struct gm_node *node, struct gm_page *page)
{
	GM_BUG_ON(page->entry || page->list != GM_PAGE_NOWHERE);
	node->nr_hand--;
	page->dir = NULL;
	page->prot = 0;
	if (page->flags & GM_PAGE_LEAVING) {
		page->list = GM_PAGE_COLLECTED;
	} else {
		page->list = GM_PAGE_FREE;
		gm_list_add_head(&node->free, &page->link);
		node->nr_free++;
	}
}

void gm_page_free(struct gm_page *page)
{
	struct gm_node *node = gm_page_node(page);

	GM_BUG_ON(gm_page_is_host(page));
	gm_lock(&node->lock, GM_RANK_NODE);
	/* Not before its evictor has let go of it, who may not know yet. */
	if (page->flags & GM_PAGE_BUSY)
		page->flags |= GM_PAGE_GIVEN;
	else
		page_free_locked(node, page);
	gm_unlock(&node->lock, GM_RANK_NODE);
	gm_waitq_wake(&node->changed);
}

void gm_page_unbusy(struct gm_page *page)
{
	struct gm_node *node = gm_page_node(page);
	int given;

	gm_lock(&node->lock, GM_RANK_NODE);
	given = page->flags & GM_PAGE_GIVEN;
	page->flags &= ~(GM_PAGE_BUSY | GM_PAGE_GIVEN);
	node->nr_busy--;
	if (given)
		page_free_locked(node, page);
	gm_unlock(&node->lock, GM_RANK_NODE);
	gm_waitq_wake(&node->changed);
}

void gm_page_free_stuck(struct gm_page *page, struct gm_dir *dir)
{
	struct gm_node *node = gm_page_node(page);

	gm_dir_get(dir);
	gm_lock(&node->lock, GM_RANK_NODE);
	page->dir = dir;
	page->list = GM_PAGE_STUCK;
	gm_list_add_tail(&node->stuck, &page->link);
	node->nr_hand--;
	gm_unlock(&node->lock, GM_RANK_NODE);
}

/* One stuck page of that context, off the list; NULL if there is none. */
static struct gm_page *stuck_take(struct gm_node *node, const struct gm_as *as)
{
	struct gm_page *found = NULL;
	struct gm_list *pos, *tmp;

	gm_lock(&node->lock, GM_RANK_NODE);
	gm_list_for_each_safe (pos, tmp, &node->stuck) {
		struct gm_page *page = gm_container(pos, struct gm_page, link);

		if (page->dir->as != as)
			continue;
		gm_list_del(&page->link);
		page->list = GM_PAGE_NOWHERE;
		node->nr_hand++;
		found = page;
		break;
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
	return found;
}

void gm_node_unstick(struct gm_node *node, const struct gm_as *as)
{
	struct gm_page *page;

	while ((page = stuck_take(node, as))) {
		struct gm_dir *dir = page->dir;

		page->dir = NULL;
		gm_dir_put(dir);
		gm_page_free(page);
	}
}

void gm_page_intend(struct gm_page *page, struct gm_dir *dir,
		    struct gm_entry *e)
{
	struct gm_node *node = gm_page_node(page);

	gm_lock(&node->lock, GM_RANK_NODE);
	gm_store(&page->entry, e);
	page->dir = dir;
	gm_unlock(&node->lock, GM_RANK_NODE);
}

void gm_page_touch(struct gm_page *page)
{
	struct gm_node *node = gm_page_node(page);

	gm_lock(&node->lock, GM_RANK_NODE);
	if (page->list == GM_PAGE_ACTIVE) {
		gm_list_del(&page->link);
		gm_list_add_tail(&node->active, &page->link);
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
}

void gm_page_cool(struct gm_page *page)
{
	struct gm_node *node = gm_page_node(page);

	gm_lock(&node->lock, GM_RANK_NODE);
	if (page->list == GM_PAGE_ACTIVE) {
		gm_list_del(&page->link);
		gm_list_add_head(&node->active, &page->link);
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
}

void gm_page_wire(struct gm_page *page, int wired)
{
	struct gm_node *node = gm_page_node(page);
	int is;

	gm_lock(&node->lock, GM_RANK_NODE);
	is = !!(page->flags & GM_PAGE_WIRED);
	if (page->list == GM_PAGE_ACTIVE && is != !!wired) {
		page->flags ^= GM_PAGE_WIRED;
		node->nr_wired += wired ? 1 : -1;
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
	gm_waitq_wake(&node->changed);
}

void gm_page_prefer(struct gm_page *page, int preferred)
{
	struct gm_node *node = gm_page_node(page);

	gm_lock(&node->lock, GM_RANK_NODE);
	if (preferred)
		page->flags |= GM_PAGE_PREFERRED;
	else
		page->flags &= ~GM_PAGE_PREFERRED;
	gm_unlock(&node->lock, GM_RANK_NODE);
}

/* *@again: an exchange has given the page to another entry meanwhile. */
static int walk_once(struct gm_node *node, struct gm_page *page,
		     const struct gm_walk *walk, int *again)
{
	struct gm_entry *e, *now;
	struct gm_dir *dir;
	int err = 0;

	*again = 0;
	gm_lock(&node->lock, GM_RANK_NODE);
	e = page->entry;
	dir = page->dir;
	if (e)
		gm_dir_get(dir);
	gm_unlock(&node->lock, GM_RANK_NODE);
	if (!e)
		return 0;
	if (walk->before)
		walk->before(dir, walk->arg);
	gm_lock(&e->lock, GM_RANK_ENTRY);
	now = gm_load(&page->entry);
	if (now == e)
		err = walk->page(page, walk->arg);
	else
		*again = now != NULL;
	gm_unlock(&e->lock, GM_RANK_ENTRY);
	gm_dir_put(dir);
	return err;
}

static int walk_page(struct gm_node *node, struct gm_page *page,
		     const struct gm_walk *walk)
{
	int err, again;

	do {
		err = walk_once(node, page, walk, &again);
	} while (!err && again);
	return err;
}

int gm_node_walk(struct gm_node *node, const struct gm_physmem *only,
		 const struct gm_walk *walk)
{
	struct gm_list *pos, *tmp;
	int err = 0;

	gm_assert_held(&node->dev->lock, GM_RANK_DEV);
	gm_list_for_each_safe (pos, tmp, &node->dev->physmem) {
		struct gm_physmem *pm =
			gm_container(pos, struct gm_physmem, link);
		uint64_t i, n = gm_physmem_pages(pm);

		for (i = 0; !err && i < n && (!only || only == pm); i++)
			err = walk_page(node, &pm->pages[i], walk);
	}
	return err;
}
