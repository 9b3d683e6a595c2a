/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * munmap.c - memory goes, moves and changes its rights, by the library's calls
 * and by the program's own, wherever its data is
 */
#include "harness.h"

/* By which call: the library's or the system's. */
static int unmap_by(int own, void *p, size_t len)
{
	return own ? munmap(p, len) : gm_munmap(p, len);
}

START_TEST(munmap_arguments)
{
	char *p = um(2);

	fails(gm_munmap(p + 1, PAGE), EINVAL);
	fails(gm_munmap(p, 0), EINVAL);
	fails(gm_munmap(p, SIZE_MAX), EINVAL);
	fails(gm_munmap(p + 4 * PAGE, PAGE), EINVAL);
	*p = 1;
	works(gm_munmap(p, 2 * PAGE));
	fails(gm_munmap(p, 2 * PAGE), EINVAL);
}
END_TEST

START_TEST(munmap_leaves_other_memory_in_the_range)
{
	char *p = um(3), *other;

	works(gm_munmap(p + PAGE, PAGE));
	other = mmap(p + PAGE, PAGE, RW,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	ck_assert_ptr_eq(other, p + PAGE);
	*other = 9;
	works(gm_munmap(p, 3 * PAGE));
	ck_assert_int_eq(*other, 9);
	ck_assert_int_eq(touch_signal(p, 0), SIGSEGV);
	ck_assert_int_eq(touch_signal(p + 2 * PAGE, 0), SIGSEGV);
	munmap(other, PAGE);
}
END_TEST

/* The middle page of three goes, wherever it is; an XPU's access then fails. */
static void unmap_middle(int own, enum place place)
{
	char *p = um(3);
	struct kargs a = { .src = (uint64_t *)(p + PAGE), .n = 1 };
	struct gm_where w;

	put(&gpu, p, 3 * PAGE, 5, place);
	works(unmap_by(own, p + PAGE, PAGE));
	/* Any call of the library sees what the program has done before. */
	ck_assert_int_eq(gm_where(p + PAGE, &w), -EFAULT);
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &a), -EFAULT);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	ck_assert_int_eq(touch_signal(p + PAGE, 1), SIGSEGV);
	gpu_check(&gpu, p, PAGE, 5);
	cpu_check_from(p, 2 * WORDS, 3 * WORDS, 5);
	cpu_check_from(p, 0, WORDS, 5);
	works(unmap_by(own, p, 3 * PAGE));
}

START_TEST(whole_page_by_gm_munmap)
{
	gpu_start(&gpu, 4);
	unmap_middle(0, (enum place)_i);
}
END_TEST

START_TEST(whole_page_by_munmap)
{
	gpu_start(&gpu, 4);
	unmap_middle(1, (enum place)_i);
}
END_TEST

/* 4 KiB out of a page: the rest of it stays on the CPU for good. */
static void cut(int own, enum place place)
{
	char *p = um(2);
	size_t hole = PAGE / 2;
	struct kargs a = { .src = (uint64_t *)p, .n = 1 };
	struct gm_stats s;

	put(&gpu, p, 2 * PAGE, 6, place);
	s = stats();
	works(unmap_by(own, p + hole, SMALL));
	ck_assert_int_eq(where(p).state, GM_STATE_FRAGMENTED);
	ck_assert_uint_eq(since(s, fragmented), 1);
	ck_assert_int_eq(touch_signal(p + hole, 0), SIGSEGV);
	cpu_check_from(p, 0, hole / 8, 6);
	cpu_check_from(p, (hole + SMALL) / 8, WORDS, 6);
	p[0] = p[PAGE - 1] = 3;
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &a), -EFAULT);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	/* The neighbour lives on. */
	a.dst = (uint64_t *)(p + PAGE);
	a.n = WORDS;
	a.seed = 1;
	gpu_run(&gpu, "increment", 1, &a);
	ck_assert_uint_eq(*(uint64_t *)(p + PAGE), pattern(6, WORDS) + 1);
	works(unmap_by(own, p, 2 * PAGE));
}

START_TEST(small_piece_by_gm_munmap)
{
	gpu_start(&gpu, 4);
	cut(0, (enum place)_i);
}
END_TEST

START_TEST(small_piece_by_munmap)
{
	gpu_start(&gpu, 4);
	cut(1, (enum place)_i);
}
END_TEST

