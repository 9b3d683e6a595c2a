// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * hints.c - which weights the GPU keeps, and what is fetched ahead
 *
 * A token reads all weights once, in the same order each time. For a memory
 * smaller than the weights that is the worst order for any policy that evicts what was
 * used longest ago: it would keep nothing. So as many pages as fit, from the
 * front, are preferred; the others stream through what is left: fetched while
 * the piece before is computed, and the first to go when theirs is done. That is
 * the least that must cross the link (Belady).
 *
 * Experts of a mixture are left to faults: only a few of them are read.
 */
#include <stdlib.h>
#include <string.h>

#include "gmm_ggml.h"

enum keep {
	KEEP_UNKNOWN,
	KEEP_ALWAYS,
	KEEP_STREAM,
};

/* A piece reads at most this much that has to be fetched. */
#define PIECE_MAX (8 * GM_PAGE_SIZE)
/* GMM evicts so much at once, or an eighth of the memory. */
#define VICTIMS_MAX (16 * GM_PAGE_SIZE)

/**
 * struct plan - for all that is allocated now (G: gpu->lock)
 * @generation: the buffers it was made for
 * @graphs: run since then
 * @weights: bytes in buffers of weights
 * @other: bytes in graphs, and in pages of other buffers that have been used
 * @piece: bytes to fetch for one; 0: so small a memory is left to faults
 * @left: bytes of weights that may still be preferred
 * @fits: all there is fits
 */
static struct plan {
	uint64_t generation;
	uint64_t graphs;
	uint64_t weights;
	uint64_t other;
	uint64_t piece;
	uint64_t left;
	bool fits;
} plan;

