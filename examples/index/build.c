// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * build.c - reading documents and building their index, on the CPU
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"
#include "util/util.h"

size_t arena_pages(const struct arena *arena)
{
	return (size_t)(arena->end - arena->start) / GM_PAGE_SIZE;
}

static void *take(struct arena *arena, size_t size)
{
	void *p = arena->at;

	size = (size + 7) & ~(size_t)7;
	must((size_t)(arena->end - arena->at) >= size, arena->what,
	     "more memory was needed than expected");
	arena->at += size;
	return p;
}

static void arena_open(struct arena *arena, const char *what, size_t len)
{
	len = (len + GM_PAGE_MASK) & ~GM_PAGE_MASK;
	*arena = (struct arena){ .what = what, .start = unified(len) };
	arena->at = arena->start;
	arena->end = arena->start + len;
}

/* Give back what was not needed. */
static void arena_trim(struct arena *arena)
{
	size_t used = (size_t)(arena->at - arena->start);
	size_t kept = (used + GM_PAGE_MASK) & ~GM_PAGE_MASK;
	size_t len = (size_t)(arena->end - arena->start);

	if (kept < len)
		must(!gm_munmap(arena->start + kept, len - kept), arena->what,
		     gm_error());
	arena->end = arena->start + kept;
}

struct file_list read_list(const char *path)
{
	struct file_list files = { 0 };
	FILE *list = fopen(path, "r");
	char *line = NULL;
	size_t size = 0;
	ssize_t len;

	must(list != NULL, path, strerror(errno));
	while ((len = getline(&line, &size, list)) > 0) {
		struct stat st;

		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		must(!stat(line, &st), line, strerror(errno));
		files.names =
			realloc(files.names, (files.nr + 1) * sizeof(char *));
		must(files.names != NULL, path, strerror(errno));
		files.names[files.nr++] = strdup(line);
		files.bytes += (size_t)st.st_size;
	}
	free(line);
	fclose(list);
	must(files.nr > 0, path, "it names no document");
	return files;
}

void free_list(struct file_list *files)
{
	for (size_t i = 0; i < files->nr; i++)
		free(files->names[i]);
	free(files->names);
}

/* read() goes straight into unified memory. */
static void read_doc(struct arena *arena, struct doc *doc, const char *name)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *copy, *text;
	ssize_t n;

	must(fd >= 0 && !fstat(fd, &st), name, strerror(errno));
	copy = take(arena, strlen(name) + 1);
	doc->name = strcpy(copy, name);
	text = take(arena, (size_t)st.st_size);
	doc->text = text;
	while (doc->len < (uint64_t)st.st_size) {
		n = read(fd, text + doc->len, (size_t)st.st_size - doc->len);
		must(n >= 0, name, strerror(errno));
		if (!n)
			break;
		doc->len += (uint64_t)n;
	}
	close(fd);
}

static struct word *add_word(struct index *index, struct arena *arena,
			     const char *text, uint32_t len)
{
	struct word *w = find_word(index, text, len);
	struct word **bucket;

	if (w)
		return w;
	w = take(arena, sizeof(*w) + len + 1);
	memcpy(w->text, text, len);
	w->len = len;
	w->hash = word_hash(text, len);
	bucket = &index->words[w->hash & index->word_mask];
	w->chain = *bucket;
	*bucket = w;
	index->nr_words++;
	return w;
}

static void add_posting(struct word *w, struct doc *doc, struct arena *arena)
{
	struct posting *p;

	if (w->postings && w->postings->doc == doc)
		return;
	p = take(arena, sizeof(*p));
	p->doc = doc;
	p->next = w->postings;
	w->postings = p;
}

static void add_pair(struct index *index, struct word *first,
		     struct word *second, struct arena *arena)
{
	uint32_t hash = first->hash * 31 + second->hash;
	struct pair **bucket = &index->pairs[hash & index->pair_mask];
	struct pair *p = *bucket;

	while (p && (p->first != first || p->second != second))
		p = p->chain;
	if (!p) {
		p = take(arena, sizeof(*p));
		p->first = first;
		p->second = second;
		p->chain = *bucket;
		*bucket = p;
		p->next = first->pairs;
		first->pairs = p;
		index->nr_pairs++;
	}
	p->count++;
}

static void add_doc(struct index *index, struct doc *doc, struct arena *arenas)
{
	const char *at = doc->text;
	struct word *last = NULL;
	char text[WORD_MAX];
	uint32_t len;

	while ((len = next_word(&at, doc->text + doc->len, text))) {
		struct word *w = add_word(index, &arenas[WORDS], text, len);

		w->count++;
		add_posting(w, doc, &arenas[POSTINGS]);
		if (last)
			add_pair(index, last, w, &arenas[PAIRS]);
		last = w;
	}
}

static size_t buckets_for(size_t expected)
{
	size_t n = 1024;

	while (n < expected)
		n *= 2;
	return n;
}

struct index *build_index(const struct file_list *files,
			  struct arena arenas[NR_ARENAS])
{
	size_t n_words = buckets_for(files->bytes / 128);
	size_t n_pairs = buckets_for(files->bytes / 32);
	size_t names = 0;
	struct index *index;

	for (size_t i = 0; i < files->nr; i++)
		names += strlen(files->names[i]) + 1 + 16;
	/* Only what is touched costs memory, so there can be room for much. */
	arena_open(&arenas[TEXT], "text",
		   files->bytes + names + files->nr * sizeof(struct doc) +
			   sizeof(*index));
	arena_open(&arenas[WORDS], "words",
		   n_words * sizeof(void *) + 16 * files->bytes + (1 << 20));
	arena_open(&arenas[POSTINGS], "postings", 16 * files->bytes);
	arena_open(&arenas[PAIRS], "pairs",
		   n_pairs * sizeof(void *) + 24 * files->bytes);

	index = take(&arenas[TEXT], sizeof(*index));
	index->docs = take(&arenas[TEXT], files->nr * sizeof(struct doc));
	index->nr_docs = files->nr;
	index->words = take(&arenas[WORDS], n_words * sizeof(void *));
	index->word_mask = n_words - 1;
	index->pairs = take(&arenas[PAIRS], n_pairs * sizeof(void *));
	index->pair_mask = n_pairs - 1;
	for (size_t i = 0; i < files->nr; i++) {
		read_doc(&arenas[TEXT], &index->docs[i], files->names[i]);
		add_doc(index, &index->docs[i], arenas);
	}
	for (int i = 0; i < NR_ARENAS; i++)
		arena_trim(&arenas[i]);
	return index;
}
