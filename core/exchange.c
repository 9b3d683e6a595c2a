/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * exchange.c - pages of two nodes change places
 *
 * The natural move when both nodes are full (Nimble, ASPLOS 2019): no page is
 * allocated, none is freed. A batch of pairs is unmapped, then their contents
 * change places, then all are mapped again, each by its new processor. What
 * could not be had at once (somebody has an entry locked, the kernel holds a
 * page) is tried again alone, a bounded number of times.
 *
 * Two places at rest are held ready for an XPU that fails in the middle: then
 * both pages end there, and nothing is lost that can still be read.
 */
#include "core/internal.h"

#define PAIRS (GM_BATCH / 2)
#define TRIES 3
#define RETRY_NS 1000000

/**
 * struct gm_side - one page of a pair
 * @va: its address
 * @region: around it; referenced
 * @entry: of it
 * @slot: a vacant host place, for what the CPU has mapped; NULL when used
 * @page: the copy that changes places; NULL until it has left the CPU
 * @locked: @entry is locked by us
 * @was_cpu: the CPU had it mapped
 */
struct gm_side {
	uint64_t va;
	struct gm_region *region;
	struct gm_entry *entry;
	struct gm_page *slot;
	struct gm_page *page;
	uint8_t locked;
	uint8_t was_cpu;
};

/**
 * struct gm_pair - two pages on their way
 * @sides: the two
 * @status: 0: it goes on, or has gone well; 1: nothing is to be done; or the
 *	errno
 * @swapped: the contents have changed places
 */
struct gm_pair {
	struct gm_side sides[2];
	int status;
	uint8_t swapped;
};

/**
 * struct gm_exchange - pairs that go together
 * @as: the address space
 * @pairs: the pairs
 * @n: how many
 * @width: threads that may work on one pair
 * @spares: host places with memory, against a failure in the middle
 * @buf: of gm_swap
 */
struct gm_exchange {
	struct gm_as *as;
	struct gm_pair pairs[PAIRS];
	unsigned int n;
	unsigned int width;
	struct gm_page *spares[2];
	char *buf;
};

#define for_each_side(x, p, s, i)                                      \
	for (i = 0; i < 2 * (x)->n &&                                  \
		    (p = &(x)->pairs[i / 2], s = &p->sides[i % 2], 1); \
	     i++)

/* --- before the locks --------------------------------------------------- */

static int find_side(struct gm_as *as, struct gm_side *s)
{
	s->region = gm_region_lookup(as, s->va);
	if (!s->region)
		return gm_host_error(-EFAULT, "0x%llx is not unified memory",
				     (unsigned long long)s->va);
	s->entry =
		gm_dir_entry(s->region->dir, gm_region_slot(s->region, s->va));
	if (!s->entry)
		return gm_host_error(-ENOMEM, "no memory for the directory");
	return gm_region_track(s->region);
}

static void prepare(struct gm_exchange *x)
{
	struct gm_page *slots[GM_BATCH];
	struct gm_pair *p;
	struct gm_side *s;
	unsigned int i;
	int err = gm_home_slots_get(x->as, slots, 2 * x->n);

	for_each_side(x, p, s, i)
	{
		if (!err)
			s->slot = slots[i];
		if (!p->status)
			p->status = err ? err : find_side(x->as, s);
	}
	for (i = 0; i < 2; i++)
		if (!x->spares[i] &&
		    gm_home_page_get(x->as, GM_HOST_RESERVE, &x->spares[i]))
			x->spares[i] = NULL;
}

static void finish(struct gm_exchange *x)
{
	struct gm_pair *p;
	struct gm_side *s;
	unsigned int i;

	for_each_side(x, p, s, i)
	{
		if (s->slot)
			gm_host_page_put(x->as, s->slot);
		if (s->region)
			gm_region_put(s->region);
		s->slot = NULL;
		s->region = NULL;
	}
}

/* Ascending; of a batch, all but the first only if they are free. */
static void lock_sides(struct gm_exchange *x)
{
	struct gm_side *order[GM_BATCH], *s;
	struct gm_pair *p, *of[GM_BATCH];
	unsigned int i, j, n = 0;

	for_each_side(x, p, s, i)
	{
		if (p->status)
			continue;
		for (j = n++; j > 0 && order[j - 1]->entry > s->entry; j--) {
			order[j] = order[j - 1];
			of[j] = of[j - 1];
		}
		order[j] = s;
		of[j] = p;
	}
	for (i = 0; i < n; i++) {
		/* A page that was moved between two looks is there twice. */
		if (i > 0 && order[i]->entry == order[i - 1]->entry)
			of[i]->status = -EAGAIN;
		if (of[i]->status)
			continue;
		if (i == 0 || x->n == 1)
			gm_lock(&order[i]->entry->lock, GM_RANK_ENTRY);
		else if (!gm_trylock(&order[i]->entry->lock, GM_RANK_ENTRY)) {
			of[i]->status = -EAGAIN;
			continue;
		}
		order[i]->locked = 1;
	}
}

