/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * fragment.c - pages that are no longer one page of one mapping
 *
 * A munmap, mprotect or mremap of 4 KiB pieces cuts the mapping of a page. Its
 * data is then brought home and put in place piece by piece, where there still
 * is a place, and stays on the CPU; the rest of the region lives on. What
 * cannot be put in place at once stays listed as a copy and is tried again at
 * the next touch.
 */
#include "core/internal.h"

/* The data's one copy is a host place afterwards, and no XPU has it mapped. */
static int bring_home(struct gm_dir *dir, struct gm_entry *e,
		      struct gm_page **host)
{
	struct gm_page *page, *next, *home;
	int err;

	for (page = e->copies; page; page = page->next) {
		err = gm_page_is_host(page) ? 0 : gm_page_unmap(page);
		if (err)
			return err;
	}
	home = gm_entry_host_copy(e);
	if (e->copies && !home) {
		if (!*host)
			return -ENOMEM;
		err = gm_page_copy(*host, e->copies);
		if (err)
			return err;
		gm_entry_add_locked(dir, e, *host, e->copies->va);
		home = *host;
		*host = NULL;
	}
	for (page = e->copies; page; page = next) {
		next = page->next;
		if (page != home)
			gm_copy_drop_locked(e, page);
	}
	return 0;
}

/* Bytes that the program still has of [to + off, to + off + len), or -errno. */
static int64_t put_in_place(struct gm_region *r, struct gm_entry *e,
			    struct gm_page **host, uint64_t to, uint64_t off,
			    uint64_t len)
{
	struct gm_as *as = r->dir->as;
	struct gm_page *home;
	int64_t left;
	int err;

	err = bring_home(r->dir, e, host);
	if (err)
		return err;
	home = gm_entry_host_copy(e);
	left = gm_host_cpu_scatter(as, to, home, off, len);
	if (left >= 0 && home)
		gm_copy_drop_locked(e, home);
	return left;
}

void gm_entry_fragment_locked(struct gm_entry *e)
{
	gm_assert_held(&e->lock, GM_RANK_ENTRY);
	if (e->state == GM_STATE_FRAGMENTED)
		return;
	gm_store(&e->state, GM_STATE_FRAGMENTED);
	gm_count(gm_machine.nodes[0], fragmented, 1);
}

int gm_entry_not_whole_locked(struct gm_region *r, struct gm_entry *e)
{
	/* In this order: a move ends with the death of the region. */
	if (gm_load(&r->dir->as->moving) || gm_load(&r->dead))
		return -EAGAIN;
	gm_entry_fragment_locked(e);
	return -EXDEV;
}

/* Data that is only on an XPU needs a host page, got before the lock. */
#define TRIES 4

int64_t gm_page_cut(struct gm_region *r, uint64_t va)
{
	struct gm_entry *e = gm_dir_entry(r->dir, gm_region_slot(r, va));
	struct gm_as *as = r->dir->as;
	struct gm_page *host = NULL;
	int64_t left = -EAGAIN;
	unsigned int tries = 0;

	if (!e)
		return gm_host_error(-ENOMEM, "no memory for the directory");
	/* -EAGAIN passes: somebody reads the event that stands in the way. */
	while (left == -EAGAIN || (left < 0 && ++tries < TRIES)) {
		if (!host && gm_load(&e->state) != GM_STATE_UNTRACKED &&
		    gm_home_page_get(as, GM_HOST_RESERVE, &host))
			host = NULL;
		gm_lock(&e->lock, GM_RANK_ENTRY);
		GM_COVER(e->state, GM_ON_CUT);
		if (e->state == GM_STATE_POISON) {
			e->flags |= GM_ENTRY_CUT;
			left = gm_host_cpu_scatter(as, va, NULL, 0,
						   GM_PAGE_SIZE);
		} else {
			gm_entry_fragment_locked(e);
			left = put_in_place(r, e, &host, va, 0, GM_PAGE_SIZE);
		}
		gm_unlock(&e->lock, GM_RANK_ENTRY);
	}
	if (host)
		gm_host_page_put(as, host);
	if (left < 0)
		gm_host_error((int)left,
			      "the rest of the cut page at 0x%llx could not be "
			      "brought home (%d)",
			      (unsigned long long)va, (int)left);
	return left;
}

int gm_fragment_fault(struct gm_region *r, uint64_t va)
{
	struct gm_entry *e = gm_dir_entry(r->dir, gm_region_slot(r, va));
	struct gm_as *as = r->dir->as;
	struct gm_page *host = NULL;
	int64_t left = 0;
	int err = -EAGAIN;

	if (!e)
		return gm_host_error(-ENOMEM, "no memory for the directory");
	if (gm_home_page_get(as, 0, &host))
		host = NULL;
	gm_lock(&e->lock, GM_RANK_ENTRY);
	if (!gm_load(&r->dead) && e->state == GM_STATE_FRAGMENTED) {
		GM_COVER(e->state, GM_ON_CPU_FAULT);
		if (e->copies)
			left = put_in_place(r, e, &host, va, 0, GM_PAGE_SIZE);
		err = left < 0 ? (int)left : gm_host_cpu_fill(as, va);
	}
	gm_unlock(&e->lock, GM_RANK_ENTRY);
	if (host)
		gm_host_page_put(as, host);
	if (err)
		gm_host_error(err,
			      "the cut page at 0x%llx could not be filled (%d)",
			      (unsigned long long)va, err);
	return err;
}

void gm_page_scatter(struct gm_region *r, uint64_t from, uint64_t to,
		     uint64_t off, uint64_t len)
{
	struct gm_entry *e = gm_dir_peek(r->dir, gm_region_slot(r, from));
	struct gm_page *host = NULL;
	int64_t left = e ? -EAGAIN : 0;
	unsigned int tries = 0;

	while (left == -EAGAIN || (left < 0 && ++tries < TRIES)) {
		if (gm_home_page_get(r->dir->as, GM_HOST_RESERVE, &host))
			host = NULL;
		gm_lock(&e->lock, GM_RANK_ENTRY);
		GM_COVER(e->state, GM_ON_CUT);
		left = e->copies ? put_in_place(r, e, &host, to, off, len) : 0;
		gm_unlock(&e->lock, GM_RANK_ENTRY);
		if (host)
			gm_host_page_put(r->dir->as, host);
		host = NULL;
	}
}
