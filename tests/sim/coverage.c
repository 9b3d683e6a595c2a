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

/* What cannot be, and why. */
static const struct {
	enum gm_page_state state;
	enum gm_entry_event event;
	const char *why;
} impossible[] = {
	/* filled in from the core as it is */
	{ GM_NR_STATES, GM_NR_EVENTS, NULL },
};

static const char *why_not(unsigned int state, unsigned int event)
{
	unsigned int i;

	for (i = 0; impossible[i].why; i++)
		if (impossible[i].state == state &&
		    impossible[i].event == event)
			return impossible[i].why;
	return NULL;
}

static void print_row(unsigned int e)
{
	unsigned int s;

	printf("%-14s", events[e]);
	for (s = 0; s < GM_NR_STATES; s++) {
		if (sim_cover[s][e])
			printf(" %11lu", (unsigned long)sim_cover[s][e]);
		else
			printf(" %11s", why_not(s, e) ? "-" : "HOLE");
	}
	printf("\n");
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
		for (e = 0; e < GM_NR_EVENTS; e++) {
			const char *why = why_not(s, e);

			if (why && sim_cover[s][e]) {
				printf("%s in %s was thought impossible: %s\n",
				       events[e], states[s], why);
				holes++;
			} else if (!why && !sim_cover[s][e]) {
				printf("%s in %s was not reached\n", events[e],
				       states[s]);
				holes++;
			}
		}
	for (e = 0; impossible[e].why; e++)
		printf("%s in %s cannot be: %s\n", events[impossible[e].event],
		       states[impossible[e].state], impossible[e].why);
	return strict ? holes : 0;
}
