// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * op_map.c - operations that change the mapping, by calls and behind the
 *	manager's back
 */
#include <string.h>

#include "tests/sim/torture.h"

static unsigned int mapped_pages(const struct model *m)
{
	uint64_t slot, n = m->nr_slots - sim.cfg.nr_plain;
	unsigned int pages = 0;

	for (slot = 0; slot < n; slot++)
		pages += model_whole(m, slot);
	return pages;
}

static bool slots_free(const struct model *m, uint64_t va, uint64_t len)
{
	uint64_t at;

	for (at = va; at < va + len; at += GM_PAGE_SIZE) {
		const struct sim_slot *s = sim_slot_at(m->as, at);

		if (!s || s->mapped || s->reserved ||
		    m->changing[model_slot(at)] || m->claims[model_slot(at)])
			return false;
	}
	return model_slot(va + len - 1) < m->nr_slots - sim.cfg.nr_plain;
}

static uint64_t pick_free(const struct model *m, uint64_t len)
{
	uint64_t n = m->nr_slots - sim.cfg.nr_plain;
	unsigned int i;

	for (i = 0; i < 8; i++) {
		uint64_t va = SIM_BASE + sim_below(n) * GM_PAGE_SIZE;

		if (slots_free(m, va, len))
			return va;
	}
	return 0;
}

static void mapped_at(struct model *m, uint64_t va, uint64_t len,
		      unsigned int prot)
{
	uint64_t at;

	SIM_CHECK(!(va & GM_PAGE_MASK) && va >= SIM_BASE &&
			  model_slot(va + len - 1) <
				  m->nr_slots - sim.cfg.nr_plain,
		  "mmap returns %#lx", (unsigned long)va);
	for (at = va; at < va + len; at += GM_PAGE_SIZE)
		SIM_CHECK(!m->claims[model_slot(at)],
			  "mmap returns memory that is in use");
	model_map(m, va, len, prot);
}

int op_mmap(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t len = (1 + sim_below(8)) * GM_PAGE_SIZE;
	unsigned int prot = sim_chance(12) ? GM_PROT_READ : 3;
	unsigned int flags = 0;
	uint64_t hint = 0, va;
	int err;

	if (mapped_pages(m) > t.max_pages)
		return op_munmap(w);
	if (sim_chance(20))
		prot = 0;
	if (sim_chance(3)) {
		hint = pick_free(m, len);
		if (hint && sim_chance(2))
			flags = GM_RANGE_FIXED | GM_RANGE_NOREPLACE;
	}
	m->mmaps++;
	err = CALL(gm_as_map(&m->as->as, hint, len, prot, flags, &va));
	m->mmaps--;
	SAY("mmap", m, err ? 0 : va, len, err);
	if (err) {
		SIM_CHECK(err == -ENOMEM || (err == -EEXIST &&
					     (flags & GM_RANGE_NOREPLACE)),
			  "mmap: error %d", err);
		return err;
	}
	SIM_CHECK(!(flags & GM_RANGE_FIXED) || va == hint,
		  "a fixed mmap lands elsewhere");
	mapped_at(m, va, len, prot);
	return 0;
}

static void mark_cut(struct model *m, uint64_t va, uint64_t len)
{
	if (va & GM_PAGE_MASK)
		m->cut[model_slot(va)] = 1;
	if ((va + len) & GM_PAGE_MASK)
		m->cut[model_slot(va + len)] = 1;
}

int op_munmap(struct worker *w)
{
	struct model *m = t.m[w->as];
	struct model_change c;
	uint64_t va, len;
	int err;

	if (!pick_run(m, 10, &va, &len))
		return OP_SKIPPED;
	cut_run(&va, &len, sim_chance(4) ? SIM_PIECE : GM_PAGE_SIZE);
	if (!model_change(m, va, len, MODEL_LEAVING, &c))
		return OP_SKIPPED;
	mark_cut(m, va, len);
	SAY("munmap", m, va, len, 1);
	err = CALL(gm_as_unmap(&m->as->as, va, len));
	SAY("munmap", m, va, len, err);
	if (!err)
		model_unmap(m, &c, va, len);
	else if (err != -ENOMEM)
		/* A page that is cut must come home first. */
		torture_error_range(m, va, len, err, "munmap");
	model_changed(m, &c);
	return err;
}

static bool all_tracked(const struct model *m, uint64_t va, uint64_t len)
{
	uint64_t at;

	for (at = va; at < va + len; at += SIM_PIECE)
		if (!(sim_slot_at(m->as, at)->tracked & sim_piece_mask(at)))
			return false;
	return true;
}

int op_sys_munmap(struct worker *w)
{
	struct model *m = t.m[w->as];
	struct sim_event ev = { 0 };
	struct model_change c;
	uint64_t va, len;

	if (!pick_run(m, 6, &va, &len))
		return OP_SKIPPED;
	cut_run(&va, &len, sim_chance(3) ? SIM_PIECE : GM_PAGE_SIZE);
	/* Of what nobody watches there is no event: it is found out later. */
	if ((!all_tracked(m, va, len) && sim_chance(2)) ||
	    !model_change(m, va, len, MODEL_LEAVING, &c))
		return OP_SKIPPED;
	mark_cut(m, va, len);
	SAY("sys munmap", m, va, len, 1);
	sim_sys_munmap(m->as, va, len, &ev);
	sim_event_wait(&ev);
	SAY("sys munmap", m, va, len, 0);
	model_unmap(m, &c, va, len);
	model_changed(m, &c);
	return 0;
}

