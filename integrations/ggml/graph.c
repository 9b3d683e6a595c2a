// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * graph.c - write a graph out for the device, and run it there
 *
 * A graph is run in pieces, so that the weights of the next piece cross the link
 * while the device works on this one; hints.c says where to cut. llama.cpp
 * builds equal graphs for most tokens: what is written out is compared with
 * what the device has, and sent again only if it differs.
 *
 * Small inputs that the CPU makes for each token go along with the graph. Left
 * in their page, it would be taken to and fro for a few bytes, and the two
 * processors would be held to fight over it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gm_sgpu.h"
#include "gmm_ggml.h"

/* A page costs more to fetch than this to copy. */
#define INPUT_MAX (256 * 1024)
#define INPUT_ALIGN 64

/**
 * struct graph - the graph of one ggml backend (all G: gpu->lock)
 * @set: the tensors met while a draft is written
 * @numbers: of the tensor in each slot of @set
 * @tensors: by number
 * @inputs: by number, where a tensor's data is in the draft; 0: not there
 * @draft: what the device is to have
 * @sent: what it has, in ordinary memory; empty if @version is 0
 * @room: bytes in @draft and in @sent
 * @head: the same in unified memory, as the device reads it
 * @head_room: bytes there
 * @version: of what was sent
 */
struct graph {
	struct ggml_hash_set set;
	uint32_t *numbers;
	struct ggml_tensor **tensors;
	size_t *inputs;
	struct graph_head *draft;
	struct graph_head *sent;
	size_t room;
	struct graph_head *head;
	size_t head_room;
	uint64_t version;
};

struct graph *graph_new(void)
{
	return calloc(1, sizeof(struct graph));
}

static void tables_free(struct graph *graph)
{
	ggml_hash_set_free(&graph->set);
	free(graph->numbers);
	free(graph->tensors);
	free(graph->inputs);
	graph->set.size = 0;
	graph->numbers = NULL;
	graph->tensors = NULL;
	graph->inputs = NULL;
}

void graph_free(struct graph *graph)
{
	struct gpu *gpu = gpu_get();

	unified_free(graph->head, graph->head_room);
	pthread_mutex_lock(&gpu->lock);
	gpu->heads -= graph->head_room;
	pthread_mutex_unlock(&gpu->lock);
	tables_free(graph);
	free(graph->draft);
	free(graph->sent);
	free(graph);
}

static bool tables_fit(struct graph *graph, int n_nodes)
{
	/* Each of them with its sources, and each of these with its root. */
	size_t most = (size_t)n_nodes * 2 * (GGML_MAX_SRC + 1);

	if (graph->set.size >= most) {
		ggml_hash_set_reset(&graph->set);
		return true;
	}
	tables_free(graph);
	graph->set = ggml_hash_set_new(most);
	graph->numbers = malloc(graph->set.size * sizeof(*graph->numbers));
	graph->tensors = malloc(graph->set.size * sizeof(*graph->tensors));
	graph->inputs = malloc(graph->set.size * sizeof(*graph->inputs));
	if (graph->numbers && graph->tensors && graph->inputs)
		return true;
	tables_free(graph); /* the next graph must not take them for whole */
	return false;
}

static uint32_t number_of(struct graph *graph, struct ggml_tensor *t,
			  uint32_t *n)
{
	size_t slot;

	if (!t)
		return 0;
	slot = ggml_hash_insert(&graph->set, t);
	if (slot != GGML_HASHSET_ALREADY_EXISTS) {
		graph->numbers[slot] = *n;
		graph->tensors[(*n)++] = t;
	} else {
		slot = ggml_hash_find(&graph->set, t);
	}
	return graph->numbers[slot] + 1;
}

static struct ggml_tensor *as_pointer(uint32_t number)
{
	return (struct ggml_tensor *)(uintptr_t)number;
}

/* Number the nodes in order, then what they read. */
static uint32_t collect(struct graph *graph, const struct ggml_cgraph *cgraph)
{
	uint32_t n = 0;

	for (int i = 0; i < cgraph->n_nodes; i++)
		number_of(graph, cgraph->nodes[i], &n);
	for (int i = 0; i < cgraph->n_nodes; i++) {
		for (int s = 0; s < GGML_MAX_SRC; s++)
			number_of(graph, cgraph->nodes[i]->src[s], &n);
	}
	for (uint32_t i = 0, met = n; i < met; i++)
		number_of(graph, graph->tensors[i]->view_src, &n);
	return n;
}

static bool draft_fits(struct graph *graph, size_t size)
{
	struct graph_head *draft, *sent;

	if (size <= graph->room)
		return true;
	size *= 2;
	draft = realloc(graph->draft, size);
	if (draft)
		graph->draft = draft;
	sent = realloc(graph->sent, size);
	if (sent)
		graph->sent = sent;
	if (!draft || !sent)
		return false;
	graph->room = size;
	return true;
}

