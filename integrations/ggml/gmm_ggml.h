/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * gmm_ggml.h - inside the ggml backend
 *
 *	backend.c	what ggml sees: registry, device, backend
 *	buffer.c	buffers of unified memory
 *	graph.c		graphs, written out for the device and run there in pieces
 *	hints.c		which weights the GPU keeps, and what is fetched ahead
 *	gpu.c		the GPU itself: open, attach, load the device code
 *	device.c	the device code
 *
 * Locks: gpu->lock is held for a whole graph, so that a graph runs alone;
 * buffers->lock, below it, only guards the list of the buffers.
 */
#ifndef GMM_GGML_H
#define GMM_GGML_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ggml-backend-impl.h"
#include "ggml-impl.h"
#include "gmm/gmm.h"
#include "sgpu.h"
#include "wire.h"

/**
 * struct gpu - the XPU behind the ggml device
 * @dev: the software GPU
 * @kernel: "graph" of the device code
 * @cpu: ggml's CPU device, whose kernels the device code uses
 * @library: path of its library
 * @node: the GPU's memory
 * @capacity: bytes of it
 * @heads: bytes in the graphs that were sent (G)
 * @lock: one graph at a time
 */
struct gpu {
	struct sgpu *dev;
	struct sgpu_kernel *kernel;
	ggml_backend_dev_t cpu;
	char library[GRAPH_PATH];
	int node;
	uint64_t capacity;
	uint64_t heads;
	pthread_mutex_t lock;
};

/**
 * struct buffer - the context of a ggml buffer of ours
 * @base: unified memory
 * @len: bytes of it, whole pages
 * @ggml: the buffer; what it holds, its usage, ggml writes with no lock, after
 *	it was made and before a graph uses it
 * @next: the list of all (L: the list's lock)
 * @keep: for each page what hints.c decided (G: gpu->lock); NULL at first
 */
struct buffer {
	char *base;
	size_t len;
	ggml_backend_buffer_t ggml;
	struct buffer *next;
	uint8_t *keep;
};

/* What ggml calls to move data cannot fail: without it the program must end. */
#define must(ok, what)                                                      \
	do {                                                                \
		if (!(ok))                                                  \
			GGML_ABORT("ggml-gmm: %s: %s\n", what, gm_error()); \
	} while (0)

void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* gpu.c: the one GPU, opened at the first call; NULL after a complaint. */
struct gpu *gpu_get(void);

/* backend.c */
ggml_backend_dev_t device_get(void);

/* buffer.c */
ggml_backend_buffer_type_t buffer_type(void); /* weights, states, activations */
ggml_backend_buffer_type_t buffer_type_host(void); /* what the CPU works on */
bool buffer_type_is_ours(ggml_backend_buffer_type_t buft);
/* Where @tensor lives; NULL if that is not a buffer of ours. */
struct buffer *buffer_of(const struct ggml_tensor *tensor);
/* Changes whenever a buffer comes or goes. */
uint64_t buffer_generation(void);
/* Call @fn for every buffer, with the list locked. */
void buffer_each(void (*fn)(struct buffer *b, void *arg), void *arg);
/* Bytes that could still be had. */
size_t unified_room(void);
/* Unified memory, or NULL after a complaint. */
void *unified_new(size_t len);
/* In a child of fork() it is not freed, for it is not there. */
void unified_free(void *p, size_t len);

/* graph.c */
struct graph;
struct graph *graph_new(void);
void graph_free(struct graph *graph);
enum ggml_status graph_run(struct graph *graph, struct ggml_cgraph *cgraph);

/* hints.c; all with gpu->lock held */

/* Look at what is allocated before a graph runs. */
void hints_plan(struct gpu *gpu);
/* The end of the piece of the graph that begins with node @begin. */
int hints_piece(const struct ggml_cgraph *cgraph, int begin);
/* These nodes run next: fetch their weights. */
void hints_fetch(struct gpu *gpu, const struct ggml_cgraph *cgraph, int begin,
		 int end);
/* These nodes have run: what is not to be kept can go first. */
void hints_done(struct gpu *gpu, const struct ggml_cgraph *cgraph, int begin,
		int end);

#endif /* GMM_GGML_H */
