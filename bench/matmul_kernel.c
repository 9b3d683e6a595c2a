// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * matmul_kernel.c - C = A * B in FP16, added up in single precision
 *
 * One index computes MATMUL_ROWS rows of C. A and B are converted piece by
 * piece into buffers that stay in the cache.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "sgpu_kernel.h"

struct tile {
	float a[MATMUL_ROWS][MATMUL_STEP];
	float b[MATMUL_STEP][MATMUL_COLS];
	float c[MATMUL_ROWS][MATMUL_COLS];
} __attribute__((aligned(64)));

/* FP16 without the CPU's help; no infinities or NaNs come here. */
static float to_float(uint16_t half)
{
	uint32_t exponent = half >> 10 & 31;
	uint32_t mantissa = half & 1023;
	uint32_t bits = (uint32_t)(half & 0x8000) << 16;
	float f;

	if (!exponent) {
		f = (float)mantissa * 0x1p-24f;
		return bits ? -f : f;
	}
	bits |= (exponent + 112) << 23 | mantissa << 13;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Cuts off what does not fit; exact for small integers. */
static uint16_t to_half(float f)
{
	uint32_t bits, sign, exponent;

	memcpy(&bits, &f, sizeof(bits));
	sign = bits >> 16 & 0x8000;
	exponent = bits >> 23 & 255;
	if (exponent < 113)
		return (uint16_t)sign;
	if (exponent > 142)
		return (uint16_t)(sign | 0x7bff);
	return (uint16_t)(sign | (exponent - 112) << 10 | (bits >> 13 & 1023));
}

static void plain_load(float *to, const uint16_t *from, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		to[i] = to_float(from[i]);
}

static void plain_store(uint16_t *to, const float *from, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		to[i] = to_half(from[i]);
}

static void plain_multiply(struct tile *t)
{
	for (unsigned int i = 0; i < MATMUL_ROWS; i++)
		for (unsigned int k = 0; k < MATMUL_STEP; k++)
			for (unsigned int j = 0; j < MATMUL_COLS; j++)
				t->c[i][j] += t->a[i][k] * t->b[k][j];
}

#define FAST __attribute__((target("avx2,fma,f16c")))

FAST static void fast_load(float *to, const uint16_t *from, unsigned int n)
{
	for (unsigned int i = 0; i < n; i += 8) {
		__m128i half = _mm_loadu_si128((const __m128i *)(from + i));

		_mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
	}
}

FAST static void fast_store(uint16_t *to, const float *from, unsigned int n)
{
	for (unsigned int i = 0; i < n; i += 8) {
		__m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i),
					       _MM_FROUND_TO_NEAREST_INT);

		_mm_storeu_si128((__m128i *)(to + i), half);
	}
}

/* Four rows by sixteen columns at a time, held in registers. */
FAST static void fast_block(struct tile *t, unsigned int i, unsigned int j)
{
	__m256 sum[4][2];

	for (int r = 0; r < 4; r++) {
		sum[r][0] = _mm256_load_ps(&t->c[i + r][j]);
		sum[r][1] = _mm256_load_ps(&t->c[i + r][j + 8]);
	}
	for (unsigned int k = 0; k < MATMUL_STEP; k++) {
		__m256 b0 = _mm256_load_ps(&t->b[k][j]);
		__m256 b1 = _mm256_load_ps(&t->b[k][j + 8]);

#pragma GCC unroll 4
		for (int r = 0; r < 4; r++) {
			__m256 a = _mm256_broadcast_ss(&t->a[i + r][k]);

			sum[r][0] = _mm256_fmadd_ps(a, b0, sum[r][0]);
			sum[r][1] = _mm256_fmadd_ps(a, b1, sum[r][1]);
		}
	}
	for (int r = 0; r < 4; r++) {
		_mm256_store_ps(&t->c[i + r][j], sum[r][0]);
		_mm256_store_ps(&t->c[i + r][j + 8], sum[r][1]);
	}
}

FAST static void fast_multiply(struct tile *t)
{
	for (unsigned int j = 0; j < MATMUL_COLS; j += 16)
		for (unsigned int i = 0; i < MATMUL_ROWS; i += 4)
			fast_block(t, i, j);
}

SGPU_KERNEL(matmul)
{
	const struct matmul_args *m = args;
	int fast = __builtin_cpu_supports("avx2") &&
		   __builtin_cpu_supports("fma") &&
		   __builtin_cpu_supports("f16c");
	void (*load)(float *, const uint16_t *, unsigned int) =
		fast ? fast_load : plain_load;
	uint64_t row = thread->index * MATMUL_ROWS;
	struct tile t;

	memset(t.c, 0, sizeof(t.c));
	for (uint64_t k = 0; k < m->k; k += MATMUL_STEP) {
		for (unsigned int i = 0; i < MATMUL_ROWS; i++)
			load(t.a[i], m->a + (row + i) * m->k + k, MATMUL_STEP);
		for (unsigned int i = 0; i < MATMUL_STEP; i++)
			load(t.b[i], m->b + (k + i) * m->m, MATMUL_COLS);
		(fast ? fast_multiply : plain_multiply)(&t);
	}
	for (unsigned int i = 0; i < MATMUL_ROWS; i++)
		(fast ? fast_store : plain_store)(m->c + (row + i) * m->m,
						  t.c[i], MATMUL_COLS);
}
