/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * gm_host.h - what the core sees of the Linux process host
 */
#ifndef GM_HOST_H
#define GM_HOST_H

#include <errno.h>
#include <stdint.h>

/*
 * A ticket lock: the high half is the next ticket to be had, the low half the
 * ticket that is served. All zeros is unlocked.
 */
struct gm_lock {
	uint64_t word;
};

struct gm_waitq {
	uint32_t count;
	uint32_t waiters;
};

/* There is one address space in a process; its state is in the host's files. */
struct gm_host_as {
	uint8_t unused;
};

#define GM_COVER(state, event) ((void)(state), (void)(event))

/* A launch after the program's own mremap() must find the new addresses. */
void gm_events_barrier(void);
#define GM_SETTLE() gm_events_barrier()

#endif /* GM_HOST_H */
