// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Hints: which pages of an odd range they are about. */
#include "unit.h"

/* Six pages that the CPU has written. */
static uint64_t begin(struct unit *u)
{
	uint64_t va;
	unsigned int i;

	unit_device(u, 0, 32, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 6);
	for (i = 0; i < 6 * (GM_PAGE_SIZE / 8); i++)
		unit_store(u, va + 8 * i, i + 1);
	return va;
}

static unsigned int on_node(struct unit *u, uint64_t va, unsigned int n,
			    int nid)
{
	unsigned int i, mask = 0;

	for (i = 0; i < n; i++)
		mask |= (unsigned int)(unit_where(u, va + PAGES(i)).copies >>
					       nid &
				       1)
			<< i;
	return mask;
}

static void do_willneed(struct unit *u)
{
	uint64_t va = begin(u);
	int nid = unit_node(u, 0);

	/* Outward: the last byte of page 0 to the first of page 2. */
	ck_assert_int_eq(gm_as_advise(&u->as->as, nid, va + PAGES(1) - 1,
				      PAGES(1) + 2, GM_WILLNEED),
			 0);
	ck_assert_uint_eq(on_node(u, va, 6, nid), 1 | 2 | 4);
	/* To the host, mapped where the CPU sees it. */
	ck_assert_int_eq(
		gm_as_advise(&u->as->as, 0, va + PAGES(1) + 5, 1, GM_WILLNEED),
		0);
	unit_is(u, va + PAGES(1), MODIFIED, 0);
	ck_assert_uint_eq(unit_where(u, va + PAGES(1)).mapped, 1);
	/* A hole: the rest is done. */
	ck_assert_int_eq(gm_as_unmap(&u->as->as, va + PAGES(4), PAGES(1)), 0);
	unit_fails(gm_as_advise(&u->as->as, nid, va + PAGES(3), PAGES(3),
				GM_WILLNEED),
		   -ENOMEM);
	unit_is(u, va + PAGES(5), SHARED, 0);
	unit_fails(gm_as_advise(&u->as->as, 61, va, 1, GM_WILLNEED), -EINVAL);
	unit_fails(gm_as_advise(&u->as->as, nid, va, 1, 0x7777), -EINVAL);
}

static void check_discard(struct unit *u, uint64_t va, uint64_t from,
			  uint64_t to)
{
	uint64_t i, j;

	for (i = 0; i < 6 * (GM_PAGE_SIZE / 8); i++) {
		uint64_t word = unit_load(u, va + 8 * i), want = i + 1;

		for (j = 0; j < 8; j++)
			if (8 * i + j >= from && 8 * i + j < to)
				want &= ~(0xffull << (8 * j));
		ck_assert_uint_eq(word, want);
	}
}

static void do_dontneed(struct unit *u)
{
	uint64_t va = begin(u);
	uint64_t from = PAGES(1) + 3, to = PAGES(4) + 17;

	/* Exactly the range, on whichever node its pages are. */
	unit_xpu_store(u, 0, va + PAGES(1) + 56, 2 * (GM_PAGE_SIZE / 8));
	unit_xpu_load(u, 0, va + PAGES(4));
	ck_assert_int_eq(
		gm_as_advise(&u->as->as, 0, va + from, to - from, GM_DONTNEED),
		0);
	unit_is(u, va + PAGES(2), EMPTY, GM_NODE_NONE);
	check_discard(u, va, from, to);
}

static void do_dontneed_untracked(struct unit *u)
{
	uint64_t va = unit_map(u, 6), i;

	for (i = 0; i < 6 * (GM_PAGE_SIZE / 8); i++)
		unit_store(u, va + 8 * i, i + 1);
	ck_assert_int_eq(
		gm_as_advise(&u->as->as, 0, va + 5, PAGES(3), GM_DONTNEED), 0);
	check_discard(u, va, 5, PAGES(3) + 5);
	/* What is written since is not hidden from an XPU that comes. */
	unit_store(u, va + PAGES(1), 77);
	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	ck_assert_uint_eq(unit_xpu_load(u, 0, va + PAGES(1)), 77);
}

static void do_pin(struct unit *u)
{
	uint64_t va = begin(u);
	int nid = unit_node(u, 0);

	/* To the host: it never leaves. Outward, too. */
	ck_assert_int_eq(
		gm_as_advise(&u->as->as, 0, va + PAGES(1) + 1, 1, GM_PIN), 0);
	ck_assert_int_eq(unit_where(u, va + PAGES(1)).pinned, 1);
	unit_fails(gm_dev_fault(&u->as->as, va + PAGES(1), u->devs[0]->dev,
				GM_READ),
		   -EBUSY);
	ck_assert_int_eq(
		gm_as_advise(&u->as->as, 0, va + PAGES(1), 1, GM_UNPIN), 0);
	unit_xpu_store(u, 0, va + PAGES(1), 1);
	/* To an XPU: coherence comes first, and it is pinned when back. */
	ck_assert_int_eq(gm_as_advise(&u->as->as, nid, va, PAGES(1), GM_PIN),
			 0);
	ck_assert_uint_eq(u->devs[0]->dev->node->nr_wired, 1);
	unit_store(u, va, 9);
	ck_assert_uint_eq(u->devs[0]->dev->node->nr_wired, 0);
	unit_xpu_load(u, 0, va);
	ck_assert_uint_eq(u->devs[0]->dev->node->nr_wired, 1);
}

static void do_prefetch_all(struct unit *u)
{
	uint64_t va = begin(u), other = unit_map(u, 2);

	unit_store(u, other + PAGES(1), 3);
	ck_assert_int_eq(gm_as_prefetch_all(&u->as->as, unit_node(u, 0)), 0);
	ck_assert_uint_eq(on_node(u, va, 6, unit_node(u, 0)), 63);
	/* What nobody has touched is nowhere. */
	unit_is(u, other, EMPTY, GM_NODE_NONE);
	ck_assert_uint_eq(on_node(u, other, 2, unit_node(u, 0)), 2);
}

#define TEST(name)                   \
	START_TEST(name)             \
	{                            \
		unit_run(do_##name); \
	}                            \
	END_TEST

TEST(willneed)
TEST(dontneed)
TEST(dontneed_untracked)
TEST(pin)
TEST(prefetch_all)

TCase *unit_advise(void)
{
	TCase *tc = tcase_create("hints");

	tcase_add_test(tc, willneed);
	tcase_add_test(tc, dontneed);
	tcase_add_test(tc, dontneed_untracked);
	tcase_add_test(tc, pin);
	tcase_add_test(tc, prefetch_all);
	return tc;
}
