/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * fault.c - a processor wants a page: the transitions of the directory
 *
 * One way for faults of the CPU, faults of an XPU, and hints (GMM paper,
 * section 4.5): get what will be needed, lock the entry, look again, plan, and
 * have the engine move the page. What is needed depends on the entry's state,
 * which may change before the lock is held; then the plan says what is missing
 * and the page starts anew.
 *
 *	gm_dev_fault(), gm_cpu_fault()	serve.c: which region, which batch
 *	  gm_batch_serve()		until nothing is left to restart
 *	    prepare()			pages, before any lock
 *	    lock_entries()
 *	    plan_xpu(), plan_cpu()	what the state asks for
 *	    gm_batch_move_locked()	migrate.c: unmap, copy, map
 *	    unlock_entries()
 */
#include "core/internal.h"

/* --- what a fault needs before it takes a lock ------------------------- */

static void want(struct gm_batch *b, struct gm_fault *f)
{
	enum gm_page_state state = gm_load(&f->entry->state);

	/* A guess, for the entry is not locked; plan_*() knows better. */
	if (b->ctx) {
		int ours = gm_load(&f->entry->holder) == b->ctx->index;

		f->want_page |= !ours;
		f->want_slot |= state == GM_STATE_UNTRACKED ||
				(state == GM_STATE_MODIFIED && !ours);
	} else {
		f->want_page |=
			state == GM_STATE_EMPTY || state == GM_STATE_UNTRACKED;
	}
}

static int get_frames(struct gm_batch *b)
{
	struct gm_node *node = b->ctx->dev->node;
	struct gm_page *pages[GM_BATCH];
	struct gm_fault *who[GM_BATCH];
	unsigned int i, n = 0, held = 0;
	int got;

	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];

		held += f->page != NULL;
		if (f->outcome == GM_OUT_PENDING && f->want_page && !f->page)
			who[n++] = f;
	}
	if (!n)
		return 0;
	/* Whoever has pages in hand may not wait for others to let go. */
	got = gm_node_alloc(node, pages, n, !held);
	for (i = 0; i < n && got >= 0; i++) {
		if (i < (unsigned int)got)
			who[i]->page = pages[i];
		else
			who[i]->outcome = GM_OUT_RESTART;
	}
	return got < 0 ? got : 0;
}

static int get_slots(struct gm_batch *b)
{
	struct gm_page *slots[GM_BATCH];
	struct gm_fault *who[GM_BATCH];
	unsigned int i, n = 0;

	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];

		if (f->outcome == GM_OUT_PENDING && f->want_slot && !f->slot)
			who[n++] = f;
	}
	if (!n || gm_home_slots_get(b->as, slots, n))
		return n ? -ENOMEM : 0;
	for (i = 0; i < n; i++)
		who[i]->slot = slots[i];
	return 0;
}

static int get_host_page(struct gm_batch *b, struct gm_fault *f)
{
	unsigned int flags;
	int err = 0;

	if (!b->ctx && f->want_page && !f->page) {
		enum gm_page_state state = gm_load(&f->entry->state);

		f->zeroed =
			state == GM_STATE_EMPTY || state == GM_STATE_UNTRACKED;
		flags = f->zeroed ? GM_HOST_ZEROED : 0;
		err = gm_host_page_get(b->as, b->nid, flags, &f->page);
		if (err)
			err = gm_home_page_get(b->as, flags, &f->page);
	}
	if (!err && f->want_bounce && !f->bounce)
		err = gm_home_page_get(b->as, 0, &f->bounce);
	return err;
}

/* A hint names a host node, and there are others: does the page go there? */
static int wants_node(const struct gm_batch *b)
{
	return !b->ctx && b->hint && gm_machine.nr_host_nodes > 1 &&
	       b->nid >= 0;
}

