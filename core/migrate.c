/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * migrate.c - the one engine that moves pages
 *
 * A batch of pages of one region goes to one processor in three phases, each
 * for all pages before the next begins: unmap, copy, map. So what a page costs
 * beside its copy (a call, a message to a device, a TLB flush) is shared. The
 * plan, which says for each page where its data is and what must go, is made
 * in fault.c; here is only the doing.
 *
 * Nothing is given up before its replacement is in place: a failure in any
 * phase leaves the data valid where it was, at worst unmapped.
 */
#include "core/internal.h"

/* --- operators --------------------------------------------------------- */

static struct gm_dev *page_dev(const struct gm_page *page)
{
	return gm_page_node(page)->dev;
}

/* The page table of the context that uses a page. NULL once it is detached. */
static struct gm_ctx *page_ctx(const struct gm_page *page)
{
	return gm_load(&page->dir->as->ctxs[page->ctx]);
}

static int dev_copy(struct gm_dev *dev, enum gm_copy_dir dir, uint64_t dst,
		    uint64_t src, uint64_t len)
{
	struct gm_copy copy = { dir, dst, src, len };
	uint64_t start = gm_host_now();
	int err = gm_dev_result(dev, dev->ops.memcpy(dev->data, &copy));

	gm_count(dev->node, ns_copying, gm_host_now() - start);
	if (err)
		return err;
	if (dir == GM_COPY_TO_DEV)
		gm_count(dev->node, bytes_to_xpu, len);
	else if (dir == GM_COPY_FROM_DEV)
		gm_count(dev->node, bytes_to_host, len);
	return 0;
}

int gm_page_read(void *dst, struct gm_page *src, uint64_t off, uint64_t len)
{
	if (!gm_page_is_host(src))
		return dev_copy(page_dev(src), GM_COPY_FROM_DEV, (uintptr_t)dst,
				src->addr + off, len);
	gm_host_copy(dst, (char *)gm_host_page_ptr(src) + off, len);
	return 0;
}

int gm_page_write(struct gm_page *dst, uint64_t off, const void *src,
		  uint64_t len)
{
	if (!gm_page_is_host(dst))
		return dev_copy(page_dev(dst), GM_COPY_TO_DEV, dst->addr + off,
				(uintptr_t)src, len);
	gm_host_copy((char *)gm_host_page_ptr(dst) + off, src, len);
	return 0;
}

int gm_page_copy_part(struct gm_page *dst, uint64_t dst_off,
		      struct gm_page *src, uint64_t src_off, uint64_t len)
{
	char *ptr;

	if (gm_page_is_host(src)) {
		ptr = gm_host_page_ptr(src);
		return gm_page_write(dst, dst_off, ptr + src_off, len);
	}
	if (gm_page_is_host(dst)) {
		ptr = gm_host_page_ptr(dst);
		return gm_page_read(ptr + dst_off, src, src_off, len);
	}
	/* Between devices a host page goes in between; the caller has it. */
	GM_BUG_ON(page_dev(dst) != page_dev(src));
	return dev_copy(page_dev(dst), GM_COPY_IN_DEV, dst->addr + dst_off,
			src->addr + src_off, len);
}

int gm_page_copy(struct gm_page *dst, struct gm_page *src)
{
	return gm_page_copy_wide(dst, src, 1);
}

int gm_page_zero(struct gm_page *page, uint64_t off, uint64_t len)
{
	struct gm_dev *dev = page_dev(page);

	if (dev)
		return gm_dev_result(
			dev, dev->ops.zero(dev->data, page->addr + off, len));
	gm_host_zero((char *)gm_host_page_ptr(page) + off, len);
	return 0;
}

/* --- mappings ---------------------------------------------------------- */

/* How many pages from @pages on lie side by side in one context. */
static unsigned int run_length(struct gm_page **pages, unsigned int n,
			       int frames_too)
{
	unsigned int i;

	for (i = 1; i < n; i++) {
		if (page_ctx(pages[i]) != page_ctx(pages[0]) ||
		    pages[i]->va != pages[i - 1]->va + GM_PAGE_SIZE)
			break;
		if (frames_too &&
		    (pages[i]->addr != pages[i - 1]->addr + GM_PAGE_SIZE ||
		     pages[i]->prot != pages[0]->prot))
			break;
	}
	return i;
}

