/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * copy.c - gmemcpy: copies whose destination ends on a node
 *
 * The copy is cut where either side crosses a page. A destination page that is
 * wholly overwritten is not migrated first: a fresh page is filled, with no
 * lock on the destination, and takes the old one's place. Otherwise the page
 * is brought to the node and the part written there. How the source is read
 * is in source.c.
 */
#include "core/copy.h"

static struct gm_page *best_copy(struct gm_entry *e)
{
	struct gm_page *host = gm_entry_host_copy(e);

	return host ? host : e->copies;
}

/* What the host says about a page that is to be replaced. */
static int host_text(int err, uint64_t va)
{
	if (err == -EBUSY)
		return gm_host_error(err, "the kernel holds the page at 0x%llx",
				     (unsigned long long)va);
	return gm_host_error(err, "the page at 0x%llx cannot be replaced (%d)",
			     (unsigned long long)va, err);
}

/* --- the destination --------------------------------------------------- */

static int is_unified(struct gm_as *as, uint64_t va)
{
	return gm_as_overlaps(as, va, 1);
}

/* Where the destination page is to be: @node, or where it is. */
static struct gm_ctx *dst_ctx(struct gm_memcpy *m, uint64_t va)
{
	struct gm_region *r;
	struct gm_entry *e;
	int nid = m->node;

	if (nid == GM_NODE_NONE) {
		r = gm_region_lookup(m->as, va);
		e = r ? gm_dir_peek(r->dir, gm_region_slot(r, va)) : NULL;
		if (e) {
			gm_lock(&e->lock, GM_RANK_ENTRY);
			if (e->copies)
				nid = best_copy(e)->nid;
			gm_unlock(&e->lock, GM_RANK_ENTRY);
		}
		if (r)
			gm_region_put(r);
	}
	if (nid < gm_machine.nr_host_nodes)
		return NULL;
	return gm_ctx_of_node(m->as, nid);
}

/* Bring the page to its processor, with the right to write. */
static int fetch(struct gm_memcpy *m, struct gm_ctx *ctx, uint64_t va)
{
	struct gm_target t = {
		.as = m->as, .ctx = ctx, .nid = GM_NODE_NONE, .hint = 1
	};
	enum gm_access access = GM_WRITE;
	int status;

	/* An XPU's node without its context: it was lost meanwhile. */
	if (!ctx && m->node < gm_machine.nr_host_nodes)
		t.nid = m->node;
	gm_target_serve(&t, &va, 1, &access, &status);
	/* Another host node is better than no copy. */
	if (status == -ENOMEM && t.nid != GM_NODE_NONE) {
		t.nid = GM_NODE_NONE;
		gm_target_serve(&t, &va, 1, &access, &status);
	}
	return status;
}

/* The new page takes the place of all copies there are. Entry is locked. */
static int replace_locked(struct gm_memcpy *m, struct gm_region *r,
			  struct gm_entry *e, uint64_t va,
			  struct gm_page **page, struct gm_page **slot)
{
	unsigned int prot = gm_entry_prot(r->dir, e);
	int err = 0;

	if (gm_load(&r->dead))
		return -EAGAIN;
	GM_COVER(e->state, GM_ON_COPY_OVER);
	if (e->state != GM_STATE_FRAGMENTED && !(prot & GM_PROT_WRITE))
		return gm_copy_text(-EACCES, va, "store");
	/* Nothing is given up for a copy on a device that is lost. */
	if (!gm_page_is_host(*page) && !gm_dev_alive(gm_page_node(*page)->dev))
		return gm_host_error(-ENODEV, "device %s is lost",
				     gm_page_node(*page)->dev->name);
	/* A page that is lost, cut or pinned is no page to be replaced. */
	if (e->state == GM_STATE_POISON || e->state == GM_STATE_FRAGMENTED ||
	    (e->flags & GM_ENTRY_PINNED))
		return -EXDEV;
	if (gm_entry_on_cpu(e)) {
		gm_host_cpu_unmap(m->as, va, slot, 1, prot, &err);
		if (err == -EXDEV)
			err = gm_entry_not_whole_locked(r, e);
		if (err == -EAGAIN || err == -EXDEV)
			return err;
		if (err && err != -ENOENT)
			return host_text(err, va);
	}
	err = gm_entry_drop_locked(r->dir, e, 0);
	if (err)
		return err;
	gm_entry_add_locked(r->dir, e, *page, va);
	*page = NULL;
	return 0;
}

