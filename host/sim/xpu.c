// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * xpu.c - simulated XPUs and the driver's operators over them
 *
 * Each core of an XPU has a TLB that keeps a translation until it is told to
 * forget it, or needs the room. So a mapping that the manager forgets to clear
 * goes on being used. A core whose device cannot report write faults stores
 * through a read-only translation, as such hardware does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/sim/sim.h"

bool (*sim_xpu_guard)(struct sim_ctx *ctx, uint64_t va);
void (*sim_dev_died)(struct sim_dev *dev, bool lost);

/* --- operators ---------------------------------------------------------------- */

static void sim_op_enter(enum sim_call call)
{
	struct sim_task *me = sim.current;

	SIM_CHECK(!me->rcu, "%s inside an RCU read side", sim_call_names[call]);
	SIM_CHECK(!me->in_op, "%s inside an operator", sim_call_names[call]);
	SIM_CHECK(sim_rank_held() < GM_RANK_NODE, "%s with rank %d held",
		  sim_call_names[call], sim_rank_held());
	SIM_CHECK(call == SIM_OP_EXAMINE || call == SIM_OP_RELEASE ||
			  !sim_holds_rank(GM_RANK_AS),
		  "%s with the address space locked", sim_call_names[call]);
	sim_point(call);
}

/* What an operator on a page table can come to. */
static int sim_op_fails(enum sim_call call, struct sim_dev *dev);
static int sim_pmap_fails(enum sim_call call, struct sim_ctx *ctx)
{
	if (ctx->replacing && !ctx->dev->dead)
		return -EAGAIN;
	return sim_op_fails(call, ctx->dev);
}

/* What every operator of a device that still answers can come to. */
static int sim_op_fails(enum sim_call call, struct sim_dev *dev)
{
	if (dev->dead)
		return dev->lost ? -ENODEV : -ETIMEDOUT;
	if (!sim_inject(call))
		return 0;
	if (sim.fail_error == -ENODEV || sim.fail_error == -ETIMEDOUT ||
	    (sim.fail_call < 0 && sim_below(1000000) < sim.cfg.lost_ppm)) {
		sim_dev_die(dev, sim_chance(2));
		return dev->lost ? -ENODEV : -ETIMEDOUT;
	}
	if (sim.fail_error)
		return sim.fail_error;
	return call == SIM_OP_ENTER || call == SIM_OP_ENTER_RUNS ? -ENOMEM
								 : -EIO;
}

static int sim_op_examine(void *pmap, uint64_t va, uint64_t len)
{
	struct sim_ctx *ctx = pmap;

	sim_op_enter(SIM_OP_EXAMINE);
	SIM_CHECK(len && !((va | len) & GM_PAGE_MASK), "examine: alignment");
	if (va < ctx->refuse_end && va + len > ctx->refuse_start)
		return -EADDRINUSE;
	if (!ctx->dev->dead && sim_inject(SIM_OP_EXAMINE))
		return sim.fail_error ? sim.fail_error : -EADDRINUSE;
	ctx->examined += (int64_t)(len >> GM_PAGE_SHIFT);
	return 0;
}

static void sim_op_release(void *pmap, uint64_t va, uint64_t len)
{
	struct sim_ctx *ctx = pmap;

	sim_op_enter(SIM_OP_RELEASE);
	SIM_CHECK(len && !((va | len) & GM_PAGE_MASK), "release: alignment");
	ctx->examined -= (int64_t)(len >> GM_PAGE_SHIFT);
	SIM_CHECK(ctx->examined >= 0 || ctx->dev->dead,
		  "more addresses released than examined");
}

static uint64_t sim_pt_index(struct sim_ctx *ctx, uint64_t va, uint64_t len)
{
	uint64_t i = (va - SIM_BASE) >> GM_PAGE_SHIFT;

	SIM_CHECK(len && !((va | len) & GM_PAGE_MASK) && va >= SIM_BASE &&
			  i + (len >> GM_PAGE_SHIFT) <= ctx->as->nr_slots,
		  "operator: bad range %#lx + %#lx", (unsigned long)va,
		  (unsigned long)len);
	return i;
}

