// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * check.c - the same questions, answered by the CPU in another way
 *
 * Nothing of the index is used: for each word that is asked for, a bitmap of
 * the documents that have it is made from the files; what follows the first
 * word of a query is counted in a tree.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "util/util.h"

/* A word that is asked for, or that follows one. */
struct asked {
	char text[WORD_MAX + 1];
	uint8_t *docs; /* bitmap, of a word that is asked for */
	void *followers; /* tree, of one that a query begins with */
	int first;
	uint64_t count; /* of a follower */
};

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct asked *)a)->text,
		      ((const struct asked *)b)->text);
}

/* Find a word in a tree; make it if it is not there and @make. */
static struct asked *tree_get(void **tree, const char *text, int make)
{
	struct asked key = { 0 };
	struct asked **node;

	strcpy(key.text, text);
	node = tfind(&key, tree, compare);
	if (!node && make) {
		struct asked *new = malloc(sizeof(*new));

		must(new != NULL, "malloc", strerror(errno));
		*new = key;
		node = tsearch(new, tree, compare);
		must(node != NULL, "tsearch", strerror(errno));
	}
	return node ? *node : NULL;
}

static void tree_free(void *node)
{
	struct asked *a = node;

	if (a->followers)
		tdestroy(a->followers, tree_free);
	free(a->docs);
	free(a);
}

static uint32_t random_below(uint64_t *state, uint64_t n)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((*state >> 33) % n);
}

/* A word at a random place of a document, or 0 letters. */
static uint32_t pick_word(const struct doc *doc, uint64_t *state, char *text)
{
	const char *end = doc->text + doc->len;
	const char *at = doc->text + random_below(state, doc->len);
	uint32_t len;

	next_word(&at, end, text); /* the rest of a word */
	len = next_word(&at, end, text);
	text[len] = '\0';
	return len;
}

void make_queries(const struct index *index, struct query *queries, size_t n)
{
	uint64_t state = 1;

	for (size_t i = 0; i < n;) {
		const struct doc *doc =
			&index->docs[random_below(&state, index->nr_docs)];
		struct query *q = &queries[i];
		uint32_t want = 2 + random_below(&state, QUERY_WORDS - 1);

		if (doc->len < 100)
			continue;
		memset(q, 0, sizeof(*q));
		while (q->nr_words < want &&
		       pick_word(doc, &state, q->words[q->nr_words]) > 3)
			q->nr_words++;
		i += q->nr_words == want;
	}
}

/* Note that document @nr has @word, and that it came after @last. */
static void note(void **tree, char *word, size_t nr, struct asked **last)
{
	struct asked *a = tree_get(tree, word, 0);

	if (*last && (*last)->first)
		tree_get(&(*last)->followers, word, 1)->count++;
	if (a)
		a->docs[nr / 8] |= (uint8_t)(1 << nr % 8);
	*last = a;
}

static void scan_file(void **tree, const char *name, size_t nr)
{
	FILE *file = fopen(name, "r");
	struct asked *last = NULL;
	char word[WORD_MAX + 1];
	size_t len = 0;
	int c;

	must(file != NULL, name, strerror(errno));
	do {
		c = getc_unlocked(file);
		if (c != EOF && isascii(c) && isalpha(c)) {
			if (len < WORD_MAX)
				word[len++] = (char)tolower(c);
		} else if (len) {
			word[len] = '\0';
			note(tree, word, nr, &last);
			len = 0;
		}
	} while (c != EOF);
	fclose(file);
}

/* For twalk_r(): the most frequent follower, of equals the first. */
static void pick_best(const void *node, VISIT which, void *arg)
{
	const struct asked *a = *(struct asked *const *)node;
	const struct asked **best = arg;

	if ((which == postorder || which == leaf) &&
	    (!*best || a->count > (*best)->count))
		*best = a;
}

static void check_answer(void **tree, const struct query *q, size_t nr_docs)
{
	struct asked *words[QUERY_WORDS];
	const struct asked *best = NULL;
	uint32_t found = 0;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < q->nr_words; i++)
		words[i] = tree_get(tree, q->words[i], 0);
	for (size_t d = 0; d < nr_docs; d++) {
		uint8_t all = 0xff;

		for (uint32_t i = 0; i < q->nr_words; i++)
			all &= words[i]->docs[d / 8];
		if (all & 1 << d % 8) {
			found++;
			sum += d;
		}
	}
	must(found == q->nr_docs && sum == q->doc_sum && found > 0, q->words[0],
	     "the XPU found other documents than the CPU");
	twalk_r(words[0]->followers, pick_best, &best);
	must(best ? q->next_word && q->next_count == best->count &&
			     !strcmp(q->next_word->text, best->text)
		  : !q->next_word,
	     q->words[0], "the XPU found another next word than the CPU");
}

void check_answers(const struct file_list *files, const struct index *index,
		   const struct query *queries, size_t n)
{
	void *tree = NULL;

	for (size_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < queries[i].nr_words; k++) {
			struct asked *a =
				tree_get(&tree, queries[i].words[k], 1);

			a->first |= k == 0;
			if (!a->docs)
				a->docs = calloc(files->nr / 8 + 1, 1);
			must(a->docs != NULL, "calloc", strerror(errno));
		}
	}
	for (size_t i = 0; i < files->nr; i++)
		scan_file(&tree, files->names[i], i);
	for (size_t i = 0; i < n; i++)
		check_answer(&tree, &queries[i], index->nr_docs);
	tdestroy(tree, tree_free);
}

uint64_t check_counts(const struct index *index)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i <= index->word_mask; i++) {
		for (struct word *w = index->words[i]; w; w = w->chain) {
			must(w->seen == w->count, w->text,
			     "the XPU counted it otherwise than the CPU");
			sum += w->seen;
		}
	}
	return sum;
}

void write_counts(const struct index *index, const char *path)
{
	FILE *out = fopen(path, "w");

	must(out != NULL, path, strerror(errno));
	for (uint64_t i = 0; i <= index->word_mask; i++)
		for (struct word *w = index->words[i]; w; w = w->chain)
			fprintf(out, "%" PRIu64 " %s\n", w->seen, w->text);
	must(!fclose(out), path, strerror(errno));
}
