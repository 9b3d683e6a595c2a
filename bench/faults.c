// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * faults.c - the XPU reads one word of each page, so that time is migration
 *
 * Before each round the CPU writes every page: all are at home, and the XPU
 * has none of them.
 */
#include <inttypes.h>

#include "bench.h"

static void check_sum(const struct xpu *xpu, unsigned int pending, size_t pages,
		      uint64_t round)
{
	uint64_t want = pages * (pages - 1) / 2 + pages * round;
	uint64_t sum = 0;

	for (unsigned int i = 0; i < pending; i++)
		sum += xpu->result->sums[i];
	if (sum != want)
		die("the XPU read %" PRIu64 ", the CPU wrote %" PRIu64, sum,
		    want);
}

/* One round: how long the XPU took for @pages faults. */
static double fault_all(struct xpu *xpu, struct sgpu_kernel *touch,
			struct touch_args *args, unsigned int pending,
			uint64_t round)
{
	uint64_t moved;
	double time;

	bring_home((char *)args->data, args->pages, round);
	advise(xpu->node, xpu->result, sizeof(*xpu->result), GM_WILLNEED);
	moved = pages_moved();
	time = xpu_run(xpu, touch, pending, args, sizeof(*args));
	moved = pages_moved() - moved;
	if (moved < args->pages)
		die("%" PRIu64 " pages were moved, not %" PRIu64, moved,
		    args->pages);
	check_sum(xpu, pending, args->pages, round);
	return time;
}

static void fault_stream(const char *metric, int random, unsigned int pending)
{
	static struct series ratio;
	size_t len = options.memory / 2;
	struct touch_args args = { .pages = len / GM_PAGE_SIZE };
	struct sgpu_kernel *touch;
	struct xpu xpu;

	series_start(&ratio, metric, "ratio to copy");
	xpu_open(&xpu, options.memory, pending);
	touch = xpu_kernel(&xpu, "touch");
	args.data = unified(len);
	args.result = xpu.result;
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double unit = unit_speed();
		double time;

		args.seed = random ? round + 1 : 0;
		time = fault_all(&xpu, touch, &args, pending, round);
		if (round > 0)
			series_add(&ratio, (double)len / time / unit);
	}
	unified_free((char *)args.data, len);
	xpu_close(&xpu);
	series_print(&ratio);
}

void bench_fault_seq(void)
{
	fault_stream("fault_seq", 0, 1);
}

void bench_fault_random(void)
{
	fault_stream("fault_random_1", 1, 1);
	fault_stream("fault_random_8", 1, 8);
}

#define SWEEPS 4

void bench_fault_latency(void)
{
	static struct series p50, p99, copies;
	static double us[SWEEPS * BENCH_MAX_PAGES];
	size_t len = options.memory / 2;
	struct touch_args args = { .pages = len / GM_PAGE_SIZE, .timed = 1 };
	struct sgpu_kernel *touch;
	struct xpu xpu;

	series_start(&p50, "fault_latency_p50", "us");
	series_start(&p99, "fault_latency_p99", "us");
	series_start(&copies, "fault_latency_copies", "copies of 2 MiB (p50)");
	xpu_open(&xpu, options.memory, 1);
	touch = xpu_kernel(&xpu, "touch");
	args.data = unified(len);
	args.result = xpu.result;
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double unit = unit_speed();
		unsigned int n = 0;
		double mid;

		for (unsigned int i = 0; i < SWEEPS; i++) {
			args.seed = round * SWEEPS + i + 1;
			fault_all(&xpu, touch, &args, 1, args.seed);
			for (uint64_t p = 0; p < args.pages; p++)
				us[n++] = 1e-3 * xpu.result->ns[p];
		}
		if (!round)
			continue;
		mid = percentile(us, n, 0.5);
		series_add(&p50, mid);
		series_add(&p99, percentile(us, n, 0.99));
		series_add(&copies, 1e-6 * mid * unit / GM_PAGE_SIZE);
	}
	unified_free((char *)args.data, len);
	xpu_close(&xpu);
	series_print(&p50);
	series_print(&p99);
	series_print(&copies);
}
