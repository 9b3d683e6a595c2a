/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * preload.c - an unchanged program under the preload library: plain mmap() and
 * its relatives understand unified memory
 */
#include "harness.h"

START_TEST(plain_mmap_makes_unified_memory)
{
	char *p = mmap(NULL, 2 * PAGE, RW, UNIFIED, -1, 0);
	char *q = mmap(NULL, SMALL, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gm_where w;

	ck_assert_msg(p != MAP_FAILED, "%s", gm_error());
	gpu_start(&gpu, 4);
	ck_assert_int_eq(gm_where(q, &w), -EFAULT);
	gpu_fill(&gpu, p, 2 * PAGE, 1);
	cpu_check(p, 2 * PAGE, 1);
	ck_assert_int_eq(munmap(p, 2 * PAGE), 0);
	ck_assert_int_eq(munmap(q, SMALL), 0);
	ck_assert_int_eq(gm_where(p, &w), -EFAULT);
	/* Another kernel's flag, with a file: not ours. */
	errno = 0;
	p = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_XPU_VISIBLE,
		 -1, 0);
	if (p != MAP_FAILED)
		ck_assert_int_eq(gm_where(p, &w), -EFAULT);
}
END_TEST

START_TEST(mprotect_reaches_the_xpu)
{
	char *p = um(2);
	struct kargs a = { .dst = (uint64_t *)p, .n = 1, .seed = 1 };

	gpu_start(&gpu, 4);
	put(&gpu, p, 2 * PAGE, 1, (enum place)_i);
	ck_assert_int_eq(mprotect(p, PAGE, PROT_READ), 0);
	ck_assert_int_eq(gpu_try(&gpu, "poke", 1, &a), -EACCES);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	cpu_check(p, 2 * PAGE, 1);
	ck_assert_int_eq(mprotect(p, PAGE, RW), 0);
	gpu_run(&gpu, "poke", 1, &a);
	ck_assert_uint_eq(*(uint64_t *)p, 1);
}
END_TEST

START_TEST(mremap_and_madvise)
{
	char *p = um(2), *q;

	gpu_start(&gpu, 4);
	put(&gpu, p, 2 * PAGE, 1, (enum place)_i);
	q = mremap(p, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);
	ck_assert_ptr_ne(q, MAP_FAILED);
	gpu_check(&gpu, q, 2 * PAGE, 1);
	ck_assert_int_eq(madvise(q, PAGE, MADV_DONTNEED), 0);
	all_zero(q, PAGE);
	cpu_check_from(q, WORDS, 2 * WORDS, 1);
	/* A fixed mapping over it ends it. */
	ck_assert_ptr_eq(mmap(q + PAGE, PAGE, RW,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 q + PAGE);
	all_zero(q + PAGE, PAGE);
}
END_TEST

START_TEST(plain_memory_is_left_alone)
{
	char *p = plain(4 * SMALL), *q;

	*p = 1;
	ck_assert_int_eq(mprotect(p, SMALL, PROT_READ), 0);
	ck_assert_int_eq(touch_signal(p, 1), SIGSEGV);
	ck_assert_int_eq(mprotect(p, SMALL, RW | PROT_EXEC), 0);
	ck_assert_int_eq(madvise(p, SMALL, MADV_DONTNEED), 0);
	ck_assert_int_eq(*p, 0);
	ck_assert_int_eq(mprotect(p, SMALL, RW), 0);
	q = mremap(p, 4 * SMALL, 8 * SMALL, MREMAP_MAYMOVE);
	ck_assert_ptr_ne(q, MAP_FAILED);
	ck_assert_int_eq(munmap(q, 8 * SMALL), 0);
	ck_assert_int_eq(munmap((void *)1, SMALL), -1);
	ck_assert_int_eq(errno, EINVAL);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, plain_mmap_makes_unified_memory);
	tcase_add_loop_test(tc, mprotect_reaches_the_xpu, 0, NR_PLACES);
	tcase_add_loop_test(tc, mremap_and_madvise, 0, NR_PLACES);
	tcase_add_test(tc, plain_memory_is_left_alone);
}

/* Once more, under the library. */
int main(int argc, char **argv)
{
	const char *library = getenv("API_TEST_PRELOAD");

	if (library && !getenv("LD_PRELOAD")) {
		setenv("LD_PRELOAD", library, 1);
		execv("/proc/self/exe", argv);
		perror("execv");
		return 1;
	}
	return run_suite("preload", add);
}
