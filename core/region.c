/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * region.c - which addresses are windows on which directory
 *
 * The table is a sorted array that is replaced whole: lookups take no lock,
 * and cost the same however large the regions are. A region never changes;
 * unmapping and moving make new windows on the same directory and mark the old
 * ones dead, so that entries, and pages that point to them, stay where they
 * are. What has left the table stays on as->dying until its copies are freed,
 * and its addresses are not given out before.
 */
#include "core/internal.h"

static size_t table_size(uint32_t nr)
{
	return sizeof(struct gm_region_table) + nr * sizeof(struct gm_region *);
}

struct gm_region *gm_region_create(uint64_t start, uint64_t end,
				   struct gm_dir *dir, uint64_t first)
{
	struct gm_region *r = gm_host_zalloc(sizeof(*r));

	if (!r)
		return NULL;
	r->start = start;
	r->end = end;
	r->dir = dir;
	r->first = first;
	r->refs = 1;
	gm_list_init(&r->dying);
	gm_dir_get(dir);
	return r;
}

void gm_region_put(struct gm_region *r)
{
	if (gm_add(&r->refs, -1) != 1)
		return;
	gm_dir_put(r->dir);
	gm_host_zfree(r, sizeof(*r));
}

uint64_t gm_region_slot(const struct gm_region *r, uint64_t va)
{
	return r->first + ((va - r->start) >> GM_PAGE_SHIFT);
}

int gm_region_track(struct gm_region *r)
{
	int err = gm_host_range_track(r->dir->as, r->start, r->end - r->start);

	if (!err || err == -ENOENT)
		return 0;
	return gm_host_error(err, "the host cannot watch 0x%llx-0x%llx (%d)",
			     (unsigned long long)r->start,
			     (unsigned long long)r->end, err);
}

