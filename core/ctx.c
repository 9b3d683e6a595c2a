/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ctx.c - XPU contexts take part in address spaces
 */
#include "core/internal.h"

/*
 * Like gm_ctx_get(), by whatever tells the device. Whether it may be used is
 * decided inside the read side: retire() waits for those that are in there, and
 * then for the users they have become.
 */
static struct gm_ctx *ctx_find(struct gm_as *as, const struct gm_dev *dev,
			       int nid)
{
	struct gm_ctx *ctx, *found = NULL;
	unsigned int i;

	gm_rcu_read_lock();
	for (i = 1; !found && i <= GM_MAX_CTX; i++) {
		ctx = gm_load(&as->ctxs[i]);
		if (ctx && (ctx->dev == dev || ctx->dev->node->nid == nid))
			found = ctx;
	}
	if (found && (gm_load(&found->dead) || !gm_dev_alive(found->dev)))
		found = NULL;
	if (found)
		gm_add(&found->users, 1);
	gm_rcu_read_unlock();
	return found;
}

struct gm_ctx *gm_ctx_get(struct gm_as *as, const struct gm_dev *dev)
{
	return ctx_find(as, dev, GM_NODE_NONE);
}

struct gm_ctx *gm_ctx_of_node(struct gm_as *as, int nid)
{
	return ctx_find(as, NULL, nid);
}

void gm_ctx_put(struct gm_ctx *ctx)
{
	struct gm_as *as = ctx->as;

	/* What this user has put on a device that died meanwhile, whoever gave
	 * up the device's pages may have passed already. */
	if (!gm_dev_alive(ctx->dev))
		gm_dev_unsettle(ctx->dev);
	/* With the last user gone, the context may be, too. */
	if (gm_add(&ctx->users, -1) == 1)
		gm_waitq_wake(&as->changed);
}

void gm_ctx_release_va(struct gm_ctx *ctx, uint64_t va, uint64_t len)
{
	if (ctx && ctx->dev->ops.va_release)
		ctx->dev->ops.va_release(ctx->pmap, va, len);
}

/* --- attach ------------------------------------------------------------ */

/* Let go of the first @n regions. as->lock is held. */
static void release_locked(struct gm_ctx *ctx, uint32_t n)
{
	const struct gm_region_table *t = ctx->as->table;

	while (n-- > 0)
		gm_ctx_release_va(ctx, t->regions[n]->start,
				  t->regions[n]->end - t->regions[n]->start);
}

/* Every region must be usable there. as->lock is held. */
static int examine_locked(struct gm_ctx *ctx)
{
	struct gm_region_table *t = ctx->as->table;
	const struct gm_region *r = NULL;
	uint32_t i;
	int err = 0;

	for (i = 0; t && !err && i < t->nr; i++) {
		r = t->regions[i];
		err = ctx->dev->ops.va_examine(ctx->pmap, r->start,
					       r->end - r->start);
		err = gm_dev_result(ctx->dev, err);
	}
	if (!err)
		return 0;
	release_locked(ctx, i - 1);
	if (err == -EADDRNOTAVAIL)
		err = -EADDRINUSE;
	return gm_host_error(err, "device %s refuses the range 0x%llx-0x%llx",
			     ctx->dev->name, (unsigned long long)r->start,
			     (unsigned long long)r->end);
}

/* The first XPU: from now on touches of what is away must be seen. */
static int track_locked(struct gm_as *as)
{
	struct gm_region_table *t = as->table;
	uint32_t i;
	int err = 0;

	for (i = 0; t && !err && i < t->nr && !as->nr_ctxs; i++) {
		const struct gm_region *r = t->regions[i];

		err = gm_host_range_track(as, r->start, r->end - r->start);
		/* The program has unmapped it while nobody watched. */
		if (err == -ENOENT)
			err = 0;
		if (err)
			gm_host_error(err,
				      "the host cannot watch 0x%llx-0x%llx "
				      "(%d)",
				      (unsigned long long)r->start,
				      (unsigned long long)r->end, err);
	}
	return err;
}

static int free_index_locked(struct gm_as *as, const struct gm_dev *dev)
{
	int i, free = -ENOSPC;

	for (i = GM_MAX_CTX; i > 0; i--) {
		if (!as->ctxs[i])
			free = i;
		else if (as->ctxs[i]->dev == dev)
			return gm_host_error(-EEXIST,
					     "device %s is attached to this "
					     "address space already",
					     dev->name);
	}
	if (free < 0)
		gm_host_error(free, "%d devices are attached already",
			      GM_MAX_CTX);
	return free;
}