/* Enter or clear runs of one context: with one call if the driver can. */
static void ctx_runs(struct gm_ctx *ctx, const struct gm_pmap_run *runs,
		     unsigned int n, int enter, int *status)
{
	struct gm_dev *dev = ctx->dev;
	int (*many)(void *, const struct gm_pmap_run *, unsigned int) =
		enter ? dev->ops.pmap_enter_runs : dev->ops.pmap_clear_runs;
	unsigned int i;

	if (many && n > 1) {
		int err = gm_dev_result(dev, many(ctx->pmap, runs, n));

		for (i = 0; i < n; i++)
			status[i] = err;
		return;
	}
	for (i = 0; i < n; i++) {
		if (enter)
			status[i] = dev->ops.pmap_enter(ctx->pmap, &runs[i]);
		else
			status[i] = dev->ops.pmap_clear(ctx->pmap, runs[i].va,
							runs[i].len);
		status[i] = gm_dev_result(dev, status[i]);
	}
}

/* Pages of several contexts, sorted only as they come; enter or clear all. */
static void enter_or_clear(struct gm_page **pages, unsigned int n, int enter,
			   int *status)
{
	struct gm_pmap_run runs[GM_BATCH];
	int run_status[GM_BATCH];
	unsigned int first[GM_BATCH + 1], i = 0, r, j;

	while (i < n) {
		struct gm_ctx *ctx = page_ctx(pages[i]);

		for (r = 0; i < n && page_ctx(pages[i]) == ctx; r++) {
			unsigned int len = run_length(pages + i, n - i, enter);

			runs[r] = (struct gm_pmap_run){
				.va = pages[i]->va,
				.daddr = pages[i]->addr,
				.len = len * GM_PAGE_SIZE,
				.prot = pages[i]->prot,
			};
			first[r] = i;
			i += len;
		}
		first[r] = i;
		ctx_runs(ctx, runs, r, enter, run_status);
		while (r-- > 0)
			for (j = first[r]; j < first[r + 1]; j++)
				status[j] = run_status[r];
	}
}

void gm_pages_map(struct gm_page **pages, unsigned int n, int *status)
{
	enter_or_clear(pages, n, 1, status);
}

void gm_pages_unmap(struct gm_page **pages, unsigned int n, int *status)
{
	struct gm_page *mapped[GM_BATCH];
	int result[GM_BATCH];
	unsigned int i, nr = 0;

	GM_BUG_ON(n > GM_BATCH);
	/* Where a page is not mapped, another may be by now. */
	for (i = 0; i < n; i++)
		if (pages[i]->prot)
			mapped[nr++] = pages[i];
	enter_or_clear(mapped, nr, 0, result);
	for (i = 0, nr = 0; i < n; i++) {
		status[i] = pages[i]->prot ? result[nr++] : 0;
		if (!status[i])
			pages[i]->prot = 0;
	}
}

int gm_page_unmap(struct gm_page *page)
{
	int status;

	gm_pages_unmap(&page, 1, &status);
	return status;
}

int gm_page_unwrite(struct gm_page *page)
{
	struct gm_ctx *ctx = page_ctx(page);
	struct gm_dev *dev = ctx->dev;
	int err;

	if (!(page->prot & GM_PROT_WRITE))
		return 0;
	/* Without protect it is mapped again by its next fault; and to an XPU
	 * that cannot report stores, read-only means nothing. */
	if (!dev->ops.pmap_protect || !(dev->caps & GM_CAP_WRITE_FAULT))
		return gm_page_unmap(page);
	err = dev->ops.pmap_protect(ctx->pmap, page->va, GM_PAGE_SIZE,
				    GM_PROT_READ);
	if (!gm_dev_result(dev, err))
		page->prot = GM_PROT_READ;
	return err;
}

void gm_copy_drop_locked(struct gm_entry *e, struct gm_page *page)
{
	struct gm_as *as = page->dir->as;

	gm_entry_remove_locked(e, page);
	if (gm_page_is_host(page))
		gm_host_page_put(as, page);
	else
		gm_page_free(page);
}

