/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * failure.c - operators fail, devices die, memory is lost: what is left
 *
 * The n-th call of each operator fails, for n = 1, 2, ... until the scenario
 * has fewer calls than that. After each: every word is the last one written or,
 * if the store itself failed, the one before.
 */
#include <sys/wait.h>

#include "fake.h"

#define CAPS (GM_CAP_REPLAY | GM_CAP_WRITE_FAULT | GM_CAP_COPY_ENGINES)
#define EACH(p, i) ((uint64_t *)((p) + (size_t)(i)*PAGE))

/* --- each operator, each call ------------------------------------------------ */

enum { NR = 6 };

/**
 * struct scenario - twice as many pages as the XPU has, and what they hold
 * @f: the XPU
 * @p: the pages
 * @want: the first word of each
 * @maybe: what it may be instead, after a gmemcpy() that failed
 * @failed: calls that failed
 */
struct scenario {
	struct fake f;
	char *p;
	uint64_t want[NR];
	uint64_t maybe[NR];
	unsigned int failed;
};

static void failed(struct scenario *s, int err)
{
	ck_assert_msg(err == s->f.error || err == -EIO || err == -ENOMEM,
		      "%s: %s", strerror(-err), gm_error());
	ck_assert(*gm_error());
	s->failed++;
}

static void store(struct scenario *s, int i, uint64_t value)
{
	int err = fake_store(&s->f, EACH(s->p, i), value);

	if (err)
		failed(s, err);
	else
		s->want[i] = s->maybe[i] = value;
}

static void is(struct scenario *s, int i, uint64_t value)
{
	ck_assert_msg(value == s->want[i] || value == s->maybe[i],
		      "page %d is %llu, not %llu", i, (unsigned long long)value,
		      (unsigned long long)s->want[i]);
	s->want[i] = s->maybe[i] = value;
}

static void copied(struct scenario *s, int ret, int dst, int src)
{
	s->maybe[dst] = s->want[src];
	if (ret)
		failed(s, -errno);
	else
		s->want[dst] = s->want[src];
}

static void zeroed(struct scenario *s, int ret, int i)
{
	if (ret)
		failed(s, -errno);
	else
		s->want[i] = s->maybe[i] = 0;
}

static void load(struct scenario *s, int i)
{
	uint64_t value = 0;
	int err = fake_load(&s->f, EACH(s->p, i), &value);

	if (err)
		failed(s, err);
	else
		is(s, i, value);
}

static void call(struct scenario *s, int ret)
{
	if (ret)
		failed(s, -errno);
}

/* Every way a page can go. */
static void play(struct scenario *s)
{
	char *p = s->p;

	for (int i = 0; i < NR; i++) /* shared, evicted clean */
		load(s, i);
	store(s, NR - 1, 1001); /* upgraded */
	for (int i = 0; i < NR; i++) /* exclusive, evicted dirty */
		store(s, i, 2000u + (unsigned int)i);
	call(s, gmadvise(s->f.node, p, 3 * PAGE, GM_WILLNEED));
	call(s, gmadvise(HOST, p, PAGE, GM_WILLNEED));
	load(s, 0);
	load(s, 2);
	copied(s, gmemcpy(s->f.node, p + PAGE, p + 2 * PAGE, PAGE), 1, 2);
	load(s, 1);
	if (s->want[1] == s->maybe[1])
		copied(s, gmemcpy(GM_NODE_NONE, p + 4 * PAGE, p + PAGE, 64), 4,
		       1);
	load(s, 3);
	zeroed(s, gmadvise(GM_NODE_NONE, p + 3 * PAGE, 8, GM_DONTNEED), 3);
	load(s, 5);
	zeroed(s, gmadvise(GM_NODE_NONE, p + 5 * PAGE, PAGE, GM_DONTNEED), 5);
	store(s, 5, 3000);
	load(s, 2);
	/*
	 * An XPU that keeps its rights is told of, and the program's have
	 * changed. To give them back asks nothing of an XPU.
	 */
	call(s, gm_mprotect(p + 2 * PAGE, PAGE, PROT_READ));
	works(gm_mprotect(p + 2 * PAGE, PAGE, RW));
}

