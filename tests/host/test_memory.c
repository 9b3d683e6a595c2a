/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The heap, the arena, frames, access to the program's memory. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "fake.h"

#define BLOCKS 3000
/* Outside the arena, and where the thread sanitizer allows memory. */
#define FAR 0x7e8100000000ULL

START_TEST(heap_zeroes_and_aligns)
{
	static unsigned char *p[BLOCKS];
	static size_t size[BLOCKS];
	unsigned int round, i;
	size_t k;

	srand(1);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < BLOCKS; i++) {
			size[i] = (size_t)(rand() % 5000) + 1;
			if (i % 100 == 0)
				size[i] *= 50;
			p[i] = gm_host_zalloc(size[i]);
			ck_assert_ptr_nonnull(p[i]);
			ck_assert_uint_eq((uintptr_t)p[i] % 64, 0);
			ck_assert(!p[i][0] &&
				  !memcmp(p[i], p[i] + 1, size[i] - 1));
			memset(p[i], (int)(i | 1), size[i]);
		}
		for (i = 0; i < BLOCKS; i++) {
			for (k = 0; k < size[i]; k += 13) {
				if (p[i][k] != (unsigned char)(i | 1))
					ck_abort_msg("block %u overwritten", i);
			}
			gm_host_zfree(p[i], size[i]);
		}
	}
	gm_host_zfree(NULL, 10);
	ck_assert_ptr_null(gm_host_zalloc(SIZE_MAX));
	ck_assert_ptr_null(gm_host_zalloc(SIZE_MAX / 4));
}
END_TEST

START_TEST(heap_reuses)
{
	void *p = gm_host_zalloc(1000), *q;

	gm_host_zfree(p, 1000);
	q = gm_host_zalloc(990);
	ck_assert_ptr_eq(p, q);
}
END_TEST

static uint64_t map(uint64_t hint, unsigned int pages, unsigned int flags,
		    int want)
{
	uint64_t va = 0;
	int rc = gm_host_range_map(fake_as, hint, pages * GM_PAGE_SIZE,
				   GM_PROT_READ | GM_PROT_WRITE, flags, &va);

	ck_assert_int_eq(rc, want);
	return va;
}

START_TEST(arena_first_fit)
{
	uint64_t a, b, c, d;

	fake_start(1, 0);
	ck_assert_uint_eq(fake_base, GM_ARENA_BASE);
	a = map(0, 4, 0, 0);
	b = map(0, 4, 0, 0);
	c = map(0, 4, 0, 0);
	ck_assert_uint_eq(b, a + 4 * GM_PAGE_SIZE);
	ck_assert_uint_eq(c, b + 4 * GM_PAGE_SIZE);
	gm_host_range_unmap(fake_as, b, 4 * GM_PAGE_SIZE);
	d = map(0, 5, 0, 0); /* does not fit in the hole */
	ck_assert_uint_eq(d, c + 4 * GM_PAGE_SIZE);
	ck_assert_uint_eq(map(0, 3, 0, 0), b);
	ck_assert_uint_eq(map(0, 1, 0, 0), b + 3 * GM_PAGE_SIZE);
	/* Half a page is no room. */
	gm_host_range_unmap(fake_as, a, GM_PAGE_SIZE / 2);
	ck_assert_uint_gt(map(0, 1, 0, 0), d);
	gm_host_range_unmap(fake_as, a + GM_PAGE_SIZE / 2, GM_PAGE_SIZE / 2);
	ck_assert_uint_eq(map(0, 1, 0, 0), a);
}
END_TEST

START_TEST(arena_goes_round_strangers)
{
	uint64_t at = GM_ARENA_BASE + GM_PAGE_SIZE;

	fake_start(1, 0);
	ck_assert_ptr_ne(gm_sys_mmap(at, 4096, PROT_READ, MAP_FIXED),
			 MAP_FAILED);
	ck_assert_uint_ge(map(0, 2, 0, 0), at + GM_PAGE_SIZE);
	map(at, 1, GM_RANGE_FIXED | GM_RANGE_NOREPLACE, -EEXIST);
	ck_assert_uint_ne(map(at, 1, 0, 0), at); /* a hint only */
	ck_assert_uint_eq(map(at, 1, GM_RANGE_FIXED, 0), at);
	*(volatile char *)(at + 5000) = 1;
	ck_assert_uint_eq(map(FAR, 1, 0, 0), FAR);
	ck_assert_int_eq(gm_host_range_map(fake_as, 0, 17ULL << 40, 3, 0, &at),
			 -ENOMEM);
	ck_assert_uint_gt(strlen(gm_error()), 10);
}
END_TEST

