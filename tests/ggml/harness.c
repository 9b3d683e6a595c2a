/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "harness.h"

/* Where unified memory is. */
#define ARENA 0x300000000000ul
#define ARENA_LEN ((unsigned long)16 << 40)

/* --- what there is ------------------------------------------------------- */

void env(const char *name, const char *value)
{
	ck_assert_int_eq(setenv(name, value, 1), 0);
}

const char *file_of(const char *variable)
{
	const char *path = getenv(variable);

	ck_assert_msg(path && !access(path, R_OK), "%s is %s", variable,
		      path ? path : "not set");
	return path;
}

const char *kjv(void)
{
	return file_of("GGML_TEST_KJV");
}

const char *jargon(void)
{
	return file_of("GGML_TEST_JARGON");
}

static void only_errors(enum ggml_log_level level, const char *text, void *arg)
{
	if (level == GGML_LOG_LEVEL_ERROR)
		fputs(text, stderr);
}

void cpu_load(void)
{
	llama_log_set(only_errors, NULL);
	if (ggml_backend_reg_by_name("CPU"))
		return;
	ggml_backend_load_all_from_path(file_of("GGML_TEST_CPU"));
	ck_assert_ptr_nonnull(
		ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
}

ggml_backend_dev_t gmm_load(const char *memory)
{
	ggml_backend_reg_t reg;

	env("SGPU_MEMORY", memory);
	cpu_load();
	reg = ggml_backend_load(file_of("GGML_TEST_PLUGIN"));
	ck_assert_msg(!!reg, "ggml cannot load the backend");
	ck_assert_uint_eq(ggml_backend_reg_dev_count(reg), 1);
	return ggml_backend_reg_dev_get(reg, 0);
}

ggml_backend_gmm_buffers_t gmm_buffers(void)
{
	ggml_backend_reg_t reg = ggml_backend_reg_by_name("GMM");
	ggml_backend_gmm_buffers_t fn;

	fn = (ggml_backend_gmm_buffers_t)ggml_backend_reg_get_proc_address(
		reg, "ggml_backend_gmm_buffers");
	ck_assert(!!fn);
	return fn;
}

uint64_t xpu_in_use(void)
{
	struct gm_node_info nodes[64];
	int n = gm_nodes(nodes, 64);
	uint64_t bytes = 0;

	ck_assert_int_gt(n, 0);
	for (int i = 0; i < n && i < 64; i++) {
		if (!nodes[i].is_xpu)
			continue;
		ck_assert_uint_eq(nodes[i].free + nodes[i].resident,
				  nodes[i].total);
		bytes += nodes[i].resident;
	}
	return bytes;
}

/* --- a model ------------------------------------------------------------- */

struct llama_context *llm_context(const struct llm *m)
{
	struct llama_context_params params = llama_context_default_params();

	params.n_ctx = params.n_batch = 256;
	params.n_threads = params.n_threads_batch = m->threads;
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
	params.op_offload = false;
	return llama_init_from_model(m->model, params);
}

bool llm_try(struct llm *m, const char *path, bool xpu)
{
	struct llama_model_params params = llama_model_default_params();
	ggml_backend_dev_t devices[2] = { NULL, NULL };
	const char *workers = getenv("SGPU_WORKERS");

	if (xpu)
		devices[0] = ggml_backend_dev_by_name("GMM0");
	params.devices = devices;
	params.n_gpu_layers = xpu ? -1 : 0;
	params.use_extra_bufts = false;
	m->threads = workers ? atoi(workers) : 1;
	m->model = llama_model_load_from_file(path, params);
	m->ctx = m->model ? llm_context(m) : NULL;
	if (m->ctx)
		return true;
	llama_model_free(m->model);
	return false;
}

struct llm llm_load(const char *path, bool xpu)
{
	struct llm m;

	ck_assert_msg(llm_try(&m, path, xpu), "%s cannot be loaded", path);
	return m;
}

void llm_free(struct llm *m)
{
	llama_free(m->ctx);
	llama_model_free(m->model);
}

void llm_clear(struct llm *m)
{
	llama_memory_clear(llama_get_memory(m->ctx), true);
}

static int decode(struct llm *m, llama_token *tokens, int n, llama_token *next)
{
	int ret = llama_decode(m->ctx, llama_batch_get_one(tokens, n));
	const float *logits;
	int best = 0;

	if (ret)
		return ret;
	logits = llama_get_logits_ith(m->ctx, -1);
	for (int i = 1;
	     i < llama_vocab_n_tokens(llama_model_get_vocab(m->model)); i++)
		best = logits[i] > logits[best] ? i : best;
	*next = best;
	return 0;
}

int llm_prompt(struct llm *m, const char *prompt, llama_token *next)
{
	llama_token tokens[256];
	int n = llama_tokenize(llama_model_get_vocab(m->model), prompt,
			       (int)strlen(prompt), tokens, 256, true, false);

	ck_assert_msg(n > 0, "%s: %d tokens", prompt, n);
	return decode(m, tokens, n, next);
}

int llm_next(struct llm *m, llama_token token, llama_token *next)
{
	return decode(m, &token, 1, next);
}

void text_add(const struct llm *m, char *text, llama_token token)
{
	size_t len = strlen(text);
	int n = llama_token_to_piece(llama_model_get_vocab(m->model), token,
				     text + len, (int)(TEXT_MAX - len) - 1, 0,
				     true);

	ck_assert_int_ge(n, 0);
	text[len + (size_t)n] = '\0';
}

int llm_text(struct llm *m, const char *prompt, int n, char *text)
{
	llama_token token;
	int ret;

	*text = '\0';
	llm_clear(m);
	ret = llm_prompt(m, prompt, &token);
	for (int i = 0; !ret && i < n; i++) {
		text_add(m, text, token);
		if (i + 1 < n)
			ret = llm_next(m, token, &token);
	}
	return ret;
}

void cpu_text(const char *path, const char *prompt, int n, char *text)
{
	struct llm m = llm_load(path, false);

	ck_assert_int_eq(llm_text(&m, prompt, n, text), 0);
	ck_assert_uint_gt(strlen(text), (size_t)n / 2);
	llm_free(&m);
}

/* --- what this process has ------------------------------------------------ */

uint64_t status_of(const char *field)
{
	FILE *file = fopen("/proc/self/status", "r");
	size_t len = strlen(field);
	unsigned long kib = 0;
	char line[256];

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file)) {
		if (!strncmp(line, field, len) && line[len] == ':')
			ck_assert_int_eq(sscanf(line + len + 1, "%lu", &kib),
					 1);
	}
	fclose(file);
	return (uint64_t)kib << 10;
}

