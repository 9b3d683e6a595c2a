/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * kernels.h - what the test kernels are given, and the pattern that they and
 * the tests fill memory with
 */
#ifndef TEST_API_KERNELS_H
#define TEST_API_KERNELS_H

#include <stdint.h>

/**
 * struct kargs - arguments of all kernels
 * @dst: what is written
 * @src: what is read
 * @n: words, or steps
 * @seed: of the pattern, or a value
 * @out: where a result is added, or NULL
 */
struct kargs {
	uint64_t *dst;
	const uint64_t *src;
	uint64_t n;
	uint64_t seed;
	uint64_t *out;
};

static inline uint64_t pattern(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + i;

	return x * 0xd1342543de82ef95u ^ x >> 29;
}

#endif
