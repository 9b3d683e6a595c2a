// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * op_access.c - loads, stores and atomic additions by CPUs and XPUs
 */
#include <string.h>

#include "tests/sim/torture.h"

int torture_called(int err, const char *what)
{
	struct sim_task *me = sim.current;

	SIM_CHECK(!me->nr_held, "%s returns with a lock held", what);
	SIM_CHECK(!me->rcu, "%s returns inside an RCU read side", what);
	SIM_CHECK(err <= 0, "%s returns %d", what, err);
	SIM_CHECK(!err || me->has_error, "%s: error %d without a text", what,
		  err);
	if (err < 0 && err > -256)
		totals.by_errno[-err]++;
	return err;
}

static bool torture_failing(void)
{
	return sim.injected || t.weights[OP_DEATH];
}

/* A device is without part of its memory, or was. */
static bool torture_shrunk(void)
{
	unsigned int i, r;

	for (i = 0; i < t.nr_devs; i++)
		for (r = 0; t.devs[i].created && r < t.devs[i].nr_ranges; r++)
			if (t.devs[i].busy || !t.devs[i].range_on[r])
				return true;
	return t.device_at >= sim.current->busy_since;
}

/* A context is being replaced, or was since this operation began. */
static bool torture_replacing(void)
{
	unsigned int i, a;

	for (i = 0; i < t.nr_devs; i++)
		for (a = 0; t.devs[i].dev && a < t.cfg.nr_as; a++)
			if (t.devs[i].dev->ctxs[a] &&
			    t.devs[i].dev->ctxs[a]->replacing)
				return true;
	return t.reset_at >= sim.current->busy_since;
}

/* Errors that come from the machine and not from the address. */
static bool torture_error_machine(int err)
{
	unsigned int i;

	switch (err) {
	case -ENOMEM:
		return t.tight || torture_failing() || torture_shrunk();
	case -EIO:
		return sim.injected;
	case -ENODEV:
	case -ETIMEDOUT:
		for (i = 0; i < t.nr_devs; i++)
			if (!t.devs[i].dev || t.devs[i].dev->dead ||
			    t.devs[i].busy)
				return true;
		return torture_failing();
	case -EBUSY:
		return sim.injected;
	case -EAGAIN:
		return torture_replacing();
	}
	return false;
}

bool torture_explained(struct model *m, uint64_t va, uint64_t len, int err)
{
	uint64_t at;

	if (torture_error_machine(err))
		return true;
	for (at = va & ~(SIM_PIECE - 1); at < va + len; at += SIM_PIECE) {
		uint64_t slot = model_slot(at);

		if (slot >= m->nr_slots - sim.cfg.nr_plain ||
		    m->changing[slot] || m->mmaps ||
		    m->changed_at[slot] >= sim.current->busy_since)
			return true;
		if (!model_mapped(m, at) && (err == -EFAULT || err == -ENOMEM))
			return true;
		if (m->prot[model_piece(at)] != 3 &&
		    (err == -EACCES || err == -EFAULT))
			return true;
		if (m->lost[slot] && err == -EHWPOISON)
			return true;
		if ((m->pins[slot] || m->pinned[slot]) && err == -EBUSY)
			return true;
		if (m->cut[slot] && (err == -EFAULT || err == -EBUSY))
			return true;
	}
	return false;
}

void torture_error_range(struct model *m, uint64_t va, uint64_t len, int err,
			 const char *what)
{
	SIM_CHECK(torture_explained(m, va, len, err),
		  "%s at %#lx + %#lx (as %u, page %lu): error %d (%s) has no "
		  "reason",
		  what, (unsigned long)va, (unsigned long)len, m->as->index,
		  (unsigned long)model_slot(va), err, sim.current->error);
}

/* The access went through; should it have? */
static void torture_check_right(struct model *m, uint64_t va, bool write,
				const char *who)
{
	uint64_t slot = model_slot(va);
	uint8_t prot = m->prot[model_piece(va)];

	if (m->changing[slot] || m->mmaps || m->loose[slot])
		return;
	SIM_CHECK(model_mapped(m, va), "%s reaches %#lx, which is unmapped",
		  who, (unsigned long)va);
	SIM_CHECK(prot & (write ? GM_PROT_WRITE : GM_PROT_READ),
		  "%s %s %#lx against its rights", who,
		  write ? "stores to" : "loads from", (unsigned long)va);
}

static bool torture_store_begin(struct model *m, uint64_t va)
{
	uint64_t word = model_off(va) / 8;

	if (!model_may_store(m, va) || m->writers[word] == 255 ||
	    !model_mapped(m, va))
		return false;
	m->writers[word]++;
	return true;
}

static void torture_store_end(struct model *m, uint64_t va)
{
	m->writers[model_off(va) / 8]--;
}

