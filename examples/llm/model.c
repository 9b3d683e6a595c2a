// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * model.c - llama.cpp: load a model, answer prompts
 *
 * Nothing here is special to GMM but the choice of the device. What could make
 * the CPU and the XPU round differently is set the same for both: threads,
 * batches, flash attention, and no weights in layouts of a CPU's own.
 */
#include <dlfcn.h>
#include <ggml-backend.h>
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm.h"
#include "util/util.h"

struct model {
	struct llama_model *model;
	struct llama_context *ctx;
	const struct llama_vocab *vocab;
	struct llama_sampler *sampler;
	ggml_backend_dev_t devices[2];
	ggml_backend_gmm_buffers_t buffers;
	int tokens;
};

static void log_all(enum ggml_log_level level, const char *text, void *arg)
{
	fputs(text, stderr);
}

static void log_warnings(enum ggml_log_level level, const char *text, void *arg)
{
	static enum ggml_log_level last;

	/* A line may come in pieces, the later ones of no level. */
	if (level != GGML_LOG_LEVEL_CONT)
		last = level;
	if (last >= GGML_LOG_LEVEL_WARN)
		fputs(text, stderr);
}

/* The folder where libggml is, which is where its CPU backends are. */
static char *ggml_folder(void)
{
	Dl_info info;
	char *path, *slash;

	must(dladdr((void *)ggml_backend_load_all_from_path, &info),
	     "no libggml", "it cannot be found in memory");
	path = realpath(info.dli_fname, NULL);
	slash = path ? strrchr(path, '/') : NULL;
	must(!!slash, info.dli_fname, "no such file");
	*slash = '\0';
	return path;
}

static void load_backends(const struct options *o)
{
	char *folder = o->backends ? strdup(o->backends) : ggml_folder();

	/* ggml would load it on its own, for the CPU alone as well. */
	unsetenv("GGML_BACKEND_PATH");
	ggml_backend_load_all_from_path(folder);
	must(!!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), folder,
	     "ggml finds no CPU backend there");
	free(folder);
}

static void load_xpu(struct model *m, const struct options *o)
{
	ggml_backend_reg_t reg = ggml_backend_load(o->plugin);

	must(reg && ggml_backend_reg_dev_count(reg), o->plugin,
	     "ggml cannot load this backend, or it has no XPU");
	m->devices[0] = ggml_backend_reg_dev_get(reg, 0);
	m->buffers =
		(ggml_backend_gmm_buffers_t)ggml_backend_reg_get_proc_address(
			reg, "ggml_backend_gmm_buffers");
	must(!!m->buffers, o->plugin, "this is not GMM's backend");
}

static bool on_progress(float progress, void *arg)
{
	memory_sample();
	return true;
}

static void load_weights(struct model *m, const struct options *o)
{
	struct llama_model_params params = llama_model_default_params();

	params.devices = m->devices;
	params.n_gpu_layers = o->xpu ? -1 : 0;
	params.use_extra_bufts = false;
	params.progress_callback = on_progress;
	m->model = llama_model_load_from_file(o->model, params);
	must(!!m->model, o->model, "llama.cpp cannot load it");
	m->vocab = llama_model_get_vocab(m->model);
	must(!llama_model_has_encoder(m->model), o->model,
	     "it does not just continue a text");
}

static void make_context(struct model *m, const struct options *o)
{
	struct llama_context_params params = llama_context_default_params();

	params.n_ctx = (uint32_t)o->context;
	params.n_batch = (uint32_t)o->context;
	params.n_ubatch = 512;
	params.n_threads = o->threads;
	params.n_threads_batch = o->threads;
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
	params.op_offload = false;
	params.offload_kqv = o->xpu;
	m->ctx = llama_init_from_model(m->model, params);
	must(!!m->ctx, o->model, "llama.cpp can make no context for it");
}

struct model *model_load(const struct options *o)
{
	struct model *m = calloc(1, sizeof(*m));

