/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * several.c - contexts and models beside each other on one XPU, and an XPU with
 * hardly any memory
 */
#include "harness.h"

#define TOKENS 8
#define ROUNDS 4

/**
 * struct teller - a thread that has one text written again and again
 * @m: its own context
 * @prompt: its own
 * @want: the text
 * @stop: if not NULL, it ends when this is set, and errors are no surprise
 * @whole: texts that were right
 * @wrong: that were not
 * @failures: errors
 */
struct teller {
	struct llm m;
	const char *prompt;
	char want[TEXT_MAX];
	_Atomic int *stop;
	int whole;
	int wrong;
	_Atomic int failures;
};

/* No assertions in threads: Check would take them for the test's own. */
static void *tell(void *arg)
{
	struct teller *t = arg;
	char text[TEXT_MAX];

	for (int i = 0; t->stop ? !*t->stop : i < ROUNDS; i++) {
		int ret = llm_text(&t->m, t->prompt, TOKENS, text);

		t->failures += !!ret;
		if (ret ? strncmp(text, t->want, strlen(text))
			: strcmp(text, t->want))
			t->wrong++;
		else if (!ret)
			t->whole++;
	}
	return NULL;
}

static void tellers_run(struct teller *a, struct teller *b,
			int (*meanwhile)(void))
{
	struct teller *both[] = { a, b };
	pthread_t threads[2];
	_Atomic int stop = 0;

	for (int i = 0; i < 2; i++) {
		both[i]->stop = meanwhile ? &stop : NULL;
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, tell, both[i]), 0);
	}
	if (meanwhile)
		printf("%d kills\n", meanwhile());
	stop = 1;
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert_int_eq(both[i]->wrong, 0);
		printf("%d texts, %d errors\n", both[i]->whole,
		       both[i]->failures);
		if (meanwhile) {
			ck_assert_int_gt(both[i]->failures, 0);
			ck_assert_int_gt(both[i]->whole, 0);
			continue;
		}
		ck_assert_int_eq(both[i]->failures, 0);
		ck_assert_int_eq(both[i]->whole, ROUNDS);
	}
}

static void two_contexts(const char *memory, int (*meanwhile)(void))
{
	struct teller a = { .prompt = PROMPT }, b = { .prompt = "The word" };

	gmm_load(memory);
	cpu_text(kjv(), a.prompt, TOKENS, a.want);
	cpu_text(kjv(), b.prompt, TOKENS, b.want);
	ck_assert_str_ne(a.want, b.want);
	a.m = b.m = llm_load(kjv(), true);
	b.m.ctx = llm_context(&b.m);
	ck_assert_ptr_nonnull(b.m.ctx);
	tellers_run(&a, &b, meanwhile);
	llama_free(b.m.ctx);
	llm_free(&a.m);
	ck_assert_uint_eq(xpu_in_use(), 0);
}

START_TEST(two_contexts_of_one_model)
{
	two_contexts("64M", NULL);
}
END_TEST

START_TEST(two_contexts_on_a_small_xpu)
{
	two_contexts("8M", NULL);
}
END_TEST

START_TEST(two_models_in_two_threads)
{
	struct teller a = { .prompt = PROMPT }, b = { .prompt = "hacker: n." };

	gmm_load("16M");
	cpu_text(kjv(), a.prompt, TOKENS, a.want);
	cpu_text(jargon(), b.prompt, TOKENS, b.want);
	a.m = llm_load(kjv(), true);
	b.m = llm_load(jargon(), true);
	tellers_run(&a, &b, NULL);
	llm_free(&b.m);
	llm_free(&a.m);
	ck_assert_uint_eq(xpu_in_use(), 0);
}
END_TEST

static int kill_for_a_while(void)
{
	struct killer killer;

	killer_start(&killer);
	usleep(4000000);
	return killer_stop(&killer);
}

/* One context's error must not make the other's text another. */
START_TEST(two_contexts_while_the_gpu_dies)
{
	two_contexts("32M", kill_for_a_while);
}
END_TEST

static void on_next_to_nothing(const char *memory, const char *prompt, int n)
{
	char want[TEXT_MAX], text[TEXT_MAX];
	struct gm_stats stats;
	struct llm m;

	gmm_load(memory);
	cpu_text(kjv(), prompt, n, want);
	m = llm_load(kjv(), true);
	ck_assert_int_eq(llm_text(&m, prompt, n, text), 0);
	ck_assert_str_eq(text, want);
	ck_assert_int_eq(gm_process_stats(&stats), 0);
	ck_assert_uint_gt(stats.evicted_clean, 0);
	ck_assert_uint_gt(stats.evicted_dirty, 0);
	llm_free(&m);
}

START_TEST(xpu_with_two_pages)
{
	on_next_to_nothing("4M", "And it", 4);
}
END_TEST

/* Every operand of a product takes the place of the other. */
START_TEST(xpu_with_one_page)
{
	on_next_to_nothing("2M", "And", 1);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, two_contexts_of_one_model);
	tcase_add_test(tc, two_contexts_on_a_small_xpu);
	tcase_add_test(tc, two_models_in_two_threads);
	tcase_add_test(tc, two_contexts_while_the_gpu_dies);
	tcase_add_test(tc, xpu_with_two_pages);
	tcase_add_test(tc, xpu_with_one_page);
}

int main(void)
{
	return run_suite("ggml-several", 90, add);
}
