// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * report.c - what it took, and what GMM did, in plain words or in JSON
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "llm.h"
#include "util/util.h"

#define MIB(bytes) ((double)(bytes) / (1 << 20))
#define MAX_NODES 64

/* --- this process ------------------------------------------------------- */

static uint64_t most_anon; /* bytes of anonymous memory */

void memory_sample(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	uint64_t kib;

	must(!!file, "/proc/self/status", "it cannot be read");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1 &&
		    kib << 10 > most_anon)
			most_anon = kib << 10;
	}
	fclose(file);
}

static uint64_t most_resident(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)usage.ru_maxrss << 10;
}

/* --- GMM ---------------------------------------------------------------- */

/* All counters are uint64_t, so that they can be seen as an array. */
#define NR_COUNTERS (sizeof(struct gm_stats) / sizeof(uint64_t))

struct step step_end(const struct options *options, const char *what,
		     double start)
{
	static struct gm_stats last;
	struct step step = { what, now() - start, { 0 } };
	uint64_t *counters = (uint64_t *)&step.stats;
	struct gm_stats stats;

	/* On the CPU alone there is no GMM to ask. */
	if (!options->xpu)
		return step;
	must(!gm_process_stats(&stats), "no statistics", gm_error());
	for (size_t i = 0; i < NR_COUNTERS; i++)
		counters[i] = ((uint64_t *)&stats)[i] - ((uint64_t *)&last)[i];
	last = stats;
	return step;
}

/* Who has the pages of unified memory. */
struct places {
	struct gm_node_info nodes[MAX_NODES];
	int nr_nodes;
	struct gm_region_stats sum;
	uint64_t pages;
};

static void find_places(struct places *p)
{
	struct gm_region_stats r = { 0 };

	memset(p, 0, sizeof(*p));
	p->nr_nodes = gm_nodes(p->nodes, MAX_NODES);
	must(p->nr_nodes > 0 && p->nr_nodes <= MAX_NODES, "the memories",
	     gm_error());
	while (!gm_region_find((const void *)r.end, &r)) {
		p->pages += (r.end - r.start) / GM_PAGE_SIZE;
		for (int i = 0; i < GM_NR_STATES; i++)
			p->sum.states[i] += r.states[i];
		for (int i = 0; i < MAX_NODES; i++)
			p->sum.on_node[i] += r.on_node[i];
	}
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
	row("of these ahead of any fault", l->prefetched, a->prefetched);
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

static void report_places(void)
{
	struct places p;

	find_places(&p);
	fprintf(stderr,
		"Where the %" PRIu64 " pages of unified memory are now:\n",
		p.pages);
	for (int i = 0; i < p.nr_nodes; i++) {
		struct gm_node_info *n = &p.nodes[i];

		fprintf(stderr, "  %-40s %10" PRIu64 "", n->name,
			p.sum.on_node[n->id]);
		if (n->is_xpu)
			fprintf(stderr, " of %" PRIu64 " that fit",
				n->total / GM_PAGE_SIZE);
		fputc('\n', stderr);
	}
	fprintf(stderr, "  %-40s %10" PRIu64 "\n", "of these on both",
		p.sum.states[GM_STATE_SHARED]);
	fprintf(stderr, "  %-40s %10" PRIu64 "\n", "nowhere: not touched yet",
		p.sum.states[GM_STATE_EMPTY]);
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
		MIB(most_resident()), MIB(most_anon));
	if (!o->xpu)
		return;
	report_gmm(&run->load.stats, &run->answers.stats);
	report_places();
}

/* --- in JSON ------------------------------------------------------------- */

/* Bytes of the character that begins at @s; 0 if it is not UTF-8. */
static int utf8_len(const unsigned char *s, const unsigned char *end)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	int len = *s < 0x80	  ? 1
		  : *s >> 5 == 6  ? 2
		  : *s >> 4 == 14 ? 3
		  : *s >> 3 == 30 ? 4
				  : 0;
	uint32_t c = *s & (0xff >> (len + 1));

	if (len <= 1 || end - s < len)
		return len == 1;
	for (int i = 1; i < len; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c >= least[len] && c <= 0x10ffff && c >> 11 != 0x1b ? len : 0;
}

