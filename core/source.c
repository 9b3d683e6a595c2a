/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * source.c - gmemcpy: reading the source where it is
 *
 * What is at rest or on an XPU is read under its entry's lock. What the CPU has
 * mapped is lent, if enough of it is wanted by an XPU: it leaves the CPU as for
 * a fault, is copied with no way round, and goes back, all under the lock; two
 * changes of the page table cost less than a second pass over the data. The
 * rest, plain memory above all, is read as the program would read it, by the
 * calling thread with no lock held, for it may fault; to an XPU it goes
 * through a small buffer.
 */
#include "core/copy.h"

/* From how many bytes on lending is the shorter way; see docs/design. */
#define LEND_MIN (GM_PAGE_SIZE / 4)

/* Where the data of a page can be read; the entry is locked. */
enum gm_source {
	SOURCE_USER, /* as the program would */
	SOURCE_ZEROS,
	SOURCE_COPY, /* entry->copies */
};

static struct gm_page *best_copy(struct gm_entry *e)
{
	struct gm_page *host = gm_entry_host_copy(e);

	return host ? host : e->copies;
}

static int source_of(struct gm_region *r, struct gm_entry *e,
		     enum gm_source *source)
{
	*source = SOURCE_USER;
	if (gm_load(&r->dead))
		return -EAGAIN;
	GM_COVER(e->state, GM_ON_COPY_FROM);
	if (e->state != GM_STATE_FRAGMENTED &&
	    !(gm_entry_prot(r->dir, e) & GM_PROT_READ))
		return -EACCES;
	if (e->state == GM_STATE_POISON)
		return -EHWPOISON;
	if (e->state == GM_STATE_EMPTY)
		*source = SOURCE_ZEROS;
	else if (e->copies && e->state != GM_STATE_FRAGMENTED)
		*source = SOURCE_COPY;
	return 0;
}

/* Those of a cut page are the page table's, which has been asked. */
int gm_copy_denied(struct gm_as *as, uint64_t va, unsigned int right)
{
	struct gm_region *r = gm_region_lookup(as, va);
	unsigned int prot = right;
	struct gm_entry *e;

	if (!r)
		return 0;
	e = gm_dir_peek(r->dir, gm_region_slot(r, va));
	if (!e)
		prot = gm_load(&r->dir->prot);
	else if (gm_load(&e->state) != GM_STATE_FRAGMENTED &&
		 !(gm_load(&e->flags) & GM_ENTRY_CUT))
		prot = gm_entry_prot(r->dir, e);
	gm_region_put(r);
	return !(prot & right);
}

int gm_copy_text(int err, uint64_t va, const char *what)
{
	if (err == -EACCES)
		return gm_host_error(err,
				     "the protection of 0x%llx forbids a %s",
				     (unsigned long long)va, what);
	if (err == -EHWPOISON)
		return gm_host_error(
			err, "the page at 0x%llx was lost with an XPU's memory",
			(unsigned long long)va);
	if (err == -EFAULT)
		return gm_host_error(err,
				     "0x%llx is no memory of the program with "
				     "the right to %s",
				     (unsigned long long)va, what);
	return err;
}

int gm_copy_fault_text(struct gm_as *as, int err, uint64_t va,
		       unsigned int right)
{
	const char *what = right == GM_PROT_WRITE ? "store" : "load";

	if (err == -EFAULT && gm_copy_denied(as, va, right))
		err = -EACCES;
	return gm_copy_text(err, va, what);
}

/* --- from a copy, under the lock --------------------------------------- */

/* In one copy; otherwise only through the buffer. */
static int is_direct(const struct gm_page *page, const struct gm_page *from)
{
	return gm_page_is_host(page) || gm_page_is_host(from) ||
	       page->nid == from->nid;
}

static int read_copy(struct gm_memcpy *m, struct gm_page *from,
		     struct gm_piece *p)
{
	uint64_t at = p->src & GM_PAGE_MASK, done, n;
	int err = 0;

	if (!p->page) {
		p->n = GM_MIN(p->n, GM_COPY_CHUNK);
		return gm_page_read(m->buffer, from, at, p->n);
	}
	if (is_direct(p->page, from))
		return gm_page_copy_part(p->page, p->off, from, at, p->n);
	for (done = 0; !err && done < p->n; done += n) {
		n = GM_MIN(p->n - done, GM_COPY_CHUNK);
		err = gm_page_read(m->buffer, from, at + done, n);
		if (!err)
			err = gm_page_write(p->page, p->off + done, m->buffer,
					    n);
	}
	return err;
}

/*
 * May the page leave the CPU for one copy? A read-only one would leave by being
 * copied, and a pinned one stays. What the CPU has just been waiting for is
 * not taken away again at once, or it would make no headway.
 */
static int is_lendable(struct gm_region *r, const struct gm_entry *e)
{
	return gm_entry_on_cpu(e) && !(e->flags & GM_ENTRY_PINNED) &&
	       (gm_entry_prot(r->dir, e) & GM_PROT_WRITE) &&
	       gm_host_now() >= gm_entry_resident_until(e);
}

/* Whatever it is that does not let it go, the program can read it. */
static int borrow_locked(struct gm_memcpy *m, struct gm_region *r,
			 struct gm_entry *e, uint64_t va)
{
	int status;

