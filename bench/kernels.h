/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * kernels.h - what the XPU's kernels of gmm-bench are given
 */
#ifndef KERNELS_H
#define KERNELS_H

#include <stdint.h>

#define BENCH_PAGE (2ul << 20)
#define BENCH_MAX_PAGES 4096
#define BENCH_MAX_PENDING 64

/* What kernels report; in unified memory. */
struct bench_result {
	uint64_t sums[BENCH_MAX_PENDING];
	uint32_t ns[BENCH_MAX_PAGES];
};

/* Read one word of each page; each of the launch's indices takes its share. */
struct touch_args {
	const char *data;
	uint64_t pages;
	uint64_t seed; /* of the order; 0 is from first to last */
	struct bench_result *result;
	int timed; /* note how long each word took */
};

/* C = A * B in FP16: A is n * k, B is k * m, all row by row. */
struct matmul_args {
	const uint16_t *a;
	const uint16_t *b;
	uint16_t *c;
	uint64_t m;
	uint64_t k;
};

#define MATMUL_ROWS 64 /* rows of C that one index computes */
#define MATMUL_COLS 512 /* the only m there is */
#define MATMUL_STEP 64 /* k is a multiple of this */

#endif
