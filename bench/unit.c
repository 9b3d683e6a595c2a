// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * unit.c - the unit: the best single-thread copy of resident huge pages
 *
 * Which loop is best differs by machine, so all that the CPU can run are
 * measured each time, and the best one counts.
 */
#include <errno.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"

static void copy_memcpy(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}

static void copy_movsb(void *dst, const void *src, size_t len)
{
	__asm__ volatile("rep movsb"
			 : "+D"(dst), "+S"(src), "+c"(len)
			 :
			 : "memory");
}

/* The streaming loops want multiples of 256 bytes. */
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))

AVX2 static void copy_avx2_nt(void *dst, const void *src, size_t len)
{
	const __m256i *from = src;
	__m256i *to = dst;

	for (; len; len -= 128, from += 4, to += 4) {
		__m256i a = _mm256_load_si256(from);
		__m256i b = _mm256_load_si256(from + 1);
		__m256i c = _mm256_load_si256(from + 2);
		__m256i d = _mm256_load_si256(from + 3);

		_mm256_stream_si256(to, a);
		_mm256_stream_si256(to + 1, b);
		_mm256_stream_si256(to + 2, c);
		_mm256_stream_si256(to + 3, d);
	}
	_mm_sfence();
}

/* Reading ahead makes some CPUs much faster and others much slower. */
AVX512 static inline void copy_avx512(void *dst, const void *src, size_t len,
				      int ahead)
{
	const __m512i *from = src;
	__m512i *to = dst;

	for (; len; len -= 256, from += 4, to += 4) {
		__m512i a = _mm512_load_si512(from);
		__m512i b = _mm512_load_si512(from + 1);
		__m512i c = _mm512_load_si512(from + 2);
		__m512i d = _mm512_load_si512(from + 3);

		for (int i = 0; ahead && i < 4; i++)
			_mm_prefetch((const char *)(from + i) + 4096,
				     _MM_HINT_NTA);
		_mm512_stream_si512(to, a);
		_mm512_stream_si512(to + 1, b);
		_mm512_stream_si512(to + 2, c);
		_mm512_stream_si512(to + 3, d);
	}
	_mm_sfence();
}

AVX512 static void copy_avx512_nt(void *dst, const void *src, size_t len)
{
	copy_avx512(dst, src, len, 0);
}

AVX512 static void copy_avx512_nt_ahead(void *dst, const void *src, size_t len)
{
	copy_avx512(dst, src, len, 1);
}

static int always(void)
{
	return 1;
}

static int has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

static int has_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}

static const struct {
	const char *metric;
	void (*copy)(void *dst, const void *src, size_t len);
	int (*runs)(void);
} loops[] = {
	{ "copy_memcpy", copy_memcpy, always },
	{ "copy_rep_movsb", copy_movsb, always },
	{ "copy_avx2_nt", copy_avx2_nt, has_avx2 },
	{ "copy_avx512_nt", copy_avx512_nt, has_avx512 },
	{ "copy_avx512_nt_ahead", copy_avx512_nt_ahead, has_avx512 },
};

#define NR_LOOPS (sizeof(loops) / sizeof(loops[0]))

void *huge_reserve(size_t len)
{
	size_t room = len + GM_PAGE_SIZE;
	char *p = mmap(NULL, room, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t skip;

	if (p == MAP_FAILED)
		die("mmap of %zu bytes: %s", room, strerror(errno));
	skip = -(uintptr_t)p & GM_PAGE_MASK;
	if (skip)
		munmap(p, skip);
	munmap(p + skip + len, GM_PAGE_SIZE - skip);
	if (madvise(p + skip, len, MADV_HUGEPAGE))
		die("no huge pages: %s; see transparent_hugepage/enabled in "
		    "README.md",
		    strerror(errno));
	return p + skip;
}

void *huge_alloc(size_t len)
{
	return memset(huge_reserve(len), 1, len);
}

void huge_free(void *p, size_t len)
{
	munmap(p, len);
}

void warm_up(void)
{
	size_t len = 4 * options.memory;

	huge_free(huge_alloc(len), len);
}

static double measure(unsigned int loop)
{
	static char *src, *dst;
	size_t len = options.memory / 2;
	double start;

	if (!src) {
		src = huge_alloc(len);
		dst = huge_alloc(len);
	}
	start = seconds();
	for (size_t i = 0; i < len; i += GM_PAGE_SIZE)
		loops[loop].copy(dst + i, src + i, GM_PAGE_SIZE);
	return (double)len / (seconds() - start);
}

double unit_speed(void)
{
	double best = 0;

	for (unsigned int i = 0; i < NR_LOOPS; i++) {
		double speed = loops[i].runs() ? measure(i) : 0;

		if (speed > best)
			best = speed;
	}
	return best;
}

void bench_copy(void)
{
	static struct series all[NR_LOOPS], best;

	series_start(&best, "copy", "GB/s");
	for (unsigned int i = 0; i < NR_LOOPS; i++)
		series_start(&all[i], loops[i].metric, "GB/s");
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double max = 0;

		for (unsigned int i = 0; i < NR_LOOPS; i++) {
			double speed = loops[i].runs() ? measure(i) : 0;

			if (speed > max)
				max = speed;
			if (speed > 0 && round > 0)
				series_add(&all[i], 1e-9 * speed);
		}
		if (round > 0)
			series_add(&best, 1e-9 * max);
	}
	series_print(&best);
	for (unsigned int i = 0; i < NR_LOOPS; i++)
		if (all[i].n)
			series_print(&all[i]);
}
