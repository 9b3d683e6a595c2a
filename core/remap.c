/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * remap.c - unified memory changes its addresses or its rights
 *
 * Moved pages keep their places on all nodes: the new region is a window on
 * the same directory, and only the mappings of XPUs at the old addresses go.
 */
#include "core/internal.h"

/* A mapping that a broken XPU does not give up is tried this often. */
#define TRIES 3

/* --- moving ------------------------------------------------------------ */

/* The XPUs' mappings of a window that has left, for its new place. */
static void rebase(struct gm_region *w, uint64_t delta)
{
	uint64_t slot, last = w->first + ((w->end - w->start) >> GM_PAGE_SHIFT);
	struct gm_page *page;
	unsigned int tries;

	for (slot = w->first; slot < last; slot++) {
		struct gm_entry *e = gm_dir_peek(w->dir, slot);
		uint64_t va = w->start + ((slot - w->first) << GM_PAGE_SHIFT);

		if (!e) {
			slot |= GM_LEAF_ENTRIES - 1;
			continue;
		}
		gm_lock(&e->lock, GM_RANK_ENTRY);
		GM_COVER(e->state, GM_ON_REMAP);
		for (page = e->copies; page; page = page->next) {
			int err = 0;

			/* A fault at the new place may have been quicker. */
			if (page->va != va)
				continue;
			for (tries = 0; tries < TRIES; tries++) {
				err = gm_page_is_host(page)
					      ? 0
					      : gm_page_unmap(page);
				if (!err)
					break;
			}
			/* Otherwise the next fault tries again. */
			if (!err)
				page->va = va + delta;
		}
		gm_unlock(&e->lock, GM_RANK_ENTRY);
	}
}

/* Move what of [from, end) lies in one region; -ENOENT if nothing does. */
static int move_one(struct gm_as *as, uint64_t *from, uint64_t end,
		    uint64_t delta)
{
	struct gm_region *r = gm_region_next(as, *from, end), *moved, *w;
	struct gm_table_change change;
	uint64_t start, stop;
	int err = -ENOMEM;

	if (!r)
		return -ENOENT;
	start = GM_MAX(*from, r->start);
	stop = GM_MIN(end, r->end);
	moved = gm_region_create(start + delta, stop + delta, r->dir,
				 gm_region_slot(r, start));
	if (moved) {
		gm_lock(&as->lock, GM_RANK_AS);
		/* An attach meanwhile has only seen the old addresses. */
		if (gm_load(&r->dead))
			err = -EAGAIN;
		else
			err = as->nr_ctxs ? gm_region_track(moved) : 0;
		if (!err)
			err = gm_table_change_locked(as, start, stop, &moved, 1,
						     &change);
		gm_unlock(&as->lock, GM_RANK_AS);
		gm_region_put(moved);
	}
	gm_region_put(r);
	if (err)
		return err;
	gm_table_settle(as, &change);
	for (w = change.gone; w; w = w->next_gone)
		rebase(w, delta);
	gm_table_done(as, &change);
	*from = stop;
	return 0;
}

/* The program's memory is at @to already, so this may not fail. */
static void move_pages(struct gm_as *as, uint64_t from, uint64_t to,
		       uint64_t len)
{
	uint64_t end = from + len, delta = to - from;
	int err;

	/* At @end there may be new memory, that begins below it. */
	while (from < end) {
		err = move_one(as, &from, end, delta);
		if (err == -ENOENT)
			break;
		if (err == -ENOMEM)
			gm_wait_for_memory();
	}
}

/*
 * To a place that is not aligned: what is away is put in place piece by piece,
 * and what was moved is plain memory from then on.
 */
static void scatter_pages(struct gm_as *as, uint64_t from, uint64_t to,
			  uint64_t len)
{
	uint64_t va = from, end = from + len, page, n;

	while (va < end) {
		struct gm_region *r = gm_region_lookup(as, va);

		page = va & ~GM_PAGE_MASK;
		n = GM_MIN(end, page + GM_PAGE_SIZE) - va;
		if (r) {
			gm_page_scatter(r, page, to - from + page, va - page,
					n);
			gm_region_put(r);
		}
		va += n;
	}
	gm_as_unmapped(as, from, len);
}

