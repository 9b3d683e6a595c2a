/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <dirent.h>
#include <setjmp.h>
#include <sys/wait.h>

#include "harness.h"

struct gpu gpu, gpu2;

static struct {
	unsigned int fds;
	unsigned int threads;
	unsigned int children;
} before;

/* --- what the process has --------------------------------------------- */

static unsigned int count_names(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

unsigned int count_fds(void)
{
	return count_names("/proc/self/fd");
}

/* The library's own threads may come at any time, and stay. */
unsigned int count_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *task;
	unsigned int n = 0;

	while (dir && (task = readdir(dir))) {
		char path[300], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm",
			 task->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f) && strcmp(name, "gmm\n"))
			n++;
		fclose(f);
	}
	if (dir)
		closedir(dir);
	return n;
}

static int last_child(unsigned int *n)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *task;
	int pid = 0, newest = 0;

	*n = 0;
	while (dir && (task = readdir(dir))) {
		char path[300];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/children",
			 task->d_name);
		f = fopen(path, "r");
		while (f && fscanf(f, "%d", &pid) == 1) {
			++*n;
			newest = pid > newest ? pid : newest;
		}
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return newest;
}

unsigned int count_children(void)
{
	unsigned int n;

	last_child(&n);
	return n;
}

int gpu_pid(void)
{
	unsigned int n;

	return last_child(&n);
}