	gm_host_cpu_unmap(m->as, va, &m->slot, 1, gm_entry_prot(r->dir, e),
			  &status);
	if (status)
		return 0;
	gm_entry_add_locked(r->dir, e, m->slot, va);
	m->slot = NULL;
	return 1;
}

/* What cannot go back stays at home, unmapped: the next touch finds it. */
static void give_back_locked(struct gm_memcpy *m, struct gm_region *r,
			     struct gm_entry *e, uint64_t va)
{
	struct gm_page *place = gm_entry_host_copy(e);
	int status;

	gm_host_cpu_map(m->as, va, &place, 1, gm_entry_prot(r->dir, e),
			&status);
	if (status)
		return;
	gm_entry_remove_locked(e, place);
	gm_entry_set_locked(e, GM_STATE_MODIFIED);
	m->slot = place;
}

/* From a copy, or one that the CPU lends; what else it is, is only said. */
static int read_locked(struct gm_memcpy *m, struct gm_region *r,
		       struct gm_entry *e, struct gm_piece *p, int lend,
		       enum gm_source *source)
{
	uint64_t va = p->src & ~GM_PAGE_MASK;
	int err = source_of(r, e, source);

	if (err || *source == SOURCE_ZEROS)
		return err;
	if (*source == SOURCE_COPY)
		return read_copy(m, best_copy(e), p);
	if (!lend || !is_lendable(r, e) || !borrow_locked(m, r, e, va))
		return 0;
	*source = SOURCE_COPY;
	err = read_copy(m, best_copy(e), p);
	give_back_locked(m, r, e, va);
	return err;
}

/* --- as the program would, and all together ---------------------------- */

/**
 * struct gm_pour - from the buffer into the page
 * @m: whose buffer
 * @p: the piece whose bytes come
 */
struct gm_pour {
	struct gm_memcpy *m;
	struct gm_piece *p;
};

static int pour(void *arg, size_t off, size_t n)
{
	struct gm_pour *o = arg;

	return gm_page_write(o->p->page, o->p->off + off, o->m->buffer, n);
}

/* What the program itself could read, or zeros. */
static int read_unlocked(struct gm_memcpy *m, struct gm_piece *p, int zeros)
{
	struct gm_pour o = { m, p };
	char *to = m->buffer;

	if (p->page && zeros)
		return gm_page_zero(p->page, p->off, p->n);
	if (p->page && !gm_page_is_host(p->page))
		return gm_host_user_feed(m->as, p->src, p->n, m->buffer,
					 GM_COPY_CHUNK, pour, &o);
	if (p->page)
		to = (char *)gm_host_page_ptr(p->page) + p->off;
	else
		p->n = GM_MIN(p->n, GM_COPY_CHUNK);
	if (!zeros)
		return gm_host_user_read(m->as, to, p->src, p->n);
	gm_host_zero(to, p->n);
	return 0;
}

/* Is it worth to have the page lent, and can it be? Nothing is locked. */
static int can_lend(struct gm_memcpy *m, struct gm_region *r,
		    struct gm_entry *e, const struct gm_piece *p)
{
	if (!p->page || gm_page_is_host(p->page) || p->n < LEND_MIN ||
	    gm_load(&e->state) == GM_STATE_EMPTY)
		return 0;
	if (gm_load(&e->state) == GM_STATE_UNTRACKED && gm_region_track(r))
		return 0;
	return m->slot || !gm_host_slots_get(m->as, &m->slot, 1);
}

/*
 * How is decided under the lock, each time: the source may move about. Touches
 * no unified address under a lock.
 */
int gm_copy_read(struct gm_memcpy *m, struct gm_piece *p)
{
	struct gm_region *r = gm_region_lookup(m->as, p->src);
	enum gm_source source = SOURCE_USER;
	struct gm_entry *e;
	int err = 0, lend;

	e = r ? gm_dir_entry(r->dir, gm_region_slot(r, p->src)) : NULL;
	if (r && !e)
		err = gm_host_error(-ENOMEM, "no memory for the directory");
	if (e) {
		lend = can_lend(m, r, e, p);
		gm_lock(&e->lock, GM_RANK_ENTRY);
		err = read_locked(m, r, e, p, lend, &source);
		gm_unlock(&e->lock, GM_RANK_ENTRY);
	}
	if (r)
		gm_region_put(r);
	if (!err && source != SOURCE_COPY)
		err = read_unlocked(m, p, source == SOURCE_ZEROS);
	if (err == -EAGAIN)
		return err;
	return gm_copy_fault_text(m->as, err, p->src, GM_PROT_READ);
}

int gm_copy_fill(struct gm_memcpy *m, struct gm_page *page, uint64_t src)
{
	uint64_t off = 0;
	int err;

	while (off < GM_PAGE_SIZE) {
		struct gm_piece p = { .src = src + off,
				      .page = page,
				      .off = off };

		p.n = GM_MIN(GM_PAGE_SIZE - off,
			     GM_PAGE_SIZE - (p.src & GM_PAGE_MASK));
		err = gm_copy_read(m, &p);
		if (err && err != -EAGAIN)
			return err;
		if (!err)
			off += p.n;
	}
	return 0;
}
