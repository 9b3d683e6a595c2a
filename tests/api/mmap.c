/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* mmap.c - gm_mmap(): arguments, addresses, and devices that come later */
#include "harness.h"

START_TEST(arguments_that_cannot_be_are_refused)
{
	static const int bad_flags[] = {
		MAP_PRIVATE | MAP_ANONYMOUS,
		MAP_ANONYMOUS | MAP_XPU_VISIBLE,
		MAP_PRIVATE | MAP_XPU_VISIBLE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_XPU_VISIBLE,
		UNIFIED | MAP_HUGETLB,
		UNIFIED | MAP_POPULATE,
		UNIFIED | MAP_GROWSDOWN,
		UNIFIED | MAP_LOCKED,
	};
	static const int bad_prot[] = { PROT_WRITE, PROT_EXEC, RW | PROT_EXEC,
					0x100 };
	void *odd = (void *)(0x300000000000 + SMALL);

	fails_map(gm_mmap(NULL, 0, RW, UNIFIED, -1, 0), EINVAL);
	for (size_t i = 0; i < sizeof(bad_flags) / sizeof(int); i++)
		fails_map(gm_mmap(NULL, PAGE, RW, bad_flags[i], -1, 0), EINVAL);
	for (size_t i = 0; i < sizeof(bad_prot) / sizeof(int); i++)
		fails_map(gm_mmap(NULL, PAGE, bad_prot[i], UNIFIED, -1, 0),
			  EINVAL);
	fails_map(gm_mmap(NULL, PAGE, RW, UNIFIED, 0, 0), EINVAL);
	fails_map(gm_mmap(NULL, PAGE, RW, UNIFIED, -1, SMALL), EINVAL);
	fails_map(gm_mmap(odd, PAGE, RW, UNIFIED | MAP_FIXED, -1, 0), EINVAL);
	fails_map(gm_mmap(odd, PAGE, RW, UNIFIED | MAP_FIXED_NOREPLACE, -1, 0),
		  EINVAL);
	fails_map(gm_mmap((void *)-PAGE, 4 * PAGE, RW, UNIFIED | MAP_FIXED, -1,
			  0),
		  EINVAL);
	fails_map(gm_mmap(NULL, SIZE_MAX, RW, UNIFIED, -1, 0), ENOMEM);
	fails_map(gm_mmap(NULL, (size_t)1 << 46, RW, UNIFIED, -1, 0), ENOMEM);
}
END_TEST

START_TEST(length_is_rounded_up_and_address_aligned)
{
	static const size_t lens[] = { 1,    SMALL,    PAGE - 1,
				       PAGE, PAGE + 1, 3 * PAGE - 7 };

	for (size_t i = 0; i < sizeof(lens) / sizeof(size_t); i++) {
		struct gm_region_stats r;
		char *p = gm_mmap(NULL, lens[i], RW, UNIFIED | MAP_NORESERVE,
				  -1, 0);

		ck_assert_ptr_ne(p, MAP_FAILED);
		ck_assert_uint_eq((uintptr_t)p % PAGE, 0);
		works(gm_region_stats(p, &r));
		ck_assert_uint_eq(r.end - r.start,
				  (lens[i] + PAGE - 1) / PAGE * PAGE);
		p[r.end - r.start - 1] = 1;
		works(gm_munmap(p, lens[i]));
	}
}
END_TEST

START_TEST(works_with_no_device_attached)
{
	char *p = um(3);
	struct gm_region_stats r;

	all_zero(p, 3 * PAGE);
	cpu_fill(p, 3 * PAGE, 1);
	works(gmadvise(HOST, p, 3 * PAGE, GM_WILLNEED));
	works(gmemcpy(GM_NODE_NONE, p + PAGE, p, PAGE));
	cpu_check(p + PAGE, PAGE, 1);
	works(gmadvise(GM_NODE_NONE, p + PAGE, PAGE, GM_DONTNEED));
	all_zero(p + PAGE, PAGE);
	cpu_check(p, PAGE, 1);
	works(gm_region_stats(p, &r));
	ck_assert_int_eq(r.prot, GM_PROT_READ | GM_PROT_WRITE);
	works(gm_munmap(p, 3 * PAGE));
	ck_assert_int_eq(touch_signal(p, 0), SIGSEGV);
}
END_TEST