/* --- phase 1: unmap all ------------------------------------------------ */

static int pending(const struct gm_fault *f)
{
	return f->outcome == GM_OUT_PENDING;
}

static void fail_host(struct gm_fault *f, int err)
{
	f->err = err;
	if (err == -ENOMEM)
		gm_host_error(err,
			      "the host has no memory to move the page "
			      "at 0x%llx",
			      (unsigned long long)f->va);
	if (err == -EAGAIN)
		f->outcome = GM_OUT_RESTART;
	else if (err == -EBUSY)
		f->outcome = GM_OUT_BUSY;
	else if (err == -ENOMEM)
		f->outcome = GM_OUT_NOMEM;
	else
		f->outcome = GM_OUT_HOST;
}

static void fail_dev(struct gm_fault *f, int err)
{
	f->outcome = GM_OUT_DEVICE;
	f->err = err;
}

static void taken_off(struct gm_batch *b, struct gm_fault *f, int status)
{
	if (status == -EXDEV)
		status = gm_entry_not_whole_locked(b->region, f->entry);
	if (!status) {
		gm_entry_add_locked(b->region->dir, f->entry, f->slot, f->va);
		f->src = f->slot;
		f->slot = NULL;
		f->from = f->src->nid;
	} else if (status == -ENOENT) {
		/* The page table is the truth: there is nothing. */
		gm_entry_set_locked(f->entry, GM_STATE_EMPTY);
		f->fresh = 1;
		f->exclusive = 1;
		if (b->move)
			f->outcome = GM_OUT_ABSENT;
	} else if (status == -EXDEV) {
		f->outcome = GM_OUT_FRAGMENTED;
	} else {
		fail_host(f, status);
	}
}

static int leaves_cpu(const struct gm_batch *b, const struct gm_fault *f)
{
	return (b->ctx || f->relocate) && pending(f) && !f->dst &&
	       gm_entry_on_cpu(f->entry);
}

/* What the CPU has mapped goes to places at rest, neighbours together. */
static void take_off(struct gm_batch *b)
{
	unsigned int prot, i, n, j;

	for (i = 0; i < b->n; i += n) {
		struct gm_page *slots[GM_BATCH];
		int status[GM_BATCH];

		n = 1;
		if (!leaves_cpu(b, &b->faults[i]))
			continue;
		prot = gm_entry_prot(b->region->dir, b->faults[i].entry);
		while (i + n < b->n && leaves_cpu(b, &b->faults[i + n]) &&
		       b->faults[i + n].va ==
			       b->faults[i].va + n * GM_PAGE_SIZE &&
		       gm_entry_prot(b->region->dir, b->faults[i + n].entry) ==
			       prot)
			n++;
		for (j = 0; j < n; j++)
			slots[j] = b->faults[i + j].slot;
		gm_host_cpu_unmap(b->as, b->faults[i].va, slots, n, prot,
				  status);
		for (j = 0; j < n; j++)
			taken_off(b, &b->faults[i + j], status[j]);
	}
}

/**
 * struct gm_revoke - mappings to be revoked together
 * @pages: the pages
 * @faults: on whose behalf
 * @n: how many
 */
struct gm_revoke {
	struct gm_page *pages[GM_BATCH];
	struct gm_fault *faults[GM_BATCH];
	unsigned int n;
};

static void revoke_flush(struct gm_revoke *r)
{
	int status[GM_BATCH];
	unsigned int i;

	gm_pages_unmap(r->pages, r->n, status);
	for (i = 0; i < r->n; i++)
		if (status[i])
			fail_dev(r->faults[i], status[i]);
	r->n = 0;
}

static void revoke_add(struct gm_revoke *r, struct gm_fault *f,
		       struct gm_page *page)
{
	r->pages[r->n] = page;
	r->faults[r->n++] = f;
	if (r->n == GM_BATCH)
		revoke_flush(r);
}