static void prepare(struct gm_batch *b)
{
	unsigned int i;
	int err, page_err;

	for (i = 0; i < b->n; i++)
		if (b->faults[i].outcome == GM_OUT_PENDING)
			want(b, &b->faults[i]);
	err = b->ctx ? get_frames(b) : 0;
	if (!err)
		err = get_slots(b);
	if (!err && wants_node(b))
		err = gm_region_track(b->region);
	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];

		if (f->outcome != GM_OUT_PENDING)
			continue;
		page_err = err ? err : get_host_page(b, f);
		if (!page_err)
			continue;
		f->err = page_err;
		f->outcome = page_err == -ENOMEM ? GM_OUT_NOMEM : GM_OUT_DEVICE;
	}
}

static void put_page(struct gm_as *as, struct gm_page **page)
{
	if (!*page)
		return;
	if (gm_page_is_host(*page))
		gm_host_page_put(as, *page);
	else
		gm_page_free(*page);
	*page = NULL;
}

/* What those have in hand that will not be served, or were. The others could
 * wait for it for ever. */
static unsigned int release(struct gm_batch *b, int all)
{
	unsigned int i, left = 0;

	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];

		if (f->outcome == GM_OUT_RESTART && !all) {
			left++;
			continue;
		}
		put_page(b->as, &f->page);
		put_page(b->as, &f->slot);
		put_page(b->as, &f->bounce);
	}
	return left;
}

/* --- plans: what the state asks for, entry locked ---------------------- */

static void fail(struct gm_fault *f, enum gm_outcome outcome)
{
	f->outcome = outcome;
}

/* Something is needed that was not got before the lock: say so, start anew. */
static void need(struct gm_fault *f, uint8_t *what)
{
	*what = 1;
	f->outcome = GM_OUT_RESTART;
}

/*
 * Lost data. The CPU is told in its page table, and here, with the entry
 * locked: a discard might make the page anew in between.
 */
static void refuse_poison(struct gm_batch *b, struct gm_fault *f)
{
	int err = b->ctx || b->hint ? 0 : gm_host_cpu_poison(b->as, f->va);

	if (err == -EAGAIN) {
		fail(f, GM_OUT_RESTART);
		return;
	}
	f->err = err;
	fail(f, err ? GM_OUT_HOST : GM_OUT_POISON);
}

static int refused(struct gm_batch *b, struct gm_fault *f)
{
	unsigned int prot = gm_entry_prot(b->region->dir, f->entry);

	if (gm_load(&b->region->dead))
		fail(f, GM_OUT_RESTART);
	else if (f->entry->state == GM_STATE_FRAGMENTED)
		fail(f, GM_OUT_FRAGMENTED); /* each piece has its own rights */
	else if (f->entry->state == GM_STATE_POISON)
		refuse_poison(b, f);
	else if (!(prot & GM_PROT_READ) ||
		 (f->access == GM_WRITE && !(prot & GM_PROT_WRITE)))
		fail(f, GM_OUT_DENIED);
	return f->outcome != GM_OUT_PENDING;
}

/* Should the XPU get the page for itself, with the right to write? */
static int wants_exclusive(struct gm_batch *b, struct gm_fault *f)
{
	const struct gm_entry *e = f->entry;

	if (f->access == GM_WRITE)
		return 1;
	if (!(gm_entry_prot(b->region->dir, e) & GM_PROT_WRITE))
		return 0;
	if (!(b->ctx->dev->caps & GM_CAP_WRITE_FAULT))
		return 1;
	return (e->flags & GM_ENTRY_WRITTEN) &&
	       !(e->flags & GM_ENTRY_READ_MOSTLY);
}

/* What gm_move_pages() has moved is there alone. */
static int moves_alone(const struct gm_batch *b, const struct gm_fault *f)
{
	return b->move && !(f->entry->flags & GM_ENTRY_READ_MOSTLY);
}

/* The XPU has a copy: at most its mapping is missing or too weak. */
static void plan_own(struct gm_batch *b, struct gm_fault *f,
		     struct gm_page *own)
{
	int enough = own->va == f->va && (own->prot & GM_PROT_READ) &&
		     (f->access == GM_READ || (own->prot & GM_PROT_WRITE));

