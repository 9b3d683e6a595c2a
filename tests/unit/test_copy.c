// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* gmemcpy: how it is cut in pieces, and what it moves. */
#include <string.h>

#include "unit.h"

#define SIZE PAGES(4)

static void put(struct unit *u, uint64_t va, const uint8_t *bytes, size_t len)
{
	ck_assert_int_eq(
		sim_cpu_access_range(u->as, va, (void *)bytes, len, true), 0);
}

static void get(struct unit *u, uint64_t va, uint8_t *bytes, size_t len)
{
	ck_assert_int_eq(sim_cpu_access_range(u->as, va, bytes, len, false), 0);
}

static uint64_t plain(struct unit *u)
{
	return SIM_BASE + PAGES(u->as->nr_slots - sim.cfg.nr_plain);
}

static void pattern(uint8_t *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7 + seed);
}

/* Every offset against every other, over page borders of both sides. */
static void check_offsets(struct unit *u, uint64_t dst, uint64_t src, int node)
{
	static const unsigned int lens[] = { 1, 7, 16, 63, 64, 65, 130 };
	uint8_t want[SIZE], from[SIZE], got[SIZE];
	unsigned int d, s, l;

	for (d = 0; d < 64; d += 13)
		for (s = 0; s < 64; s += 11)
			for (l = 0; l < 7; l++) {
				pattern(want, SIZE, d);
				pattern(from, SIZE, s + 100);
				put(u, dst, want, SIZE);
				put(u, src, from, SIZE);
				ck_assert_int_eq(gm_as_copy(&u->as->as, node,
							    dst + d, src + s,
							    lens[l]),
						 0);
				memcpy(want + d, from + s, lens[l]);
				get(u, dst, got, SIZE);
				ck_assert(!memcmp(got, want, SIZE));
				get(u, src, got, SIZE);
				ck_assert(!memcmp(got, from, SIZE));
			}
}

static void do_offsets(struct unit *u)
{
	uint64_t a, b;

	unit_device(u, 0, 32, UNIT_CAPS, UNIT_ALL_OPS);
	a = unit_map(u, 4);
	b = unit_map(u, 4);
	check_offsets(u, a, b, GM_NODE_NONE);
	check_offsets(u, a, b, unit_node(u, 0));
	check_offsets(u, a, b, 0);
	check_offsets(u, a, plain(u), unit_node(u, 0));
	check_offsets(u, plain(u), b, unit_node(u, 0));
}

static void do_overlap(struct unit *u)
{
	uint8_t want[SIZE], got[SIZE];
	unsigned int d, s;
	uint64_t va;

	unit_device(u, 0, 32, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 4);
	for (d = 0; d < 128; d += 9)
		for (s = 0; s < 128; s += 7) {
			pattern(want, SIZE, d ^ s);
			put(u, va, want, SIZE);
			unit_xpu_load(u, 0, va + PAGES(1));
			ck_assert_int_eq(gm_as_copy(&u->as->as,
						    s & 1 ? unit_node(u, 0)
							  : GM_NODE_NONE,
						    va + d, va + s, 120),
					 0);
			memmove(want + d, want + s, 120);
			get(u, va, got, SIZE);
			ck_assert(!memcmp(got, want, SIZE));
		}
}

/* A page wholly overwritten is not migrated first; the source stays. */
static void do_whole(struct unit *u)
{
	struct gm_stats s;
	uint64_t a, b;
	int nid;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	nid = unit_node(u, 0);
	a = unit_map(u, 1);
	b = unit_map(u, 1);
	unit_store(u, a, 1);
	unit_store(u, b, 2);
	ck_assert_int_eq(gm_as_copy(&u->as->as, nid, a, b, PAGES(1)), 0);
	unit_is(u, a, MODIFIED, nid);
	unit_is(u, b, MODIFIED, 0);
	gm_machine_stats(nid, &s);
	ck_assert_uint_eq(s.to_xpu, 0);
}

/* The next @call fails once, with @error or its usual one. */
static void fail_next(enum sim_call call, int error)
{
	sim.fail_call = (int)call;
	sim.fail_nth = sim.tries[call] + 1;
	sim.fail_error = error;
	sim.inject = true;
}

