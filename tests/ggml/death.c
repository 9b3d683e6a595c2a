/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * death.c - an XPU that fails or dies: an error or the right text, never
 * another text, and no waiting for ever
 */
#include <signal.h>
#include <sys/wait.h>

#include "harness.h"

#define TOKENS 10

/* How a child ended; what is not here is a bug. */
enum end {
	END_RIGHT = 10, /* the text, at once */
	END_RIGHT_LATER, /* an error, then the text from a clear state */
	END_ERRORS, /* nothing but errors, each in time */
	END_NO_XPU, /* it could not be started */
	END_NO_MODEL, /* llama.cpp could not load it */
	END_ABORT, /* a call that cannot fail ended the program, with a reason */
	END_WRONG, /* another text */
	NR_ENDS
};

static char right[TEXT_MAX];

/* --- faults of the hardware -------------------------------------------------- */

static int try_text(struct llm *m)
{
	char text[TEXT_MAX];
	int failures = 0;

	for (int i = 0; i < 4; i++) {
		double start = seconds();

		if (!llm_text(m, PROMPT, TOKENS, text)) {
			if (strcmp(text, right))
				return END_WRONG;
			return failures ? END_RIGHT_LATER : END_RIGHT;
		}
		/* What came before the error has to be right as well. */
		if (strncmp(text, right, strlen(text)))
			return END_WRONG;
		failures++;
		if (seconds() - start > 15)
			return 1;
	}
	return END_ERRORS;
}

/* The CPU must be as good as ever, whatever became of the XPU. */
static int cpu_is_right(int end)
{
	char text[TEXT_MAX];

	cpu_text(kjv(), PROMPT, TOKENS, text);
	return strcmp(text, right) ? 2 : end;
}

static int with_faults(void *spec)
{
	ggml_backend_reg_t reg;
	struct llm m;
	int end;

	env("SGPU_FAIL", spec);
	env("SGPU_MEMORY", "6M");
	cpu_load();
	reg = ggml_backend_load(file_of("GGML_TEST_PLUGIN"));
	if (!reg)
		return cpu_is_right(END_NO_XPU);
	if (!llm_try(&m, kjv(), true))
		return cpu_is_right(END_NO_MODEL);
	end = try_text(&m);
	if (end == END_ERRORS)
		cpu_is_right(end);
	llm_free(&m);
	return end;
}

static int end_of(struct outcome *o, const char *spec)
{
	int end;

	ck_assert_msg(!o->late, "%s: it hangs: %s", spec, o->said);
	/* Aborts are the backend's own, and say why. */
	if (killed(*o, SIGABRT) && strstr(o->said, "ggml-gmm: "))
		return END_ABORT;
	ck_assert_msg(WIFEXITED(o->status), "%s: status %#x: %s", spec,
		      o->status, o->said);
	end = WEXITSTATUS(o->status);
	ck_assert_msg(end >= END_RIGHT && end < NR_ENDS, "%s: %d: %s", spec,
		      end, o->said);
	ck_assert_msg(end != END_WRONG, "%s: another text: %s", spec, o->said);
	/* An error without a reason is of no use. */
	ck_assert_msg(end == END_RIGHT || strstr(o->said, "ggml-gmm: "),
		      "%s: no reason: %s", spec, o->said);
	return end;
}

static void faults(const char *what, const char *tail, const int *at, int n,
		   int *ends)
{
	for (int i = 0; i < n; i++) {
		char spec[32];
		struct outcome o;
		int end;

		snprintf(spec, sizeof(spec), "%s:%d%s", what, at[i], tail);
		o = in_child(with_faults, spec, 30);
		end = end_of(&o, spec);
		ends[end]++;
		printf("%s: %d\n", spec, end);
	}
}

static void right_text(void)
{
	cpu_load();
	cpu_text(kjv(), PROMPT, TOKENS, right);
}

/* One command fails, and the next is good again: the text must come in the end. */
START_TEST(one_fault)
{
	static const char *const what[] = { "map",  "unmap", "protect",
					    "copy", "zero",  "die" };
	static const int at[] = { 1, 2, 3, 7, 20, 60 };
	int ends[NR_ENDS] = { 0 };

	right_text();
	for (size_t i = 0; i < sizeof(what) / sizeof(*what); i++)
		faults(what[i], "", at, 6, ends);
	ck_assert_int_gt(ends[END_RIGHT] + ends[END_RIGHT_LATER], 18);
	ck_assert_int_gt(ends[END_RIGHT_LATER], 0);
	ck_assert_int_eq(ends[END_ERRORS], 0);
}
END_TEST

/* From one on, all fail. */
START_TEST(all_fail)
{
	static const char *const what[] = { "map", "unmap", "copy", "zero",
					    "die" };
	static const int at[] = { 1, 10, 40 };
	int ends[NR_ENDS] = { 0 };

	right_text();
	for (size_t i = 0; i < sizeof(what) / sizeof(*what); i++)
		faults(what[i], "+", at, 3, ends);
	ck_assert_int_gt(ends[END_ERRORS], 0);
}
END_TEST

START_TEST(memory_is_lost)
{
	static const int at[] = { 5, 20, 40, 80, 150 };
	int ends[NR_ENDS] = { 0 };

	right_text();
	faults("lost", "", at, 5, ends);
	ck_assert_int_gt(ends[END_ERRORS] + ends[END_ABORT], 2);
}
END_TEST

