// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * llm_table.c - the figures of a language model
 *
 * The bound is what no management of memory could do better: each token takes
 * at least as long as its computation with all the memory wanted, and as long
 * as the best copy takes for what cannot stay: weights and states are all used
 * for each token, so what exceeds the XPU's memory crosses each time.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "llm.h"

#define MIB(bytes) ((bytes) / (1 << 20))

enum figure {
	TOKENS,
	OF_CPU,
	OF_BOUND,
	TO_XPU,
	LEAST,
	TO_HOST,
	WRITTEN_BACK,
	PROMPT,
	FIRST,
	LOAD,
	RESIDENT,
	ANON,
	FIGURES,
};

static const struct {
	const char *name;
	const char *unit;
	const char *label;
	int spread; /* worth a line of its own */
} figures[FIGURES] = {
	[TOKENS] = { "tokens", "tokens/s", "tokens a second", 1 },
	[OF_CPU] = { "of_cpu", "ratio to cpu", "ratio to the CPU's", 1 },
	[OF_BOUND] = { "of_bound", "ratio to bound", "ratio to the bound", 1 },
	[TO_XPU] = { "to_xpu", "MiB a token", "MiB a token to the XPU", 0 },
	[LEAST] = { "least", "MiB a token", "  the least possible", 0 },
	[TO_HOST] = { "to_host", "MiB a token", "MiB a token to the CPU", 0 },
	[WRITTEN_BACK] = { "written_back", "share of the weights",
			   "weights written back, share", 0 },
	[PROMPT] = { "prompt", "tokens/s", "prompt, tokens a second", 1 },
	[FIRST] = { "first", "s", "first prompt of all, s", 0 },
	[LOAD] = { "load", "s", "load time, s", 0 },
	[RESIDENT] = { "resident", "MiB", "most host memory, MiB", 0 },
	[ANON] = { "anon", "MiB", "  not in files", 0 },
};

static const char *const configs[LLM_CONFIGS] = {
	[LLM_CPU] = "cpu",
	[LLM_1X] = "1x",
	[LLM_2X] = "2x",
	[LLM_4X] = "4x",
};

static struct series all[LLM_CONFIGS][FIGURES], copy;
static char names[LLM_CONFIGS + 1][FIGURES][96];

static const char *metric(char *name, const char *model, const char *config,
			  const char *figure)
{
	const char *slash = strrchr(model, '/');
	const char *base = slash ? slash + 1 : model;
	const char *dot = strrchr(base, '.');
	int len = dot > base ? (int)(dot - base) : (int)strlen(base);

	snprintf(name, sizeof(names[0][0]), "llm_%.*s%s%s_%s",
		 len > 48 ? 48 : len, base, *config ? "_" : "", config, figure);
	for (char *c = name; *c; c++) {
		if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.')
			*c = '_';
	}
	return name;
}

void llm_table_start(const char *model)
{
	for (int c = 0; c < LLM_CONFIGS; c++) {
		for (int f = 0; f < FIGURES; f++)
			series_start(&all[c][f],
				     metric(names[c][f], model, configs[c],
					    figures[f].name),
				     figures[f].unit);
	}
	series_start(&copy, metric(names[LLM_CONFIGS][0], model, "", "copy"),
		     "GB/s");
}

static double per_token(const struct llm_outcome *o)
{
	return o->answer_s / o->decoded;
}

/* Only what the XPU took at 1x counts: it reads no token embeddings. */
static double least(const struct llm_round *round, enum llm_config c)
{
	double bytes =
		round->outcome[LLM_1X].needed - (double)round->setup[c].memory;

	return bytes > 0 ? bytes : 0;
}

static double bound(const struct llm_round *round, enum llm_config c)
{
	double compute = per_token(&round->outcome[LLM_1X]);
	double cross = least(round, c) / round->copy;

	return compute > cross ? compute : cross;
}

static void add_gmm(const struct llm_round *round, enum llm_config c)
{
	const struct llm_outcome *o = &round->outcome[c];
	struct series *s = all[c];

	series_add(&s[OF_CPU],
		   per_token(&round->outcome[LLM_CPU]) / per_token(o));
	if (c != LLM_1X)
		series_add(&s[OF_BOUND], bound(round, c) / per_token(o));
	series_add(&s[TO_XPU], MIB(o->to_xpu) / o->decoded);
	series_add(&s[LEAST], MIB(least(round, c)));
	series_add(&s[TO_HOST], MIB(o->to_host) / o->decoded);
	series_add(&s[WRITTEN_BACK], o->written_back / o->weight_pages);
}

void llm_table_add(const struct llm_round *round)
{
	series_add(&copy, 1e-9 * round->copy);
	for (int c = 0; c < LLM_CONFIGS; c++) {
		const struct llm_outcome *o = &round->outcome[c];
		struct series *s = all[c];

		series_add(&s[TOKENS], 1 / per_token(o));
		series_add(&s[PROMPT], o->prompt_tokens / o->prompt_s);
		series_add(&s[FIRST], o->first_s);
		series_add(&s[LOAD], o->load_s);
		series_add(&s[RESIDENT], MIB(o->resident));
		series_add(&s[ANON], MIB(o->anon));
		if (c != LLM_CPU)
			add_gmm(round, (enum llm_config)c);
	}
}

#define CELL 16

static void print_row(enum figure f)
{
	printf("%-28s", figures[f].label);
	for (int c = 0; c < LLM_CONFIGS; c++) {
		struct series *s = &all[c][f];

		if (s->n)
			printf(" %*.4g", CELL,
			       percentile(s->values, s->n, 0.5));
		else
			printf(" %*s", CELL, "-");
	}
	putchar('\n');
	if (!figures[f].spread)
		return;
	printf("%-28s", "  quartiles");
	for (int c = 0; c < LLM_CONFIGS; c++) {
		struct series *s = &all[c][f];
		char cell[64] = "";

		if (s->n)
			snprintf(cell, sizeof(cell), "%.4g..%.4g",
				 percentile(s->values, s->n, 0.25),
				 percentile(s->values, s->n, 0.75));
		printf(" %*s", CELL, cell);
	}
	putchar('\n');
}

static void print_table(const char *model, const struct llm_round *last)
{
	const struct llm_outcome *o = &last->outcome[LLM_1X];
	const char *slash = strrchr(model, '/');

	printf("\n%s: %.1f MiB of weights; a prompt of %.0f tokens, then "
	       "%.0f; threads: %u;\ncopy %.3g GB/s; medians; rounds: %u\n\n",
	       slash ? slash + 1 : model, MIB(o->weights), o->prompt_tokens,
	       o->decoded, last->setup[LLM_CPU].threads,
	       percentile(copy.values, copy.n, 0.5), copy.n);
	printf("%-28s", "");
	for (int c = 0; c < LLM_CONFIGS; c++)
		printf(" %*s", CELL, configs[c]);
	printf("\n%-28s %*s", "MiB of the XPU", CELL, "-");
	for (int c = LLM_1X; c < LLM_CONFIGS; c++)
		printf(" %*.4g", CELL, MIB((double)last->setup[c].memory));
	putchar('\n');
	for (int f = 0; f < FIGURES; f++)
		print_row((enum figure)f);
	fflush(stdout);
}

void llm_table_print(const char *model, const struct llm_round *last)
{
	if (!options.json) {
		print_table(model, last);
		return;
	}
	series_print(&copy);
	for (int c = 0; c < LLM_CONFIGS; c++) {
		for (int f = 0; f < FIGURES; f++) {
			if (all[c][f].n)
				series_print(&all[c][f]);
		}
	}
}
