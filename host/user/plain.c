/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * plain.c - memory that is not unified moves between host nodes
 *
 * Huge pages of private anonymous memory are taken out, copied by the machine's
 * best loop, and put back huge (mover.c). Base pages, whose copy is the least of
 * their cost, and all that is not such memory, or is held, go to Linux's own
 * move_pages(), all of a list in one call; what it says stands.
 */
#include <string.h>

#include "core/internal.h"
#include "sys.h"
#include "user.h"

#define SOME 64
#define MPOL_MF_MOVE (1 << 1)
#define HUGE_MASK (~GM_PAGE_MASK)

/* --- what Linux does ------------------------------------------------------ */

static void kernel_move(unsigned long n, void **pages, const int *nodes,
			int *status)
{
	unsigned long i;
	long rc = syscall(SYS_move_pages, 0, n, pages, nodes, status,
			  MPOL_MF_MOVE);

	for (i = 0; rc < 0 && i < n; i++)
		status[i] = -errno;
}

void gm_plain_nodes(unsigned long n, void **pages, int *status)
{
	kernel_move(n, pages, NULL, status);
}

/* --- huge pages ------------------------------------------------------------ */

struct copying {
	char *dst;
	const char *src;
};

static void copy_cut(void *arg, unsigned int i)
{
	const struct copying *c = arg;
	uint64_t part = GM_PAGE_SIZE / GM_CUTS;

	gm_host_copy(c->dst + i * part, c->src + i * part, part);
}

/* One of private anonymous memory, that may be written, and can be moved while
 * nobody is on it. */
bool gm_plain_can_take(uint64_t va, uint64_t size)
{
	uint64_t start = va & HUGE_MASK;
	struct gm_vma vma;

	return gm_vma_find(va, &vma) == 0 && vma.start <= va &&
	       vma.end >= va + size && vma.anonymous && !vma.shared &&
	       (vma.prot & (PROT_READ | PROT_WRITE)) ==
		       (PROT_READ | PROT_WRITE) &&
	       !gm_mover_needs(start, GM_PAGE_SIZE);
}

static bool is_huge(uint64_t va)
{
	va &= HUGE_MASK;
	return gm_vma_huge(va, va + GM_PAGE_SIZE);
}

/* Places: a vacant one for each piece, and new memory on the node. */
static unsigned int get_places(struct gm_as *as, struct gm_piece *p,
			       unsigned int n, int nid)
{
	struct gm_page *slots[GM_BATCH];
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (gm_host_page_get(as, nid, 0, &p[i].frame))
			break;
		/* The node is full: Linux may know better what to do. */
		if (p[i].frame->nid != nid || !is_huge(p[i].frame->addr)) {
			gm_host_page_put(as, p[i].frame);
			break;
		}
	}
	n = i;
	if (n && gm_host_slots_get(as, slots, n)) {
		while (i-- > 0)
			gm_host_page_put(as, p[i].frame);
		return 0;
	}
	for (i = 0; i < n; i++) {
		p[i].slot = slots[i];
		p[i].out = slots[i]->addr;
	}
	return n;
}

/* A place that was filled by a move: whose memory is it? */
static void put_filled(struct gm_as *as, struct gm_page *slot)
{
	slot->vacant = 0;
	slot->nid = (int16_t)gm_memory_node_at(slot->addr);
	/* Split on its way: of no use as a page. */
	if (!is_huge(slot->addr))
		gm_frames_discard(slot);
	gm_host_page_put(as, slot);
}

