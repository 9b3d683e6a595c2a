/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef TORTURE_OPTIONS_H
#define TORTURE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
	const char *program;
	uint64_t seed;
	uint64_t ops; /* in all runs */
	uint64_t run_ops; /* in one run */
	uint64_t check_every;
	uint64_t seconds; /* stop after; 0: never */
	bool replay;
	bool fine;
	bool trace;
	bool verbose;
	int coverage; /* 1: print, 2: fail if something is missing */
	int fail_call;
	uint64_t fail_nth;
	int fail_error;
	char extra[96]; /* for the command line that repeats this */
};

extern struct options options;
void options_parse(int argc, char **argv);

/* The table of states and events; the number of unexplained holes. */
unsigned int coverage_report(bool strict);

#endif /* TORTURE_OPTIONS_H */
