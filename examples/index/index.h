/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * index.h - an index of documents, made of pointers, shared by CPU and XPU
 *
 * Every pointer here points into unified memory, so the XPU follows them as
 * the CPU wrote them. A word is a run of ASCII letters, in small letters.
 */
#ifndef INDEX_H
#define INDEX_H

#include <stdint.h>
#include <string.h>

struct doc {
	const char *name;
	const char *text;
	uint64_t len;
};

/* A document that has the word. */
struct posting {
	struct posting *next; /* the document read before this one */
	struct doc *doc;
};

/* Two words that follow each other in a document. */
struct pair {
	struct pair *chain; /* in its bucket */
	struct pair *next; /* of the same first word */
	struct word *first;
	struct word *second;
	uint64_t count;
};

struct word {
	struct word *chain; /* in its bucket */
	struct posting *postings; /* the last document first */
	struct pair *pairs;
	uint64_t count; /* by the CPU, when it built the index */
	uint64_t seen; /* by the XPU */
	uint32_t hash;
	uint32_t len;
	char text[];
};

struct index {
	struct doc *docs;
	uint64_t nr_docs;
	struct word **words; /* buckets */
	uint64_t nr_words;
	uint64_t word_mask;
	struct pair **pairs; /* buckets */
	uint64_t nr_pairs;
	uint64_t pair_mask;
};

#define WORD_MAX 64 /* letters beyond these are cut off */
#define QUERY_WORDS 3

struct query {
	char words[QUERY_WORDS][WORD_MAX + 1];
	uint32_t nr_words;
	/* The answers: */
	uint32_t nr_docs; /* how many documents have all of the words */
	uint64_t doc_sum; /* the sum of their numbers */
	struct doc *doc; /* one of them */
	struct word *next_word; /* most often found after the first word */
	uint64_t next_count;
};

static inline uint32_t word_hash(const char *text, uint32_t len)
{
	uint32_t hash = 2166136261u;

	for (uint32_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;
	return hash ^ hash >> 15;
}

/*
 * The next word at or after *@at: its letters, made small, go to @word.
 * Return: how many letters; 0 at the end of the text.
 */
static inline uint32_t next_word(const char **at, const char *end, char *word)
{
	const char *p = *at;
	uint32_t len = 0;

	while (p < end && (unsigned char)((*p | 0x20) - 'a') >= 26)
		p++;
	for (; p < end && (unsigned char)((*p | 0x20) - 'a') < 26; p++)
		if (len < WORD_MAX)
			word[len++] = *p | 0x20;
	*at = p;
	return len;
}

static inline struct word *find_word(const struct index *index,
				     const char *text, uint32_t len)
{
	uint32_t hash = word_hash(text, len);
	struct word *w = index->words[hash & index->word_mask];

	while (w &&
	       (w->hash != hash || w->len != len || memcmp(w->text, text, len)))
		w = w->chain;
	return w;
}

#endif
