/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * advise.c - hints about how a range will be used
 *
 * GM_WILLNEED and GM_PIN run the fault's own routine for each page that is not
 * there (GMM paper, section 4.6), on up to four threads (section 5). The others
 * leave a mark on entries and pages.
 */
#include "core/internal.h"

#define PREFETCH_THREADS 4
/* A pinned page may be taken between its move and its mark. */
#define PIN_TRIES 3

/**
 * struct gm_prefetch - a range on its way to a processor
 * @target: the processor
 * @start: first page
 * @end: after the last page
 * @only_backed: leave pages without data alone
 * @err: the first failure (A)
 * @hole: an address that is not unified memory, 0 if there is none (A)
 */
struct gm_prefetch {
	struct gm_target target;
	uint64_t start;
	uint64_t end;
	uint8_t only_backed;
	int err;
	uint64_t hole;
};

static void first_error(int *where, int err)
{
	int none = 0;

	__atomic_compare_exchange_n(where, &none, err, 0, __ATOMIC_ACQ_REL,
				    __ATOMIC_ACQUIRE);
}

/* Is there data at @va, as far as anyone knows? */
static int backed(struct gm_region *r, uint64_t va)
{
	struct gm_entry *e = gm_dir_peek(r->dir, gm_region_slot(r, va));
	unsigned int state = e ? gm_load(&e->state) : r->dir->fresh;

	return state == GM_STATE_MODIFIED || state == GM_STATE_SHARED ||
	       state == GM_STATE_UNTRACKED;
}

/* The pages of one chunk that a hint is to move. */
static unsigned int chunk_pages(struct gm_prefetch *p, uint64_t va,
				uint64_t end, uint64_t *vas)
{
	unsigned int n = 0;

	for (; va < end; va += GM_PAGE_SIZE) {
		struct gm_region *r = gm_region_lookup(p->target.as, va);

		if (!r) {
			gm_store(&p->hole, va);
			continue;
		}
		if (!p->only_backed || backed(r, va))
			vas[n++] = va;
		gm_region_put(r);
	}
	return n;
}

static void prefetch_chunk(void *arg, unsigned int i)
{
	struct gm_prefetch *p = arg;
	uint64_t va = p->start + i * (GM_BATCH * GM_PAGE_SIZE);
	uint64_t end = GM_MIN(p->end, va + GM_BATCH * GM_PAGE_SIZE);
	uint64_t vas[GM_BATCH] = { 0 };
	enum gm_access access[GM_BATCH] = { 0 };
	int status[GM_BATCH];
	unsigned int n = chunk_pages(p, va, end, vas), j;

	if (!n)
		return;
	for (j = 0; j < n; j++)
		access[j] = GM_READ;
	gm_target_serve(&p->target, vas, n, access, status);
	for (j = 0; j < n; j++) {
		/* What the program may not read, it will not need. */
		if (status[j] && status[j] != -EACCES)
			first_error(&p->err, status[j]);
	}
}

static int prefetch_error(const struct gm_prefetch *p)
{
	if (p->err == -ENOMEM && p->target.ctx)
		return gm_node_full(p->target.ctx->dev->node, 1);
	if (p->err == -ENOMEM)
		return gm_host_error(-ENOMEM,
				     "host memory is full: some pages could "
				     "not be moved there");
	if (p->err == -EBUSY)
		return gm_host_error(-EBUSY,
				     "some pages stay where they are: the "
				     "kernel holds them, or a GM_PIN");
	if (p->err == -EHWPOISON)
		return gm_host_error(-EHWPOISON,
				     "some pages were lost with an XPU's "
				     "memory");
	return gm_host_error(p->err, "some pages could not be moved (%d)",
			     p->err);
}

/*
 * The next unbroken stretch of unified memory in [*at, end): its start in *at.
 * Return: where it ends, 0 if there is none. A hole is no page's business, and
 * may be most of the address space.
 */
static uint64_t stretch(struct gm_as *as, uint64_t *at, uint64_t end,
			uint64_t *hole)
{
	struct gm_region *r = gm_region_next(as, *at, end);
	uint64_t stop = 0;

	if (!r || r->start > *at)
		*hole = GM_MAX(*at,
			       (uint64_t)1); /* 0 says that there is none */
	if (r)
		*at = GM_MAX(*at, r->start);
	while (r) {
		stop = GM_MIN(r->end, end);
		gm_region_put(r);
		r = stop < end ? gm_region_lookup(as, stop) : NULL;
	}
	return stop;
}