static int replace(struct gm_memcpy *m, uint64_t va, struct gm_page **page)
{
	struct gm_region *r = gm_region_lookup(m->as, va);
	struct gm_page *slot = NULL;
	struct gm_entry *e;
	int err = r ? 0 : gm_copy_text(-EFAULT, va, "store");

	e = r ? gm_dir_entry(r->dir, gm_region_slot(r, va)) : NULL;
	if (r && !e)
		err = gm_host_error(-ENOMEM, "no memory for the directory");
	if (e && gm_load(&e->state) == GM_STATE_UNTRACKED)
		err = gm_region_track(r);
	if (e && !err)
		err = gm_home_slots_get(m->as, &slot, 1);
	if (!err) {
		gm_lock(&e->lock, GM_RANK_ENTRY);
		err = replace_locked(m, r, e, va, page, &slot);
		gm_unlock(&e->lock, GM_RANK_ENTRY);
	}
	if (slot)
		gm_host_page_put(m->as, slot);
	if (r)
		gm_region_put(r);
	return err;
}

/* A page that is wholly overwritten. -EXDEV: it must be written in place. */
static int copy_whole(struct gm_memcpy *m, struct gm_ctx *ctx, uint64_t dst,
		      uint64_t src)
{
	struct gm_page *page;
	int err;

	if (ctx) {
		err = gm_node_alloc(ctx->dev->node, &page, 1, 1);
		err = GM_MIN(err, 0);
	} else {
		err = gm_home_page_get(m->as, 0, &page);
	}
	if (err)
		return err;
	if (ctx)
		page->ctx = ctx->index;
	err = gm_copy_fill(m, page, src);
	if (!err)
		err = replace(m, dst, &page);
	if (page && ctx)
		gm_page_free(page);
	else if (page)
		gm_host_page_put(m->as, page);
	return err;
}

/* Map the pages that were filled, with one message to their device. */
static int map_filled(struct gm_memcpy *m)
{
	struct gm_target t = {
		.as = m->as, .ctx = m->ctx, .nid = GM_NODE_NONE, .hint = 1
	};
	enum gm_access access[GM_COPY_BATCH];
	int status[GM_COPY_BATCH];
	unsigned int i;
	int err = 0;

	for (i = 0; i < m->nr_filled; i++)
		access[i] = GM_WRITE;
	gm_target_serve(&t, m->filled, m->nr_filled, access, status);
	/* The text is about the last. */
	for (i = 0; i < m->nr_filled; i++)
		err = status[i] ? status[i] : err;
	m->nr_filled = 0;
	return err;
}

/*
 * A page was filled: it is mapped together with those that follow, but for a
 * memory so small that it might be evicted before.
 */
static int filled(struct gm_memcpy *m, struct gm_ctx *ctx, uint64_t va)
{
	uint64_t most = GM_MIN(gm_load(&ctx->dev->node->nr_total) / 16,
			       (uint64_t)GM_COPY_BATCH);
	int err = 0;

	if (m->nr_filled && m->ctx != ctx)
		err = map_filled(m);
	if (err)
		return err;
	if (m->ctx != ctx) {
		if (m->ctx)
			gm_ctx_put(m->ctx);
		m->ctx = gm_ctx_get(m->as, ctx->dev);
	}
	/* Lost meanwhile: the page says what that means. */
	if (!m->ctx)
		return fetch(m, ctx, va);
	m->filled[m->nr_filled++] = va;
	return m->nr_filled >= most ? map_filled(m) : 0;
}

