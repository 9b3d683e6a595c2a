// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * device.c - device code: run nodes of a graph with ggml's own CPU kernels
 *
 * Loaded into the GPU. The library with the kernels is loaded here once more,
 * as a GPU backend would bring kernels of its own. A fault of any of its threads
 * is served like every fault of device code.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-impl.h"
#include "ggml-backend-impl.h"
#include "sgpu_kernel.h"
#include "wire.h"

static struct {
	ggml_backend_t backend;
	uint64_t version;
	struct ggml_tensor *tensors;
	struct ggml_cgraph graph;
} device;

/* The context of the GPU ends; the program's launch says so. */
static __attribute__((noreturn)) void give_up(const char *what, const char *why)
{
	fprintf(stderr, "ggml-gmm, device code: %s: %s\n", what, why);
	abort();
}

static void *library_get(void *library, const char *name)
{
	void *symbol = dlsym(library, name);

	if (!symbol)
		give_up(name, "not in the library of the CPU backend");
	return symbol;
}

/* ggml's workers sleep between graphs: poll 0. */
static void threads_set(ggml_backend_reg_t reg, uint32_t threads)
{
	struct ggml_threadpool_params params = { .n_threads = (int)threads };
	struct ggml_threadpool *pool;
	ggml_backend_set_n_threads_t set_threads;
	struct ggml_threadpool *(*pool_new)(struct ggml_threadpool_params *);
	void (*set_pool)(ggml_backend_t, struct ggml_threadpool *);

	set_threads = (ggml_backend_set_n_threads_t)reg->iface.get_proc_address(
		reg, "ggml_backend_set_n_threads");
	pool_new =
		(struct ggml_threadpool * (*)(struct ggml_threadpool_params *))
			reg->iface.get_proc_address(reg, "ggml_threadpool_new");
	set_pool = (void (*)(ggml_backend_t, struct ggml_threadpool *))
			   reg->iface.get_proc_address(
				   reg, "ggml_backend_cpu_set_threadpool");
	if (!set_threads || !pool_new || !set_pool)
		give_up("threads", "the CPU backend's interface is another");
	set_threads(device.backend, (int)threads);
	pool = pool_new(&params);
	if (!pool)
		give_up("threads", "they cannot be started");
	set_pool(device.backend, pool);
}

static void backend_open(const char *path, uint32_t threads)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ggml_backend_init_t init;
	ggml_backend_reg_t reg;
	ggml_backend_dev_t dev;

	if (!library)
		give_up("cannot load ggml's kernels", dlerror());
	init = (ggml_backend_init_t)library_get(library, "ggml_backend_init");
	reg = init();
	dev = reg->iface.get_device(reg, 0);
	device.backend = dev->iface.init_backend(dev, NULL);
	if (!device.backend)
		give_up("CPU backend", "cannot be made");
	threads_set(reg, threads < GGML_MAX_N_THREADS ? threads
						      : GGML_MAX_N_THREADS);
}

static struct ggml_tensor *tensor_of(const struct ggml_tensor *number)
{
	uintptr_t n = (uintptr_t)number;

	return n ? &device.tensors[n - 1] : NULL;
}

static void *room(void *old, size_t len)
{
	void *p = realloc(old, len);

	if (!p)
		give_up("a graph", "no memory for it on the device");
	return p;
}

/*
 * How often a node is used decides what ggml fuses: as in the program. The
 * table is ggml's hash set, which its kernels look into; it never gets full.
 */
static void uses_set(const int32_t *uses, uint32_t n)
{
	struct ggml_cgraph *graph = &device.graph;
	struct ggml_hash_set *set = &graph->visited_hash_set;
	size_t words = ggml_bitset_size(2 * (size_t)n + 1);

	set->size = 2 * (size_t)n + 1;
	set->used = room(set->used, words * sizeof(*set->used));
	memset(set->used, 0, words * sizeof(*set->used));
	set->keys = room(set->keys, set->size * sizeof(*set->keys));
	graph->use_counts =
		room(graph->use_counts, set->size * sizeof(*graph->use_counts));
	for (uint32_t i = 0; i < n; i++) {
		size_t slot = ggml_hash(graph->nodes[i]) % set->size;

		while (ggml_bitset_get(set->used, slot))
			slot = (slot + 1) % set->size;
		ggml_bitset_set(set->used, slot);
		set->keys[slot] = graph->nodes[i];
		graph->use_counts[slot] = uses[i];
	}
}

static void graph_build(const struct graph_head *head)
{
	size_t size = head->n_tensors * sizeof(struct ggml_tensor);
	const struct ggml_tensor *table = (const void *)(head + 1);

	device.tensors = room(device.tensors, size);
	memcpy(device.tensors, table, size);
	device.graph.nodes = room(device.graph.nodes,
				  head->n_nodes * sizeof(struct ggml_tensor *));
	for (uint32_t i = 0; i < head->n_tensors; i++) {
		struct ggml_tensor *t = &device.tensors[i];

		for (int s = 0; s < GGML_MAX_SRC; s++)
			t->src[s] = tensor_of(t->src[s]);
		t->view_src = tensor_of(t->view_src);
		if (t->buffer)
			t->data = (char *)head + (uintptr_t)t->data;
		t->buffer = NULL;
		if (i < head->n_nodes)
			device.graph.nodes[i] = t;
	}
	uses_set((const void *)(table + head->n_tensors), head->n_nodes);
}

/* The program runs one graph at a time on a GPU. */
SGPU_KERNEL(graph)
{
	const struct graph_args *a = args;
	struct ggml_cgraph part;

	if (!device.backend)
		backend_open(a->head->library, thread->workers);
	if (device.version != a->version)
		graph_build(a->head);
	device.version = a->version;
	part = device.graph;
	part.nodes += a->begin;
	part.n_nodes = (int)(a->end - a->begin);
	part.size = part.n_nodes;
	if (device.backend->iface.graph_compute(device.backend, &part))
		give_up("ggml", "a graph could not be computed");
}