START_TEST(device_attached_later_sees_all_regions)
{
	char *a = um(2), *b = um(3), *part = um(2);

	cpu_fill(a, 2 * PAGE, 1);
	cpu_fill(part + PAGE / 2, SMALL, 3); /* one small page of a big one */
	gpu_start(&gpu, 8);
	gpu_check(&gpu, a, 2 * PAGE, 1);
	gpu_check(&gpu, part + PAGE / 2, SMALL, 3);
	gpu_fill(&gpu, b, 3 * PAGE, 2);
	cpu_check(b, 3 * PAGE, 2);
	cpu_check(a, 2 * PAGE, 1);
	all_zero(part, PAGE / 2);
	all_zero(part + PAGE / 2 + SMALL, PAGE / 2 - SMALL);
	all_zero(part + PAGE, PAGE);
}
END_TEST

/* Nobody watches memory that no XPU has seen. */
START_TEST(unmapped_before_any_device_came)
{
	char *p = um(4);
	struct kargs gone = { .src = (uint64_t *)(p + PAGE), .n = 1 };
	struct kargs cut = { .src = (uint64_t *)(p + 2 * PAGE), .n = 1 };

	cpu_fill(p, 4 * PAGE, 1);
	/* A whole page, and the first piece of the next. */
	ck_assert_int_eq(munmap(p + PAGE, PAGE + SMALL), 0);
	gpu_start(&gpu, 8);
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &gone), -EFAULT);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &cut), -EFAULT);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	gpu_check(&gpu, p, PAGE, 1);
	cpu_check_from(p, (2 * PAGE + SMALL) / 8, 4 * WORDS, 1);
}
END_TEST

START_TEST(detached_memory_comes_home)
{
	char *p = um(4);

	gpu_start(&gpu, 8);
	gpu_fill(&gpu, p, 4 * PAGE, 7);
	gpu_detach(&gpu);
	cpu_check(p, 4 * PAGE, 7);
	cpu_fill(p, 4 * PAGE, 8);
	gpu_attach(&gpu);
	gpu_check(&gpu, p, 4 * PAGE, 8);
}
END_TEST