static void prefetch_stretch(struct gm_prefetch *p)
{
	uint64_t pages = (p->end - p->start) >> GM_PAGE_SHIFT;
	uint64_t chunks = (pages + GM_BATCH - 1) / GM_BATCH, done = 0;

	while (done < chunks) {
		struct gm_prefetch part = *p;
		uint64_t n = GM_MIN(chunks - done, (uint64_t)1 << 20);

		part.start += done * GM_BATCH * GM_PAGE_SIZE;
		gm_host_parallel(prefetch_chunk, &part, n,
				 GM_MIN(n, (uint64_t)PREFETCH_THREADS));
		if (part.err)
			first_error(&p->err, part.err);
		if (part.hole)
			p->hole = part.hole;
		done += n;
	}
}

static int prefetch(struct gm_prefetch *p)
{
	struct gm_prefetch part = *p;
	uint64_t end = p->end;

	while (part.start < end) {
		part.end = stretch(p->target.as, &part.start, end, &part.hole);
		if (!part.end)
			break;
		prefetch_stretch(&part);
		part.start = part.end;
	}
	/* The texts of the threads that moved pages are gone with them. */
	if (part.err)
		return prefetch_error(&part);
	if (part.hole)
		return gm_host_error(-ENOMEM, "0x%llx is not unified memory",
				     (unsigned long long)part.hole);
	return 0;
}

/* --- marks ------------------------------------------------------------- */

/* What a mark is put on, its entry locked. */
struct gm_mark {
	struct gm_as *as;
	int node;
	int advice;
};

static struct gm_page *copy_on(const struct gm_entry *e, int nid)
{
	struct gm_page *page;

	for (page = e->copies; page; page = page->next)
		if (page->nid == nid)
			return page;
	return NULL;
}

static void prefer(const struct gm_mark *m, struct gm_entry *e)
{
	struct gm_page *page;

	for (page = e->copies; page; page = page->next)
		gm_page_prefer(page, page->nid == m->node);
	if (e->flags & GM_ENTRY_PINNED)
		return;
	e->flags &= ~GM_ENTRY_PREFERRED;
	if (m->node != GM_NODE_NONE)
		e->flags |= GM_ENTRY_PREFERRED;
	e->node = m->node;
}

static int pin(const struct gm_mark *m, struct gm_entry *e)
{
	struct gm_page *page = copy_on(e, m->node);
	int on_host = m->node < gm_machine.nr_host_nodes;

	GM_COVER(e->state, GM_ON_PIN);
	if (on_host ? !gm_entry_on_cpu(e) && e->state != GM_STATE_FRAGMENTED
		    : !page)
		return -EAGAIN;
	e->flags &= ~GM_ENTRY_PREFERRED;
	e->flags |= GM_ENTRY_PINNED;
	e->node = m->node;
	if (page)
		gm_page_wire(page, 1);
	return 0;
}

static void unpin(struct gm_entry *e)
{
	struct gm_page *page;

	if (!(e->flags & GM_ENTRY_PINNED))
		return;
	e->flags &= ~GM_ENTRY_PINNED;
	for (page = e->copies; page; page = page->next)
		gm_page_wire(page, 0);
}

static int mark_locked(const struct gm_mark *m, struct gm_entry *e)
{
	struct gm_page *page;

	switch (m->advice) {
	case GM_READ_MOSTLY:
		e->flags |= GM_ENTRY_READ_MOSTLY;
		break;
	case GM_NOT_READ_MOSTLY:
		e->flags &= ~GM_ENTRY_READ_MOSTLY;
		break;
	case GM_PREFERRED:
		prefer(m, e);
		break;
	case GM_COLD:
		page = copy_on(e, m->node);
		if (page)
			gm_page_cool(page);
		break;
	case GM_PIN:
		return pin(m, e);
	case GM_UNPIN:
		unpin(e);
		break;
	}
	return 0;
}

