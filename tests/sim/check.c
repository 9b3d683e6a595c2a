// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * check.c - what must hold when nothing is under way
 */
#include <stdio.h>
#include <string.h>

#include "tests/sim/torture.h"

struct gm_entry *torture_entry(struct gm_as *as, uint64_t va,
			       const struct gm_region **region)
{
	const struct gm_region_table *table = as->table;
	uint32_t i;

	for (i = 0; table && i < table->nr; i++) {
		const struct gm_region *r = table->regions[i];
		struct gm_leaf *leaf;
		uint64_t slot;

		if (va < r->start || va >= r->end)
			continue;
		if (region)
			*region = r;
		slot = r->first + ((va - r->start) >> GM_PAGE_SHIFT);
		leaf = r->dir->leaves[slot / GM_LEAF_ENTRIES];
		return leaf ? &leaf->entries[slot % GM_LEAF_ENTRIES] : NULL;
	}
	return NULL;
}

/* Each frame of a device is in one place. */
static uint8_t seen[SIM_MAX_DEVS][4096];

static struct sim_dev *dev_of_node(int nid)
{
	unsigned int i;

	for (i = 0; i < SIM_MAX_DEVS; i++)
		if (sim.devs[i] && sim.devs[i]->dev &&
		    sim.devs[i]->dev->node->nid == nid)
			return sim.devs[i];
	return NULL;
}

static void see(struct sim_dev *dev, const struct gm_page *p)
{
	uint64_t f = (p->addr - dev->base) >> GM_PAGE_SHIFT;

	SIM_CHECK(f < dev->nr_frames, "a page of no frame");
	SIM_CHECK(!seen[dev->index][f]++,
		  "frame %lu of device %u is in two "
		  "places",
		  (unsigned long)f, dev->index);
}

static uint64_t check_list(struct sim_dev *dev, const struct gm_list *head,
			   enum gm_page_list which)
{
	const struct gm_list *l;
	uint64_t n = 0;

	for (l = head->next; l != head; l = l->next, n++) {
		const struct gm_page *p = (const struct gm_page *)l;

		SIM_CHECK(l->next->prev == l, "a list is broken");
		SIM_CHECK(p->list == which, "a page on list %d says %d", which,
			  p->list);
		if (!dev)
			continue;
		see(dev, p);
		if (which == GM_PAGE_FREE) {
			uint64_t f = (p->addr - dev->base) >> GM_PAGE_SHIFT;

			SIM_CHECK(!p->entry, "a free page has an entry");
			memset(dev->frames[f], 0xf3, GM_PAGE_SIZE);
		}
	}
	return n;
}

static void check_node(struct gm_node *node)
{
	struct sim_dev *dev = dev_of_node(node->nid);
	uint64_t free, active, stuck, wired = 0;
	const struct gm_list *l;

	SIM_CHECK(!node->lock.owner, "a node is locked");
	free = check_list(dev, &node->free, GM_PAGE_FREE);
	active = check_list(dev, &node->active, GM_PAGE_ACTIVE);
	stuck = check_list(dev, &node->stuck, GM_PAGE_STUCK);
	for (l = node->active.next; l != &node->active; l = l->next)
		wired += !!(((const struct gm_page *)l)->flags & GM_PAGE_WIRED);
	SIM_CHECK(free == node->nr_free, "node %d: %lu free, says %lu",
		  node->nid, (unsigned long)free, (unsigned long)node->nr_free);
	SIM_CHECK(active == node->nr_active, "node %d: %lu active, says %lu",
		  node->nid, (unsigned long)active,
		  (unsigned long)node->nr_active);
	SIM_CHECK(wired == node->nr_wired, "node %d: %lu wired, says %lu",
		  node->nid, (unsigned long)wired,
		  (unsigned long)node->nr_wired);
	SIM_CHECK(!node->nr_busy, "node %d: %lu pages still chosen", node->nid,
		  (unsigned long)node->nr_busy);
	if (node->dev)
		SIM_CHECK(
			free + active + stuck == node->nr_total,
			"node %d: %lu + %lu + %lu of %lu pages: some are lost",
			node->nid, (unsigned long)free, (unsigned long)active,
			(unsigned long)stuck, (unsigned long)node->nr_total);
	else
		SIM_CHECK(active <= node->max_active,
			  "node %d: %lu replicas, %lu allowed", node->nid,
			  (unsigned long)active,
			  (unsigned long)node->max_active);
}