int op_cpu_load(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t va = pick_word(w, m);
	uint64_t word;
	int err;

	err = sim_cpu_access(m->as, va, &word, 8, false);
	if (err) {
		torture_error_range(m, va, 8, err, "a CPU load");
		return err;
	}
	SAY("load", m, va, 8, (int)(word & 0xffff));
	torture_check_right(m, va, false, "a CPU");
	if (model_mapped(m, va))
		model_loaded(m, va, word, "a CPU");
	return 0;
}

int op_cpu_store(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t va = pick_word(w, m);
	uint64_t word = ++t.next_value * 0x9e3779b97f4a7c15ull;
	int err;

	if (!torture_store_begin(m, va))
		return op_cpu_load(w);
	err = sim_cpu_access(m->as, va, &word, 8, true);
	if (err) {
		torture_error_range(m, va, 8, err, "a CPU store");
	} else {
		torture_check_right(m, va, true, "a CPU");
		model_stored(m, va, word);
	}
	torture_store_end(m, va);
	return err;
}

int op_xpu_load(struct worker *w)
{
	struct model *m = t.m[w->as];
	struct sim_ctx *ctx = pick_ctx(m);
	uint64_t va = pick_word(w, m);
	uint64_t word;
	int err;

	if (!ctx)
		return OP_SKIPPED;
	err = sim_xpu_access(ctx, w->index % SIM_MAX_CORES, va, &word,
			     SIM_XPU_LOAD);
	if (err) {
		torture_error_range(m, va, 8, err, "an XPU load");
		return err;
	}
	SAY("xpu load", m, va, 8, (int)(word & 0xffff));
	torture_check_right(m, va, false, "an XPU");
	if (model_mapped(m, va))
		model_loaded(m, va, word, "an XPU");
	return 0;
}

/* Hardware that does not check rights stores where it should not. */
bool torture_guard(struct sim_ctx *ctx, uint64_t va)
{
	const struct model *m = t.m[ctx->as->index];

	return m->prot[model_piece(va)] == 3 &&
	       !(m->changing[model_slot(va)] & MODEL_NO_STORES);
}

static int op_xpu_change(struct worker *w, enum sim_xpu_kind kind)
{
	struct model *m = t.m[w->as];
	struct sim_ctx *ctx = pick_ctx(m);
	uint64_t va = pick_word(w, m);
	uint64_t value = ++t.next_value * 0x9e3779b97f4a7c15ull;
	uint64_t word = value;
	int err;

	if (!ctx)
		return OP_SKIPPED;
	if (!torture_store_begin(m, va))
		return op_xpu_load(w);
	err = sim_xpu_access(ctx, w->index % SIM_MAX_CORES, va, &word, kind);
	if (err == -EACCES && !torture_guard(ctx, va)) {
		/* Held back by us, or refused: the same. */
	} else if (err) {
		torture_error_range(m, va, 8, err, "an XPU store");
	} else {
		torture_check_right(m, va, true, "an XPU");
		if (kind == SIM_XPU_ADD) {
			if (model_mapped(m, va))
				model_loaded(m, va, word, "an XPU (add)");
			value += word;
		}
		model_stored(m, va, value);
	}
	torture_store_end(m, va);
	return err;
}

int op_xpu_store(struct worker *w)
{
	return op_xpu_change(w, SIM_XPU_STORE);
}

int op_xpu_add(struct worker *w)
{
	return op_xpu_change(w, SIM_XPU_ADD);
}

/* Several faults served together, as a driver's interrupt thread would. */
int op_xpu_batch(struct worker *w)
{
	struct model *m = t.m[w->as];
	struct sim_ctx *ctx = pick_ctx(m);
	enum gm_access access[24];
	uint64_t vas[24];
	int status[24];
	unsigned int i, n = 1 + (unsigned int)sim_below(24);
	unsigned int good = 0;
	uint64_t at = pick_word(w, m);
	int served;

	if (!ctx)
		return OP_SKIPPED;
	for (i = 0; i < n; i++) {
		vas[i] =
			sim_chance(3) ? pick_word(w, m) : at + i * GM_PAGE_SIZE;
		access[i] = sim_chance(2) ? GM_READ : GM_WRITE;
		if (!(ctx->dev->caps & GM_CAP_WRITE_FAULT))
			access[i] = GM_READ;
		status[i] = 1;
	}
	ctx->users++;
	served = gm_dev_fault_many(&m->as->as, vas, n, ctx->dev->dev, access,
				   status);
	if (!--ctx->users && ctx->drain)
		sim_task_wake(ctx->drain);
	SIM_CHECK(!sim.current->nr_held, "fault_many: a lock is held");
	for (i = 0; i < n; i++) {
		SIM_CHECK(status[i] <= 0, "fault_many: no status for %u", i);
		good += !status[i];
		if (status[i] && sim_slot_at(m->as, vas[i]))
			torture_error_range(m, vas[i], 8, status[i],
					    "a batch of faults");
	}
	SIM_CHECK(served == (int)good, "fault_many returns %d, %u are served",
		  served, good);
	return 0;
}
