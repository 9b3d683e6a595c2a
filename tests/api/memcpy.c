/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* memcpy.c - gmemcpy(): every kind of source and destination */
#include <pthread.h>

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

/* --- large copies, which several threads share -------------------------- */

enum { MANY = 11 };

/* Sizes about the one from which on a copy is done in parts, and any offsets. */
START_TEST(large_copies)
{
	static const size_t at[][3] = {
		{ 0, 0, 4 * PAGE - 1 },	      { 0, 0, 4 * PAGE },
		{ 0, 0, 4 * PAGE + 1 },	      { 1, 0, 4 * PAGE },
		{ PAGE - 1, 5, 5 * PAGE },    { 7, PAGE - 3, 9 * PAGE + 11 },
		{ 0, 4096, 8 * PAGE },	      { 12345, 67, 10 * PAGE },
		{ PAGE, PAGE + 1, 9 * PAGE }, { 0, 0, MANY * PAGE },
	};
	int from = _i % 3 == 0 ? PLAIN : _i % 3 == 1 ? ON_CPU : ON_XPU;
	int nodes[] = { GM_NODE_NONE, HOST, 0 };
	unsigned char *dst = um(MANY), *model = plain(MANY * PAGE);
	unsigned char *src = from == PLAIN ? plain(MANY * PAGE) : um(MANY);
	int node;

	gpu_start(&gpu, 32);
	nodes[2] = gpu.node;
	node = nodes[_i / 3];
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		enum place place = i % 2 ? ON_XPU : ON_CPU;

		cpu_fill(src, MANY * PAGE, i);
		if (from == ON_XPU)
			works(gmadvise(gpu.node, src, MANY * PAGE,
				       GM_WILLNEED));
		put(&gpu, dst, MANY * PAGE, 99, place);
		cpu_fill(model, MANY * PAGE, 99);
		works(gmemcpy(node, dst + at[i][0], src + at[i][1], at[i][2]));
		for (size_t o = 0; node == gpu.node && o < at[i][2]; o += PAGE)
			ck_assert_uint_eq(where(dst + at[i][0] + o).copies,
					  1ull << gpu.node);
		memcpy(model + at[i][0], src + at[i][1], at[i][2]);
		ck_assert_msg(!memcmp(dst, model, MANY * PAGE),
			      "case %zu, node %d, from %d", i, node, from);
	}
}
END_TEST

START_TEST(large_overlaps)
{
	static const size_t at[][2] = {
		{ 0, PAGE },  { PAGE, 0 },	   { 3, 70000 },
		{ 70000, 3 }, { 0, 2 * PAGE + 9 }, { 2 * PAGE + 9, 0 },
	};
	unsigned char *p = um(MANY), *model = plain(MANY * PAGE);
	size_t len = 8 * PAGE;

	gpu_start(&gpu, 32);
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		put(&gpu, p, MANY * PAGE, i, i % 2 ? ON_XPU : ON_CPU);
		cpu_fill(model, MANY * PAGE, i);
		works(gmemcpy(_i ? gpu.node : GM_NODE_NONE, p + at[i][0],
			      p + at[i][1], len));
		memmove(model + at[i][0], model + at[i][1], len);
		ck_assert_msg(!memcmp(p, model, MANY * PAGE), "case %zu", i);
	}
}
END_TEST

/* A hole in the source, or what must not be written in the destination. */
START_TEST(large_copies_that_fail)
{
	int node = _i ? 0 : GM_NODE_NONE;
	char *dst = um(MANY), *src = plain(MANY * PAGE), *other = um(MANY);

	gpu_start(&gpu, 32);
	node = _i ? gpu.node : GM_NODE_NONE;
	cpu_fill(src, MANY * PAGE, 1);
	cpu_fill(dst, MANY * PAGE, 2);
	munmap(src + 6 * PAGE + 4096, 4096);
	fails(gmemcpy(node, dst + PAGE, src + PAGE, 9 * PAGE), EFAULT);
	/* Outside nothing has changed; inside each word is old or new. */
	cpu_check_from(dst, 0, WORDS, 2);
	cpu_check_from(dst, 10 * WORDS, MANY * WORDS, 2);
	for (size_t i = WORDS; i < 10 * WORDS; i++) {
		uint64_t v = ((uint64_t *)dst)[i];

		ck_assert(v == pattern(1, i) || v == pattern(2, i));
	}
	/* Two parts fail: of two errors it is the first one's. */
	cpu_fill(other, MANY * PAGE, 3);
	works(gm_mprotect(dst + 2 * PAGE, PAGE, PROT_READ));
	fails(gmemcpy(node, dst, other, MANY * PAGE), EACCES);
	works(gm_mprotect(dst + 2 * PAGE, PAGE, RW));
	works(gmemcpy(node, dst, other, MANY * PAGE));
	cpu_check(dst, MANY * PAGE, 3);
}
END_TEST

