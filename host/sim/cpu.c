// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * cpu.c - the program's page table, as the core sees it
 */
#include <string.h>

#include "host/sim/sim.h"

/* What all calls about one page have in common. */
static struct sim_slot *sim_slot_enter(struct gm_as *as, uint64_t va)
{
	struct sim_slot *slot = sim_slot_at(as->host.sim, va);

	SIM_CHECK(slot, "page table: address %#lx out of range",
		  (unsigned long)va);
	SIM_CHECK(!(va & GM_PAGE_MASK), "page table: address not aligned");
	SIM_CHECK(!slot->reserved, "page table: a range that is only reserved");
	SIM_CHECK(sim_holds_rank(GM_RANK_ENTRY),
		  "page table changed without the entry's lock");
	SIM_CHECK(!sim_holds_rank(GM_RANK_NODE), "page table with NODE held");
	return slot;
}

static int sim_failure(int usual, int other)
{
	if (sim.fail_error)
		return sim.fail_error;
	return sim.fail_call >= 0 || sim_chance(2) ? usual : other;
}

/* A slot into or out of which whole pages can be moved. */
static int sim_slot_whole(struct sim_as *as, const struct sim_slot *slot)
{
	if (slot->mapped != SIM_ALL)
		return as->events ? -EAGAIN : -EXDEV;
	SIM_CHECK(slot->tracked == SIM_ALL,
		  "a page moved while its range is not tracked");
	return 0;
}

static bool sim_is_zero(const uint8_t *bytes)
{
	static const uint8_t zeros[GM_PAGE_SIZE];

	return !memcmp(bytes, zeros, GM_PAGE_SIZE);
}

static int sim_map_one(struct sim_as *as, uint64_t va, struct gm_page *page)
{
	struct sim_place *place = sim_place(page);
	struct sim_slot *slot = sim_slot_enter(&as->as, va);
	int err;

	SIM_CHECK(place->used && !page->vacant,
		  "map of a place without memory");
	SIM_CHECK(place->as == as, "map of another address space's memory");
	if (as->nr_unread)
		return -EAGAIN;
	if (sim_inject(SIM_CPU_MAP))
		return sim_failure(-ENOMEM, -EAGAIN);
	if (slot->mapped == SIM_ALL && !slot->tracked) {
		/* A fault of what was there before. The kernel serves this. */
		SIM_CHECK(sim_is_zero(place->data),
			  "data put where nobody watches");
		return -EEXIST;
	}
	err = sim_slot_whole(as, slot);
	if (err)
		return err;
	if (slot->present || slot->poison)
		return -EEXIST;
	memcpy(slot->data, place->data, GM_PAGE_SIZE);
	slot->present = SIM_ALL;
	slot->nid = (uint8_t)page->nid;
	sim_place_vacate(place);
	sim_wake_range(as, va, GM_PAGE_SIZE);
	return 0;
}

void gm_host_cpu_map(struct gm_as *as, uint64_t va, struct gm_page **pages,
		     unsigned int n, unsigned int prot, int *status)
{
	unsigned int i;

	sim_enter(SIM_CPU_MAP);
	SIM_CHECK(n > 0 && n <= GM_BATCH, "cpu_map(%u)", n);
	SIM_CHECK(prot, "cpu_map with no rights");
	for (i = 0; i < n; i++) {
		status[i] = sim_map_one(as->host.sim, va + i * GM_PAGE_SIZE,
					pages[i]);
		sim_point(SIM_STEP);
	}
}

/* The page's bytes; what was never touched is zero. */
static void sim_slot_read(const struct sim_slot *slot, uint8_t *out)
{
	unsigned int i;

	for (i = 0; i < SIM_PIECES; i++) {
		if (slot->present & (1u << i))
			memcpy(out + i * SIM_PIECE, slot->data + i * SIM_PIECE,
			       SIM_PIECE);
		else
			memset(out + i * SIM_PIECE, 0, SIM_PIECE);
	}
}

