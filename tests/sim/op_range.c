// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * op_range.c - calls that keep the mapping: hints, discards, copies, pins
 */
#include <string.h>

#include "tests/sim/torture.h"

/* An error of a hint: the node may be full, unknown, on its way out. */
static void hint_error(struct model *m, uint64_t va, uint64_t len, int err)
{
	if (err == -ENOMEM || err == -EINVAL || err == -ENODEV)
		return;
	torture_error_range(m, va, len, err, "a hint");
}

int op_willneed(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t va, len;
	int node = pick_node(), err;

	if (!pick_run(m, 12, &va, &len))
		return OP_SKIPPED;
	cut_run(&va, &len, 1);
	err = CALL(gm_as_advise(&m->as->as, node, va, len, GM_WILLNEED));
	if (err)
		hint_error(m, va, len, err);
	return err;
}

int op_advise(struct worker *w)
{
	static const int advices[] = { GM_READ_MOSTLY, GM_NOT_READ_MOSTLY,
				       GM_PREFERRED,   GM_COLD,
				       GM_PIN,	       GM_UNPIN,
				       GM_UNPIN };
	struct model *m = t.m[w->as];
	int advice = advices[sim_below(7)];
	int node = pick_node(), err;
	uint64_t va, len, slot;

	if (!pick_run(m, 4, &va, &len))
		return OP_SKIPPED;
	cut_run(&va, &len, 1);
	if (advice == GM_PIN)
		for (slot = model_slot(va); slot <= model_slot(va + len - 1);
		     slot++)
			m->pinned[slot] = 1;
	m->pin_calls += advice == GM_PIN;
	err = CALL(gm_as_advise(&m->as->as, node, va, len, advice));
	m->pin_calls -= advice == GM_PIN;
	if (err)
		hint_error(m, va, len, err);
	return err;
}

int op_prefetch_all(struct worker *w)
{
	struct model *m = t.m[w->as];
	int err = CALL(gm_as_prefetch_all(&m->as->as, pick_node()));

	if (err)
		hint_error(m, SIM_BASE, m->nr_slots * GM_PAGE_SIZE, err);
	return err;
}

/* The whole pages in the range hold new data: they are not lost any more. */
static void found_again(struct model *m, uint64_t va, uint64_t len)
{
	uint64_t slot = model_slot(va + GM_PAGE_SIZE - 1);

	for (; (slot + 1) * GM_PAGE_SIZE <= model_off(va + len); slot++) {
		if (!m->lost[slot] ||
		    m->lost_at[slot] >= sim.current->busy_since)
			continue;
		m->changed_at[slot] = sim.steps;
		m->lost[slot] = 0;
	}
}

static void discarded(struct model *m, uint64_t va, uint64_t len, int err)
{
	if (!err)
		found_again(m, va, len);
	model_release(m, va, len, !err);
}

int op_dontneed(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t va, len;
	int err;

	if (!pick_run(m, 5, &va, &len))
		return OP_SKIPPED;
	cut_run(&va, &len, 1);
	if (!model_claim(m, va, len, true))
		return OP_SKIPPED;
	model_expect(m, va, NULL, len);
	err = CALL(
		gm_as_advise(&m->as->as, GM_NODE_NONE, va, len, GM_DONTNEED));
	SAY("dontneed", m, va, len, err);
	if (err)
		torture_error_range(m, va, len, err, "a discard");
	discarded(m, va, len, err);
	return err;
}

static bool discard_begin(struct model *m, uint64_t va, uint64_t len)
{
	uint64_t slot;

	for (slot = model_slot(va); slot <= model_slot(va + len - 1); slot++)
		if (m->pins[slot])
			return false;
	if (!model_claim(m, va, len, true))
		return false;
	for (slot = model_slot(va); slot <= model_slot(va + len - 1); slot++)
		m->discards[slot]++;
	return true;
}

int op_sys_dontneed(struct worker *w)
{
	struct model *m = t.m[w->as];
	struct sim_event ev = { 0 };
	uint64_t va, len, slot;
	int err;

	if (!pick_run(m, 5, &va, &len))
		return OP_SKIPPED;
	cut_run(&va, &len, sim_chance(2) ? GM_PAGE_SIZE : SIM_PIECE);
	if (!discard_begin(m, va, len))
		return OP_SKIPPED;
	model_expect(m, va, NULL, len);
	SAY("sys dontneed", m, va, len, 0);
	sim_sys_dontneed(m->as, va, len, &ev);
	sim_event_wait(&ev);
	/* It has nobody to tell if it fails. */
	err = sim.injected || t.tight || t.weights[OP_DEATH] ? -ENOMEM : 0;
	for (slot = model_slot(va); slot <= model_slot(va + len - 1); slot++)
		m->discards[slot]--;
	discarded(m, va, len, err);
	return 0;
}

/* Pages of a copy: enough for one that is done in parts. */
#define PAIR 6

