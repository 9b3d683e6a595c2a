/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * latency.c - how long commands and faults of the device alone take
 *
 * The driver is the tests' own: it maps the page that is asked for and copies
 * nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "harness.h"
#include "kernels.h"

#define ROUNDS 40
#define PAGES 100
#define SAMPLES (ROUNDS * PAGES)

static struct rig rig;
static uint64_t samples[SAMPLES];

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void report(const char *what)
{
	qsort(samples, SAMPLES, sizeof(samples[0]), compare);
	printf("%-24s p50 %6.1f us  p90 %6.1f us  p99 %6.1f us\n", what,
	       (double)samples[SAMPLES / 2] / 1e3,
	       (double)samples[SAMPLES * 9 / 10] / 1e3,
	       (double)samples[SAMPLES * 99 / 100] / 1e3);
}

static void must(int ret)
{
	if (!ret)
		return;
	fprintf(stderr, "%d %s\n", ret, sgpu_error(rig.gpu));
	exit(1);
}

static void measure_commands(bool unmap)
{
	for (unsigned int i = 0; i < SAMPLES; i++) {
		uint64_t page = i % PAGES, begin = now_ns();

		must(rig_map(&rig, page, page, 1, 3));
		if (unmap)
			begin = now_ns();
		else
			samples[i] = now_ns() - begin;
		must(rig_unmap(&rig, page, 1));
		if (unmap)
			samples[i] = now_ns() - begin;
	}
}

/* Both sides asleep. */
static void measure_idle(void)
{
	const struct timespec pause = { .tv_nsec = 300000 };

	for (unsigned int i = 0; i < SAMPLES; i++) {
		uint64_t begin;

		nanosleep(&pause, NULL);
		begin = now_ns();
		must(rig_map(&rig, i % PAGES, i % PAGES, 1, 3));
		samples[i] = now_ns() - begin;
		must(rig_unmap(&rig, i % PAGES, 1));
	}
}

static void measure_copies(const void *from)
{
	for (unsigned int i = 0; i < SAMPLES; i++) {
		uint64_t begin = now_ns();

		must(sgpu_hw_copy(rig.gpu, SGPU_HW_TO_DEV, i % PAGES * PAGE,
				  (uint64_t)(uintptr_t)from, PAGE));
		samples[i] = now_ns() - begin;
	}
}

static void measure_runs(void)
{
	struct sgpu_hw_run runs[16];

	for (unsigned int i = 0; i < 16; i++)
		runs[i] = (struct sgpu_hw_run){ va(&rig, 2 * i), 2 * i * PAGE,
						PAGE, 3 };
	for (unsigned int i = 0; i < SAMPLES; i++) {
		uint64_t begin = now_ns();

		must(sgpu_hw_map(rig.gpu, runs, 16));
		samples[i] = now_ns() - begin;
		must(sgpu_hw_unmap(rig.gpu, runs, 16));
	}
}

static void measure_faults(void)
{
	struct span a = { (void *)(uintptr_t)va(&rig, 0), PAGES,
			  (void *)(uintptr_t)va(&rig, PAGES + 1) };

	for (unsigned int r = 0; r < ROUNDS; r++) {
		must(rig_unmap(&rig, 0, PAGES));
		must(rig_run(&rig, "time_touches", 1, &a, sizeof(a)));
		for (unsigned int i = 0; i < PAGES; i++)
			samples[r * PAGES + i] = frame(&rig, PAGES + 1)[i];
	}
}

static void measure_launches(void)
{
	for (unsigned int i = 0; i < SAMPLES; i++) {
		uint64_t begin = now_ns();

		must(rig_run(&rig, "nothing", 1, NULL, 0));
		samples[i] = now_ns() - begin;
	}
}

int main(void)
{
	void *page = aligned_alloc(PAGE, PAGE);

	rig_open(&rig, NULL);
	if (!page)
		return 1;
	madvise(page, PAGE, MADV_HUGEPAGE);
	memset(page, 1, PAGE);
	for (unsigned int i = 0; i < 128; i++)
		must(sgpu_hw_zero(rig.gpu, i * PAGE, PAGE));
	measure_commands(false);
	report("map, one page");
	measure_commands(true);
	report("unmap, one page");
	measure_idle();
	report("map, one page, idle");
	measure_runs();
	report("map, 16 runs");
	measure_faults();
	report("fault, no copy");
	measure_copies(page);
	report("copy alone");
	rig.copy = page;
	measure_faults();
	report("fault with a copy");
	rig.copy = NULL;
	measure_launches();
	report("launch and sync");
	rig_close(&rig);
	free(page);
	return 0;
}
