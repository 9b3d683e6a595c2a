/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * hostile.c - GGUF files that are cut short or wrong
 *
 * llama.cpp refuses them, or the text is what the CPU makes of the same file.
 * Where it crashes on the CPU as well the fault is not ours, and is counted.
 */
#include <gguf.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "harness.h"

#define TOKENS 3
#define SEEDS 200

enum { END_REFUSED = 10, END_TEXT, END_NO_TEXT };

/**
 * struct hostile - the file
 * @path: where it is written
 * @good: the bytes of a good one
 * @bad: with what is wrong
 * @size: of both
 * @head: bytes before the weights
 * @count: how the children ended: refused, a text, no text, crashed as the CPU
 */
static struct hostile {
	char path[64];
	uint8_t *good;
	uint8_t *bad;
	size_t size;
	size_t head;
	int count[4];
} h;

static int read_it(void *arg)
{
	const bool *xpu = arg;
	char text[TEXT_MAX];
	struct llm m;

	if (*xpu)
		gmm_load("32M");
	else
		cpu_load();
	if (!llm_try(&m, h.path, *xpu))
		return END_REFUSED;
	if (llm_text(&m, "And it came", TOKENS, text))
		return END_NO_TEXT;
	fprintf(stderr, "text: <%s>", text);
	return END_TEXT;
}

static void begin(void)
{
	struct gguf_context *gguf = gguf_init_from_file(
		kjv(), (struct gguf_init_params){ .no_alloc = true });
	FILE *file = fopen(kjv(), "r");
	struct stat st;

	ck_assert(gguf && file && !fstat(fileno(file), &st));
	memset(&h, 0, sizeof(h));
	strcpy(h.path, P_tmpdir "/ggml-hostile-XXXXXX");
	ck_assert_int_ge(mkstemp(h.path), 0);
	h.size = (size_t)st.st_size;
	h.head = gguf_get_data_offset(gguf);
	h.good = malloc(h.size);
	h.bad = malloc(h.size);
	ck_assert(h.good && h.bad && h.head < h.size);
	ck_assert_uint_eq(fread(h.good, 1, h.size, file), h.size);
	memcpy(h.bad, h.good, h.size);
	fclose(file);
	gguf_free(gguf);
}

static void end(void)
{
	unlink(h.path);
	free(h.good);
	free(h.bad);
	printf("refused %d, texts %d, no texts %d, crashes of llama.cpp %d\n",
	       h.count[0], h.count[1], h.count[2], h.count[3]);
}

/* What comes of it on the XPU has to come of it on the CPU. */
static void read_both(const char *what, size_t n, size_t len)
{
	struct outcome xpu, cpu;
	FILE *file = fopen(h.path, "w");
	const char *a, *b;

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(h.bad, 1, len, file), len);
	ck_assert_int_eq(fclose(file), 0);
	xpu = in_child(read_it, &(bool){ true }, 20);
	if (!xpu.late && exited(xpu, END_REFUSED)) {
		h.count[0]++;
		return;
	}
	cpu = in_child(read_it, &(bool){ false }, 20);
	ck_assert_msg(xpu.late == cpu.late, "%s %zu: it hangs on the %s: %s",
		      what, n, xpu.late ? "XPU" : "CPU", xpu.said);
	ck_assert_msg(xpu.status == cpu.status,
		      "%s %zu: %#x, on the CPU %#x: %s", what, n, xpu.status,
		      cpu.status, xpu.said);
	if (!exited(xpu, END_TEXT)) {
		h.count[exited(xpu, END_NO_TEXT) ? 2 : 3]++;
		return;
	}
	a = strstr(xpu.said, "text: <");
	b = strstr(cpu.said, "text: <");
	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_nonnull(b);
	ck_assert_msg(!strcmp(a, b), "%s %zu: %s, but on the CPU %s", what, n,
		      a, b);
	h.count[1]++;
}

START_TEST(cut_short)
{
	const size_t at[] = { 0,	  1,
			      4,	  8,
			      24,	  h.head / 3,
			      h.head - 1, h.head,
			      h.head + 1, h.head + (h.size - h.head) / 2,
			      h.size - 1 };

	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++)
		read_both("cut at", at[i], at[i]);
	ck_assert_int_eq(h.count[0], 11);
	read_both("whole", h.size, h.size);
	ck_assert_int_eq(h.count[1], 1);
}
END_TEST

static uint64_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Half in the first KiB or the tensor infos, where each byte counts. */
static void flip(uint64_t *seed)
{
	size_t part = draw(seed) % 4, from = 0, len = h.head;

	if (part == 0)
		len = 1024;
	if (part == 1)
		from = h.head - (len = 2048);
	for (uint64_t i = 1 + draw(seed) % 4; i; i--)
		h.bad[from + draw(seed) % len] ^=
			(uint8_t)(1 << draw(seed) % 8);
}

START_TEST(wrong_bytes)
{
	for (size_t i = 0; i < SEEDS; i++) {
		uint64_t seed = i;

		memcpy(h.bad, h.good, h.head);
		flip(&seed);
		read_both("seed", i, h.size);
	}
	ck_assert_int_gt(h.count[0], SEEDS / 20);
	ck_assert_int_gt(h.count[1], SEEDS / 20);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_checked_fixture(tc, begin, end);
	tcase_add_test(tc, cut_short);
	tcase_add_test(tc, wrong_bytes);
}

int main(void)
{
	return run_suite("ggml-hostile", 140, add);
}
