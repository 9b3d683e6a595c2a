/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * plain_exchange.c - pages of plain memory on two host nodes change places
 *
 * Linux has no call for this. Both pages of a pair are taken out, their contents
 * change places in the memory that they have, and each memory goes back to where
 * the other came from: nothing is allocated, so it works on nodes that are full.
 * Only private anonymous memory can be taken out; pairs are of one size.
 */
#include "core/internal.h"
#include "sys.h"
#include "user.h"

#define PAIRS (GM_BATCH / 2)
#define TRIES 3

/**
 * struct pair - two pages that are to change places
 * @index: in the program's list
 * @node: of the one page, then of the other
 * @size: of both
 */
struct pair {
	unsigned long index;
	uint64_t va[2];
	int node[2];
	uint64_t size;
};

struct swapping {
	char *a;
	char *b;
};

static void swap_cut(void *arg, unsigned int i)
{
	const struct swapping *s = arg;
	uint64_t part = GM_PAGE_SIZE / GM_CUTS;

	gm_host_exchange(s->a + i * part, s->b + i * part, part);
}

static void swap(const struct gm_piece *p, uint64_t size, bool parallel)
{
	struct swapping s = { (char *)p[0].out, (char *)p[1].out };

	if (size == GM_PAGE_SIZE)
		gm_host_parallel(swap_cut, &s, GM_CUTS, parallel ? GM_CUTS : 1);
	else
		gm_host_exchange(s.a, s.b, size);
}

/* What can be taken out changes places, or comes back. All are of one size. */
static int exchange_some(struct gm_as *as, const struct pair *pairs,
			 unsigned int n, bool parallel)
{
	struct gm_page *slots[GM_BATCH];
	struct gm_piece p[GM_BATCH];
	uint64_t size = pairs[0].size;
	unsigned int i;
	int rc = gm_host_slots_get(as, slots, 2 * n);

	if (rc)
		return rc;
	for (i = 0; i < 2 * n; i++)
		p[i] = (struct gm_piece){ .va = pairs[i / 2].va[i % 2],
					  .out = slots[i]->addr };
	rc = gm_mover_begin();
	if (!rc) {
		gm_mover_take(p, 2 * n, size);
		for (i = 0; i < 2 * n; i += 2) {
			bool both = p[i].away && p[i + 1].away;

			if (both)
				swap(&p[i], size, parallel);
			if (p[i].away)
				gm_mover_put(&p[i], p[i + both].out, size);
			if (p[i + 1].away)
				gm_mover_put(&p[i + 1], p[i + !both].out, size);
		}
		gm_mover_end();
	}
	for (i = 0; i < 2 * n; i++) {
		gm_frames_discard(slots[i]);
		gm_host_page_put(as, slots[i]);
	}
	return rc;
}

/* 0: it is to be done; 1: nothing is; or the errno. */
static int plan(struct pair *p, unsigned long index, void *from, void *to)
{
	void *pages[2] = { from, to };
	bool huge[2];
	int i;

	p->index = index;
	for (i = 0; i < 2; i++)
		p->va[i] = (uint64_t)pages[i] & ~(GM_SMALL_PAGE - 1);
	gm_plain_nodes(2, pages, p->node);
	for (i = 0; i < 2; i++) {
		if (p->node[i] < 0)
			return p->node[i];
		huge[i] =
			gm_vma_huge(p->va[i] & ~GM_PAGE_MASK,
				    (p->va[i] & ~GM_PAGE_MASK) + GM_PAGE_SIZE);
	}
	if (p->node[0] == p->node[1])
		return 1;
	if (huge[0] != huge[1])
		return -EINVAL;
	p->size = huge[0] ? GM_PAGE_SIZE : GM_SMALL_PAGE;
	for (i = 0; i < 2; i++) {
		p->va[i] &= ~(p->size - 1);
		if (!gm_plain_can_take(p->va[i], p->size))
			return -EACCES;
	}
	return 0;
}

/* Can it go together with those that are there? */
static bool fits(const struct pair *pairs, unsigned int n, const struct pair *p)
{
	unsigned int i, j;

	for (i = 0; i < n; i++) {
		if (pairs[i].size != p->size)
			return false;
		for (j = 0; j < 4; j++)
			if (pairs[i].va[j / 2] == p->va[j % 2])
				return false;
	}
	return true;
}

/* Pairs that were planned; some may be held, and are tried again. */
static void exchange(struct gm_as *as, struct pair *pairs, unsigned int n,
		     int *status, bool parallel)
{
	unsigned int i, k, tries;
	int now, rc = 0;

	for (tries = 0; n && tries < TRIES; tries++) {
		rc = exchange_some(as, pairs, n, parallel);
		for (i = 0, k = 0; i < n; i++) {
			void *page = (void *)pairs[i].va[0];

			gm_plain_nodes(1, &page, &now);
			status[pairs[i].index] = now;
			if (now == pairs[i].node[0])
				pairs[k++] = pairs[i];
			else if (now == pairs[i].node[1])
				gm_count(gm_machine.nodes[now], exchanged, 1);
		}
		n = k;
	}
	for (i = 0; i < n; i++)
		status[pairs[i].index] = rc ? rc : -EBUSY;
}

void gm_plain_exchange(struct gm_as *as, unsigned long n, void **from,
		       void **to, int *status, unsigned int flags)
{
	unsigned int room = flags & GM_MOVE_CONCURRENT ? PAIRS : 1, k = 0;
	bool parallel = flags & GM_MOVE_PARALLEL;
	struct pair pairs[PAIRS], p;
	unsigned long i;
	int rc = gm_threads_start(as);

	for (i = 0; i < n; i++) {
		status[i] = rc ? rc : plan(&p, i, from[i], to[i]);
		if (status[i] == 1)
			status[i] = p.node[0];
		else if (!status[i]) {
			if (k == room || !fits(pairs, k, &p)) {
				exchange(as, pairs, k, status, parallel);
				k = 0;
				/* What was exchanged may be in this one. */
				i--;
				continue;
			}
			pairs[k++] = p;
		}
	}
	exchange(as, pairs, k, status, parallel);
	for (i = 0; i < n; i++)
		if (status[i] < 0)
			gm_move_failed(gm_machine.nodes[0], status[i]);
}