	must(!!m, o->model, "no memory");
	llama_log_set(o->verbose ? log_all : log_warnings, NULL);
	load_backends(o);
	/* On the CPU alone the list of devices is empty, and not its default. */
	if (o->xpu)
		load_xpu(m, o);
	load_weights(m, o);
	make_context(m, o);
	m->sampler = llama_sampler_init_greedy();
	m->tokens = o->tokens;
	memory_sample();
	return m;
}

static llama_token *tokenize(const struct model *m, const char *prompt, int *n)
{
	int len = (int)strlen(prompt), room;
	llama_token *tokens;

	room = -llama_tokenize(m->vocab, prompt, len, NULL, 0, true, false);
	must(room > 0, prompt, "it has no tokens");
	tokens = malloc((size_t)room * sizeof(*tokens));
	must(!!tokens, prompt, "no memory");
	*n = llama_tokenize(m->vocab, prompt, len, tokens, room, true, false);
	must(*n == room, prompt, "its tokens cannot be counted");
	must((int64_t)*n + m->tokens <= llama_n_ctx(m->ctx), prompt,
	     "it and its answer are longer than the context (--context)");
	return tokens;
}

static void append(struct answer *a, const char *text, size_t len, bool show)
{
	char *more = realloc(a->text, a->len + len + 1);

	must(!!more, "an answer", "no memory");
	memcpy(more + a->len, text, len);
	a->text = more;
	a->len += len;
	a->text[a->len] = '\0';
	if (show) {
		fwrite(text, 1, len, stdout);
		fflush(stdout);
	}
}

static void append_token(const struct model *m, struct answer *a,
			 llama_token token, bool show)
{
	char piece[256];
	int len = llama_token_to_piece(m->vocab, token, piece, sizeof(piece), 0,
				       false);

	must(len >= 0, "a token", "its text is longer than 256 bytes");
	append(a, piece, (size_t)len, show);
}

/* Evaluate @tokens; which one is the most likely next? */
static llama_token next_token(struct model *m, llama_token *tokens, int n)
{
	int err = llama_decode(m->ctx, llama_batch_get_one(tokens, n));

	must(!err, "llama_decode()", "the model could not be evaluated");
	memory_sample();
	written_sample(m);
	return llama_sampler_sample(m->sampler, m->ctx, -1);
}

/* What GMM has done so far; nothing on the CPU alone. */
static struct gm_stats stats_now(const struct model *m)
{
	struct gm_stats stats = { 0 };

	if (m->buffers)
		must(!gm_process_stats(&stats), "no statistics", gm_error());
	return stats;
}

struct answer model_answer(struct model *m, const char *prompt, bool show)
{
	struct answer a = { 0 };
	llama_token *tokens = tokenize(m, prompt, &a.prompt_tokens);
	struct gm_stats before, after;
	double start = now();
	llama_token token;

	llama_memory_clear(llama_get_memory(m->ctx), true);
	append(&a, prompt, strlen(prompt), show);
	token = next_token(m, tokens, a.prompt_tokens);
	a.prompt_s = now() - start;
	before = stats_now(m);
	start = now();
	while (!llama_vocab_is_eog(m->vocab, token)) {
		append_token(m, &a, token, show);
		if (++a.tokens == m->tokens)
			break;
		token = next_token(m, &token, 1);
		a.decoded++;
	}
	a.answer_s = now() - start;
	after = stats_now(m);
	a.stats = stats_since(&before, &after);
	if (show)
		putchar('\n');
	free(tokens);
	return a;
}

void model_describe(const struct model *m, char *words, size_t size)
{
	char *unknown;

	llama_model_desc(m->model, words, size);
	/* The size of models that llama.cpp does not know by name. */
	unknown = strstr(words, " ?B");
	if (unknown)
		memmove(unknown, unknown + 3, strlen(unknown + 3) + 1);
}

uint64_t model_size(const struct model *m)
{
	return llama_model_size(m->model);
}

void model_buffers(const struct model *m,
		   void (*fn)(void *base, size_t len, enum ggml_gmm_use use,
			      void *arg),
		   void *arg)
{
	m->buffers(fn, arg);
}

void model_free(struct model *m)
{
	llama_sampler_free(m->sampler);
	llama_free(m->ctx);
	llama_model_free(m->model);
	free(m);
}
