// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static void unit_main(void *arg)
{
	void (*fn)(struct unit * u) = *(void (**)(struct unit *))arg;
	struct unit u = { 0 };
	unsigned int i;

	ck_assert_int_eq(gm_machine_init(1, 8), 0);
	u.as = sim_as_new(0);
	ck_assert_int_eq(gm_as_init(&u.as->as), 0);
	fn(&u);
	gm_as_exit(&u.as->as);
	for (i = 0; i < 3; i++) {
		struct sim_dev *d = u.devs[i];

		if (!d)
			continue;
		if (u.ctxs[i])
			sim_ctx_free(u.ctxs[i]);
		ck_assert_int_eq(
			gm_dev_unregister_physmem(
				d->dev, d->base, d->base + PAGES(d->nr_frames)),
			0);
		ck_assert_int_eq(gm_dev_destroy(d->dev), 0);
		sim_dev_free(d);
	}
	sim_as_free(u.as);
	gm_machine_exit();
}

void unit_run(void (*fn)(struct unit *u))
{
	static const struct sim_config cfg = { .seed = 1,
					       .nr_as = 1,
					       .nr_slots = 2048,
					       .nr_plain = 8,
					       .host_nodes = 1,
					       .host_frames = 512,
					       .reserve = 16,
					       .max_replicas = 8,
					       .fault_workers = 1,
					       .tick = 100 };

	sim.fail_call = -1;
	sim_run(&cfg, unit_main, &fn);
}

void unit_device(struct unit *u, unsigned int i, unsigned int frames,
		 unsigned int caps, unsigned int flags)
{
	struct sim_dev *d = sim_dev_new(frames, caps, flags);

	u->devs[i] = d;
	memset(d->registered, 1, frames);
	ck_assert_int_eq(gm_dev_create(&d->ops, d, "unit", caps, &d->dev), 0);
	ck_assert_int_eq(gm_dev_register_physmem(d->dev, d->base,
						 d->base + PAGES(frames)),
			 0);
	u->ctxs[i] = sim_ctx_new(d, u->as);
	ck_assert_int_eq(gm_as_attach(&u->as->as, d->dev, u->ctxs[i]), 0);
	u->ctxs[i]->attached = true;
}

int unit_node(const struct unit *u, unsigned int i)
{
	return gm_dev_node(u->devs[i]->dev);
}

uint64_t unit_map(struct unit *u, unsigned int pages)
{
	uint64_t va;

	ck_assert_int_eq(gm_as_map(&u->as->as, 0, PAGES(pages), 3, 0, &va), 0);
	return va;
}

void unit_store(struct unit *u, uint64_t va, uint64_t word)
{
	ck_assert_int_eq(sim_cpu_access(u->as, va, &word, 8, true), 0);
}

uint64_t unit_load(struct unit *u, uint64_t va)
{
	uint64_t word;

	ck_assert_int_eq(sim_cpu_access(u->as, va, &word, 8, false), 0);
	return word;
}

void unit_xpu_store(struct unit *u, unsigned int i, uint64_t va, uint64_t word)
{
	ck_assert_int_eq(
		sim_xpu_access(u->ctxs[i], 0, va, &word, SIM_XPU_STORE), 0);
}

uint64_t unit_xpu_load(struct unit *u, unsigned int i, uint64_t va)
{
	uint64_t word;

	ck_assert_int_eq(sim_xpu_access(u->ctxs[i], 0, va, &word, SIM_XPU_LOAD),
			 0);
	return word;
}

struct gm_where unit_where(struct unit *u, uint64_t va)
{
	struct gm_where where;

	ck_assert_int_eq(gm_as_where(&u->as->as, va, &where), 0);
	return where;
}

int main(void)
{
	Suite *s = suite_create("core");
	SRunner *r = srunner_create(s);
	int failed;

	suite_add_tcase(s, unit_region());
	suite_add_tcase(s, unit_node_lists());
	suite_add_tcase(s, unit_coherence());
	suite_add_tcase(s, unit_advise());
	suite_add_tcase(s, unit_copy());
	suite_add_tcase(s, unit_kpi());
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