/* Made by the CPU, for this graph. */
static bool is_input(const struct ggml_tensor *t)
{
	struct buffer *b = buffer_of(t);

	return b && !t->view_src && b->ggml->buft == buffer_type_host() &&
	       b->ggml->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE &&
	       ggml_is_contiguous(t) && ggml_nbytes(t) <= INPUT_MAX;
}

/*
 * Give the inputs their places in the draft, from @at on; where does it end?
 * What a node writes into stays where it is.
 */
static size_t inputs_place(struct graph *graph,
			   const struct ggml_cgraph *cgraph, uint32_t n,
			   size_t at)
{
	uint32_t none = 0; /* new ones */

	for (uint32_t i = 0; i < n; i++)
		graph->inputs[i] = i >= (uint32_t)cgraph->n_nodes &&
				   is_input(graph->tensors[i]);
	for (int i = 0; i < cgraph->n_nodes; i++) {
		struct ggml_tensor *node = cgraph->nodes[i];

		if (node->view_src && !ggml_op_is_empty(node->op))
			graph->inputs[number_of(graph, node->view_src, &none) -
				      1] = 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!graph->inputs[i])
			continue;
		graph->inputs[i] = at;
		at += GGML_PAD(ggml_nbytes(graph->tensors[i]), INPUT_ALIGN);
	}
	return at;
}

static void inputs_copy(struct graph *graph, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (graph->inputs[i])
			memcpy((char *)graph->draft + graph->inputs[i],
			       graph->tensors[i]->data,
			       ggml_nbytes(graph->tensors[i]));
	}
}

/* The copy of a tensor that the device gets; its sources only if it runs it. */
static void tensor_write(struct graph *graph, struct ggml_tensor *out,
			 struct ggml_tensor *t, bool node)
{
	struct ggml_tensor *root = t->view_src ? t->view_src : t;
	uint32_t n = 0; /* none is new */
	size_t input = graph->inputs[number_of(graph, root, &n) - 1];

	*out = *t;
	out->buffer = NULL;
	out->extra = NULL;
	for (int s = 0; s < GGML_MAX_SRC; s++)
		out->src[s] =
			as_pointer(node ? number_of(graph, t->src[s], &n) : 0);
	out->view_src = as_pointer(number_of(graph, t->view_src, &n));
	if (!input)
		return;
	out->buffer = t->buffer;
	out->data = (void *)(input +
			     (size_t)((char *)t->data - (char *)root->data));
}

/* Where the device cannot reach, ggml must not send it. */
static bool reachable(const struct ggml_tensor *t)
{
	if (buffer_of(t) || ggml_is_empty(t) || !t->data)
		return true;
	complain("tensor %s (%s) is not in unified memory", t->name,
		 ggml_op_name(t->op));
	return false;
}

static enum ggml_status draft_write(struct graph *graph, const struct gpu *gpu,
				    const struct ggml_cgraph *cgraph)
{
	struct graph_head *head;
	struct ggml_tensor *table;
	int32_t *uses;
	uint32_t n;
	size_t inputs, size;

	if (!tables_fit(graph, cgraph->n_nodes))
		return GGML_STATUS_ALLOC_FAILED;
	n = collect(graph, cgraph);
	inputs = GGML_PAD(sizeof(*head) + n * sizeof(*table) +
				  (size_t)cgraph->n_nodes * sizeof(*uses),
			  INPUT_ALIGN);
	size = inputs_place(graph, cgraph, n, inputs);
	if (!draft_fits(graph, size))
		return GGML_STATUS_ALLOC_FAILED;
	head = graph->draft;
	memset(head, 0, sizeof(*head));
	head->size = size;
	head->inputs = inputs;
	head->n_tensors = n;
	head->n_nodes = (uint32_t)cgraph->n_nodes;
	strcpy(head->library, gpu->library);
	table = (struct ggml_tensor *)(head + 1);
	uses = (int32_t *)(table + n);
	for (uint32_t i = 0; i < n; i++) {
		if (!reachable(graph->tensors[i]))
			return GGML_STATUS_FAILED;
		tensor_write(graph, &table[i], graph->tensors[i],
			     i < head->n_nodes);
	}
	for (int i = 0; i < cgraph->n_nodes; i++)
		uses[i] = ggml_node_get_use_count(cgraph, i);
	uses += cgraph->n_nodes;
	memset(uses, 0, inputs - (size_t)((char *)uses - (char *)head));
	inputs_copy(graph, n);
	return GGML_STATUS_SUCCESS;
}

