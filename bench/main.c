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

struct options options = { .rounds = 9, .memory = 256 << 20 };

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
};

#define NR_BENCHES (sizeof(benches) / sizeof(benches[0]))

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
	fprintf(out, "usage: gmm-bench [--json] [--rounds=N] [--memory=SIZE] "
		     "[NAME...]\n"
		     "       gmm-bench --list\n\n"
		     "Without names all are run. Each figure is the median of "
		     "the rounds, with the\nquartiles.\n\n"
		     "  --json         one JSON object a line\n"
		     "  --rounds=N     timed rounds, at least 7 (default 9)\n"
		     "  --memory=SIZE  of the XPU, with M or G; half of it is "
		     "worked on (default 256M)\n"
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

static void run(const char *name)
{
	for (unsigned int i = 0; i < NR_BENCHES; i++) {
		if (name && strcmp(name, benches[i].name))
			continue;
		benches[i].run();
		if (name)
			return;
	}
	if (name)
		die("%s: no such benchmark; see --list", name);
}

static void check_names(char **names)
{
	for (; *names; names++) {
		unsigned int i = 0;

		while (i < NR_BENCHES && strcmp(*names, benches[i].name))
			i++;
		if (i == NR_BENCHES)
			die("%s: no such benchmark; see --list", *names);
	}
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "memory", required_argument, NULL, 'm' },
		{ "list", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		switch (c) {
		case 'j':
			options.json = 1;
			break;
		case 'r':
			options.rounds = (unsigned int)parse("rounds", optarg,
							     7, MAX_ROUNDS);
			break;
		case 'm':
			options.memory =
				parse("memory", optarg, 8 << 20,
				      2 * BENCH_MAX_PAGES * GM_PAGE_SIZE);
			options.memory &= ~(2 * GM_PAGE_SIZE - 1);
			break;
		case 'l':
			list();
			return 0;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	check_names(argv + optind);
	warm_up();
	table_head();
	if (optind == argc)
		run(NULL);
	for (; optind < argc; optind++)
		run(argv[optind]);
	return 0;
}
