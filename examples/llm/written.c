// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * written.c - what was written back from the XPU, by its use
 *
 * GMM counts the pages it writes back, but does not know what they are for.
 * Its trace has their addresses. Weights, above all, are never to be written
 * back: the host has them.
 */
#include <stdio.h>

#include "llm.h"
#include "util/util.h"

/* More than one token takes, even with a memory far too small. */
#define EVENTS (1 << 16)

static struct written all;
static int started;

void written_start(void)
{
	must(!gm_trace_start(EVENTS), "no trace", gm_error());
	started = 1;
}

/**
 * struct page - a page whose use is looked for
 * @addr: the page
 * @use: NR_USES until it is found
 */
struct page {
	uintptr_t addr;
	int use;
};

static void look(void *base, size_t len, enum ggml_gmm_use use, void *arg)
{
	struct page *page = arg;

	if (page->addr - (uintptr_t)base < len)
		page->use = (int)use;
}

static void count(const struct model *m, uint64_t addr)
{
	struct page page = { addr, NR_USES };

	model_buffers(m, look, &page);
	/* What is in no buffer is the backend's own. */
	if (page.use < NR_USES)
		all.of[page.use]++;
}

void written_sample(const struct model *m)
{
	struct gm_event events[256];
	uint64_t lost;
	size_t n;

	while (started && (n = gm_trace_read(events, 256, &lost))) {
		all.lost += lost;
		for (size_t i = 0; i < n; i++) {
			if (events[i].kind == GM_EV_EVICT && events[i].bytes)
				count(m, events[i].addr);
		}
	}
}

struct written written_all(void)
{
	return all;
}