/* A frame's number; the bytes must be inside one registered frame. */
static uint32_t sim_frame(struct sim_dev *dev, uint64_t daddr, uint64_t len)
{
	uint64_t at = daddr - dev->base;

	SIM_CHECK(
		daddr >= dev->base && at + len <= dev->nr_frames * GM_PAGE_SIZE,
		"operator: no such device address %#lx", (unsigned long)daddr);
	SIM_CHECK(at / GM_PAGE_SIZE == (at + len - 1) / GM_PAGE_SIZE,
		  "operator: device address range crosses a page");
	SIM_CHECK(dev->registered[at / GM_PAGE_SIZE],
		  "operator: frame is not registered");
	return (uint32_t)(at / GM_PAGE_SIZE);
}

/* The cores forget [first, first + n), one core after the other. */
static void sim_tlb_flush(struct sim_ctx *ctx, uint64_t first, uint64_t n)
{
	unsigned int c, i;

	for (c = 0; c < SIM_MAX_CORES; c++) {
		for (i = 0; i < SIM_TLB; i++) {
			struct sim_tlb *t = &ctx->cores[c].tlb[i];

			if (t->slot && t->slot - 1 - first < n)
				t->slot = 0;
		}
		sim_point(SIM_STEP);
	}
}

static void sim_pt_trace(const char *what, const struct sim_ctx *ctx,
			 uint64_t va, uint64_t len)
{
	if (sim.cfg.trace)
		printf("%8lu %3u %-14s as %u %#lx-%#lx (%lu+%lu): device %u\n",
		       (unsigned long)sim.steps, sim.current->id, what,
		       ctx->as->index, (unsigned long)va,
		       (unsigned long)(va + len),
		       (unsigned long)((va - SIM_BASE) >> GM_PAGE_SHIFT),
		       (unsigned long)(len >> GM_PAGE_SHIFT), ctx->dev->index);
}

static void sim_pt_enter(struct sim_ctx *ctx, const struct gm_pmap_run *run)
{
	uint64_t first = sim_pt_index(ctx, run->va, run->len);
	uint64_t n = run->len >> GM_PAGE_SHIFT, i;

	sim_pt_trace("pmap enter", ctx, run->va, run->len);
	SIM_CHECK((run->prot & GM_PROT_READ) && run->prot <= 3,
		  "pmap_enter with rights %u", run->prot);
	for (i = 0; i < n; i++) {
		uint64_t daddr = run->daddr + i * GM_PAGE_SIZE;
		uint32_t frame = sim_frame(ctx->dev, daddr, GM_PAGE_SIZE);

		ctx->pt[first + i].frame = frame + 1;
		ctx->pt[first + i].prot = (uint8_t)run->prot;
	}
	sim_tlb_flush(ctx, first, n);
}

static int sim_op_pmap_enter(void *pmap, const struct gm_pmap_run *run)
{
	struct sim_ctx *ctx = pmap;
	int err;

	sim_op_enter(SIM_OP_ENTER);
	err = sim_pmap_fails(SIM_OP_ENTER, ctx);
	if (err)
		return err;
	sim.current->in_op++;
	ctx->operators++;
	sim_pt_enter(ctx, run);
	ctx->operators--;
	sim.current->in_op--;
	return 0;
}

static void sim_pt_clear(struct sim_ctx *ctx, uint64_t va, uint64_t len)
{
	uint64_t first = sim_pt_index(ctx, va, len);
	uint64_t n = len >> GM_PAGE_SHIFT, i;

	sim_pt_trace("pmap clear", ctx, va, len);
	for (i = 0; i < n; i++)
		ctx->pt[first + i].frame = 0;
	sim_tlb_flush(ctx, first, n);
}

static int sim_op_pmap_clear(void *pmap, uint64_t va, uint64_t len)
{
	struct sim_ctx *ctx = pmap;
	int err;

	sim_op_enter(SIM_OP_CLEAR);
	err = sim_pmap_fails(SIM_OP_CLEAR, ctx);
	if (err)
		return err;
	sim.current->in_op++;
	ctx->operators++;
	sim_pt_clear(ctx, va, len);
	ctx->operators--;
	sim.current->in_op--;
	return 0;
}

/* The memory behind one side of a copy. */
static uint8_t *sim_copy_side(struct sim_dev *dev, bool on_dev, uint64_t addr,
			      uint64_t len)
{
	struct sim_place *place;
	uint32_t frame;

	if (on_dev) {
		frame = sim_frame(dev, addr, len);
		return dev->frames[frame] + (addr & GM_PAGE_MASK);
	}
	place = sim_place_of((void *)(uintptr_t)addr, len);
	if (place)
		SIM_CHECK(place->used && !place->page.vacant,
			  "operator: copy with a place without memory");
	else
		SIM_CHECK(sim_heap_owns((void *)(uintptr_t)addr, len) ||
				  (char *)(uintptr_t)addr >
					  (char *)sim.current->stack,
			  "operator: copy with %#lx, which is not ours",
			  (unsigned long)addr);
	return (uint8_t *)(uintptr_t)addr;
}

