// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * memory.c - hints, copies, and what unified memory costs the CPU
 */
#include <inttypes.h>
#include <string.h>

#include "bench.h"

static void bench_prefetch(const char *metric, size_t chunk)
{
	static struct series ratio;
	size_t len = options.memory / 2;
	struct xpu xpu;
	char *data;

	if (len < chunk)
		die("%s: --memory must be at least %zu MiB", metric,
		    2 * chunk >> 20);
	series_start(&ratio, metric, "ratio to copy");
	xpu_open(&xpu, options.memory, 1);
	data = unified(len);
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double unit = unit_speed();
		uint64_t moved;
		double start, time;
		size_t at;

		bring_home(data, len / GM_PAGE_SIZE, round);
		moved = pages_moved();
		start = seconds();
		for (at = 0; at + chunk <= len; at += chunk)
			advise(xpu.node, data + at, chunk, GM_WILLNEED);
		time = seconds() - start;
		moved = pages_moved() - moved;
		if (moved != at / GM_PAGE_SIZE)
			die("%s: %" PRIu64 " pages were moved, not %zu", metric,
			    moved, at / GM_PAGE_SIZE);
		if (round > 0)
			series_add(&ratio, (double)at / time / unit);
	}
	unified_free(data, len);
	xpu_close(&xpu);
	series_print(&ratio);
}

void bench_prefetch_32m(void)
{
	bench_prefetch("prefetch_32m", 32 << 20);
}

void bench_prefetch_2m(void)
{
	bench_prefetch("prefetch_2m", 2 << 20);
}

/* gmemcpy() of all of it, @chunk bytes a call, to the XPU. */
static void bench_memcpy(const char *metric, size_t chunk, int from_plain)
{
	static struct series ratio;
	size_t len = options.memory / 2 / chunk * chunk;
	char *src, *dst;
	struct xpu xpu;

	if (!len)
		die("%s: --memory must be at least %zu MiB", metric,
		    2 * chunk >> 20);
	series_start(&ratio, metric, "ratio to copy");
	xpu_open(&xpu, options.memory, 1);
	src = from_plain ? huge_reserve(len) : unified(len);
	dst = unified(len);
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double unit = unit_speed();
		double start, time;

		memset(src, (int)round + 1, len);
		bring_home(dst, len / GM_PAGE_SIZE, round);
		start = seconds();
		for (size_t at = 0; at < len; at += chunk)
			if (gmemcpy(xpu.node, dst + at, src + at, chunk))
				die("gmemcpy: %s", gm_error());
		time = seconds() - start;
		if (memcmp(dst, src, len))
			die("%s: the copy differs", metric);
		if (round > 0)
			series_add(&ratio, (double)len / time / unit);
	}
	if (from_plain)
		huge_free(src, len);
	else
		unified_free(src, len);
	unified_free(dst, len);
	xpu_close(&xpu);
	series_print(&ratio);
}

void bench_memcpy_2m(void)
{
	bench_memcpy("memcpy_2m", 2 << 20, 0);
}

void bench_memcpy_32m(void)
{
	bench_memcpy("memcpy_32m", 32 << 20, 0);
}

void bench_memcpy_plain(void)
{
	bench_memcpy("memcpy_plain", 2 << 20, 1);
}

/* Both sides on the CPU, against libc's memcpy() of the same memory. */
static double copy_home(int libc, char *dst, const char *src, size_t len)
{
	double start = seconds();

	for (size_t at = 0; at < len; at += GM_PAGE_SIZE) {
		if (libc)
			memcpy(dst + at, src + at, GM_PAGE_SIZE);
		else if (gmemcpy(GM_NODE_NONE, dst + at, src + at,
				 GM_PAGE_SIZE))
			die("gmemcpy: %s", gm_error());
	}
	return seconds() - start;
}

void bench_memcpy_home(void)
{
	static struct series ratio;
	size_t len = options.memory / 2;
	char *src, *dst;
	struct xpu xpu;

	series_start(&ratio, "memcpy_home", "ratio to memcpy");
	xpu_open(&xpu, options.memory, 1);
	src = unified(len);
	dst = unified(len);
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double libc = 0, time;

		memset(src, (int)round + 1, len);
		if (round % 2 || !round)
			libc = copy_home(1, dst, src, len);
		time = copy_home(0, dst, src, len);
		if (memcmp(dst, src, len))
			die("memcpy_home: the copy differs");
		if (!libc)
			libc = copy_home(1, dst, src, len);
		if (round > 0)
			series_add(&ratio, libc / time);
	}
	unified_free(src, len);
	unified_free(dst, len);
	xpu_close(&xpu);
	series_print(&ratio);
}

/* Write once in every 4 KiB. */
static double touch_all(char *p, size_t len)
{
	double start = seconds();

	for (size_t at = 0; at < len; at += 4096)
		*(volatile char *)(p + at) = 1;
	return seconds() - start;
}

static double touch_plain(size_t len)
{
	char *p = huge_reserve(len);
	double time = touch_all(p, len);

	huge_free(p, len);
	return time;
}

static double touch_unified(size_t len)
{
	char *p = unified(len);
	double time = touch_all(p, len);

	unified_free(p, len);
	return time;
}

/* Which of the two goes first changes with every round. */
static void first_touch(const char *metric)
{
	static struct series ratio;
	size_t len = options.memory / 2;

	series_start(&ratio, metric, "ratio to plain");
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double plain = 0, time;

		if (round % 2)
			plain = touch_plain(len);
		time = touch_unified(len);
		if (round % 2 == 0)
			plain = touch_plain(len);
		if (round > 0)
			series_add(&ratio, plain / time);
	}
	series_print(&ratio);
}

void bench_first_touch(void)
{
	first_touch("first_touch");
}

void bench_first_touch_attached(void)
{
	struct xpu xpu;

	xpu_open(&xpu, options.memory, 1);
	first_touch("first_touch_attached");
	xpu_close(&xpu);
}

static double stream(uint64_t *p, size_t len)
{
	double start = seconds();

	for (size_t i = 0; i < len / sizeof(*p); i++)
		p[i]++;
	return seconds() - start;
}

/*
 * Unified memory that has been to the XPU and back, as the CPU sees it. The
 * pages must still be huge ones for this to be as fast as plain memory.
 */
void bench_resident(void)
{
	static struct series ratio;
	size_t len = options.memory / 2;
	uint64_t *data, *plain;
	struct xpu xpu;

	series_start(&ratio, "resident", "ratio to plain");
	xpu_open(&xpu, options.memory, 1);
	plain = huge_alloc(len);
	data = unified(len);
	bring_home((char *)data, len / GM_PAGE_SIZE, 0);
	advise(xpu.node, data, len, GM_WILLNEED);
	bring_home((char *)data, len / GM_PAGE_SIZE, 0);
	for (unsigned int round = 0; round <= options.rounds; round++) {
		double slow = 0, time;

		if (round % 2)
			slow = stream(plain, len);
		time = stream(data, len);
		if (round % 2 == 0)
			slow = stream(plain, len);
		if (round > 0)
			series_add(&ratio, slow / time);
	}
	unified_free(data, len);
	huge_free(plain, len);
	xpu_close(&xpu);
	series_print(&ratio);
}
