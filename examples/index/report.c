// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * report.c - what the manager did, in plain words
 */
#include <inttypes.h>
#include <stdio.h>

#include "report.h"
#include "util/util.h"

#define MIB(bytes) ((double)(bytes) / (1 << 20))

struct gm_stats stats_step(void)
{
	static struct gm_stats last;
	struct gm_stats next, d;
	uint64_t *to = (uint64_t *)&d;
	const uint64_t *a = (uint64_t *)&next;
	const uint64_t *b = (uint64_t *)&last;

	must(!gm_process_stats(&next), "no statistics", gm_error());
	for (size_t i = 0; i < sizeof(d) / sizeof(*to); i++)
		to[i] = a[i] - b[i];
	last = next;
	return d;
}

static void line(const char *what, uint64_t pages)
{
	printf("     %-34s %6" PRIu64 " pages\n", what, pages);
}

void report(const struct gm_stats *d, double seconds)
{
	printf("   What GMM did in these %.2f s:\n", seconds);
	printf("     served page faults: %" PRIu64 " reads and %" PRIu64
	       " writes of the XPU, %" PRIu64 " of the CPU\n",
	       d->faults_xpu_read, d->faults_xpu_write, d->faults_cpu);
	line("copied to the XPU:", d->to_xpu);
	line("made writable without a copy:", d->upgraded);
	line("evicted clean, dropped:", d->evicted_clean);
	line("evicted dirty, written back:", d->evicted_dirty);
	line("copied to the CPU for other reasons:",
	     d->to_host - d->evicted_dirty);
	line("given back to the CPU, no copy:", d->mapped_home);
	printf("     bytes: %.1f MiB to the XPU, %.1f MiB back; "
	       "%.0f ms in copies, %.0f ms in the XPU's faults\n",
	       MIB(d->bytes_to_xpu), MIB(d->bytes_to_host),
	       1e-6 * (double)d->ns_copying, 1e-6 * (double)d->ns_faults);
}

static char letter(const struct gm_where *where, int node)
{
	int on_xpu = where->copies >> node & 1;

	if (where->state == GM_STATE_SHARED)
		return on_xpu ? 'b' : 'c';
	if (where->state == GM_STATE_MODIFIED)
		return on_xpu ? 'x' : 'c';
	if (where->state == GM_STATE_UNTRACKED)
		return 'c';
	return where->state == GM_STATE_EMPTY ? '.' : '?';
}

void draw_map(const struct arena *arenas, size_t n, int node)
{
	struct gm_where where;

	printf("Where its pages live now, 2 MiB a letter "
	       "(c CPU, x XPU, b both, . nowhere yet):\n");
	for (size_t i = 0; i < n; i++) {
		size_t pages = arena_pages(&arenas[i]);

		for (size_t p = 0; p < pages; p++) {
			if (p % 60 == 0)
				printf("%s  %-9s ", p ? "\n" : "",
				       p ? "" : arenas[i].what);
			must(!gm_where(arenas[i].start + p * GM_PAGE_SIZE,
				       &where),
			     arenas[i].what, gm_error());
			putchar(letter(&where, node));
		}
		putchar('\n');
	}
}
