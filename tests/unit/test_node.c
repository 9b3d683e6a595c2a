// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Node lists: the order of victims, and who is none. */
#include <string.h>

#include "unit.h"

static int on_dev(struct unit *u, uint64_t va)
{
	return unit_where(u, va).node == unit_node(u, 0);
}

/* One by one: how many go together depends on the size of the node. */
static unsigned int reclaim(struct unit *u, unsigned int n)
{
	unsigned int freed = 0;

	while (n--)
		freed += gm_reclaim(u->devs[0]->dev->node, 1);
	return freed;
}

/* Time enough that nobody's residence is respected any more. */
static void later(void)
{
	sim_sleep_until(sim.now + 100000000);
}

/* Four frames, four pages, each of which the XPU has written. */
static uint64_t fill(struct unit *u)
{
	uint64_t va;
	unsigned int i;

	unit_device(u, 0, 4, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 8);
	for (i = 0; i < 4; i++)
		unit_xpu_store(u, 0, va + PAGES(i), 100 + i);
	later();
	return va;
}

static unsigned int evicted(struct unit *u, uint64_t va, unsigned int n)
{
	unsigned int i, mask = 0;

	for (i = 0; i < n; i++)
		mask |= !on_dev(u, va + PAGES(i)) << i;
	return mask;
}

static void do_order(struct unit *u)
{
	uint64_t va = fill(u);

	/* First in, first out. */
	ck_assert_uint_eq(reclaim(u, 1), 1);
	ck_assert_uint_eq(evicted(u, va, 4), 1);
	ck_assert_uint_eq(reclaim(u, 2), 2);
	ck_assert_uint_eq(evicted(u, va, 4), 7);
	/* A page at rest costs the CPU no copy, and is not lost. */
	ck_assert_uint_eq(unit_load(u, va), 100);
	ck_assert_uint_eq(unit_load(u, va + PAGES(2)), 102);
}

static void do_refresh(struct unit *u)
{
	uint64_t va = fill(u);

	/* A hint makes a page the most recently used one. */
	ck_assert_int_eq(
		gm_as_advise(&u->as->as, unit_node(u, 0), va, 1, GM_WILLNEED),
		0);
	ck_assert_uint_eq(reclaim(u, 3), 3);
	ck_assert_uint_eq(evicted(u, va, 4), 2 | 4 | 8);
}

static void do_cold(struct unit *u)
{
	uint64_t va = fill(u);

	ck_assert_int_eq(gm_as_advise(&u->as->as, unit_node(u, 0),
				      va + PAGES(3), 1, GM_COLD),
			 0);
	ck_assert_uint_eq(reclaim(u, 1), 1);
	ck_assert_uint_eq(evicted(u, va, 4), 8);
}

static void do_preferred(struct unit *u)
{
	uint64_t va = fill(u);

	ck_assert_int_eq(gm_as_advise(&u->as->as, unit_node(u, 0), va, PAGES(2),
				      GM_PREFERRED),
			 0);
	ck_assert_uint_eq(reclaim(u, 2), 2);
	ck_assert_uint_eq(evicted(u, va, 4), 4 | 8);
	ck_assert_uint_eq(reclaim(u, 2), 2);
	ck_assert_uint_eq(evicted(u, va, 4), 15);
}

static void do_wired(struct unit *u)
{
	uint64_t va = fill(u);

	ck_assert_int_eq(
		gm_as_advise(&u->as->as, unit_node(u, 0), va, PAGES(4), GM_PIN),
		0);
	ck_assert_uint_eq(u->devs[0]->dev->node->nr_wired, 4);
	ck_assert_uint_eq(reclaim(u, 4), 0);
	/* All wired: the fault says what there is. */
	unit_fails(gm_dev_fault(&u->as->as, va + PAGES(5), u->devs[0]->dev,
				GM_WRITE),
		   -ENOMEM);
	ck_assert_ptr_nonnull(strstr(sim.current->error, "wired"));
	ck_assert_int_eq(gm_as_advise(&u->as->as, 0, va, PAGES(1), GM_UNPIN),
			 0);
	unit_xpu_store(u, 0, va + PAGES(5), 1);
	ck_assert_uint_eq(evicted(u, va, 4), 1);
}

static void do_clean(struct unit *u)
{
	struct gm_stats s;
	uint64_t va;
	unsigned int i;

	unit_device(u, 0, 4, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 4);
	for (i = 0; i < 4; i++)
		unit_store(u, va + PAGES(i), i);
	for (i = 0; i < 4; i++)
		ck_assert_uint_eq(unit_xpu_load(u, 0, va + PAGES(i)), i);
	unit_is(u, va, SHARED, 0);
	later();
	ck_assert_uint_eq(reclaim(u, 4), 4);
	gm_machine_stats(unit_node(u, 0), &s);
	ck_assert_uint_eq(s.evicted_clean, 4);
	ck_assert_uint_eq(s.evicted_dirty, 0);
	ck_assert_uint_eq(s.to_host, 0);
}

static void do_budget(struct unit *u)
{
	struct gm_node *host;
	uint64_t va;
	unsigned int i;

	unit_device(u, 0, 32, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 20);
	host = gm_machine.nodes[0];
	for (i = 0; i < 20; i++)
		unit_store(u, va + PAGES(i), i);
	for (i = 0; i < 20; i++)
		unit_xpu_load(u, 0, va + PAGES(i));
	/* The machine allows eight replicas; the oldest went first. */
	ck_assert_uint_eq(host->nr_active, 8);
	unit_is(u, va, MODIFIED, unit_node(u, 0));
	unit_is(u, va + PAGES(19), SHARED, 0);
	for (i = 0; i < 20; i++)
		ck_assert_uint_eq(unit_load(u, va + PAGES(i)), i);
}

static void do_hotplug(struct unit *u)
{
	struct sim_dev *d;
	uint64_t va = fill(u);

	d = u->devs[0];
	unit_fails(
		gm_dev_unregister_physmem(d->dev, d->base, d->base + PAGES(2)),
		-ENOENT);
	ck_assert_int_eq(
		gm_dev_unregister_physmem(d->dev, d->base, d->base + PAGES(4)),
		0);
	ck_assert_uint_eq(evicted(u, va, 4), 15);
	ck_assert_uint_eq(d->dev->node->nr_total, 0);
	ck_assert_uint_eq(d->dev->node->nr_free, 0);
	ck_assert_int_eq(
		gm_dev_register_physmem(d->dev, d->base, d->base + PAGES(4)),
		0);
	ck_assert_uint_eq(unit_xpu_load(u, 0, va), 100);
}

#define TEST(name)                   \
	START_TEST(name)             \
	{                            \
		unit_run(do_##name); \
	}                            \
	END_TEST

TEST(order)
TEST(refresh)
TEST(cold)
TEST(preferred)
TEST(wired)
TEST(clean)
TEST(budget)
TEST(hotplug)

TCase *unit_node_lists(void)
{
	TCase *tc = tcase_create("nodes");

	tcase_add_test(tc, order);
	tcase_add_test(tc, refresh);
	tcase_add_test(tc, cold);
	tcase_add_test(tc, preferred);
	tcase_add_test(tc, wired);
	tcase_add_test(tc, clean);
	tcase_add_test(tc, budget);
	tcase_add_test(tc, hotplug);
	return tc;
}
