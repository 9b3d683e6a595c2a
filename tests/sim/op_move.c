// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * op_move.c - lists of pages that move to nodes, or change places
 */
#include "tests/sim/torture.h"

#define MAX_LIST 20

static unsigned int random_flags(void)
{
	return (sim_chance(2) ? GM_MOVE_PARALLEL : 0) |
	       (sim_chance(3) ? 0 : GM_MOVE_CONCURRENT);
}

/* Pages here and there, most of them mapped, some of them twice. */
static unsigned int pick_list(struct worker *w, struct model *m, uint64_t *vas)
{
	unsigned int i, n = 1 + (unsigned int)sim_below(MAX_LIST);

	for (i = 0; i < n; i++) {
		vas[i] = pick_word(w, m);
		if (i && sim_chance(3))
			vas[i] = vas[i - 1];
		else if (i && sim_chance(3))
			vas[i] = SIM_BASE +
				 model_off(vas[i - 1] + GM_PAGE_SIZE) %
					 ((m->nr_slots - sim.cfg.nr_plain) *
					  GM_PAGE_SIZE);
	}
	return n;
}

/* Each status is a node that there can be, or has a reason. */
static uint64_t check_list(struct model *m, unsigned int n, const uint64_t *vas,
			   const int *status, const char *what)
{
	unsigned int i;
	uint64_t failed = 0;

	for (i = 0; i < n; i++) {
		if (status[i] >= 0) {
			SIM_CHECK(status[i] < GM_MAX_NODES, "%s: node %d", what,
				  status[i]);
			continue;
		}
		failed++;
		/* There may be no data; a node may be full, or on its way out;
		 * and who is in the way for long enough is not known here. */
		if (status[i] == -ENOENT || status[i] == -ENOMEM ||
		    status[i] == -ENODEV || status[i] == -EBUSY)
			continue;
		torture_error_range(m, vas[i], 8, status[i], what);
	}
	return failed;
}

int op_move(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t vas[MAX_LIST], failed;
	int nodes[MAX_LIST], status[MAX_LIST];
	unsigned int i, n = pick_list(w, m, vas);
	bool ask = sim_chance(8);

	for (i = 0; i < n; i++) {
		status[i] = GM_MAX_NODES;
		nodes[i] = i && !sim_chance(3) ? nodes[i - 1] : pick_node();
	}
	failed = gm_as_move(&m->as->as, n, vas, ask ? NULL : nodes, status,
			    random_flags());
	SIM_CHECK(failed == check_list(m, n, vas, status, "a move"),
		  "moves: %lu failed, it says", (unsigned long)failed);
	return failed ? -EBUSY : 0;
}

static void under_way(struct model *m, unsigned int n, const uint64_t *vas,
		      int by)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		m->swaps[model_slot(vas[i])] += (uint8_t)by;
}

int op_exchange(struct worker *w)
{
	struct model *m = t.m[w->as];
	uint64_t from[MAX_LIST], to[MAX_LIST], failed;
	int status[MAX_LIST];
	unsigned int i, n = pick_list(w, m, from);
	unsigned int k = pick_list(w, m, to);

	n = GM_MIN(n, k);
	for (i = 0; i < n; i++)
		status[i] = GM_MAX_NODES;
	under_way(m, n, from, 1);
	under_way(m, n, to, 1);
	failed =
		gm_as_exchange(&m->as->as, n, from, to, status, random_flags());
	under_way(m, n, from, -1);
	under_way(m, n, to, -1);
	for (i = 0, k = 0; i < n; i++) {
		/* Either of the two may be the reason. */
		if (status[i] < 0 && torture_explained(m, to[i], 8, status[i]))
			k++;
		else
			k += check_list(m, 1, &from[i], &status[i],
					"an exchange") != 0;
	}
	SIM_CHECK(failed == k, "exchanges: %lu failed, it says",
		  (unsigned long)failed);
	return failed ? -EBUSY : 0;
}
