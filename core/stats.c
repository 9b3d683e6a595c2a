/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * stats.c - what is where, what has happened, and the trace
 */
#include "core/internal.h"

/* --- the machine -------------------------------------------------------- */

int gm_machine_init(int nr_host_nodes, uint64_t max_replicas)
{
	int nid;

	GM_BUG_ON(nr_host_nodes < 1 || nr_host_nodes > GM_MAX_NODES / 2);
	__builtin_memset(&gm_machine, 0, sizeof(gm_machine));
	gm_machine.nr_host_nodes = nr_host_nodes;
	for (nid = 0; nid < nr_host_nodes; nid++) {
		gm_machine.nodes[nid] = gm_node_create(NULL, nid);
		if (!gm_machine.nodes[nid]) {
			gm_machine_exit();
			return gm_host_error(-ENOMEM, "no memory for a node");
		}
		gm_machine.nodes[nid]->max_active = max_replicas;
	}
	return 0;
}

void gm_machine_exit(void)
{
	int nid;

	gm_trace_start(0);
	for (nid = 0; nid < GM_MAX_NODES; nid++) {
		GM_BUG_ON(nid >= gm_machine.nr_host_nodes &&
			  gm_machine.nodes[nid]);
		gm_host_zfree(gm_machine.nodes[nid], sizeof(struct gm_node));
		gm_machine.nodes[nid] = NULL;
	}
}

/* How many pages have their data elsewhere too, by what is known unlocked. */
static uint64_t nr_shared_locked(struct gm_node *node)
{
	struct gm_list *at;
	uint64_t n = 0;

	for (at = node->active.next; at != &node->active; at = at->next) {
		struct gm_page *page = gm_container(at, struct gm_page, link);

		n += page->entry &&
		     gm_load(&page->entry->state) == GM_STATE_SHARED;
	}
	return n;
}

static void node_info(struct gm_node *node, struct gm_node_info *out)
{
	unsigned int i;

	__builtin_memset(out, 0, sizeof(*out));
	out->id = node->nid;
	out->is_xpu = node->dev != NULL;
	for (i = 0; i < sizeof(out->name) - 1; i++)
		out->name[i] = node->dev ? node->dev->name[i]
					 : (i < 4 ? "host"[i] : 0);
	gm_lock(&node->lock, GM_RANK_NODE);
	out->total = node->nr_total * GM_PAGE_SIZE;
	out->free = node->nr_free * GM_PAGE_SIZE;
	out->resident = node->nr_active * GM_PAGE_SIZE;
	out->pinned = node->nr_wired * GM_PAGE_SIZE;
	out->replicas = (node->dev ? nr_shared_locked(node) : node->nr_active) *
			GM_PAGE_SIZE;
	gm_unlock(&node->lock, GM_RANK_NODE);
	if (node->dev)
		out->lost = !gm_dev_alive(node->dev);
}

int gm_machine_nodes(struct gm_node_info *out, size_t n)
{
	struct gm_node_info info[GM_MAX_NODES];
	int nid, count = 0, i;

	gm_lock(&gm_machine.lock, GM_RANK_MACHINE);
	for (nid = 0; nid < GM_MAX_NODES; nid++) {
		if (gm_machine.nodes[nid])
			node_info(gm_machine.nodes[nid], &info[count++]);
	}
	gm_unlock(&gm_machine.lock, GM_RANK_MACHINE);
	/* The answer may be in unified memory: it is touched without a lock. */
	for (i = 0; i < count && (size_t)i < n; i++)
		out[i] = info[i];
	return count;
}