static unsigned int run_scenario(enum fake_op op, unsigned int n, int forever,
				 int error)
{
	struct scenario *s = calloc(1, sizeof(*s));
	unsigned int calls, bad;

	s->p = um(NR);
	fake_open(&s->f, NR / 2, CAPS);
	ck_assert_int_eq(fake_attach(&s->f), 0);
	for (int i = 0; i < NR; i++)
		*EACH(s->p, i) = s->want[i] = s->maybe[i] =
			100u + (unsigned int)i;
	s->f.calls[op] = 0;
	s->f.error = error;
	s->f.fail_from = forever;
	s->f.fail_at[op] = n;
	play(s);
	calls = s->f.calls[op];
	bad = s->failed;
	fake_heal(&s->f);
	/* Well again: nothing is lost, and everything works. */
	for (int i = 0; i < NR; i++) {
		uint64_t value = 0;
		int err = fake_load(&s->f, EACH(s->p, i), &value);

		ck_assert_msg(!err, "%s call %u: %s", fake_ops[op], n,
			      gm_error());
		is(s, i, value);
		err = fake_store(&s->f, EACH(s->p, i), value + 1);
		ck_assert_msg(!err, "%s call %u, page %d: %s", fake_ops[op], n,
			      i, gm_error());
	}
	for (int i = 0; i < NR; i++)
		ck_assert_uint_eq(*EACH(s->p, i), s->want[i] + 1);
	works(gm_munmap(s->p, NR * PAGE));
	fake_detach(&s->f);
	fake_close(&s->f);
	free(s);
	if (n > calls)
		ck_assert_uint_eq(bad, 0);
	return calls;
}

START_TEST(every_call_of_every_operator_fails_once)
{
	unsigned int n, calls;

	for (n = 1;; n++) {
		calls = run_scenario((enum fake_op)_i, n, 0, -EIO);
		if (n > calls)
			break;
	}
	ck_assert_uint_gt(n, 1); /* the scenario has such calls */
}
END_TEST

START_TEST(every_operator_fails_for_a_while)
{
	for (unsigned int n = 1; n < 12; n += 3)
		run_scenario((enum fake_op)_i, n, 1, -EIO);
}
END_TEST

/* --- va_examine ---------------------------------------------------------------- */

START_TEST(refused_addresses_are_tried_ten_times)
{
	struct fake f;
	void *p;

	fake_open(&f, 4, CAPS);
	ck_assert_int_eq(fake_attach(&f), 0);
	for (unsigned int refuse = 1; refuse < 10; refuse++) {
		unsigned int before = f.calls[OP_EXAMINE];

		f.error = -EADDRINUSE;
		f.fail_from = 0;
		f.fail_at[OP_EXAMINE] = before + 1;
		p = um(2);
		ck_assert_int_eq(f.examined, 2);
		ck_assert_int_eq(f.calls[OP_EXAMINE], before + 2);
		works(gm_munmap(p, 2 * PAGE));
		ck_assert_int_eq(f.examined, 0);
	}
	f.calls[OP_EXAMINE] = 0;
	f.fail_at[OP_EXAMINE] = 1;
	f.fail_from = 1;
	fails_map(gm_mmap(NULL, PAGE, RW, UNIFIED, -1, 0), ENOMEM);
	ck_assert_uint_eq(f.calls[OP_EXAMINE], 10);
	ck_assert_msg(strstr(gm_error(), "10") != NULL, "%s", gm_error());
	ck_assert_int_eq(f.examined, 0);
	fake_heal(&f);
	p = um(1);
	fake_detach(&f);
	/* An attach that a region stands in the way of changes nothing. */
	f.refuse_below = UINT64_MAX;
	ck_assert_int_eq(fake_attach(&f), -EADDRINUSE);
	ck_assert_int_eq(f.examined, 0);
	f.refuse_below = 0;
	ck_assert_int_eq(fake_attach(&f), 0);
	fake_detach(&f);
	fake_close(&f);
	works(gm_munmap(p, PAGE));
}
END_TEST

/* Two XPUs: what the first has accepted is undone when the second refuses. */
START_TEST(refusal_by_one_undoes_the_other)
{
	struct fake a, b;

	fake_open(&a, 2, CAPS);
	fake_open(&b, 2, CAPS);
	ck_assert_int_eq(fake_attach(&a), 0);
	ck_assert_int_eq(fake_attach(&b), 0);
	b.refuse_below = UINT64_MAX;
	fails_map(gm_mmap(NULL, PAGE, RW, UNIFIED, -1, 0), ENOMEM);
	ck_assert_int_eq(a.examined, 0);
	fake_detach(&a);
	fake_detach(&b);
	fake_close(&a);
	fake_close(&b);
}
END_TEST

/* --- death ------------------------------------------------------------------------ */