static int sim_unmap_one(struct sim_as *as, uint64_t va, struct gm_page *page)
{
	struct sim_place *place = sim_place(page);
	struct sim_slot *slot = sim_slot_enter(&as->as, va);
	int err;

	SIM_CHECK(place->used && page->vacant, "unmap into a full place");
	SIM_CHECK(place->as == as, "unmap into another address space's place");
	if (as->nr_unread && sim_chance(2))
		return -EAGAIN;
	if (sim_inject(SIM_CPU_UNMAP))
		return sim_failure(-EBUSY, sim_chance(2) ? -EAGAIN : -ENOMEM);
	err = sim_slot_whole(as, slot);
	if (err)
		return err;
	if (slot->poison)
		return -EFAULT;
	if (!slot->present)
		return -ENOENT;
	if (slot->pins)
		return -EBUSY;
	if (!slot->readable)
		return -EFAULT;
	sim_place_fill(place);
	sim_slot_read(slot, place->data);
	page->nid = slot->nid;
	slot->present = 0;
	return 0;
}

int gm_host_cpu_node(struct gm_as *as, uint64_t va)
{
	struct sim_slot *slot;

	sim_enter(SIM_CPU_NODE);
	slot = sim_slot_enter(as, va & ~GM_PAGE_MASK);
	return slot->present ? slot->nid : -ENOENT;
}

void gm_host_cpu_unmap(struct gm_as *as, uint64_t va, struct gm_page **slots,
		       unsigned int n, unsigned int prot, int *status)
{
	unsigned int i;

	sim_enter(SIM_CPU_UNMAP);
	SIM_CHECK(n > 0 && n <= GM_BATCH, "cpu_unmap(%u)", n);
	for (i = 0; i < n; i++) {
		status[i] = sim_unmap_one(as->host.sim, va + i * GM_PAGE_SIZE,
					  slots[i]);
		sim_point(SIM_STEP);
	}
}

int gm_host_cpu_fill(struct gm_as *as, uint64_t va)
{
	struct sim_slot *slot;
	unsigned int i, missing;

	sim_enter(SIM_CPU_FILL);
	slot = sim_slot_enter(as, va);
	if (as->host.sim->nr_unread)
		return -EAGAIN;
	if (sim_inject(SIM_CPU_FILL))
		return sim_failure(-ENOMEM, -EAGAIN);
	if (!slot->mapped)
		return -ENOENT;
	missing = slot->mapped & ~(slot->present | slot->poison);
	for (i = 0; i < SIM_PIECES; i++)
		if (missing & (1u << i))
			memset(slot->data + i * SIM_PIECE, 0, SIM_PIECE);
	if (!slot->present)
		slot->nid = (uint8_t)sim_node_near();
	slot->present |= missing;
	sim_wake_range(as->host.sim, va, GM_PAGE_SIZE);
	return 0;
}

/* Put one piece of the page where the program sees it. */
static int sim_scatter_one(struct sim_as *as, uint64_t va,
			   const struct sim_place *place, uint64_t off)
{
	struct sim_slot *slot = sim_slot_at(as, va);
	unsigned int bit = sim_piece_mask(va);

	SIM_CHECK(slot, "scatter out of the address space");
	if (as->nr_unread)
		return -EAGAIN;
	if (sim_inject(SIM_CPU_SCATTER))
		return sim_failure(-ENOMEM, -EAGAIN);
	if (!(slot->mapped & bit))
		return 0;
	if (place && !((slot->present | slot->poison) & bit)) {
		memcpy(slot->data + (va & GM_PAGE_MASK), place->data + off,
		       SIM_PIECE);
		if (!slot->present)
			slot->nid = (uint8_t)place->page.nid;
		slot->present |= bit;
	}
	return SIM_PIECE;
}