/* Write the buffer into the XPU's page; -EAGAIN if it is not there alone. */
static int write_xpu(struct gm_memcpy *m, struct gm_ctx *ctx, uint64_t dst,
		     uint64_t n)
{
	struct gm_region *r = gm_region_lookup(m->as, dst);
	struct gm_entry *e;
	struct gm_page *page;
	int err = -EAGAIN;

	if (!r)
		return gm_copy_text(-EFAULT, dst, "store");
	e = gm_dir_entry(r->dir, gm_region_slot(r, dst));
	if (e) {
		gm_lock(&e->lock, GM_RANK_ENTRY);
		GM_COVER(e->state, GM_ON_COPY_INTO);
		page = gm_entry_ctx_copy(e, ctx->index);
		if (page && e->state == GM_STATE_MODIFIED)
			err = gm_page_write(page, dst & GM_PAGE_MASK, m->buffer,
					    n);
		gm_unlock(&e->lock, GM_RANK_ENTRY);
	}
	gm_region_put(r);
	return err;
}

/* Part of a page, at most GM_COPY_CHUNK bytes. */
static int copy_part(struct gm_memcpy *m, struct gm_ctx *ctx, uint64_t dst,
		     uint64_t src, uint64_t n)
{
	int err;

	do {
		struct gm_piece p = { .src = src, .n = n };

		err = gm_copy_read(m, &p);
	} while (err == -EAGAIN);
	if (err)
		return err;
	if (!ctx)
		return gm_copy_fault_text(
			m->as, gm_host_user_write(m->as, dst, m->buffer, n),
			dst, GM_PROT_WRITE);
	do {
		err = fetch(m, ctx, dst & ~GM_PAGE_MASK);
		if (!err)
			err = write_xpu(m, ctx, dst, n);
	} while (err == -EAGAIN);
	return err;
}

/* Both sides are where the CPU may as well copy by itself. */
static int by_cpu(struct gm_memcpy *m, uint64_t va)
{
	struct gm_region *r = gm_region_lookup(m->as, va);
	struct gm_entry *e;
	int on_cpu = 1;

	if (!r)
		return 1;
	e = gm_dir_peek(r->dir, gm_region_slot(r, va));
	if (e) {
		gm_lock(&e->lock, GM_RANK_ENTRY);
		on_cpu = gm_entry_on_cpu(e) || e->state == GM_STATE_FRAGMENTED;
		gm_unlock(&e->lock, GM_RANK_ENTRY);
	} else {
		on_cpu = r->dir->fresh == GM_STATE_UNTRACKED;
	}
	gm_region_put(r);
	return on_cpu;
}

static int one_piece(struct gm_memcpy *m, uint64_t dst, uint64_t src,
		     uint64_t n)
{
	struct gm_ctx *ctx = NULL;
	int err = -EXDEV;

	if (m->node >= gm_machine.nr_host_nodes || m->node == GM_NODE_NONE)
		ctx = is_unified(m->as, dst) ? dst_ctx(m, dst) : NULL;
	if (!ctx && by_cpu(m, dst) && by_cpu(m, src) &&
	    by_cpu(m, src + n - 1)) {
		err = gm_host_user_copy(m->as, dst, src, n);
		/* Which side it was is worth knowing. */
		if (err == -EFAULT &&
		    (gm_copy_denied(m->as, src, GM_PROT_READ) ||
		     gm_copy_denied(m->as, src + n - 1, GM_PROT_READ)))
			return gm_copy_text(-EACCES, src, "load");
		if (err == -EFAULT && gm_copy_denied(m->as, dst, GM_PROT_WRITE))
			return gm_copy_text(-EACCES, dst, "store");
		return gm_copy_text(err, dst,
				    "store (or load from the source)");
	}
	if (n == GM_PAGE_SIZE && is_unified(m->as, dst)) {
		do
			err = copy_whole(m, ctx, dst, src);
		while (err == -EAGAIN);
		if (!err)
			err = ctx ? filled(m, ctx, dst) : fetch(m, NULL, dst);
	}
	while (err == -EXDEV && n) {
		uint64_t part = GM_MIN(n, GM_COPY_CHUNK);
		int part_err;

		part = GM_MIN(part, GM_PAGE_SIZE - (src & GM_PAGE_MASK));
		part_err = copy_part(m, ctx, dst, src, part);

		if (part_err) {
			err = part_err;
			break;
		}
		dst += part;
		src += part;
		n -= part;
	}
	if (ctx)
		gm_ctx_put(ctx);
	if (err == -EXDEV)
		err = 0;
	return GM_MIN(err, 0);
}

