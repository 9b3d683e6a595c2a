/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* memcpy.c - gmemcpy(): every kind of source and destination */
#include "harness.h"

enum { LEN_PAGES = 3, PLAIN = NR_PLACES_ALL, NR_KINDS };

static const size_t cases[][3] = {
	/* offset of the destination, of the source, length */
	{ 0, 0, LEN_PAGES *PAGE },
	{ 0, 0, PAGE },
	{ 1, 0, PAGE },
	{ 0, 3, 2 * PAGE },
	{ PAGE - 5, 17, 11 },
	{ PAGE - 1, PAGE + 1, PAGE + 2 },
	{ 4097, 8191, 2 * PAGE - 4095 },
	{ PAGE + 3, 0, 1 },
	{ 2 * PAGE - 70000, PAGE - 70001, 140003 },
};

/* Put @p, of LEN_PAGES, where the kind says. */
static void set_up(unsigned char *p, uint64_t seed, int kind)
{
	if (kind == PLAIN)
		cpu_fill(p, LEN_PAGES * PAGE, seed);
	else
		put(&gpu, p, LEN_PAGES * PAGE, seed, (enum place)kind);
}

static void model_of(unsigned char *m, uint64_t seed, int kind)
{
	if (kind == DISCARDED)
		memset(m, 0, LEN_PAGES * PAGE);
	else
		cpu_fill(m, LEN_PAGES * PAGE, seed);
}

static void *memory(int kind)
{
	return kind == PLAIN ? plain(LEN_PAGES * PAGE) : um(LEN_PAGES);
}

/* One kind of destination, all kinds of source, all nodes. */
START_TEST(every_kind_to_every_kind)
{
	int nodes[] = { HOST, 0, GM_NODE_NONE };
	size_t n = sizeof(cases) / sizeof(cases[0]), i = 0;
	unsigned char *model_dst = plain(LEN_PAGES * PAGE);
	unsigned char *model_src = plain(LEN_PAGES * PAGE);

	gpu_start(&gpu, 8);
	nodes[1] = gpu.node;
	for (int from = 0; from < NR_KINDS; from++) {
		unsigned char *dst = memory(_i), *src = memory(from);

		for (int k = 0; k < 3; k++, i++) {
			const size_t *c = cases[(i + k) % n];
			struct gm_stats s;

			set_up(dst, 1, _i);
			set_up(src, 2, from);
			model_of(model_dst, 1, _i);
			model_of(model_src, 2, from);
			s = stats();
			works(gmemcpy(nodes[k], dst + c[0], src + c[1], c[2]));
			ck_assert_uint_eq(since(s, bytes_memcpy), c[2]);
			if (_i != PLAIN && nodes[k] == gpu.node)
				for (size_t o = c[0] / PAGE;
				     o <= (c[0] + c[2] - 1) / PAGE; o++)
					ck_assert_uint_eq(
						where(dst + o * PAGE).copies,
						1ull << gpu.node);
			memcpy(model_dst + c[0], model_src + c[1], c[2]);
			ck_assert_msg(!memcmp(dst, model_dst, LEN_PAGES * PAGE),
				      "%d to %d, node %d, case %zu", from, _i,
				      nodes[k], (i + k) % n);
			ck_assert_msg(!memcmp(src, model_src, LEN_PAGES * PAGE),
				      "the source has changed: %d to %d", from,
				      _i);
		}
		munmap(dst, LEN_PAGES * PAGE);
		munmap(src, LEN_PAGES * PAGE);
	}
}
END_TEST

START_TEST(source_is_not_moved)
{
	char *src = um(2), *dst = um(2);
	struct gm_where a, b;

	gpu_start(&gpu, 8);
	put(&gpu, src, 2 * PAGE, 1, (enum place)_i);
	a = where(src);
	works(gmemcpy(gpu.node, dst, src, 2 * PAGE));
	b = where(src);
	ck_assert_uint_eq(a.copies, b.copies);
	ck_assert_uint_eq(a.mapped, b.mapped);
	gpu_check(&gpu, dst, 2 * PAGE, 1);
}
END_TEST

START_TEST(overlap_is_memmove)
{
	static const size_t at[][3] = {
		{ 0, 1, 2 * PAGE },    { 1, 0, 2 * PAGE },
		{ 0, PAGE, 2 * PAGE }, { PAGE, 0, 2 * PAGE },
		{ 100, 70100, PAGE },  { 70100, 100, PAGE },
		{ 5, 5, 2 * PAGE },    { PAGE + 1, PAGE - 1, PAGE },
	};
	unsigned char *p = um(LEN_PAGES), *model = plain(LEN_PAGES * PAGE);

	gpu_start(&gpu, 4);
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		int node = i % 3 == 0 ? gpu.node : i % 3 == 1 ? HOST : -1;

		put(&gpu, p, LEN_PAGES * PAGE, 3, (enum place)_i);
		cpu_fill(model, LEN_PAGES * PAGE, 3);
		works(gmemcpy(node, p + at[i][0], p + at[i][1], at[i][2]));
		memmove(model + at[i][0], model + at[i][1], at[i][2]);
		ck_assert_msg(!memcmp(p, model, LEN_PAGES * PAGE), "case %zu",
			      i);
	}
}
END_TEST

