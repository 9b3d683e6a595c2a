/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sched.c - ggml's scheduler with the XPU and the CPU; the buffers' functions
 *
 * The CPU runs what the device cannot, on the same pointers.
 */
#include <pthread.h>

#include "harness.h"

#define ROWS 256
#define COLUMNS 512
#define STEPS 6

/**
 * struct world - the XPU, the CPU, and ggml's scheduler over both
 */
struct world {
	ggml_backend_dev_t dev;
	ggml_backend_t xpu;
	ggml_backend_t cpu;
	ggml_backend_sched_t sched;
	struct ggml_context *ctx;
};

static struct ggml_context *context_new(void)
{
	struct ggml_init_params params = {
		.mem_size =
			256 * ggml_tensor_overhead() + ggml_graph_overhead(),
		.no_alloc = true,
	};
	struct ggml_context *ctx = ggml_init(params);

	ck_assert_ptr_nonnull(ctx);
	return ctx;
}

static struct world world_begin(const char *memory)
{
	struct world w = { .dev = gmm_load(memory) };
	ggml_backend_t backends[2];
	ggml_backend_buffer_type_t types[2];

	w.xpu = backends[0] = ggml_backend_dev_init(w.dev, NULL);
	w.cpu = backends[1] =
		ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
	ck_assert(w.xpu && w.cpu);
	/* As llama.cpp: the CPU computes in the host's buffers of the device. */
	types[0] = ggml_backend_dev_buffer_type(w.dev);
	types[1] = ggml_backend_dev_host_buffer_type(w.dev);
	w.sched =
		ggml_backend_sched_new(backends, types, 2, 1024, false, false);
	ck_assert_ptr_nonnull(w.sched);
	w.ctx = context_new();
	return w;
}

static void world_end(struct world *w)
{
	ggml_free(w->ctx);
	ggml_backend_sched_free(w->sched);
	ggml_backend_free(w->xpu);
	ggml_backend_free(w->cpu);
}

/* --- what the device cannot run ---------------------------------------------- */

/**
 * struct calls - what a function of the program has seen
 * @n: its calls
 * @pid: in which process
 * @src: the data it read
 * @dst: the data it wrote
 */
struct calls {
	int n;
	pid_t pid;
	const void *src[STEPS];
	const void *dst[STEPS];
};

static void add_one(struct ggml_tensor *dst, const struct ggml_tensor *a,
		    int ith, int nth, void *arg)
{
	struct calls *calls = arg;
	float *out = dst->data;
	const float *in = a->data;

	if (ith)
		return;
	calls->pid = getpid();
	calls->src[calls->n] = in;
	calls->dst[calls->n++] = out;
	for (int64_t i = 0; i < ggml_nelements(dst); i++)
		out[i] = in[i] + 1;
}

static void is_unified(const void *p)
{
	struct gm_where where;

	ck_assert_msg(!gm_where(p, &where), "%p is not unified memory", p);
}

static void fill_from(struct ggml_tensor *t, float first)
{
	static float row[ROWS * COLUMNS];

	for (int64_t i = 0; i < ggml_nelements(t); i++)
		row[i] = first + (float)(i % 7);
	ggml_backend_tensor_set(t, row, 0, ggml_nbytes(t));
}

