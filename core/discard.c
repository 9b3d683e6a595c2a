/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * discard.c - giving data up: GM_DONTNEED, and the program's own MADV_DONTNEED
 *
 * Exactly the given range reads as zeros afterwards: whole pages are freed on
 * every node, parts are zeroed where they live. It is the same for the
 * program's own madvise(), of which we hear before the kernel frees the pages:
 * what the CPU has mapped is taken away here, so that no XPU can fetch it in
 * between.
 */
#include "core/internal.h"

/* A page that a broken XPU does not give back is tried this often. */
#define FORCE_TRIES 3
/* When the host has said so often that a mapping changes, it has changed. */
#define PASS_TRIES 64

int gm_entry_drop_locked(struct gm_dir *dir, struct gm_entry *e, int force)
{
	struct gm_page *page;
	unsigned int tries;
	int err = 0;

	for (page = e->copies; page; page = page->next) {
		if (gm_page_is_host(page))
			continue;
		tries = force ? FORCE_TRIES : 1;
		do
			err = gm_page_unmap(page);
		while (err && --tries);
		if (err && !force)
			return err;
		/* prot says which ones an XPU may still reach. */
		page->prot = err ? GM_PROT_READ : 0;
	}
	while ((page = e->copies)) {
		int stuck = !gm_page_is_host(page) && page->prot;

		if (!stuck) {
			gm_copy_drop_locked(e, page);
			continue;
		}
		gm_entry_remove_locked(e, page);
		gm_page_free_stuck(page, dir);
	}
	gm_entry_set_locked(e, GM_STATE_EMPTY);
	gm_store(&e->holder, 0);
	gm_store(&e->mapped_at, 0);
	e->flags &= ~GM_ENTRY_WRITTEN;
	return 0;
}

/**
 * struct gm_discard - one page, or a part of one, that is given up
 * @as: the address space
 * @r: its region
 * @e: its entry
 * @va: the page
 * @off: the part: first byte
 * @len: and how many; GM_PAGE_SIZE for the whole page
 * @by_program: its own madvise() does it
 * @tries: how often it was
 * @slot: got before the lock, for what the CPU has mapped
 */
struct gm_discard {
	struct gm_as *as;
	struct gm_region *r;
	struct gm_entry *e;
	uint64_t va;
	uint64_t off;
	uint64_t len;
	int by_program;
	unsigned int tries;
	struct gm_page *slot;
};

/* The page leaves the CPU, into a place at rest, as a copy of the entry. */
static int take_off(struct gm_discard *d)
{
	unsigned int prot = gm_entry_prot(d->r->dir, d->e);
	int status;

	gm_host_cpu_unmap(d->as, d->va, &d->slot, 1, prot, &status);
	if (status == -ENOENT)
		gm_entry_set_locked(d->e, GM_STATE_EMPTY);
	else if (!status) {
		gm_entry_add_locked(d->r->dir, d->e, d->slot, d->va);
		d->slot = NULL;
	}
	if (status == -EXDEV)
		status = gm_entry_not_whole_locked(d->r, d->e);
	if (!status || status == -EAGAIN || status == -EXDEV)
		return status;
	if (status == -ENOENT)
		return 0;
	if (status == -EBUSY)
		return gm_host_error(status,
				     "the kernel holds the page at 0x%llx",
				     (unsigned long long)d->va);
	return gm_host_error(status,
			     "the page at 0x%llx cannot be taken off (%d)",
			     (unsigned long long)d->va, status);
}

/* One copy stays, unmapped; the part of it is zeroed. */
static int zero_part(struct gm_discard *d)
{
	struct gm_page *keep = gm_entry_host_copy(d->e), *page, *next;
	int err;

	if (!keep)
		keep = d->e->copies;
	for (page = d->e->copies; page; page = page->next) {
		err = gm_page_is_host(page) ? 0 : gm_page_unmap(page);
		if (err)
			return err;
	}
	for (page = d->e->copies; page; page = next) {
		next = page->next;
		if (page != keep)
			gm_copy_drop_locked(d->e, page);
	}
	return gm_page_zero(keep, d->off, d->len);
}

/* All of a lost page: it can be used again. */
static int forget_poison(struct gm_discard *d)
{
	int err;

	if (d->len < GM_PAGE_SIZE)
		return gm_host_error(
			-EHWPOISON,
			"the page at 0x%llx was lost with an XPU's memory; "
			"discard all of it to use it again",
			(unsigned long long)d->va);
	err = gm_host_cpu_unpoison(d->as, d->va);
	if (!err)
		gm_entry_set_locked(d->e, d->e->flags & GM_ENTRY_CUT
						  ? GM_STATE_FRAGMENTED
						  : GM_STATE_EMPTY);
	else if (err != -EAGAIN)
		gm_host_error(err,
			      "the host keeps the lost page at 0x%llx "
			      "poisoned (%d)",
			      (unsigned long long)d->va, err);
	return err;
}