START_TEST(whole_pages_are_not_migrated_first)
{
	char *dst = um(3), *src = plain(3 * PAGE);
	struct gm_stats s;

	gpu_start(&gpu, 8);
	cpu_fill(src, 3 * PAGE, 2);
	put(&gpu, dst, 3 * PAGE, 1, (enum place)_i);
	s = stats();
	works(gmemcpy(gpu.node, dst, src, 3 * PAGE));
	/* Into the XPU goes what is copied, not what was there. */
	ck_assert_uint_eq(since(s, bytes_to_xpu), 3 * PAGE);
	ck_assert_uint_eq(since(s, bytes_to_host), 0);
	s = stats();
	gpu_peek(&gpu, dst, 3);
	ck_assert_uint_eq(since(s, faults_xpu_read), 0);
	put(&gpu, dst, 3 * PAGE, 1, ON_XPU);
	s = stats();
	works(gmemcpy(HOST, dst, src, 3 * PAGE));
	ck_assert_uint_eq(since(s, bytes_to_host), 0);
	ck_assert_uint_eq(where(dst).copies, 1);
	cpu_check(dst, 3 * PAGE, 2);
}
END_TEST

START_TEST(errors)
{
	char *p = um(2), *ro = um(1), *none, *code;

	gpu_start(&gpu, 4);
	cpu_fill(p, 2 * PAGE, 1);
	works(gmemcpy(gpu.node, p, p + 9, 0));
	works(gmemcpy(77, p, NULL, 0));
	fails(gmemcpy(77, p, p + PAGE, 1), EINVAL);
	fails(gmemcpy(-2, p, p + PAGE, 1), EINVAL);
	fails(gmemcpy(HOST, p, p + PAGE, SIZE_MAX), EINVAL);
	fails(gmemcpy(HOST, (void *)-8, p, 16), EINVAL);
	/* Plain sides that are no memory, or without the right. */
	none = plain(4 * SMALL);
	munmap(none, 4 * SMALL);
	code = mmap(NULL, SMALL, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int node = -1; node <= gpu.node; node++) {
		fails(gmemcpy(node, p, none, 100), EFAULT);
		fails(gmemcpy(node, none, p, 100), EFAULT);
		fails(gmemcpy(node, p, none, PAGE), EFAULT);
		fails(gmemcpy(node, NULL, p, 8), EFAULT);
		fails(gmemcpy(node, code, p, 8), EFAULT);
	}
	munmap(code, SMALL);
	gpu_check(&gpu, p, 2 * PAGE, 1);
	/* Unified sides whose rights forbid it. */
	cpu_fill(ro, PAGE, 2);
	works(gm_mprotect(ro, PAGE, PROT_READ));
	for (int node = -1; node <= gpu.node; node++) {
		fails(gmemcpy(node, ro, p, 8), EACCES);
		fails(gmemcpy(node, ro, p, PAGE), EACCES);
	}
	works(gmemcpy(gpu.node, p, ro, PAGE));
	gpu_check(&gpu, p, PAGE, 2);
	works(gm_mprotect(ro, PAGE, PROT_NONE));
	for (int node = -1; node <= gpu.node; node++) {
		fails(gmemcpy(node, p, ro, 8), EACCES);
		fails(gmemcpy(node, p, ro, PAGE), EACCES);
	}
	works(gm_mprotect(ro, PAGE, PROT_READ));
	cpu_check(ro, PAGE, 2);
	cpu_check(p, PAGE, 2);
}
END_TEST

START_TEST(copies_larger_than_the_gpu)
{
	char *a = um(12), *b = um(12);

	gpu_start(&gpu, 4);
	cpu_fill(a, 12 * PAGE, 5);
	works(gmemcpy(gpu.node, b, a, 12 * PAGE));
	gpu_check(&gpu, b, 12 * PAGE, 5);
	works(gmemcpy(gpu.node, a + 1, b, 12 * PAGE - 1));
	ck_assert_int_eq(memcmp(a + 1, b, 12 * PAGE - 1), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, every_kind_to_every_kind, 0, NR_KINDS);
	tcase_add_loop_test(tc, source_is_not_moved, 0, NR_PLACES);
	tcase_add_loop_test(tc, overlap_is_memmove, 0, NR_PLACES);
	tcase_add_loop_test(tc, whole_pages_are_not_migrated_first, 0,
			    NR_PLACES);
	tcase_add_test(tc, errors);
	tcase_add_test(tc, copies_larger_than_the_gpu);
}

int main(void)
{
	return run_suite("memcpy", add);
}