	if (moves_alone(b, f) && f->entry->copies->next)
		enough = 0;
	if (enough) {
		gm_page_touch(own);
		fail(f, GM_OUT_ALREADY);
		return;
	}
	f->dst = own;
	/* Alone with the page, it may as well be allowed to write; and if it
	 * cannot report its stores, it must be alone. */
	f->exclusive = f->access == GM_WRITE || moves_alone(b, f) ||
		       ((f->entry->state == GM_STATE_MODIFIED ||
			 !(b->ctx->dev->caps & GM_CAP_WRITE_FAULT)) &&
			wants_exclusive(b, f));
	f->from = own->nid;
}

static void plan_source(struct gm_batch *b, struct gm_fault *f)
{
	const struct gm_entry *e = f->entry;
	struct gm_page *page;

	f->src = gm_entry_host_copy(e);
	for (page = e->copies; page && !f->src; page = page->next)
		if (page->nid == f->page->nid)
			f->src = page;
	if (!f->src)
		f->src = e->copies;
	f->from = f->src->nid;
	if (b->ctx && !gm_page_is_host(f->src) && f->src->nid != f->page->nid &&
	    !f->bounce)
		need(f, &f->want_bounce);
}

static void plan_xpu(struct gm_batch *b, struct gm_fault *f)
{
	const struct gm_entry *e = f->entry;
	struct gm_page *own;

	if (refused(b, f))
		return;
	own = gm_entry_ctx_copy(e, b->ctx->index);
	if (own) {
		plan_own(b, f, own);
		return;
	}
	if ((e->flags & GM_ENTRY_PINNED) &&
	    e->node < gm_machine.nr_host_nodes) {
		fail(f, GM_OUT_PINNED);
		return;
	}
	if (!f->page) {
		need(f, &f->want_page);
		return;
	}
	f->exclusive = wants_exclusive(b, f) || moves_alone(b, f);
	if (gm_entry_on_cpu(e)) {
		if (!f->slot)
			need(f, &f->want_slot);
	} else if (e->state == GM_STATE_EMPTY && b->move) {
		fail(f, GM_OUT_ABSENT);
	} else if (e->state == GM_STATE_EMPTY) {
		f->fresh = 1;
		f->exclusive = 1;
	} else {
		plan_source(b, f);
	}
}

/* The page for it is there, and it is of the node. */
static int got_there(struct gm_batch *b, struct gm_fault *f)
{
	if (!f->page) {
		need(f, &f->want_page);
		return 0;
	}
	if (f->page->nid == b->nid)
		return 1;
	gm_host_error(-ENOMEM, "host node %d is full", b->nid);
	fail(f, GM_OUT_NOMEM);
	return 0;
}

/* The CPU has it mapped: at home, unless that is another host node. */
static void plan_mapped(struct gm_batch *b, struct gm_fault *f)
{
	const struct gm_entry *e = f->entry;
	int nid = b->nid;

	if (wants_node(b) || b->move)
		nid = gm_host_cpu_node(b->as, f->va);
	f->from = nid < 0 ? GM_NODE_NONE : nid;
	if (nid < 0 && b->move) {
		fail(f, GM_OUT_ABSENT);
	} else if (nid < 0 || nid == b->nid || !wants_node(b)) {
		fail(f, GM_OUT_ALREADY);
	} else if ((e->flags & GM_ENTRY_PINNED) && e->node != b->nid &&
		   e->node < gm_machine.nr_host_nodes) {
		fail(f, GM_OUT_PINNED);
	} else if (got_there(b, f)) {
		f->relocate = 1;
		if (!f->slot)
			need(f, &f->want_slot);
	}
}