START_TEST(hint_is_taken_where_there_is_room)
{
	char *p = um(4), *q;

	works(gm_munmap(p, 4 * PAGE));
	q = gm_mmap(p + PAGE, PAGE, RW, UNIFIED, -1, 0);
	ck_assert_ptr_eq(q, p + PAGE);
	/* In use: another place. */
	p = gm_mmap(q, PAGE, RW, UNIFIED, -1, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_ptr_ne(p, q);
	*p = *q = 1;
}
END_TEST

START_TEST(fixed_replaces_what_was_there)
{
	char *p = um(4);

	gpu_start(&gpu, 8);
	gpu_fill(&gpu, p, 4 * PAGE, 1);
	ck_assert_ptr_eq(
		gm_mmap(p + PAGE, 2 * PAGE, RW, UNIFIED | MAP_FIXED, -1, 0),
		p + PAGE);
	gpu_check(&gpu, p, PAGE, 1);
	all_zero(p + PAGE, 2 * PAGE);
	gpu_fill(&gpu, p + PAGE, 2 * PAGE, 2);
	cpu_check(p + PAGE, 2 * PAGE, 2);
	cpu_check_from(p, 3 * WORDS, 4 * WORDS, 1);
}
END_TEST

START_TEST(fixed_outside_the_arena_is_examined)
{
	/* A place that the program has free, but the GPU cannot map. */
	char *hole = plain(4 * PAGE);
	char *at = (char *)(((uintptr_t)hole + PAGE - 1) / PAGE * PAGE);

	munmap(hole, 4 * PAGE);
	gpu_start(&gpu, 4);
	fails_map(gm_mmap(at, PAGE, RW, UNIFIED | MAP_FIXED, -1, 0), ENOMEM);
	gpu_detach(&gpu);
	ck_assert_ptr_eq(gm_mmap(at, PAGE, RW, UNIFIED | MAP_FIXED, -1, 0), at);
	*at = 1;
	/* Now the GPU refuses to be attached, and names the range. */
	ck_assert_int_eq(gm_sgpu_attach(gpu.sgpu, NULL), -EADDRINUSE);
	char range[32];
	snprintf(range, sizeof(range), "%lx", (unsigned long)at);
	ck_assert_msg(strstr(gm_error(), range) != NULL, "%s", gm_error());
	works(gm_munmap(at, PAGE));
	gpu_attach(&gpu);
}
END_TEST

START_TEST(noreplace_refuses_what_is_in_use)
{
	char *p = um(2);

	*p = 5;
	fails_map(gm_mmap(p, PAGE, RW, UNIFIED | MAP_FIXED_NOREPLACE, -1, 0),
		  EEXIST);
	ck_assert_int_eq(*p, 5);
	works(gm_munmap(p, PAGE));
	ck_assert_ptr_eq(
		gm_mmap(p, PAGE, RW, UNIFIED | MAP_FIXED_NOREPLACE, -1, 0), p);
	ck_assert_int_eq(*p, 0);
}
END_TEST

START_TEST(rights_hold_on_every_processor)
{
	char *none = gm_mmap(NULL, PAGE, PROT_NONE, UNIFIED, -1, 0);
	char *ro = gm_mmap(NULL, PAGE, PROT_READ, UNIFIED, -1, 0);
	struct kargs a = { .dst = (uint64_t *)ro, .n = 1, .seed = 1 };

	ck_assert(none != MAP_FAILED && ro != MAP_FAILED);
	gpu_start(&gpu, 4);
	ck_assert_int_eq(touch_signal(none, 0), SIGSEGV);
	ck_assert_int_eq(touch_signal(ro, 1), SIGSEGV);
	ck_assert_int_eq(*ro, 0);
	gpu_peek(&gpu, ro, 1);
	ck_assert_int_eq(gpu_try(&gpu, "poke", 1, &a), -EACCES);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	a.src = (uint64_t *)none;
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &a), -EACCES);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	ck_assert_int_eq(*ro, 0);
}
END_TEST

START_TEST(many_regions_come_and_go)
{
	enum { N = 200 };
	char *p[N];
	unsigned int vmas = 0;

	gpu_start(&gpu, 8);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			p[i] = um(1 + i % 3);
			*p[i] = (char)i;
		}
		for (int i = 0; i < N; i++)
			ck_assert_int_eq(*p[i], (char)i);
		for (int i = 0; i < N; i++)
			works(gm_munmap(p[i], (1 + i % 3) * PAGE));
		if (round == 1)
			vmas = count_vmas();
	}
	ck_assert_uint_le(count_vmas(), vmas + 8 + SANITIZER_VMAS);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, arguments_that_cannot_be_are_refused);
	tcase_add_test(tc, length_is_rounded_up_and_address_aligned);
	tcase_add_test(tc, works_with_no_device_attached);
	tcase_add_test(tc, device_attached_later_sees_all_regions);
	tcase_add_test(tc, detached_memory_comes_home);
	tcase_add_test(tc, unmapped_before_any_device_came);
	tcase_add_test(tc, hint_is_taken_where_there_is_room);
	tcase_add_test(tc, fixed_replaces_what_was_there);
	tcase_add_test(tc, fixed_outside_the_arena_is_examined);
	tcase_add_test(tc, noreplace_refuses_what_is_in_use);
	tcase_add_test(tc, rights_hold_on_every_processor);
	tcase_add_test(tc, many_regions_come_and_go);
}

int main(void)
{
	return run_suite("mmap", add);
}
