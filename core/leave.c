/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * leave.c - pages leave a device for good
 *
 * When frames are taken back, a context is detached, or a device has died. The
 * dead take nothing with them but what was only there: other copies are used,
 * and where memory can still be read it is read. The rest becomes poison.
 */
#include "core/internal.h"

static void leave_refill(struct gm_dir *dir, void *arg)
{
	struct gm_leave *l = arg;

	if (l->host && l->host_as != dir->as) {
		gm_host_page_put(l->host_as, l->host);
		l->host = NULL;
	}
	if (l->host || l->hopeless || (l->as && l->as != dir->as))
		return;
	l->host_as = dir->as;
	if (gm_home_page_get(dir->as, GM_HOST_RESERVE, &l->host))
		l->host = NULL;
}

static void leave_done(struct gm_leave *l)
{
	if (l->host)
		gm_host_page_put(l->host_as, l->host);
}

/* Off its entry already. An XPU that lives and did not give up its mapping may
 * still use it, should the context stay after all. */
static void leave_free(struct gm_page *page, struct gm_dir *dir, int unmapped)
{
	if (unmapped || !gm_dev_alive(gm_page_node(page)->dev))
		gm_page_free(page);
	else
		gm_page_free_stuck(page, dir);
}

static void poison(struct gm_entry *e, struct gm_page *page)
{
	gm_count(gm_page_node(page), poisoned, 1);
	gm_entry_remove_locked(e, page);
	if (e->state == GM_STATE_FRAGMENTED)
		e->flags |= GM_ENTRY_CUT;
	gm_store(&e->state, GM_STATE_POISON);
	gm_store(&e->mapped_at, 0);
}

static int leave_page(struct gm_page *page, void *arg)
{
	struct gm_leave *l = arg;
	struct gm_entry *e = page->entry;
	struct gm_dir *dir = page->dir;
	int err, unmapped;

	if (l->as && dir->as != l->as)
		return 0;
	if (!l->as && !l->forgive && (page->flags & GM_PAGE_WIRED))
		return -EBUSY;
	GM_COVER(e->state, l->on);
	/* A context that is detached, or dead, no longer runs. */
	err = l->hopeless ? 0 : gm_page_unmap(page);
	unmapped = !err;
	if (err && l->skip)
		return 0;
	if (err && !l->forgive)
		return err;
	if (e->copies->next) {
		gm_entry_remove_locked(e, page);
	} else {
		if (!l->hopeless && !l->host)
			return -ENOMEM;
		err = l->hopeless ? -EIO : gm_evict_locked(page, &l->host);
		if (err && l->skip)
			return 0;
		if (err && !l->forgive)
			return err;
		if (err)
			poison(e, page);
	}
	if (!unmapped)
		l->stale = 1;
	leave_free(page, dir, unmapped);
	return 0;
}

int gm_leave_all(struct gm_node *node, const struct gm_physmem *pm,
		 struct gm_leave *l)
{
	const struct gm_walk walk = { leave_refill, leave_page, l };
	int err = gm_node_walk(node, pm, &walk);

	leave_done(l);
	l->host = NULL;
	return err;
}