/* x = 2 * x on the XPU, x + 1 on the CPU, again and again. */
static void back_and_forth(const char *memory)
{
	struct world w = world_begin(memory);
	struct calls calls = { 0 };
	struct ggml_tensor *custom[STEPS], *doubled[STEPS], *in, *out;
	struct ggml_cgraph *graph = ggml_new_graph(w.ctx);
	static float got[ROWS * COLUMNS];
	float want;

	in = out = ggml_new_tensor_2d(w.ctx, GGML_TYPE_F32, COLUMNS, ROWS);
	ggml_set_input(in);
	for (int i = 0; i < STEPS; i++) {
		doubled[i] = ggml_add(w.ctx, out, out);
		out = custom[i] =
			ggml_map_custom1(w.ctx, doubled[i], add_one, 1, &calls);
	}
	out = ggml_scale(w.ctx, out, 2);
	ggml_set_output(out);
	ggml_build_forward_expand(graph, out);
	ck_assert(!ggml_backend_supports_op(w.xpu, custom[0]));
	ck_assert(ggml_backend_supports_op(w.xpu, out));
	ck_assert(ggml_backend_sched_alloc_graph(w.sched, graph));
	/* No copies: each split reads what the one before wrote. */
	ck_assert_int_eq(ggml_backend_sched_get_n_splits(w.sched),
			 2 * STEPS + 1);
	ck_assert_int_eq(ggml_backend_sched_get_n_copies(w.sched), 1);
	for (int i = 0; i < STEPS; i++) {
		ck_assert_ptr_eq(ggml_backend_sched_get_tensor_backend(
					 w.sched, doubled[i]),
				 w.xpu);
		ck_assert_ptr_eq(ggml_backend_sched_get_tensor_backend(
					 w.sched, custom[i]),
				 w.cpu);
	}
	for (int round = 0; round < 3; round++) {
		calls.n = 0;
		fill_from(in, (float)round);
		ck_assert_int_eq(
			ggml_backend_sched_graph_compute(w.sched, graph), 0);
		ck_assert_int_eq(calls.n, STEPS);
		ck_assert_int_eq(calls.pid, getpid());
		for (int i = 0; i < STEPS; i++) {
			is_unified(calls.src[i]);
			is_unified(calls.dst[i]);
			ck_assert_ptr_eq(calls.src[i], doubled[i]->data);
			ck_assert_ptr_eq(calls.dst[i], custom[i]->data);
		}
		ggml_backend_tensor_get(out, got, 0, sizeof(got));
		for (int i = 0; i < ROWS * COLUMNS; i++) {
			want = (float)round + (float)(i % 7);
			want = 2 * (want * (1 << STEPS) + (1 << STEPS) - 1);
			if (got[i] != want)
				ck_abort_msg("%d is %f, not %f", i,
					     (double)got[i], (double)want);
		}
	}
	world_end(&w);
}

START_TEST(cpu_runs_what_the_device_cannot)
{
	back_and_forth("64M");
}
END_TEST

START_TEST(cpu_runs_what_the_device_cannot_on_a_small_one)
{
	back_and_forth("4M");
}
END_TEST

/* A pointer of the program's own: the device says no, and nothing is computed. */
START_TEST(device_refuses_memory_it_cannot_reach)
{
	struct world w = world_begin("16M");
	struct ggml_cgraph *graph = ggml_new_graph(w.ctx);
	static float mine[64] = { 1 }, out[64];
	struct ggml_tensor *a = ggml_new_tensor_1d(w.ctx, GGML_TYPE_F32, 64);
	struct ggml_tensor *b = ggml_add(w.ctx, a, a);

	ck_assert(!ggml_backend_supports_buft(w.xpu,
					      ggml_backend_cpu_buffer_type()));
	a->data = mine;
	b->data = out;
	ggml_build_forward_expand(graph, b);
	ck_assert_int_eq(ggml_backend_graph_compute(w.xpu, graph),
			 GGML_STATUS_FAILED);
	ck_assert(out[0] == 0);
	/* And it is as good as before. */
	a->data = b->data = NULL;
	ck_assert_ptr_nonnull(ggml_backend_alloc_ctx_tensors(w.ctx, w.xpu));
	fill_from(a, 3);
	ck_assert_int_eq(ggml_backend_graph_compute(w.xpu, graph), 0);
	ck_assert(((float *)b->data)[1] == 8);
	ggml_backend_buffer_free(a->buffer);
	world_end(&w);
}
END_TEST

/* --- the buffers' functions ----------------------------------------------------- */

enum { BYTES = 3 * 2097152 - 4099 };