struct pagev {
	struct model *m;
	uint64_t va;
	uint64_t slot;
	struct sim_slot *s;
	const struct gm_region *region;
	struct gm_entry *e;
	unsigned int state;
};

static void page_dump(const struct pagev *v)
{
	const struct gm_page *p;

	fprintf(stderr,
		"page %lu of as %u: state %u flags %x prot %x holder %u",
		(unsigned long)v->slot, v->m->as->index, v->state,
		v->e ? v->e->flags : 0, v->e ? v->e->prot : 0,
		v->e ? v->e->holder : 0);
	fprintf(stderr, "; cpu present %x mapped %x; copies:", v->s->present,
		v->s->mapped);
	for (p = v->e ? v->e->copies : NULL; p; p = p->next)
		fprintf(stderr, " node %d ctx %u prot %u", p->nid, p->ctx,
			p->prot);
	fprintf(stderr, "\n");
}

#define PAGE_CHECK(v, cond, ...)                    \
	do {                                        \
		if (!(cond)) {                      \
			page_dump(v);               \
			sim_violation(__VA_ARGS__); \
		}                                   \
	} while (0)

static const uint8_t *copy_bytes(const struct gm_page *p)
{
	struct sim_dev *dev = dev_of_node(p->nid);

	if (!dev)
		return sim_place(p)->data;
	return dev->frames[(p->addr - dev->base) >> GM_PAGE_SHIFT];
}

static void check_copy_host(const struct pagev *v, const struct gm_page *p)
{
	const struct sim_place *place = sim_place(p);

	PAGE_CHECK(v, place->used && !p->vacant, "a copy at rest is no memory");
	PAGE_CHECK(v, place->as == v->m->as, "another process's memory");
	PAGE_CHECK(v, !p->prot, "a copy at rest is mapped");
}

static void check_copy_dev(const struct pagev *v, const struct gm_page *p,
			   struct sim_dev *dev)
{
	const struct gm_ctx *gctx = v->m->as->as.ctxs[p->ctx];
	const struct sim_ctx *ctx = dev->ctxs[v->m->as->index];
	const struct sim_pte *pte;

	PAGE_CHECK(v, p->list == GM_PAGE_ACTIVE, "a copy is not active");
	PAGE_CHECK(v, gctx && gctx->dev == dev->dev,
		   "a copy belongs to a context that is not there");
	PAGE_CHECK(v, ctx, "a copy on a device that is not attached");
	if (dev->dead)
		return;
	pte = &ctx->pt[v->slot];
	if (p->prot) {
		PAGE_CHECK(v, p->va == v->va, "a copy has another address");
		PAGE_CHECK(v,
			   pte->frame - 1 ==
				   (p->addr - dev->base) >> GM_PAGE_SHIFT,
			   "a page is not mapped as its copy says");
		PAGE_CHECK(v, pte->prot == p->prot,
			   "mapped with rights %u, "
			   "not %u",
			   pte->prot, p->prot);
	} else {
		PAGE_CHECK(v, !pte->frame, "mapped, though its copy says not");
	}
	PAGE_CHECK(v, p->prot != 3 || v->state == GM_STATE_MODIFIED,
		   "writable, but not modified");
}