static void unlock_sides(struct gm_exchange *x)
{
	struct gm_pair *p;
	struct gm_side *s;
	unsigned int i;

	for_each_side(x, p, s, i)
	{
		if (s->locked)
			gm_unlock(&s->entry->lock, GM_RANK_ENTRY);
		s->locked = 0;
	}
}

/* --- plans -------------------------------------------------------------- */

static struct gm_dev *side_dev(const struct gm_side *s)
{
	return s->page ? gm_page_node(s->page)->dev : NULL;
}

static int plan_side(struct gm_side *s)
{
	struct gm_entry *e = s->entry;
	struct gm_page *page;

	GM_COVER(e->state, GM_ON_EXCHANGE);
	if (gm_load(&s->region->dead))
		return -EAGAIN;
	if (e->state == GM_STATE_FRAGMENTED)
		return -EFAULT;
	if (e->state == GM_STATE_POISON)
		return -EHWPOISON;
	if (e->state == GM_STATE_EMPTY)
		return -ENOENT;
	if (!(gm_entry_prot(s->region->dir, e) & GM_PROT_READ))
		return -EACCES;
	if (e->flags & GM_ENTRY_PINNED)
		return -EBUSY;
	s->was_cpu = gm_entry_on_cpu(e);
	if (s->was_cpu && gm_host_cpu_node(s->region->dir->as, s->va) < 0)
		return -ENOENT;
	/* Of several copies an XPU's: where there is room is not the point. */
	for (page = e->copies; page; page = page->next)
		if (!s->page || !gm_page_is_host(page))
			s->page = page;
	if (side_dev(s) && !gm_dev_alive(side_dev(s)))
		return -ENODEV;
	return 0;
}

static int side_error(const struct gm_side *s, int err)
{
	return gm_host_error(err,
			     "the page at 0x%llx cannot change places (%d)",
			     (unsigned long long)s->va, err);
}

static int plan_pair(struct gm_exchange *x, struct gm_pair *p)
{
	struct gm_side *a = &p->sides[0], *b = &p->sides[1];
	int err = plan_side(a);

	if (err)
		return side_error(a, err);
	err = plan_side(b);
	if (err)
		return side_error(b, err);
	if (a->page && b->page && a->page->nid == b->page->nid)
		return 1;
	if (!side_dev(a) && !side_dev(b))
		return gm_machine.nr_host_nodes == 1;
	if (!x->spares[0] || !x->spares[1])
		return gm_host_error(-ENOMEM,
				     "no host memory for the case that an XPU "
				     "fails in the middle");
	return 0;
}

/* Nobody loses a page before he could use it. */
static void wait_residence(struct gm_exchange *x)
{
	uint64_t until = 0;
	struct gm_pair *p;
	struct gm_side *s;
	unsigned int i;

	for_each_side(x, p, s, i) if (!p->status) until =
		GM_MAX(until, gm_entry_claim_locked(s->entry));
	if (gm_host_now() < until)
		gm_host_sleep_until(until);
}

/* --- unmap all ------------------------------------------------------------ */

static void taken_off(struct gm_pair *p, struct gm_side *s, int err)
{
	if (err == -EXDEV)
		err = gm_entry_not_whole_locked(s->region, s->entry);
	if (!err) {
		gm_entry_add_locked(s->region->dir, s->entry, s->slot, s->va);
		s->page = s->slot;
		s->slot = NULL;
	} else if (err == -ENOENT) {
		gm_entry_set_locked(s->entry, GM_STATE_EMPTY);
	}
	if (err)
		p->status = side_error(s, err == -EXDEV ? -EFAULT : err);
}

static void take_off(struct gm_exchange *x)
{
	struct gm_pair *p;
	struct gm_side *s;
	unsigned int i;
	int status;

	for_each_side(x, p, s, i)
	{
		if (p->status || s->page)
			continue;
		gm_host_cpu_unmap(x->as, s->va, &s->slot, 1,
				  gm_entry_prot(s->region->dir, s->entry),
				  &status);
		taken_off(p, s, status);
	}
}