/* Pieces of one node's list go to @nid; what cannot is left to Linux. */
static void move_huge(struct gm_as *as, struct gm_piece *p, unsigned int n,
		      int nid, bool parallel)
{
	unsigned int i, moved = 0;

	n = get_places(as, p, n, nid);
	if (!n)
		return;
	if (gm_mover_begin()) {
		for (i = 0; i < n; i++) {
			gm_host_page_put(as, p[i].frame);
			gm_host_page_put(as, p[i].slot);
		}
		return;
	}
	gm_mover_take(p, n, GM_PAGE_SIZE);
	for (i = 0; i < n; i++) {
		struct copying c = { gm_host_page_ptr(p[i].frame),
				     (char *)p[i].out };

		if (!p[i].away)
			continue;
		gm_host_parallel(copy_cut, &c, GM_CUTS, parallel ? GM_CUTS : 1);
		gm_mover_put(&p[i], p[i].frame->addr, GM_PAGE_SIZE);
	}
	gm_mover_end();
	for (i = 0; i < n; i++) {
		if (p[i].away) {
			/* What could not be put back whole is not kept. */
			gm_frames_discard(p[i].frame);
			put_filled(as, p[i].slot);
			moved++;
		} else {
			gm_frames_discard(p[i].slot);
			gm_host_page_put(as, p[i].slot);
		}
		gm_host_page_put(as, p[i].frame);
	}
	gm_count(gm_machine.nodes[nid], moved, moved);
	gm_count(gm_machine.nodes[nid], between_hosts, moved);
}

/* Those of a list's pages that are huge and elsewhere, each once. */
static void move_huge_of(struct gm_as *as, unsigned long n, void **pages,
			 int nid, const int *status, unsigned int flags)
{
	unsigned int room = flags & GM_MOVE_CONCURRENT ? GM_BATCH : 1, k = 0;
	struct gm_piece p[GM_BATCH];
	uint64_t last = 0;
	unsigned long i;

	for (i = 0; i < n; i++) {
		uint64_t va = (uint64_t)pages[i] & HUGE_MASK;

		if (status[i] < 0 || status[i] == nid || va == last ||
		    !is_huge(va) || !gm_plain_can_take(va, GM_PAGE_SIZE))
			continue;
		last = va;
		p[k++] = (struct gm_piece){ .va = va };
		if (k < room)
			continue;
		move_huge(as, p, k, nid, flags & GM_MOVE_PARALLEL);
		k = 0;
	}
	if (k)
		move_huge(as, p, k, nid, flags & GM_MOVE_PARALLEL);
}

/* Whose node is another still: to Linux, together. */
static void move_rest(unsigned long n, void **pages, int nid, int *status)
{
	void *rest[SOME];
	int nodes[SOME], result[SOME];
	unsigned long i, k = 0, j;

	for (i = 0; i < n; i++) {
		if (status[i] < 0 || status[i] == nid)
			continue;
		nodes[k] = nid;
		rest[k++] = pages[i];
	}
	if (!k)
		return;
	kernel_move(k, rest, nodes, result);
	gm_count(gm_machine.nodes[nid], move_kernel, k);
	for (i = 0, j = 0; i < n; i++) {
		if (status[i] < 0 || status[i] == nid)
			continue;
		status[i] = result[j++];
		gm_count(gm_machine.nodes[nid], moved, status[i] == nid);
	}
}

static void move_to_node(struct gm_as *as, unsigned long n, void **pages,
			 int nid, int *status, unsigned int flags)
{
	unsigned long i;

	gm_plain_nodes(n, pages, status);
	/* Without our threads, or the right to have them, Linux does it. */
	if (gm_user.nr_nodes > 1 && gm_threads_start(as) == 0) {
		move_huge_of(as, n, pages, nid, status, flags);
		gm_plain_nodes(n, pages, status);
	}
	move_rest(n, pages, nid, status);
	for (i = 0; i < n; i++)
		if (status[i] < 0)
			gm_move_failed(gm_machine.nodes[nid], status[i]);
}

void gm_plain_move(struct gm_as *as, unsigned long n, void **pages,
		   const int *nodes, int *status, unsigned int flags)
{
	unsigned long i, j, k;

	if (!nodes) {
		gm_plain_nodes(n, pages, status);
		return;
	}
	for (i = 0; i < n; i += k) {
		for (k = 1; i + k < n && k < SOME; k++)
			if (nodes[i + k] != nodes[i])
				break;
		if (nodes[i] < gm_machine.nr_host_nodes) {
			move_to_node(as, k, pages + i, nodes[i], status + i,
				     flags);
			continue;
		}
		for (j = i; j < i + k; j++) {
			status[j] = gm_host_error(
				-ENODEV,
				"0x%llx is not unified memory: no XPU can have "
				"it",
				(unsigned long long)pages[j]);
			gm_move_failed(gm_machine.nodes[0], -ENODEV);
		}
	}
}
