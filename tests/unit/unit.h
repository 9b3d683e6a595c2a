/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * unit.h - tests of single pieces of the core, on a simulated machine in which
 *	nothing happens at random
 */
#ifndef UNIT_H
#define UNIT_H

#include <check.h>

#include "core/internal.h"
#include "host/sim/sim.h"

#define PAGES(n) ((uint64_t)(n)*GM_PAGE_SIZE)
#define UNIT_CAPS (GM_CAP_REPLAY | GM_CAP_WRITE_FAULT)
#define UNIT_ALL_OPS (SIM_DEV_PROTECT | SIM_DEV_RUNS | SIM_DEV_RELEASE)

/* The machine of a test, which takes all of it down again. */
struct unit {
	struct sim_as *as;
	struct sim_dev *devs[3];
	struct sim_ctx *ctxs[3];
};

void unit_run(void (*fn)(struct unit *u));

/* An attached device with that many frames. */
void unit_device(struct unit *u, unsigned int i, unsigned int frames,
		 unsigned int caps, unsigned int flags);
int unit_node(const struct unit *u, unsigned int i);
uint64_t unit_map(struct unit *u, unsigned int pages);
void unit_store(struct unit *u, uint64_t va, uint64_t word);
uint64_t unit_load(struct unit *u, uint64_t va);
void unit_xpu_store(struct unit *u, unsigned int i, uint64_t va, uint64_t word);
uint64_t unit_xpu_load(struct unit *u, unsigned int i, uint64_t va);
struct gm_where unit_where(struct unit *u, uint64_t va);

#define unit_is(u, va, st, n)                              \
	do {                                               \
		struct gm_where w_ = unit_where(u, va);    \
		ck_assert_int_eq(w_.state, GM_STATE_##st); \
		ck_assert_int_eq(w_.node, n);              \
	} while (0)

/* The call fails with this, and says why. */
#define unit_fails(expr, errno_)                   \
	do {                                       \
		sim.current->has_error = false;    \
		ck_assert_int_eq(expr, errno_);    \
		ck_assert(sim.current->has_error); \
		ck_assert(sim.current->error[0]);  \
	} while (0)

TCase *unit_region(void);
TCase *unit_node_lists(void);
TCase *unit_advise(void);
TCase *unit_copy(void);
TCase *unit_kpi(void);
TCase *unit_coherence(void);

#endif /* UNIT_H */
