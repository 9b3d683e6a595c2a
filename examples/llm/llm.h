/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * llm.h - inside the example that runs a language model
 *
 *	main.c		what is asked for, and in which order it is done
 *	model.c		llama.cpp: load a model, answer prompts
 *	report.c	what it took, and what GMM did, in plain words
 *	json.c		the same for other programs
 *	written.c	what was written back from the XPU
 */
#ifndef LLM_H
#define LLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ggml-gmm.h"
#include "gmm/gmm.h"

/**
 * struct options - what is asked for
 * @model: a GGUF file
 * @xpu: the model runs on the XPU, through GMM; else on the CPU alone
 * @backends: the folder of ggml's CPU backends; NULL: where libggml is
 * @plugin: the file of GMM's backend
 * @tokens: most tokens of an answer
 * @threads: that compute
 * @context: most tokens of a prompt and its answer together
 * @verbose: pass llama.cpp's log on
 */
struct options {
	const char *model;
	bool xpu;
	const char *backends;
	const char *plugin;
	int tokens;
	int threads;
	int context;
	bool verbose;
};

/**
 * struct answer - the answer to one prompt, and what it took
 * @text: the prompt and what follows it, UTF-8
 * @len: bytes of @text
 * @prompt_tokens: of the prompt
 * @prompt_s: seconds until the first token of the answer
 * @tokens: of the answer
 * @decoded: of those, evaluated one by one; the first comes with the prompt
 * @answer_s: seconds for these
 * @stats: what GMM did for these; all 0 on the CPU alone
 */
struct answer {
	char *text;
	size_t len;
	int prompt_tokens;
	double prompt_s;
	int tokens;
	int decoded;
	double answer_s;
	struct gm_stats stats;
};

/* model.c; all that can fail exits with a reason. */
struct model;
struct model *model_load(const struct options *options);
/*
 * Answer in a fresh context, showing the text as it comes if @show. The caller
 * frees answer->text.
 */
struct answer model_answer(struct model *m, const char *prompt, bool show);
/* What it is, in a few words, and the bytes of its weights. */
void model_describe(const struct model *m, char *words, size_t size);
uint64_t model_size(const struct model *m);
/* Visit its buffers of unified memory; only if it is on the XPU. */
void model_buffers(const struct model *m,
		   void (*fn)(void *base, size_t len, enum ggml_gmm_use use,
			      void *arg),
		   void *arg);
void model_free(struct model *m);

/* All counters are uint64_t, so that they can be seen as an array. */
#define NR_COUNTERS (sizeof(struct gm_stats) / sizeof(uint64_t))

/**
 * struct step - a part of the run
 * @what: it did
 * @seconds: that it took
 * @stats: what GMM did meanwhile; all 0 on the CPU alone
 */
struct step {
	const char *what;
	double seconds;
	struct gm_stats stats;
};

/**
 * struct memory - of this process, in bytes; the XPU's own is not counted
 * @resident: most seen, mapped files included
 * @anon: most seen of what is in no file, and so can only be swapped
 */
struct memory {
	uint64_t resident;
	uint64_t anon;
};

/**
 * struct run - what there is to report
 * @options: of the run
 * @model: that answered, and is still there
 * @load: the first step
 * @answers: the second
 * @total: of all answers, without a text
 * @memory: that they took
 */
struct run {
	const struct options *options;
	const struct model *model;
	struct step load;
	struct step answers;
	struct answer total;
	struct memory memory;
};

#define NR_USES (GGML_GMM_ACTIVATIONS + 1)
extern const char *const use_names[NR_USES];

/**
 * struct pages - how many pages of 2 MiB are where
 * @cpu: valid on the CPU only
 * @xpu: valid on the XPU only
 * @both: valid on both, so that either can be dropped
 * @nowhere: not touched yet
 */
struct pages {
	uint64_t cpu;
	uint64_t xpu;
	uint64_t both;
	uint64_t nowhere;
};

/**
 * struct places - where the model is
 * @of: its pages, by their use
 * @xpu_memory: bytes of the XPU
 * @xpus: bit i is set if node i is an XPU
 */
struct places {
	struct pages of[NR_USES];
	uint64_t xpu_memory;
	uint64_t xpus;
};

/* What @stats count more than @last; report.c. */
struct gm_stats stats_since(const struct gm_stats *last,
			    const struct gm_stats *stats);

/**
 * struct written - pages that left the XPU and had to be copied to do so
 * @of: how many, by their use
 * @lost: events of unknown pages; if there are any, @of is too little
 */
struct written {
	uint64_t of[NR_USES];
	uint64_t lost;
};

/* written.c */

/* From now on, look. */
void written_start(void);
/* Count what has left since the last call; to be called at every token. */
void written_sample(const struct model *m);
struct written written_all(void);

/* report.c */

/* Note the memory in use; cheap enough for every token. */
void memory_sample(void);
struct memory memory_most(void);
/* End a step that began at @start, right after the last one. */
struct step step_end(const struct options *options, const char *what,
		     double start);
struct places places_find(const struct run *run);
/* On stderr. */
void report(const struct run *run);

/* json.c; one line each, on stdout */
void answer_json(const struct options *options, const char *prompt,
		 const struct answer *answer);
void report_json(const struct run *run);

#endif
