// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The directory: states, copies, rights, residence, devices without skills. */
#include <string.h>

#include "unit.h"

static void do_states(struct unit *u)
{
	uint64_t va;

	va = unit_map(u, 2);
	unit_is(u, va, UNTRACKED, 0);
	unit_store(u, va, 1);
	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	unit_is(u, va, UNTRACKED, 0);
	/* A read shares what the CPU had; the CPU loses its mapping. */
	ck_assert_uint_eq(unit_xpu_load(u, 0, va), 1);
	unit_is(u, va, SHARED, 0);
	ck_assert_uint_eq(unit_where(u, va).copies, 1u | 1u << unit_node(u, 0));
	ck_assert_uint_eq(unit_where(u, va).mapped, 1u << unit_node(u, 0));
	/* A write upgrades it, with no copy. */
	unit_xpu_store(u, 0, va, 2);
	unit_is(u, va, MODIFIED, unit_node(u, 0));
	/* A touch of the CPU takes it, also a load. */
	ck_assert_uint_eq(unit_load(u, va), 2);
	unit_is(u, va, MODIFIED, 0);
	ck_assert_uint_eq(unit_where(u, va).mapped, 1);
	/* Untouched, it is zero wherever it is touched first. */
	ck_assert_uint_eq(unit_xpu_load(u, 0, va + PAGES(1)), 0);
	unit_is(u, va + PAGES(1), MODIFIED, unit_node(u, 0));
	ck_assert_uint_eq(unit_map(u, 1), va + PAGES(2));
	unit_is(u, va + PAGES(2), EMPTY, GM_NODE_NONE);
}

static void do_upgrade(struct unit *u)
{
	struct gm_stats s;
	uint64_t va;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 1);
	unit_store(u, va, 1);
	unit_xpu_load(u, 0, va);
	gm_machine_stats(unit_node(u, 0), &s);
	ck_assert_uint_eq(s.to_xpu, 1);
	unit_xpu_store(u, 0, va, 2);
	gm_machine_stats(unit_node(u, 0), &s);
	ck_assert_uint_eq(s.to_xpu, 1);
	ck_assert_uint_eq(s.upgraded, 1);
	/* It was written: next time it comes writable at once. */
	unit_load(u, va);
	unit_xpu_load(u, 0, va);
	unit_is(u, va, MODIFIED, unit_node(u, 0));
	/* Unless it is said that writes are rare. */
	unit_load(u, va);
	ck_assert_int_eq(gm_as_advise(&u->as->as, 0, va, 1, GM_READ_MOSTLY), 0);
	unit_xpu_load(u, 0, va);
	unit_is(u, va, SHARED, 0);
}

static void do_two(struct unit *u)
{
	uint64_t va;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	unit_device(u, 1, 8, UNIT_CAPS, 0);
	va = unit_map(u, 1);
	unit_xpu_store(u, 0, va, 7);
	/* It was written, so it is expected to be: taken whole, */
	ck_assert_uint_eq(unit_xpu_load(u, 1, va), 7);
	unit_is(u, va, MODIFIED, unit_node(u, 1));
	/* unless writes are said to be rare: the host page in between stays. */
	ck_assert_int_eq(gm_as_advise(&u->as->as, 0, va, 1, GM_READ_MOSTLY), 0);
	ck_assert_uint_eq(unit_xpu_load(u, 0, va), 7);
	ck_assert_int_eq(unit_where(u, va).state, GM_STATE_SHARED);
	ck_assert_uint_eq(unit_where(u, va).copies,
			  1u | 1u << unit_node(u, 0) | 1u << unit_node(u, 1));
	unit_xpu_store(u, 1, va + 8, 8);
	unit_is(u, va, MODIFIED, unit_node(u, 1));
	ck_assert_uint_eq(unit_xpu_load(u, 0, va + 8), 8);
	ck_assert_uint_eq(unit_xpu_load(u, 0, va), 7);
}

/* An XPU that cannot report stores has its pages for itself. */
static void do_blind(struct unit *u)
{
	uint64_t va;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	unit_device(u, 1, 8, GM_CAP_REPLAY, UNIT_ALL_OPS);
	va = unit_map(u, 1);
	unit_store(u, va, 1);
	unit_xpu_load(u, 1, va);
	unit_is(u, va, MODIFIED, unit_node(u, 1));
	unit_xpu_store(u, 1, va, 2);
	ck_assert_uint_eq(unit_xpu_load(u, 0, va), 2);
	/* It was mapped read-only for nobody. */
	unit_xpu_store(u, 1, va, 3);
	ck_assert_uint_eq(unit_xpu_load(u, 0, va), 3);
	ck_assert_uint_eq(unit_load(u, va), 3);
}