static unsigned int count_names(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

unsigned int count_fds(void)
{
	return count_names("/proc/self/fd");
}

unsigned int count_threads(void)
{
	return count_names("/proc/self/task");
}

uint64_t unified_mapped(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned long begin, end;
	uint64_t bytes = 0;
	char line[512];

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file)) {
		ck_assert_int_eq(sscanf(line, "%lx-%lx", &begin, &end), 2);
		if (begin >= ARENA && end <= ARENA + ARENA_LEN)
			bytes += end - begin;
	}
	fclose(file);
	return bytes;
}

pid_t gpu_pid(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *task;
	pid_t pid, newest = 0;

	ck_assert_ptr_nonnull(dir);
	while ((task = readdir(dir))) {
		char path[300];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/children",
			 task->d_name);
		f = fopen(path, "r");
		while (f && fscanf(f, "%d", &pid) == 1)
			newest = pid > newest ? pid : newest;
		if (f)
			fclose(f);
	}
	closedir(dir);
	return newest;
}

double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- kill -9 --------------------------------------------------------------- */

static void *killer_run(void *arg)
{
	struct killer *k = arg;
	unsigned int us = 3000;

	while (!k->stop) {
		pid_t pid = gpu_pid();

		if (pid && !kill(pid, SIGKILL))
			k->kills++;
		/* From a part of a token to several texts. */
		us = (us * 7 + 12347) % 300000;
		usleep(us);
	}
	return NULL;
}

void killer_start(struct killer *k)
{
	k->stop = k->kills = 0;
	ck_assert_int_eq(pthread_create(&k->thread, NULL, killer_run, k), 0);
}

int killer_stop(struct killer *k)
{
	k->stop = 1;
	ck_assert_int_eq(pthread_join(k->thread, NULL), 0);
	return k->kills;
}

/* --- children that may crash ----------------------------------------------- */

static void run_child(int (*fn)(void *arg), void *arg, int err)
{
	dup2(err, STDERR_FILENO);
	/* A failed check ends this process, not the test's. */
	_exit(fn(arg));
}

/* The last bytes, up to the end of the writers or the deadline. */
static bool listen_to(int fd, struct outcome *o, double deadline)
{
	size_t len = 0, room = sizeof(o->said) - 1;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		double left = deadline - seconds();
		ssize_t n;

		if (left <= 0 || poll(&p, 1, (int)(1e3 * left) + 1) <= 0) {
			if (deadline - seconds() <= 0)
				return false;
			continue;
		}
		if (len == room) {
			memmove(o->said, o->said + room / 2, room - room / 2);
			len -= room / 2;
		}
		n = read(fd, o->said + len, room - len);
		if (n <= 0)
			return true;
		len += (size_t)n;
		o->said[len] = '\0';
	}
}

struct outcome in_child(int (*fn)(void *arg), void *arg, double limit)
{
	struct outcome o = { 0 };
	double deadline = seconds() + limit;
	int pipes[2];
	pid_t pid;

	/* Not only within tests, so these are no assertions of theirs. */
	if (pipe2(pipes, O_CLOEXEC)) {
		perror("pipe");
		abort();
	}
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		abort();
	}
	if (!pid)
		run_child(fn, arg, pipes[1]);
	close(pipes[1]);
	o.late = !listen_to(pipes[0], &o, deadline);
	if (o.late)
		kill(pid, SIGKILL);
	waitpid(pid, &o.status, 0);
	close(pipes[0]);
	return o;
}

/* --- the suite ------------------------------------------------------------ */

static int ask_library(void *arg)
{
	int n = gm_nodes(NULL, 0);

	if (n < 0)
		fprintf(stderr, "%s\n", gm_error());
	return n == -EPERM || n == -ENOSYS || n == -EACCES ? 77 : 0;
}

int run_suite(const char *name, double timeout, void (*add)(TCase *tc))
{
	Suite *suite = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *runner = srunner_create(suite);
	/* In a child, so that the tests find the library as a program does. */
	struct outcome o = in_child(ask_library, NULL, 10);
	int failed;

	if (exited(o, 77)) {
		printf("skipped: %s", o.said);
		return 77;
	}
	/* ggml would ask gdb for a backtrace of each abort that is wanted. */
	setenv("GGML_NO_BACKTRACE", "1", 1);
	unsetenv("GGML_BACKEND_PATH");
	tcase_set_timeout(tc, timeout);
	add(tc);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