START_TEST(large_copies_from_one_gpu_to_another)
{
	char *a = um(MANY), *b = um(MANY);

	gpu_start(&gpu, 16);
	gpu_start(&gpu2, 16);
	gpu_fill(&gpu, a, MANY * PAGE, 4);
	works(gmemcpy(gpu2.node, b, a, MANY * PAGE));
	all_in(a, MANY, GM_STATE_MODIFIED, 1ull << gpu.node);
	all_in(b, MANY, GM_STATE_MODIFIED, 1ull << gpu2.node);
	gpu_check(&gpu2, b, MANY * PAGE, 4);
	gpu_check(&gpu, a, MANY * PAGE, 4);
	works(gmemcpy(gpu.node, a + 77, b + 1, 9 * PAGE));
	ck_assert(!memcmp(a + 77, b + 1, 9 * PAGE));
}
END_TEST

/* --- while others write -------------------------------------------------- */

static _Atomic int stop;

/* Two words far apart in each page, the first one ahead by at most one. */
static void *write_pairs(void *arg)
{
	uint64_t *p = arg;

	for (uint64_t n = 1; !stop; n++)
		for (size_t i = 0; i < 4; i++) {
			__atomic_store_n(p + i * WORDS, n, __ATOMIC_SEQ_CST);
			__atomic_store_n(p + (i + 1) * WORDS - 1, n,
					 __ATOMIC_SEQ_CST);
		}
	return NULL;
}

/* The CPU writes the source meanwhile: it makes headway, and loses nothing. */
START_TEST(source_that_is_written)
{
	uint64_t *src = um(4), *dst = um(4), seen = 0;
	pthread_t writer;

	gpu_start(&gpu, 16);
	memset(src, 0, 4 * PAGE);
	stop = 0;
	ck_assert_int_eq(pthread_create(&writer, NULL, write_pairs, src), 0);
	for (int i = 0; i < 100 || seen < 100; i++) {
		works(gmemcpy(gpu.node, dst, src, 4 * PAGE));
		works(gmadvise(HOST, dst, 4 * PAGE, GM_WILLNEED));
		ck_assert_uint_ge(dst[0], seen);
		seen = dst[0];
	}
	stop = 1;
	pthread_join(writer, NULL);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(src[i * WORDS], src[0]);
		ck_assert_uint_eq(src[(i + 1) * WORDS - 1], src[0]);
	}
	works(gmemcpy(gpu.node, dst, src, 4 * PAGE));
	ck_assert(!memcmp(dst, src, 4 * PAGE));
}
END_TEST

/* An XPU writes beside the copy, in the pages in which it begins and ends. */
START_TEST(neighbours_that_an_xpu_writes)
{
	enum { N = 20000 };
	char *dst = um(MANY), *src = um(MANY);
	uint64_t *last = (uint64_t *)(dst + 10 * PAGE) + WORDS - 1;
	struct kargs a = { .dst = (uint64_t *)dst, .n = N };
	struct kargs b = { .dst = last, .n = N };

	gpu_start(&gpu, 32);
	cpu_fill(src, MANY * PAGE, 1);
	memset(dst, 0, MANY * PAGE);
	gpu_launch(&gpu, "count", 1, &a);
	gpu_launch(&gpu, "count", 1, &b);
	for (int i = 0; i < 10; i++)
		works(gmemcpy(_i ? gpu.node : GM_NODE_NONE, dst + 64, src + 64,
			      MANY * PAGE - 128));
	ck_assert_int_eq(sgpu_sync(gpu.sgpu, NULL), 0);
	ck_assert_uint_eq(*(uint64_t *)dst, N);
	ck_assert_uint_eq(*last, N);
	ck_assert(!memcmp(dst + 64, src + 64, MANY * PAGE - 128));
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, large_copies, 0, 9);
	tcase_add_loop_test(tc, large_overlaps, 0, 2);
	tcase_add_loop_test(tc, large_copies_that_fail, 0, 2);
	tcase_add_test(tc, large_copies_from_one_gpu_to_another);
	tcase_add_test(tc, source_that_is_written);
	tcase_add_loop_test(tc, neighbours_that_an_xpu_writes, 0, 2);
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
