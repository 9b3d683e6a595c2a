/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * as.c - address spaces: unified memory is made, unmapped, protected
 *
 * Addresses leave in this order: out of the table, so that nobody new finds
 * them; then each entry is locked, and what was under way has ended or sees
 * that its region is dead; then the program's own mapping goes. They are not
 * given out again before all that is done.
 */
#include "core/internal.h"

/* How often va_examine() may refuse, before there is no place. */
#define EXAMINE_TRIES 10

int gm_as_init(struct gm_as *as)
{
	gm_list_init(&as->dying);
	return 0;
}

void gm_as_exit(struct gm_as *as)
{
	unsigned int i;

	/* First the pages: a detach would want to bring them home. */
	while (gm_as_unmap(as, 0, ~GM_PAGE_MASK))
		gm_wait_for_memory();
	for (i = 1; i <= GM_MAX_CTX; i++)
		if (as->ctxs[i])
			gm_as_detach(as, as->ctxs[i]->dev);
	gm_host_zfree(as->table,
		      sizeof(*as->table) + (as->table ? as->table->room : 0) *
						   sizeof(struct gm_region *));
	as->table = NULL;
}

/* --- map --------------------------------------------------------------- */

/* Every XPU must be able to use the addresses. as->lock is held. */
static int examine_locked(struct gm_as *as, uint64_t va, uint64_t len)
{
	unsigned int i;
	int err = 0;

	for (i = 1; !err && i <= GM_MAX_CTX; i++) {
		struct gm_ctx *ctx = as->ctxs[i];

		if (ctx && gm_dev_alive(ctx->dev))
			err = gm_dev_result(
				ctx->dev,
				ctx->dev->ops.va_examine(ctx->pmap, va, len));
	}
	if (!err)
		return 0;
	/* The last one tried has refused; the others let go. */
	for (i -= 1; i-- > 1;)
		gm_ctx_release_va(as->ctxs[i], va, len);
	return err;
}

static void release_va(struct gm_as *as, uint64_t va, uint64_t len)
{
	unsigned int i;

	for (i = 1; i <= GM_MAX_CTX; i++)
		gm_ctx_release_va(as->ctxs[i], va, len);
}

/* Publish a new region. as->lock is held. */
static int region_add_locked(struct gm_as *as, uint64_t va, uint64_t len,
			     unsigned int prot, struct gm_table_change *change)
{
	struct gm_region *r = NULL;
	struct gm_dir *dir;
	int err = -ENOMEM;

	/* Nobody can have touched what has been watched since its birth. */
	dir = gm_dir_create(as, len >> GM_PAGE_SHIFT, prot,
			    as->nr_ctxs ? GM_STATE_EMPTY : GM_STATE_UNTRACKED);
	if (dir) {
		r = gm_region_create(va, va + len, dir, 0);
		gm_dir_put(dir);
	}
	if (r) {
		err = gm_table_change_locked(as, va, va, &r, 1, change);
		gm_region_put(r);
	}
	if (err)
		gm_host_error(err, "no memory for the region table");
	return err;
}

/* Find a place that everyone accepts. as->lock is held. */
static int place_locked(struct gm_as *as, uint64_t hint, uint64_t len,
			unsigned int prot, unsigned int flags, uint64_t *va)
{
	uint64_t refused[EXAMINE_TRIES];
	unsigned int n = 0;
	int err;

	if (!(flags & GM_RANGE_FIXED) && gm_as_taken(as, hint, len))
		hint = 0;
	for (;;) {
		err = gm_host_range_map(as, hint, len, prot, flags, va);
		if (err) {
			gm_host_error(err,
				      "no range of %llu bytes of addresses "
				      "could be had (%d)",
				      (unsigned long long)len, err);
			break;
		}
		GM_BUG_ON(gm_as_taken(as, *va, len));
		err = examine_locked(as, *va, len);
		if (!err)
			break;
		/* It stays mapped for now, so that another one is tried. */
		refused[n++] = *va;
		hint = 0;
		if (n == EXAMINE_TRIES || (flags & GM_RANGE_FIXED)) {
			err = gm_host_error(
				-ENOMEM,
				"%u address ranges of %llu bytes were tried, "
				"and an XPU refused each, the last at 0x%llx",
				n, (unsigned long long)len,
				(unsigned long long)*va);
			break;
		}
	}
	while (n-- > 0)
		gm_host_range_unmap(as, refused[n], len);
	return err;
}

/* A fixed place must be free first: of regions, and of their remains. */
static int clear_place(struct gm_as *as, uint64_t va, uint64_t len,
		       unsigned int flags)
{
	uint32_t seen;
	int dying, err = 0;

	while (!err && (flags & GM_RANGE_FIXED)) {
		seen = gm_waitq_read(&as->changed);
		gm_lock(&as->lock, GM_RANK_AS);
		dying = gm_region_dying_locked(as, va, len);
		gm_unlock(&as->lock, GM_RANK_AS);
		if (dying)
			gm_waitq_wait(&as->changed, seen);
		else if (!gm_as_overlaps(as, va, len))
			return 0;
		else if (flags & GM_RANGE_NOREPLACE)
			return gm_host_error(-EEXIST,
					     "0x%llx is unified memory already",
					     (unsigned long long)va);
		else
			err = gm_as_unmap(as, va, len);
	}
	return err;
}