static void check_bytes(struct pagev *v, const uint8_t *bytes)
{
	struct model *m = v->m;
	unsigned int i;

	for (i = 0; i < GM_PAGE_SIZE; i++) {
		uint64_t off = v->slot * GM_PAGE_SIZE + i;
		unsigned int piece = i / SIM_PIECE;
		const uint8_t *at = bytes;
		uint8_t got;

		if (!m->mapped[v->slot * SIM_PIECES + piece])
			continue;
		if (v->s->present & (1u << piece))
			at = v->s->data;
		got = at ? at[i] : 0;
		PAGE_CHECK(v, !(m->flags[off] & MODEL_CLAIMED),
			   "a claim outlives its operation");
		PAGE_CHECK(v,
			   got == m->val[off] ||
				   ((m->flags[off] & MODEL_EITHER) &&
				    got == m->alt[off]),
			   "byte %u is %02x, not %02x: data lost", i, got,
			   m->val[off]);
		m->val[off] = got;
		m->flags[off] = 0;
	}
}

static bool on_lost(const struct gm_entry *e)
{
	const struct gm_page *p;

	for (p = e->copies; p; p = p->next)
		if (dev_of_node(p->nid) && dev_of_node(p->nid)->lost)
			return true;
	return false;
}

static unsigned int check_copies(struct pagev *v)
{
	const struct gm_page *p;
	unsigned int n = 0, host = 0;

	for (p = v->e ? v->e->copies : NULL; p; p = p->next, n++) {
		struct sim_dev *dev = dev_of_node(p->nid);

		PAGE_CHECK(v, n < 64, "a copies list without end");
		PAGE_CHECK(v, p->entry == v->e && p->dir == v->region->dir,
			   "a copy of another page");
		if (dev)
			check_copy_dev(v, p, dev);
		else
			check_copy_host(v, p);
		host += !dev;
		PAGE_CHECK(v,
			   on_lost(v->e) || !memcmp(copy_bytes(p),
						    copy_bytes(v->e->copies),
						    GM_PAGE_SIZE),
			   "the copies differ");
	}
	PAGE_CHECK(v, host <= 1, "two copies at rest");
	return n;
}

static void check_rights(const struct pagev *v)
{
	unsigned int i;

	for (i = 0; i < SIM_PIECES; i++) {
		unsigned int prot = 0, bit = 1u << i;
		uint64_t piece = v->slot * SIM_PIECES + i;

		PAGE_CHECK(v, !!(v->s->mapped & bit) == v->m->mapped[piece],
			   "piece %u: mapped or not", i);
		if (v->s->readable & bit)
			prot |= GM_PROT_READ;
		if (v->s->writable & bit)
			prot |= GM_PROT_WRITE;
		PAGE_CHECK(v, prot == v->m->prot[piece],
			   "piece %u: rights %u, not %u", i, prot,
			   v->m->prot[piece]);
	}
}

static void check_page(struct pagev *v)
{
	unsigned int n;

	v->state = v->e ? v->e->state : v->region->dir->fresh;
	PAGE_CHECK(v, !v->e || !v->e->lock.owner, "an entry is locked");
	check_rights(v);
	n = check_copies(v);
	switch (v->state) {
	case GM_STATE_UNTRACKED:
		PAGE_CHECK(v, !n, "untracked, with copies");
		break;
	case GM_STATE_EMPTY:
		PAGE_CHECK(v, !n && !v->s->present, "empty, and something is");
		break;
	case GM_STATE_MODIFIED:
		PAGE_CHECK(v, n <= 1, "modified, with %u copies", n);
		PAGE_CHECK(v, !n || !v->s->present, "modified in two places");
		break;
	case GM_STATE_SHARED:
		PAGE_CHECK(v, n >= 2, "shared, with %u copies", n);
		PAGE_CHECK(v, !v->s->present, "shared and mapped by the CPU");
		break;
	case GM_STATE_FRAGMENTED:
		PAGE_CHECK(v, n <= 1, "fragmented, with copies");
		break;
	case GM_STATE_POISON:
		PAGE_CHECK(v, !n, "poison, with copies");
		PAGE_CHECK(v, v->m->lost[v->slot],
			   "poison, though its data cannot have been lost");
		return;
	}
	/* The manager may not have heard of it yet. */
	if (n && on_lost(v->e))
		return;
	PAGE_CHECK(v, !v->s->poison, "the page table says poison, we do not");
	v->m->lost[v->slot] = 0;
	check_bytes(v, n ? copy_bytes(v->e->copies) : NULL);
}