int64_t gm_host_cpu_scatter(struct gm_as *as, uint64_t va, struct gm_page *page,
			    uint64_t off, uint64_t len)
{
	struct sim_place *place = page ? sim_place(page) : NULL;
	struct sim_as *s = as->host.sim;
	int64_t mapped = 0;
	uint64_t at;

	sim_enter(SIM_CPU_SCATTER);
	SIM_CHECK(sim_holds_rank(GM_RANK_ENTRY), "scatter without an entry");
	SIM_CHECK(len && !((va | off | len) % SIM_PIECE) &&
			  off + len <= GM_PAGE_SIZE,
		  "scatter: alignment");
	SIM_CHECK(!place || (place->used && !page->vacant),
		  "scatter of a place without memory");
	for (at = off; at < off + len; at += SIM_PIECE) {
		int n = sim_scatter_one(s, va + at, place, at);

		if (n < 0)
			return n;
		mapped += n;
		sim_point(SIM_STEP);
	}
	if (place)
		sim_place_vacate(place);
	sim_wake_range(s, va + off, len);
	return mapped;
}

int gm_host_cpu_poison(struct gm_as *as, uint64_t va)
{
	struct sim_slot *slot;

	sim_enter(SIM_CPU_POISON);
	slot = sim_slot_enter(as, va);
	if (as->host.sim->nr_unread)
		return -EAGAIN;
	if (sim_inject(SIM_CPU_POISON))
		return sim_failure(-ENOMEM, -EAGAIN);
	slot->present = 0;
	slot->poison = slot->mapped;
	sim_wake_range(as->host.sim, va, GM_PAGE_SIZE);
	return 0;
}

int gm_host_cpu_unpoison(struct gm_as *as, uint64_t va)
{
	struct sim_slot *slot;

	sim_enter(SIM_CPU_UNPOISON);
	slot = sim_slot_enter(as, va);
	if (sim_inject(SIM_CPU_UNPOISON))
		return sim_failure(-ENOMEM, -EAGAIN);
	slot->poison = 0;
	return 0;
}

void gm_host_cpu_wake(struct gm_as *as, uint64_t va)
{
	sim_enter(SIM_CPU_WAKE);
	SIM_CHECK(!(va & GM_PAGE_MASK), "wake: address not aligned");
	sim_wake_range(as->host.sim, va, GM_PAGE_SIZE);
}

/* --- as the program would ------------------------------------------------ */

static void sim_user_enter(enum sim_call call)
{
	sim_enter(call);
	SIM_CHECK(!sim.current->nr_held,
		  "unified memory touched with rank %d held", sim_rank_held());
}

int gm_host_user_read(struct gm_as *as, void *dst, uint64_t addr, size_t len)
{
	sim_user_enter(SIM_USER_READ);
	return sim_cpu_access_range(as->host.sim, addr, dst, len, false);
}

int gm_host_user_write(struct gm_as *as, uint64_t addr, const void *src,
		       size_t len)
{
	sim_user_enter(SIM_USER_WRITE);
	return sim_cpu_access_range(as->host.sim, addr, (void *)src, len, true);
}

int gm_host_user_feed(struct gm_as *as, uint64_t addr, size_t len, void *buf,
		      size_t size, int (*eat)(void *arg, size_t off, size_t n),
		      void *arg)
{
	size_t done, n;
	int err = 0;

	for (done = 0; !err && done < len; done += n) {
		n = GM_MIN(len - done, size);
		err = gm_host_user_read(as, buf, addr + done, n);
		if (!err)
			err = eat(arg, done, n);
	}
	return err;
}

int gm_host_user_copy(struct gm_as *as, uint64_t dst, uint64_t src, size_t len)
{
	uint8_t buf[16];
	size_t done = 0;
	int err;

	sim_user_enter(SIM_USER_COPY);
	while (done < len) {
		size_t n = GM_MIN(len - done, sizeof(buf));
		/* Backwards where a forward copy would eat its source. */
		uint64_t at = dst > src ? len - done - n : done;

		err = sim_cpu_access_range(as->host.sim, src + at, buf, n,
					   false);
		if (!err)
			err = sim_cpu_access_range(as->host.sim, dst + at, buf,
						   n, true);
		if (err)
			return err;
		done += n;
	}
	return 0;
}