int gm_as_map(struct gm_as *as, uint64_t hint, uint64_t len, unsigned int prot,
	      unsigned int range_flags, uint64_t *va)
{
	struct gm_table_change change = { 0 };
	int err;

	do {
		err = clear_place(as, hint, len, range_flags);
		if (err)
			return err;
		gm_lock(&as->lock, GM_RANK_AS);
		if ((range_flags & GM_RANGE_FIXED) &&
		    gm_as_taken(as, hint, len)) {
			err = -EAGAIN;
		} else {
			if (as->nr_ctxs)
				range_flags |= GM_RANGE_TRACKED;
			err = place_locked(as, hint, len, prot, range_flags,
					   va);
		}
		if (!err) {
			err = region_add_locked(as, *va, len, prot, &change);
			if (err) {
				release_va(as, *va, len);
				gm_host_range_unmap(as, *va, len);
			}
		}
		gm_unlock(&as->lock, GM_RANK_AS);
	} while (err == -EAGAIN);
	if (!err)
		gm_table_settle(as, &change);
	gm_machine_settle();
	return err;
}

/* --- unmap ------------------------------------------------------------- */

/* Free what a window that left the table holds; skip what nobody touched. */
static void tear_down(struct gm_region *w)
{
	uint64_t slot, last = w->first + ((w->end - w->start) >> GM_PAGE_SHIFT);

	for (slot = w->first; slot < last; slot++) {
		struct gm_entry *e = gm_dir_peek(w->dir, slot);

		if (!e) {
			slot |= GM_LEAF_ENTRIES - 1;
			continue;
		}
		gm_lock(&e->lock, GM_RANK_ENTRY);
		GM_COVER(e->state, GM_ON_UNMAP);
		gm_entry_drop_locked(w->dir, e, 1);
		gm_unlock(&e->lock, GM_RANK_ENTRY);
	}
}

#define MEMORY_WAIT_NS 1000000

void gm_wait_for_memory(void)
{
	gm_host_sleep_until(gm_host_now() + MEMORY_WAIT_NS);
}

int gm_region_remove(struct gm_as *as, uint64_t start, uint64_t end, int unmap)
{
	struct gm_table_change change;
	struct gm_region *w;
	int err;

	if (start >= end || !gm_as_overlaps(as, start, end - start))
		return 0;
	gm_lock(&as->lock, GM_RANK_AS);
	err = gm_table_change_locked(as, start, end, NULL, 0, &change);
	gm_unlock(&as->lock, GM_RANK_AS);
	if (err)
		return gm_host_error(err, "no memory for the region table");
	gm_table_settle(as, &change);
	for (w = change.gone; w; w = w->next_gone) {
		tear_down(w);
		release_va(as, w->start, w->end - w->start);
		if (unmap)
			gm_host_range_unmap(as, w->start, w->end - w->start);
	}
	gm_table_done(as, &change);
	return 0;
}

/* The page that is cut at @at, if it is; its remains go when all is gone. */
static int cut_page(struct gm_as *as, uint64_t at, int unmap)
{
	uint64_t va = at & ~GM_PAGE_MASK;
	struct gm_region *r;
	int64_t left;
	int err;

	if (at == va)
		return 0;
	r = gm_region_lookup(as, va);
	if (!r)
		return 0;
	/* What has happened must be written down, sooner or later. */
	while (!unmap && !gm_dir_entry(r->dir, gm_region_slot(r, va)))
		gm_wait_for_memory();
	left = gm_page_cut(r, va);
	gm_region_put(r);
	if (left)
		return left < 0 ? (int)left : 0;
	do {
		err = gm_region_remove(as, va, va + GM_PAGE_SIZE, unmap);
		if (!err || unmap)
			return err;
		gm_wait_for_memory();
	} while (1);
}

static int cut_ends(struct gm_as *as, uint64_t va, uint64_t end, int unmap)
{
	int one_page = (va & ~GM_PAGE_MASK) == (end & ~GM_PAGE_MASK);
	int err = cut_page(as, va, unmap), end_err = 0;

	/* What the program has cut is cut, whatever became of the other end. */
	if ((!err || !unmap) && !(one_page && (va & GM_PAGE_MASK)))
		end_err = cut_page(as, end, unmap);
	return err ? err : end_err;
}

/* Part of a page; what is no unified memory is none of our business. */
static void unmap_part(struct gm_as *as, uint64_t va, uint64_t end)
{
	if (va < end && gm_as_overlaps(as, va, end - va))
		gm_host_range_unmap(as, va, end - va);
}

int gm_as_unmap(struct gm_as *as, uint64_t va, uint64_t len)
{
	uint64_t end = va + len;
	uint64_t start = (va + GM_PAGE_MASK) & ~GM_PAGE_MASK;
	int err;

	/* While all of it is mapped, the data of cut pages has its place. */
	err = cut_ends(as, va, end, 1);
	if (!err)
		err = gm_region_remove(as, start, end & ~GM_PAGE_MASK, 1);
	if (!err) {
		unmap_part(as, va, GM_MIN(start, end));
		unmap_part(as, GM_MAX(start, end & ~GM_PAGE_MASK), end);
		err = cut_ends(as, va, end, 1);
	}
	gm_machine_settle();
	return err;
}

void gm_as_unmapped(struct gm_as *as, uint64_t va, uint64_t len)
{
	uint64_t end = va + len;
	uint64_t start = (va + GM_PAGE_MASK) & ~GM_PAGE_MASK;

	/* The range is gone whatever happens: there is nobody to tell. */
	while (gm_region_remove(as, start, end & ~GM_PAGE_MASK, 0))
		gm_wait_for_memory();
	cut_ends(as, va, end, 0);
	gm_machine_settle();
}
