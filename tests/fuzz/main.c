/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * main.c - run a target without libFuzzer
 *
 * usage: PROGRAM [-s SEED] [-n CASES] [-t SECONDS] [FILE]...
 *
 * First the files, then cases from one seed after another until either bound
 * is met. What fails is in the last line that was written: -s SEED -n 1 does
 * it again, and -w writes the input of a seed to standard output.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "input.h"

#define SIZE_LIMIT 1024
/* Whatever a case does, it takes milliseconds. */
#define CASE_LIMIT_S 60

static uint64_t current;
static const char *current_file;
static struct sigaction before[NSIG];

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static size_t make(uint64_t seed, uint8_t *data)
{
	size_t size = 16 + next_random(&seed) % (SIZE_LIMIT - 16);

	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)(next_random(&seed) >> 17);
	return size;
}

/* Only what may be called in a handler. */
static void die(int sig)
{
	char text[64] = "failed: -s ", digits[24];
	size_t n = strlen(text), k = 0;
	uint64_t v = current;

	if (current_file) {
		n = 8;
		if (write(2, text, n) < 0 ||
		    write(2, current_file, strlen(current_file)) < 0)
			_exit(3);
		n = 0;
	}
	do {
		digits[k++] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	while (k && !current_file)
		text[n++] = digits[--k];
	text[n++] = '\n';
	if (write(2, text, n) < 0)
		_exit(3);
	/* Then to whom it was before: a sanitizer says where. */
	sigaction(sig, &before[sig], NULL);
	if (sig == SIGALRM)
		abort();
	if (sig == SIGABRT)
		raise(sig);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int run_file(const char *path)
{
	static uint8_t data[1 << 16];
	FILE *f = fopen(path, "rb");
	size_t n;

	if (!f) {
		perror(path);
		return 1;
	}
	n = fread(data, 1, sizeof(data), f);
	fclose(f);
	current_file = path;
	alarm(CASE_LIMIT_S);
	LLVMFuzzerTestOneInput(data, n);
	current_file = NULL;
	return 0;
}

int main(int argc, char **argv)
{
	const int fatal[] = { SIGABRT, SIGBUS, SIGSEGV, SIGFPE, SIGALRM };
	uint64_t seed = 1, cases = UINT64_MAX, done = 0;
	double seconds = 5, start = now();
	static uint8_t data[SIZE_LIMIT];
	bool show = false;
	int opt;

	while ((opt = getopt(argc, argv, "s:n:t:w")) != -1) {
		if (opt == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (opt == 'n')
			cases = strtoull(optarg, NULL, 0);
		else if (opt == 't')
			seconds = strtod(optarg, NULL);
		else if (opt == 'w')
			show = true;
		else
			return 2;
	}
	if (show)
		return fwrite(data, 1, make(seed, data), stdout) ? 0 : 1;
	for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
		sigaction(fatal[i], &(struct sigaction){ .sa_handler = die },
			  &before[fatal[i]]);
	for (; optind < argc; optind++) {
		if (run_file(argv[optind]))
			return 1;
	}
	for (; done < cases && now() - start < seconds; done++) {
		current = seed + done;
		alarm(CASE_LIMIT_S);
		LLVMFuzzerTestOneInput(data, make(current, data));
	}
	printf("%llu cases in %.1f s\n", (unsigned long long)done,
	       now() - start);
	return 0;
}