int op_protect(struct worker *w)
{
	static const unsigned int prots[] = { 0, 1, 3, 3, 3 };
	struct model *m = t.m[w->as];
	unsigned int prot = prots[sim_below(5)];
	struct model_change c;
	uint64_t va, len;
	int err;

	if (!pick_run(m, 6, &va, &len))
		return OP_SKIPPED;
	cut_run(&va, &len, sim_chance(6) ? SIM_PIECE : GM_PAGE_SIZE);
	if (!model_change(m, va, len, MODEL_NO_STORES, &c))
		return OP_SKIPPED;
	mark_cut(m, va, len);
	SAY("mprotect", m, va, len, (int)prot);
	err = CALL(gm_as_protect(&m->as->as, va, len, prot));
	SAY("mprotect", m, va, len, err);
	/* An XPU that fails does not stop it, and may keep its rights. */
	if (!err || err == -EIO)
		model_protect(m, va, len, prot);
	if (err == -EIO)
		memset(m->loose + c.first, 1, c.n);
	else if (err != -ENOMEM || !(sim.injected || t.tight))
		torture_error_range(m, va, len, err, "mprotect");
	model_changed(m, &c);
	return err;
}

/* Rights taken away and given back, unseen by the manager. */
int op_sys_protect(struct worker *w)
{
	struct model *m = t.m[w->as];
	struct model_change c;
	unsigned int i, n = (unsigned int)sim_below(50);
	uint64_t va, len, at;

	if (!pick_run(m, 3, &va, &len))
		return OP_SKIPPED;
	cut_run(&va, &len, SIM_PIECE);
	for (at = va; at < va + len; at += SIM_PIECE)
		if (m->prot[model_piece(at)] != 3)
			return OP_SKIPPED;
	if (!model_change(m, va, len, MODEL_CHANGING, &c))
		return OP_SKIPPED;
	sim_sys_mprotect(m->as, va, len, sim_chance(2) ? GM_PROT_READ : 0);
	for (i = 0; i < n; i++)
		sim_yield();
	sim_sys_mprotect(m->as, va, len, 3);
	model_changed(m, &c);
	return 0;
}

/* Whole pages, all with the same rights: one mapping, as Linux sees it. */
static bool pick_movable(struct model *m, uint64_t *va, uint64_t *len)
{
	uint64_t at;

	if (!pick_run(m, 6, va, len))
		return false;
	cut_run(va, len, GM_PAGE_SIZE);
	for (at = *va; at < *va + *len; at += SIM_PIECE)
		if (m->prot[model_piece(at)] != m->prot[model_piece(*va)])
			return false;
	return true;
}

static unsigned int rights_at(const struct model *m, uint64_t va)
{
	const struct sim_slot *s = sim_slot_at(m->as, va);

	return (s->readable ? GM_PROT_READ : 0) |
	       (s->writable ? GM_PROT_WRITE : 0);
}

int op_remap(struct worker *w)
{
	struct model *m = t.m[w->as];
	struct model_saved saved;
	struct model_change c;
	uint64_t va, len, new_len, kept, to;
	unsigned int prot;
	int may_move = !sim_chance(3), err;

	if (!pick_movable(m, &va, &len))
		return OP_SKIPPED;
	new_len = (1 + sim_below(8)) * GM_PAGE_SIZE;
	if (!model_change(m, va, len, MODEL_NO_STORES | MODEL_LEAVING, &c))
		return OP_SKIPPED;
	kept = GM_MIN(len, new_len);
	prot = m->prot[model_piece(va)];
	model_save(m, va, kept, &saved);
	m->mmaps++;
	to = 0;
	SAY("mremap from", m, va, len, 1);
	err = CALL(gm_as_remap(&m->as->as, va, len, new_len, may_move, &to));
	m->mmaps--;
	SAY("mremap from", m, va, len, err);
	SAY("mremap to", m, to, new_len, err);
	if (err) {
		SIM_CHECK(err == -ENOMEM || err == -EFAULT || err == -EBUSY,
			  "mremap: error %d", err);
		model_changed(m, &c);
		return err;
	}
	model_unmap(m, &c, va, len);
	model_changed(m, &c);
	/* What has been growing in place is not new memory there. */
	/* Of a page that is cut the manager does not know the rights. */
	if (new_len > kept && saved.cut[saved.n - 1])
		prot = rights_at(m, to + kept);
	if (new_len > kept)
		mapped_at(m, to + kept, new_len - kept, prot);
	model_restore(m, to, &saved);
	return 0;
}

int op_sys_remap(struct worker *w)
{
	struct model *m = t.m[w->as];
	struct sim_event ev[2];
	struct model_saved saved;
	struct model_change from, dest;
	uint64_t va, len, to;

	if (!pick_movable(m, &va, &len) || !all_tracked(m, va, len))
		return OP_SKIPPED;
	to = pick_free(m, len);
	if (!to ||
	    !model_change(m, va, len, MODEL_NO_STORES | MODEL_LEAVING, &from))
		return OP_SKIPPED;
	if (!model_change(m, to, len, MODEL_NO_STORES, &dest)) {
		model_changed(m, &from);
		return OP_SKIPPED;
	}
	model_save(m, va, len, &saved);
	SAY("sys mremap fr", m, va, len, 1);
	SAY("sys mremap to", m, to, len, 1);
	sim_sys_mremap(m->as, va, to, len, ev);
	sim_event_wait(&ev[0]);
	sim_event_wait(&ev[1]);
	SAY("sys mremap to", m, to, len, 0);
	model_unmap(m, &from, va, len);
	model_changed(m, &from);
	model_restore(m, to, &saved);
	return 0;
}