START_TEST(commands_are_not_answered)
{
	static const int at[] = { 60 };
	int ends[NR_ENDS] = { 0 };

	right_text();
	faults("hang", "", at, 1, ends);
	ck_assert_int_eq(ends[END_RIGHT], 0);
}
END_TEST

/* --- kill -9 ------------------------------------------------------------------- */

/* It comes amid tokens, at no time in particular. */
START_TEST(killed_again_and_again)
{
	int whole = 0, failures = 0;
	char text[TEXT_MAX];
	struct killer killer;
	struct llm m;
	double start;

	right_text();
	gmm_load("8M");
	m = llm_load(kjv(), true);
	ck_assert_int_eq(llm_text(&m, PROMPT, TOKENS, text), 0);
	ck_assert_str_eq(text, right);
	killer_start(&killer);
	for (start = seconds(); failures < 8 || !whole;) {
		if (llm_text(&m, PROMPT, TOKENS, text))
			failures++;
		else
			whole++;
		ck_assert_msg(!strncmp(text, right, strlen(text)), "%s, not %s",
			      text, right);
		ck_assert_msg(seconds() - start < 60,
			      "only %d errors and %d texts", failures, whole);
	}
	printf("%d kills, %d texts, %d errors\n", killer_stop(&killer), whole,
	       failures);
	/* What it did last may be seen by the first. */
	(void)llm_text(&m, PROMPT, TOKENS, text);
	ck_assert_int_eq(llm_text(&m, PROMPT, TOKENS, text), 0);
	ck_assert_str_eq(text, right);
	llm_free(&m);
	ck_assert_uint_eq(xpu_in_use(), 0);
}
END_TEST

/*
 * A death between two tokens is told, and costs nothing more: the states are
 * still in the GPU's memory, and the same token can be evaluated again.
 */
START_TEST(killed_between_tokens)
{
	char text[TEXT_MAX] = "";
	llama_token token;
	struct llm m;

	right_text();
	gmm_load("16M");
	m = llm_load(kjv(), true);
	ck_assert_int_eq(llm_prompt(&m, PROMPT, &token), 0);
	for (int i = 0; i < TOKENS; i++) {
		text_add(&m, text, token);
		if (i + 1 == TOKENS)
			break;
		if (i % 3 == 1) {
			pid_t pid = gpu_pid();
			double start = seconds();

			ck_assert_int_eq(kill(pid, SIGKILL), 0);
			/* The driver has seen it, and has another. */
			while (gpu_pid() == pid && seconds() - start < 5)
				usleep(1000);
			ck_assert_int_ne(gpu_pid(), pid);
		}
		if (llm_next(&m, token, &token)) {
			ck_assert_int_eq(i % 3, 1);
			ck_assert_int_eq(llm_next(&m, token, &token), 0);
		}
	}
	ck_assert_str_eq(text, right);
	llm_free(&m);
}
END_TEST

/* --- states that are lost ------------------------------------------------------- */

static void count_poison(void *base, size_t len, enum ggml_gmm_use use,
			 void *arg)
{
	int *pages = arg;

	for (size_t at = 0; at < len; at += PAGE) {
		struct gm_where where;

		if (!gm_where((char *)base + at, &where) &&
		    where.state == GM_STATE_POISON)
			pages[use]++;
	}
}

/* All memory of the XPU is lost after some tokens. */
static int lose_states(void *arg)
{
	static uint8_t state[4 << 20];
	llama_token token, lost;
	int poison[3] = { 0 };
	struct llm m;

	env("SGPU_FAIL", arg);
	gmm_load("64M");
	m = llm_load(kjv(), true);
	if (llm_prompt(&m, PROMPT, &token))
		return 20;
	for (int i = 0; i < 200; i++) {
		if (llm_next(&m, token, &lost))
			break;
		token = lost;
	}
	gmm_buffers()(count_poison, poison);
	fprintf(stderr, "lost pages of states %d, weights %d, activations %d\n",
		poison[GGML_GMM_STATES], poison[GGML_GMM_WEIGHTS],
		poison[GGML_GMM_ACTIVATIONS]);
	/* The weights have their copies. */
	if (poison[GGML_GMM_WEIGHTS])
		return 3;
	if (!poison[GGML_GMM_STATES])
		return 21;
	for (int i = 0; i < 3; i++) {
		if (!llm_next(&m, token, &lost))
			return 4;
	}
	if (llama_state_get_size(m.ctx) > sizeof(state))
		return 5;
	llama_state_get_data(m.ctx, state, sizeof(state));
	return 6;
}

START_TEST(lost_states_cannot_be_read)
{
	int seen = 0;

	right_text();
	for (int at = 30; at <= 150; at += 30) {
		char spec[32];
		struct outcome o;

		snprintf(spec, sizeof(spec), "lost:%d", at);
		o = in_child(lose_states, spec, 30);
		/* Too early to be of interest, or too late. */
		if (exited(o, 20) || exited(o, 21))
			continue;
		ck_assert_msg(killed(o, SIGABRT), "%s: %#x: %s", spec, o.status,
			      o.said);
		ck_assert_msg(strstr(o.said, "ggml-gmm: read: "), "%s", o.said);
		seen++;
	}
	ck_assert_int_gt(seen, 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, one_fault);
	tcase_add_test(tc, all_fail);
	tcase_add_test(tc, memory_is_lost);
	tcase_add_test(tc, commands_are_not_answered);
	tcase_add_test(tc, killed_again_and_again);
	tcase_add_test(tc, killed_between_tokens);
	tcase_add_test(tc, lost_states_cannot_be_read);
}

int main(void)
{
	return run_suite("ggml-death", 150, add);
}
