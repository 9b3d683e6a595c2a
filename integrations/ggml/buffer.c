// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * buffer.c - ggml buffers of unified memory
 *
 * Two types, alike but for their names: ggml puts into the host's what the CPU
 * works on, token embeddings above all. Each buffer is a mapping of its own, so
 * what the CPU reads for each token shares no page with what the GPU works on.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gmm_ggml.h"

/* As ggml's own CPU buffers. */
#define ALIGNMENT 64

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *list; /* L */
static _Atomic uint64_t generation = 1;

/*
 * The host keeps its copy of what the GPU has, and the memory of a software GPU
 * is the host's as well: at worst each page counts twice, until the GPU is full.
 */
size_t unified_room(void)
{
	struct gm_node_info nodes[64];
	uint64_t host = 0, xpu = 0;
	int n = gm_nodes(nodes, 64);

	for (int i = 0; i < n && i < 64; i++)
		*(nodes[i].is_xpu ? &xpu : &host) += nodes[i].free;
	return host - (xpu < host / 2 ? xpu : host / 2);
}

static bool room_for(size_t len)
{
	size_t room = unified_room();

	if (len <= room)
		return true;
	complain("%zu MiB wanted, but there is room for only %zu MiB, with "
		 "what the GPU may take",
		 len >> 20, room >> 20);
	return false;
}

void *unified_new(size_t len)
{
	void *p;

	if (!room_for(len))
		return NULL;
	p = gm_mmap(NULL, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE, -1, 0);
	if (p != MAP_FAILED)
		return p;
	complain("no unified memory: %s", gm_error());
	return NULL;
}

void unified_free(void *p, size_t len)
{
	if (p && gm_munmap(p, len))
		complain("memory is not freed: %s", gm_error());
}

static void buffer_free(ggml_backend_buffer_t ggml)
{
	struct buffer *b = ggml->context;
	struct buffer **at = &list;

	pthread_mutex_lock(&list_lock);
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	generation++;
	pthread_mutex_unlock(&list_lock);
	unified_free(b->base, b->len);
	free(b->keep);
	free(b);
}

static void *buffer_base(ggml_backend_buffer_t ggml)
{
	struct buffer *b = ggml->context;

	return b->base;
}

static void buffer_fill(char *p, uint8_t value, size_t len)
{
	if (!value)
		must(!gmadvise(GM_NODE_NONE, p, len, GM_DONTNEED), "clear");
	else
		memset(p, value, len);
}

static void buffer_memset(ggml_backend_buffer_t ggml, struct ggml_tensor *t,
			  uint8_t value, size_t offset, size_t len)
{
	buffer_fill((char *)t->data + offset, value, len);
}

/* Both leave the pages where they are: only the bytes cross. */
static void buffer_set(ggml_backend_buffer_t ggml, struct ggml_tensor *t,
		       const void *data, size_t offset, size_t len)
{
	must(!gmemcpy(GM_NODE_NONE, (char *)t->data + offset, data, len),
	     "write");
}

static void buffer_get(ggml_backend_buffer_t ggml, const struct ggml_tensor *t,
		       void *data, size_t offset, size_t len)
{
	must(!gmemcpy(GM_NODE_NONE, data, (const char *)t->data + offset, len),
	     "read");
}

static bool buffer_copy(ggml_backend_buffer_t ggml,
			const struct ggml_tensor *src, struct ggml_tensor *dst)
{
	if (!ggml_backend_buffer_is_host(src->buffer))
		return false;
	must(!gmemcpy(GM_NODE_NONE, dst->data, src->data, ggml_nbytes(src)),
	     "copy");
	return true;
}

static void buffer_clear(ggml_backend_buffer_t ggml, uint8_t value)
{
	struct buffer *b = ggml->context;

	buffer_fill(b->base, value, b->len);
}

static const struct ggml_backend_buffer_i buffer_ops = {
	.free_buffer = buffer_free,
	.get_base = buffer_base,
	.memset_tensor = buffer_memset,
	.set_tensor = buffer_set,
	.get_tensor = buffer_get,
	.cpy_tensor = buffer_copy,
	.clear = buffer_clear,
};

static const char *type_name(ggml_backend_buffer_type_t type)
{
	return type->context;
}

static ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type,
					size_t size)
{
	size_t len = (size + GM_PAGE_MASK) & ~(size_t)GM_PAGE_MASK;
	struct buffer *b;

	if (len < size) /* it wrapped: as much as whole pages can be */
		len = ~(size_t)GM_PAGE_MASK;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->len = len;
	b->base = unified_new(len);
	b->ggml = b->base ? ggml_backend_buffer_init(type, buffer_ops, b, size)
			  : NULL;
	if (!b->ggml) {
		free(b);
		return NULL;
	}
	pthread_mutex_lock(&list_lock);
	b->next = list;
	list = b;
	generation++;
	pthread_mutex_unlock(&list_lock);
	return b->ggml;
}

static size_t type_alignment(ggml_backend_buffer_type_t type)
{
	return ALIGNMENT;
}

static bool type_is_host(ggml_backend_buffer_type_t type)
{
	return true; /* every pointer is good on the CPU */
}

static struct ggml_backend_buffer_type types[] = {
	{ .context = "GMM" },
	{ .context = "GMM_Host" },
};

static ggml_backend_buffer_type_t type_get(int i)
{
	static const struct ggml_backend_buffer_type_i ops = {
		.get_name = type_name,
		.alloc_buffer = type_alloc,
		.get_alignment = type_alignment,
		.is_host = type_is_host,
	};

	types[i].iface = ops;
	types[i].device = device_get();
	return &types[i];
}

ggml_backend_buffer_type_t buffer_type(void)
{
	return type_get(0);
}

ggml_backend_buffer_type_t buffer_type_host(void)
{
	return type_get(1);
}

bool buffer_type_is_ours(ggml_backend_buffer_type_t type)
{
	return type == &types[0] || type == &types[1];
}

struct buffer *buffer_of(const struct ggml_tensor *tensor)
{
	ggml_backend_buffer_t ggml =
		tensor->view_src ? tensor->view_src->buffer : tensor->buffer;

	return ggml && buffer_type_is_ours(ggml->buft) ? ggml->context : NULL;
}

uint64_t buffer_generation(void)
{
	return generation;
}

void buffer_each(void (*fn)(struct buffer *b, void *arg), void *arg)
{
	pthread_mutex_lock(&list_lock);
	for (struct buffer *b = list; b; b = b->next)
		fn(b, arg);
	pthread_mutex_unlock(&list_lock);
}
