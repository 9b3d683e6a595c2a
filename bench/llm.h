/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * llm.h - inside the benchmark of language models
 *
 *	llm.c		the models, and the rounds
 *	llm_run.c	one run of the program llm, and what it tells
 *	llm_table.c	the figures
 */
#ifndef BENCH_LLM_H
#define BENCH_LLM_H

#include <stdint.h>

/**
 * struct llm_setup - a run of the program llm
 * @model: a GGUF file
 * @memory: bytes of the XPU; 0: the CPU alone
 * @threads: that compute
 * @tokens: of an answer, the first of which comes with the prompt
 */
struct llm_setup {
	const char *model;
	uint64_t memory;
	unsigned int threads;
	unsigned int tokens;
};

/**
 * struct llm_outcome - what it told
 *
 * The same prompt is answered twice. The first time all is cold; everything is
 * of the second time, but what is said to be of the first or of the run.
 *
 * @text: the answer, the way JSON has it; both times the same
 * @prompt_tokens: tokens of the prompt
 * @first_s: seconds for the prompt, the first time
 * @prompt_s: the same, the second time
 * @decoded: tokens evaluated one by one
 * @answer_s: seconds for these
 * @load_s: seconds to load the model
 * @resident: bytes of the host, at most, with mapped files
 * @anon: without them
 * @weights: bytes of the weights
 * @to_xpu: bytes that moved to the XPU for the tokens in @decoded
 * @to_host: and back
 * @evictions: of the run, of pages of any use
 * @needed: bytes of weights and states on the XPU in the end
 * @weight_pages: all there are
 * @written_back: pages of weights, of the run
 */
struct llm_outcome {
	char *text;
	double prompt_tokens;
	double first_s;
	double prompt_s;
	double decoded;
	double answer_s;
	double load_s;
	double resident;
	double anon;
	double weights;
	double to_xpu;
	double to_host;
	double evictions;
	double needed;
	double weight_pages;
	double written_back;
};

/* llm_run.c */
struct llm_outcome llm_run(const struct llm_setup *setup);
/*
 * Write a model of random weights into a folder that goes away when this
 * program ends, however it does; returns its path.
 */
const char *llm_generate(const char *size);
void llm_generated_remove(void);

/* llm_table.c */

enum llm_config {
	LLM_CPU,
	LLM_1X,
	LLM_2X,
	LLM_4X,
	LLM_CONFIGS,
};

/**
 * struct llm_round - one run of each, after another
 * @copy: bytes a second of the best copy, just before
 * @setup: of each
 * @outcome: of each
 */
struct llm_round {
	double copy;
	struct llm_setup setup[LLM_CONFIGS];
	struct llm_outcome outcome[LLM_CONFIGS];
};

void llm_table_start(const char *model);
void llm_table_add(const struct llm_round *round);
/* @last: any of the rounds, for what is the same in all. */
void llm_table_print(const char *model, const struct llm_round *last);

#endif
