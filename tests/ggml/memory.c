/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * memory.c - what a model costs: no weights are written back, nothing is left
 * behind, loading goes straight to where the weights stay
 */
#include <malloc.h>
#include <sys/stat.h>

#include "harness.h"

#define EVENTS ((size_t)1 << 16)

/* --- no weights are written back ------------------------------------------- */

/**
 * struct tally - evictions of pages of weights
 * @at: the page that is looked for
 * @hit: it is one of weights
 * @bytes: of all weights
 */
struct tally {
	uint64_t at;
	bool hit;
	uint64_t bytes;
};

static void look_for(void *base, size_t len, enum ggml_gmm_use use, void *arg)
{
	struct tally *t = arg;
	uint64_t begin = (uintptr_t)base;

	if (use != GGML_GMM_WEIGHTS)
		return;
	t->bytes += len;
	t->hit |= t->at >= begin && t->at < begin + len;
}

static void weights_are_never_written_back(const char *memory, bool fits)
{
	static struct gm_event events[EVENTS];
	uint64_t lost = 0, dropped = 0, written = 0;
	char text[TEXT_MAX], want[TEXT_MAX];
	struct tally t = { 0 };
	struct llm m;
	size_t n;

	gmm_load(memory);
	cpu_text(kjv(), PROMPT, 12, want);
	ck_assert_int_eq(gm_trace_start(EVENTS), 0);
	m = llm_load(kjv(), true);
	ck_assert_int_eq(llm_text(&m, PROMPT, 12, text), 0);
	ck_assert_str_eq(text, want);
	n = gm_trace_read(events, EVENTS, &lost);
	ck_assert_uint_eq(lost, 0);
	ck_assert_uint_gt(n, 0);
	for (size_t i = 0; i < n; i++) {
		if (events[i].kind != GM_EV_EVICT)
			continue;
		t = (struct tally){ .at = events[i].addr };
		gmm_buffers()(look_for, &t);
		ck_assert_msg(!t.hit || !events[i].bytes,
			      "%u bytes of weights at %#lx were written back",
			      events[i].bytes, (unsigned long)events[i].addr);
		dropped += t.hit;
		written += !t.hit && events[i].bytes;
	}
	gmm_buffers()(look_for, &t);
	ck_assert_uint_ge(t.bytes, llama_model_size(m.model));
	/* This had something to find, or nothing had to go. */
	if (fits)
		ck_assert_uint_eq(dropped + written, 0);
	else
		ck_assert_uint_gt(dropped, 0);
	llm_free(&m);
}

START_TEST(weights_that_fit_stay)
{
	weights_are_never_written_back("256M", true);
}
END_TEST

START_TEST(weights_are_dropped_not_written)
{
	weights_are_never_written_back("8M", false);
}
END_TEST

/* Here the states and activations have to be written back, the weights not. */
START_TEST(weights_are_dropped_where_all_else_is_written)
{
	weights_are_never_written_back("6M", false);
}
END_TEST

/* --- nothing is left behind -------------------------------------------------- */

/**
 * struct had - what the process has
 */
struct had {
	uint64_t anon;
	uint64_t mapped;
	uint64_t xpu;
	unsigned int fds;
	unsigned int threads;
};

static struct had have(void)
{
	return (struct had){ status_of("RssAnon"), unified_mapped(),
			     xpu_in_use(), count_fds(), count_threads() };
}

static void load_and_free(const char *path, const char *want)
{
	struct llm m = llm_load(path, true);
	char text[TEXT_MAX];

	ck_assert_int_eq(llm_text(&m, PROMPT, 3, text), 0);
	ck_assert_str_eq(text, want);
	llm_free(&m);
}

START_TEST(fifty_models_leave_nothing)
{
	char want[TEXT_MAX];
	struct had before, after;

	gmm_load("8M");
	cpu_text(kjv(), PROMPT, 3, want);
	for (int i = 0; i < 5; i++)
		load_and_free(kjv(), want);
	before = have();
	for (int i = 0; i < 45; i++)
		load_and_free(kjv(), want);
	after = have();
	ck_assert_uint_eq(after.xpu, 0);
	ck_assert_uint_eq(after.xpu, before.xpu);
	ck_assert_uint_le(after.mapped, before.mapped);
	ck_assert_uint_le(after.fds, before.fds);
	ck_assert_uint_le(after.threads, before.threads);
	/* A leak of a graph, or of a page, each time would be more. */
	ck_assert_msg(after.anon < before.anon + 20 * MIB,
		      "%lu MiB more than before",
		      (unsigned long)((after.anon - before.anon) / MIB));
}
END_TEST

/* --- loading ----------------------------------------------------------------- */

/* Pages that GMM keeps ready: 32 zeroed, 16 for reclaim; and the last ones. */
#define POOL ((32 + 16 + 2) * PAGE)

/**
 * struct loading - the most that there was meanwhile
 * @heap: bytes in use
 * @anon: bytes of anonymous memory, unified or not
 */
struct loading {
	uint64_t heap;
	uint64_t anon;
};

static uint64_t heap_in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static bool on_progress(float progress, void *arg)
{
	struct loading *l = arg;
	uint64_t heap = heap_in_use(), anon = status_of("RssAnon");

	l->heap = heap > l->heap ? heap : l->heap;
	l->anon = anon > l->anon ? anon : l->anon;
	return true;
}

