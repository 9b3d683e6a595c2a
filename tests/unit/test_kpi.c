// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* What drivers may do wrong, and what they are told. */
#include <string.h>

#include "unit.h"

static char texts[32][200];
static unsigned int nr_texts;

/* Each kind of refusal has a text of its own. */
static void remember(void)
{
	unsigned int i;

	for (i = 0; i < nr_texts; i++)
		ck_assert_str_ne(texts[i], sim.current->error);
	ck_assert_uint_lt(nr_texts, 32);
	strcpy(texts[nr_texts++], sim.current->error);
}

#define REFUSED(expr, errno_)             \
	do {                              \
		unit_fails(expr, errno_); \
		remember();               \
	} while (0)

static void check_ops(struct sim_dev *d)
{
	struct gm_dev_ops ops = d->ops;
	struct gm_dev *dev = NULL;

	ops.version++;
	REFUSED(gm_dev_create(&ops, d, "x", UNIT_CAPS, &dev), -EINVAL);
	ops = d->ops;
	ops.size = 8;
	REFUSED(gm_dev_create(&ops, d, "x", UNIT_CAPS, &dev), -EINVAL);
	ops = d->ops;
	ops.pmap_enter = NULL;
	REFUSED(gm_dev_create(&ops, d, "x", UNIT_CAPS, &dev), -EINVAL);
	ck_assert_ptr_nonnull(strstr(sim.current->error, "pmap_enter"));
	ops = d->ops;
	ops.zero = NULL;
	REFUSED(gm_dev_create(&ops, d, "x", UNIT_CAPS, &dev), -EINVAL);
	REFUSED(gm_dev_create(&d->ops, d, "", UNIT_CAPS, &dev), -EINVAL);
	unit_fails(gm_dev_create(&d->ops, d,
				 "a name of more than thirty-one bytes, alas",
				 UNIT_CAPS, &dev),
		   -EINVAL);
	ck_assert_ptr_null(dev);
}

static void do_wrong(struct unit *u)
{
	struct sim_dev *d;
	uint64_t b, va;

	nr_texts = 0;
	unit_device(u, 0, 8, UNIT_CAPS, UNIT_ALL_OPS);
	d = u->devs[0];
	b = d->base;
	check_ops(d);
	REFUSED(gm_dev_register_physmem(d->dev, b + PAGES(9) + 1,
					b + PAGES(10)),
		-EINVAL);
	REFUSED(gm_dev_register_physmem(d->dev, b + PAGES(10), b + PAGES(9)),
		-EINVAL);
	REFUSED(gm_dev_register_physmem(d->dev, b + PAGES(7), b + PAGES(9)),
		-EEXIST);
	REFUSED(gm_dev_unregister_physmem(d->dev, b, b + PAGES(7)), -ENOENT);
	REFUSED(gm_dev_destroy(d->dev), -EBUSY);
	REFUSED(gm_as_attach(&u->as->as, d->dev, u->ctxs[0]), -EEXIST);
	va = unit_map(u, 1);
	REFUSED(gm_dev_fault(&u->as->as, va + PAGES(1), d->dev, GM_READ),
		-EFAULT);
	ck_assert_int_eq(gm_as_protect(&u->as->as, va, PAGES(1), 1), 0);
	REFUSED(gm_dev_fault(&u->as->as, va, d->dev, GM_WRITE), -EACCES);
	ck_assert_int_eq(gm_as_detach(&u->as->as, d->dev), 0);
	REFUSED(gm_as_detach(&u->as->as, d->dev), -ENOENT);
	REFUSED(gm_dev_fault(&u->as->as, va, d->dev, GM_READ), -ENODEV);
	sim_ctx_free(u->ctxs[0]);
	u->ctxs[0] = NULL;
}

static void do_refuse(struct unit *u)
{
	uint64_t a = unit_map(u, 4), va;
	struct sim_dev *d;

	unit_device(u, 0, 4, UNIT_CAPS, UNIT_ALL_OPS);
	unit_device(u, 1, 4, UNIT_CAPS, UNIT_ALL_OPS);
	/* A region that is there already refuses the attach ... */
	d = u->devs[0];
	ck_assert_int_eq(gm_as_detach(&u->as->as, d->dev), 0);
	u->ctxs[0]->refuse_start = a + PAGES(2);
	u->ctxs[0]->refuse_end = a + PAGES(3);
	unit_fails(gm_as_attach(&u->as->as, d->dev, u->ctxs[0]), -EADDRINUSE);
	ck_assert_int_eq(u->ctxs[0]->examined, 0);
	/* ... and addresses that nobody has yet are passed over. */
	ck_assert_int_eq(gm_as_unmap(&u->as->as, a, PAGES(4)), 0);
	ck_assert_int_eq(gm_as_attach(&u->as->as, d->dev, u->ctxs[0]), 0);
	va = unit_map(u, 4);
	ck_assert(va >= a + PAGES(3) || va + PAGES(4) <= a + PAGES(2));
	/* All refused: ten tries, and all of them undone. */
	u->ctxs[0]->refuse_start = 0;
	u->ctxs[0]->refuse_end = UINT64_MAX;
	unit_fails(gm_as_map(&u->as->as, 0, PAGES(4), 3, 0, &va), -ENOMEM);
	ck_assert_int_eq(u->ctxs[1]->examined, 4);
	u->ctxs[0]->refuse_end = 0;
}

static void do_many(struct unit *u)
{
	enum gm_access access[40];
	uint64_t vas[40], va;
	int status[40];
	unsigned int i;

	unit_device(u, 0, 32, UNIT_CAPS, UNIT_ALL_OPS);
	va = unit_map(u, 12);
	for (i = 0; i < 40; i++) {
		/* Any order, doubles, and every eighth is no memory. */
		vas[i] = va + PAGES((i * 5) % 12) + i;
		access[i] = i % 3 ? GM_READ : GM_WRITE;
		if (i % 8 == 7)
			vas[i] = va + PAGES(20 + i);
	}
	ck_assert_int_eq(gm_dev_fault_many(&u->as->as, vas, 40, u->devs[0]->dev,
					   access, status),
			 35);
	for (i = 0; i < 40; i++)
		ck_assert_int_eq(status[i], i % 8 == 7 ? -EFAULT : 0);
	for (i = 0; i < 12; i++)
		unit_is(u, va + PAGES(i), MODIFIED, unit_node(u, 0));
}

#define TEST(name)                   \
	START_TEST(name)             \
	{                            \
		unit_run(do_##name); \
	}                            \
	END_TEST

TEST(wrong)
TEST(refuse)
TEST(many)

TCase *unit_kpi(void)
{
	TCase *tc = tcase_create("drivers");

	tcase_add_test(tc, wrong);
	tcase_add_test(tc, refuse);
	tcase_add_test(tc, many);
	return tc;
}
