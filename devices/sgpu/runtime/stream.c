/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* stream.c - the copy engine's loop: stores that pass the caches by */
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime.h"

#if defined(__x86_64__)
#define LINE 128u

/* pre: @to is aligned to 32 bytes; @len is a multiple of LINE. */
__attribute__((target("avx2"))) static void stream_lines(
	unsigned char *to, const unsigned char *from, size_t len)
{
	for (; len; len -= LINE, to += LINE, from += LINE) {
		const __m256i *src = (const __m256i *)from;
		__m256i *dst = (__m256i *)to;
		__m256i a = _mm256_loadu_si256(src);
		__m256i b = _mm256_loadu_si256(src + 1);
		__m256i c = _mm256_loadu_si256(src + 2);
		__m256i d = _mm256_loadu_si256(src + 3);

		_mm256_stream_si256(dst, a);
		_mm256_stream_si256(dst + 1, b);
		_mm256_stream_si256(dst + 2, c);
		_mm256_stream_si256(dst + 3, d);
	}
	_mm_sfence();
}

/*
 * As a DMA engine does: nothing of the destination is read, and nothing of it
 * stays in the caches.
 */
void stream_copy(void *dst, const void *src, size_t len)
{
	const unsigned char *from = src;
	unsigned char *to = dst;
	size_t head = -(uintptr_t)to & (LINE - 1), lines;

	if (len < 4 * LINE || !__builtin_cpu_supports("avx2")) {
		memcpy(dst, src, len);
		return;
	}
	lines = (len - head) & ~(size_t)(LINE - 1);
	memcpy(to, from, head);
	stream_lines(to + head, from + head, lines);
	head += lines;
	memcpy(to + head, from + head, len - head);
}
#else
void stream_copy(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}
#endif