static bool head_fits(struct graph *graph, struct gpu *gpu, size_t size)
{
	if (size <= graph->head_room)
		return true;
	unified_free(graph->head, graph->head_room);
	gpu->heads -= graph->head_room;
	graph->version = 0;
	graph->head_room = (2 * size + GM_PAGE_MASK) & ~(size_t)GM_PAGE_MASK;
	graph->head = unified_new(graph->head_room);
	if (!graph->head)
		graph->head_room = 0;
	gpu->heads += graph->head_room;
	return graph->head;
}

/*
 * Inputs that the CPU makes anew for each graph: what was lost of them is no
 * loss. All else stays, for it may be what another context has just put in, or
 * is about to read.
 */
static void forget_inputs(struct buffer *b, void *arg)
{
	struct gm_where where;

	if (b->ggml->usage != GGML_BACKEND_BUFFER_USAGE_COMPUTE ||
	    b->ggml->buft != buffer_type_host())
		return;
	for (size_t at = 0; at < b->len; at += GM_PAGE_SIZE) {
		if (!gm_where(b->base + at, &where) &&
		    where.state == GM_STATE_POISON)
			(void)gmadvise(GM_NODE_NONE, b->base + at, GM_PAGE_SIZE,
				       GM_DONTNEED);
	}
}

/*
 * The GPU begins anew, if it can; its memory is then what it was. Otherwise it
 * is detached, so that what can still be read comes home now and the rest is
 * known to be lost: states that it took with it stay unreadable until the
 * program clears them. Weights have their copies on the host.
 */
static enum ggml_status failed(struct graph *graph, struct gpu *gpu)
{
	int err;

	complain("the GPU could not compute: %s", sgpu_error(gpu->dev));
	if (sgpu_reset(gpu->dev)) {
		complain("it cannot be used again: %s", sgpu_error(gpu->dev));
		err = gm_sgpu_detach(gpu->dev);
		if (err && err != -ENOENT)
			complain("its memory stays in use: %s", gm_error());
		buffer_each(forget_inputs, NULL);
	}
	(void)gmadvise(GM_NODE_NONE, graph->head, graph->head_room,
		       GM_DONTNEED);
	graph->version = 0;
	return GGML_STATUS_FAILED;
}

/* The pages stay on the GPU; only the bytes that differ cross. */
static enum ggml_status draft_send(struct graph *graph, struct gpu *gpu)
{
	static uint64_t versions; /* G */
	struct graph_head *draft = graph->draft;
	bool same;
	size_t from;

	if (!head_fits(graph, gpu, draft->size))
		return GGML_STATUS_ALLOC_FAILED;
	same = graph->version && draft->inputs == graph->sent->inputs &&
	       !memcmp(draft, graph->sent, draft->inputs);
	from = same ? draft->inputs : 0;
	if (gmemcpy(gpu->node, (char *)graph->head + from,
		    (const char *)draft + from, draft->size - from)) {
		bool gone = errno == ENODEV;

		complain("a graph cannot be sent: %s", gm_error());
		graph->version = 0;
		return gone ? failed(graph, gpu) : GGML_STATUS_FAILED;
	}
	if (!same)
		graph->version = ++versions;
	graph->draft = graph->sent;
	graph->sent = draft;
	return GGML_STATUS_SUCCESS;
}

static enum ggml_status pieces_run(struct graph *graph, struct gpu *gpu,
				   const struct ggml_cgraph *cgraph)
{
	struct graph_args args = { graph->head, graph->version, 0, 0 };
	int begin = 0;
	int end = hints_piece(cgraph, 0);

	hints_fetch(gpu, cgraph, begin, end);
	while (begin < cgraph->n_nodes) {
		int next = hints_piece(cgraph, end);

		args.begin = (uint32_t)begin;
		args.end = (uint32_t)end;
		if (sgpu_launch(gpu->dev, NULL, gpu->kernel, 1, &args,
				sizeof(args)))
			return failed(graph, gpu);
		hints_fetch(gpu, cgraph, end, next);
		if (sgpu_sync(gpu->dev, NULL))
			return failed(graph, gpu);
		hints_done(gpu, cgraph, begin, end);
		begin = end;
		end = next;
	}
	return GGML_STATUS_SUCCESS;
}

/*
 * ggml's scheduler lets the CPU go on with what it finds in buffers of ours as
 * soon as this returns, so this waits.
 */
enum ggml_status graph_run(struct graph *graph, struct ggml_cgraph *cgraph)
{
	struct gpu *gpu = gpu_get();
	enum ggml_status status;

	pthread_mutex_lock(&gpu->lock);
	status = draft_write(graph, gpu, cgraph);
	if (!status)
		status = draft_send(graph, gpu);
	if (!status) {
		hints_plan(gpu);
		status = pieces_run(graph, gpu, cgraph);
	}
	pthread_mutex_unlock(&gpu->lock);
	return status;
}
