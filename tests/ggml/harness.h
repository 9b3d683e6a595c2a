/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * harness.h - what the tests of the ggml backend share
 *
 * Each test is a process. It says how large the XPU is, loads ggml's CPU
 * backend and then ours, as a program does, and continues texts.
 */
#ifndef TEST_GGML_HARNESS_H
#define TEST_GGML_HARNESS_H

#include <check.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <llama.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ggml-gmm.h"
#include "gmm/gmm.h"

#define PAGE ((size_t)GM_PAGE_SIZE)
#define MIB ((size_t)1 << 20)
#define TEXT_MAX 4096
#define PROMPT "And it came to pass"

/* A variable that this process and its GPU see. */
void env(const char *name, const char *value);
/* A file that the build has named in the environment. */
const char *file_of(const char *variable);
const char *kjv(void);
const char *jargon(void);

/* ggml's CPU backends alone; twice is no harm. */
void cpu_load(void);
/* These and ours, with an XPU of @memory; the test fails if it does not come. */
ggml_backend_dev_t gmm_load(const char *memory);
ggml_backend_gmm_buffers_t gmm_buffers(void);
/* Bytes that the XPU has in use; the host's node is left out. */
uint64_t xpu_in_use(void);

/**
 * struct llm - a model and a context for it
 * @threads: that compute
 */
struct llm {
	struct llama_model *model;
	struct llama_context *ctx;
	int threads;
};

/* On the XPU, or on the CPU alone. False if llama.cpp says no. */
bool llm_try(struct llm *m, const char *path, bool xpu);
struct llm llm_load(const char *path, bool xpu);
/* One more context of the same model. */
struct llama_context *llm_context(const struct llm *m);
void llm_free(struct llm *m);

/* Forget all tokens, and what was computed for them. */
void llm_clear(struct llm *m);
/* Evaluate the prompt; the most likely next token, or what llama_decode() says. */
int llm_prompt(struct llm *m, const char *prompt, llama_token *next);
/* Evaluate @token, likewise. */
int llm_next(struct llm *m, llama_token token, llama_token *next);
/* Append the text of a token. */
void text_add(const struct llm *m, char *text, llama_token token);
/* From a clear state, @n tokens: 0 or what llama_decode() says. */
int llm_text(struct llm *m, const char *prompt, int n, char *text);
/* What the CPU alone writes, with the threads of the XPU. */
void cpu_text(const char *path, const char *prompt, int n, char *text);

/* A field of /proc/self/status, in bytes. */
uint64_t status_of(const char *field);
unsigned int count_fds(void);
unsigned int count_threads(void);
/* Addresses of unified memory that are in use, the XPU's window included. */
uint64_t unified_mapped(void);
/* The XPU's process. */
pid_t gpu_pid(void);
double seconds(void);

/**
 * struct killer - kills the XPU's process again and again
 * @stop: it is to end
 * @kills: that it did
 */
struct killer {
	pthread_t thread;
	_Atomic int stop;
	_Atomic int kills;
};

void killer_start(struct killer *k);
/* How often it did. */
int killer_stop(struct killer *k);

/**
 * struct outcome - how a child ended
 * @status: of waitpid()
 * @late: it had to be killed
 * @said: what it wrote to stderr, the end of it
 */
struct outcome {
	int status;
	bool late;
	char said[8192];
};

/* Call @fn(@arg) in a child that may crash; its result is the exit status. */
struct outcome in_child(int (*fn)(void *arg), void *arg, double limit);
#define exited(o, code) \
	(WIFEXITED((o).status) && WEXITSTATUS((o).status) == (code))
#define killed(o, sig) \
	(WIFSIGNALED((o).status) && WTERMSIG((o).status) == (sig))

/* main(): run the suite, or exit with 77 if the machine lacks something. */
int run_suite(const char *name, double timeout, void (*add)(TCase *tc));

#endif
