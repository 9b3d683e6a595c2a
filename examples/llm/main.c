// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * main.c - continue texts with a language model, on the XPU or the CPU
 *
 * Always with the most likely next word, so that the same prompt has the same
 * answer wherever it is computed.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm.h"
#include "util/util.h"

static const char usage[] =
	"usage: llm [options] MODEL [PROMPT]...\n"
	"\n"
	"  -d, --device cpu|gmm     the CPU alone, or the XPU through GMM "
	"(gmm)\n"
	"  -n, --tokens N           most tokens of an answer (64)\n"
	"  -t, --threads N          that compute (CPUs - 1)\n"
	"  -c, --context N          most tokens of a prompt and its answer "
	"(512)\n"
	"  -p, --prompts FILE       more prompts, one a line\n"
	"  -r, --report             tell, on stderr, what it took and what GMM "
	"did\n"
	"  -j, --json               answers and report as one JSON object a "
	"line\n"
	"  -b, --backends DIR       ggml's CPU backends (where libggml is)\n"
	"  -x, --backend-path FILE  GMM's backend (GGML_BACKEND_PATH, or as "
	"built)\n"
	"  -v, --verbose            pass llama.cpp's log on\n"
	"  -h, --help               this\n"
	"\n"
	"The XPU's memory is SGPU_MEMORY (256M).\n";

static const struct option long_options[] = {
	{ "device", required_argument, NULL, 'd' },
	{ "tokens", required_argument, NULL, 'n' },
	{ "threads", required_argument, NULL, 't' },
	{ "context", required_argument, NULL, 'c' },
	{ "prompts", required_argument, NULL, 'p' },
	{ "report", no_argument, NULL, 'r' },
	{ "json", no_argument, NULL, 'j' },
	{ "backends", required_argument, NULL, 'b' },
	{ "backend-path", required_argument, NULL, 'x' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

struct prompts {
	char **text;
	size_t nr;
};

static void __attribute__((noreturn))
wrong_usage(const char *what, const char *value)
{
	fprintf(stderr, "llm: %s: %s\n\n%s", what, value, usage);
	exit(2);
}

static int number(const char *what, const char *text, int most)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < 1 || n > most)
		wrong_usage(what, text);
	return (int)n;
}

/* One CPU is left to serve faults and to move pages. */
static int default_threads(void)
{
	cpu_set_t cpus;
	int n = sched_getaffinity(0, sizeof(cpus), &cpus) ? 2
							  : CPU_COUNT(&cpus);

	return n > 1 ? n - 1 : 1;
}

static void add_prompt(struct prompts *prompts, const char *text)
{
	char **more = realloc(prompts->text,
			      (prompts->nr + 1) * sizeof(*prompts->text));

	must(!!more, "the prompts", "no memory");
	prompts->text = more;
	more[prompts->nr] = strdup(text);
	must(!!more[prompts->nr++], "the prompts", "no memory");
}

static void read_prompts(struct prompts *prompts, const char *path)
{
	FILE *file = fopen(path, "r");
	size_t room = 0;
	char *line = NULL;
	ssize_t len;

	must(!!file, path, strerror(errno));
	while ((len = getline(&line, &room, file)) >= 0) {
		if (len && line[len - 1] == '\n')
			line[len - 1] = '\0';
		if (*line)
			add_prompt(prompts, line);
	}
	must(!ferror(file), path, strerror(errno));
	free(line);
	fclose(file);
}

struct arguments {
	struct options options;
	struct prompts prompts;
	bool report;
	bool json;
};

static void read_option(struct arguments *args, int c)
{
	struct options *o = &args->options;

	switch (c) {
	case 'd':
		if (strcmp(optarg, "cpu") && strcmp(optarg, "gmm"))
			wrong_usage("no such device", optarg);
		o->xpu = !strcmp(optarg, "gmm");
		break;
	case 'n':
		o->tokens = number("tokens", optarg, 1 << 20);
		break;
	case 't':
		o->threads = number("threads", optarg, 512);
		break;
	case 'c':
		o->context = number("context", optarg, 1 << 22);
		break;
	case 'p':
		read_prompts(&args->prompts, optarg);
		break;
	case 'r':
		args->report = true;
		break;
	case 'j':
		args->json = true;
		break;
	case 'b':
		o->backends = optarg;
		break;
	case 'x':
		o->plugin = optarg;
		break;
	case 'v':
		o->verbose = true;
		break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	default:
		fprintf(stderr, "\n%s", usage);
		exit(2);
	}
}

static struct arguments read_arguments(int argc, char **argv)
{
	struct arguments args = {
		.options = { .xpu = true,
			     .plugin = getenv("GGML_BACKEND_PATH"),
			     .tokens = 64,
			     .context = 512,
			     .threads = default_threads() },
	};
	int c;

	while ((c = getopt_long(argc, argv, "d:n:t:c:p:rjb:x:vh", long_options,
				NULL)) != -1)
		read_option(&args, c);
	if (optind == argc)
		wrong_usage("which model?", "none is given");
	if (!args.options.plugin)
		args.options.plugin = LLM_BACKEND;
	args.options.model = argv[optind++];
	while (optind < argc)
		add_prompt(&args.prompts, argv[optind++]);
	if (!args.prompts.nr)
		wrong_usage("which prompt?", "none is given");
	return args;
}

static void add_answer(struct answer *total, const struct answer *a)
{
	total->prompt_tokens += a->prompt_tokens;
	total->prompt_s += a->prompt_s;
	total->tokens += a->tokens;
	total->answer_s += a->answer_s;
	total->decoded += a->decoded;
}

int main(int argc, char **argv)
{
	struct arguments args = read_arguments(argc, argv);
	struct run run = { .options = &args.options };
	double start = now();
	struct model *model;

	run.model = model = model_load(&args.options);
	run.load = step_end(&args.options, "loading", start);
	if (args.json && args.options.xpu)
		written_start();
	start = now();
	for (size_t i = 0; i < args.prompts.nr; i++) {
		struct answer a =
			model_answer(model, args.prompts.text[i], !args.json);

		if (args.json)
			answer_json(&args.options, args.prompts.text[i], &a);
		add_answer(&run.total, &a);
		free(a.text);
		free(args.prompts.text[i]);
	}
	run.answers = step_end(&args.options, "answering", start);
	run.memory = memory_most();
	if (args.json)
		report_json(&run);
	if (args.report)
		report(&run);
	free(args.prompts.text);
	model_free(model);
	/* What was written counts only if it has arrived. */
	must(!fflush(stdout) && !ferror(stdout), "stdout", strerror(errno));
	return 0;
}
