/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * gm_host.h - what the simulated machine brings for core/host.h
 */
#ifndef GM_SIM_GM_HOST_H
#define GM_SIM_GM_HOST_H

#include <errno.h>
#include <stdint.h>

struct sim_as;

/* Tasks are named by small numbers, 0 is nobody. */
struct gm_lock {
	uint16_t owner;
	uint16_t head; /* those who wait, in the order of arrival */
	uint16_t tail;
	uint16_t rank;
};

struct gm_waitq {
	uint32_t count;
	uint16_t head;
	uint16_t tail;
};

struct gm_host_as {
	struct sim_as *sim;
};

#define SIM_COVER_STATES 16
#define SIM_COVER_EVENTS 32
extern uint64_t sim_cover[SIM_COVER_STATES][SIM_COVER_EVENTS];
#define GM_COVER(state, event) ((void)sim_cover[state][event]++)

#endif /* GM_SIM_GM_HOST_H */
