/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * move.c - pages go to the nodes that a program names for each
 *
 * What GM_WILLNEED does for one node and a range, for many nodes and a list:
 * the same batches go through the same engine. What each page came to is told,
 * as move_pages(2) tells it.
 */
#include "core/internal.h"

void gm_move_failed(struct gm_node *node, int err)
{
	switch (err) {
	case -ENOENT:
		gm_count(node, move_absent, 1);
		break;
	case -EBUSY:
		gm_count(node, move_busy, 1);
		break;
	case -EACCES:
		gm_count(node, move_denied, 1);
		break;
	case -ENOMEM:
		gm_count(node, move_nomem, 1);
		break;
	default:
		gm_count(node, move_failed, 1);
	}
}

int gm_machine_has_node(int nid)
{
	if (nid >= 0 && nid < GM_MAX_NODES && gm_node_find(nid))
		return 0;
	return gm_host_error(-ENODEV, "there is no node %d", nid);
}

int gm_cpu_node(struct gm_as *as, uint64_t va)
{
	int nid = gm_machine.nr_host_nodes > 1 ? gm_host_cpu_node(as, va) : 0;

	return GM_MAX(nid, 0);
}

static int node_locked(struct gm_as *as, struct gm_entry *e, uint64_t va)
{
	struct gm_page *page;
	int nid = -ENOENT;

	if (e->state == GM_STATE_POISON)
		return -EHWPOISON;
	if (gm_entry_on_cpu(e) ||
	    (e->state == GM_STATE_FRAGMENTED && !e->copies))
		return gm_host_cpu_node(as, va);
	/* An XPU's copy rather than the replica that the host keeps of it. */
	for (page = e->copies; page; page = page->next)
		if (nid < 0 || !gm_page_is_host(page))
			nid = page->nid;
	return nid;
}

/* -EAGAIN: the region has been replaced by another. */
static int node_once(struct gm_as *as, uint64_t va)
{
	struct gm_region *r = gm_region_lookup(as, va);
	struct gm_entry *e;
	int nid;

	if (!r)
		return gm_host_error(-EFAULT, "0x%llx is not unified memory",
				     (unsigned long long)va);
	e = gm_dir_entry(r->dir, gm_region_slot(r, va));
	if (!e) {
		gm_region_put(r);
		return gm_host_error(-ENOMEM, "no memory for the directory");
	}
	gm_lock(&e->lock, GM_RANK_ENTRY);
	nid = gm_load(&r->dead) ? -EAGAIN : node_locked(as, e, va);
	gm_unlock(&e->lock, GM_RANK_ENTRY);
	gm_region_put(r);
	if (nid < 0)
		gm_host_error(nid, "there is no data at 0x%llx",
			      (unsigned long long)va);
	return nid;
}

int gm_as_node_of(struct gm_as *as, uint64_t va)
{
	int nid;

	do {
		nid = node_once(as, va & ~GM_PAGE_MASK);
	} while (nid == -EAGAIN);
	return nid;
}

/**
 * struct gm_moving - pages of one list on their way to one node
 * @vas: the pages, ascending, each once
 * @status: of each
 * @n: how many
 */
struct gm_moving {
	uint64_t vas[GM_BATCH];
	int status[GM_BATCH];
	unsigned int n;
};

/* False if there is no room for one more. */
static int moving_add(struct gm_moving *m, uint64_t va, unsigned int room)
{
	unsigned int at = m->n, i;

	while (at > 0 && m->vas[at - 1] > va)
		at--;
	if (at > 0 && m->vas[at - 1] == va)
		return 1;
	if (m->n == room)
		return 0;
	for (i = m->n++; i > at; i--)
		m->vas[i] = m->vas[i - 1];
	m->vas[at] = va;
	return 1;
}

static int moving_status(const struct gm_moving *m, uint64_t va)
{
	unsigned int i = 0;

	while (m->vas[i] != va)
		i++;
	return m->status[i];
}

static void moving_go(struct gm_as *as, struct gm_moving *m, int node,
		      unsigned int flags)
{
	enum gm_access access[GM_BATCH];
	struct gm_target t;
	unsigned int i;
	int err = gm_target_of(as, node, &t);

	t.move = 1;
	t.width = flags & GM_MOVE_PARALLEL ? GM_CUTS : 1;
	for (i = 0; i < m->n; i++) {
		access[i] = GM_READ;
		m->status[i] = err == -EINVAL ? -ENODEV : err;
	}
	if (!err)
		gm_target_serve(&t, m->vas, m->n, access, m->status);
	if (t.ctx)
		gm_ctx_put(t.ctx);
	for (i = 0; i < m->n; i++) {
		if (!m->status[i])
			m->status[i] =
				t.ctx ? node : gm_as_node_of(as, m->vas[i]);
		if (m->status[i] < 0)
			gm_move_failed(gm_machine.nodes[0], m->status[i]);
	}
}

/* How many of the list's next pages go together: to one node, and no more than
 * a batch. Their statuses are set. */
static uint64_t move_some(struct gm_as *as, uint64_t n, const uint64_t *vas,
			  const int *nodes, int *status, unsigned int flags)
{
	unsigned int room = flags & GM_MOVE_CONCURRENT ? GM_BATCH : 1;
	struct gm_moving m = { .n = 0 };
	uint64_t i, taken = 0;

	while (taken < n && nodes[taken] == nodes[0] &&
	       moving_add(&m, vas[taken] & ~GM_PAGE_MASK, room))
		taken++;
	moving_go(as, &m, nodes[0], flags);
	for (i = 0; i < taken; i++)
		status[i] = moving_status(&m, vas[i] & ~GM_PAGE_MASK);
	return taken;
}

uint64_t gm_as_move(struct gm_as *as, uint64_t n, const uint64_t *vas,
		    const int *nodes, int *status, unsigned int flags)
{
	uint64_t i, failed = 0;

	if (nodes) {
		for (i = 0; i < n;)
			i += move_some(as, n - i, vas + i, nodes + i,
				       status + i, flags);
		gm_machine_settle();
	} else {
		for (i = 0; i < n; i++)
			status[i] = gm_as_node_of(as, vas[i]);
	}
	for (i = 0; i < n; i++)
		failed += status[i] < 0;
	return failed;
}
