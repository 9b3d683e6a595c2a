/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * dev.c - devices and their frames
 */
#include "core/internal.h"

/* --- create, destroy --------------------------------------------------- */

static int ops_check(const struct gm_dev_ops *ops)
{
	const char *missing = NULL;

	if (ops->version != GM_DEV_OPS_VERSION ||
	    ops->size < sizeof(struct gm_dev_ops))
		return gm_host_error(
			-EINVAL,
			"operators of version %u and size %u: this manager "
			"wants version %u and at least %u bytes",
			ops->version, ops->size, GM_DEV_OPS_VERSION,
			(unsigned int)sizeof(struct gm_dev_ops));
	if (!ops->va_examine)
		missing = "va_examine";
	else if (!ops->pmap_enter)
		missing = "pmap_enter";
	else if (!ops->pmap_clear)
		missing = "pmap_clear";
	else if (!ops->memcpy)
		missing = "memcpy";
	else if (!ops->zero)
		missing = "zero";
	if (missing)
		return gm_host_error(-EINVAL, "the operator %s is missing",
				     missing);
	return 0;
}

static int name_set(struct gm_dev *dev, const char *name)
{
	unsigned int i;

	for (i = 0; name && name[i] && i < sizeof(dev->name) - 1; i++)
		dev->name[i] = name[i];
	if (!i || name[i])
		return gm_host_error(-EINVAL,
				     "a device's name has 1 to %u bytes",
				     (unsigned int)sizeof(dev->name) - 1);
	return 0;
}

/* A free number in each table. gm_machine.lock is held. */
static int machine_add_locked(struct gm_dev *dev)
{
	int i, nid;

	for (i = 0; i < GM_MAX_DEVS && gm_machine.devs[i]; i++)
		;
	for (nid = gm_machine.nr_host_nodes;
	     nid < GM_MAX_NODES && gm_machine.nodes[nid]; nid++)
		;
	if (i == GM_MAX_DEVS || nid == GM_MAX_NODES)
		return gm_host_error(-ENOSPC, "there are %d devices already",
				     GM_MAX_DEVS);
	dev->node->nid = nid;
	gm_machine.devs[i] = dev;
	gm_store(&gm_machine.nodes[nid], dev->node);
	return 0;
}

int gm_dev_create(const struct gm_dev_ops *ops, void *data, const char *name,
		  unsigned int caps, struct gm_dev **out)
{
	struct gm_dev *dev;
	int err;

	if (!ops || !out)
		return gm_host_error(-EINVAL, "no operators, or no place for "
					      "the device");
	err = ops_check(ops);
	if (err)
		return err;
	dev = gm_host_zalloc(sizeof(*dev));
	if (!dev)
		return gm_host_error(-ENOMEM, "no memory for a device");
	dev->ops = *ops;
	dev->data = data;
	dev->caps = caps;
	gm_list_init(&dev->physmem);
	dev->node = gm_node_create(dev, GM_NODE_NONE);
	err = dev->node ? name_set(dev, name)
			: gm_host_error(-ENOMEM, "no memory for a node");
	if (!err) {
		gm_lock(&gm_machine.lock, GM_RANK_MACHINE);
		err = machine_add_locked(dev);
		gm_unlock(&gm_machine.lock, GM_RANK_MACHINE);
	}
	if (err) {
		gm_host_zfree(dev->node, sizeof(*dev->node));
		gm_host_zfree(dev, sizeof(*dev));
		return err;
	}
	*out = dev;
	return 0;
}

/* Take the machine lock when nobody settles the device. */
static void lock_unpinned(struct gm_dev *dev)
{
	for (;;) {
		uint32_t seen = gm_waitq_read(&dev->node->changed);

		gm_lock(&gm_machine.lock, GM_RANK_MACHINE);
		if (!dev->pins)
			return;
		gm_unlock(&gm_machine.lock, GM_RANK_MACHINE);
		gm_waitq_wait(&dev->node->changed, seen);
	}
}

int gm_dev_destroy(struct gm_dev *dev)
{
	int i, busy;

	lock_unpinned(dev);
	gm_lock(&dev->lock, GM_RANK_DEV);
	busy = dev->attached || !gm_list_empty(&dev->physmem);
	gm_unlock(&dev->lock, GM_RANK_DEV);
	for (i = 0; !busy && i < GM_MAX_DEVS; i++)
		if (gm_machine.devs[i] == dev)
			gm_machine.devs[i] = NULL;
	if (!busy)
		gm_store(&gm_machine.nodes[dev->node->nid], NULL);
	gm_unlock(&gm_machine.lock, GM_RANK_MACHINE);
	if (busy)
		return gm_host_error(
			-EBUSY,
			"device %s is attached, or has memory registered",
			dev->name);
	gm_rcu_synchronize();
	gm_host_zfree(dev->node, sizeof(*dev->node));
	gm_host_zfree(dev, sizeof(*dev));
	return 0;
}

int gm_dev_node(const struct gm_dev *dev)
{
	return dev->node->nid;
}