/* --- pieces ------------------------------------------------------------ */

/* Ascending: up to the next page of the destination. */
static uint64_t piece_up(uint64_t dst, uint64_t left)
{
	return GM_MIN(left, GM_PAGE_SIZE - (dst & GM_PAGE_MASK));
}

/* Descending, for an overlap: small, and read before it is written. */
static uint64_t piece_down(uint64_t dst_end, uint64_t src_end, uint64_t left)
{
	uint64_t d = dst_end & GM_PAGE_MASK, s = src_end & GM_PAGE_MASK;
	uint64_t n = GM_MIN(left, GM_COPY_CHUNK);

	n = GM_MIN(n, d ? d : GM_PAGE_SIZE);
	return GM_MIN(n, s ? s : GM_PAGE_SIZE);
}

static int part_piece(struct gm_memcpy *m, uint64_t dst, uint64_t src,
		      uint64_t n)
{
	struct gm_ctx *ctx = is_unified(m->as, dst) ? dst_ctx(m, dst) : NULL;
	int err = copy_part(m, ctx, dst, src, n);

	if (ctx)
		gm_ctx_put(ctx);
	return err;
}

static int copy_down(struct gm_memcpy *m, uint64_t dst, uint64_t src,
		     uint64_t len)
{
	int err = 0;

	while (!err && len) {
		uint64_t n = piece_down(dst + len, src + len, len);

		len -= n;
		err = part_piece(m, dst + len, src + len, n);
	}
	return err;
}

static int copy_up(struct gm_memcpy *m, uint64_t dst, uint64_t src,
		   uint64_t len, int overlap)
{
	int err = 0;

	while (!err && len) {
		uint64_t n = piece_up(dst, len);

		/* A part may not cross a page of its source either. */
		if (n < GM_PAGE_SIZE || overlap || !is_unified(m->as, dst))
			n = GM_MIN(n, GM_PAGE_SIZE - (src & GM_PAGE_MASK));
		if (overlap) {
			n = GM_MIN(n, GM_COPY_CHUNK);
			err = part_piece(m, dst, src, n);
		} else {
			err = one_piece(m, dst, src, n);
		}
		dst += n;
		src += n;
		len -= n;
	}
	return err;
}

static int node_check(struct gm_as *as, int node)
{
	struct gm_ctx *ctx;

	if (node == GM_NODE_NONE ||
	    (node >= 0 && node < gm_machine.nr_host_nodes))
		return 0;
	if (!gm_node_find(node))
		return gm_host_error(-EINVAL, "there is no node %d", node);
	ctx = gm_ctx_of_node(as, node);
	if (!ctx)
		return gm_host_error(-ENODEV,
				     "the XPU of node %d is lost, or not "
				     "attached to this process",
				     node);
	gm_ctx_put(ctx);
	return 0;
}

/* One thread's part. The ranges overlap only if there is but one. */
static int copy_range(struct gm_as *as, int node, uint64_t dst, uint64_t src,
		      uint64_t len)
{
	struct gm_memcpy m = { .as = as, .node = node };
	int overlap = dst < src + len && src < dst + len;
	int err;

	m.buffer = gm_host_zalloc(GM_COPY_CHUNK);
	if (!m.buffer)
		return gm_host_error(-ENOMEM, "no memory for a copy's buffer");
	if (overlap && dst > src)
		err = copy_down(&m, dst, src, len);
	else
		err = copy_up(&m, dst, src, len, overlap);
	if (!err && m.nr_filled)
		err = map_filled(&m);
	if (m.ctx)
		gm_ctx_put(m.ctx);
	gm_host_zfree(m.buffer, GM_COPY_CHUNK);
	if (m.slot)
		gm_host_page_put(as, m.slot);
	return err;
}

