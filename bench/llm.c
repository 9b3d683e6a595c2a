// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * llm.c - tokens a second of language models with ever less XPU memory
 *
 * Each round runs a model on the CPU alone, and through GMM on an XPU that has
 * room for everything, for half and for a quarter of the weights; what disturbs
 * one disturbs all. The texts must be the same: a wrong one has no speed.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "llm.h"

#define MODELS BENCH_SOURCE "/integrations/ggml/models/"
#define RANDOM_SIZE "600M"

/* Most of the CPUs; one is left to move pages, as llm itself does. */
static unsigned int cpus_to_use(void)
{
	cpu_set_t cpus;
	int n = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1
							  : CPU_COUNT(&cpus);

	return n > 1 ? (unsigned int)n - 1 : 1;
}

static uint64_t whole_pages(double bytes)
{
	return ((uint64_t)bytes + GM_PAGE_MASK) & ~(uint64_t)GM_PAGE_MASK;
}

/* At 1x there is room for states and activations as well, and to spare. */
static uint64_t memory_for(enum llm_config c, double weights)
{
	switch (c) {
	case LLM_1X:
		return whole_pages(1.25 * weights + (256 << 20));
	case LLM_2X:
		return whole_pages(weights / 2);
	case LLM_4X:
		return whole_pages(weights / 4);
	default:
		return 0;
	}
}

static void check(const char *model, const struct llm_round *r)
{
	for (int c = LLM_1X; c < LLM_CONFIGS; c++) {
		const struct llm_outcome *o = &r->outcome[c];

		if (strcmp(o->text, r->outcome[LLM_CPU].text))
			die("%s: the XPU with %llu MiB says \"%s\", the CPU "
			    "\"%s\"",
			    model, (unsigned long long)r->setup[c].memory >> 20,
			    o->text, r->outcome[LLM_CPU].text);
		if (o->written_back > 0)
			die("%s: %.0f pages of weights were written back",
			    model, o->written_back);
	}
	if (r->outcome[LLM_1X].evictions > 0)
		die("%s: %llu MiB should be enough for all of it", model,
		    (unsigned long long)r->setup[LLM_1X].memory >> 20);
}

static void run_round(const char *model, struct llm_round *r)
{
	r->copy = unit_speed();
	for (int c = 0; c < LLM_CONFIGS; c++) {
		r->setup[c] = (struct llm_setup){
			.model = model,
			.memory = memory_for((enum llm_config)c,
					     r->outcome[LLM_CPU].weights),
			.threads = cpus_to_use(),
			.tokens = options.tokens,
		};
		r->outcome[c] = llm_run(&r->setup[c]);
	}
	check(model, r);
	for (int c = 0; c < LLM_CONFIGS; c++)
		free(r->outcome[c].text);
}

static void bench_model(const char *model)
{
	struct llm_round r = { 0 };

	llm_table_start(model);
	for (unsigned int round = 0; round <= options.rounds; round++) {
		run_round(model, &r);
		if (round > 0)
			llm_table_add(&r);
	}
	llm_table_print(model, &r);
}

void bench_llm(void)
{
	if (!llm_there())
		die("the program llm is not there, for it needs llama.cpp. In "
		    "the source tree, run:\n\tmake fetch release\n"
		    "and then build-release/bench/gmm-bench");
	if (options.model) {
		bench_model(options.model);
		return;
	}
	bench_model(MODELS "kjv.gguf");
	bench_model(MODELS "jargon.gguf");
	bench_model(llm_generate(RANDOM_SIZE));
	llm_generated_remove();
}