static int sim_op_memcpy(void *data, const struct gm_copy *copy)
{
	struct sim_dev *dev = data;
	uint8_t *dst, *src;
	uint64_t at, n;
	int err;

	bool reads = copy->dir == GM_COPY_FROM_DEV;

	sim_op_enter(SIM_OP_MEMCPY);
	SIM_CHECK(copy->len && copy->len <= GM_PAGE_SIZE, "memcpy of %lu bytes",
		  (unsigned long)copy->len);
	err = dev->dead && !dev->lost && reads
		      ? 0
		      : sim_op_fails(SIM_OP_MEMCPY, dev);
	if (err)
		return err;
	sim.current->in_op++;
	dst = sim_copy_side(dev, copy->dir != GM_COPY_FROM_DEV, copy->dst,
			    copy->len);
	src = sim_copy_side(dev, copy->dir != GM_COPY_TO_DEV, copy->src,
			    copy->len);
	SIM_CHECK(dst + copy->len <= src || src + copy->len <= dst,
		  "memcpy: the sides overlap");
	for (at = 0; at < copy->len && !dev->lost; at += n) {
		n = GM_MIN(16, copy->len - at);
		memcpy(dst + at, src + at, n);
		sim_point(SIM_STEP);
	}
	sim.current->in_op--;
	return dev->lost ? -ENODEV : 0;
}

static int sim_op_zero(void *data, uint64_t daddr, uint64_t len)
{
	struct sim_dev *dev = data;
	uint64_t at, n;
	uint8_t *dst;
	int err;

	sim_op_enter(SIM_OP_ZERO);
	SIM_CHECK(len && len <= GM_PAGE_SIZE, "zero of %lu bytes",
		  (unsigned long)len);
	err = sim_op_fails(SIM_OP_ZERO, dev);
	if (err)
		return err;
	sim.current->in_op++;
	dst = sim_copy_side(dev, true, daddr, len);
	for (at = 0; at < len && !dev->lost; at += n) {
		n = GM_MIN(16, len - at);
		memset(dst + at, 0, n);
		sim_point(SIM_STEP);
	}
	sim.current->in_op--;
	return dev->lost ? -ENODEV : 0;
}

static int sim_op_protect(void *pmap, uint64_t va, uint64_t len,
			  unsigned int prot)
{
	struct sim_ctx *ctx = pmap;
	uint64_t first, n, i;
	int err;

	sim_op_enter(SIM_OP_PROTECT);
	err = sim_pmap_fails(SIM_OP_PROTECT, ctx);
	if (err)
		return err;
	first = sim_pt_index(ctx, va, len);
	n = len >> GM_PAGE_SHIFT;
	SIM_CHECK((prot & GM_PROT_READ) && prot <= 3, "protect with rights %u",
		  prot);
	sim.current->in_op++;
	ctx->operators++;
	for (i = 0; i < n; i++) {
		SIM_CHECK(ctx->pt[first + i].frame,
			  "protect of a page that is not mapped");
		ctx->pt[first + i].prot = (uint8_t)prot;
	}
	sim_tlb_flush(ctx, first, n);
	ctx->operators--;
	sim.current->in_op--;
	return 0;
}

static int sim_op_enter_runs(void *pmap, const struct gm_pmap_run *runs,
			     unsigned int n)
{
	struct sim_ctx *ctx = pmap;
	unsigned int i;
	int err;

	sim_op_enter(SIM_OP_ENTER_RUNS);
	SIM_CHECK(n, "no runs");
	err = sim_pmap_fails(SIM_OP_ENTER_RUNS, ctx);
	if (err)
		return err;
	sim.current->in_op++;
	ctx->operators++;
	for (i = 0; i < n; i++)
		sim_pt_enter(ctx, &runs[i]);
	ctx->operators--;
	sim.current->in_op--;
	return 0;
}

