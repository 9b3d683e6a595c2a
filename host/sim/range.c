// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * range.c - address ranges of the simulated program
 */
#include <string.h>

#include "host/sim/sim.h"

static void sim_range_check(uint64_t va, uint64_t len, uint64_t grain)
{
	SIM_CHECK(len && !(va % grain) && !(len % grain),
		  "range %#lx + %#lx not aligned", (unsigned long)va,
		  (unsigned long)len);
	SIM_CHECK(sim_rank_held() < GM_RANK_NODE, "range call with rank %d",
		  sim_rank_held());
}

static bool sim_range_free(struct sim_as *as, uint64_t va, uint64_t len)
{
	uint64_t end = va + len;

	for (; va < end; va += GM_PAGE_SIZE) {
		const struct sim_slot *slot = sim_slot_at(as, va);

		if (!slot || slot->mapped || slot->reserved)
			return false;
	}
	return true;
}

static uint64_t sim_range_find(struct sim_as *as, uint64_t len)
{
	uint64_t n = len >> GM_PAGE_SHIFT;
	uint64_t room = as->nr_slots - sim.cfg.nr_plain;
	uint64_t i, start;

	if (n > room)
		return 0;
	start = sim.cfg.switch_mean ? sim_below(room - n + 1) : 0;
	for (i = 0; i <= room - n; i++) {
		uint64_t at = (start + i) % (room - n + 1);
		uint64_t va = SIM_BASE + at * GM_PAGE_SIZE;

		/* In this order: the core may be interrupted. */
		if (!gm_as_taken(&as->as, va, len) &&
		    sim_range_free(as, va, len))
			return va;
	}
	return 0;
}

/* No pages, no mappings; those who wait there find that out. */
static void sim_range_clear(struct sim_as *as, uint64_t va, uint64_t len)
{
	uint64_t at;

	for (at = va; at < va + len; at += SIM_PIECE) {
		struct sim_slot *slot = sim_slot_at(as, at);
		uint8_t keep = (uint8_t)~sim_piece_mask(at);

		SIM_CHECK(slot, "range out of the address space");
		slot->mapped &= keep;
		slot->present &= keep;
		slot->readable &= keep;
		slot->writable &= keep;
		slot->tracked &= keep;
		slot->poison &= keep;
		if (!slot->mapped)
			slot->reserved = 0;
		if (!slot->present)
			slot->pins = 0;
	}
	sim_wake_range(as, va, len);
}

int gm_host_range_map(struct gm_as *as, uint64_t hint, uint64_t len,
		      unsigned int prot, unsigned int flags, uint64_t *out)
{
	struct sim_as *s = as->host.sim;
	uint64_t va = hint, at;

	sim_enter(SIM_RANGE_MAP);
	sim_range_check(hint, len, GM_PAGE_SIZE);
	if (sim_inject(SIM_RANGE_MAP))
		return -ENOMEM;
	if (!hint || !sim_range_free(s, va, len)) {
		if (flags & GM_RANGE_FIXED) {
			if (!sim_slot_at(s, va) ||
			    !sim_slot_at(s, va + len - 1))
				return -EINVAL;
			if (flags & GM_RANGE_NOREPLACE)
				return -EEXIST;
			sim_range_clear(s, va, len);
		} else {
			va = sim_range_find(s, len);
			if (!va)
				return -ENOMEM;
		}
	}
	for (at = va; at < va + len; at += GM_PAGE_SIZE) {
		struct sim_slot *slot = sim_slot_at(s, at);

		memset(slot, 0, sizeof(*slot));
		slot->mapped = SIM_ALL;
		if (prot & GM_PROT_READ)
			slot->readable = SIM_ALL;
		if (prot & GM_PROT_WRITE)
			slot->writable = SIM_ALL;
		if (flags & GM_RANGE_TRACKED)
			slot->tracked = SIM_ALL;
		slot->reserved = !!(flags & GM_RANGE_RESERVE_ONLY);
	}
	*out = va;
	return 0;
}

void gm_host_range_unmap(struct gm_as *as, uint64_t va, uint64_t len)
{
	sim_enter(SIM_RANGE_UNMAP);
	sim_range_check(va, len, SIM_PIECE);
	sim_range_clear(as->host.sim, va, len);
}

int gm_host_range_track(struct gm_as *as, uint64_t va, uint64_t len)
{
	uint64_t at;
	bool any = false;

	sim_enter(SIM_RANGE_TRACK);
	sim_range_check(va, len, GM_PAGE_SIZE);
	if (sim_inject(SIM_RANGE_TRACK))
		return -ENOMEM;
	for (at = va; at < va + len; at += GM_PAGE_SIZE) {
		struct sim_slot *slot = sim_slot_at(as->host.sim, at);

		SIM_CHECK(slot, "range out of the address space");
		slot->tracked = slot->mapped;
		any |= slot->mapped != 0;
	}
	return any ? 0 : -ENOENT;
}

int gm_host_range_move(struct gm_as *as, uint64_t from, uint64_t to,
		       uint64_t len)
{
	struct sim_as *s = as->host.sim;
	uint64_t at;

	sim_enter(SIM_RANGE_MOVE);
	sim_range_check(from, len, GM_PAGE_SIZE);
	sim_range_check(to, len, GM_PAGE_SIZE);
	if (sim_inject(SIM_RANGE_MOVE))
		return -ENOMEM;
	for (at = 0; at < len; at += GM_PAGE_SIZE) {
		struct sim_slot *a = sim_slot_at(s, from + at);
		struct sim_slot *b = sim_slot_at(s, to + at);

		SIM_CHECK(a && b, "range out of the address space");
		SIM_CHECK(b->mapped == SIM_ALL,
			  "range moved to where nothing was made");
		*b = *a;
		memset(a, 0, sizeof(*a));
	}
	sim_wake_range(s, from, len);
	return 0;
}

int gm_host_range_protect(struct gm_as *as, uint64_t va, uint64_t len,
			  unsigned int prot)
{
	struct sim_as *s = as->host.sim;
	uint64_t at;

	sim_enter(SIM_RANGE_PROTECT);
	sim_range_check(va, len, SIM_PIECE);
	for (at = va; at < va + len; at += SIM_PIECE) {
		struct sim_slot *slot = sim_slot_at(s, at);

		if (!slot || !(slot->mapped & sim_piece_mask(at)))
			return -ENOMEM;
	}
	if (sim_inject(SIM_RANGE_PROTECT))
		return -ENOMEM;
	sim_sys_mprotect(s, va, len, prot);
	return 0;
}
