// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * options.c - the command line of gmm-torture
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/sim/sim.h"
#include "tests/sim/options.h"

struct options options = {
	.seed = 1,
	.ops = 1000000,
	.run_ops = 20000,
	.check_every = 1000,
	.fail_call = -1,
};

static const char usage[] =
	"usage: gmm-torture [options]\n"
	"  --seed S         seed of the first run; the others follow (1)\n"
	"  --ops N          operations in all (1000000)\n"
	"  --runs N         runs, instead of --ops\n"
	"  --run-ops N      operations in a run (20000)\n"
	"  --seconds N      begin no further run after that time\n"
	"  --replay S       the one run of this seed, with --ops operations\n"
	"  --check-every N  operations between checks of everything (1000)\n"
	"  --coverage[=all] print states x events; all: fail on a hole\n"
	"  --fail-nth C:N   make the N-th call of C fail in each run, e.g.\n"
	"                   OP_CLEAR:3 or CPU_MAP:17:-5 with an errno\n"
	"  --fine           switch tasks inside the core's code too\n"
	"  --trace          print operations on ranges\n"
	"  --verbose        counts by operation and errno\n";

static void bad(const char *what)
{
	fprintf(stderr, "gmm-torture: %s\n%s", what, usage);
	exit(2);
}

static uint64_t number(const char *s)
{
	char *end;
	double d = strtod(s, &end); /* so that 1e8 is one */

	if (end == s || *end || d < 0 || d > 1e18)
		bad("a number is wanted");
	/* Seeds are exact; they are never written with an exponent. */
	return strchr(s, 'e') || strchr(s, '.') ? (uint64_t)d
						: strtoull(s, NULL, 0);
}

static void parse_fail(const char *s)
{
	const char *colon = strchr(s, ':');
	char *end;
	int i;

	if (!colon)
		bad("--fail-nth wants CALL:N");
	for (i = 0; i < SIM_NR_CALLS; i++)
		if (strlen(sim_call_names[i]) == (size_t)(colon - s) &&
		    !strncmp(sim_call_names[i], s, (size_t)(colon - s)))
			break;
	if (i == SIM_NR_CALLS || !sim_call_may_fail[i])
		bad("--fail-nth: no such call, or it never fails");
	options.fail_call = i;
	options.fail_nth = strtoull(colon + 1, &end, 0);
	if (*end == ':')
		options.fail_error = (int)strtol(end + 1, &end, 0);
	if (*end || !options.fail_nth)
		bad("--fail-nth wants CALL:N");
}

void options_parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "seed", 1, NULL, 's' },	 { "ops", 1, NULL, 'o' },
		{ "runs", 1, NULL, 'r' },	 { "run-ops", 1, NULL, 'p' },
		{ "seconds", 1, NULL, 't' },	 { "replay", 1, NULL, 'R' },
		{ "check-every", 1, NULL, 'c' }, { "coverage", 2, NULL, 'C' },
		{ "fail-nth", 1, NULL, 'f' },	 { "fine", 0, NULL, 'i' },
		{ "trace", 0, NULL, 'T' },	 { "verbose", 0, NULL, 'v' },
		{ "help", 0, NULL, 'h' },	 { NULL, 0, NULL, 0 },
	};
	uint64_t runs = 0, ops = 0;
	int c;

	options.program = argv[0];
	while ((c = getopt_long(argc, argv, "hv", longs, NULL)) >= 0) {
		switch (c) {
		case 's':
			options.seed = number(optarg);
			break;
		case 'o':
			ops = number(optarg);
			break;
		case 'r':
			runs = number(optarg);
			break;
		case 'p':
			options.run_ops = number(optarg);
			break;
		case 't':
			options.seconds = number(optarg);
			break;
		case 'R':
			options.replay = true;
			options.seed = number(optarg);
			break;
		case 'c':
			options.check_every = number(optarg);
			break;
		case 'C':
			options.coverage =
				optarg && !strcmp(optarg, "all") ? 2 : 1;
			break;
		case 'f':
			parse_fail(optarg);
			break;
		case 'i':
			options.fine = true;
			break;
		case 'T':
			options.trace = true;
			break;
		case 'v':
			options.verbose = true;
			break;
		case 'h':
			printf("%s", usage);
			exit(0);
		default:
			bad("bad option");
		}
	}
	if (optind < argc || !options.run_ops || !options.check_every)
		bad("bad arguments");
	if (ops)
		options.ops = ops;
	if (runs)
		options.ops = runs * options.run_ops;
	if (options.replay && ops)
		options.run_ops = ops;
	if (options.fail_call >= 0)
		snprintf(options.extra, sizeof(options.extra),
			 " --fail-nth %s:%lu:%d%s",
			 sim_call_names[options.fail_call],
			 (unsigned long)options.fail_nth, options.fail_error,
			 options.fine ? " --fine" : "");
	else if (options.fine)
		strcpy(options.extra, " --fine");
}