/* Two ranges anywhere, of which one may be plain memory. */
static bool pick_pair(struct model *m, uint64_t *dst, uint64_t *src,
		      uint64_t *len)
{
	uint64_t plain =
		SIM_BASE + (m->nr_slots - sim.cfg.nr_plain) * GM_PAGE_SIZE;
	uint64_t room = sim.cfg.nr_plain * GM_PAGE_SIZE;
	uint64_t n[2];

	if (!pick_run(m, PAIR, dst, &n[0]) || !pick_run(m, PAIR, src, &n[1]))
		return false;
	cut_run(dst, &n[0], 1);
	cut_run(src, &n[1], 1);
	*len = GM_MIN(n[0], n[1]);
	if (room && *len < room && sim_chance(4)) {
		uint64_t at = plain + sim_below(room - *len);

		if (sim_chance(2))
			*dst = at;
		else
			*src = at;
	} else if (sim_chance(8)) {
		/* Overlapping. */
		*len = GM_MAX(n[1] / 2, 1);
		*dst = *src + sim_below(n[1] - *len + 1);
	}
	return true;
}

static bool any_either(const struct model *m, uint64_t va, uint64_t len)
{
	uint64_t i;

	for (i = model_off(va); i < model_off(va) + len; i++)
		if (m->flags[i])
			return true;
	return false;
}

int op_memcpy(struct worker *w)
{
	uint8_t bytes[PAIR * GM_PAGE_SIZE];
	struct model *m = t.m[w->as];
	uint64_t dst, src, len;
	int node = sim_chance(3) ? GM_NODE_NONE : pick_node();
	int err;

	if (!pick_pair(m, &dst, &src, &len) || any_either(m, src, len) ||
	    any_either(m, dst, len))
		return OP_SKIPPED;
	memcpy(bytes, m->val + model_off(src), len);
	if (!model_claim_two(m, dst, src, len))
		return OP_SKIPPED;
	model_expect(m, dst, bytes, len);
	err = CALL(gm_as_copy(&m->as->as, node, dst, src, len));
	SAY("memcpy to", m, dst, len, err);
	SAY("memcpy from", m, src, len, node);
	/* A touch by the CPU on the way gets a signal for any reason. */
	if (err && err != -EINVAL && err != -ENODEV &&
	    !(err == -EFAULT && (torture_explained(m, src, len, -EHWPOISON) ||
				 torture_explained(m, dst, len, -EHWPOISON) ||
				 torture_explained(m, dst, len, -ENOMEM))) &&
	    !torture_explained(m, src, len, err))
		torture_error_range(m, dst, len, err, "gmemcpy");
	model_release(m, src, len, false);
	if (!err)
		found_again(m, dst, len);
	model_release(m, dst, len, !err);
	return err;
}

/*
 * The kernel holds a page and reads and writes it, as O_DIRECT and io_uring
 * do, past all page tables.
 */
int op_kernel_pin(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t va = pick_word(w, m), word;
	uint64_t slot = model_slot(va);
	struct sim_slot *s = sim_slot_at(m->as, va);
	unsigned int i, n = (unsigned int)sim_below(40);

	if (!model_mapped(m, va) || m->prot[model_piece(va)] != 3 ||
	    m->pins[slot] || m->discards[slot] || !model_claim(m, va, 8, false))
		return OP_SKIPPED;
	m->pins[slot] = 1;
	if (sim_cpu_access(m->as, va, &word, 8, false) ||
	    sim_sys_pin(m->as, va))
		goto out;
	for (i = 0; i < n; i++) {
		SIM_CHECK(s->present & sim_piece_mask(va),
			  "a page that the kernel holds has gone");
		if (sim_chance(4)) {
			word = ++t.next_value * 0x9e3779b97f4a7c15ull;
			memcpy(s->data + (va & GM_PAGE_MASK), &word, 8);
			model_stored(m, va, word);
		} else {
			memcpy(&word, s->data + (va & GM_PAGE_MASK), 8);
			model_loaded(m, va, word, "the kernel");
		}
		sim_yield();
	}
	sim_sys_unpin(m->as, va);
out:
	m->pins[slot] = 0;
	m->changed_at[slot] = sim.steps;
	model_release(m, va, 8, false);
	return 0;
}

/* What only looks. */
int op_query(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t va = pick_word(w, m), lost;
	struct gm_region_stats rs;
	struct gm_node_info nodes[32];
	struct gm_event events[16];
	struct gm_stats stats;
	struct gm_where where;
	int err = 0, n;

	switch (sim_below(6)) {
	case 0:
		err = CALL(gm_as_where(&m->as->as, va, &where));
		SIM_CHECK(err || (where.addr == (va & ~GM_PAGE_MASK) &&
				  where.state < GM_NR_STATES),
			  "gm_as_where says nonsense");
		break;
	case 1:
		err = CALL(gm_as_region_stats(&m->as->as, va, &rs));
		SIM_CHECK(err || (rs.start <= va && va < rs.end),
			  "gm_as_region_stats: another region");
		break;
	case 2:
		n = gm_machine_nodes(nodes, 32);
		SIM_CHECK(n >= (int)sim.cfg.host_nodes, "%d nodes", n);
		break;
	case 3:
		err = CALL(gm_machine_stats(GM_NODE_NONE, &stats));
		break;
	case 4:
		err = CALL(gm_trace_start(sim_chance(3) ? 0 : 64));
		SIM_CHECK(!err || err == -ENOMEM, "trace: error %d", err);
		return err;
	default:
		SIM_CHECK(gm_trace_read(events, 16, &lost) <= 16, "trace");
		break;
	}
	if (err)
		SIM_CHECK(err == -EFAULT, "a query: error %d", err);
	return err;
}