/* Other processors lose the page, or the right to write it. */
static void revoke(struct gm_batch *b)
{
	struct gm_revoke r = { .n = 0 };
	struct gm_page *page;
	unsigned int i;

	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];
		int err;

		if (!pending(f))
			continue;
		for (page = f->entry->copies; page; page = page->next) {
			if (gm_page_is_host(page))
				continue;
			if (page == f->dst) {
				/* The region was moved meanwhile. */
				if (page->va != f->va)
					revoke_add(&r, f, page);
				continue;
			}
			if (f->exclusive) {
				revoke_add(&r, f, page);
				continue;
			}
			err = gm_page_unwrite(page);
			if (err)
				fail_dev(f, err);
		}
	}
	revoke_flush(&r);
}

/* --- phase 2: copy all ------------------------------------------------- */

static int copy_over(struct gm_fault *f, unsigned int width)
{
	struct gm_page *src = f->src, *dst = f->page;
	int err;

	if (gm_page_is_host(src) || gm_page_is_host(dst) ||
	    src->nid == dst->nid)
		return gm_page_copy_wide(dst, src, width);
	err = gm_page_copy_wide(f->bounce, src, width);
	if (!err)
		err = gm_page_copy_wide(dst, f->bounce, width);
	if (!err)
		gm_count(gm_page_node(dst), xpu_to_xpu, 1);
	return err;
}

static void copy_all(struct gm_batch *b)
{
	unsigned int i;

	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];
		int err = 0;

		if (!pending(f) || f->dst)
			continue;
		if (!f->fresh) {
			err = copy_over(f, b->width);
			f->copied = GM_PAGE_SIZE;
			f->zeroed = 0;
		} else if (!f->zeroed) {
			err = gm_page_zero(f->page, 0, GM_PAGE_SIZE);
		}
		if (err)
			fail_dev(f, err);
	}
}

/* --- phase 3: map all, and commit -------------------------------------- */

static void drop_others(struct gm_entry *e, const struct gm_page *keep)
{
	struct gm_page *page, *next;

	for (page = e->copies; page; page = next) {
		next = page->next;
		if (page != keep)
			gm_copy_drop_locked(e, page);
	}
}

static void count_commit(struct gm_batch *b, struct gm_fault *f, int nid)
{
	struct gm_node *node = gm_machine.nodes[nid];

	if (f->fresh)
		gm_count(node, zeroed, 1);
	if (b->move && f->copied)
		gm_count(node, moved, 1);
	else if (b->hint && (f->fresh || f->copied))
		gm_count(node, prefetched, 1);
}

static void commit_xpu(struct gm_batch *b, struct gm_fault *f)
{
	struct gm_entry *e = f->entry;
	struct gm_page *page = f->dst ? f->dst : f->page;

	if (!f->dst) {
		gm_entry_add_locked(b->region->dir, e, page, f->va);
		f->page = NULL;
	} else {
		gm_page_touch(page);
		if (f->access == GM_WRITE)
			gm_count(gm_page_node(page), upgraded, 1);
	}
	if (f->exclusive) {
		drop_others(e, page);
	} else if (f->bounce && f->copied && !gm_entry_host_copy(e)) {
		/* It is a valid copy in host memory, so it is a replica. */
		gm_entry_add_locked(b->region->dir, e, f->bounce, f->va);
		f->bounce = NULL;
	}
	if (f->access == GM_WRITE)
		e->flags |= GM_ENTRY_WRITTEN;
	gm_entry_got_locked(e, b->ctx->index, b->hint);
	count_commit(b, f, page->nid);
	f->outcome = GM_OUT_DONE;
}

static unsigned int xpu_prot(struct gm_batch *b, struct gm_fault *f)
{
	unsigned int prot = gm_entry_prot(b->region->dir, f->entry);

	return f->exclusive ? prot : prot & GM_PROT_READ;
}