static void do_residence(struct unit *u)
{
	uint64_t va, start, first;
	struct gm_stats s;
	unsigned int i;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 1);
	unit_xpu_store(u, 0, va, 0);
	start = sim.now;
	unit_store(u, va, 1);
	first = sim.now - start;
	/* At least what was left of 100 us, */
	ck_assert_uint_ge(sim.now - start, 90000);
	for (i = 0; i < 20; i++) {
		start = sim.now;
		unit_xpu_store(u, 0, va, i);
		ck_assert_uint_eq(unit_load(u, va), i);
	}
	/* and in the end no more than 10 ms for each of the two. */
	ck_assert_uint_gt(sim.now - start, 10 * first);
	ck_assert_uint_ge(sim.now - start, 19000000);
	ck_assert_uint_le(sim.now - start, 21000000);
	gm_machine_stats(GM_NODE_NONE, &s);
	ck_assert_uint_ge(s.residence_waits, 40);
	ck_assert_int_eq(unit_where(u, va).false_sharing, 1);
	/* Left alone for a while it is no more fought for. */
	sim_sleep_until(sim.now + 100000000);
	start = sim.now;
	unit_xpu_store(u, 0, va, 1);
	ck_assert_uint_le(sim.now - start, 100000);
}

static void do_protect(struct unit *u)
{
	uint64_t va, word = 1;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 3);
	unit_xpu_store(u, 0, va, 5);
	ck_assert_int_eq(gm_as_protect(&u->as->as, va, PAGES(1), GM_PROT_READ),
			 0);
	ck_assert_uint_eq(unit_xpu_load(u, 0, va), 5);
	ck_assert_int_eq(
		sim_xpu_access(u->ctxs[0], 0, va, &word, SIM_XPU_STORE),
		-EACCES);
	ck_assert_int_eq(sim_cpu_access(u->as, va, &word, 8, true), -EACCES);
	ck_assert_uint_eq(unit_load(u, va), 5);
	ck_assert_int_eq(gm_as_protect(&u->as->as, va, PAGES(1), 0), 0);
	ck_assert_int_eq(sim_xpu_access(u->ctxs[0], 0, va, &word, SIM_XPU_LOAD),
			 -EACCES);
	ck_assert_int_eq(gm_as_protect(&u->as->as, va, PAGES(1), 3), 0);
	unit_xpu_store(u, 0, va, 6);
	unit_fails(gm_as_protect(&u->as->as, va + PAGES(2), PAGES(2), 1),
		   -ENOMEM);
	unit_xpu_store(u, 0, va + PAGES(2), 6);
}

static void do_lost(struct unit *u)
{
	uint64_t va, word;
	unsigned int i;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	unit_device(u, 1, 8, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 4);
	for (i = 0; i < 4; i++)
		unit_store(u, va + PAGES(i), 10 + i);
	unit_xpu_store(u, 0, va, 100); /* only there */
	unit_xpu_load(u, 0, va + PAGES(1)); /* also on the host */
	unit_xpu_store(u, 1, va + PAGES(2), 102); /* elsewhere */
	sim_dev_die(u->devs[0], true);
	gm_dev_lost(u->devs[0]->dev);
	unit_is(u, va, POISON, GM_NODE_NONE);
	ck_assert_int_eq(sim_cpu_access(u->as, va, &word, 8, false),
			 -EHWPOISON);
	ck_assert_int_eq(sim_xpu_access(u->ctxs[1], 0, va, &word, SIM_XPU_LOAD),
			 -EHWPOISON);
	ck_assert_uint_eq(unit_load(u, va + PAGES(1)), 11);
	ck_assert_uint_eq(unit_load(u, va + PAGES(2)), 102);
	ck_assert_uint_eq(unit_load(u, va + PAGES(3)), 13);
	unit_fails(gm_dev_fault(&u->as->as, va, u->devs[0]->dev, GM_READ),
		   -ENODEV);
	/* Given up, it can be used again. */
	unit_fails(gm_as_advise(&u->as->as, 0, va, 8, GM_DONTNEED), -EHWPOISON);
	ck_assert_int_eq(gm_as_advise(&u->as->as, 0, va, PAGES(1), GM_DONTNEED),
			 0);
	ck_assert_uint_eq(unit_load(u, va), 0);
	ck_assert_int_eq(gm_as_detach(&u->as->as, u->devs[0]->dev), 0);
	sim_ctx_free(u->ctxs[0]);
	u->ctxs[0] = NULL;
}

static void do_reset(struct unit *u)
{
	uint64_t va;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 1);
	unit_xpu_store(u, 0, va, 4);
	sim_ctx_replace(u->ctxs[0]);
	ck_assert_int_eq(gm_as_reset(&u->as->as, u->devs[0]->dev), 0);
	u->ctxs[0]->replacing = u->ctxs[0]->stopped = false;
	unit_is(u, va, MODIFIED, unit_node(u, 0));
	ck_assert_uint_eq(unit_where(u, va).mapped, 0);
	ck_assert_uint_eq(unit_xpu_load(u, 0, va), 4);
}

#define TEST(name)                   \
	START_TEST(name)             \
	{                            \
		unit_run(do_##name); \
	}                            \
	END_TEST

TEST(states)
TEST(upgrade)
TEST(two)
TEST(blind)
TEST(residence)
TEST(protect)
TEST(lost)
TEST(reset)

TCase *unit_coherence(void)
{
	TCase *tc = tcase_create("coherence");

	tcase_add_test(tc, states);
	tcase_add_test(tc, upgrade);
	tcase_add_test(tc, two);
	tcase_add_test(tc, blind);
	tcase_add_test(tc, residence);
	tcase_add_test(tc, protect);
	tcase_add_test(tc, lost);
	tcase_add_test(tc, reset);
	return tc;
}