void gm_as_remapped(struct gm_as *as, uint64_t from, uint64_t to, uint64_t len)
{
	uint64_t whole = len & ~GM_PAGE_MASK;

	if ((from | to) & GM_PAGE_MASK)
		whole = 0;
	/* What we believe to be there was unmapped while nobody watched. */
	while (whole && gm_region_remove(as, to, to + whole, 0))
		gm_wait_for_memory();
	if (whole)
		move_pages(as, from, to, whole);
	if (whole < len)
		scatter_pages(as, from + whole, to + whole, len - whole);
	gm_machine_settle();
}

/* All of it is unified memory? Then also the rights of its last page. */
static int covered(struct gm_as *as, uint64_t va, uint64_t len,
		   unsigned int *prot)
{
	uint64_t end = va + len;

	while (va < end) {
		struct gm_region *r = gm_region_lookup(as, va);
		struct gm_entry *e;

		if (!r)
			return 0;
		va = GM_MIN(r->end, end);
		e = gm_dir_peek(r->dir, gm_region_slot(r, va - 1));
		if (prot)
			*prot = e ? gm_entry_prot(r->dir, e)
				  : gm_load(&r->dir->prot);
		gm_region_put(r);
	}
	return 1;
}

/* A new place of @new_len, and the first @old_len of it from @va. */
static int move_away(struct gm_as *as, uint64_t va, uint64_t old_len,
		     uint64_t new_len, unsigned int prot, uint64_t *new_va)
{
	uint64_t to;
	int err = gm_as_map(as, 0, new_len, prot, 0, &to);

	if (err)
		return err;
	err = gm_region_remove(as, to, to + old_len, 0);
	if (err) {
		while (gm_as_unmap(as, to, new_len))
			gm_wait_for_memory();
		return err;
	}
	err = gm_host_range_move(as, va, to, old_len);
	if (err) {
		/* Once it is unmapped, others may have the first part. */
		gm_host_range_unmap(as, to, old_len);
		while (gm_as_unmap(as, to + old_len, new_len - old_len))
			gm_wait_for_memory();
		if (err == -EAGAIN)
			return gm_host_error(-EFAULT,
					     "what is to be moved is not one "
					     "mapping: made by several calls, "
					     "or unmapped meanwhile");
		return gm_host_error(err, "the pages could not be moved");
	}
	move_pages(as, va, to, old_len);
	*new_va = to;
	return 0;
}

int gm_as_remap(struct gm_as *as, uint64_t va, uint64_t old_len,
		uint64_t new_len, int may_move, uint64_t *new_va)
{
	unsigned int prot = 0;
	uint64_t more;
	int err;

	if (!covered(as, va, old_len, &prot))
		return gm_host_error(
			-EFAULT,
			"0x%llx and %llu bytes on are not all unified memory",
			(unsigned long long)va, (unsigned long long)old_len);
	*new_va = va;
	if (new_len == old_len)
		return 0;
	if (new_len < old_len)
		return gm_as_unmap(as, va + new_len, old_len - new_len);
	err = gm_as_map(as, va + old_len, new_len - old_len, prot,
			GM_RANGE_FIXED | GM_RANGE_NOREPLACE, &more);
	if (!err)
		return 0;
	if (!may_move)
		return gm_host_error(-ENOMEM,
				     "there is no room to grow at 0x%llx, and "
				     "it may not be moved",
				     (unsigned long long)(va + old_len));
	gm_add(&as->moving, 1);
	err = move_away(as, va, old_len, new_len, prot, new_va);
	gm_add(&as->moving, -1);
	gm_machine_settle();
	return err;
}

/* --- rights ------------------------------------------------------------ */

