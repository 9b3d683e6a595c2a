// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * llm_run.c - one run of the program llm, and what it tells
 *
 * It is a process of its own: so each run begins anew, and this program needs
 * no llama.cpp.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "llm.h"

/* Long enough for a speed, in any language's tokens. */
#define PROMPT                                                                 \
	"The river was high that spring, and the people of the village below " \
	"the hill counted the days until the bridge could be crossed again."
/* Even if each of its bytes is a token. */
#define PROMPT_ROOM 192

/* --- processes ----------------------------------------------------------- */

static volatile pid_t child;
static char folder[PATH_MAX], generated[PATH_MAX + 32], part[PATH_MAX + 64];

/* From a signal's handler as well. */
static void remove_folder(void)
{
	if (!*folder)
		return;
	unlink(part);
	unlink(generated);
	rmdir(folder);
}

static void on_signal(int sig)
{
	if (child > 0)
		kill(child, sig);
	remove_folder();
	signal(sig, SIG_DFL);
	raise(sig);
}

/* However this program ends, no other goes on and no file stays. */
static void clean_up_later(void)
{
	static int done;
	struct sigaction action = { .sa_handler = on_signal };
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

	if (done++)
		return;
	for (unsigned int i = 0; i < 3; i++)
		sigaction(signals[i], &action, NULL);
	atexit(remove_folder);
}

static char *read_all(int fd, const char *who)
{
	size_t len = 0, room = 1 << 16;
	char *text = malloc(room);
	ssize_t n;

	while (text && (n = read(fd, text + len, room - len - 1))) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			die("%s: %s", who, strerror(errno));
		len += (size_t)n;
		if (room - len < 2)
			text = realloc(text, room *= 2);
	}
	if (!text)
		die("%s: no memory for its output", who);
	text[len] = '\0';
	return text;
}

/* What the program wrote on stdout; anything but success ends this one. */
static char *output_of(const char *const *argv)
{
	posix_spawn_file_actions_t actions;
	int fds[2], err, status;
	char *text;
	pid_t pid;

	clean_up_later();
	if (pipe(fds))
		die("pipe: %s", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, fds[0]);
	posix_spawn_file_actions_addclose(&actions, fds[1]);
	err = posix_spawnp(&pid, argv[0], &actions, NULL, (char **)argv,
			   environ);
	if (err)
		die("%s: %s", argv[0], strerror(err));
	child = pid;
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	text = read_all(fds[0], argv[0]);
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			die("%s: %s", argv[0], strerror(errno));
	}
	child = 0;
	if (WIFSIGNALED(status))
		die("%s: ended by signal %d", argv[0], WTERMSIG(status));
	if (WEXITSTATUS(status))
		die("%s: failed with status %d", argv[0], WEXITSTATUS(status));
	return text;
}

/* Beside this program, or where both were built. */
static const char *program(void)
{
	static const char *const places[] = { "llm", "../examples/llm/llm" };
	static char path[PATH_MAX];

	for (unsigned int i = 0; i < 2; i++) {
		struct stat st;

		own_folder(path, sizeof(path), places[i]);
		/* It may as well be the folder of the example. */
		if (!stat(path, &st) && S_ISREG(st.st_mode) &&
		    !access(path, X_OK))
			return path;
	}
	return NULL;
}

int llm_there(void)
{
	return program() != NULL;
}

/* --- what it tells -------------------------------------------------------- */

/*
 * The number that is reached by these names, one inside the other. Strings in
 * JSON cannot look like a name: their quotes have backslashes.
 */
static double number_at(const char *json, const char *const *names)
{
	const char *at = json;
	double value;

	for (; at && *names; names++) {
		char key[64];

		snprintf(key, sizeof(key), "\"%s\": ", *names);
		at = strstr(at, key);
		if (!at)
			die("llm tells no %s in %s", *names, json);
		at += strlen(key);
	}
	if (sscanf(at, "%lf", &value) != 1)
		die("llm tells no number: %s", at);
	return value;
}

#define NUMBER(json, ...) \
	number_at(json, (const char *const[]){ __VA_ARGS__, NULL })

static char *text_of(const char *json)
{
	static const char key[] = "\"text\": \"";
	const char *at = strstr(json, key), *end;
	char *text;

	if (!at)
		die("llm tells no text in %s", json);
	at += strlen(key);
	for (end = at; *end && *end != '"'; end++)
		end += *end == '\\';
	text = strndup(at, (size_t)(end - at));
	if (!text)
		die("no memory for a text");
	return text;
}

