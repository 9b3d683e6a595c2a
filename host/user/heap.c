/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * heap.c - the manager's own small memory
 *
 * The program may hold its allocator's lock while it waits for us to bring a
 * page, so malloc() is not for us. Sizes are known when memory is given back,
 * so blocks need no header: small ones come from free lists by size class,
 * large ones are mappings.
 */
#include <string.h>

#include "sys.h"
#include "user.h"

#if defined(__SANITIZE_ADDRESS__)
void __asan_poison_memory_region(void const volatile *addr, size_t size);
void __asan_unpoison_memory_region(void const volatile *addr, size_t size);
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

#define SMALLEST 64ULL
#define LARGEST 65536ULL
#define NR_CLASSES 21 /* 64, 96 -> 128, 192, 256, 384, ... 65536 */
#define CHUNK (1ULL << 20)

struct block {
	struct block *next;
};

/**
 * struct heap - free blocks by class
 * @lock: rank HEAP
 * @free: blocks given back, each with dirt in it
 * @bump: the rest of the newest chunk, all zeros
 * @left: bytes there
 */
static struct heap {
	struct gm_lock lock;
	struct block *free[NR_CLASSES]; /* (lock) */
	char *bump; /* (lock) */
	uint64_t left; /* (lock) */
} heap;

/* Classes go up by half of a power of two, in multiples of 64. */
static unsigned int class_of(uint64_t size, uint64_t *rounded)
{
	uint64_t step = SMALLEST;
	unsigned int class = 0;

	while (step < size) {
		if (step >= 2 * SMALLEST && step + step / 2 >= size) {
			*rounded = step + step / 2;
			return class + 1;
		}
		step *= 2;
		class += 2;
	}
	*rounded = step;
	return class;
}

static void *map_large(uint64_t size)
{
	void *p = gm_sys_mmap(0, size, PROT_READ | PROT_WRITE, 0);

	return p == MAP_FAILED ? NULL : p;
}

static uint64_t whole_small_pages(uint64_t size)
{
	return (size + GM_SMALL_PAGE - 1) & ~(GM_SMALL_PAGE - 1);
}

/* What is left of the old chunk is smaller than a block and forgotten. */
static void *carve_locked(uint64_t size)
{
	char *p;

	if (heap.left < size) {
		p = map_large(CHUNK);
		if (!p)
			return NULL;
		POISON(p, CHUNK);
		heap.bump = p;
		heap.left = CHUNK;
	}
	p = heap.bump;
	heap.bump += size;
	heap.left -= size;
	UNPOISON(p, size);
	return p;
}

void *gm_host_zalloc(size_t size)
{
	struct block *block;
	unsigned int class;
	uint64_t rounded;

	if (size > LARGEST)
		return size > SIZE_MAX / 2 ? NULL
					   : map_large(whole_small_pages(size));
	class = class_of(size, &rounded);
	gm_lock(&heap.lock, GM_RANK_HEAP);
	block = heap.free[class];
	if (block) {
		UNPOISON(block, rounded);
		heap.free[class] = block->next;
	} else {
		block = carve_locked(rounded);
		gm_unlock(&heap.lock, GM_RANK_HEAP);
		return block;
	}
	gm_unlock(&heap.lock, GM_RANK_HEAP);
	return memset(block, 0, rounded);
}

void gm_host_zfree(void *p, size_t size)
{
	struct block *block = p;
	unsigned int class;
	uint64_t rounded;

	if (!p)
		return;
	if (size > LARGEST) {
		gm_sys_munmap((uint64_t)p, whole_small_pages(size));
		return;
	}
	class = class_of(size, &rounded);
	gm_lock(&heap.lock, GM_RANK_HEAP);
	block->next = heap.free[class];
	heap.free[class] = block;
	POISON(block, rounded);
	gm_unlock(&heap.lock, GM_RANK_HEAP);
}