/* All copies lose their mappings; then only the one that moves is left. */
static void revoke(struct gm_exchange *x)
{
	struct gm_page *pages[GM_BATCH], *page, *next;
	int status[GM_BATCH], err;
	struct gm_pair *p, *of[GM_BATCH];
	struct gm_side *s;
	unsigned int i, n = 0;

	for_each_side(x, p, s, i)
	{
		for (page = p->status ? NULL : s->entry->copies; page;
		     page = page->next) {
			if (gm_page_is_host(page))
				continue;
			if (page != s->page) {
				err = gm_page_unmap(page);
				p->status = err ? err : p->status;
				continue;
			}
			pages[n] = page;
			of[n++] = p;
		}
	}
	gm_pages_unmap(pages, n, status);
	for (i = 0; i < n; i++)
		if (status[i])
			of[i]->status = status[i];
	for_each_side(x, p, s, i)
	{
		for (page = p->status ? NULL : s->entry->copies; page;
		     page = next) {
			next = page->next;
			if (page != s->page)
				gm_copy_drop_locked(s->entry, page);
		}
	}
}

/* --- exchange all --------------------------------------------------------- */

/* An operator failed in the middle: what page @i held is on the host now, or
 * lost, and the memory that it had is free. */
static void rescue(struct gm_exchange *x, struct gm_swap *swap,
		   struct gm_side *s, unsigned int i)
{
	struct gm_page *page = s->page, *spare = x->spares[i];
	int err = gm_swap_rescue(swap, i, spare);

	gm_entry_remove_locked(s->entry, page);
	if (!err) {
		gm_entry_add_locked(s->region->dir, s->entry, spare, s->va);
		x->spares[i] = NULL;
	} else {
		gm_count(gm_page_node(page), poisoned, 1);
		gm_entry_set_locked(s->entry, GM_STATE_POISON);
	}
	gm_store(&s->entry->mapped_at, 0);
	s->page = NULL;
}

static void give_up(struct gm_exchange *x, struct gm_swap *swap,
		    struct gm_side *a, struct gm_side *b)
{
	struct gm_page *pages[2] = { a->page, b->page };
	unsigned int i;

	rescue(x, swap, a, 0);
	rescue(x, swap, b, 1);
	/* Only now: the one was read for the other. */
	for (i = 0; i < 2; i++) {
		if (gm_page_is_host(pages[i]))
			gm_host_page_put(x->as, pages[i]);
		else
			gm_page_free(pages[i]);
	}
}

static void swap_pair(struct gm_exchange *x, struct gm_pair *p)
{
	/* An XPU's page comes first. */
	unsigned int first = !side_dev(&p->sides[0]);
	struct gm_side *a = &p->sides[first], *b = &p->sides[!first];
	struct gm_page *pa = a->page, *pb = b->page;
	struct gm_swap swap = { .pages = { pa, pb }, .buf = x->buf };

	if (pa->nid == pb->nid) {
		p->status = 1;
		return;
	}
	/* An earlier pair has used what this one relies on. */
	if (!gm_page_is_host(pa) && (!x->spares[0] || !x->spares[1])) {
		p->status = -EAGAIN;
		return;
	}
	p->status = gm_swap_run(&swap, x->width);
	if (p->status) {
		give_up(x, &swap, a, b);
		return;
	}
	/* A region that moved meanwhile may have left an old address there. */
	pa->va = a->va;
	pb->va = b->va;
	gm_entries_swap_locked(a->entry, b->entry);
	a->page = pb;
	b->page = pa;
	p->swapped = 1;
	gm_count(gm_machine.nodes[pa->nid], exchanged, 1);
}

/* --- map all -------------------------------------------------------------- */

/* If this fails the page waits at rest: a touch finds it there. */
static void map_home(struct gm_exchange *x, struct gm_side *s)
{
	int status;

	gm_host_cpu_map(x->as, s->va, &s->page, 1,
			gm_entry_prot(s->region->dir, s->entry), &status);
	if (status)
		return;
	gm_entry_remove_locked(s->entry, s->page);
	gm_host_page_put(x->as, s->page);
	gm_entry_set_locked(s->entry, GM_STATE_MODIFIED);
}

static void map_all(struct gm_exchange *x)
{
	struct gm_page *pages[GM_BATCH];
	int status[GM_BATCH];
	struct gm_pair *p;
	struct gm_side *s;
	unsigned int i, n = 0;

	for_each_side(x, p, s, i)
	{
		if (!s->page || (!p->swapped && !s->was_cpu))
			continue;
		if (p->swapped)
			gm_entry_got_locked(s->entry, s->page->ctx, 1);
		/* Not exchanged, it goes back to where it was taken from. */
		if (gm_page_is_host(s->page)) {
			map_home(x, s);
			continue;
		}
		s->page->prot = gm_entry_prot(s->region->dir, s->entry);
		pages[n++] = s->page;
	}
	gm_pages_map(pages, n, status);
	/* Its next fault tries again. */
	for (i = 0; i < n; i++)
		if (status[i])
			pages[i]->prot = 0;
}