static void map_xpu(struct gm_batch *b)
{
	struct gm_page *pages[GM_BATCH];
	struct gm_fault *faults[GM_BATCH];
	uint8_t old_prot[GM_BATCH];
	int status[GM_BATCH];
	unsigned int i, n = 0;

	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];
		struct gm_page *page = f->dst ? f->dst : f->page;

		/* Nothing is given up for a copy on a device that is lost. */
		if (pending(f) && !gm_dev_alive(b->ctx->dev))
			fail_dev(f, -ENODEV);
		if (!pending(f))
			continue;
		old_prot[n] = page->prot;
		/* A reset that comes now must find it, and wait for us. */
		if (!f->dst)
			gm_page_intend(page, b->region->dir, f->entry);
		page->va = f->va;
		page->ctx = b->ctx->index;
		page->prot = xpu_prot(b, f);
		pages[n] = page;
		faults[n++] = f;
	}
	gm_pages_map(pages, n, status);
	for (i = 0; i < n; i++) {
		if (!status[i]) {
			commit_xpu(b, faults[i]);
			continue;
		}
		pages[i]->prot = old_prot[i];
		if (!faults[i]->dst)
			gm_page_intend(pages[i], NULL, NULL);
		fail_dev(faults[i], status[i]);
	}
}

static void commit_cpu(struct gm_batch *b, struct gm_fault *f)
{
	struct gm_entry *e = f->entry;
	struct gm_page *place = f->dst ? f->dst : f->page;
	int nid = place->nid;

	if (f->dst) {
		gm_entry_remove_locked(e, place);
		gm_host_page_put(b->as, place);
		gm_count(gm_machine.nodes[nid], mapped_home, 1);
	}
	/* What is left in f->page is a vacant place; it is put back later. */
	drop_others(e, NULL);
	gm_entry_set_locked(e, GM_STATE_MODIFIED);
	gm_entry_got_locked(e, 0, b->hint);
	count_commit(b, f, nid);
	f->outcome = GM_OUT_DONE;
}

static void mapped_cpu(struct gm_batch *b, struct gm_fault *f, int status)
{
	/* Part of the page is there: the CPU has it, with holes. */
	if (status == -EEXIST && f->fresh) {
		status = gm_host_cpu_fill(b->as, f->va);
		if (!status) {
			/* Untracked it stays: maybe nobody watches. */
			if (f->entry->state != GM_STATE_UNTRACKED)
				gm_entry_set_locked(f->entry,
						    GM_STATE_MODIFIED);
			gm_entry_got_locked(f->entry, 0, b->hint);
			f->outcome = GM_OUT_DONE;
			return;
		}
	}
	if (status == -EXDEV)
		status = gm_entry_not_whole_locked(b->region, f->entry);
	if (status == -EXDEV) {
		f->outcome = GM_OUT_FRAGMENTED;
	} else if (status == -EAGAIN && f->fresh &&
		   f->entry->state == GM_STATE_UNTRACKED) {
		/* A late fault of what was here before, and nobody watches
		 * what is here now: the thread is to try by itself. */
		gm_host_cpu_wake(b->as, f->va);
		f->outcome = GM_OUT_DONE;
	} else if (status)
		fail_host(f, status);
	else
		commit_cpu(b, f);
}

static void map_cpu(struct gm_batch *b)
{
	unsigned int prot, i, n, j;

	for (i = 0; i < b->n; i += n) {
		struct gm_page *pages[GM_BATCH];
		int status[GM_BATCH];

		n = 1;
		if (!pending(&b->faults[i]))
			continue;
		prot = gm_entry_prot(b->region->dir, b->faults[i].entry);
		while (i + n < b->n && pending(&b->faults[i + n]) &&
		       b->faults[i + n].va ==
			       b->faults[i].va + n * GM_PAGE_SIZE &&
		       gm_entry_prot(b->region->dir, b->faults[i + n].entry) ==
			       prot)
			n++;
		for (j = 0; j < n; j++) {
			struct gm_fault *f = &b->faults[i + j];

			pages[j] = f->dst ? f->dst : f->page;
		}
		gm_host_cpu_map(b->as, b->faults[i].va, pages, n, prot, status);
		for (j = 0; j < n; j++)
			mapped_cpu(b, &b->faults[i + j], status[j]);
	}
}

void gm_batch_move_locked(struct gm_batch *b)
{
	take_off(b);
	revoke(b);
	copy_all(b);
	if (b->ctx)
		map_xpu(b);
	else
		map_cpu(b);
}