/* The XPUs' mappings may not allow more than the program's. */
static int protect_copies(struct gm_entry *e, unsigned int prot)
{
	struct gm_page *page;
	int err = 0;

	for (page = e->copies; !err && page; page = page->next) {
		if (gm_page_is_host(page))
			continue;
		/* An XPU that cannot report stores has what is shared only
		 * while it is forbidden to write. */
		if (!(prot & GM_PROT_READ) ||
		    ((prot & GM_PROT_WRITE) && page->prot == GM_PROT_READ &&
		     !(gm_page_node(page)->dev->caps & GM_CAP_WRITE_FAULT)))
			err = gm_page_unmap(page);
		else if (!(prot & GM_PROT_WRITE))
			err = gm_page_unwrite(page);
	}
	return err;
}

static int protect_page(struct gm_region *r, uint64_t va, unsigned int prot)
{
	struct gm_entry *e = gm_dir_entry(r->dir, gm_region_slot(r, va));
	unsigned int tries;
	int err = -EAGAIN;

	if (!e)
		return gm_host_error(-ENOMEM, "no memory for the directory");
	gm_lock(&e->lock, GM_RANK_ENTRY);
	GM_COVER(e->state, GM_ON_PROTECT);
	if (!gm_load(&r->dead)) {
		for (tries = 0; err && tries < TRIES; tries++)
			err = protect_copies(e, prot);
		gm_store(&e->prot, prot | GM_ENTRY_OWN_PROT);
		if (err)
			err = gm_host_error(-EIO,
					    "an XPU did not give up its rights "
					    "to 0x%llx (%d)",
					    (unsigned long long)va, err);
	}
	gm_unlock(&e->lock, GM_RANK_ENTRY);
	return err;
}

/* All entries, before anything is changed. */
static int entries_make(struct gm_as *as, uint64_t va, uint64_t end)
{
	int made = 1;

	for (; va < end && made; va += GM_PAGE_SIZE) {
		struct gm_region *r = gm_region_lookup(as, va);

		if (r) {
			made = !!gm_dir_entry(r->dir, gm_region_slot(r, va));
			gm_region_put(r);
		}
	}
	return made ? 0 : gm_host_error(-ENOMEM, "no memory for the directory");
}

/*
 * The rights of whole pages; cut ones are as the program's page table says.
 * The program's own have changed already: an XPU that fails stops nothing.
 */
static int protect_pages(struct gm_as *as, uint64_t va, uint64_t end,
			 unsigned int prot)
{
	int first = 0;

	while (va < end) {
		struct gm_region *r = gm_region_lookup(as, va);
		int err = r ? protect_page(r, va, prot) : 0;

		if (r)
			gm_region_put(r);
		if (err == -EAGAIN)
			continue;
		first = first ? first : err;
		va += GM_PAGE_SIZE;
	}
	return first;
}

static int cut_end(struct gm_as *as, uint64_t at)
{
	struct gm_region *r;
	int64_t left;

	if (!(at & GM_PAGE_MASK))
		return 0;
	r = gm_region_lookup(as, at);
	if (!r)
		return 0;
	left = gm_page_cut(r, at & ~GM_PAGE_MASK);
	gm_region_put(r);
	return left < 0 ? (int)left : 0;
}

int gm_as_protect(struct gm_as *as, uint64_t va, uint64_t len,
		  unsigned int prot)
{
	uint64_t start = (va + GM_PAGE_MASK) & ~GM_PAGE_MASK;
	uint64_t end = va + len;
	int err;

	if (!covered(as, va, len, NULL))
		return gm_host_error(
			-ENOMEM,
			"0x%llx and %llu bytes on are not all unified memory",
			(unsigned long long)va, (unsigned long long)len);
	err = cut_end(as, va);
	if (!err)
		err = cut_end(as, end);
	if (!err)
		err = entries_make(as, start, end & ~GM_PAGE_MASK);
	if (!err) {
		err = gm_host_range_protect(as, va, len, prot);
		if (err)
			gm_host_error(err,
				      "the host did not change the rights of "
				      "0x%llx (%d)",
				      (unsigned long long)va, err);
	}
	if (!err)
		err = protect_pages(as, start, end & ~GM_PAGE_MASK, prot);
	gm_machine_settle();
	return err;
}