START_TEST(frames_are_huge_and_zero)
{
	struct gm_page *pages[40];
	unsigned int i;
	char *p;

	fake_start(1, 1);
	for (i = 0; i < 40; i++) {
		ck_assert_int_eq(gm_host_page_get(fake_as, GM_NODE_NONE,
						  GM_HOST_ZEROED, &pages[i]),
				 0);
		p = gm_host_page_ptr(pages[i]);
		ck_assert_uint_eq((uintptr_t)p & GM_PAGE_MASK, 0);
		ck_assert(!p[0] && !memcmp(p, p + 1, GM_PAGE_SIZE - 1));
		ck_assert_uint_eq(fake_huge(p, GM_PAGE_SIZE), GM_PAGE_SIZE);
		memset(p, 0xff, GM_PAGE_SIZE);
	}
	for (i = 0; i < 40; i++)
		gm_host_page_put(fake_as, pages[i]);
	for (i = 0; i < 40; i++) { /* recycled ones are zero, too */
		ck_assert_int_eq(
			gm_host_page_get(fake_as, 0, GM_HOST_ZEROED, &pages[i]),
			0);
		p = gm_host_page_ptr(pages[i]);
		ck_assert(!p[0] && !memcmp(p, p + 1, GM_PAGE_SIZE - 1));
	}
	for (i = 0; i < 40; i++)
		gm_host_page_put(fake_as, pages[i]);
	fake_stop();
}
END_TEST

START_TEST(slots_are_neighbours)
{
	struct gm_page *a[GM_BATCH], *b[GM_BATCH];
	unsigned int i;

	fake_start(1, 0);
	ck_assert_int_eq(gm_host_slots_get(fake_as, a, GM_BATCH), 0);
	ck_assert_int_eq(gm_host_slots_get(fake_as, b, 5), 0);
	for (i = 1; i < GM_BATCH; i++)
		ck_assert_uint_eq(a[i]->addr, a[i - 1]->addr + GM_PAGE_SIZE);
	for (i = 0; i < GM_BATCH; i++)
		gm_host_page_put(fake_as, a[i]);
	for (i = 0; i < 5; i++)
		gm_host_page_put(fake_as, b[i]);
	/* All that there can be, and an error at the end. */
	for (i = 0; gm_host_slots_get(fake_as, a, GM_BATCH) == 0; i++)
		ck_assert_uint_lt(i, 1U << 20);
	ck_assert_uint_gt(i, 100);
	fake_stop();
}
END_TEST

