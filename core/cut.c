/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * cut.c - one page cut over several threads: copies, and exchanges in place
 *
 * Of moving a page only the copy grows faster with threads (Nimble, ASPLOS
 * 2019). A page is cut in contiguous parts; the caller does what the others
 * do not get to.
 *
 * An exchange needs no third page: a chunk of each goes through a small buffer
 * to where the other's was. What is where is known for each chunk at each time,
 * so that nothing is lost if an operator fails between two of them.
 */
#include "core/internal.h"

#define CUT_SIZE (GM_PAGE_SIZE / GM_CUTS)
#define CUT_CHUNKS ((unsigned int)(CUT_SIZE / GM_SWAP_CHUNK))
/* What an operator refuses some times may be there all the same. */
#define READ_TRIES 16

/* --- copies ------------------------------------------------------------ */

struct gm_cut {
	struct gm_page *dst;
	struct gm_page *src;
	int err; /* (A) */
};

static void copy_cut(void *arg, unsigned int i)
{
	struct gm_cut *c = arg;
	int err = gm_page_copy_part(c->dst, i * CUT_SIZE, c->src, i * CUT_SIZE,
				    CUT_SIZE);

	if (err)
		gm_store(&c->err, err);
}

int gm_page_copy_wide(struct gm_page *dst, struct gm_page *src,
		      unsigned int width)
{
	struct gm_cut c = { dst, src, 0 };

	if (width > 1)
		gm_host_parallel(copy_cut, &c, GM_CUTS, width);
	else
		c.err = gm_page_copy_part(dst, 0, src, 0, GM_PAGE_SIZE);
	if (c.err)
		return c.err;
	if (!gm_page_is_host(src) && gm_page_is_host(dst))
		gm_count(gm_page_node(src), to_host, 1);
	else if (gm_page_is_host(src) && !gm_page_is_host(dst))
		gm_count(gm_page_node(dst), to_xpu, 1);
	else if (gm_page_is_host(src) && src->nid != dst->nid)
		gm_count(gm_page_node(dst), between_hosts, 1);
	return 0;
}

/* --- exchanges --------------------------------------------------------- */

/* How far the chunk got at which a cut stopped. */
enum gm_stage {
	STAGE_CLEAN, /* both pages have their own */
	STAGE_FIRST, /* page 0's is in the buffer, page 1 has its own */
	STAGE_SECOND, /* page 0's is in the buffer, page 0 has page 1's */
};

static char *cut_buf(const struct gm_swap *s, unsigned int cut, unsigned int i)
{
	return s->buf + (2 * cut + i) * GM_SWAP_CHUNK;
}

static uint64_t chunk_off(unsigned int cut, unsigned int chunk)
{
	return cut * CUT_SIZE + chunk * GM_SWAP_CHUNK;
}

/* Page 0 is an XPU's. What page 1 has is taken from where it is, if that is
 * host memory. */
static int swap_chunk(struct gm_swap *s, unsigned int cut, uint64_t off)
{
	struct gm_page *a = s->pages[0], *b = s->pages[1];
	char *buf_a = cut_buf(s, cut, 0), *from_b = cut_buf(s, cut, 1);
	int err = gm_page_read(buf_a, a, off, GM_SWAP_CHUNK);

	if (!err && gm_page_is_host(b))
		from_b = (char *)gm_host_page_ptr(b) + off;
	else if (!err)
		err = gm_page_read(from_b, b, off, GM_SWAP_CHUNK);
	if (err)
		return err;
	s->stage[cut] = STAGE_FIRST;
	err = gm_page_write(a, off, from_b, GM_SWAP_CHUNK);
	if (err)
		return err;
	s->stage[cut] = STAGE_SECOND;
	err = gm_page_write(b, off, buf_a, GM_SWAP_CHUNK);
	if (!err)
		s->stage[cut] = STAGE_CLEAN;
	return err;
}

static void swap_cut(void *arg, unsigned int cut)
{
	struct gm_swap *s = arg;
	uint64_t off = cut * CUT_SIZE;
	int err;

	if (gm_page_is_host(s->pages[0])) {
		gm_host_exchange((char *)gm_host_page_ptr(s->pages[0]) + off,
				 (char *)gm_host_page_ptr(s->pages[1]) + off,
				 CUT_SIZE);
		s->done[cut] = CUT_CHUNKS;
		return;
	}
	while (s->done[cut] < CUT_CHUNKS) {
		if (gm_load(&s->err))
			return;
		err = swap_chunk(s, cut, chunk_off(cut, s->done[cut]));
		if (err) {
			gm_store(&s->err, err);
			return;
		}
		s->done[cut]++;
	}
}

int gm_swap_run(struct gm_swap *s, unsigned int width)
{
	unsigned int i;

	GM_BUG_ON(gm_page_is_host(s->pages[0]) &&
		  !gm_page_is_host(s->pages[1]));
	s->err = 0;
	for (i = 0; i < GM_CUTS; i++) {
		s->done[i] = 0;
		s->stage[i] = STAGE_CLEAN;
	}
	if (width > 1) {
		gm_host_parallel(swap_cut, s, GM_CUTS, width);
		return s->err;
	}
	for (i = 0; i < GM_CUTS && !s->err; i++)
		swap_cut(s, i);
	return s->err;
}

/* Where a chunk of what page @which held is now; NULL: in the buffer. */
static struct gm_page *chunk_at(const struct gm_swap *s, unsigned int which,
				unsigned int cut, unsigned int chunk)
{
	unsigned int stage = s->stage[cut];

	if (chunk < s->done[cut])
		return s->pages[!which];
	if (chunk > s->done[cut] || stage == STAGE_CLEAN)
		return s->pages[which];
	if (which == 0)
		return NULL;
	return s->pages[stage == STAGE_FIRST];
}

static int gather_chunk(struct gm_swap *s, unsigned int which, char *to,
			unsigned int cut, unsigned int chunk)
{
	struct gm_page *at = chunk_at(s, which, cut, chunk);
	uint64_t off = chunk_off(cut, chunk);
	int tries, err = -EIO;

	if (!at) {
		gm_host_copy(to + off, cut_buf(s, cut, 0), GM_SWAP_CHUNK);
		return 0;
	}
	for (tries = 0; err && tries < READ_TRIES; tries++)
		err = gm_page_read(to + off, at, off, GM_SWAP_CHUNK);
	return err ? -EIO : 0;
}

int gm_swap_rescue(struct gm_swap *s, unsigned int which, struct gm_page *to)
{
	char *ptr = gm_host_page_ptr(to);
	unsigned int cut, chunk;
	int err = 0;

	for (cut = 0; cut < GM_CUTS && !err; cut++)
		for (chunk = 0; chunk < CUT_CHUNKS && !err; chunk++)
			err = gather_chunk(s, which, ptr, cut, chunk);
	return err;
}