static int sim_op_clear_runs(void *pmap, const struct gm_pmap_run *runs,
			     unsigned int n)
{
	struct sim_ctx *ctx = pmap;
	unsigned int i;
	int err;

	sim_op_enter(SIM_OP_CLEAR_RUNS);
	SIM_CHECK(n, "no runs");
	err = sim_pmap_fails(SIM_OP_CLEAR_RUNS, ctx);
	if (err)
		return err;
	sim.current->in_op++;
	ctx->operators++;
	for (i = 0; i < n; i++)
		sim_pt_clear(ctx, runs[i].va, runs[i].len);
	ctx->operators--;
	sim.current->in_op--;
	return 0;
}

/* --- devices -------------------------------------------------------------------- */

static void sim_scramble(struct sim_dev *dev)
{
	unsigned int i, j;

	for (i = 0; i < dev->nr_frames; i++)
		for (j = 0; j < GM_PAGE_SIZE; j++)
			dev->frames[i][j] = (uint8_t)(0x80 | sim_rand());
}

struct sim_dev *sim_dev_new(unsigned int nr_frames, unsigned int caps,
			    unsigned int flags)
{
	struct sim_dev *dev = calloc(1, sizeof(*dev));
	unsigned int i;

	for (i = 0; i < SIM_MAX_DEVS && sim.devs[i]; i++)
		;
	if (!dev || i == SIM_MAX_DEVS)
		sim_violation("no more simulated devices");
	dev->index = i;
	dev->caps = caps;
	dev->flags = flags;
	dev->nr_frames = nr_frames;
	/* Opaque: no multiple of anything but a page, not the same twice. */
	dev->base = ((uint64_t)(i + 1) << 40) + 13 * GM_PAGE_SIZE;
	dev->frames = aligned_alloc(64, (nr_frames + 1) * GM_PAGE_SIZE);
	dev->registered = calloc(nr_frames + 1, sizeof(bool));
	if (!dev->frames || !dev->registered)
		sim_violation("out of memory");
	sim_scramble(dev);
	dev->ops.size = sizeof(dev->ops);
	dev->ops.version = GM_DEV_OPS_VERSION;
	dev->ops.va_examine = sim_op_examine;
	dev->ops.pmap_enter = sim_op_pmap_enter;
	dev->ops.pmap_clear = sim_op_pmap_clear;
	dev->ops.memcpy = sim_op_memcpy;
	dev->ops.zero = sim_op_zero;
	if (flags & SIM_DEV_RELEASE)
		dev->ops.va_release = sim_op_release;
	if (flags & SIM_DEV_PROTECT)
		dev->ops.pmap_protect = sim_op_protect;
	if (flags & SIM_DEV_RUNS) {
		dev->ops.pmap_enter_runs = sim_op_enter_runs;
		dev->ops.pmap_clear_runs = sim_op_clear_runs;
	}
	sim.devs[i] = dev;
	return dev;
}

void sim_dev_free(struct sim_dev *dev)
{
	sim.devs[dev->index] = NULL;
	free(dev->frames);
	free(dev->registered);
	free(dev);
}

void sim_dev_die(struct sim_dev *dev, bool lost)
{
	if (dev->lost || (dev->dead && !lost))
		return;
	if (sim_dev_died)
		sim_dev_died(dev, lost);
	dev->dead = true;
	dev->lost = lost;
	if (lost)
		sim_scramble(dev);
}

/* --- contexts and their accesses ---------------------------------------------------- */

struct sim_ctx *sim_ctx_new(struct sim_dev *dev, struct sim_as *as)
{
	struct sim_ctx *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		sim_violation("out of memory");
	ctx->dev = dev;
	ctx->as = as;
	ctx->pt = calloc(as->nr_slots, sizeof(*ctx->pt));
	if (!ctx->pt)
		sim_violation("out of memory");
	dev->ctxs[as->index] = ctx;
	return ctx;
}

void sim_ctx_free(struct sim_ctx *ctx)
{
	SIM_CHECK(!ctx->users, "a context freed while it is used");
	ctx->dev->ctxs[ctx->as->index] = NULL;
	free(ctx->pt);
	free(ctx);
}

void sim_ctx_stop(struct sim_ctx *ctx)
{
	ctx->stopped = true;
	while (ctx->users) {
		ctx->drain = sim.current;
		sim_task_block("context drain", ctx);
	}
	ctx->drain = NULL;
}

/* The context has died: its page table is empty from now on, and its operators
 * say -EAGAIN until @ctx->replacing is false again. */
