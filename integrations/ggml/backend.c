// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * backend.c - what ggml sees: a registry with one device
 *
 * Loaded by an unchanged llama.cpp through GGML_BACKEND_PATH. The device is
 * a GPU to ggml; its buffers are host memory at the same time, so ggml never
 * copies between it and the CPU.
 */
#include <stdlib.h>
#include <string.h>

#include "ggml-gmm.h"
#include "gmm_ggml.h"

_Static_assert((int)GGML_GMM_WEIGHTS == GGML_BACKEND_BUFFER_USAGE_WEIGHTS &&
		       (int)GGML_GMM_ACTIVATIONS ==
			       GGML_BACKEND_BUFFER_USAGE_COMPUTE,
	       "ggml's own order");

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(
	void);

static const char *backend_name(ggml_backend_t backend)
{
	return "GMM0";
}

static void backend_free(ggml_backend_t backend)
{
	graph_free(backend->context);
	free(backend);
}

static enum ggml_status backend_compute(ggml_backend_t backend,
					struct ggml_cgraph *cgraph)
{
	return graph_run(backend->context, cgraph);
}

static const char *device_name(ggml_backend_dev_t dev)
{
	return "GMM0";
}

static const char *device_description(ggml_backend_dev_t dev)
{
	return "software GPU with unified memory";
}

/* A model may be as large as the host's memory allows, not the GPU's. */
static void device_memory(ggml_backend_dev_t dev, size_t *free_out,
			  size_t *total)
{
	struct gm_node_info nodes[64];
	int n = gm_nodes(nodes, 64);

	*free_out = unified_room();
	*total = 0;
	for (int i = 0; i < n && i < 64; i++)
		*total += nodes[i].is_xpu ? 0 : nodes[i].total;
}

static enum ggml_backend_dev_type device_type(ggml_backend_dev_t dev)
{
	return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void device_props(ggml_backend_dev_t dev,
			 struct ggml_backend_dev_props *props)
{
	memset(props, 0, sizeof(*props));
	props->name = device_name(dev);
	props->description = device_description(dev);
	props->type = device_type(dev);
	props->caps.host_buffer = true;
	device_memory(dev, &props->memory_free, &props->memory_total);
}

static ggml_backend_t device_init(ggml_backend_dev_t dev, const char *params)
{
	static ggml_guid guid = { 0x67, 0x6d, 0x6d, 0x2d, 0x67, 0x67,
				  0x6d, 0x6c, 0x8e, 0x35, 0x1c, 0xd0,
				  0x42, 0x91, 0xb7, 0x5f };
	static const struct ggml_backend_i ops = {
		.get_name = backend_name,
		.free = backend_free,
		.graph_compute = backend_compute,
	};
	struct ggml_backend *backend = calloc(1, sizeof(*backend));

	if (!backend)
		return NULL;
	backend->guid = &guid;
	backend->iface = ops;
	backend->device = dev;
	backend->context = graph_new();
	if (backend->context)
		return backend;
	free(backend);
	return NULL;
}

static ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t dev)
{
	return buffer_type();
}

static ggml_backend_buffer_type_t device_host_buffer_type(
	ggml_backend_dev_t dev)
{
	return buffer_type_host();
}

/* The function is in the program: the device cannot call it. */
static bool calls_program(enum ggml_op op)
{
	return op == GGML_OP_MAP_CUSTOM1 || op == GGML_OP_MAP_CUSTOM2 ||
	       op == GGML_OP_MAP_CUSTOM3 || op == GGML_OP_CUSTOM;
}

/* Weights that ggml keeps with the CPU: token embeddings, layers not offloaded. */
static bool is_for_cpu(const struct ggml_tensor *op)
{
	for (int s = 0; s < GGML_MAX_SRC; s++) {
		ggml_backend_buffer_t ggml =
			op->src[s] ? op->src[s]->buffer : NULL;

		if (ggml && ggml->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS &&
		    ggml->buft == buffer_type_host())
			return true;
	}
	return false;
}

static bool device_supports_op(ggml_backend_dev_t dev,
			       const struct ggml_tensor *op)
{
	ggml_backend_dev_t cpu = gpu_get()->cpu;

	return !calls_program(op->op) && !is_for_cpu(op) &&
	       cpu->iface.supports_op(cpu, op);
}

static bool device_supports_buft(ggml_backend_dev_t dev,
				 ggml_backend_buffer_type_t type)
{
	return buffer_type_is_ours(type);
}

/**
 * struct show - passes each buffer on to the program
 */
struct show {
	void (*fn)(void *base, size_t len, enum ggml_gmm_use use, void *arg);
	void *arg;
};

static void buffer_show(struct buffer *b, void *arg)
{
	const struct show *show = arg;

	show->fn(b->base, b->len, (enum ggml_gmm_use)b->ggml->usage, show->arg);
}

static void buffers_show(void (*fn)(void *base, size_t len,
				    enum ggml_gmm_use use, void *arg),
			 void *arg)
{
	struct show show = { fn, arg };

	buffer_each(buffer_show, &show);
}

static const char *reg_name(ggml_backend_reg_t reg)
{
	return "GMM";
}

static size_t reg_count(ggml_backend_reg_t reg)
{
	return 1;
}

static ggml_backend_dev_t reg_device(ggml_backend_reg_t reg, size_t index)
{
	return device_get();
}

static void *reg_proc(ggml_backend_reg_t reg, const char *name)
{
	ggml_backend_gmm_buffers_t buffers = buffers_show;

	return strcmp(name, "ggml_backend_gmm_buffers") ? NULL
							: (void *)buffers;
}

static struct ggml_backend_reg registry = {
	.api_version = GGML_BACKEND_API_VERSION,
	.iface = {
		.get_name = reg_name,
		.get_device_count = reg_count,
		.get_device = reg_device,
		.get_proc_address = reg_proc,
	},
};

ggml_backend_dev_t device_get(void)
{
	static struct ggml_backend_device device = {
		.iface = {
			.get_name = device_name,
			.get_description = device_description,
			.get_memory = device_memory,
			.get_type = device_type,
			.get_props = device_props,
			.init_backend = device_init,
			.get_buffer_type = device_buffer_type,
			.get_host_buffer_type = device_host_buffer_type,
			.supports_op = device_supports_op,
			.supports_buft = device_supports_buft,
		},
		.reg = &registry,
	};

	return &device;
}

ggml_backend_reg_t ggml_backend_init(void)
{
	return gpu_get() ? &registry : NULL;
}