unsigned int count_vmas(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

/* --- GPUs -------------------------------------------------------------- */

void gpu_open_failing(struct gpu *g, size_t pages, const char *fail)
{
	struct sgpu_config config = { .memory = pages * PAGE, .fail = fail };
	int ret = sgpu_open(&config, &g->sgpu);

	ck_assert_msg(ret == 0, "open: %s: %s", strerror(-ret),
		      sgpu_error(NULL));
	ret = sgpu_module_load(g->sgpu, getenv("API_TEST_KERNELS"), &g->module);
	ck_assert_msg(ret == 0, "kernels: %s", sgpu_error(g->sgpu));
	g->pages = pages;
	g->attached = 0;
}

void gpu_open(struct gpu *g, size_t pages)
{
	gpu_open_failing(g, pages, "");
}

void gpu_attach(struct gpu *g)
{
	int ret = gm_sgpu_attach(g->sgpu, &g->node);

	ck_assert_msg(ret == 0, "attach: %s: %s", strerror(-ret), gm_error());
	g->attached = 1;
}

void gpu_detach(struct gpu *g)
{
	int ret = gm_sgpu_detach(g->sgpu);

	ck_assert_msg(ret == 0, "detach: %s: %s", strerror(-ret), gm_error());
	g->attached = 0;
}

void gpu_start(struct gpu *g, size_t pages)
{
	gpu_open(g, pages);
	gpu_attach(g);
}

void gpu_close(struct gpu *g)
{
	if (g->attached)
		gpu_detach(g);
	sgpu_close(g->sgpu);
	g->sgpu = NULL;
}

struct sgpu_kernel *gpu_kernel(struct gpu *g, const char *name)
{
	struct sgpu_kernel *kernel = NULL;
	int ret = sgpu_kernel_find(g->module, name, &kernel);

	ck_assert_msg(ret == 0, "%s: %s", name, sgpu_error(g->sgpu));
	return kernel;
}

void gpu_launch(struct gpu *g, const char *name, uint64_t grid,
		const struct kargs *args)
{
	int ret = sgpu_launch(g->sgpu, NULL, gpu_kernel(g, name), grid, args,
			      sizeof(*args));

	ck_assert_msg(ret == 0, "launch %s: %s", name, sgpu_error(g->sgpu));
}

int gpu_try(struct gpu *g, const char *name, uint64_t grid,
	    const struct kargs *args)
{
	int ret = sgpu_launch(g->sgpu, NULL, gpu_kernel(g, name), grid, args,
			      sizeof(*args));

	return ret ? ret : sgpu_sync(g->sgpu, NULL);
}

void gpu_run(struct gpu *g, const char *name, uint64_t grid,
	     const struct kargs *args)
{
	int ret = gpu_try(g, name, grid, args);

	ck_assert_msg(ret == 0, "%s: %s: %s", name, strerror(-ret),
		      sgpu_error(g->sgpu));
}

static uint64_t grid_of(size_t bytes)
{
	return bytes / PAGE ? bytes / PAGE : 1;
}

void gpu_fill(struct gpu *g, void *p, size_t bytes, uint64_t seed)
{
	struct kargs a = { .dst = p, .n = bytes / 8, .seed = seed };

	gpu_run(g, "fill", grid_of(bytes), &a);
}

void gpu_check(struct gpu *g, const void *p, size_t bytes, uint64_t seed)
{
	uint64_t *out = um(1);
	struct kargs a = { .src = p, .n = bytes / 8, .seed = seed, .out = out };

	gpu_run(g, "check", grid_of(bytes), &a);
	ck_assert_msg(*out == 0, "%llu wrong words on the XPU",
		      (unsigned long long)*out);
	works(gm_munmap(out, PAGE));
}

void gpu_sum_is(struct gpu *g, const void *p, size_t bytes, uint64_t sum)
{
	uint64_t *out = um(1);
	struct kargs a = { .src = p, .n = bytes / 8, .out = out };

	gpu_run(g, "sum", grid_of(bytes), &a);
	ck_assert_uint_eq(*out, sum);
	works(gm_munmap(out, PAGE));
}

void gpu_peek(struct gpu *g, const void *p, size_t pages)
{
	struct kargs a = { .src = p, .n = pages };

	gpu_run(g, "peek", 1, &a);
}

void gpu_poke(struct gpu *g, void *p, size_t pages, uint64_t value)
{
	struct kargs a = { .dst = p, .n = pages, .seed = value };

	gpu_run(g, "poke", 1, &a);
}

/* --- memory ------------------------------------------------------------ */

void cpu_fill(void *p, size_t bytes, uint64_t seed)
{
	uint64_t *w = p;

	for (size_t i = 0; i < bytes / 8; i++)
		w[i] = pattern(seed, i);
}

void cpu_check_from(const void *p, size_t from, size_t to, uint64_t seed)
{
	const uint64_t *w = p;

	/* Check notes each assertion that holds, and that takes its time. */
	for (size_t i = from; i < to; i++)
		if (w[i] != pattern(seed, i))
			ck_abort_msg("word %zu (page %zu) is %#llx, not %#llx",
				     i, i / WORDS, (unsigned long long)w[i],
				     (unsigned long long)pattern(seed, i));
}

void cpu_check(const void *p, size_t bytes, uint64_t seed)
{
	cpu_check_from(p, 0, bytes / 8, seed);
}

void all_zero(const void *p, size_t bytes)
{
	const unsigned char *b = p;

	for (size_t i = 0; i < bytes; i++)
		if (b[i])
			ck_abort_msg("byte %zu is %d, not 0", i, b[i]);
}

void *um(size_t pages)
{
	void *p = gm_mmap(NULL, pages * PAGE, RW, UNIFIED, -1, 0);

	ck_assert_msg(p != MAP_FAILED, "gm_mmap: %s: %s", strerror(errno),
		      gm_error());
	return p;
}

void *plain(size_t bytes)
{
	void *p = mmap(NULL, bytes, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

const char *const place_names[] = {
	[ON_CPU] = "on the CPU", [ON_XPU] = "on the XPU",
	[ON_BOTH] = "shared",	 [EVICTED] = "evicted",
	[REST] = "at rest",	 [DISCARDED] = "discarded",
};

/* Prefetched pages push all others out. They themselves leave no trace. */
void evict_all(struct gpu *g)
{
	char *ballast = um(g->pages);

	for (size_t i = 0; i < g->pages; i++)
		ballast[i * PAGE] = 1;
	works(gmadvise(g->node, ballast, g->pages * PAGE, GM_WILLNEED));
	works(gm_munmap(ballast, g->pages * PAGE));
}

static size_t pages_of(void *p, size_t bytes)
{
	uintptr_t from = (uintptr_t)p / PAGE;

	return ((uintptr_t)p + bytes + PAGE - 1) / PAGE - from;
}

void put(struct gpu *g, void *p, size_t bytes, uint64_t seed, enum place place)
{
	void *start = (void *)((uintptr_t)p / PAGE * PAGE);
	size_t pages = pages_of(p, bytes);
	uint64_t xpu = 1ull << g->node;

	/* What was written by an XPU would come exclusively, even to be read. */
	if (place == ON_BOTH || place == REST)
		works(gmadvise(GM_NODE_NONE, start, pages * PAGE, GM_DONTNEED));
	if (place == ON_XPU || place == EVICTED)
		gpu_fill(g, p, bytes, seed);
	else
		cpu_fill(p, bytes, seed);
	if (place == ON_BOTH || place == REST)
		gpu_peek(g, start, pages);
	if (place == EVICTED || place == REST)
		evict_all(g);
	if (place == DISCARDED)
		works(gmadvise(GM_NODE_NONE, start, pages * PAGE, GM_DONTNEED));
	switch (place) {
	case ON_CPU:
	case EVICTED:
	case REST:
		for (size_t i = 0; i < pages; i++) {
			struct gm_where w = where((char *)start + i * PAGE);

			ck_assert_msg(w.state == GM_STATE_MODIFIED ||
					      w.state == GM_STATE_UNTRACKED,
				      "%s: state %d", place_names[place],
				      w.state);
			ck_assert_uint_eq(w.copies, 1);
			ck_assert_uint_eq(w.mapped, place == ON_CPU);
		}
		break;
	case ON_XPU:
		all_in(start, pages, GM_STATE_MODIFIED, xpu);
		break;
	case ON_BOTH:
		all_in(start, pages, GM_STATE_SHARED, xpu | 1);
		break;
	default:
		all_in(start, pages, GM_STATE_EMPTY, 0);
	}
}

struct gm_where where(const void *p)
{
	struct gm_where w;

	works(gm_where(p, &w));
	return w;
}

void all_in(const void *p, size_t pages, int state, uint64_t copies)
{
	for (size_t i = 0; i < pages; i++) {
		struct gm_where w = where((const char *)p + i * PAGE);

		ck_assert_msg(w.state == state, "page %zu: state %d, not %d", i,
			      w.state, state);
		ck_assert_msg(w.copies == copies,
			      "page %zu: on nodes %#llx, not %#llx", i,
			      (unsigned long long)w.copies,
			      (unsigned long long)copies);
	}
}

struct gm_stats stats(void)
{
	struct gm_stats s;

	works(gm_process_stats(&s));
	return s;
}

/* --- touching what may not be there ------------------------------------- */

static sigjmp_buf escape;

static void escaped(int sig)
{
	siglongjmp(escape, sig);
}

int touch_signal(void *p, int write)
{
	static const int signals[] = { SIGSEGV, SIGBUS };
	struct sigaction action = { .sa_handler = escaped }, old[2];
	volatile char *c = p;
	int sig;

	for (int i = 0; i < 2; i++)
		sigaction(signals[i], &action, &old[i]);
	sig = sigsetjmp(escape, 1);
	if (!sig) {
		if (write)
			*c = 1;
		else
			(void)*c;
	}
	for (int i = 0; i < 2; i++)
		sigaction(signals[i], &old[i], NULL);
	return sig;
}

/* --- the world ----------------------------------------------------------- */

/* Whatever comes with the first device and the first fault is there then. */
static void warm_up(void)
{
	uint64_t *p = um(1);

	gpu_start(&gpu, 1);
	*p = 1;
	gpu_peek(&gpu, p, 1);
	works(gm_munmap(p, PAGE));
	gpu_close(&gpu);
}

void world_begin(void)
{
	warm_up();
	before.fds = count_fds();
	before.threads = count_threads();
	before.children = count_children();
}

void world_end(void)
{
	if (gpu2.sgpu)
		gpu_close(&gpu2);
	if (gpu.sgpu)
		gpu_close(&gpu);
	/* A thread that was joined may still be listed for a moment. */
	eventually(count_threads() <= before.threads);
	ck_assert_uint_le(count_fds(), before.fds);
	ck_assert_uint_le(count_children(), before.children);
}

/* In a child, so that the tests find the library as a program does. */
static int machine_lacks(void)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		int n = gm_nodes(NULL, 0);

		if (n < 0)
			printf("skipped: %s\n", gm_error());
		fflush(stdout);
		_exit(n == -EPERM || n == -ENOSYS || n == -EACCES ? 77 : 0);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 77;
}

int run_suite(const char *name, void (*add)(TCase *tc))
{
	Suite *suite = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *runner = srunner_create(suite);
	int failed;

	if (machine_lacks())
		return 77;
	tcase_set_timeout(tc, 20);
	tcase_add_checked_fixture(tc, world_begin, world_end);
	add(tc);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
