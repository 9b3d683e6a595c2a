/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * serve.c - the ways in: faults of the CPU and of XPUs, and hints
 *
 * Addresses become batches of one region; outcomes become errnos and texts.
 */
#include "core/internal.h"

/* How long a page that the kernel holds is waited for: a second. */
#define BUSY_STEP_NS 1000000
#define BUSY_STEPS 1000
/* A call that says what became of each page need not: ten milliseconds. */
#define MOVE_BUSY_STEPS 10
/* A CPU fault has nobody to tell of an operator that failed just once. */
#define CPU_TRIES 3

static unsigned long long ull(uint64_t v)
{
	return v;
}

static int device_error(const struct gm_target *t, const struct gm_fault *f)
{
	if (t->ctx)
		return gm_host_error(f->err,
				     "device %s: an operator failed for the "
				     "page at 0x%llx (%d)",
				     t->ctx->dev->name, ull(f->va), f->err);
	return gm_host_error(f->err,
			     "an XPU's operator failed for the page at 0x%llx, "
			     "wanted by the CPU (%d)",
			     ull(f->va), f->err);
}

static int outcome_error(const struct gm_target *t, const struct gm_fault *f)
{
	switch (f->outcome) {
	case GM_OUT_DONE:
	case GM_OUT_ALREADY:
		return 0;
	case GM_OUT_DENIED:
		return gm_host_error(
			-EACCES, "the protection of 0x%llx forbids a %s",
			ull(f->va), f->access == GM_WRITE ? "store" : "load");
	case GM_OUT_BUSY:
		return gm_host_error(
			-EBUSY,
			"the kernel holds the page at 0x%llx (direct I/O or "
			"io_uring): it cannot leave the CPU",
			ull(f->va));
	case GM_OUT_PINNED:
		return gm_host_error(
			-EBUSY, "the page at 0x%llx is pinned to host node %d",
			ull(f->va), f->entry->node);
	case GM_OUT_NOMEM:
		/* The text was made where it is known what is full. */
		return -ENOMEM;
	case GM_OUT_POISON:
		return gm_host_error(
			-EHWPOISON,
			"the page at 0x%llx was lost with an XPU's memory",
			ull(f->va));
	case GM_OUT_ABSENT:
		return gm_host_error(-ENOENT, "there is no data at 0x%llx",
				     ull(f->va));
	case GM_OUT_FRAGMENTED:
		return gm_host_error(
			-EFAULT,
			"the page at 0x%llx was cut by a 4 KiB-grained munmap, "
			"mprotect or mremap: it stays on the CPU",
			ull(f->va));
	case GM_OUT_DEVICE:
		return device_error(t, f);
	case GM_OUT_HOST:
		return gm_host_error(
			f->err,
			"the host could not move the page at 0x%llx (%d)",
			ull(f->va), f->err);
	default:
		return gm_host_error(-EFAULT, "0x%llx is not unified memory",
				     ull(f->va));
	}
}

static void count(const struct gm_target *t, const struct gm_fault *f,
		  uint64_t start)
{
	struct gm_node *node = gm_machine.nodes[0];
	int to = t->nid;

	if (t->ctx)
		node = t->ctx->dev->node;
	if (t->ctx)
		to = node->nid;
	if (f->outcome == GM_OUT_ALREADY) {
		gm_count(node, faults_coalesced, !t->hint);
		return;
	}
	if (f->outcome != GM_OUT_DONE) {
		gm_count(node, faults_failed, !t->move);
		gm_trace(GM_EV_ERROR, f->access, f->va, 0, f->from, to, start,
			 f->err);
		return;
	}
	gm_trace(t->hint ? GM_EV_PREFETCH : GM_EV_FAULT, f->access, f->va,
		 f->copied, f->from, to, start, 0);
	if (t->hint)
		return;
	if (!t->ctx)
		gm_count(node, faults_cpu, 1);
	else if (f->access == GM_WRITE)
		gm_count(node, faults_xpu_write, 1);
	else
		gm_count(node, faults_xpu_read, 1);
}

/**
 * struct gm_serving - what gm_target_serve() has in hand
 * @batch: of one region
 * @index: which of the caller's addresses each fault is
 */
struct gm_serving {
	struct gm_batch batch;
	unsigned int index[GM_BATCH];
};