static int attach_locked(struct gm_ctx *ctx)
{
	struct gm_as *as = ctx->as;
	int index = free_index_locked(as, ctx->dev), err;

	if (index < 0)
		return index;
	if (!gm_dev_alive(ctx->dev))
		return gm_host_error(-ENODEV, "device %s is lost",
				     ctx->dev->name);
	err = examine_locked(ctx);
	if (err)
		return err;
	err = track_locked(as);
	if (err) {
		release_locked(ctx, as->table ? as->table->nr : 0);
		return err;
	}
	ctx->index = index;
	gm_store(&as->ctxs[index], ctx);
	as->nr_ctxs++;
	ctx->dev->attached++;
	return 0;
}

int gm_as_attach(struct gm_as *as, struct gm_dev *dev, void *pmap)
{
	struct gm_ctx *ctx = gm_host_zalloc(sizeof(*ctx));
	int err;

	if (!ctx)
		return gm_host_error(-ENOMEM, "no memory for a context");
	ctx->as = as;
	ctx->dev = dev;
	ctx->pmap = pmap;
	gm_lock(&dev->lock, GM_RANK_DEV);
	gm_as_lock_quiet(as);
	err = attach_locked(ctx);
	gm_unlock(&as->lock, GM_RANK_AS);
	gm_unlock(&dev->lock, GM_RANK_DEV);
	if (err)
		gm_host_zfree(ctx, sizeof(*ctx));
	gm_machine_settle();
	return err;
}

/* --- detach, reset ----------------------------------------------------- */

/* No new user finds it, and the last one has gone. NULL if there is none. */
static struct gm_ctx *retire(struct gm_as *as, struct gm_dev *dev)
{
	struct gm_ctx *ctx = NULL;
	uint32_t seen;
	int i;

	gm_lock(&as->lock, GM_RANK_AS);
	for (i = 1; i <= GM_MAX_CTX; i++)
		if (as->ctxs[i] && as->ctxs[i]->dev == dev)
			ctx = as->ctxs[i];
	if (ctx && ctx->dead)
		ctx = NULL;
	if (ctx)
		gm_store(&ctx->dead, 1);
	gm_unlock(&as->lock, GM_RANK_AS);
	if (ctx)
		gm_rcu_synchronize();
	while (ctx) {
		seen = gm_waitq_read(&as->changed);
		if (!gm_load(&ctx->users))
			break;
		gm_waitq_wait(&as->changed, seen);
	}
	return ctx;
}

static void unlink_ctx(struct gm_ctx *ctx)
{
	struct gm_as *as = ctx->as;

	gm_as_lock_quiet(as);
	release_locked(ctx, as->table ? as->table->nr : 0);
	gm_store(&as->ctxs[ctx->index], NULL);
	as->nr_ctxs--;
	ctx->dev->attached--;
	gm_unlock(&as->lock, GM_RANK_AS);
}

int gm_as_detach(struct gm_as *as, struct gm_dev *dev)
{
	struct gm_leave leave = { .as = as, .on = GM_ON_DETACH, .forgive = 1 };
	struct gm_ctx *ctx = retire(as, dev);
	int err;

	if (!ctx)
		return gm_host_error(
			-ENOENT,
			"device %s is not attached to this address space",
			dev->name);
	gm_lock(&dev->lock, GM_RANK_DEV);
	leave.hopeless = gm_load(&dev->health) == GM_DEV_LOST;
	/* While there may be no memory for all, nothing is forgiven: the XPU
	 * would go on with pages that are somewhere else by then. */
	leave.skip = !leave.hopeless;
	err = gm_leave_all(dev->node, NULL, &leave);
	leave.skip = 0;
	if (!err)
		err = gm_leave_all(dev->node, NULL, &leave);
	if (err && leave.stale)
		gm_dev_died(dev, GM_DEV_DEAD);
	if (!err) {
		unlink_ctx(ctx);
		gm_node_unstick(dev->node, as);
	} else {
		gm_store(&ctx->dead, 0);
	}
	gm_unlock(&dev->lock, GM_RANK_DEV);
	if (!err) {
		gm_rcu_synchronize();
		gm_host_zfree(ctx, sizeof(*ctx));
	}
	gm_machine_settle();
	return err;
}

static int reset_page(struct gm_page *page, void *arg)
{
	struct gm_as *as = arg;

	if (page->dir->as != as)
		return 0;
	GM_COVER(page->entry->state, GM_ON_RESET);
	page->prot = 0;
	return 0;
}

int gm_as_reset(struct gm_as *as, struct gm_dev *dev)
{
	const struct gm_walk walk = { NULL, reset_page, as };
	struct gm_ctx *ctx = gm_ctx_get(as, dev);

	if (!ctx)
		return gm_host_error(
			-ENOENT,
			"device %s is not attached to this address space",
			dev->name);
	gm_lock(&dev->lock, GM_RANK_DEV);
	gm_node_walk(dev->node, NULL, &walk);
	gm_node_unstick(dev->node, as);
	gm_unlock(&dev->lock, GM_RANK_DEV);
	gm_ctx_put(ctx);
	return 0;
}