/**
 * struct bytes - a tensor of bytes, and what it should hold
 */
struct bytes {
	struct ggml_tensor *t;
	uint8_t *want;
	uint8_t *got;
};

static uint64_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Each page to the XPU, to the host, or where it is. */
static void scatter(struct bytes *b, int node, uint64_t *seed)
{
	char *base = (char *)((uintptr_t)b->t->data & ~(PAGE - 1));

	for (size_t at = 0; at < BYTES; at += PAGE) {
		uint64_t what = draw(seed) % 3;

		if (what)
			ck_assert_int_eq(gmadvise(what == 1 ? node : 0,
						  base + at, PAGE, GM_WILLNEED),
					 0);
	}
}

static void is_as_wanted(struct bytes *b, size_t from, size_t len)
{
	ggml_backend_tensor_get(b->t, b->got, from, len);
	if (!memcmp(b->got, b->want + from, len))
		return; /* an assertion for each byte takes its time */
	for (size_t i = 0; i < len; i++)
		ck_assert_msg(b->got[i] == b->want[from + i],
			      "byte %zu is %u, not %u", from + i, b->got[i],
			      b->want[from + i]);
}

/* An odd piece, often over the border of two pages. */
static size_t piece(uint64_t *seed, size_t *len)
{
	size_t from = draw(seed) % BYTES;

	if (draw(seed) % 2)
		from = PAGE * (1 + draw(seed) % 2) - draw(seed) % 4096;
	*len = 1 + draw(seed) % (draw(seed) % 2 ? 100 : PAGE + 5000);
	if (*len > BYTES - from)
		*len = BYTES - from;
	return from;
}

static void step(struct bytes *b, struct bytes *other, uint64_t *seed)
{
	uint8_t value = (uint8_t)(draw(seed) % 3);
	size_t len, from = piece(seed, &len);

	switch (draw(seed) % 8) {
	case 0:
	case 1:
		for (size_t i = 0; i < len; i++)
			b->want[from + i] = (uint8_t)draw(seed);
		ggml_backend_tensor_set(b->t, b->want + from, from, len);
		break;
	case 2:
	case 3:
		memset(b->want + from, value, len);
		ggml_backend_tensor_memset(b->t, value, from, len);
		break;
	case 4:
		memcpy(b->want, other->want, BYTES);
		ggml_backend_tensor_copy(other->t, b->t);
		break;
	case 5:
		for (size_t i = 0; i < len; i++)
			((uint8_t *)b->t->data)[from + i] = b->want[from + i] =
				(uint8_t)(i + value);
		break;
	default:
		is_as_wanted(b, from, len);
	}
}

static int xpu_node(void)
{
	struct gm_node_info nodes[64];
	int n = gm_nodes(nodes, 64);

	for (int i = 0; i < n && i < 64; i++) {
		if (nodes[i].is_xpu)
			return nodes[i].id;
	}
	ck_abort_msg("no XPU");
}

static struct bytes bytes_new(struct world *w)
{
	struct bytes b = { ggml_new_tensor_1d(w->ctx, GGML_TYPE_I8, BYTES),
			   calloc(1, BYTES), calloc(1, BYTES) };

	ck_assert(b.want && b.got);
	return b;
}

static void bytes_free(struct bytes *b)
{
	free(b->want);
	free(b->got);
}