static bool is_weights(const struct buffer *b)
{
	return b->ggml->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

/* Hints are best effort: what fails here is seen by a fault, or not at all. */
static void advise(int node, void *p, size_t len, enum gm_advice advice)
{
	(void)gmadvise(node, p, len, (int)advice);
}

static bool is_host(const struct buffer *b)
{
	return b->ggml->buft == buffer_type_host();
}

/*
 * ggml makes room for the largest batch, and a small one uses little of it. What
 * the CPU works on counts only where the GPU has fetched it.
 */
static uint64_t used(const struct buffer *b, const struct gpu *gpu)
{
	uint64_t nodes = is_host(b) ? 1ull << gpu->node : ~0ull;
	struct gm_where where;
	uint64_t bytes = 0;

	for (size_t at = 0; at < b->len; at += GM_PAGE_SIZE) {
		if (!gm_where(b->base + at, &where) && where.copies & nodes)
			bytes += GM_PAGE_SIZE;
	}
	return bytes;
}

static void plan_buffer(struct buffer *b, void *arg)
{
	if (!is_weights(b)) {
		plan.other += used(b, arg);
		return;
	}
	plan.weights += is_host(b) ? 0 : b->len;
	if (b->keep)
		return;
	advise(GM_NODE_NONE, b->base, b->len, GM_READ_MOSTLY);
	b->keep = calloc(b->len / GM_PAGE_SIZE, 1);
}

static void forget(struct buffer *b, void *arg)
{
	if (!b->keep)
		return;
	advise(GM_NODE_NONE, b->base, b->len, GM_PREFERRED);
	memset(b->keep, KEEP_UNKNOWN, b->len / GM_PAGE_SIZE);
}

/*
 * States and activations are used for every token, but a mapped page is not
 * seen to be used: without a word from here it would be taken for an old one.
 */
static void prefer_other(struct buffer *b, void *arg)
{
	const struct gpu *gpu = arg;

	if (!is_weights(b) && !is_host(b))
		advise(plan.piece ? gpu->node : GM_NODE_NONE, b->base, b->len,
		       GM_PREFERRED);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * What streams needs room for the piece that is computed, the one that is fetched
 * and what GMM evicts at once (an eighth), each with a page it shares.
 */
static void plan_room(struct gpu *gpu)
{
	uint64_t batch = least(gpu->capacity / 8, VICTIMS_MAX);
	uint64_t room = gpu->capacity - least(plan.other, gpu->capacity);
	uint64_t stream;

	plan.fits = plan.weights <= room;
	plan.piece = least(PIECE_MAX, room / 8) & ~(uint64_t)GM_PAGE_MASK;
	if (plan.fits)
		plan.piece = PIECE_MAX;
	stream = 2 * (plan.piece + GM_PAGE_SIZE) + batch;
	plan.left = room > stream ? room - stream : 0;
}

static bool is_power_of_two(uint64_t n)
{
	return !(n & (n - 1));
}

/* Again and again, but ever less often, for the states grow. */
void hints_plan(struct gpu *gpu)
{
	/* Before the list is read: what comes later has another. */
	uint64_t generation = buffer_generation();
	struct plan old = plan;

	plan.graphs++;
	if (plan.generation == generation && !is_power_of_two(plan.graphs))
		return;
	plan.weights = 0;
	plan.other = gpu->heads;
	buffer_each(plan_buffer, gpu);
	if (plan.generation == generation && plan.other == old.other &&
	    plan.weights == old.weights)
		return;
	plan.generation = generation;
	plan.graphs = 1;
	plan_room(gpu);
	buffer_each(forget, NULL);
	buffer_each(prefer_other, gpu);
}

/* The pages of one source of a node, if they are weights worth a hint. */
static struct buffer *pages_of(const struct ggml_tensor *node, int source,
			       size_t *first, size_t *last)
{
	const struct ggml_tensor *t = node->src[source];
	struct buffer *b = t && t->data ? buffer_of(t) : NULL;
	size_t at;

	if (!b || !b->keep || node->op == GGML_OP_GET_ROWS ||
	    node->op == GGML_OP_MUL_MAT_ID || !ggml_nbytes(t))
		return NULL;
	at = (size_t)((char *)t->data - b->base);
	*first = at / GM_PAGE_SIZE;
	*last = (at + ggml_nbytes(t) - 1) / GM_PAGE_SIZE;
	return b;
}

static uint64_t bytes_to_fetch(const struct ggml_tensor *node)
{
	uint64_t bytes = 0;
	size_t first, last;

	for (int s = 0; s < GGML_MAX_SRC; s++) {
		struct buffer *b = pages_of(node, s, &first, &last);

		if (b && b->keep[last] != KEEP_ALWAYS)
			bytes += ggml_nbytes(node->src[s]);
	}
	return bytes;
}

/*
 * Cut only before a product: ggml computes some neighbours as one, and the
 * result must not depend on where the graph is cut.
 */
int hints_piece(const struct ggml_cgraph *cgraph, int begin)
{
	uint64_t bytes = 0;

	for (int i = begin; plan.piece && i < cgraph->n_nodes; i++) {
		const struct ggml_tensor *node = cgraph->nodes[i];
		uint64_t more = bytes_to_fetch(node);

		if (bytes && node->op == GGML_OP_MUL_MAT &&
		    bytes + more > plan.piece)
			return i;
		bytes += more;
	}
	return cgraph->n_nodes;
}

/**
 * struct run - neighbouring pages that get the same advice
 * @left: bytes that may still be advised
 */
struct run {
	int node;
	enum gm_advice advice;
	char *begin;
	char *end;
	uint64_t left;
};

static void run_flush(struct run *run)
{
	uint64_t len = least((uint64_t)(run->end - run->begin), run->left);

	if (len)
		advise(run->node, run->begin, len, run->advice);
	run->left -= len;
	run->begin = run->end = NULL;
}

static void run_add(struct run *run, char *page)
{
	if (page + GM_PAGE_SIZE == run->end)
		return; /* two tensors share it */
	if (page != run->end) {
		run_flush(run);
		run->begin = page;
	}
	run->end = page + GM_PAGE_SIZE;
}

/* Whether a page has to be fetched; the first that are asked about are kept. */
static bool decide(struct gpu *gpu, struct buffer *b, size_t page)
{
	if (b->keep[page] != KEEP_UNKNOWN)
		return b->keep[page] == KEEP_STREAM;
	if (!plan.fits && plan.left < GM_PAGE_SIZE) {
		b->keep[page] = KEEP_STREAM;
		return true;
	}
	b->keep[page] = KEEP_ALWAYS;
	if (plan.fits)
		return true;
	plan.left -= GM_PAGE_SIZE;
	advise(gpu->node, b->base + page * GM_PAGE_SIZE, GM_PAGE_SIZE,
	       GM_PREFERRED);
	return true;
}

/* No more than fits beside the piece that is computed; faults do the rest. */
void hints_fetch(struct gpu *gpu, const struct ggml_cgraph *cgraph, int begin,
		 int end)
{
	struct run run = { gpu->node, GM_WILLNEED, NULL, NULL, 2 * plan.piece };
	size_t first, last;

	for (int i = begin; plan.piece && i < end; i++) {
		for (int s = 0; s < GGML_MAX_SRC; s++) {
			struct buffer *b =
				pages_of(cgraph->nodes[i], s, &first, &last);

			for (size_t p = first; b && p <= last; p++) {
				if (decide(gpu, b, p))
					run_add(&run,
						b->base + p * GM_PAGE_SIZE);
			}
		}
	}
	run_flush(&run);
}

/* A page that the next tensor begins in is still needed. */
void hints_done(struct gpu *gpu, const struct ggml_cgraph *cgraph, int begin,
		int end)
{
	struct run run = { gpu->node, GM_COLD, NULL, NULL, UINT64_MAX };
	size_t first, last;

	for (int i = begin; plan.piece && i < end; i++) {
		for (int s = 0; s < GGML_MAX_SRC; s++) {
			struct buffer *b =
				pages_of(cgraph->nodes[i], s, &first, &last);

			for (size_t p = first; b && p < last; p++) {
				if (b->keep[p] == KEEP_STREAM)
					run_add(&run,
						b->base + p * GM_PAGE_SIZE);
			}
		}
	}
	run_flush(&run);
}
