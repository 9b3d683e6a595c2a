// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * pick.c - addresses, ranges, nodes and contexts to work on, at random
 */
#include "tests/sim/torture.h"

uint64_t pick_word(struct worker *w, struct model *m)
{
	uint64_t n = m->nr_slots - sim.cfg.nr_plain;
	uint64_t slot, word = sim_below(MODEL_WORDS);
	unsigned int i;

	if (sim_chance(64)) /* anywhere */
		return SIM_BASE + sim_below(n) * GM_PAGE_SIZE + word * 8;
	if (!sim_chance(4)) {
		slot = (t.hot[w->as] + sim_below(6)) % n;
		if (model_whole(m, slot))
			return SIM_BASE + slot * GM_PAGE_SIZE + word * 8;
		if (sim_chance(8))
			t.hot[w->as] = sim_below(n);
	}
	slot = sim_below(n);
	for (i = 0; i < 16 && !m->mapped[slot * SIM_PIECES + word / 2]; i++)
		slot = sim_below(n);
	return SIM_BASE + slot * GM_PAGE_SIZE + word * 8;
}

bool pick_run(struct model *m, unsigned int max, uint64_t *va, uint64_t *len)
{
	uint64_t n = m->nr_slots - sim.cfg.nr_plain;
	uint64_t slot = sim_below(n), first;
	unsigned int i;

	for (i = 0; i < 16 && !model_whole(m, slot); i++)
		slot = sim_below(n);
	if (!model_whole(m, slot))
		return false;
	first = slot;
	max = 1 + (unsigned int)sim_below(max);
	while (slot < n && slot - first < max && model_whole(m, slot))
		slot++;
	*va = SIM_BASE + first * GM_PAGE_SIZE;
	*len = (slot - first) * GM_PAGE_SIZE;
	return true;
}

/* A part of the range, at a grain; most of the time it starts or ends where
 * the range does. */
void cut_run(uint64_t *va, uint64_t *len, uint64_t grain)
{
	uint64_t n = *len / grain, from = 0, to = n;

	if (sim_chance(2))
		return;
	if (sim_chance(2))
		from = sim_below(n);
	if (sim_chance(2))
		to = from + 1 + sim_below(n - from);
	*va += from * grain;
	*len = (to - from) * grain;
}

int pick_node(void)
{
	unsigned int i;

	for (i = 0; i < 4 && t.nr_devs; i++) {
		const struct tdev *d = &t.devs[sim_below(t.nr_devs)];

		if (d->dev && d->created && !sim_chance(5))
			return d->node;
	}
	if (sim_chance(40))
		return 60;
	return (int)sim_below(sim.cfg.host_nodes);
}

struct sim_ctx *pick_ctx(struct model *m)
{
	unsigned int i;

	for (i = 0; i < 4 && t.nr_devs; i++) {
		const struct tdev *d = &t.devs[sim_below(t.nr_devs)];
		struct sim_ctx *ctx =
			d->dev ? d->dev->ctxs[m->as->index] : NULL;

		if (ctx && ctx->attached && !ctx->stopped && !d->dev->dead)
			return ctx;
	}
	return NULL;
}
