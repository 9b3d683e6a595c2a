/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * reclaim.c - making room on a full node
 *
 * Sixteen victims go together (GMM paper, section 4.4): chosen and marked busy
 * under the list lock, their mappings revoked with one batch, duplicates
 * dropped, the rest copied to host pages. The CPU does not map those: it gets
 * them by a fault, if it ever wants them. Host memory is never evicted, but
 * replicas in it can be dropped.
 *
 * Between the choice and the lock of its entry a victim may be freed or moved,
 * so each is looked at again once its entry is locked. One that is freed
 * meanwhile stays out of use until its evictor lets go of it.
 */
#include "core/internal.h"

/**
 * struct gm_victim - a page that is to go
 * @page: marked busy
 * @entry: the entry it belonged to when it was chosen
 * @dir: the directory of @entry, referenced
 * @host: where its data can go: a host place with memory, or NULL
 * @locked: @entry is locked by us
 */
struct gm_victim {
	struct gm_page *page;
	struct gm_entry *entry;
	struct gm_dir *dir;
	struct gm_page *host;
	uint8_t locked;
};

/* How strict the choice is; the first that finds anything is taken. */
enum gm_choice { CHOOSE_COLD, CHOOSE_ANY, NR_CHOICES };

static int may_choose(const struct gm_page *page, enum gm_choice choice,
		      uint64_t now)
{
	if (page->flags & (GM_PAGE_BUSY | GM_PAGE_WIRED))
		return 0;
	if (choice == CHOOSE_ANY)
		return 1;
	return !(page->flags & GM_PAGE_PREFERRED) &&
	       now >= gm_entry_resident_until(page->entry);
}

static unsigned int choose(struct gm_node *node, struct gm_victim *v,
			   unsigned int want, enum gm_choice choice)
{
	struct gm_list *pos, *tmp;
	uint64_t now = gm_host_now();
	unsigned int n = 0;

	gm_lock(&node->lock, GM_RANK_NODE);
	gm_list_for_each_safe (pos, tmp, &node->active) {
		struct gm_page *page = gm_container(pos, struct gm_page, link);

		if (n == want)
			break;
		if (!may_choose(page, choice, now))
			continue;
		page->flags |= GM_PAGE_BUSY;
		node->nr_busy++;
		gm_dir_get(page->dir);
		v[n++] = (struct gm_victim){ .page = page,
					     .entry = page->entry,
					     .dir = page->dir };
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
	return n;
}

/* Entries are locked in ascending order: sort the victims by them. */
static void sort(struct gm_victim *v, unsigned int n)
{
	unsigned int i, j;

	for (i = 1; i < n; i++) {
		struct gm_victim x = v[i];

		for (j = i; j > 0 && v[j - 1].entry > x.entry; j--)
			v[j] = v[j - 1];
		v[j] = x;
	}
}

/* The first entry is worth a wait, the others are taken if they are free. */
static void lock_entries(struct gm_victim *v, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (i == 0)
			gm_lock(&v[i].entry->lock, GM_RANK_ENTRY);
		else if (!gm_trylock(&v[i].entry->lock, GM_RANK_ENTRY))
			continue;
		v[i].locked = gm_load(&v[i].page->entry) == v[i].entry;
		if (!v[i].locked)
			gm_unlock(&v[i].entry->lock, GM_RANK_ENTRY);
	}
}

/*
 * Data that is only there needs a host page. The state is just a hint here,
 * but without a page a victim will be passed over.
 */
static void get_host_pages(struct gm_victim *v, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (gm_load(&v[i].entry->state) == GM_STATE_SHARED)
			continue;
		if (gm_home_page_get(v[i].dir->as, GM_HOST_RESERVE, &v[i].host))
			v[i].host = NULL;
	}
}

int gm_evict_locked(struct gm_page *page, struct gm_page **host)
{
	struct gm_entry *e = page->entry;
	struct gm_node *node = gm_page_node(page);
	uint64_t start = gm_host_now(), va = page->va;
	int shared = e->copies->next != NULL, err = 0, to;

	GM_COVER(e->state, GM_ON_EVICT);
	if (!shared) {
		if (!*host)
			return -ENOMEM;
		err = gm_page_copy(*host, page);
		if (err)
			return err;
		gm_entry_add_locked(page->dir, e, *host, va);
		*host = NULL;
	}
	gm_entry_remove_locked(e, page);
	/* Nobody has it, so nobody is given time to use it. */
	gm_store(&e->holder, 0);
	gm_store(&e->mapped_at, 0);
	to = e->copies->nid;
	if (shared)
		gm_count(node, evicted_clean, 1);
	else
		gm_count(node, evicted_dirty, 1);
	gm_trace(GM_EV_EVICT, 0, va, shared ? 0 : GM_PAGE_SIZE, node->nid, to,
		 start, 0);
	return 0;
}

/* Its data has another place. Otherwise it keeps its mapping as well. */
static int may_go(const struct gm_victim *v)
{
	return v->locked && (v->host || v->entry->copies->next);
}