int gm_dev_alive(const struct gm_dev *dev)
{
	return gm_load(&dev->health) == GM_DEV_WELL;
}

void gm_dev_unsettle(struct gm_dev *dev)
{
	gm_store(&dev->settled, 0);
	gm_add(&gm_machine.unsettled, 1);
}

void gm_dev_died(struct gm_dev *dev, enum gm_dev_health how)
{
	uint8_t was = __atomic_exchange_n(&dev->health, how, __ATOMIC_ACQ_REL);

	/* Worse things are not taken back. */
	if (was > how)
		gm_store(&dev->health, was);
	gm_dev_unsettle(dev);
	gm_waitq_wake(&dev->node->changed);
}

int gm_dev_result(struct gm_dev *dev, int err)
{
	if (!err)
		return 0;
	gm_count(dev->node, operator_errors, 1);
	if ((err == -ENODEV || err == -ETIMEDOUT) && gm_dev_alive(dev))
		gm_dev_died(dev, GM_DEV_DEAD);
	return gm_host_error(err, "device %s: an operator failed (%d)",
			     dev->name, err);
}

/* --- frames ------------------------------------------------------------ */

struct gm_physmem *gm_physmem_find(struct gm_dev *dev, uint64_t begin,
				   uint64_t end)
{
	struct gm_list *pos, *tmp;

	gm_list_for_each_safe (pos, tmp, &dev->physmem) {
		struct gm_physmem *pm =
			gm_container(pos, struct gm_physmem, link);

		if (pm->begin < end && begin < pm->end)
			return pm;
	}
	return NULL;
}

uint64_t gm_physmem_pages(const struct gm_physmem *pm)
{
	return (pm->end - pm->begin) >> GM_PAGE_SHIFT;
}

static struct gm_physmem *physmem_create(struct gm_dev *dev, uint64_t begin,
					 uint64_t end)
{
	struct gm_physmem *pm = gm_host_zalloc(sizeof(*pm));
	uint64_t i;

	if (!pm)
		return NULL;
	pm->begin = begin;
	pm->end = end;
	pm->pages =
		gm_host_zalloc(gm_physmem_pages(pm) * sizeof(struct gm_page));
	if (!pm->pages) {
		gm_host_zfree(pm, sizeof(*pm));
		return NULL;
	}
	for (i = 0; i < gm_physmem_pages(pm); i++) {
		pm->pages[i].addr = begin + (i << GM_PAGE_SHIFT);
		pm->pages[i].nid = dev->node->nid;
	}
	return pm;
}

void gm_physmem_free(struct gm_physmem *pm)
{
	gm_host_zfree(pm->pages, gm_physmem_pages(pm) * sizeof(struct gm_page));
	gm_host_zfree(pm, sizeof(*pm));
}

/* Its pages become free, from wherever collecting has put them. */
void gm_physmem_release(struct gm_node *node, struct gm_physmem *pm,
			enum gm_page_list from)
{
	uint64_t i;

	gm_lock(&node->lock, GM_RANK_NODE);
	for (i = 0; i < gm_physmem_pages(pm); i++) {
		struct gm_page *page = &pm->pages[i];

		page->flags &= ~GM_PAGE_LEAVING;
		if (page->list != from)
			continue;
		page->list = GM_PAGE_FREE;
		gm_list_add_tail(&node->free, &page->link);
		node->nr_free++;
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
	gm_waitq_wake(&node->changed);
}

int gm_dev_register_physmem(struct gm_dev *dev, uint64_t begin, uint64_t end)
{
	struct gm_node *node = dev->node;
	struct gm_physmem *pm;
	int err = 0;

	if (begin >= end || ((begin | end) & GM_PAGE_MASK))
		return gm_host_error(-EINVAL,
				     "frames 0x%llx to 0x%llx: not a range of "
				     "whole pages of %llu bytes",
				     (unsigned long long)begin,
				     (unsigned long long)end,
				     (unsigned long long)GM_PAGE_SIZE);
	pm = physmem_create(dev, begin, end);
	if (!pm)
		return gm_host_error(
			-ENOMEM, "no memory to describe %llu pages",
			(unsigned long long)((end - begin) >> GM_PAGE_SHIFT));
	gm_lock(&dev->lock, GM_RANK_DEV);
	if (gm_physmem_find(dev, begin, end)) {
		err = gm_host_error(
			-EEXIST,
			"frames 0x%llx to 0x%llx: some are registered already",
			(unsigned long long)begin, (unsigned long long)end);
	} else {
		gm_list_add_tail(&dev->physmem, &pm->link);
		gm_lock(&node->lock, GM_RANK_NODE);
		node->nr_total += gm_physmem_pages(pm);
		gm_unlock(&node->lock, GM_RANK_NODE);
		gm_physmem_release(node, pm, GM_PAGE_NOWHERE);
	}
	gm_unlock(&dev->lock, GM_RANK_DEV);
	if (err)
		gm_physmem_free(pm);
	return err;
}
