// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * gmm-bench - how fast the manager is, as ratios to the machine's own copy
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct options options = { .memory = 256 << 20, .tokens = 32 };

/* In the order in which they run: the first while no XPU is attached. */
static const struct {
	const char *name;
	void (*run)(void);
	const char *what;
} benches[] = {
	{ "copy", bench_copy, "the unit: best copy of resident huge pages" },
	{ "first_touch", bench_first_touch,
	  "CPU's first touches, no XPU attached, against plain huge pages" },
	{ "first_touch_attached", bench_first_touch_attached,
	  "the same with an XPU attached" },
	{ "resident", bench_resident,
	  "CPU streams over pages that are back from the XPU" },
	{ "fault_seq", bench_fault_seq, "XPU faults, page after page" },
	{ "fault_random", bench_fault_random,
	  "XPU faults in random order, 1 and 8 pending" },
	{ "fault_latency", bench_fault_latency, "XPU faults, one by one" },
	{ "prefetch_32m", bench_prefetch_32m, "gmadvise(WILLNEED), 32 MiB" },
	{ "prefetch_2m", bench_prefetch_2m, "gmadvise(WILLNEED), 2 MiB" },
	{ "memcpy_2m", bench_memcpy_2m, "gmemcpy() of 2 MiB to the XPU" },
	{ "memcpy_32m", bench_memcpy_32m, "gmemcpy() of 32 MiB to the XPU" },
	{ "memcpy_plain", bench_memcpy_plain,
	  "gmemcpy() of 2 MiB of plain memory to the XPU" },
	{ "memcpy_home", bench_memcpy_home,
	  "gmemcpy() of 2 MiB on the CPU, against memcpy()" },
	{ "matmul", bench_matmul,
	  "FP16 matrix product from cold, and with half the memory" },
	{ "llm", bench_llm,
	  "llama.cpp with room for all, a half, a quarter of the weights" },
};

#define NR_BENCHES (sizeof(benches) / sizeof(benches[0]))

static const char *skipped;
static unsigned int rounds; /* 0: each has its own */

void die(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fputs("gmm-bench: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(EXIT_FAILURE);
}

static void usage(FILE *out)
{
	fprintf(out,
		"usage: gmm-bench [options] [NAME...]\n"
		"       gmm-bench --list\n\n"
		"Without names all are run. Each figure is the median of "
		"the rounds, with the\nquartiles.\n\n"
		"  --json         one JSON object a line\n"
		"  --rounds=N     timed rounds, at least 7 (default 9); of "
		"llm at least 1 (default 5)\n"
		"  --memory=SIZE  of the XPU, with M or G; half of it is "
		"worked on (default 256M)\n"
		"  --model=FILE   llm runs this GGUF (default: two small "
		"trained ones, and one of\n"
		"                 600 MB of random weights)\n"
		"  --tokens=N     of each of llm's answers (default 32)\n"
		"  --skip=NAME    all but this one\n"
		"  --list         names, and what they measure\n");
}

static void list(void)
{
	for (unsigned int i = 0; i < NR_BENCHES; i++)
		printf("%-22s %s\n", benches[i].name, benches[i].what);
}

static uint64_t parse(const char *what, const char *text, uint64_t min,
		      uint64_t max)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end == 'M' || *end == 'G') {
		unsigned int shift = *end++ == 'M' ? 20 : 30;

		value = value > UINT64_MAX >> shift ? UINT64_MAX
						    : value << shift;
	}
	if (errno || end == text || *end || *text == '-' || value < min ||
	    value > max)
		die("--%s=%s: not a number from %llu to %llu", what, text,
		    (unsigned long long)min, (unsigned long long)max);
	return value;
}

static unsigned int find(const char *name)
{
	for (unsigned int i = 0; i < NR_BENCHES; i++) {
		if (!strcmp(name, benches[i].name))
			return i;
	}
	die("%s: no such benchmark; see --list", name);
}

static int left_out(unsigned int i)
{
	if (skipped && !strcmp(skipped, benches[i].name))
		return 1;
	if (benches[i].run != bench_llm || llm_there())
		return 0;
	fprintf(stderr,
		"gmm-bench: %s is left out; \"gmm-bench %s\" tells why\n",
		benches[i].name, benches[i].name);
	return 1;
}

/* A round of it takes as long as many of another. */
static int is_long(unsigned int i)
{
	return benches[i].run == bench_llm;
}

static void run(unsigned int i)
{
	unsigned int usual = is_long(i) ? 5 : 9;

	options.rounds = rounds ? rounds : usual;
	benches[i].run();
}

static void check_rounds(unsigned int i)
{
	unsigned int least = is_long(i) ? 1 : 7;

	if (rounds && rounds < least)
		die("--rounds=%u: %s needs at least %u", rounds,
		    benches[i].name, least);
}

/* What is wrong is said before anything is run. */
static void check(char **names)
{
	if (skipped)
		find(skipped);
	for (char **name = names; *name; name++)
		check_rounds(find(*name));
	for (unsigned int i = 0; !*names && i < NR_BENCHES; i++)
		check_rounds(i);
}

static void read_option(int c)
{
	switch (c) {
	case 'j':
		options.json = 1;
		break;
	case 'r':
		rounds = (unsigned int)parse("rounds", optarg, 1, MAX_ROUNDS);
		break;
	case 'm':
		options.memory = parse("memory", optarg, 8 << 20,
				       2 * BENCH_MAX_PAGES * GM_PAGE_SIZE);
		options.memory &= ~(2 * GM_PAGE_SIZE - 1);
		break;
	case 'M':
		options.model = optarg;
		break;
	case 't':
		options.tokens =
			(unsigned int)parse("tokens", optarg, 2, 1 << 16);
		break;
	case 's':
		skipped = optarg;
		break;
	case 'l':
		list();
		exit(0);
	case 'h':
		usage(stdout);
		exit(0);
	default:
		usage(stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "memory", required_argument, NULL, 'm' },
		{ "model", required_argument, NULL, 'M' },
		{ "tokens", required_argument, NULL, 't' },
		{ "skip", required_argument, NULL, 's' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1)
		read_option(c);
	check(argv + optind);
	warm_up();
	for (unsigned int i = 0; optind == argc && i < NR_BENCHES; i++) {
		if (!left_out(i))
			run(i);
	}
	for (; optind < argc; optind++)
		run(find(argv[optind]));
	return 0;
}
