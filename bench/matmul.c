// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * matmul.c - the FP16 matrix product of the GMM paper, section 6.2, figure 9
 *
 * A and B are prepared by the CPU, C is filled with zeros by the XPU, and the
 * time is from launch to end: with everything there already, with everything
 * to be faulted in, and on an XPU with half the memory that it takes. The
 * rounds of all three take turns.
 */
#include <inttypes.h>
#include <stdio.h>

#include "bench.h"

#define N 512
#define SAMPLES 256
#define MIN_K 8192
#define MAX_K 32768

struct problem {
	uint64_t k;
	size_t bytes_a, bytes_b, bytes_c; /* whole pages */
	uint16_t *a, *b, *c;
};

static size_t whole_pages(size_t bytes)
{
	return (bytes + GM_PAGE_MASK) & ~GM_PAGE_MASK;
}

/* -2, -1, 0, 1 or 2: sums are whole numbers, and exact. */
static int element(uint64_t i, uint64_t salt)
{
	i = (i + salt) * 0x9e3779b97f4a7c15u;
	return (int)((i >> 40) % 5) - 2;
}

static const uint16_t half[] = { 0xc000, 0xbc00, 0, 0x3c00, 0x4000 };

static void fill(uint16_t *p, size_t n, uint64_t salt)
{
	for (size_t i = 0; i < n; i++)
		p[i] = half[element(i, salt) + 2];
}

/* Of whole numbers only. */
static int from_half(uint16_t h)
{
	int exponent = (h >> 10 & 31) - 25;
	int mantissa = (h & 1023) | 1024;
	int value;

	if (!(h & 0x7fff))
		return 0;
	value = exponent < 0 ? mantissa >> -exponent : mantissa << exponent;
	return h & 0x8000 ? -value : value;
}

/* A wrong figure is worse than none. */
static void check(const struct problem *p)
{
	for (uint64_t s = 0; s < SAMPLES; s++) {
		uint64_t row = s * 37 % N;
		uint64_t col = s * 101 % MATMUL_COLS;
		int got = from_half(p->c[row * MATMUL_COLS + col]);
		int sum = 0;

		for (uint64_t i = 0; i < p->k; i++)
			sum += element(row * p->k + i, 1) *
			       element(i * MATMUL_COLS + col, 2);
		/* Beyond 2048, FP16 skips whole numbers. */
		if (sum >= -2048 && sum <= 2048 && got != sum)
			die("C[%" PRIu64 "][%" PRIu64 "] is %d, not %d", row,
			    col, got, sum);
	}
}

static void prepare(struct problem *p, uint64_t k)
{
	p->k = k;
	p->bytes_a = whole_pages(N * k * sizeof(*p->a));
	p->bytes_b = whole_pages(k * MATMUL_COLS * sizeof(*p->b));
	p->bytes_c = whole_pages(N * MATMUL_COLS * sizeof(*p->c));
	p->a = unified(p->bytes_a);
	p->b = unified(p->bytes_b);
	p->c = unified(p->bytes_c);
	fill(p->a, N * k, 1);
	fill(p->b, k * MATMUL_COLS, 2);
}

static void finish(struct problem *p)
{
	unified_free(p->a, p->bytes_a);
	unified_free(p->b, p->bytes_b);
	unified_free(p->c, p->bytes_c);
}

/* The CPU writes a word of each page, with what is there. */
static void home(void *p, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += GM_PAGE_SIZE) {
		volatile uint16_t *word = (uint16_t *)((char *)p + at);

		*word = *word;
	}
}

static double run(struct xpu *xpu, struct problem *p, int prefetch)
{
	struct matmul_args args = { p->a, p->b, p->c, MATMUL_COLS, p->k };
	double time;

	home(p->a, p->bytes_a);
	home(p->b, p->bytes_b);
	advise(GM_NODE_NONE, p->c, p->bytes_c, GM_DONTNEED);
	if (prefetch) {
		advise(xpu->node, p->a, p->bytes_a, GM_WILLNEED);
		advise(xpu->node, p->b, p->bytes_b, GM_WILLNEED);
		advise(xpu->node, p->c, p->bytes_c, GM_WILLNEED);
	}
	time = xpu_run(xpu, xpu_kernel(xpu, "matmul"), N / MATMUL_ROWS, &args,
		       sizeof(args));
	check(p);
	return time;
}

/* Bytes a second at which faults were served since @before. */
static double fault_speed(const struct gm_stats *before)
{
	struct gm_stats s = stats_now();
	uint64_t bytes = s.bytes_to_xpu - before->bytes_to_xpu;
	uint64_t ns = s.ns_faults - before->ns_faults;

	if (!bytes || !ns)
		die("the matrices were not faulted in");
	return 1e9 * (double)bytes / (double)ns;
}

static void product(struct xpu *big, uint64_t k)
{
	static struct series flops, cold, less, speed;
	static char names[4][48];
	struct problem p;
	struct xpu small;

	snprintf(names[0], sizeof(names[0]), "matmul_k%" PRIu64, k);
	snprintf(names[1], sizeof(names[1]), "matmul_k%" PRIu64 "_faults", k);
	snprintf(names[2], sizeof(names[2]), "matmul_k%" PRIu64 "_half", k);
	snprintf(names[3], sizeof(names[3]), "matmul_k%" PRIu64 "_speed", k);
	series_start(&flops, names[0], "GFLOP/s, all resident");
	series_start(&cold, names[1], "ratio to resident");
	series_start(&less, names[2], "ratio to resident");
	series_start(&speed, names[3], "served faults, ratio to copy");
	prepare(&p, k);
	xpu_open(&small,
		 (p.bytes_a + p.bytes_b + p.bytes_c) / 2 & ~GM_PAGE_MASK, 1);
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double unit = unit_speed();
		double resident = run(big, &p, 1);
		struct gm_stats before = stats_now();
		double faults = run(big, &p, 0);
		double served = fault_speed(&before);
		double halved = run(&small, &p, 0);

		if (!round)
			continue;
		series_add(&flops,
			   2e-9 * N * MATMUL_COLS * (double)k / resident);
		series_add(&cold, resident / faults);
		series_add(&less, resident / halved);
		series_add(&speed, served / unit);
	}
	finish(&p);
	xpu_close(&small);
	series_print(&flops);
	series_print(&cold);
	series_print(&less);
	series_print(&speed);
}

static size_t need(uint64_t k)
{
	return whole_pages(N * k * 2) + whole_pages(k * MATMUL_COLS * 2) +
	       whole_pages(N * MATMUL_COLS * 2);
}

/* As large as fits, with a page for the result of other kernels. */
void bench_matmul(void)
{
	struct xpu big;

	if (need(MIN_K) + GM_PAGE_SIZE > options.memory)
		die("matmul: --memory must be at least %zu MiB",
		    (need(MIN_K) + GM_PAGE_SIZE) >> 20);
	xpu_open(&big, options.memory, 1);
	for (uint64_t k = MIN_K; k <= MAX_K; k *= 2)
		if (need(k) + GM_PAGE_SIZE <= options.memory)
			product(&big, k);
	xpu_close(&big);
}
