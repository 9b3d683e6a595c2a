/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * wire.h - a graph as the device code gets it
 *
 * One piece of unified memory, read by the device and never written by it: a
 * header, the tensors, the numbers of uses of the nodes, the data of small
 * inputs. Tensors are ggml's own struct with every pointer to another tensor
 * replaced by its number + 1. What a tensor's data pointer says is true on the
 * device as it stands; only that of an input that came along, marked by
 * any buffer, counts from the header.
 */
#ifndef GGML_GMM_WIRE_H
#define GGML_GMM_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define GRAPH_PATH 1024

/**
 * struct graph_head - the start of a graph
 * @size: bytes in all
 * @inputs: where the data of the inputs begins
 * @n_tensors: in the table after this header; the first @n_nodes are the nodes
 * @n_nodes: in the order of their execution
 * @library: ggml's kernels: the library of the CPU backend the program uses
 */
struct graph_head {
	uint64_t size;
	uint64_t inputs;
	uint32_t n_tensors;
	uint32_t n_nodes;
	char library[GRAPH_PATH];
};

/**
 * struct graph_args - arguments of the kernel "graph"
 * @head: the graph
 * @version: another number, another graph
 * @begin: the first node to run
 * @end: the one after the last
 */
struct graph_args {
	const struct graph_head *head;
	uint64_t version;
	uint32_t begin;
	uint32_t end;
};

#endif /* GGML_GMM_WIRE_H */