static double pages_on_xpu(const char *json, const char *use)
{
	return NUMBER(json, "pages", use, "xpu") +
	       NUMBER(json, "pages", use, "both");
}

static void read_gmm(struct llm_outcome *out, const char *answer,
		     const char *report)
{
	out->to_xpu = NUMBER(answer, "gmm", "bytes_to_xpu");
	out->to_host = NUMBER(answer, "gmm", "bytes_to_host");
	out->evictions = NUMBER(report, "answering", "evicted_clean") +
			 NUMBER(report, "answering", "evicted_dirty");
	out->needed = (double)GM_PAGE_SIZE * (pages_on_xpu(report, "weights") +
					      pages_on_xpu(report, "states"));
	out->weight_pages = pages_on_xpu(report, "weights") +
			    NUMBER(report, "pages", "weights", "cpu");
	out->written_back = NUMBER(report, "written_back", "weights");
	if (NUMBER(report, "written_back", "lost") > 0)
		die("llm lost sight of what was written back");
	/* They would be if they had to leave now. */
	out->written_back += NUMBER(report, "pages", "weights", "xpu");
}

static struct llm_outcome read_outcome(char *output, int xpu)
{
	struct llm_outcome out = { 0 };
	char *lines[3], *first;

	for (int i = 0; i < 3; i++) {
		lines[i] = strsep(&output, "\n");
		if (!lines[i])
			die("llm tells only %d lines", i);
	}
	first = text_of(lines[0]);
	out.text = text_of(lines[1]);
	if (strcmp(first, out.text))
		die("llm answers \"%s\" and then \"%s\"", first, out.text);
	free(first);
	out.prompt_tokens = NUMBER(lines[1], "prompt_tokens");
	out.first_s = NUMBER(lines[0], "prompt_s");
	out.prompt_s = NUMBER(lines[1], "prompt_s");
	out.decoded = NUMBER(lines[1], "decoded");
	out.answer_s = NUMBER(lines[1], "answer_s");
	out.load_s = NUMBER(lines[2], "load_s");
	out.resident = NUMBER(lines[2], "peak_resident");
	out.anon = NUMBER(lines[2], "peak_anon");
	out.weights = NUMBER(lines[2], "weights");
	if (!(out.decoded > 0 && out.answer_s > 0 && out.prompt_s > 0))
		die("llm tells of no tokens: %s", lines[1]);
	if (xpu)
		read_gmm(&out, lines[1], lines[2]);
	return out;
}

static void set_number(const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	if (setenv(name, text, 1))
		die("%s: %s", name, strerror(errno));
}

struct llm_outcome llm_run(const struct llm_setup *setup)
{
	char tokens[16], threads[16], context[16];
	const char *argv[] = { program(),   "--json", "--device",   "cpu",
			       "--tokens",  tokens,   "--threads",  threads,
			       "--context", context,  setup->model, PROMPT,
			       PROMPT,	    NULL };
	struct llm_outcome outcome;
	char *output;

	snprintf(tokens, sizeof(tokens), "%u", setup->tokens);
	snprintf(threads, sizeof(threads), "%u", setup->threads);
	snprintf(context, sizeof(context), "%u", setup->tokens + PROMPT_ROOM);
	if (setup->memory) {
		argv[3] = "gmm";
		set_number("SGPU_MEMORY", setup->memory);
		set_number("SGPU_WORKERS", setup->threads);
	}
	output = output_of(argv);
	outcome = read_outcome(output, setup->memory != 0);
	free(output);
	return outcome;
}

/* --- models of random weights --------------------------------------------- */

/* scripts/setup installs numpy for this one; another may be first in PATH. */
#define PYTHON "/usr/bin/python3"

const char *llm_generate(const char *size)
{
	const char *root = getenv("TMPDIR");
	const char *argv[] = { access(PYTHON, X_OK) ? "python3" : PYTHON,
			       BENCH_SOURCE
			       "/integrations/ggml/models/generate.py",
			       "--size",
			       size,
			       "--llama-src",
			       BENCH_LLAMA "/src",
			       generated,
			       NULL };

	snprintf(folder, sizeof(folder), "%s/gmm-bench-XXXXXX",
		 root && *root ? root : P_tmpdir);
	if (!mkdtemp(folder))
		die("%s: %s", folder, strerror(errno));
	snprintf(generated, sizeof(generated), "%s/random-%.16s.gguf", folder,
		 size);
	snprintf(part, sizeof(part), "%s.part", generated);
	free(output_of(argv));
	return generated;
}

void llm_generated_remove(void)
{
	remove_folder();
	*folder = '\0';
}