/* Nobody loses a page before he could use it. */
static void wait_residence(const struct gm_victim *v, unsigned int n)
{
	uint64_t until = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (may_go(&v[i]))
			until = GM_MAX(until,
				       gm_entry_resident_until(v[i].entry));
	if (gm_host_now() < until)
		gm_host_sleep_until(until);
}

/* Revoke the mappings, then send the data home. All are locked. */
static unsigned int evict(struct gm_victim *v, unsigned int n)
{
	struct gm_page *pages[GM_BATCH];
	int status[GM_BATCH];
	unsigned int i, nr = 0, freed = 0;

	for (i = 0; i < n; i++)
		if (may_go(&v[i]))
			pages[nr++] = v[i].page;
	gm_pages_unmap(pages, nr, status);
	for (i = 0, nr = 0; i < n; i++) {
		if (!may_go(&v[i]) || status[nr++])
			continue;
		if (gm_evict_locked(v[i].page, &v[i].host))
			continue;
		gm_page_free(v[i].page);
		freed++;
	}
	return freed;
}

static unsigned int reclaim_choice(struct gm_node *node, unsigned int want,
				   enum gm_choice choice)
{
	struct gm_victim v[GM_BATCH];
	unsigned int n, i, freed;

	n = choose(node, v, GM_MIN(want, (unsigned int)GM_BATCH), choice);
	if (!n)
		return 0;
	sort(v, n);
	get_host_pages(v, n);
	lock_entries(v, n);
	wait_residence(v, n);
	freed = evict(v, n);
	for (i = 0; i < n; i++)
		if (v[i].locked)
			gm_unlock(&v[i].entry->lock, GM_RANK_ENTRY);
	for (i = 0; i < n; i++) {
		gm_page_unbusy(v[i].page);
		if (v[i].host)
			gm_host_page_put(v[i].dir->as, v[i].host);
		gm_dir_put(v[i].dir);
	}
	return freed;
}

/*
 * Sixteen pages are little of a real XPU's memory, and most of a small one's:
 * there they would send away what has just come.
 */
#define VICTIMS_PART 8

static unsigned int share(struct gm_node *node, unsigned int want)
{
	uint64_t most;

	gm_lock(&node->lock, GM_RANK_NODE);
	most = GM_MAX(node->nr_total / VICTIMS_PART, (uint64_t)1);
	gm_unlock(&node->lock, GM_RANK_NODE);
	return GM_MIN(most, (uint64_t)want);
}

unsigned int gm_reclaim(struct gm_node *node, unsigned int want)
{
	unsigned int choice, freed = 0;

	want = share(node, want);
	gm_count(node, reclaims, 1);
	for (choice = CHOOSE_COLD; !freed && choice < NR_CHOICES; choice++)
		freed = reclaim_choice(node, want, choice);
	return freed;
}

/* Drop the replica that was made first. Returns how many were dropped. */
static unsigned int replica_drop(struct gm_node *node)
{
	struct gm_entry *e = NULL;
	struct gm_dir *dir = NULL;
	struct gm_page *page;
	unsigned int dropped = 0;

	gm_lock(&node->lock, GM_RANK_NODE);
	if (!gm_list_empty(&node->active)) {
		page = gm_container(node->active.next, struct gm_page, link);
		e = page->entry;
		dir = page->dir;
		gm_dir_get(dir);
		/* Not again at once, should it be in use. */
		gm_list_del(&page->link);
		gm_list_add_tail(&node->active, &page->link);
	}
	gm_unlock(&node->lock, GM_RANK_NODE);
	if (!e)
		return 0;
	gm_lock(&e->lock, GM_RANK_ENTRY);
	page = gm_entry_host_copy(e);
	if (e->state == GM_STATE_SHARED && page) {
		GM_COVER(e->state, GM_ON_DROP_REPLICA);
		gm_entry_remove_locked(e, page);
		gm_host_page_put(dir->as, page);
		gm_count(node, replicas_dropped, 1);
		dropped = 1;
	}
	gm_unlock(&e->lock, GM_RANK_ENTRY);
	gm_dir_put(dir);
	return dropped;
}

void gm_replicas_trim(struct gm_node *node)
{
	uint64_t over;

	gm_lock(&node->lock, GM_RANK_NODE);
	over = node->nr_active > node->max_active
		       ? node->nr_active - node->max_active
		       : 0;
	gm_unlock(&node->lock, GM_RANK_NODE);
	while (over-- && replica_drop(node))
		;
}

int gm_home_slots_get(struct gm_as *as, struct gm_page **slots, unsigned int n)
{
	int err = gm_host_slots_get(as, slots, n);

	if (err)
		gm_host_error(err, "no address space for %u pages at rest", n);
	return err;
}

int gm_home_page_get(struct gm_as *as, unsigned int flags,
		     struct gm_page **page)
{
	unsigned int tries, dropped;
	int nid, err;

	for (tries = 0; tries < GM_BATCH; tries++) {
		err = gm_host_page_get(as, GM_NODE_NONE, flags, page);
		if (!err)
			return 0;
		dropped = 0;
		for (nid = 0; nid < gm_machine.nr_host_nodes; nid++)
			dropped += replica_drop(gm_machine.nodes[nid]);
		if (!dropped)
			break;
	}
	return gm_host_error(err,
			     "host memory is full: no page for data of an XPU");
}
