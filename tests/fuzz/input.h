/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * input.h - bytes that decide what a case does, and who makes them
 *
 * A target reads its input to the end and then winds up. Under libFuzzer the
 * bytes are libFuzzer's; else main.c makes them from seeds, or reads files.
 */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

struct input {
	const uint8_t *at;
	const uint8_t *end;
};

static inline uint64_t take(struct input *in, unsigned int bytes)
{
	uint64_t v = 0;

	for (; bytes && in->at < in->end; bytes--)
		v = v << 8 | *in->at++;
	return v;
}

/* Below @n. */
static inline uint64_t below(struct input *in, uint64_t n)
{
	return take(in, n > 256 ? n > 65536 ? 8 : 2 : 1) % n;
}

/* A number that is likely to matter: small, round, just beside, or any. */
static inline uint64_t number(struct input *in)
{
	uint64_t v = (uint64_t)1 << below(in, 64);

	switch (below(in, 6)) {
	case 0:
		return below(in, 8);
	case 1:
		return v;
	case 2:
		return v - 1;
	case 3:
		return ~(uint64_t)0 - below(in, 4);
	case 4:
		return (v << 1) + take(in, 2);
	default:
		return take(in, 8);
	}
}

/* libFuzzer's name for it. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is wrong; does not return. */
#define wrong(...)                                              \
	do {                                                    \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__);                   \
		fputc('\n', stderr);                            \
		abort();                                        \
	} while (0)

#endif /* FUZZ_INPUT_H */
