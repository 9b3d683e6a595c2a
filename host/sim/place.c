// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * place.c - host memory at rest
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/sim/sim.h"

#define PLACES_MAX (1u << 20)
#define PLACES_ADDR ((void *)0x210000000000)
#define PLACE_GARBAGE 0xa5

static struct sim_place *places; /* [PLACES_MAX], made as they are used */
static unsigned int nr_places; /* ever used */
static struct sim_place *free_places;

void sim_places_init(void)
{
	size_t size = PLACES_MAX * sizeof(struct sim_place);

	if (!places) {
		places = mmap(PLACES_ADDR, size, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
				      MAP_FIXED_NOREPLACE,
			      -1, 0);
		if (places != PLACES_ADDR) {
			fprintf(stderr, "no room for the simulated memory\n");
			exit(2);
		}
	}
	nr_places = 0;
	free_places = NULL;
	sim.places_live = 0;
	sim.frames_used = 0;
}

void sim_places_exit(void)
{
	SIM_CHECK(!sim.places_live, "%lu places at rest leaked",
		  (unsigned long)sim.places_live);
	SIM_CHECK(!sim.frames_used, "%lu frames at rest leaked",
		  (unsigned long)sim.frames_used);
}

struct sim_place *sim_place_of(const void *p, size_t len)
{
	uintptr_t at = (uintptr_t)p - (uintptr_t)places;
	struct sim_place *place;

	if (at >= nr_places * sizeof(*places))
		return NULL;
	place = &places[at / sizeof(*places)];
	if ((const uint8_t *)p < place->data ||
	    (const uint8_t *)p + len > place->data + GM_PAGE_SIZE)
		return NULL;
	return place;
}

/* Memory comes into the place; what it holds is the caller's to write. */
void sim_place_fill(struct sim_place *place)
{
	SIM_CHECK(place->used, "a place at rest that nobody has");
	SIM_CHECK(place->page.vacant, "a place at rest filled twice");
	place->page.vacant = 0;
	sim.frames_used++;
}

void sim_place_vacate(struct sim_place *place)
{
	SIM_CHECK(place->used, "a place at rest that nobody has");
	SIM_CHECK(!place->page.vacant, "a place at rest vacated twice");
	place->page.vacant = 1;
	memset(place->data, PLACE_GARBAGE, GM_PAGE_SIZE);
	sim.frames_used--;
}

static struct sim_place *sim_place_new(struct gm_as *as, int nid)
{
	struct sim_place *place = free_places;

	if (place) {
		free_places = place->next;
	} else {
		SIM_CHECK(nr_places < PLACES_MAX, "too many places at rest");
		place = &places[nr_places];
		place->index = nr_places++;
	}
	memset(&place->page, 0, sizeof(place->page));
	memset(place->data, PLACE_GARBAGE, GM_PAGE_SIZE);
	place->page.addr = (uint64_t)(uintptr_t)place->data;
	place->page.nid = (int16_t)nid;
	place->page.vacant = 1;
	place->as = as->host.sim;
	place->used = true;
	sim.places_live++;
	return place;
}

int sim_node_near(void)
{
	return (int)(sim.current->id % sim.cfg.host_nodes);
}

int gm_host_slots_get(struct gm_as *as, struct gm_page **slots, unsigned int n)
{
	unsigned int i;

	sim_enter(SIM_SLOTS_GET);
	SIM_CHECK(n > 0 && n <= GM_BATCH, "slots_get(%u)", n);
	SIM_CHECK(sim_rank_held() < GM_RANK_ENTRY, "slots_get with rank %d",
		  sim_rank_held());
	if (sim_inject(SIM_SLOTS_GET))
		return -ENOMEM;
	for (i = 0; i < n; i++)
		slots[i] = &sim_place_new(as, sim_node_near())->page;
	return 0;
}

int gm_host_page_get(struct gm_as *as, int nid, unsigned int flags,
		     struct gm_page **page)
{
	uint64_t limit = sim.cfg.host_frames;
	struct sim_place *place;