/* What the CPU has mapped goes to an XPU in one copy, and is back afterwards. */
static void do_lent(struct unit *u)
{
	static const struct {
		enum sim_call call;
		int error, err;
	} fails[] = {
		{ SIM_SLOTS_GET, 0, 0 },       { SIM_CPU_UNMAP, -EBUSY, 0 },
		{ SIM_CPU_UNMAP, -EAGAIN, 0 }, { SIM_CPU_MAP, -ENOMEM, 0 },
		{ SIM_OP_MEMCPY, -EIO, -EIO },
	};
	uint64_t a, b, reads;
	unsigned int i;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	a = unit_map(u, 1);
	b = unit_map(u, 1);
	unit_store(u, b, 7);
	/* Past the time that the CPU has for what it waited for. */
	sim.now += 100000000;
	reads = sim.calls[SIM_USER_READ];
	ck_assert_int_eq(
		gm_as_copy(&u->as->as, unit_node(u, 0), a, b, PAGES(1)), 0);
	ck_assert_uint_eq(sim.calls[SIM_USER_READ], reads);
	ck_assert_uint_eq(unit_where(u, b).copies, 1);
	ck_assert_uint_eq(unit_where(u, b).mapped, 1);
	ck_assert_uint_eq(unit_xpu_load(u, 0, a), 7);
	for (i = 0; i < sizeof(fails) / sizeof(fails[0]); i++) {
		uint64_t injected = sim.injected;

		unit_store(u, b, i + 20);
		sim.now += 100000000;
		fail_next(fails[i].call, fails[i].error);
		ck_assert_int_eq(
			gm_as_copy(&u->as->as, unit_node(u, 0), a, b, PAGES(1)),
			fails[i].err);
		sim.inject = false;
		sim.fail_call = -1;
		ck_assert_uint_eq(sim.injected, injected + 1);
		ck_assert_uint_eq(unit_where(u, b).copies, 1);
		ck_assert_uint_eq(unit_where(u, b).mapped,
				  fails[i].call != SIM_CPU_MAP);
		ck_assert_uint_eq(unit_load(u, b), i + 20);
		ck_assert_uint_eq(unit_xpu_load(u, 0, a),
				  fails[i].err ? i + 19 : i + 20);
	}
}

/* The CPU keeps what it has just waited for, and what is pinned. */
static void do_not_lent(struct unit *u)
{
	uint64_t a, b, reads;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	a = unit_map(u, 1);
	b = unit_map(u, 1);
	unit_xpu_store(u, 0, b, 3);
	sim.now += 100000000;
	ck_assert_uint_eq(unit_load(u, b), 3);
	reads = sim.calls[SIM_USER_READ];
	ck_assert_int_eq(
		gm_as_copy(&u->as->as, unit_node(u, 0), a, b, PAGES(1)), 0);
	ck_assert_uint_gt(sim.calls[SIM_USER_READ], reads);
	sim.now += 100000000;
	ck_assert_int_eq(gm_as_advise(&u->as->as, 0, b, PAGES(1), GM_PIN), 0);
	reads = sim.calls[SIM_USER_READ];
	ck_assert_int_eq(
		gm_as_copy(&u->as->as, unit_node(u, 0), a, b, PAGES(1)), 0);
	ck_assert_uint_gt(sim.calls[SIM_USER_READ], reads);
	ck_assert_uint_eq(unit_xpu_load(u, 0, a), 3);
}

static void do_errors(struct unit *u)
{
	uint64_t a;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	a = unit_map(u, 2);
	unit_fails(gm_as_copy(&u->as->as, 55, a, a + PAGES(1), 8), -EINVAL);
	ck_assert_int_eq(gm_as_protect(&u->as->as, a, PAGES(1), GM_PROT_READ),
			 0);
	unit_fails(gm_as_copy(&u->as->as, unit_node(u, 0), a, a + PAGES(1),
			      PAGES(1)),
		   -EACCES);
	unit_fails(gm_as_copy(&u->as->as, GM_NODE_NONE, a + PAGES(1),
			      a + PAGES(3), 8),
		   -EFAULT);
}

#define TEST(name)                   \
	START_TEST(name)             \
	{                            \
		unit_run(do_##name); \
	}                            \
	END_TEST

TEST(offsets)
TEST(overlap)
TEST(whole)
TEST(lent)
TEST(not_lent)
TEST(errors)

TCase *unit_copy(void)
{
	TCase *tc = tcase_create("gmemcpy");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, offsets);
	tcase_add_test(tc, overlap);
	tcase_add_test(tc, whole);
	tcase_add_test(tc, lent);
	tcase_add_test(tc, not_lent);
	tcase_add_test(tc, errors);
	return tc;
}