static int discard_locked(struct gm_discard *d)
{
	int whole = d->len == GM_PAGE_SIZE, err = 0;

	GM_COVER(d->e->state, whole ? GM_ON_DISCARD : GM_ON_DISCARD_PART);
	if (gm_load(&d->r->dead))
		return -EAGAIN;
	if (d->e->state == GM_STATE_FRAGMENTED)
		return -EXDEV; /* the page table's business, without our lock */
	if (d->e->state == GM_STATE_POISON)
		return forget_poison(d);
	if (gm_entry_on_cpu(d->e))
		err = take_off(d);
	/*
	 * The program has gone on and unmapped or moved the page, and we are
	 * told only when this here is done: it may not wait for that. What the
	 * CPU had, the program's own call has emptied by then.
	 */
	if (err == -EAGAIN && d->by_program && d->tries >= PASS_TRIES)
		return 0;
	if (err || d->e->state == GM_STATE_EMPTY)
		return err;
	return whole ? gm_entry_drop_locked(d->r->dir, d->e, 0) : zero_part(d);
}

/* What is cut already is zeroed as the program would. */
static int discard_fragment(struct gm_discard *d)
{
	static const char zeros[256];
	uint64_t done, n;
	int err = 0;

	for (done = 0; !err && done < d->len; done += n) {
		n = GM_MIN(d->len - done, (uint64_t)sizeof(zeros));
		err = gm_host_user_write(d->as, d->va + d->off + done, zeros,
					 n);
	}
	if (err)
		gm_host_error(err, "the cut page at 0x%llx cannot be written",
			      (unsigned long long)d->va);
	return err;
}

/*
 * Nothing is there. With the lock: whoever faults the page in lets the program
 * go on, which may call us, before he has noted that it is there.
 */
static int untouched(const struct gm_discard *d)
{
	int empty;

	gm_lock(&d->e->lock, GM_RANK_ENTRY);
	empty = d->e->state == GM_STATE_EMPTY;
	gm_unlock(&d->e->lock, GM_RANK_ENTRY);
	return empty;
}

static int discard_page(struct gm_discard *d)
{
	uint64_t start = gm_host_now();
	int err = 0;

	d->e = gm_dir_peek(d->r->dir, gm_region_slot(d->r, d->va));
	if (!d->e && d->r->dir->fresh == GM_STATE_EMPTY)
		return 0;
	if (!d->e)
		d->e = gm_dir_entry(d->r->dir, gm_region_slot(d->r, d->va));
	if (!d->e)
		return gm_host_error(-ENOMEM, "no memory for the directory");
	if (untouched(d))
		return 0;
	if (gm_load(&d->e->state) == GM_STATE_UNTRACKED)
		err = gm_region_track(d->r);
	if (!err)
		err = gm_home_slots_get(d->as, &d->slot, 1);
	if (err)
		return err;
	gm_lock(&d->e->lock, GM_RANK_ENTRY);
	err = discard_locked(d);
	gm_unlock(&d->e->lock, GM_RANK_ENTRY);
	if (d->slot)
		gm_host_page_put(d->as, d->slot);
	d->slot = NULL;
	if (err == -EXDEV)
		err = d->by_program ? 0 : discard_fragment(d);
	if (!err)
		gm_trace(GM_EV_DISCARD, 0, d->va, 0, GM_NODE_NONE, GM_NODE_NONE,
			 start, 0);
	return err;
}

static int discard(struct gm_as *as, uint64_t va, uint64_t len, int by_program)
{
	uint64_t end = va + len;
	unsigned int tries = 0;
	int first_err = 0, err;

	while (va < end) {
		struct gm_discard d = { .as = as,
					.by_program = by_program,
					.tries = tries++ };

		d.r = gm_region_next(as, va, end);
		if ((!d.r || d.r->start > va) && !first_err)
			first_err = gm_host_error(
				-ENOMEM, "0x%llx is not unified memory",
				(unsigned long long)va);
		if (!d.r)
			break;
		va = GM_MAX(va, d.r->start);
		d.va = va & ~GM_PAGE_MASK;
		d.off = va - d.va;
		d.len = GM_MIN(end, d.va + GM_PAGE_SIZE) - va;
		err = discard_page(&d);
		gm_region_put(d.r);
		if (err == -EAGAIN)
			continue;
		if (err && !first_err)
			first_err = err;
		tries = 0;
		va += d.len;
	}
	gm_machine_settle();
	return first_err;
}

int gm_as_discard(struct gm_as *as, uint64_t va, uint64_t len)
{
	return discard(as, va, len, 0);
}

void gm_as_discarded(struct gm_as *as, uint64_t va, uint64_t len)
{
	discard(as, va, len, 1);
}