/* Free pages go first, so that nobody gets them any more. */
static void collect_free(struct gm_node *node, struct gm_physmem *pm)
{
	uint64_t i;

	gm_lock(&node->lock, GM_RANK_NODE);
	for (i = 0; i < gm_physmem_pages(pm); i++) {
		struct gm_page *page = &pm->pages[i];

		page->flags |= GM_PAGE_LEAVING;
		if (page->list != GM_PAGE_FREE)
			continue;
		gm_list_del(&page->link);
		page->list = GM_PAGE_COLLECTED;
		node->nr_free--;
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
}

/* 1: all are; 0: some are in use; -EBUSY: an XPU may still use one, until its
 * context's reset or detach, which wait for the device's lock. */
static int collected(struct gm_node *node, struct gm_physmem *pm)
{
	uint64_t i, n = gm_physmem_pages(pm);
	int all = 1, stuck = 0;

	gm_lock(&node->lock, GM_RANK_NODE);
	for (i = 0; i < n; i++) {
		stuck |= pm->pages[i].list == GM_PAGE_STUCK;
		all &= pm->pages[i].list == GM_PAGE_COLLECTED &&
		       !(pm->pages[i].flags & GM_PAGE_BUSY);
	}
	if (all)
		node->nr_total -= n;
	gm_unlock(&node->lock, GM_RANK_NODE);
	return stuck ? -EBUSY : all;
}

int gm_dev_unregister_physmem(struct gm_dev *dev, uint64_t begin, uint64_t end)
{
	struct gm_leave leave = { .on = GM_ON_EVICT };
	struct gm_node *node = dev->node;
	struct gm_physmem *pm;
	int err, all = 0;

	gm_lock(&dev->lock, GM_RANK_DEV);
	pm = gm_physmem_find(dev, begin, end);
	if (!pm || pm->begin != begin || pm->end != end) {
		gm_unlock(&dev->lock, GM_RANK_DEV);
		return gm_host_error(-ENOENT,
				     "frames 0x%llx to 0x%llx are not "
				     "registered as one range",
				     (unsigned long long)begin,
				     (unsigned long long)end);
	}
	leave.forgive = !gm_dev_alive(dev);
	leave.hopeless = gm_load(&dev->health) == GM_DEV_LOST;
	collect_free(node, pm);
	for (;;) {
		uint32_t seen = gm_waitq_read(&node->changed);

		err = gm_leave_all(node, pm, &leave);
		all = err ? 0 : collected(node, pm);
		err = err ? err : GM_MIN(all, 0);
		if (err || all)
			break;
		/* Some are in the hands of threads that will let go. */
		gm_waitq_wait(&node->changed, seen);
	}
	if (err)
		gm_physmem_release(node, pm, GM_PAGE_COLLECTED);
	else
		gm_list_del(&pm->link);
	gm_unlock(&dev->lock, GM_RANK_DEV);
	if (!err)
		gm_physmem_free(pm);
	else if (err == -EBUSY)
		gm_host_error(err, "a page of the range is wired, or a context "
				   "has not given it back");
	gm_machine_settle();
	return err;
}

static void settle(struct gm_dev *dev)
{
	struct gm_leave leave = { .on = GM_ON_LOST, .forgive = 1 };

	gm_lock(&dev->lock, GM_RANK_DEV);
	if (!gm_dev_alive(dev) && !gm_load(&dev->settled)) {
		gm_store(&dev->settled, 1);
		leave.hopeless = gm_load(&dev->health) == GM_DEV_LOST;
		/* Without host memory for it, it stays where it can be read. */
		if (gm_leave_all(dev->node, NULL, &leave))
			gm_dev_unsettle(dev);
	}
	gm_unlock(&dev->lock, GM_RANK_DEV);
}

/* The device of that number, if it is dead; it stays until it is unpinned. */
static struct gm_dev *dead_get(int i)
{
	struct gm_dev *dev;

	gm_lock(&gm_machine.lock, GM_RANK_MACHINE);
	dev = gm_machine.devs[i];
	if (dev && gm_dev_alive(dev))
		dev = NULL;
	if (dev)
		dev->pins++;
	gm_unlock(&gm_machine.lock, GM_RANK_MACHINE);
	return dev;
}

void gm_machine_settle(void)
{
	uint32_t seen = gm_load(&gm_machine.unsettled);
	struct gm_dev *dev;
	int i;

	if (!seen)
		return;
	__atomic_compare_exchange_n(&gm_machine.unsettled, &seen, 0, 0,
				    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	for (i = 0; i < GM_MAX_DEVS; i++) {
		dev = dead_get(i);
		if (!dev)
			continue;
		settle(dev);
		gm_lock(&gm_machine.lock, GM_RANK_MACHINE);
		dev->pins--;
		gm_waitq_wake(&dev->node->changed);
		gm_unlock(&gm_machine.lock, GM_RANK_MACHINE);
	}
}

void gm_dev_lost(struct gm_dev *dev)
{
	gm_dev_died(dev, GM_DEV_LOST);
	gm_machine_settle();
}
