// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * index_kernel.c - what the XPU does with the index
 */
#include "kernel_args.h"
#include "sgpu_kernel.h"

/* Read one page, whatever is in it. Once for each page. */
SGPU_KERNEL(read_page)
{
	const struct read_args *a = args;
	const uint64_t *word =
		(const uint64_t *)(a->start + thread->index * PAGE_BYTES);
	uint64_t sum = 0;

	for (uint64_t i = 0; i < PAGE_BYTES / sizeof(*word); i++)
		sum += word[i];
	__atomic_fetch_add(a->sum, sum, __ATOMIC_RELAXED);
}

/*
 * Lists of documents are in falling order, so the documents in all of them
 * are found by stepping forward whichever list is ahead of the others.
 */
static void find_docs(struct query *q, const struct index *index,
		      struct word **words)
{
	struct posting *at[QUERY_WORDS];

	for (uint32_t i = 0; i < q->nr_words; i++)
		at[i] = words[i]->postings;
	while (at[0]) {
		struct doc *doc = at[0]->doc;
		uint32_t i = 1;

		for (; i < q->nr_words; i++) {
			while (at[i] && at[i]->doc > doc)
				at[i] = at[i]->next;
			if (!at[i])
				return;
			if (at[i]->doc != doc)
				break;
		}
		if (i == q->nr_words) {
			q->nr_docs++;
			q->doc_sum += (uint64_t)(doc - index->docs);
			q->doc = doc;
		}
		at[0] = at[0]->next;
	}
}

/* The most frequent one, of equals the first by the alphabet. */
static void find_next(struct query *q, const struct word *word)
{
	for (struct pair *p = word->pairs; p; p = p->next) {
		if (p->count < q->next_count)
			continue;
		if (p->count == q->next_count && q->next_word &&
		    strcmp(p->second->text, q->next_word->text) > 0)
			continue;
		q->next_word = p->second;
		q->next_count = p->count;
	}
}

/* Answer one query. Once for each query. */
SGPU_KERNEL(answer)
{
	const struct answer_args *a = args;
	struct query *result = &a->queries[thread->index];
	struct query q = *result;
	struct word *words[QUERY_WORDS];

	for (uint32_t i = 0; i < q.nr_words; i++) {
		words[i] = find_word(a->index, q.words[i],
				     (uint32_t)strlen(q.words[i]));
		if (!words[i])
			return;
	}
	find_docs(&q, a->index, words);
	find_next(&q, words[0]);
	*result = q;
}

/* Count the words of one document. Once for each document. */
SGPU_KERNEL(count)
{
	const struct count_args *a = args;
	const struct doc *doc = &a->index->docs[thread->index];
	const char *at = doc->text;
	char text[WORD_MAX];
	uint32_t len;

	while ((len = next_word(&at, doc->text + doc->len, text))) {
		struct word *w = find_word(a->index, text, len);

		if (w)
			__atomic_fetch_add(&w->seen, 1, __ATOMIC_RELAXED);
	}
}