START_TEST(lost_memory_poisons_only_what_was_there_alone)
{
	struct gm_node_info nodes[8];
	struct gm_stats st = stats();
	struct fake f;
	uint64_t value;
	char *p = um(4);
	int n, lost = 0;

	fake_open(&f, 4, CAPS);
	ck_assert_int_eq(fake_attach(&f), 0);
	cpu_fill(p, 4 * PAGE, 1);
	ck_assert_int_eq(fake_store(&f, EACH(p, 0), 5), 0);
	ck_assert_int_eq(fake_load(&f, EACH(p, 1), &value), 0);
	f.gone = 1;
	gm_dev_lost(f.dev);
	n = gm_nodes(nodes, 8);
	for (int i = 0; i < n; i++)
		lost += nodes[i].id == f.node && nodes[i].lost;
	ck_assert_int_eq(lost, 1);
	ck_assert_int_eq(where(p).state, GM_STATE_POISON);
	ck_assert_uint_eq(since(st, poisoned), 1);
	cpu_check_from(p, WORDS, 4 * WORDS, 1);
	ck_assert_int_eq(touch_signal(p, 0), SIGBUS);
	ck_assert_int_eq(touch_signal(p + 5 * SMALL, 1), SIGBUS);
	fails(gmemcpy(HOST, p + PAGE, p, 8), EHWPOISON);
	fails(gmadvise(HOST, p, PAGE, GM_WILLNEED), EHWPOISON);
	fails(gmadvise(GM_NODE_NONE, p, 8, GM_DONTNEED), EHWPOISON);
	fails(gmadvise(f.node, p + PAGE, PAGE, GM_WILLNEED), ENODEV);
	fails(gmemcpy(f.node, p + PAGE, p + 2 * PAGE, 8), ENODEV);
	ck_assert_int_eq(fake_load(&f, EACH(p, 2), &value), -ENODEV);
	fake_detach(&f);
	fake_close(&f);
	works(gmadvise(GM_NODE_NONE, p, PAGE, GM_DONTNEED));
	all_zero(p, PAGE);
	gpu_start(&gpu, 4);
	gpu_fill(&gpu, p, 4 * PAGE, 2);
	cpu_check(p, 4 * PAGE, 2);
}
END_TEST

/* An operator says that the device is gone: what can be read is saved. */
START_TEST(operator_that_says_enodev_ends_the_device)
{
	struct fake f;
	uint64_t value;
	char *p = um(3);

	fake_open(&f, 4, CAPS);
	ck_assert_int_eq(fake_attach(&f), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fake_store(&f, EACH(p, i), 7), 0);
	f.error = _i ? -ETIMEDOUT : -ENODEV;
	f.fail_from = 1;
	f.fail_at[OP_ENTER] = f.calls[OP_ENTER] + 1;
	ck_assert_int_lt(fake_load(&f, EACH(p, 2), &value), 0);
	ck_assert_int_eq(fake_load(&f, EACH(p, 2), &value), -ENODEV);
	ck_assert_uint_eq(*EACH(p, 0), 7);
	ck_assert_uint_eq(*EACH(p, 1), 7);
	ck_assert_uint_eq(*EACH(p, 2), 0);
	fake_detach(&f);
	fake_close(&f);
}
END_TEST

/* kill -9 of the device program: its memory is held by the driver too. */
START_TEST(death_of_a_context_loses_no_page)
{
	char *p = um(4), *flag = um(1);
	struct kargs a = { .dst = (uint64_t *)flag, .seed = 1 };
	int pid, err;

	gpu_start(&gpu, 8);
	gpu_fill(&gpu, p, 4 * PAGE, 1);
	gpu_launch(&gpu, "spin", 1, &a);
	eventually(where(flag).copies >> gpu.node & 1);
	pid = gpu_pid();
	ck_assert_int_gt(pid, 0);
	kill(pid, SIGKILL);
	err = sgpu_sync(gpu.sgpu, NULL);
	ck_assert_int_lt(err, 0);
	ck_assert(*sgpu_error(gpu.sgpu));
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	all_in(p, 4, GM_STATE_MODIFIED, 1ull << gpu.node);
	gpu_check(&gpu, p, 4 * PAGE, 1);
	cpu_check(p, 4 * PAGE, 1);
}
END_TEST

START_TEST(wild_access_is_named_and_sticky)
{
	char *p = um(1), text[32];
	struct kargs a = { .dst = (uint64_t *)(p + 64 * PAGE), .n = 1 };

	gpu_start(&gpu, 4);
	gpu_fill(&gpu, p, PAGE, 1);
	ck_assert_int_eq(gpu_try(&gpu, "poke", 1, &a), -EFAULT);
	snprintf(text, sizeof(text), "%lx", (unsigned long)a.dst);
	ck_assert_msg(strstr(sgpu_error(gpu.sgpu), text) &&
			      strstr(sgpu_error(gpu.sgpu), "poke"),
		      "%s", sgpu_error(gpu.sgpu));
	a.dst = (uint64_t *)p;
	ck_assert_int_eq(gpu_try(&gpu, "poke", 1, &a), -EFAULT);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	gpu_check(&gpu, p, PAGE, 1);
	ck_assert_int_eq(gpu_try(&gpu, "crash", 1, &a), -ECANCELED);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	gpu_check(&gpu, p, PAGE, 1);
}
END_TEST

