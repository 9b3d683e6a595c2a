// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * heap.c - the manager's small memory, at the same addresses in every run
 *
 * What is freed is filled with a pattern and kept back for a while. If the
 * pattern has changed when its turn comes, somebody wrote to it. Under the
 * address sanitizer every access to it is caught.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/sim/sim.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#define HEAP_ADDR ((char *)0x200000000000)
#define HEAP_SIZE (2ull << 30)
#define HEAP_CLASSES 1024 /* multiples of 64 bytes, to 64 KiB */
#define HEAP_KEEP 512 /* frees before memory is used again */
#define HEAP_FREED 0xdf
#define HEAP_MAGIC 0x51a110cull

struct heap_block {
	uint64_t magic;
	uint64_t size; /* rounded */
	uint64_t asked;
	void *caller;
	struct heap_block *next;
	struct heap_block *prev;
	uint64_t pad[2]; /* what follows is aligned to 64 */
};

static char *heap;
static char *heap_next;
static struct heap_block *heap_free[HEAP_CLASSES + 1];
static struct heap_block heap_live = { .next = &heap_live, .prev = &heap_live };
static struct heap_block *heap_kept[HEAP_KEEP];
static unsigned int heap_kept_at;

static void *heap_data(struct heap_block *b)
{
	return b + 1;
}

void sim_heap_init(void)
{
	if (!heap) {
		heap = mmap(HEAP_ADDR, HEAP_SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
				    MAP_FIXED_NOREPLACE,
			    -1, 0);
		if (heap != HEAP_ADDR) {
			fprintf(stderr, "no room for the simulated heap\n");
			exit(2);
		}
	}
	heap_next = heap;
	memset(heap_free, 0, sizeof(heap_free));
	memset(heap_kept, 0, sizeof(heap_kept));
	heap_live.next = heap_live.prev = &heap_live;
	heap_kept_at = 0;
	sim.heap_live = 0;
}

static void heap_check_kept(struct heap_block *b)
{
#ifndef __SANITIZE_ADDRESS__
	const uint64_t *p = heap_data(b);
	uint64_t i;

	for (i = 0; i < b->size / 8; i++)
		SIM_CHECK(p[i] == 0x0101010101010101ull * HEAP_FREED,
			  "write to freed memory: %p + %lu, freed by %p",
			  (void *)p, (unsigned long)(i * 8), b->caller);
#endif
}

bool sim_heap_owns(const void *p, size_t len)
{
	return (const char *)p >= heap && (const char *)p + len <= heap_next;
}

void sim_heap_exit(void)
{
	unsigned int i;

	for (i = 0; i < HEAP_KEEP; i++)
		if (heap_kept[i])
			heap_check_kept(heap_kept[i]);
	if (sim.heap_live) {
		const struct heap_block *b;

		for (b = heap_live.next; b != &heap_live; b = b->next)
			fprintf(stderr, "  leaked: %lu bytes, made by %p\n",
				(unsigned long)b->asked, b->caller);
		sim_violation("%lu bytes of small memory leaked",
			      (unsigned long)sim.heap_live);
	}
	ASAN_UNPOISON_MEMORY_REGION(heap, heap_next - heap);
}

void *gm_host_zalloc(size_t size)
{
	uint64_t rounded = (GM_MAX(size, 1) + 63) & ~63ull;
	uint64_t class = rounded / 64;
	struct heap_block *b = NULL;

	sim_enter(SIM_ZALLOC);
	SIM_CHECK(sim_rank_held() < GM_RANK_HEAP &&
			  !sim_holds_rank(GM_RANK_NODE),
		  "zalloc with rank %d held", sim_rank_held());
	if (sim_inject(SIM_ZALLOC))
		return NULL;
	if (class <= HEAP_CLASSES && heap_free[class]) {
		b = heap_free[class];
		heap_free[class] = b->next;
	} else {
		if (heap_next + sizeof(*b) + rounded > heap + HEAP_SIZE)
			return NULL;
		b = (struct heap_block *)heap_next;
		heap_next += sizeof(*b) + rounded;
	}
	ASAN_UNPOISON_MEMORY_REGION(b, sizeof(*b) + rounded);
	b->magic = HEAP_MAGIC;
	b->size = rounded;
	b->asked = size;
	b->caller = __builtin_return_address(0);
	b->next = heap_live.next;
	b->prev = &heap_live;
	b->next->prev = b;
	heap_live.next = b;
	sim.heap_live += size;
	memset(heap_data(b), 0, rounded);
	ASAN_POISON_MEMORY_REGION((char *)heap_data(b) + size, rounded - size);
	return heap_data(b);
}

static void heap_reuse(struct heap_block *b)
{
	uint64_t class = b->size / 64;

	heap_check_kept(b);
	if (class > HEAP_CLASSES)
		return; /* never again in this run */
	b->next = heap_free[class];
	heap_free[class] = b;
}

void gm_host_zfree(void *p, size_t size)
{
	struct heap_block *b;

	sim_enter(SIM_ZFREE);
	SIM_CHECK(!sim_holds_rank(GM_RANK_NODE), "zfree with rank NODE held");
	if (!p)
		return;
	b = (struct heap_block *)p - 1;
	SIM_CHECK(sim_heap_owns(b, sizeof(*b)) && !((uintptr_t)p & 63),
		  "zfree of what is not ours: %p", p);
	ASAN_UNPOISON_MEMORY_REGION(b, sizeof(*b));
	SIM_CHECK(b->magic == HEAP_MAGIC, "double free of %p, freed by %p", p,
		  b->caller);
	SIM_CHECK(b->asked == size, "zfree(%lu) of %lu bytes made by %p",
		  (unsigned long)size, (unsigned long)b->asked, b->caller);
	sim_lock_check_freed(p, size);
	sim.heap_live -= size;
	b->next->prev = b->prev;
	b->prev->next = b->next;
	b->magic = 0;
	b->caller = __builtin_return_address(0);
	ASAN_UNPOISON_MEMORY_REGION(p, b->size);
	memset(p, HEAP_FREED, b->size);
	if (heap_kept[heap_kept_at])
		heap_reuse(heap_kept[heap_kept_at]);
	heap_kept[heap_kept_at] = b;
	heap_kept_at = (heap_kept_at + 1) % HEAP_KEEP;
	ASAN_POISON_MEMORY_REGION(p, b->size);
}
