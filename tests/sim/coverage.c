// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * coverage.c - which event has met an entry in which state
 */
#include <stdio.h>

#include "host/sim/sim.h"
#include "tests/sim/options.h"

#define EVENT_NAME(name) [GM_ON_##name] = #name,
static const char *const events[GM_NR_EVENTS] = { GM_EVENTS(EVENT_NAME) };
static const char *const states[GM_NR_STATES] = {
	[GM_STATE_UNTRACKED] = "untracked",   [GM_STATE_EMPTY] = "empty",
	[GM_STATE_MODIFIED] = "modified",     [GM_STATE_SHARED] = "shared",
	[GM_STATE_FRAGMENTED] = "fragmented", [GM_STATE_POISON] = "poison",
};

/* What cannot be, or only if others are very quick, and why. */
static const struct {
	unsigned int event;
	unsigned int states; /* a bit for each */
	bool race; /* it can be, but is not asked for */
	const char *why;
} unlikely[] = {
#define S(name) (1u << GM_STATE_##name)
	{ GM_ON_EVICT, S(UNTRACKED) | S(EMPTY) | S(POISON), false,
	  "no XPU has a copy" },
	{ GM_ON_RESET, S(UNTRACKED) | S(EMPTY) | S(POISON), false,
	  "no XPU has a copy" },
	{ GM_ON_LOST, S(UNTRACKED) | S(EMPTY) | S(POISON), false,
	  "no XPU has a copy" },
	{ GM_ON_DETACH, S(UNTRACKED) | S(EMPTY) | S(POISON), false,
	  "no XPU has a copy" },
	{ GM_ON_DROP_REPLICA,
	  S(UNTRACKED) | S(EMPTY) | S(MODIFIED) | S(FRAGMENTED) | S(POISON),
	  false, "only what is Shared has a replica" },
	{ GM_ON_DISCARD, S(EMPTY), true,
	  "seen before: it became Empty between two looks" },
	{ GM_ON_DISCARD_PART, S(EMPTY), true,
	  "seen before: it became Empty between two looks" },
	{ GM_ON_COPY_INTO,
	  S(UNTRACKED) | S(EMPTY) | S(SHARED) | S(FRAGMENTED) | S(POISON), true,
	  "it was just fetched for writing: somebody took it since" },
	{ GM_ON_COPY_OVER, S(POISON) | S(FRAGMENTED), true,
	  "it is brought there first, which fails" },
	{ GM_ON_PIN, S(POISON) | S(FRAGMENTED), true,
	  "it is brought there first, which fails" },
	{ GM_ON_LOST, S(FRAGMENTED), true,
	  "a cut page that could not be brought home at once" },
	{ GM_ON_DETACH, S(FRAGMENTED), true,
	  "a cut page that could not be brought home at once" },
	{ GM_ON_RESET, S(FRAGMENTED), true,
	  "a cut page that could not be brought home at once" },
	{ GM_ON_EVICT, S(FRAGMENTED), true,
	  "a cut page that could not be brought home at once" },
#undef S
};

#define NR_UNLIKELY (sizeof(unlikely) / sizeof(unlikely[0]))

static int why_not(unsigned int state, unsigned int event)
{
	unsigned int i;

	for (i = 0; i < NR_UNLIKELY; i++)
		if (unlikely[i].event == event &&
		    (unlikely[i].states & (1u << state)))
			return (int)i;
	return -1;
}

static void print_row(unsigned int e)
{
	unsigned int s;

	printf("%-14s", events[e]);
	for (s = 0; s < GM_NR_STATES; s++) {
		if (sim_cover[s][e])
			printf(" %11lu", (unsigned long)sim_cover[s][e]);
		else
			printf(" %11s", why_not(s, e) < 0	       ? "HOLE"
					: unlikely[why_not(s, e)].race ? "race"
								       : "-");
	}
	printf("\n");
}

static unsigned int check_cell(unsigned int s, unsigned int e)
{
	int why = why_not(s, e);

	if (why >= 0 && !unlikely[why].race && sim_cover[s][e]) {
		printf("%s in %s was thought impossible: %s\n", events[e],
		       states[s], unlikely[why].why);
		return 1;
	}
	if (why < 0 && !sim_cover[s][e]) {
		printf("%s in %s was not reached\n", events[e], states[s]);
		return 1;
	}
	return 0;
}

unsigned int coverage_report(bool strict)
{
	unsigned int s, e, holes = 0;

	printf("%-14s", "event \\ state");
	for (s = 0; s < GM_NR_STATES; s++)
		printf(" %11s", states[s]);
	printf("\n");
	for (e = 0; e < GM_NR_EVENTS; e++)
		print_row(e);
	for (s = 0; s < GM_NR_STATES; s++)
		for (e = 0; e < GM_NR_EVENTS; e++)
			holes += check_cell(s, e);
	for (e = 0; e < NR_UNLIKELY; e++)
		printf("%-14s %s: %s\n", events[unlikely[e].event],
		       unlikely[e].race ? "race" : "-   ", unlikely[e].why);
	return strict ? holes : 0;
}