/* All counters are uint64_t, so they can be added up as an array. */
static void stats_add(struct gm_stats *sum, struct gm_stats *part)
{
	uint64_t *to = (uint64_t *)sum, *from = (uint64_t *)part;
	unsigned int i;

	for (i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += gm_load(&from[i]);
}

int gm_machine_stats(int nid, struct gm_stats *out)
{
	int i, found = nid == GM_NODE_NONE;

	__builtin_memset(out, 0, sizeof(*out));
	gm_lock(&gm_machine.lock, GM_RANK_MACHINE);
	for (i = 0; i < GM_MAX_NODES; i++) {
		if (!gm_machine.nodes[i] || (nid != GM_NODE_NONE && nid != i))
			continue;
		stats_add(out, &gm_machine.nodes[i]->stats);
		found = 1;
	}
	gm_unlock(&gm_machine.lock, GM_RANK_MACHINE);
	return found ? 0 : gm_host_error(-EINVAL, "there is no node %d", nid);
}

/* --- pages -------------------------------------------------------------- */

/* From this on a page counts as fought for. */
#define FALSE_SHARING_STEPS 3

static void where_locked(struct gm_as *as, struct gm_entry *e,
			 struct gm_where *out)
{
	struct gm_page *page;

	out->state = e->state;
	out->pinned = !!(e->flags & GM_ENTRY_PINNED);
	out->faults = e->faults;
	out->false_sharing = e->pingpong >= FALSE_SHARING_STEPS;
	if (gm_entry_on_cpu(e) || e->state == GM_STATE_FRAGMENTED) {
		out->node = gm_cpu_node(as, out->addr);
		out->copies = (uint64_t)1 << out->node;
		out->mapped = out->copies;
	}
	for (page = e->copies; page; page = page->next) {
		out->node = page->nid;
		out->copies |= (uint64_t)1 << page->nid;
		if (page->prot)
			out->mapped |= (uint64_t)1 << page->nid;
	}
}

/* What is not in the directory yet. */
static void where_fresh(struct gm_dir *dir, struct gm_where *out)
{
	out->state = dir->fresh;
	if (dir->fresh == GM_STATE_UNTRACKED) {
		out->node = 0;
		out->copies = 1;
		out->mapped = 1;
	}
}

static void region_where(struct gm_region *r, uint64_t va, struct gm_where *out)
{
	/* Of several host nodes the page table knows which, with a lock. */
	struct gm_entry *e =
		gm_machine.nr_host_nodes > 1
			? gm_dir_entry(r->dir, gm_region_slot(r, va))
			: gm_dir_peek(r->dir, gm_region_slot(r, va));
	struct gm_where where = { .addr = va & ~GM_PAGE_MASK,
				  .node = GM_NODE_NONE };

	if (e) {
		gm_lock(&e->lock, GM_RANK_ENTRY);
		where_locked(r->dir->as, e, &where);
		gm_unlock(&e->lock, GM_RANK_ENTRY);
	} else {
		where_fresh(r->dir, &where);
	}
	/* It may be in this very page: it is touched without the lock. */
	*out = where;
}

int gm_as_where(struct gm_as *as, uint64_t va, struct gm_where *out)
{
	struct gm_region *r = gm_region_lookup(as, va);

	if (!r)
		return gm_host_error(-EFAULT, "0x%llx is not unified memory",
				     (unsigned long long)va);
	region_where(r, va, out);
	gm_region_put(r);
	return 0;
}

int gm_as_region_stats(struct gm_as *as, uint64_t va,
		       struct gm_region_stats *out)
{
	struct gm_region *r = gm_region_lookup(as, va);
	uint32_t most = 0;
	struct gm_where w;
	int nid;

	if (!r)
		return gm_host_error(-EFAULT, "0x%llx is not unified memory",
				     (unsigned long long)va);
	__builtin_memset(out, 0, sizeof(*out));
	out->start = r->start;
	out->end = r->end;
	out->prot = gm_load(&r->dir->prot);
	for (va = r->start; va < r->end; va += GM_PAGE_SIZE) {
		region_where(r, va, &w);
		out->states[w.state]++;
		out->faults += w.faults;
		for (nid = 0; nid < GM_MAX_NODES; nid++)
			out->on_node[nid] += w.copies >> nid & 1;
		if (!w.false_sharing)
			continue;
		out->false_sharing++;
		if (w.faults >= most)
			out->worst = va;
		most = GM_MAX(most, w.faults);
	}
	gm_region_put(r);
	return 0;
}

/* --- the trace ----------------------------------------------------------- */

static struct gm_tracing {
	struct gm_lock lock;
	struct gm_event *ring; /* changed under the lock */
	size_t room;
	size_t next; /* where the next event goes */
	size_t nr; /* that can be read */
	uint64_t lost;
} tracing;

int gm_trace_start(size_t capacity)
{
	struct gm_event *ring = NULL, *old;
	size_t old_room;

	if (capacity > SIZE_MAX / sizeof(*ring))
		return gm_host_error(-ENOMEM,
				     "no memory for a trace of %zu events",
				     capacity);
	if (capacity) {
		ring = gm_host_zalloc(capacity * sizeof(*ring));
		if (!ring)
			return gm_host_error(
				-ENOMEM, "no memory for a trace of %zu events",
				capacity);
	}
	gm_lock(&tracing.lock, GM_RANK_TRACE);
	old = tracing.ring;
	old_room = tracing.room;
	gm_store(&tracing.ring, ring);
	tracing.room = capacity;
	tracing.next = 0;
	tracing.nr = 0;
	tracing.lost = 0;
	gm_unlock(&tracing.lock, GM_RANK_TRACE);
	gm_host_zfree(old, old_room * sizeof(*old));
	return 0;
}

void gm_trace(enum gm_event_kind kind, enum gm_access access, uint64_t va,
	      uint32_t bytes, int from, int to, uint64_t since, int err)
{
	struct gm_event ev;

	if (!gm_load(&tracing.ring))
		return;
	ev = (struct gm_event){ .time = gm_host_now(),
				.addr = va,
				.bytes = bytes,
				.kind = kind,
				.access = access,
				.from = from,
				.to = to,
				.error = err };
	ev.duration = ev.time - since;
	gm_lock(&tracing.lock, GM_RANK_TRACE);
	if (tracing.ring) {
		tracing.ring[tracing.next] = ev;
		tracing.next = (tracing.next + 1) % tracing.room;
		if (tracing.nr < tracing.room)
			tracing.nr++;
		else
			tracing.lost++;
	}
	gm_unlock(&tracing.lock, GM_RANK_TRACE);
}

/* Some of them, oldest first, and how many were lost. */
static size_t trace_take(struct gm_event *out, size_t n, uint64_t *lost)
{
	size_t i;

	gm_lock(&tracing.lock, GM_RANK_TRACE);
	n = GM_MIN(n, tracing.nr);
	for (i = 0; i < n; i++) {
		size_t at = tracing.next + tracing.room - tracing.nr + i;

		out[i] = tracing.ring[at % tracing.room];
	}
	tracing.nr -= n;
	if (lost) {
		*lost += tracing.lost;
		tracing.lost = 0;
	}
	gm_unlock(&tracing.lock, GM_RANK_TRACE);
	return n;
}

/*
 * What the program gives may be unified memory, whose faults are traced: it is
 * touched without the lock.
 */
size_t gm_trace_read(struct gm_event *out, size_t n, uint64_t *lost)
{
	struct gm_event some[32];
	uint64_t missed = 0;
	size_t done = 0, got, i;

	do {
		got = trace_take(some, GM_MIN(n - done, (size_t)32),
				 lost ? &missed : NULL);
		for (i = 0; i < got; i++)
			out[done + i] = some[i];
		done += got;
	} while (got && done < n);
	if (lost)
		*lost = missed;
	return done;
}