static void plan_cpu(struct gm_batch *b, struct gm_fault *f)
{
	const struct gm_entry *e = f->entry;

	if (refused(b, f))
		return;
	f->exclusive = 1;
	if (b->hint && gm_entry_on_cpu(e)) {
		plan_mapped(b, f);
		return;
	}
	if (b->move && e->state == GM_STATE_EMPTY) {
		fail(f, GM_OUT_ABSENT);
		return;
	}
	f->dst = gm_entry_host_copy(e);
	if (f->dst && wants_node(b) && f->dst->nid != b->nid) {
		f->dst = NULL;
		if (got_there(b, f))
			plan_source(b, f);
		return;
	}
	if (f->dst) {
		f->from = f->dst->nid;
		return;
	}
	if (!f->page) {
		need(f, &f->want_page);
		return;
	}
	if (e->copies)
		plan_source(b, f);
	else
		f->fresh = 1;
}

static enum gm_entry_event event_of(const struct gm_batch *b,
				    const struct gm_fault *f)
{
	if (b->hint)
		return b->ctx ? GM_ON_PREFETCH_XPU : GM_ON_PREFETCH_HOST;
	if (!b->ctx)
		return GM_ON_CPU_FAULT;
	return f->access == GM_WRITE ? GM_ON_XPU_WRITE : GM_ON_XPU_READ;
}

/* --- the batch --------------------------------------------------------- */

/* The first entry is worth a wait, the others start anew if they are taken. */
static void lock_entries(struct gm_batch *b)
{
	unsigned int i, locked = 0;

	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];

		if (f->outcome != GM_OUT_PENDING)
			continue;
		if (!locked)
			gm_lock(&f->entry->lock, GM_RANK_ENTRY);
		else if (!gm_trylock(&f->entry->lock, GM_RANK_ENTRY)) {
			f->outcome = GM_OUT_RESTART;
			continue;
		}
		f->locked = 1;
		locked++;
	}
}

static void unlock_entries(struct gm_batch *b)
{
	unsigned int i;

	for (i = 0; i < b->n; i++) {
		if (b->faults[i].locked)
			gm_unlock(&b->faults[i].entry->lock, GM_RANK_ENTRY);
		b->faults[i].locked = 0;
	}
}

/*
 * A processor that has just got a page may keep it for a while. Others wait
 * with the entry locked, and so are served in the order of their arrival.
 */
static void wait_residence(struct gm_batch *b)
{
	unsigned int who = b->ctx ? b->ctx->index : 0, i;
	uint64_t until = 0;

	for (i = 0; i < b->n; i++) {
		struct gm_fault *f = &b->faults[i];

		if (f->outcome == GM_OUT_PENDING && f->entry->holder != who &&
		    (f->exclusive || gm_entry_on_cpu(f->entry)))
			until = GM_MAX(until, gm_entry_claim_locked(f->entry));
	}
	if (gm_host_now() >= until)
		return;
	gm_count(gm_machine.nodes[b->ctx ? b->ctx->dev->node->nid : 0],
		 residence_waits, 1);
	gm_host_sleep_until(until);
}

static void begin(struct gm_fault *f)
{
	if (f->outcome != GM_OUT_RESTART)
		return;
	f->outcome = GM_OUT_PENDING;
	f->exclusive = 0;
	f->fresh = 0;
	f->relocate = 0;
	f->copied = 0;
	f->src = NULL;
	f->dst = NULL;
	f->from = GM_NODE_NONE;
}

void gm_batch_serve(struct gm_batch *b)
{
	unsigned int i, again;

	do {
		for (i = 0; i < b->n; i++)
			begin(&b->faults[i]);
		prepare(b);
		lock_entries(b);
		for (i = 0; i < b->n; i++) {
			if (!b->faults[i].locked)
				continue;
			GM_COVER(b->faults[i].entry->state,
				 event_of(b, &b->faults[i]));
			if (b->ctx)
				plan_xpu(b, &b->faults[i]);
			else
				plan_cpu(b, &b->faults[i]);
		}
		wait_residence(b);
		gm_batch_move_locked(b);
		unlock_entries(b);
		again = release(b, 0);
	} while (again && !gm_load(&b->region->dead));
	release(b, 1);
}