/* As many of the addresses that still wait as lie in one region. */
static int gather(const struct gm_target *t, struct gm_serving *s,
		  const uint64_t *vas, unsigned int n,
		  const enum gm_access *access, const uint8_t *waits)
{
	struct gm_batch *b = &s->batch;
	unsigned int i;

	b->n = 0;
	for (i = 0; i < n; i++) {
		uint64_t va = vas[i] & ~GM_PAGE_MASK;
		struct gm_fault *f = &b->faults[b->n];

		if (!waits[i])
			continue;
		if (!b->n)
			b->region = gm_region_lookup(t->as, va);
		if (!b->region || va >= b->region->end)
			break;
		*f = (struct gm_fault){ .va = va,
					.access = access[i],
					.from = GM_NODE_NONE,
					.outcome = GM_OUT_RESTART };
		f->entry = gm_dir_entry(b->region->dir,
					gm_region_slot(b->region, va));
		if (!f->entry)
			break;
		s->index[b->n++] = i;
	}
	return b->n;
}

static int first_waiting(const uint8_t *waits, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (waits[i])
			return i;
	return -1;
}

/*
 * The kernel holds the page, or the XPU's context is being replaced: a hint
 * waits for that, a fault of the old context need not be served.
 */
static int worth_a_wait(const struct gm_target *t, const struct gm_fault *f)
{
	if (f->outcome == GM_OUT_DEVICE)
		return f->err == -EAGAIN && (t->hint || !t->ctx);
	return f->outcome == GM_OUT_BUSY;
}

/* One batch: some of the addresses wait no longer, or have died and wait. */
static void serve_some(const struct gm_target *t, const uint64_t *vas,
		       unsigned int n, const enum gm_access *access,
		       int *status, uint8_t *waits, unsigned int *busy)
{
	struct gm_serving s = { .batch = { .as = t->as,
					   .ctx = t->ctx,
					   .nid = t->nid,
					   .hint = t->hint,
					   .move = t->move,
					   .width = t->width } };
	unsigned int patience = t->move ? MOVE_BUSY_STEPS : BUSY_STEPS;
	uint64_t start = gm_host_now();
	unsigned int i, was_busy = 0;

	if (!gather(t, &s, vas, n, access, waits)) {
		int first = first_waiting(waits, n);

		waits[first] = 0;
		status[first] =
			s.batch.region
				? gm_host_error(-ENOMEM,
						"no memory for the directory")
				: gm_host_error(-EFAULT,
						"0x%llx is not unified memory",
						ull(vas[first]));
		if (s.batch.region)
			gm_region_put(s.batch.region);
		return;
	}
	gm_batch_serve(&s.batch);
	for (i = 0; i < s.batch.n; i++) {
		struct gm_fault *f = &s.batch.faults[i];

		if (worth_a_wait(t, f) && *busy < patience) {
			was_busy = 1;
			continue;
		}
		if (f->outcome == GM_OUT_RESTART)
			continue;
		waits[s.index[i]] = 0;
		count(t, f, start);
		status[s.index[i]] = outcome_error(t, f);
	}
	gm_region_put(s.batch.region);
	if (t->ctx && !t->hint)
		gm_count(t->ctx->dev->node, ns_faults, gm_host_now() - start);
	if (was_busy) {
		++*busy;
		gm_count(gm_machine.nodes[0], busy_waits, 1);
		gm_host_sleep_until(gm_host_now() + BUSY_STEP_NS);
	}
}

void gm_target_serve(const struct gm_target *t, const uint64_t *vas,
		     unsigned int n, const enum gm_access *access, int *status)
{
	uint8_t waits[GM_BATCH];
	unsigned int busy = 0, i;
	int nid;

	GM_BUG_ON(n > GM_BATCH);
	for (i = 0; i < n; i++)
		waits[i] = 1;
	while (first_waiting(waits, n) >= 0)
		serve_some(t, vas, n, access, status, waits, &busy);
	for (nid = 0; nid < gm_machine.nr_host_nodes; nid++)
		gm_replicas_trim(gm_machine.nodes[nid]);
}

/* --- faults of an XPU -------------------------------------------------- */

/* Insert @va, if it is new; a store counts for more than a load. */
static unsigned int insert(uint64_t *vas, enum gm_access *access,
			   unsigned int n, uint64_t va, enum gm_access how)
{
	unsigned int at = n, i;

	while (at > 0 && vas[at - 1] > va)
		at--;
	if (at > 0 && vas[at - 1] == va) {
		if (how == GM_WRITE)
			access[at - 1] = GM_WRITE;
		return n;
	}
	for (i = n; i > at; i--) {
		vas[i] = vas[i - 1];
		access[i] = access[i - 1];
	}
	vas[at] = va;
	access[at] = how;
	return n + 1;
}

/* Drivers pass on what their device says. */
static int known_access(enum gm_access access)
{
	return access == GM_READ || access == GM_WRITE;
}