START_TEST(unmapped_addresses_can_be_used_at_once)
{
	gpu_start(&gpu, 4);
	for (int round = 0; round < 30; round++) {
		char *p = um(2), *q;

		gpu_fill(&gpu, p, 2 * PAGE, (uint64_t)round);
		works(unmap_by(round & 1, p, 2 * PAGE));
		q = gm_mmap(p, 2 * PAGE, RW, UNIFIED | MAP_FIXED_NOREPLACE, -1,
			    0);
		ck_assert_msg(q == p, "%s", gm_error());
		gpu_sum_is(&gpu, q, 2 * PAGE, 0);
		ck_assert_int_eq(*q, 0);
		works(gm_munmap(q, 2 * PAGE));
	}
}
END_TEST

/* The library hears of the first when the second has been done already. */
START_TEST(discarded_and_unmapped_at_once)
{
	gpu_start(&gpu, 4);
	for (int round = 0; round < 300; round++) {
		char *p = um(1);
		struct gm_where w;

		*p = 1;
		works(madvise(p, PAGE, MADV_DONTNEED));
		works(munmap(p, PAGE));
		ck_assert_int_eq(gm_where(p, &w), -EFAULT);
	}
}
END_TEST

/* --- mremap -------------------------------------------------------------- */

START_TEST(mremap_arguments)
{
	char *p = um(2), *q = um(1);

	fails_map(gm_mremap(p + SMALL, PAGE, PAGE, 0), EINVAL);
	fails_map(gm_mremap(p, 0, PAGE, 0), EINVAL);
	fails_map(gm_mremap(p, PAGE, 0, 0), EINVAL);
	fails_map(gm_mremap(p, PAGE, PAGE, MREMAP_FIXED | MREMAP_MAYMOVE),
		  EINVAL);
	fails_map(gm_mremap(p, SIZE_MAX - PAGE, PAGE, MREMAP_MAYMOVE), EINVAL);
	fails_map(gm_mremap(p, 2 * PAGE, (size_t)1 << 50, MREMAP_MAYMOVE),
		  ENOMEM);
	works(gm_munmap(q, PAGE));
	fails_map(gm_mremap(q, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
	ck_assert_ptr_eq(gm_mremap(p, 2 * PAGE, 2 * PAGE, 0), p);
}
END_TEST

START_TEST(mremap_moves_pages_without_copies)
{
	char *p, *q, *wall;
	struct gm_stats s;

	gpu_start(&gpu, 8);
	p = um(3);
	put(&gpu, p, 3 * PAGE, 4, (enum place)_i);
	wall = mmap(p + 3 * PAGE, SMALL, RW,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	fails_map(gm_mremap(p, 3 * PAGE, 5 * PAGE, 0), ENOMEM);
	s = stats();
	q = gm_mremap(p, 3 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
	ck_assert_msg(q != MAP_FAILED, "%s", gm_error());
	ck_assert_ptr_ne(q, p);
	ck_assert_uint_eq(since(s, bytes_to_host), 0);
	ck_assert_uint_eq(since(s, bytes_to_xpu), 0);
	gpu_check(&gpu, q, 3 * PAGE, 4);
	cpu_check(q, 3 * PAGE, 4);
	all_zero(q + 3 * PAGE, 2 * PAGE);
	gpu_fill(&gpu, q, 5 * PAGE, 5);
	cpu_check(q, 5 * PAGE, 5);
	ck_assert_int_eq(touch_signal(p, 0), SIGSEGV);
	if (wall != MAP_FAILED)
		munmap(wall, SMALL);
}
END_TEST

START_TEST(mremap_grows_and_shrinks_in_place)
{
	char *p = um(6), *q;

	gpu_start(&gpu, 8);
	works(gm_munmap(p + 2 * PAGE, 4 * PAGE));
	gpu_fill(&gpu, p, 2 * PAGE, 1);
	q = gm_mremap(p, 2 * PAGE, 4 * PAGE, 0);
	ck_assert_msg(q == p, "%s", gm_error());
	gpu_fill(&gpu, p + 2 * PAGE, 2 * PAGE, 2);
	q = gm_mremap(p, 4 * PAGE, PAGE, 0);
	ck_assert_ptr_eq(q, p);
	ck_assert_int_eq(touch_signal(p + PAGE, 0), SIGSEGV);
	cpu_check(p, PAGE, 1);
}
END_TEST

/* The program's own mremap(): the XPU follows. */
START_TEST(own_mremap_is_followed)
{
	char *p, *to, *q;

	gpu_start(&gpu, 8);
	p = um(2);
	to = um(2); /* a place that is aligned and free */
	works(gm_munmap(to, 2 * PAGE));
	put(&gpu, p, 2 * PAGE, 4, (enum place)_i);
	q = mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ck_assert_ptr_eq(q, to);
	cpu_check(q, PAGE, 4);
	gpu_check(&gpu, q, 2 * PAGE, 4);
	cpu_check(q, 2 * PAGE, 4);
	gpu_fill(&gpu, q, 2 * PAGE, 6);
	cpu_check(q, 2 * PAGE, 6);
	ck_assert_int_eq(touch_signal(p, 0), SIGSEGV);
}
END_TEST

START_TEST(own_mremap_to_an_odd_address_makes_plain_memory)
{
	char *p, *hole, *to, *q;
	struct gm_where w;

	gpu_start(&gpu, 8);
	p = um(2);
	put(&gpu, p, 2 * PAGE, 4, (enum place)_i);
	hole = plain(6 * PAGE);
	to = (char *)(((uintptr_t)hole + PAGE) / PAGE * PAGE) + 3 * SMALL;
	q = mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	ck_assert_ptr_eq(q, to);
	cpu_check(q, 2 * PAGE, 4);
	ck_assert_int_eq(gm_where(q, &w), -EFAULT);
	munmap(hole, 6 * PAGE);
}
END_TEST

/* --- mprotect ------------------------------------------------------------ */

START_TEST(mprotect_arguments)
{
	char *p = um(2);

	fails(gm_mprotect(p + 1, PAGE, PROT_READ), EINVAL);
	fails(gm_mprotect(p, PAGE, PROT_EXEC), EINVAL);
	fails(gm_mprotect(p, PAGE, PROT_WRITE), EINVAL);
	fails(gm_mprotect(p, SIZE_MAX - SMALL, PROT_READ), EINVAL);
	fails(gm_mprotect(p, 3 * PAGE, PROT_READ), ENOMEM);
	*p = 1; /* nothing was changed */
}
END_TEST

START_TEST(mprotect_binds_both_processors)
{
	char *p;
	struct kargs a = { .n = 1, .seed = 77 };

	gpu_start(&gpu, 4);
	p = um(2);
	put(&gpu, p, 2 * PAGE, 4, (enum place)_i);
	works(gm_mprotect(p, PAGE, PROT_READ));
	a.dst = (uint64_t *)p;
	a.src = (uint64_t *)p;
	gpu_check(&gpu, p, PAGE, 4);
	ck_assert_int_eq(gpu_try(&gpu, "poke", 1, &a), -EACCES);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	cpu_check(p, PAGE, 4);
	ck_assert_int_eq(touch_signal(p, 1), SIGSEGV);
	gpu_check(&gpu, p, PAGE, 4);
	works(gm_mprotect(p, PAGE, PROT_NONE));
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &a), -EACCES);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	ck_assert_int_eq(touch_signal(p, 0), SIGSEGV);
	works(gm_mprotect(p, PAGE, RW));
	gpu_check(&gpu, p, 2 * PAGE, 4);
	gpu_run(&gpu, "poke", 1, &a);
	ck_assert_uint_eq(*(uint64_t *)p, 77);
	cpu_check_from(p, 1, 2 * WORDS, 4);
}
END_TEST

START_TEST(mprotect_of_a_small_piece)
{
	char *p;

	gpu_start(&gpu, 4);
	p = um(2);
	put(&gpu, p, 2 * PAGE, 4, (enum place)_i);
	works(gm_mprotect(p + SMALL, SMALL, PROT_READ));
	ck_assert_int_eq(where(p).state, GM_STATE_FRAGMENTED);
	cpu_check(p, PAGE, 4);
	ck_assert_int_eq(touch_signal(p + SMALL, 1), SIGSEGV);
	ck_assert_int_eq(touch_signal(p, 1), 0);
	ck_assert_int_eq(touch_signal(p + 2 * SMALL, 1), 0);
	gpu_sum_is(&gpu, p + PAGE, 8, pattern(4, WORDS));
}
END_TEST

/* A read-only region still goes out and comes home, again and again. */
START_TEST(read_only_pages_migrate)
{
	char *p;

	gpu_start(&gpu, 4);
	p = um(2);
	cpu_fill(p, 2 * PAGE, 9);
	works(gm_mprotect(p, 2 * PAGE, PROT_READ));
	for (int round = 0; round < 3; round++) {
		gpu_check(&gpu, p, 2 * PAGE, 9);
		cpu_check(p, 2 * PAGE, 9);
		works(gmadvise(gpu.node, p, 2 * PAGE, GM_WILLNEED));
		evict_all(&gpu);
		cpu_check(p, 2 * PAGE, 9);
	}
}
END_TEST

/* An mprotect() that nobody reports: found out when the page moves. */
START_TEST(own_mprotect_loses_nothing)
{
	char *p;

	gpu_start(&gpu, 4);
	p = um(2);
	cpu_fill(p, 2 * PAGE, 9);
	ck_assert_int_eq(mprotect(p, 2 * PAGE, PROT_READ), 0);
	gpu_check(&gpu, p, 2 * PAGE, 9);
	cpu_check(p, 2 * PAGE, 9);
	ck_assert_int_eq(mprotect(p, 2 * PAGE, RW), 0);
	gpu_check(&gpu, p, 2 * PAGE, 9);
	gpu_fill(&gpu, p, 2 * PAGE, 10);
	/* While it is away. */
	ck_assert_int_eq(mprotect(p, 2 * PAGE, PROT_READ), 0);
	cpu_check(p, 2 * PAGE, 10);
	ck_assert_int_eq(touch_signal(p, 1), SIGSEGV);
}
END_TEST

/* The plain discard of the program. */
START_TEST(own_madvise_dontneed_is_followed)
{
	char *p;

	gpu_start(&gpu, 4);
	p = um(3);
	put(&gpu, p, 3 * PAGE, 4, (enum place)_i);
	ck_assert_int_eq(madvise(p + PAGE, PAGE, MADV_DONTNEED), 0);
	cpu_check(p, PAGE, 4);
	all_zero(p + PAGE, PAGE);
	cpu_check_from(p, 2 * WORDS, 3 * WORDS, 4);
	put(&gpu, p, 3 * PAGE, 5, (enum place)_i);
	ck_assert_int_eq(madvise(p + PAGE + SMALL, SMALL, MADV_DONTNEED), 0);
	gpu_peek(&gpu, p, 3);
	cpu_check_from(p, 0, WORDS + SMALL / 8, 5);
	all_zero(p + PAGE + SMALL, SMALL);
	cpu_check_from(p, WORDS + 2 * SMALL / 8, 3 * WORDS, 5);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, munmap_arguments);
	tcase_add_test(tc, munmap_leaves_other_memory_in_the_range);
	tcase_add_loop_test(tc, whole_page_by_gm_munmap, 0, NR_PLACES);
	tcase_add_loop_test(tc, whole_page_by_munmap, 0, NR_PLACES);
	tcase_add_loop_test(tc, small_piece_by_gm_munmap, 0, NR_PLACES);
	tcase_add_loop_test(tc, small_piece_by_munmap, 0, NR_PLACES);
	tcase_add_test(tc, unmapped_addresses_can_be_used_at_once);
	tcase_add_test(tc, discarded_and_unmapped_at_once);
	tcase_add_test(tc, mremap_arguments);
	tcase_add_loop_test(tc, mremap_moves_pages_without_copies, 0,
			    NR_PLACES);
	tcase_add_test(tc, mremap_grows_and_shrinks_in_place);
	tcase_add_loop_test(tc, own_mremap_is_followed, 0, NR_PLACES);
	tcase_add_loop_test(tc, own_mremap_to_an_odd_address_makes_plain_memory,
			    0, NR_PLACES);
	tcase_add_test(tc, mprotect_arguments);
	tcase_add_loop_test(tc, mprotect_binds_both_processors, 0, NR_PLACES);
	tcase_add_loop_test(tc, mprotect_of_a_small_piece, 0, NR_PLACES);
	tcase_add_test(tc, read_only_pages_migrate);
	tcase_add_test(tc, own_mprotect_loses_nothing);
	tcase_add_loop_test(tc, own_madvise_dontneed_is_followed, 0, NR_PLACES);
}

int main(void)
{
	return run_suite("munmap", add);
}