/* Index of the first region that ends above @va. */
static uint32_t table_find(const struct gm_region_table *t, uint64_t va)
{
	uint32_t low = 0, high = t ? t->nr : 0;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (t->regions[mid]->end <= va)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct gm_region *gm_region_next(struct gm_as *as, uint64_t va, uint64_t end)
{
	struct gm_region_table *t;
	struct gm_region *r = NULL;
	uint32_t i;

	gm_rcu_read_lock();
	t = gm_load(&as->table);
	i = table_find(t, va);
	if (t && i < t->nr && t->regions[i]->start < end) {
		r = t->regions[i];
		gm_add(&r->refs, 1);
	}
	gm_rcu_read_unlock();
	return r;
}

struct gm_region *gm_region_lookup(struct gm_as *as, uint64_t va)
{
	return gm_region_next(as, va, va + 1);
}

int gm_as_overlaps(struct gm_as *as, uint64_t va, uint64_t len)
{
	struct gm_region *r = gm_region_next(as, va, va + len);

	if (!r)
		return 0;
	gm_region_put(r);
	return 1;
}

int gm_region_dying_locked(struct gm_as *as, uint64_t va, uint64_t len)
{
	struct gm_list *pos, *tmp;

	gm_list_for_each_safe (pos, tmp, &as->dying) {
		struct gm_region *r =
			gm_container(pos, struct gm_region, dying);

		if (r->start < va + len && va < r->end)
			return 1;
	}
	return 0;
}

void gm_as_lock_quiet(struct gm_as *as)
{
	for (;;) {
		uint32_t seen = gm_waitq_read(&as->changed);

		gm_lock(&as->lock, GM_RANK_AS);
		if (gm_list_empty(&as->dying))
			return;
		gm_unlock(&as->lock, GM_RANK_AS);
		gm_waitq_wait(&as->changed, seen);
	}
}

int gm_region_overlaps_locked(struct gm_as *as, uint64_t va, uint64_t len)
{
	struct gm_region_table *t = as->table;
	uint32_t i = table_find(t, va);

	return t && i < t->nr && t->regions[i]->start < va + len;
}

int gm_as_taken(struct gm_as *as, uint64_t va, uint64_t len)
{
	return gm_region_overlaps_locked(as, va, len) ||
	       gm_region_dying_locked(as, va, len);
}

/**
 * struct gm_cut - a table in the making
 * @start: what leaves begins here
 * @end: and ends here
 * @new: the new table
 * @change: collects the windows on what leaves
 */
struct gm_cut {
	uint64_t start;
	uint64_t end;
	struct gm_region_table *new;
	struct gm_table_change *change;
};

static int cut_window(const struct gm_region *r, uint64_t start, uint64_t end,
		      struct gm_region **out)
{
	*out = gm_region_create(start, end, r->dir, gm_region_slot(r, start));
	return *out ? 0 : -ENOMEM;
}

/* What stays of @r goes into the new table, what leaves to the change. */
static int cut_one(struct gm_cut *c, struct gm_region *r)
{
	uint64_t start = GM_MAX(r->start, c->start);
	uint64_t end = GM_MIN(r->end, c->end);
	struct gm_region *w;

	if (start >= end) {
		gm_add(&r->refs, 1);
		c->new->regions[c->new->nr++] = r;
		return 0;
	}
	if (r->start < start) {
		if (cut_window(r, r->start, start, &w))
			return -ENOMEM;
		c->new->regions[c->new->nr++] = w;
	}
	if (cut_window(r, start, end, &w))
		return -ENOMEM;
	w->dead = 1;
	w->next_gone = c->change->gone;
	c->change->gone = w;
	if (end < r->end) {
		if (cut_window(r, end, r->end, &w))
			return -ENOMEM;
		c->new->regions[c->new->nr++] = w;
	}
	return 0;
}

static void gone_free(struct gm_table_change *change)
{
	while (change->gone) {
		struct gm_region *w = change->gone;

		change->gone = w->next_gone;
		gm_list_del(&w->dying);
		gm_region_put(w);
	}
}

static struct gm_region_table *table_alloc(uint32_t room)
{
	struct gm_region_table *t = gm_host_zalloc(table_size(room));

	if (t)
		t->room = room;
	return t;
}

static void table_free(struct gm_region_table *t)
{
	uint32_t i;

	if (!t)
		return;
	for (i = 0; i < t->nr; i++)
		gm_region_put(t->regions[i]);
	gm_host_zfree(t, table_size(t->room));
}

static void table_insert(struct gm_region_table *t, struct gm_region *r)
{
	uint32_t i = t->nr++;

	for (; i > 0 && t->regions[i - 1]->start > r->start; i--)
		t->regions[i] = t->regions[i - 1];
	gm_add(&r->refs, 1);
	t->regions[i] = r;
}

/* The new table is complete: let it take the place of the old one. */
static void table_publish(struct gm_as *as, const struct gm_cut *c)
{
	struct gm_region_table *old = as->table;
	struct gm_region *w;
	uint32_t i;

	for (i = 0; old && i < old->nr; i++) {
		struct gm_region *r = old->regions[i];

		if (r->start < c->end && c->start < r->end)
			gm_store(&r->dead, 1);
	}
	for (w = c->change->gone; w; w = w->next_gone)
		gm_list_add_tail(&as->dying, &w->dying);
	c->change->old = old;
	gm_store(&as->table, c->new);
}

int gm_table_change_locked(struct gm_as *as, uint64_t start, uint64_t end,
			   struct gm_region *const *add, unsigned int nr_add,
			   struct gm_table_change *change)
{
	struct gm_region_table *old = as->table;
	uint32_t nr_old = old ? old->nr : 0, i;
	/* Of all regions, only one can be cut in two. */
	struct gm_cut c = { start, end, table_alloc(nr_old + nr_add + 1),
			    change };
	int err = c.new ? 0 : -ENOMEM;

	gm_assert_held(&as->lock, GM_RANK_AS);
	change->old = NULL;
	change->gone = NULL;
	for (i = 0; !err && i < nr_old; i++)
		err = cut_one(&c, old->regions[i]);
	if (err) {
		gone_free(change);
		table_free(c.new);
		return err;
	}
	for (i = 0; i < nr_add; i++)
		table_insert(c.new, add[i]);
	table_publish(as, &c);
	return 0;
}

void gm_table_settle(struct gm_as *as, struct gm_table_change *change)
{
	gm_rcu_synchronize();
	table_free(change->old);
	change->old = NULL;
}

void gm_table_done(struct gm_as *as, struct gm_table_change *change)
{
	gm_lock(&as->lock, GM_RANK_AS);
	gone_free(change);
	gm_unlock(&as->lock, GM_RANK_AS);
	gm_waitq_wake(&as->changed);
}
