// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The region table: lookups, splits, trims, moves. */
#include "unit.h"

static uint32_t regions(struct unit *u)
{
	return u->as->as.table ? u->as->as.table->nr : 0;
}

static void check_lookup(struct unit *u, uint64_t va, uint64_t start,
			 uint64_t end)
{
	struct gm_region *r = gm_region_lookup(&u->as->as, va);

	ck_assert_ptr_nonnull(r);
	ck_assert_uint_eq(r->start, start);
	ck_assert_uint_eq(r->end, end);
	gm_region_put(r);
}

static void do_lookup(struct unit *u)
{
	uint64_t va[20], at;
	unsigned int i;

	for (i = 0; i < 20; i++) {
		at = SIM_BASE + PAGES(10 * ((i * 7) % 20));
		ck_assert_int_eq(gm_as_map(&u->as->as, at, PAGES(1 + i % 5), 3,
					   GM_RANGE_FIXED | GM_RANGE_NOREPLACE,
					   &va[i]),
				 0);
		ck_assert_uint_eq(va[i], at);
	}
	ck_assert_uint_eq(regions(u), 20);
	for (i = 0; i < 20; i++) {
		uint64_t end = va[i] + PAGES(1 + i % 5);

		check_lookup(u, va[i], va[i], end);
		check_lookup(u, end - 1, va[i], end);
		ck_assert_ptr_null(gm_region_lookup(&u->as->as, end));
		ck_assert(gm_as_overlaps(&u->as->as, va[i] - 1, 2) == 1);
		ck_assert(gm_as_overlaps(&u->as->as, end, 1) == 0);
	}
}

static void do_split(struct unit *u)
{
	uint64_t va = unit_map(u, 10);

	unit_store(u, va + PAGES(1), 11);
	unit_store(u, va + PAGES(8), 88);
	ck_assert_int_eq(gm_as_unmap(&u->as->as, va + PAGES(3), PAGES(2)), 0);
	ck_assert_uint_eq(regions(u), 2);
	check_lookup(u, va, va, va + PAGES(3));
	check_lookup(u, va + PAGES(5), va + PAGES(5), va + PAGES(10));
	ck_assert_ptr_null(gm_region_lookup(&u->as->as, va + PAGES(3)));
	ck_assert_uint_eq(unit_load(u, va + PAGES(1)), 11);
	ck_assert_uint_eq(unit_load(u, va + PAGES(8)), 88);
	/* Both ends. */
	ck_assert_int_eq(gm_as_unmap(&u->as->as, va, PAGES(1)), 0);
	ck_assert_int_eq(gm_as_unmap(&u->as->as, va + PAGES(9), PAGES(1)), 0);
	check_lookup(u, va + PAGES(1), va + PAGES(1), va + PAGES(3));
	check_lookup(u, va + PAGES(8), va + PAGES(5), va + PAGES(9));
	/* Across a hole. */
	ck_assert_int_eq(gm_as_unmap(&u->as->as, va, PAGES(10)), 0);
	ck_assert_uint_eq(regions(u), 0);
}

static void do_cut(struct unit *u)
{
	uint64_t va, word = 1;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 3);
	unit_xpu_store(u, 0, va + PAGES(1) + 8, 5);
	unit_xpu_store(u, 0, va + PAGES(1) + 56, 6);
	ck_assert_int_eq(
		gm_as_unmap(&u->as->as, va + PAGES(1) + SIM_PIECE, SIM_PIECE),
		0);
	unit_is(u, va + PAGES(1), FRAGMENTED, 0);
	ck_assert_uint_eq(unit_load(u, va + PAGES(1) + 8), 5);
	ck_assert_uint_eq(unit_load(u, va + PAGES(1) + 56), 6);
	ck_assert_int_eq(sim_cpu_access(u->as, va + PAGES(1) + SIM_PIECE, &word,
					8, true),
			 -EFAULT);
	unit_fails(gm_dev_fault(&u->as->as, va + PAGES(1), u->devs[0]->dev,
				GM_READ),
		   -EFAULT);
	/* The rest lives on, and the last piece takes the page with it. */
	unit_xpu_store(u, 0, va, 7);
	ck_assert_int_eq(gm_as_unmap(&u->as->as, va + PAGES(1), SIM_PIECE), 0);
	ck_assert_int_eq(gm_as_unmap(&u->as->as, va + PAGES(1) + 2 * SIM_PIECE,
				     2 * SIM_PIECE),
			 0);
	ck_assert_ptr_null(gm_region_lookup(&u->as->as, va + PAGES(1)));
}

static void do_remap(struct unit *u)
{
	uint64_t va, to, other;

	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 4);
	other = unit_map(u, 1);
	ck_assert_uint_eq(other, va + PAGES(4));
	unit_xpu_store(u, 0, va + PAGES(2), 9);
	unit_fails(gm_as_remap(&u->as->as, va, PAGES(4), PAGES(5), 0, &to),
		   -ENOMEM);
	ck_assert_int_eq(
		gm_as_remap(&u->as->as, va, PAGES(4), PAGES(6), 1, &to), 0);
	ck_assert_uint_ne(to, va);
	unit_is(u, to + PAGES(2), MODIFIED, unit_node(u, 0));
	ck_assert_uint_eq(unit_xpu_load(u, 0, to + PAGES(2)), 9);
	ck_assert_int_eq(
		gm_as_remap(&u->as->as, to, PAGES(6), PAGES(1), 0, &va), 0);
	ck_assert_uint_eq(va, to);
	ck_assert(!gm_as_overlaps(&u->as->as, to + PAGES(1), PAGES(5)));
	unit_fails(gm_as_remap(&u->as->as, to, PAGES(2), PAGES(3), 1, &va),
		   -EFAULT);
}

static void do_fixed(struct unit *u)
{
	uint64_t va = unit_map(u, 4), got;

	unit_store(u, va, 1);
	unit_fails(gm_as_map(&u->as->as, va + PAGES(1), PAGES(1), 3,
			     GM_RANGE_FIXED | GM_RANGE_NOREPLACE, &got),
		   -EEXIST);
	ck_assert_int_eq(
		gm_as_map(&u->as->as, va, PAGES(2), 3, GM_RANGE_FIXED, &got),
		0);
	ck_assert_uint_eq(got, va);
	ck_assert_uint_eq(unit_load(u, va), 0);
	ck_assert_uint_eq(regions(u), 2);
}

#define TEST(name)                   \
	START_TEST(name)             \
	{                            \
		unit_run(do_##name); \
	}                            \
	END_TEST

TEST(lookup)
TEST(split)
TEST(cut)
TEST(remap)
TEST(fixed)

TCase *unit_region(void)
{
	TCase *tc = tcase_create("regions");

	tcase_add_test(tc, lookup);
	tcase_add_test(tc, split);
	tcase_add_test(tc, cut);
	tcase_add_test(tc, remap);
	tcase_add_test(tc, fixed);
	return tc;
}