static int mark_page(const struct gm_mark *m, uint64_t va)
{
	struct gm_region *r;
	struct gm_entry *e;
	int err, dead;

	do {
		r = gm_region_lookup(m->as, va);
		if (!r)
			return gm_host_error(-ENOMEM,
					     "0x%llx is not unified memory",
					     (unsigned long long)va);
		e = gm_dir_entry(r->dir, gm_region_slot(r, va));
		err = e ? 0
			: gm_host_error(-ENOMEM, "no memory for the directory");
		dead = 0;
		if (e) {
			gm_lock(&e->lock, GM_RANK_ENTRY);
			dead = gm_load(&r->dead);
			err = dead ? 0 : mark_locked(m, e);
			gm_unlock(&e->lock, GM_RANK_ENTRY);
		}
		gm_region_put(r);
	} while (dead);
	return err;
}

static int mark(const struct gm_mark *m, uint64_t start, uint64_t end)
{
	uint64_t va = start, stop, hole = 0;
	int first = 0, err;

	while (va < end && (stop = stretch(m->as, &va, end, &hole))) {
		for (; va < stop; va += GM_PAGE_SIZE) {
			err = mark_page(m, va);
			if (err && !first)
				first = err;
		}
	}
	if (hole && !first)
		first = gm_host_error(-ENOMEM, "0x%llx is not unified memory",
				      (unsigned long long)hole);
	return first;
}

/* --- the calls --------------------------------------------------------- */

int gm_target_of(struct gm_as *as, int node, struct gm_target *t)
{
	*t = (struct gm_target){ .as = as, .nid = node, .hint = 1 };
	if (node >= 0 && node < gm_machine.nr_host_nodes)
		return 0;
	if (!gm_node_find(node))
		return gm_host_error(-EINVAL, "there is no node %d", node);
	t->ctx = gm_ctx_of_node(as, node);
	if (!t->ctx)
		return gm_host_error(-ENODEV,
				     "the XPU of node %d is lost, or not "
				     "attached to this process",
				     node);
	return 0;
}

static int move(struct gm_as *as, int node, uint64_t start, uint64_t end,
		int only_backed)
{
	struct gm_prefetch p = { .start = start,
				 .end = end,
				 .only_backed = only_backed };
	int err = gm_target_of(as, node, &p.target);

	if (!err)
		err = prefetch(&p);
	if (p.target.ctx)
		gm_ctx_put(p.target.ctx);
	gm_machine_settle();
	return err;
}

static int move_and_pin(const struct gm_mark *m, uint64_t start, uint64_t end)
{
	unsigned int tries;
	int err = 0;

	for (tries = 0; tries < PIN_TRIES; tries++) {
		err = move(m->as, m->node, start, end, 0);
		if (err)
			return err;
		err = mark(m, start, end);
		if (err != -EAGAIN)
			return err;
	}
	return gm_host_error(-EBUSY,
			     "other processors keep taking pages that are to "
			     "be pinned to node %d",
			     m->node);
}

int gm_as_advise(struct gm_as *as, int node, uint64_t va, uint64_t len,
		 int advice)
{
	struct gm_mark m = { .as = as, .node = node, .advice = advice };
	uint64_t start = va & ~GM_PAGE_MASK;
	uint64_t end = (va + len + GM_PAGE_MASK) & ~GM_PAGE_MASK;

	switch (advice) {
	case GM_DONTNEED:
		return gm_as_discard(as, va, len);
	case GM_WILLNEED:
		return move(as, node, start, end, 0);
	case GM_PIN:
		return move_and_pin(&m, start, end);
	case GM_PREFERRED:
	case GM_COLD:
		if (!gm_node_find(node) &&
		    !(advice == GM_PREFERRED && node == GM_NODE_NONE))
			return gm_host_error(-EINVAL, "there is no node %d",
					     node);
		return mark(&m, start, end);
	case GM_READ_MOSTLY:
	case GM_NOT_READ_MOSTLY:
	case GM_UNPIN:
		return mark(&m, start, end);
	default:
		return gm_host_error(-EINVAL, "%d is no advice", advice);
	}
}

int gm_as_prefetch_all(struct gm_as *as, int node)
{
	struct gm_region *r;
	uint64_t at = 0;
	int first = 0, err;

	while ((r = gm_region_next(as, at, ~(uint64_t)0))) {
		err = move(as, node, r->start, r->end, 1);
		if (err && !first)
			first = err;
		at = r->end;
		gm_region_put(r);
	}
	return first;
}