/* --- the calls ------------------------------------------------------------ */

static void run(struct gm_exchange *x)
{
	unsigned int i;

	prepare(x);
	lock_sides(x);
	for (i = 0; i < x->n; i++)
		if (!x->pairs[i].status)
			x->pairs[i].status = plan_pair(x, &x->pairs[i]);
	wait_residence(x);
	take_off(x);
	revoke(x);
	for (i = 0; i < x->n; i++)
		if (!x->pairs[i].status)
			swap_pair(x, &x->pairs[i]);
	map_all(x);
	unlock_sides(x);
	finish(x);
}

static void pair_init(struct gm_pair *p, uint64_t from, uint64_t to)
{
	*p = (struct gm_pair){ .sides = { { .va = from & ~GM_PAGE_MASK },
					  { .va = to & ~GM_PAGE_MASK } } };
}

static int worth_a_try(int status)
{
	return status == -EAGAIN || status == -EBUSY;
}

/* Once more, alone: whoever has it locked is waited for. */
static int alone(struct gm_exchange *x, uint64_t from, uint64_t to)
{
	x->n = 1;
	pair_init(&x->pairs[0], from, to);
	run(x);
	return x->pairs[0].status;
}

static int again(struct gm_exchange *x, uint64_t from, uint64_t to, int status)
{
	unsigned int tries;

	for (tries = 0; tries < TRIES && worth_a_try(status); tries++) {
		if (tries || status == -EBUSY)
			gm_host_sleep_until(gm_host_now() + RETRY_NS);
		status = alone(x, from, to);
	}
	return status == -EAGAIN ? -EBUSY : status;
}

static int occurs(const struct gm_exchange *x, uint64_t va)
{
	unsigned int i;

	for (i = 0; i < 2 * x->n; i++)
		if (x->pairs[i / 2].sides[i % 2].va == (va & ~GM_PAGE_MASK))
			return 1;
	return 0;
}

/* As many pairs as can go together: no page may be in two of them. */
static uint64_t gather(struct gm_exchange *x, uint64_t n, const uint64_t *from,
		       const uint64_t *to, unsigned int room)
{
	x->n = 0;
	while (x->n < n && x->n < room) {
		uint64_t a = from[x->n], b = to[x->n];

		if (x->n && (occurs(x, a) || occurs(x, b)))
			break;
		pair_init(&x->pairs[x->n], a, b);
		/* With itself: it is where it is. */
		if ((a & ~GM_PAGE_MASK) == (b & ~GM_PAGE_MASK))
			x->pairs[x->n].status = 1;
		x->n++;
	}
	return x->n;
}

static uint64_t exchange_some(struct gm_exchange *x, uint64_t n,
			      const uint64_t *from, const uint64_t *to,
			      int *status, unsigned int room)
{
	uint64_t i, taken = gather(x, n, from, to, room);

	run(x);
	for (i = 0; i < taken; i++)
		status[i] = x->pairs[i].status;
	for (i = 0; i < taken; i++) {
		status[i] = again(x, from[i], to[i], status[i]);
		if (status[i] >= 0)
			status[i] = gm_as_node_of(x->as, from[i]);
		if (status[i] < 0)
			gm_move_failed(gm_machine.nodes[0], status[i]);
	}
	return taken;
}

uint64_t gm_as_exchange(struct gm_as *as, uint64_t n, const uint64_t *from,
			const uint64_t *to, int *status, unsigned int flags)
{
	struct gm_exchange x = { .as = as,
				 .width = flags & GM_MOVE_PARALLEL ? GM_CUTS
								   : 1 };
	uint64_t i, failed = 0;

	x.buf = gm_host_zalloc(GM_SWAP_BUF);
	for (i = 0; i < n && x.buf;)
		i += exchange_some(&x, n - i, from + i, to + i, status + i,
				   flags & GM_MOVE_CONCURRENT ? PAIRS : 1);
	for (; i < n; i++)
		status[i] = gm_host_error(-ENOMEM, "no memory for a buffer");
	for (i = 0; i < 2; i++)
		if (x.spares[i])
			gm_host_page_put(as, x.spares[i]);
	gm_host_zfree(x.buf, GM_SWAP_BUF);
	gm_machine_settle();
	for (i = 0; i < n; i++)
		failed += status[i] < 0;
	return failed;
}