/* --- parts, for several threads ---------------------------------------- */

/*
 * From how many bytes on a copy is shared among threads, how many, and how much
 * of it each takes at a time: enough for its start not to count, little enough
 * that all end together.
 */
#define SPLIT_MIN (4 * GM_PAGE_SIZE)
#define SPLIT_THREADS 4
#define SPLIT_PAGES 4

/**
 * struct gm_split - a copy that is done in parts
 * @as: the address space
 * @node: as gm_memcpy.node
 * @dst: where it goes
 * @src: where it comes from; the ranges do not overlap
 * @len: bytes
 * @step: bytes of a part; parts end where pages of the destination end
 * @failed: the part with the lowest address that failed, with its error below:
 *	part << 32 | -errno; UINT64_MAX while none has
 * @nr_failed: how many have
 */
struct gm_split {
	struct gm_as *as;
	int node;
	uint64_t dst;
	uint64_t src;
	uint64_t len;
	uint64_t step;
	uint64_t failed; /* (A) */
	uint32_t nr_failed; /* (A) */
};

/* Where part @i begins. */
static uint64_t split_at(const struct gm_split *s, uint64_t i)
{
	uint64_t at = i * s->step - (s->dst & GM_PAGE_MASK);

	return i ? GM_MIN(at, s->len) : 0;
}

static void split_part(void *arg, unsigned int i)
{
	struct gm_split *s = arg;
	uint64_t at = split_at(s, i), end = split_at(s, i + 1);
	uint64_t first = gm_load(&s->failed), mine;
	int err;

	/* What comes behind an error need not be done. */
	if (first != UINT64_MAX || at == end)
		return;
	err = copy_range(s->as, s->node, s->dst + at, s->src + at, end - at);
	if (!err)
		return;
	__atomic_fetch_add(&s->nr_failed, 1, __ATOMIC_RELAXED);
	mine = (uint64_t)i << 32 | (uint32_t)-err;
	first = gm_load(&s->failed);
	while (mine < first &&
	       !__atomic_compare_exchange_n(&s->failed, &first, mine, 0,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
}

static int split(struct gm_as *as, int node, uint64_t dst, uint64_t src,
		 uint64_t len)
{
	struct gm_split s = { as, node, dst, src, len, 0, UINT64_MAX, 0 };
	uint64_t pages =
		((dst & GM_PAGE_MASK) + len + GM_PAGE_MASK) >> GM_PAGE_SHIFT;
	uint64_t each = GM_MIN(GM_MAX(pages / (2 * SPLIT_THREADS), (uint64_t)1),
			       (uint64_t)SPLIT_PAGES);
	uint64_t n = (pages + each - 1) / each;
	int err;

	/* Of a range that large, the rest would not be counted. */
	if (n > UINT32_MAX) {
		each = (pages + UINT32_MAX - 1) / UINT32_MAX;
		n = (pages + each - 1) / each;
	}
	s.step = each * GM_PAGE_SIZE;
	gm_host_parallel(split_part, &s, (unsigned int)n, SPLIT_THREADS);
	if (s.failed == UINT64_MAX)
		return 0;
	err = -(int)(uint32_t)s.failed;
	/* Which of the texts is left is a matter of chance. */
	if (s.nr_failed > 1)
		gm_host_error(
			err,
			"several parts of the copy failed, the first in "
			"%llu bytes from 0x%llx on (%d)",
			(unsigned long long)s.step,
			(unsigned long long)(dst +
					     split_at(&s, s.failed >> 32)),
			err);
	return err;
}

int gm_as_copy(struct gm_as *as, int node, uint64_t dst, uint64_t src,
	       uint64_t len)
{
	int overlap = dst < src + len && src < dst + len;
	int err = node_check(as, node);

	if (err)
		return err;
	if (len < SPLIT_MIN || overlap)
		err = copy_range(as, node, dst, src, len);
	else
		err = split(as, node, dst, src, len);
	if (!err)
		gm_count(gm_machine.nodes[GM_MAX(node, 0)], bytes_memcpy, len);
	gm_machine_settle();
	return err;
}