/* The file is read in both cases: a mapping of it would not be counted. */
static struct loading loading_takes(bool xpu)
{
	struct llama_model_params params = llama_model_default_params();
	ggml_backend_dev_t devices[2] = { NULL, NULL };
	uint64_t heap = heap_in_use(), anon = status_of("RssAnon");
	struct loading l = { heap, anon };
	struct llama_model *model;

	if (xpu)
		devices[0] = ggml_backend_dev_by_name("GMM0");
	params.devices = devices;
	params.n_gpu_layers = xpu ? -1 : 0;
	params.use_extra_bufts = false;
	params.load_mode = LLAMA_LOAD_MODE_NONE;
	params.progress_callback = on_progress;
	params.progress_callback_user_data = &l;
	model = llama_model_load_from_file(kjv(), params);
	ck_assert_ptr_nonnull(model);
	llama_model_free(model);
	return (struct loading){ l.heap - heap, l.anon - anon };
}

START_TEST(loading_goes_straight_to_unified_memory)
{
	struct gm_stats before, after;
	struct loading cpu, xpu;
	struct stat st;
	uint64_t size;

	ck_assert_int_eq(stat(kjv(), &st), 0);
	size = (uint64_t)st.st_size;
	gmm_load("64M");
	cpu = loading_takes(false);
	ck_assert_int_eq(gm_process_stats(&before), 0);
	xpu = loading_takes(true);
	ck_assert_int_eq(gm_process_stats(&after), 0);
	/* The CPU's weights are on the heap, so this sees what is there ... */
	ck_assert_uint_gt(cpu.heap, size * 9 / 10);
	/* ... the XPU's are not, nor does anything of their size come by. */
	ck_assert_uint_lt(xpu.heap, cpu.heap - size * 9 / 10 + MIB);
	ck_assert_uint_gt(xpu.anon, size / 2);
	ck_assert_uint_le(xpu.anon, size + POOL);
	ck_assert_uint_eq(after.bytes_memcpy, before.bytes_memcpy);
	ck_assert_uint_eq(after.bytes_to_xpu, before.bytes_to_xpu);
}
END_TEST

/* --- what there is not --------------------------------------------------------- */

static int ask_for_too_much(void *arg)
{
	static const size_t sizes[] = { (size_t)1 << 40, SIZE_MAX / 4,
					SIZE_MAX - 5, SIZE_MAX };
	ggml_backend_dev_t dev = gmm_load("64M");
	ggml_backend_buffer_type_t types[] = {
		ggml_backend_dev_buffer_type(dev),
		ggml_backend_dev_host_buffer_type(dev),
	};
	uint64_t before = unified_mapped();

	for (size_t i = 0; i < 8; i++) {
		fprintf(stderr, "<%zu>", i);
		if (ggml_backend_buft_alloc_buffer(types[i % 2], sizes[i / 2]))
			return 1;
	}
	return unified_mapped() == before ? 0 : 2;
}

START_TEST(more_than_there_is_is_refused)
{
	struct outcome o = in_child(ask_for_too_much, NULL, 20);
	char mark[8];

	ck_assert_msg(exited(o, 0), "%#x: %s", o.status, o.said);
	/* Each time for a reason that can be read. */
	for (int i = 0; i < 8; i++) {
		char *at;

		snprintf(mark, sizeof(mark), "<%d>", i);
		at = strstr(o.said, mark);
		ck_assert_ptr_nonnull(at);
		ck_assert_msg(!strncmp(at + 3, "ggml-gmm: ", 10) &&
				      strstr(at, "MiB wanted"),
			      "no reason: %s", at);
	}
}
END_TEST

START_TEST(buffers_of_any_size)
{
	static const size_t sizes[] = { 1,    4095,	4096,
					PAGE, PAGE + 1, 3 * PAGE - 1 };
	ggml_backend_dev_t dev = gmm_load("64M");
	ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(dev);
	uint64_t before = unified_mapped();
	ggml_backend_buffer_t buffer;

	ck_assert(ggml_backend_buft_is_host(type));
	ck_assert_uint_eq(ggml_backend_buft_get_alignment(type), 64);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		char *base;

		buffer = ggml_backend_buft_alloc_buffer(type, sizes[i]);
		ck_assert_ptr_nonnull(buffer);
		ck_assert_uint_eq(ggml_backend_buffer_get_size(buffer),
				  sizes[i]);
		base = ggml_backend_buffer_get_base(buffer);
		ck_assert_uint_eq((uintptr_t)base % PAGE, 0);
		ck_assert_int_eq(base[sizes[i] - 1], 0);
		base[sizes[i] - 1] = 1;
		ggml_backend_buffer_free(buffer);
	}
	/* ggml makes one of nothing itself, and may ask it for anything. */
	buffer = ggml_backend_buft_alloc_buffer(type, 0);
	ck_assert_ptr_nonnull(buffer);
	ck_assert_uint_eq(ggml_backend_buffer_get_size(buffer), 0);
	ggml_backend_buffer_free(buffer);
	ck_assert_uint_eq(unified_mapped(), before);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, weights_that_fit_stay);
	tcase_add_test(tc, weights_are_dropped_not_written);
	tcase_add_test(tc, weights_are_dropped_where_all_else_is_written);
	tcase_add_test(tc, fifty_models_leave_nothing);
	tcase_add_test(tc, loading_goes_straight_to_unified_memory);
	tcase_add_test(tc, more_than_there_is_is_refused);
	tcase_add_test(tc, buffers_of_any_size);
}

int main(void)
{
	return run_suite("ggml-memory", 120, add);
}