static void fault_chunk(const struct gm_target *t, const uint64_t *vas,
			const enum gm_access *access, unsigned int n,
			int *status)
{
	uint64_t sorted[GM_BATCH];
	enum gm_access how[GM_BATCH];
	int result[GM_BATCH];
	unsigned int i, j, nr = 0;

	for (i = 0; i < n; i++) {
		if (known_access(access[i]))
			nr = insert(sorted, how, nr, vas[i] & ~GM_PAGE_MASK,
				    access[i]);
	}
	gm_target_serve(t, sorted, nr, how, result);
	for (i = 0; i < n; i++) {
		uint64_t va = vas[i] & ~GM_PAGE_MASK;

		if (!known_access(access[i])) {
			status[i] =
				gm_host_error(-EINVAL, "an access of kind %d",
					      (int)access[i]);
			continue;
		}
		for (j = 0; sorted[j] != va; j++)
			;
		status[i] = result[j];
		/* Only the store beside this load is forbidden. */
		if (result[j] == -EACCES && access[i] != how[j])
			gm_target_serve(t, &va, 1, &access[i], &status[i]);
	}
}

/* The program may have made a place by mremap() that we hear of only now. */
static void look_again(const struct gm_target *t, const uint64_t *vas,
		       const enum gm_access *access, unsigned int n,
		       int *status)
{
	unsigned int i, told = 0;

	for (i = 0; i < n; i++) {
		if (status[i] != -EFAULT || gm_as_overlaps(t->as, vas[i], 1))
			continue;
		if (!told++)
			gm_host_told(t->as);
		fault_chunk(t, vas + i, access + i, 1, status + i);
		if (status[i] != -EFAULT)
			continue;
		gm_count(t->ctx->dev->node, faults_failed, 1);
		gm_trace(GM_EV_ERROR, access[i], vas[i] & ~GM_PAGE_MASK, 0,
			 GM_NODE_NONE, t->ctx->dev->node->nid, gm_host_now(),
			 -EFAULT);
	}
}

int gm_dev_fault_many(struct gm_as *as, const uint64_t *vas, unsigned int n,
		      struct gm_dev *dev, const enum gm_access *access,
		      int *status)
{
	struct gm_target t = { .as = as, .nid = GM_NODE_NONE };
	unsigned int i, served = 0;

	GM_SETTLE();
	t.ctx = gm_ctx_get(as, dev);
	for (i = 0; i < n; i++)
		status[i] = -ENODEV;
	if (!t.ctx) {
		gm_host_error(-ENODEV, "device %s is lost, or not attached",
			      dev->name);
		return 0;
	}
	for (i = 0; i < n; i += GM_BATCH)
		fault_chunk(&t, vas + i, access + i,
			    GM_MIN(n - i, (unsigned int)GM_BATCH), status + i);
	look_again(&t, vas, access, n, status);
	gm_ctx_put(t.ctx);
	gm_machine_settle();
	for (i = 0; i < n; i++)
		served += status[i] == 0;
	return served;
}

int gm_dev_fault(struct gm_as *as, uint64_t va, struct gm_dev *dev,
		 enum gm_access access)
{
	int status;

	gm_dev_fault_many(as, &va, 1, dev, &access, &status);
	return status;
}

/* --- faults of the CPU ------------------------------------------------- */

static int cpu_fragment(struct gm_as *as, uint64_t va)
{
	struct gm_region *r = gm_region_lookup(as, va);
	int err;

	if (!r)
		return gm_host_error(-EFAULT, "0x%llx is not unified memory",
				     ull(va));
	err = gm_fragment_fault(r, va & ~GM_PAGE_MASK);
	gm_region_put(r);
	return err;
}

static int is_fragmented(struct gm_as *as, uint64_t va)
{
	struct gm_region *r = gm_region_lookup(as, va);
	struct gm_entry *e;
	int yes;

	if (!r)
		return 0;
	e = gm_dir_peek(r->dir, gm_region_slot(r, va));
	yes = e && gm_load(&e->state) == GM_STATE_FRAGMENTED;
	gm_region_put(r);
	return yes;
}

int gm_cpu_fault(struct gm_as *as, uint64_t va, enum gm_access access)
{
	struct gm_target t = { .as = as, .nid = GM_NODE_NONE };
	unsigned int tries;
	int err = 0;

	/* -EAGAIN passes: an event is on its way, or the page was just cut. */
	for (tries = 0; tries < CPU_TRIES; tries += err != -EAGAIN) {
		if (is_fragmented(as, va)) {
			err = cpu_fragment(as, va);
			if (err != -EAGAIN)
				return err;
			continue;
		}
		gm_target_serve(&t, &va, 1, &access, &err);
		gm_machine_settle();
		if (err == -EFAULT && is_fragmented(as, va)) {
			err = -EAGAIN;
			continue;
		}
		if (!err || err == -EFAULT || err == -EACCES ||
		    err == -EHWPOISON)
			return err;
	}
	return err;
}
