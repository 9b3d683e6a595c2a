// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * report.c - what it took, and what GMM did, in plain words
 */
#include <inttypes.h>
#include <stdio.h>

#include "llm.h"
#include "util/util.h"

#define MIB(bytes) ((double)(bytes) / (1 << 20))

/* --- what there is to tell ------------------------------------------------ */

static struct memory most;

static uint64_t at_least(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * The software XPU's memory is mapped here, as shared memory. getrusage() would
 * count it, and what the process that started this one had.
 */
void memory_sample(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	uint64_t kib, anon = 0, files = 0;
	char line[256];

	must(!!file, "/proc/self/status", "it cannot be read");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1)
			anon = kib << 10;
		if (sscanf(line, "RssFile: %" SCNu64, &kib) == 1)
			files = kib << 10;
	}
	fclose(file);
	most.anon = at_least(most.anon, anon);
	most.resident = at_least(most.resident, anon + files);
}

struct memory memory_most(void)
{
	memory_sample();
	return most;
}

struct step step_end(const struct options *options, const char *what,
		     double start)
{
	static struct gm_stats last;
	struct step step = { what, now() - start, { 0 } };
	struct gm_stats stats;

	/* On the CPU alone there is no GMM to ask. */
	if (!options->xpu)
		return step;
	must(!gm_process_stats(&stats), "no statistics", gm_error());
	step.stats = stats_since(&last, &stats);
	last = stats;
	return step;
}

struct gm_stats stats_since(const struct gm_stats *last,
			    const struct gm_stats *stats)
{
	struct gm_stats more;

	for (size_t i = 0; i < NR_COUNTERS; i++)
		((uint64_t *)&more)[i] = ((const uint64_t *)stats)[i] -
					 ((const uint64_t *)last)[i];
	return more;
}

const char *const use_names[NR_USES] = {
	[GGML_GMM_STATES] = "states",
	[GGML_GMM_WEIGHTS] = "weights",
	[GGML_GMM_ACTIVATIONS] = "activations",
};

static void count_pages(void *base, size_t len, enum ggml_gmm_use use,
			void *arg)
{
	struct places *places = arg;
	struct pages *pages = &places->of[use];
	struct gm_where where;

	for (size_t at = 0; at < len; at += GM_PAGE_SIZE) {
		must(!gm_where((char *)base + at, &where), use_names[use],
		     gm_error());
		if (!where.copies)
			pages->nowhere++;
		else if (!(where.copies & places->xpus))
			pages->cpu++;
		else if (where.copies & ~places->xpus)
			pages->both++;
		else
			pages->xpu++;
	}
}

struct places places_find(const struct run *run)
{
	struct gm_node_info nodes[64];
	struct places places = { 0 };
	int n = gm_nodes(nodes, 64);

	must(n > 0 && n <= 64, "the memories", gm_error());
	for (int i = 0; i < n; i++) {
		if (!nodes[i].is_xpu)
			continue;
		places.xpus |= (uint64_t)1 << nodes[i].id;
		places.xpu_memory += nodes[i].total;
	}
	model_buffers(run->model, count_pages, &places);
	return places;
}

/* --- in plain words ------------------------------------------------------ */

static void row(const char *what, uint64_t loading, uint64_t answering)
{
	fprintf(stderr, "  %-40s %10" PRIu64 " %10" PRIu64 "\n", what, loading,
		answering);
}

static void row_of(const char *what, const char *unit, double loading,
		   double answering)
{
	fprintf(stderr, "  %-32s %7s %10.1f %10.1f\n", what, unit, loading,
		answering);
}

static void report_gmm(const struct gm_stats *l, const struct gm_stats *a)
{
	fprintf(stderr, "What GMM did, in pages of 2 MiB:%*s  answering\n", 19,
		"loading");
	row("faults of the CPU", l->faults_cpu, a->faults_cpu);
	row("faults of the XPU, to read", l->faults_xpu_read,
	    a->faults_xpu_read);
	row("faults of the XPU, to write", l->faults_xpu_write,
	    a->faults_xpu_write);
	row("first touched, filled with zeros", l->zeroed, a->zeroed);
	row("copied to the XPU", l->to_xpu, a->to_xpu);
	row("copied to the CPU", l->to_host, a->to_host);
	row("of both, ahead of any fault", l->prefetched, a->prefetched);
	row("given back to the CPU with no copy", l->mapped_home,
	    a->mapped_home);
	row("made writable with no copy", l->upgraded, a->upgraded);
	row("evicted clean: dropped", l->evicted_clean, a->evicted_clean);
	row("evicted dirty: written back", l->evicted_dirty, a->evicted_dirty);
	row("replicas dropped to free host memory", l->replicas_dropped,
	    a->replicas_dropped);
	row_of("moved to the XPU", "MiB", MIB(l->bytes_to_xpu),
	       MIB(a->bytes_to_xpu));
	row_of("moved to the CPU", "MiB", MIB(l->bytes_to_host),
	       MIB(a->bytes_to_host));
	row_of("copied by gmemcpy()", "MiB", MIB(l->bytes_memcpy),
	       MIB(a->bytes_memcpy));
	row_of("time in copies, all threads", "ms",
	       1e-6 * (double)l->ns_copying, 1e-6 * (double)a->ns_copying);
	row_of("time in faults of the XPU", "ms", 1e-6 * (double)l->ns_faults,
	       1e-6 * (double)a->ns_faults);
}

static void report_places(const struct run *run)
{
	struct places places = places_find(run);

	fprintf(stderr,
		"Where the model's pages are now (%" PRIu64
		" fit on the XPU):\n"
		"  %-18s %10s %10s %10s %10s\n",
		places.xpu_memory / GM_PAGE_SIZE, "", "CPU", "XPU", "both",
		"untouched");
	for (int i = 0; i < NR_USES; i++) {
		const struct pages *p = &places.of[i];

		fprintf(stderr,
			"  %-18s %10" PRIu64 " %10" PRIu64 " %10" PRIu64
			" %10" PRIu64 "\n",
			use_names[i], p->cpu, p->xpu, p->both, p->nowhere);
	}
}

static double rate(int n, double seconds)
{
	return seconds > 0 ? n / seconds : 0;
}

void report(const struct run *run)
{
	const struct answer *t = &run->total;
	const struct options *o = run->options;
	char what[128];

	fflush(stdout);
	model_describe(run->model, what, sizeof(what));
	fprintf(stderr, "%s: %s, %.1f MiB of weights, on the %s, threads: %d\n",
		o->model, what, MIB(model_size(run->model)),
		o->xpu ? "XPU through GMM" : "CPU alone", o->threads);
	fprintf(stderr, "  loaded in %.2f s\n", run->load.seconds);
	fprintf(stderr, "  prompts: %d tokens in %.2f s, %.1f a second\n",
		t->prompt_tokens, t->prompt_s,
		rate(t->prompt_tokens, t->prompt_s));
	fprintf(stderr, "  answers: %d tokens in %.2f s, %.1f a second\n",
		t->decoded, t->answer_s, rate(t->decoded, t->answer_s));
	fprintf(stderr,
		"  memory of the program: at most %.1f MiB; without files "
		"%.1f MiB\n",
		MIB(run->memory.resident), MIB(run->memory.anon));
	if (!o->xpu)
		return;
	report_gmm(&run->load.stats, &run->answers.stats);
	report_places(run);
}
