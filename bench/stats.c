// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * stats.c - from many measurements to one figure
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"

double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

void series_start(struct series *s, const char *metric, const char *unit)
{
	s->metric = metric;
	s->unit = unit;
	s->n = 0;
}

void series_add(struct series *s, double value)
{
	if (s->n == MAX_ROUNDS)
		die("%s: more than %d rounds", s->metric, MAX_ROUNDS);
	s->values[s->n++] = value;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

double percentile(double *values, unsigned int n, double p)
{
	double at = p * (n - 1);
	unsigned int i = (unsigned int)at;

	qsort(values, n, sizeof(*values), compare);
	if (i + 1 >= n)
		return values[n - 1];
	return values[i] + (at - i) * (values[i + 1] - values[i]);
}

/* Above the first line of the table. */
static void table_head(void)
{
	static int done;

	if (!options.json && !done++)
		printf("%-24s %10s %10s %10s  %s\n", "metric", "median",
		       "quartile", "quartile", "unit");
}

void series_print(struct series *s)
{
	double low = percentile(s->values, s->n, 0.25);
	double value = percentile(s->values, s->n, 0.5);
	double high = percentile(s->values, s->n, 0.75);

	table_head();
	printf(options.json
		       ? "{\"metric\": \"%s\", \"value\": %.6g, \"low\": %.6g, "
			 "\"high\": %.6g, \"unit\": \"%s\"}\n"
		       : "%-24s %10.4g %10.4g %10.4g  %s\n",
	       s->metric, value, low, high, s->unit);
	fflush(stdout);
}