/* The failure may hit anywhere; it hits once. */
static void run_again(const char *name, const struct kargs *a)
{
	for (int try = 0; gpu_try(&gpu, name, 12, a); try++) {
		ck_assert_msg(try < 2, "%s", sgpu_error(gpu.sgpu));
		ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	}
}

/* A real device, each kind of failure, now and then. */
START_TEST(failing_gpu_loses_nothing)
{
	static const char *const kinds[] = { "map",  "unmap", "copy",
					     "zero", "die",   "protect" };
	char spec[32];
	char *p = um(12);
	uint64_t *out = um(1);

	for (int n = 1; n <= 9; n += 4) {
		struct kargs a = { .dst = (uint64_t *)p,
				   .src = (uint64_t *)p,
				   .n = 12 * WORDS,
				   .seed = (uint64_t)n + 1 };

		snprintf(spec, sizeof(spec), "%s:%d", kinds[_i], n);
		gpu_open_failing(&gpu, 4, spec);
		gpu_attach(&gpu);
		cpu_fill(p, 12 * PAGE, (uint64_t)n);
		run_again("fill", &a);
		cpu_check(p, 12 * PAGE, (uint64_t)n + 1);
		a.out = out;
		*out = 0;
		run_again("check", &a);
		ck_assert_uint_eq(*out, 0);
		cpu_check(p, 12 * PAGE, (uint64_t)n + 1);
		gpu_close(&gpu);
	}
}
END_TEST

/* A command is never answered: the deadline ends the GPU, not the program. */
START_TEST(hanging_gpu_hits_the_deadline)
{
	char *p = um(2);
	struct kargs a = { .dst = (uint64_t *)p, .n = 2, .seed = 1 };

	gpu_open_failing(&gpu, 4, "hang:1+");
	gpu_attach(&gpu);
	cpu_fill(p, 2 * PAGE, 1);
	ck_assert_int_lt(gpu_try(&gpu, "poke", 1, &a), 0);
	cpu_check(p, 2 * PAGE, 1);
	fails(gmadvise(gpu.node, p, PAGE, GM_WILLNEED), ENODEV);
}
END_TEST

static int is_gone(int pid)
{
	char path[64], state = 'Z';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%*d %*s %c", &state) != 1)
		state = 'Z';
	if (f)
		fclose(f);
	return state == 'Z' || state == 'X';
}

static int victim_fd;

/* Tells its device's process, and is killed in mid-launch. */
START_TEST(victim)
{
	struct kargs a = { .seed = 1 };
	int pid;

	gpu_start(&gpu, 4);
	a.dst = um(1);
	gpu_launch(&gpu, "spin", 1, &a);
	eventually(where(a.dst).copies >> gpu.node & 1);
	pid = gpu_pid();
	ck_assert_int_eq(write(victim_fd, &pid, sizeof(pid)), sizeof(pid));
	pause();
}
END_TEST

static int be_victim(int fd)
{
	Suite *suite = suite_create("victim");
	TCase *tc = tcase_create("victim");
	SRunner *runner = srunner_create(suite);

	victim_fd = fd;
	tcase_add_test(tc, victim);
	suite_add_tcase(suite, tc);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_ENV);
	return 1;
}

START_TEST(killed_program_leaves_nothing_behind)
{
	int ends[2], device = 0, status;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (!pid) {
		char fd[16];

		snprintf(fd, sizeof(fd), "%d", ends[1]);
		execl("/proc/self/exe", "api-failure", fd, (char *)NULL);
		_exit(1);
	}
	close(ends[1]);
	ck_assert_int_eq(read(ends[0], &device, sizeof(device)),
			 sizeof(device));
	close(ends[0]);
	ck_assert_int_gt(device, 0);
	ck_assert_int_eq(kill(device, 0), 0);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	/* Gone, or a zombie that nobody waits for: without memory either way. */
	eventually(is_gone(device));
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, every_call_of_every_operator_fails_once,
			    OP_ENTER, NR_OPS);
	tcase_add_loop_test(tc, every_operator_fails_for_a_while, OP_ENTER,
			    NR_OPS);
	tcase_add_test(tc, refused_addresses_are_tried_ten_times);
	tcase_add_test(tc, refusal_by_one_undoes_the_other);
	tcase_add_test(tc, lost_memory_poisons_only_what_was_there_alone);
	tcase_add_loop_test(tc, operator_that_says_enodev_ends_the_device, 0,
			    2);
	tcase_add_test(tc, death_of_a_context_loses_no_page);
	tcase_add_test(tc, wild_access_is_named_and_sticky);
	tcase_add_loop_test(tc, failing_gpu_loses_nothing, 0, 6);
	tcase_add_test(tc, hanging_gpu_hits_the_deadline);
	tcase_add_test(tc, killed_program_leaves_nothing_behind);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return be_victim(atoi(argv[1]));
	return run_suite("failure", add);
}
