/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * mute.c - events of our own doing, which the core is not to be told
 */
#include "user.h"

#define NR_MUTES 64

/**
 * struct mute - an event of our own doing
 * @exact: one REMOVE of exactly this range; otherwise UNMAPs and REMAPs in it
 */
struct mute {
	uint64_t start;
	uint64_t end;
	bool exact;
};

static struct {
	struct gm_lock lock;
	struct mute all[NR_MUTES]; /* (lock) */
} mutes;

void gm_mute_add(uint64_t start, uint64_t end, bool exact)
{
	int i;

	for (;;) {
		gm_lock_raw(&mutes.lock);
		for (i = 0; i < NR_MUTES && mutes.all[i].end; i++)
			;
		if (i < NR_MUTES)
			mutes.all[i] = (struct mute){ start, end, exact };
		gm_unlock_raw(&mutes.lock);
		if (i < NR_MUTES)
			return;
		/* As many are under way: each ends by itself. */
		gm_host_sleep_until(gm_host_now() + 50000);
	}
}

bool gm_mute_drop(uint64_t start, uint64_t end, bool exact)
{
	bool found = false;
	int i;

	gm_lock_raw(&mutes.lock);
	for (i = 0; i < NR_MUTES && !found; i++) {
		if (mutes.all[i].start == start && mutes.all[i].end == end &&
		    mutes.all[i].exact == exact) {
			mutes.all[i].end = 0;
			found = true;
		}
	}
	gm_unlock_raw(&mutes.lock);
	return found;
}

bool gm_mute_inside(uint64_t start, uint64_t end)
{
	bool found = false;
	int i;

	gm_lock_raw(&mutes.lock);
	for (i = 0; i < NR_MUTES && !found; i++)
		found = !mutes.all[i].exact && mutes.all[i].end &&
			start >= mutes.all[i].start && end <= mutes.all[i].end;
	gm_unlock_raw(&mutes.lock);
	return found;
}