static uint64_t rss(void)
{
	unsigned long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (fscanf(f, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	fclose(f);
	return resident * 4096;
}

START_TEST(recycle_off)
{
	struct gm_page *pages[100];
	uint64_t before, until;
	unsigned int i;

	setenv("GMM_RECYCLE", "0", 1);
	fake_start(1, 1);
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(gm_host_page_get(fake_as, 0, 0, &pages[i]), 0);
	before = rss();
	for (i = 0; i < 100; i++)
		gm_host_page_put(fake_as, pages[i]);
	until = gm_host_now() + 10000000000ULL;
	while (rss() > before - 80 * GM_PAGE_SIZE && gm_host_now() < until)
		gm_host_sleep_until(gm_host_now() + 1000000);
	ck_assert_uint_le(rss(), before - 80 * GM_PAGE_SIZE);
	fake_stop();
}
END_TEST

/* Only reclaim may have the last ones. */
static int refuse_populate(enum gm_sys_call call, unsigned long what)
{
	return call == GM_SYS_MADVISE && what == MADV_POPULATE_WRITE ? ENOMEM
								     : 0;
}

START_TEST(reserve_is_kept)
{
	struct gm_page *page;
	unsigned int n = 0;

	fake_start(1, 1);
	gm_store(&gm_sys_hook, refuse_populate);
	while (gm_host_page_get(fake_as, 0, 0, &page) == 0)
		n++;
	ck_assert_str_eq(gm_error(), "no host memory for a page");
	for (n = 0; gm_host_page_get(fake_as, 0, GM_HOST_RESERVE, &page) == 0;
	     n++)
		;
	/* At least: a frame may just have been zeroed ready. */
	ck_assert_uint_ge(n, GM_RESERVE_FRAMES);
	gm_store(&gm_sys_hook, NULL);
}
END_TEST

START_TEST(attach_fails_without_reserve)
{
	unsigned int threads = fake_count_threads();

	gm_store(&gm_sys_hook, NULL);
	fake_start(1, 0);
	gm_store(&gm_sys_hook, refuse_populate);
	ck_assert_int_eq(gm_host_range_track(fake_as, fake_base, GM_PAGE_SIZE),
			 -ENOMEM);
	ck_assert_uint_eq(fake_count_threads(), threads);
	gm_store(&gm_sys_hook, NULL);
	ck_assert_int_eq(gm_host_range_track(fake_as, fake_base, GM_PAGE_SIZE),
			 0);
	fake_stop();
}
END_TEST

START_TEST(user_memory)
{
	char buf[8192] = "text", out[8192];
	char *hole = gm_sys_mmap(0, 3 * 4096, PROT_READ, 0);

	fake_start(2, 0);
	memset(fake_ptr(0), 7, 100);
	ck_assert_int_eq(gm_host_user_read(fake_as, out, fake_base, 100), 0);
	ck_assert_int_eq(out[99], 7);
	ck_assert_int_eq(gm_host_user_write(fake_as, fake_base, buf, 5), 0);
	ck_assert_str_eq(fake_ptr(0), "text");
	ck_assert_int_eq(
		gm_host_user_copy(fake_as, fake_base + 2, fake_base, 5), 0);
	ck_assert_str_eq(fake_ptr(0), "tetext");
	gm_sys_munmap((uint64_t)hole + 4096, 4096);
	ck_assert_int_eq(gm_host_user_read(fake_as, out, (uint64_t)hole, 4096),
			 0);
	ck_assert_int_eq(gm_host_user_read(fake_as, out, (uint64_t)hole, 4097),
			 -EFAULT);
	ck_assert_int_eq(gm_host_user_write(fake_as, (uint64_t)hole, buf, 1),
			 -EFAULT);
	ck_assert_int_eq(gm_host_user_read(fake_as, out, 8, 8), -EFAULT);
	ck_assert_int_eq(gm_host_user_read(fake_as, out, ~7ULL, 16), -EFAULT);
	fake_stop();
}
END_TEST

START_TEST(copies)
{
	char *a = gm_host_zalloc(2 * GM_PAGE_SIZE), *b = a + GM_PAGE_SIZE;
	size_t sizes[] = { 1, 63, 64, 128, 1000, 4096, GM_PAGE_SIZE };
	unsigned int i, off;

	gm_copy_calibrate();
	for (i = 0; i < GM_PAGE_SIZE; i++)
		a[i] = (char)(i * 7 + i / 256);
	for (i = 0; i < 7; i++) {
		for (off = 0; off < 3 && off + sizes[i] <= GM_PAGE_SIZE;
		     off++) {
			gm_host_copy(b + off, a + off, sizes[i]);
			ck_assert(!memcmp(a + off, b + off, sizes[i]));
			gm_host_zero(b + off, sizes[i]);
			ck_assert(!b[off] &&
				  !memcmp(b + off, b + off + 1, sizes[i] - 1));
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory");

	fake_add(suite, heap_zeroes_and_aligns);
	fake_add(suite, heap_reuses);
	fake_add(suite, arena_first_fit);
	fake_add(suite, arena_goes_round_strangers);
	fake_add(suite, frames_are_huge_and_zero);
	fake_add(suite, slots_are_neighbours);
	fake_add(suite, recycle_off);
	fake_add(suite, reserve_is_kept);
	fake_add(suite, user_memory);
	fake_add(suite, copies);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
	/* The sanitizers have mappings and threads of their own. */
	fake_add(suite, attach_fails_without_reserve);
#else
	(void)attach_fails_without_reserve;
#endif
	return fake_run(suite);
}