static void json_string(const char *key, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	const unsigned char *end = s + strlen(text);
	int len;

	printf("\"%s\": \"", key);
	for (; s < end; s += len ? len : 1) {
		len = utf8_len(s, end);
		if (!len)
			fputs("\\ufffd", stdout);
		else if (*s < 0x20)
			printf("\\u%04x", *s);
		else if (*s == '"' || *s == '\\')
			printf("\\%c", *s);
		else
			fwrite(s, 1, (size_t)len, stdout);
	}
	putchar('"');
}

static void json_times(const struct answer *a)
{
	printf("\"prompt_tokens\": %d, \"prompt_s\": %.6f, \"tokens\": %d, "
	       "\"decoded\": %d, \"answer_s\": %.6f",
	       a->prompt_tokens, a->prompt_s, a->tokens, a->decoded,
	       a->answer_s);
}

void answer_json(const char *prompt, const struct answer *answer)
{
	putchar('{');
	json_string("prompt", prompt);
	fputs(", ", stdout);
	json_string("text", answer->text);
	fputs(", ", stdout);
	json_times(answer);
	puts("}");
	fflush(stdout);
}

static void json_step(const struct step *step)
{
	static const char *const names[] = {
		"faults_cpu",	    "faults_xpu_read", "faults_xpu_write",
		"faults_coalesced", "faults_failed",   "zeroed",
		"to_xpu",	    "to_host",	       "xpu_to_xpu",
		"prefetched",	    "evicted_clean",   "evicted_dirty",
		"upgraded",	    "mapped_home",     "replicas_dropped",
		"bytes_to_xpu",	    "bytes_to_host",   "bytes_memcpy",
		"ns_copying",	    "ns_faults",       "residence_waits",
		"busy_waits",	    "fragmented",      "poisoned",
		"reclaims",	    "operator_errors",
	};
	const uint64_t *counters = (const uint64_t *)&step->stats;

	_Static_assert(sizeof(names) / sizeof(*names) == NR_COUNTERS,
		       "a name for each counter of gmm.h, in its order");
	printf("\"%s\": {", step->what);
	for (size_t i = 0; i < NR_COUNTERS; i++)
		printf("%s\"%s\": %" PRIu64, i ? ", " : "", names[i],
		       counters[i]);
	fputs("}, ", stdout);
}

static void json_places(void)
{
	struct places p;

	find_places(&p);
	printf("\"pages\": %" PRIu64 ", \"shared\": %" PRIu64
	       ", \"empty\": %" PRIu64 ", \"nodes\": [",
	       p.pages, p.sum.states[GM_STATE_SHARED],
	       p.sum.states[GM_STATE_EMPTY]);
	for (int i = 0; i < p.nr_nodes; i++) {
		struct gm_node_info *n = &p.nodes[i];

		printf("%s{", i ? ", " : "");
		json_string("name", n->name);
		printf(", \"xpu\": %s, \"total\": %" PRIu64
		       ", \"pages\": %" PRIu64 "}",
		       n->is_xpu ? "true" : "false", n->total,
		       p.sum.on_node[n->id]);
	}
	putchar(']');
}

void report_json(const struct run *run)
{
	const struct options *o = run->options;

	putchar('{');
	json_string("model", o->model);
	printf(", \"weights\": %" PRIu64 ", \"device\": \"%s\", "
	       "\"threads\": %d, \"load_s\": %.6f, ",
	       model_size(run->model), o->xpu ? "gmm" : "cpu", o->threads,
	       run->load.seconds);
	json_times(&run->total);
	printf(", \"peak_resident\": %" PRIu64 ", \"peak_anon\": %" PRIu64,
	       most_resident(), most_anon);
	if (o->xpu) {
		fputs(", \"gmm\": {", stdout);
		json_step(&run->load);
		json_step(&run->answers);
		json_places();
		putchar('}');
	}
	puts("}");
}
