// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * main.c - the demo: an index full of pointers, built by the CPU, used by an
 * XPU that has memory for half of it
 *
 * usage: index LIST COUNTS
 * LIST names a document a line; the XPU's word counts are written to COUNTS.
 * Exits with a failure if any result differs from the CPU's, or if the manager
 * did not do what it promises.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "build.h"
#include "check.h"
#include "kernel_args.h"
#include "report.h"
#include "util/util.h"

#define NR_QUERIES 300
#define MIN_PAGES 4 /* 8 MiB */

/* What the XPU writes its answers to. */
struct answers {
	struct query queries[NR_QUERIES];
	uint64_t sums[2]; /* of all pages, before and after counting */
};

static size_t count_pages(const struct arena *arenas)
{
	size_t pages = 0;

	for (int i = 0; i < NR_ARENAS; i++)
		pages += arena_pages(&arenas[i]);
	return pages;
}

static uint64_t sum_words(const struct arena *arenas)
{
	uint64_t sum = 0;

	for (int i = 0; i < NR_ARENAS; i++)
		for (const char *p = arenas[i].start; p < arenas[i].end; p += 8)
			sum += *(const uint64_t *)p;
	return sum;
}

static void show_query(const struct query *q)
{
	printf("     ");
	for (uint32_t i = 0; i < q->nr_words; i++)
		printf("%s%s", i ? " + " : "", q->words[i]);
	printf(": %" PRIu32 " documents, one is %s", q->nr_docs, q->doc->name);
	if (q->next_word)
		printf("; after \"%s\" mostly \"%s\"", q->words[0],
		       q->next_word->text);
	putchar('\n');
}

static void read_all(struct gpu *gpu, const struct arena *arenas, uint64_t *sum)
{
	struct sgpu_kernel *kernel = gpu_kernel(gpu, "read_page");

	for (int i = 0; i < NR_ARENAS; i++) {
		struct read_args args = { arenas[i].start, sum };

		gpu_run(gpu, kernel, arena_pages(&arenas[i]), &args,
			sizeof(args));
	}
}

/*
 * The XPU reads all of the index, and only reads. Whatever it evicts is still
 * on the host, so nothing may be copied back.
 */
static void phase_read(struct gpu *gpu, const struct index *index,
		       const struct arena *arenas, struct answers *answers)
{
	struct answer_args answer = { index, answers->queries };
	double start = now();
	struct gm_stats d;

	printf("\n1. The XPU only reads: every page of the index, then it "
	       "answers %d queries.\n",
	       NR_QUERIES);
	read_all(gpu, arenas, &answers->sums[0]);
	gpu_run(gpu, gpu_kernel(gpu, "answer"), NR_QUERIES, &answer,
		sizeof(answer));
	d = stats_step();
	report(&d, now() - start);
	must(d.evicted_clean > 0, "nothing was evicted", "but it cannot fit");
	must(d.evicted_dirty == 0 && d.bytes_to_host == 0,
	     "pages were written back", "but the XPU has only read");
	printf("   Evicted clean, 0 bytes written back: right.\n");
}

/* What it writes must be copied back when it is evicted, and only that. */
static void phase_count(struct gpu *gpu, const struct index *index,
			const struct arena *arenas, struct answers *answers)
{
	struct count_args count = { index };
	double start = now();
	struct gm_stats d;

	printf("\n2. The XPU writes: it counts every word of the text, in the "
	       "words of the index;\n   then it reads every page again.\n");
	gpu_run(gpu, gpu_kernel(gpu, "count"), index->nr_docs, &count,
		sizeof(count));
	read_all(gpu, arenas, &answers->sums[1]);
	d = stats_step();
	report(&d, now() - start);
	must(d.evicted_dirty > 0, "no page was written back",
	     "but the XPU has written, and then read more than it can hold");
}

static void phase_check(const struct file_list *files,
			const struct index *index, const struct arena *arenas,
			const struct answers *answers, uint64_t sum,
			const char *counts)
{
	double start = now();
	struct gm_stats d;
	uint64_t words;

	must(answers->sums[0] == sum, "the sum of all pages",
	     "the XPU read other data than the CPU wrote");
	must(answers->sums[1] == sum_words(arenas), "the sum of all pages",
	     "the CPU reads other data than the XPU");
	check_answers(files, index, answers->queries, NR_QUERIES);
	words = check_counts(index);
	write_counts(index, counts);
	printf("\n3. The CPU checks: the XPU read every byte right, answered "
	       "%d queries right and\n"
	       "   counted %" PRIu64 " words right. For example:\n",
	       NR_QUERIES, words);
	for (int i = 0; i < 3; i++)
		show_query(&answers->queries[i]);
	d = stats_step();
	report(&d, now() - start);
}

int main(int argc, char **argv)
{
	size_t answer_bytes =
		(sizeof(struct answers) + GM_PAGE_MASK) & ~GM_PAGE_MASK;
	struct arena arenas[NR_ARENAS];
	struct file_list files;
	struct answers *answers;
	struct index *index;
	struct gpu gpu;
	size_t pages, memory;
	uint64_t sum;
	double start;

	if (argc != 3) {
		fprintf(stderr, "usage: %s LIST COUNTS\n", argv[0]);
		return 2;
	}
	files = read_list(argv[1]);
	start = now();
	index = build_index(&files, arenas);
	pages = count_pages(arenas);
	memory = pages / 2;
	printf("The CPU read %zu documents, %.1f MB, and built their index in "
	       "%.2f s:\n%" PRIu64 " words, %" PRIu64 " pairs of words; "
	       "%zu pages of unified memory, %zu MiB, all on the CPU.\n",
	       files.nr, 1e-6 * (double)files.bytes, now() - start,
	       index->nr_words, index->nr_pairs, pages, 2 * pages);
	must(memory >= MIN_PAGES, "this is too little text",
	     "half of its index is less than 8 MiB");
	answers = unified(answer_bytes);
	make_queries(index, answers->queries, NR_QUERIES);
	sum = sum_words(arenas);

	gpu = gpu_open(memory * GM_PAGE_SIZE, "index_kernel.so");
	printf("Attached a software XPU with %zu MiB: half of what it needs.\n",
	       2 * memory);
	/* So that the answers are not what is written back to make room. */
	must(!gmadvise(gpu.node, answers, answer_bytes, GM_PIN),
	     "the answers cannot be pinned", gm_error());
	stats_step();
	phase_read(&gpu, index, arenas, answers);
	phase_count(&gpu, index, arenas, answers);
	draw_map(arenas, NR_ARENAS, gpu.node);
	phase_check(&files, index, arenas, answers, sum, argv[2]);
	gpu_close(&gpu);
	free_list(&files);
	return 0;
}