void sim_ctx_replace(struct sim_ctx *ctx)
{
	sim_ctx_stop(ctx);
	ctx->replacing = true;
	while (ctx->operators)
		sim_yield();
	sim_pt_trace("replaced", ctx, SIM_BASE,
		     ctx->as->nr_slots * GM_PAGE_SIZE);
	memset(ctx->pt, 0, ctx->as->nr_slots * sizeof(*ctx->pt));
	memset(ctx->cores, 0, sizeof(ctx->cores));
}

static void sim_ctx_leave(struct sim_ctx *ctx)
{
	if (!--ctx->users && ctx->drain)
		sim_task_wake(ctx->drain);
}

static void sim_xpu_do(uint8_t *p, uint64_t *word, enum sim_xpu_kind kind)
{
	uint64_t old;

	switch (kind) {
	case SIM_XPU_LOAD:
		memcpy(word, p, sizeof(*word));
		break;
	case SIM_XPU_STORE:
		memcpy(p, word, sizeof(*word));
		break;
	case SIM_XPU_ADD:
		memcpy(&old, p, sizeof(old));
		*word += old;
		memcpy(p, word, sizeof(*word));
		*word = old;
		break;
	}
}

/* Translate and access; the fault, if there is one. */
static enum gm_access sim_xpu_step(struct sim_ctx *ctx, unsigned int core,
				   uint64_t va, uint64_t *word,
				   enum sim_xpu_kind kind)
{
	uint64_t i = (va - SIM_BASE) >> GM_PAGE_SHIFT;
	struct sim_tlb *t = &ctx->cores[core].tlb[i % SIM_TLB];
	bool checks = ctx->dev->caps & GM_CAP_WRITE_FAULT;
	bool write = kind != SIM_XPU_LOAD;

	if (t->slot != i + 1 ||
	    (write && checks && !(t->prot & GM_PROT_WRITE))) {
		/* A missing right sends the walker to the table once more. */
		t->slot = 0;
		if (!ctx->pt[i].frame)
			return write && checks ? GM_WRITE : GM_READ;
		if (write && checks && !(ctx->pt[i].prot & GM_PROT_WRITE))
			return GM_WRITE;
		t->slot = (uint32_t)i + 1;
		t->frame = ctx->pt[i].frame - 1;
		t->prot = ctx->pt[i].prot;
	}
	sim_xpu_do(ctx->dev->frames[t->frame] + (va & GM_PAGE_MASK), word,
		   kind);
	return 0;
}

int sim_xpu_try(struct sim_ctx *ctx, unsigned int core, uint64_t va,
		uint64_t *word, enum sim_xpu_kind kind)
{
	if (ctx->stopped || ctx->dev->dead || !ctx->attached)
		return -ENODEV;
	if (!sim_slot_at(ctx->as, va))
		return -EFAULT;
	return sim_xpu_step(ctx, core, va, word, kind) ? -EAGAIN : 0;
}

static int sim_xpu_fault(struct sim_ctx *ctx, uint64_t va,
			 enum gm_access access)
{
	int err;

	sim.current->has_error = false;
	err = gm_dev_fault(&ctx->as->as, va, ctx->dev->dev, access);
	SIM_CHECK(!sim.current->nr_held, "dev_fault returns with a lock held");
	SIM_CHECK(err <= 0, "dev_fault returns %d", err);
	SIM_CHECK(!err || sim.current->has_error,
		  "dev_fault: error %d without a text", err);
	return err;
}

int sim_xpu_access(struct sim_ctx *ctx, unsigned int core, uint64_t va,
		   uint64_t *word, enum sim_xpu_kind kind)
{
	unsigned int tries = 0;
	enum gm_access fault;
	int err = 0;

	if (!sim_slot_at(ctx->as, va))
		return -EFAULT;
	if (!ctx->attached || ctx->stopped)
		return -ENODEV;
	ctx->users++;
	for (;;) {
		sim_point(SIM_STEP);
		err = ctx->dev->dead || ctx->stopped ? -ENODEV : 0;
		if (!err && kind != SIM_XPU_LOAD && sim_xpu_guard &&
		    !(ctx->dev->caps & GM_CAP_WRITE_FAULT) &&
		    !sim_xpu_guard(ctx, va))
			err = -EACCES;
		if (err)
			break;
		fault = sim_xpu_step(ctx, core, va, word, kind);
		if (!fault)
			break;
		SIM_CHECK(tries++ < 10000, "an XPU makes no progress at %#lx",
			  (unsigned long)va);
		err = sim_xpu_fault(ctx, va, fault);
		if (err)
			break;
	}
	sim_ctx_leave(ctx);
	return err;
}