	sim_enter(SIM_PAGE_GET);
	SIM_CHECK(sim_rank_held() < GM_RANK_ENTRY, "page_get with rank %d",
		  sim_rank_held());
	SIM_CHECK(nid == GM_NODE_NONE ||
			  (nid >= 0 && nid < (int)sim.cfg.host_nodes),
		  "page_get on node %d", nid);
	if (!(flags & GM_HOST_RESERVE))
		limit -= GM_MIN(limit, sim.cfg.reserve);
	if (sim.frames_used >= limit || sim_inject(SIM_PAGE_GET))
		return -ENOMEM;
	if (nid == GM_NODE_NONE || (sim.cfg.switch_mean && sim_chance(16)))
		nid = sim_node_near();
	place = sim_place_new(as, nid);
	sim_place_fill(place);
	if (flags & GM_HOST_ZEROED)
		memset(place->data, 0, GM_PAGE_SIZE);
	*page = &place->page;
	return 0;
}

void gm_host_page_put(struct gm_as *as, struct gm_page *page)
{
	struct sim_place *place = sim_place(page);

	sim_enter(SIM_PAGE_PUT);
	SIM_CHECK(!sim_holds_rank(GM_RANK_NODE), "page_put with NODE held");
	SIM_CHECK(sim_place_of(place->data, 1) == place,
		  "page_put of what is not a place at rest");
	SIM_CHECK(place->used, "a place at rest put twice");
	SIM_CHECK(place->as == as->host.sim,
		  "a place at rest put by another address space");
	SIM_CHECK(page->list == GM_PAGE_NOWHERE,
		  "a place at rest put while on a list");
	if (!page->vacant)
		sim_place_vacate(place);
	place->used = false;
	place->next = free_places;
	free_places = place;
	sim.places_live--;
}

void *gm_host_page_ptr(const struct gm_page *page)
{
	struct sim_place *place = sim_place(page);

	SIM_CHECK(place->used && !page->vacant,
		  "address asked of a place without memory");
	return place->data;
}

/* Both sides of a copy: a place that holds memory, or the core's own. */
static void sim_check_side(const void *p, size_t len)
{
	struct sim_place *place = sim_place_of(p, len);
	const char *stack = sim.current->stack;

	if (place)
		SIM_CHECK(place->used && !place->page.vacant,
			  "copy with a place without memory");
	else
		SIM_CHECK(sim_heap_owns(p, len) || (const char *)p > stack,
			  "copy with %p, which is not ours", p);
}

static size_t sim_step(size_t left)
{
	return left < 16 ? left : 16;
}

void gm_host_copy(void *dst, const void *src, size_t len)
{
	size_t at, n;

	sim_enter(SIM_COPY);
	SIM_CHECK(!sim_holds_rank(GM_RANK_NODE), "copy with NODE held");
	for (at = 0; at < len; at += n) {
		n = sim_step(len - at);
		sim_check_side(dst, len);
		sim_check_side(src, len);
		memcpy((char *)dst + at, (const char *)src + at, n);
		sim_point(SIM_STEP);
	}
}

void gm_host_exchange(void *a, void *b, size_t len)
{
	size_t at, i;
	char c;

	sim_enter(SIM_EXCHANGE);
	SIM_CHECK(!sim_holds_rank(GM_RANK_NODE), "exchange with NODE held");
	for (at = 0; at < len; at += 8) {
		sim_check_side(a, len);
		sim_check_side(b, len);
		for (i = at; i < at + 8; i++) {
			c = ((char *)a)[i];
			((char *)a)[i] = ((char *)b)[i];
			((char *)b)[i] = c;
		}
		sim_point(SIM_STEP);
	}
}

void gm_host_zero(void *dst, size_t len)
{
	size_t at, n;

	sim_enter(SIM_ZERO);
	SIM_CHECK(!sim_holds_rank(GM_RANK_NODE), "zero with NODE held");
	for (at = 0; at < len; at += n) {
		n = sim_step(len - at);
		sim_check_side(dst, len);
		memset((char *)dst + at, 0, n);
		sim_point(SIM_STEP);
	}
}

unsigned int sim_places_count(void)
{
	return nr_places;
}