/* What the XPU has mapped must be a copy of what is there. */
static void check_page_table(struct sim_ctx *ctx)
{
	uint64_t slot;

	for (slot = 0; slot < ctx->as->nr_slots; slot++) {
		uint64_t va = SIM_BASE + slot * GM_PAGE_SIZE;
		uint64_t addr = ctx->dev->base +
				(ctx->pt[slot].frame - 1) * GM_PAGE_SIZE;
		const struct gm_entry *e;
		const struct gm_page *p;

		if (!ctx->pt[slot].frame)
			continue;
		e = torture_entry(&ctx->as->as, va, NULL);
		for (p = e ? e->copies : NULL; p; p = p->next)
			if (p->nid == ctx->dev->dev->node->nid &&
			    p->addr == addr && p->prot)
				break;
		SIM_CHECK(p || sim.injected,
			  "device %u has page %lu of as %u mapped to frame %u, "
			  "of which the manager knows nothing",
			  ctx->dev->index, (unsigned long)slot, ctx->as->index,
			  ctx->pt[slot].frame - 1);
	}
}

static void check_as(struct model *m)
{
	struct sim_as *as = m->as;
	const struct gm_region_table *table = as->as.table;
	uint64_t end = SIM_BASE, slot;
	uint32_t i;

	SIM_CHECK(!as->as.lock.owner, "an address space is locked");
	SIM_CHECK(as->as.dying.next == &as->as.dying,
		  "a region is not torn down");
	for (i = 0; table && i < table->nr; i++) {
		SIM_CHECK(table->regions[i]->start >= end &&
				  table->regions[i]->end >
					  table->regions[i]->start,
			  "the region table is not in order");
		SIM_CHECK(!table->regions[i]->dead, "a dead region is listed");
		end = table->regions[i]->end;
	}
	for (slot = 0; slot < m->nr_slots - sim.cfg.nr_plain; slot++) {
		struct pagev v = { .m = m, .slot = slot };

		v.va = SIM_BASE + slot * GM_PAGE_SIZE;
		v.s = &as->slots[slot];
		v.e = torture_entry(&as->as, v.va, &v.region);
		if (v.region)
			check_page(&v);
		else
			PAGE_CHECK(&v,
				   !v.s->mapped && !m->mapped[slot * 4] &&
					   !m->mapped[slot * 4 + 1] &&
					   !m->mapped[slot * 4 + 2] &&
					   !m->mapped[slot * 4 + 3],
				   "mapped memory without a region");
	}
	for (; slot < m->nr_slots; slot++) {
		struct pagev v = { .m = m, .slot = slot };

		v.s = &as->slots[slot];
		check_bytes(&v, NULL);
	}
}

void torture_check(void)
{
	unsigned int i, a;

	memset(seen, 0, sizeof(seen));
	SIM_CHECK(!gm_machine.lock.owner, "the machine is locked");
	for (i = 0; i < GM_MAX_NODES; i++)
		if (gm_machine.nodes[i])
			check_node(gm_machine.nodes[i]);
	for (a = 0; a < t.cfg.nr_as; a++)
		check_as(t.m[a]);
	for (i = 0; i < SIM_MAX_DEVS; i++)
		for (a = 0;
		     sim.devs[i] && !sim.devs[i]->dead && a < t.cfg.nr_as; a++)
			if (sim.devs[i]->ctxs[a])
				check_page_table(sim.devs[i]->ctxs[a]);
	totals.checks++;
}