START_TEST(buffers_at_any_offset_wherever_pages_are)
{
	struct world w = world_begin("6M");
	struct bytes a = bytes_new(&w), b = bytes_new(&w);
	ggml_backend_buffer_t buffer =
		ggml_backend_alloc_ctx_tensors(w.ctx, w.xpu);
	uint64_t seed = 1;
	int node = xpu_node();

	ck_assert_ptr_nonnull(buffer);
	/* Not at the start of a page. */
	ck_assert_uint_ne((uintptr_t)b.t->data % PAGE, 0);
	for (int i = 0; i < 400; i++) {
		scatter(i % 2 ? &a : &b, node, &seed);
		step(i % 2 ? &a : &b, i % 2 ? &b : &a, &seed);
	}
	is_as_wanted(&a, 0, BYTES);
	is_as_wanted(&b, 0, BYTES);
	ggml_backend_buffer_clear(buffer, 7);
	memset(a.want, 7, BYTES);
	is_as_wanted(&a, 0, BYTES);
	ck_assert_int_eq(gmadvise(node, ggml_backend_buffer_get_base(buffer),
				  PAGE, GM_WILLNEED),
			 0);
	ck_assert_uint_gt(xpu_in_use(), 0);
	ggml_backend_buffer_clear(buffer, 0);
	/* Zeros need no page, on the XPU or on the host. */
	ck_assert_uint_eq(xpu_in_use(), 0);
	for (size_t at = 0; at < BYTES; at += PAGE) {
		struct gm_where where;

		ck_assert_int_eq(gm_where((char *)a.t->data + at, &where), 0);
		ck_assert_uint_eq(where.copies, 0);
	}
	memset(a.want, 0, BYTES);
	is_as_wanted(&a, 0, BYTES);
	ggml_backend_buffer_free(buffer);
	bytes_free(&a);
	bytes_free(&b);
	world_end(&w);
}
END_TEST

/**
 * struct writer - a thread with bytes of its own, in pages that others use too
 */
struct writer {
	struct ggml_tensor *t;
	unsigned int nr;
	unsigned int lost;
};

#define WRITERS 4u
#define SLOT 4097u

/* Slots go round: writer, other writers, writer again. */
static void *write_slots(void *arg)
{
	struct writer *w = arg;
	uint8_t in[SLOT], out[SLOT];

	for (int round = 0; round < 20; round++) {
		memset(in, (int)(16 * w->nr) + round % 16, sizeof(in));
		for (size_t at = w->nr * SLOT; at + SLOT <= BYTES;
		     at += WRITERS * SLOT)
			ggml_backend_tensor_set(w->t, in, at, SLOT);
		for (size_t at = w->nr * SLOT; at + SLOT <= BYTES;
		     at += WRITERS * SLOT) {
			ggml_backend_tensor_get(w->t, out, at, SLOT);
			w->lost += !!memcmp(in, out, SLOT);
		}
	}
	return NULL;
}

static void *move_pages(void *arg)
{
	struct bytes *b = arg;
	uint64_t seed = 9;

	for (int i = 0; i < 60; i++)
		scatter(b, xpu_node(), &seed);
	return NULL;
}

START_TEST(buffers_in_parallel_lose_nothing)
{
	struct world w = world_begin("4M");
	struct bytes a = bytes_new(&w);
	ggml_backend_buffer_t buffer =
		ggml_backend_alloc_ctx_tensors(w.ctx, w.xpu);
	struct writer writers[WRITERS];
	pthread_t threads[WRITERS + 1];

	for (unsigned int i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){ a.t, i, 0 };
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_slots,
						&writers[i]),
				 0);
	}
	ck_assert_int_eq(
		pthread_create(&threads[WRITERS], NULL, move_pages, &a), 0);
	for (unsigned int i = 0; i <= WRITERS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	for (unsigned int i = 0; i < WRITERS; i++)
		ck_assert_uint_eq(writers[i].lost, 0);
	ggml_backend_buffer_free(buffer);
	bytes_free(&a);
	world_end(&w);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, cpu_runs_what_the_device_cannot);
	tcase_add_test(tc, cpu_runs_what_the_device_cannot_on_a_small_one);
	tcase_add_test(tc, device_refuses_memory_it_cannot_reach);
	tcase_add_test(tc, buffers_at_any_offset_wherever_pages_are);
	tcase_add_test(tc, buffers_in_parallel_lose_nothing);
}

int main(void)
{
	return run_suite("ggml-sched", 60, add);
}
