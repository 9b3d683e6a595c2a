/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* races.c - everybody at once; every word is checked, every test is bounded */
#include <pthread.h>

#include "harness.h"

/* One thread does something over and over while the test does another. */
static _Atomic int stop;
static pthread_t other;

static void start(void *(*fn)(void *), void *arg)
{
	stop = 0;
	ck_assert_int_eq(pthread_create(&other, NULL, fn, arg), 0);
}

static void finish(void)
{
	stop = 1;
	pthread_join(other, NULL);
}

/* The CPU's words of each page: odd ones. The XPU's: even ones. */
static uint64_t rounds;

static void *write_odd(void *arg)
{
	uint64_t *p = arg;

	for (rounds = 0; !stop; rounds++)
		for (int i = 0; i < 4; i++)
			p[(size_t)i * WORDS + 1]++;
	return NULL;
}

START_TEST(cpu_writes_while_the_xpu_writes)
{
	uint64_t *p = um(4);
	struct kargs a = { .dst = p, .n = 4 };

	gpu_start(&gpu, 3);
	start(write_odd, p);
	for (uint64_t i = 1; i <= 30; i++) {
		a.seed = i;
		gpu_run(&gpu, "poke", 1, &a);
	}
	finish();
	for (size_t i = 0; i < 4; i++) {
		ck_assert_uint_eq(p[i * WORDS], 30 + i);
		ck_assert_uint_eq(p[i * WORDS + 1], rounds);
	}
}
END_TEST

static void *advise_often(void *arg)
{
	char *p = arg;
	int nodes[] = { gpu.node, HOST };

	for (unsigned int i = 0; !stop; i++)
		gmadvise(nodes[i % 2], p + i % 5 * PAGE, 3 * PAGE, GM_WILLNEED);
	return NULL;
}

START_TEST(hints_race_with_launches)
{
	char *p = um(8);

	gpu_start(&gpu, 5);
	start(advise_often, p);
	for (uint64_t i = 0; i < 8; i++) {
		gpu_fill(&gpu, p, 8 * PAGE, i);
		cpu_check(p, 8 * PAGE, i);
	}
	finish();
	gpu_check(&gpu, p, 8 * PAGE, 7);
}
END_TEST

/* _i: by the library, or by the program. */
static int by_program;

static void *map_and_unmap(void *arg)
{
	while (!stop) {
		char *p = um(2);

		p[0] = 1;
		p[PAGE] = 2;
		if (gmadvise(gpu.node, p, 2 * PAGE, GM_WILLNEED) || p[0] != 1 ||
		    p[PAGE] != 2)
			abort();
		if (by_program ? munmap(p, 2 * PAGE) : gm_munmap(p, 2 * PAGE))
			abort();
	}
	return arg;
}

START_TEST(regions_come_and_go_beside_launches)
{
	char *p = um(6);

	by_program = _i;
	gpu_start(&gpu, 5);
	start(map_and_unmap, NULL);
	for (uint64_t i = 0; i < 8; i++) {
		gpu_fill(&gpu, p, 6 * PAGE, i);
		cpu_check(p, 6 * PAGE, i);
	}
	finish();
}
END_TEST

/* A launch runs into memory that goes away: it fails, or has been in time. */
START_TEST(munmap_under_a_launch)
{
	char *safe = um(1);

	gpu_start(&gpu, 4);
	gpu_fill(&gpu, safe, PAGE, 9);
	for (int round = 0; round < 10; round++) {
		char *p = um(3);
		struct kargs a = { .dst = (uint64_t *)p, .n = 3 * WORDS };
		int err;

		gpu_launch(&gpu, "fill", 3, &a);
		if (round & 1)
			usleep(100 * (unsigned int)round);
		works((_i ? munmap : gm_munmap)(p, 3 * PAGE));
		err = sgpu_sync(gpu.sgpu, NULL);
		ck_assert_msg(err == 0 || err == -EFAULT, "%s",
			      sgpu_error(gpu.sgpu));
		if (err)
			ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	}
	gpu_check(&gpu, safe, PAGE, 9);
}
END_TEST

static void *discard_often(void *arg)
{
	char *p = arg;

	for (unsigned int i = 0; !stop; i++) {
		if (i & 1)
			madvise(p, 2 * PAGE, MADV_DONTNEED);
		else
			gmadvise(0, p, 2 * PAGE, GM_DONTNEED);
		/* Discards wait for nobody: leave the XPU some time. */
		usleep(200);
	}
	return NULL;
}

/* Each word is what was written, or zero; neighbours are not touched. */
START_TEST(discard_races_with_faults)
{
	uint64_t *p = um(4);

	gpu_start(&gpu, 3);
	cpu_fill(p + 2 * WORDS, 2 * PAGE, 3);
	start(discard_often, p);
	for (uint64_t i = 1; i < 20; i++) {
		gpu_fill(&gpu, p, 2 * PAGE, i);
		for (size_t k = 0; k < 2 * WORDS; k += 511)
			if (p[k] && p[k] != pattern(i, k))
				ck_abort_msg("word %zu is %#llx", k,
					     (unsigned long long)p[k]);
	}
	finish();
	cpu_check(p + 2 * WORDS, 2 * PAGE, 3);
	works(gmadvise(0, p, 2 * PAGE, GM_DONTNEED));
	all_zero(p, 2 * PAGE);
}
END_TEST

static void *move_often(void *arg)
{
	char **p = arg;

	while (!stop) {
		/* A wall behind it makes it move. */
		char *wall = gm_mmap(*p + 2 * PAGE, PAGE, RW, UNIFIED, -1, 0);
		char *q = gm_mremap(*p, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);

		if (q == MAP_FAILED || gm_mremap(q, 3 * PAGE, 2 * PAGE, 0) != q)
			abort();
		*p = q;
		if (wall != MAP_FAILED)
			gm_munmap(wall, PAGE);
	}
	return NULL;
}

START_TEST(mremap_races_with_evictions)
{
	char *p = um(2), *q = um(6);

	gpu_start(&gpu, 4);
	put(&gpu, p, 2 * PAGE, 8, ON_XPU);
	start(move_often, &p);
	for (uint64_t i = 0; i < 8; i++) {
		gpu_fill(&gpu, q, 6 * PAGE, i);
		cpu_check(q, 6 * PAGE, i);
	}
	finish();
	cpu_check(p, 2 * PAGE, 8);
	gpu_check(&gpu, p, 2 * PAGE, 8);
}
END_TEST

static void *read_often(void *arg)
{
	volatile uint64_t *p = arg;

	for (size_t i = 0; !stop; i = (i + 1) % 6)
		if (p[i * WORDS] != pattern(1, i * WORDS))
			abort();
	return NULL;
}

START_TEST(attach_and_detach_under_cpu_faults)
{
	char *p = um(6);

	gpu_open(&gpu, 4);
	cpu_fill(p, 6 * PAGE, 1);
	start(read_often, p);
	for (int i = 0; i < 10; i++) {
		gpu_attach(&gpu);
		gpu_check(&gpu, p, 6 * PAGE, 1);
		gpu_detach(&gpu);
	}
	finish();
	cpu_check(p, 6 * PAGE, 1);
}
END_TEST

struct copier {
	char *dst, *src;
	int node;
};

static void *copy_often(void *arg)
{
	struct copier *c = arg;

	while (!stop)
		if (gmemcpy(c->node, c->dst, c->src, 2 * PAGE + 123))
			abort();
	return NULL;
}

/* Opposite directions: neither waits for the other for ever. */
START_TEST(opposite_copies_do_not_deadlock)
{
	char *a = um(3), *b = um(3);
	struct copier back = { .dst = a, .src = b };

	gpu_start(&gpu, 4);
	back.node = HOST;
	cpu_fill(a, 3 * PAGE, 1);
	cpu_fill(b, 3 * PAGE, 1);
	start(copy_often, &back);
	for (int i = 0; i < 10; i++)
		works(gmemcpy(gpu.node, b, a, 2 * PAGE + 123));
	finish();
	cpu_check(a, 3 * PAGE, 1);
	cpu_check(b, 3 * PAGE, 1);
}
END_TEST

static void *protect_often(void *arg)
{
	for (unsigned int i = 0; !stop; i++)
		if (gm_mprotect(arg, 2 * PAGE, i & 1 ? RW : PROT_READ))
			abort();
	gm_mprotect(arg, 2 * PAGE, RW);
	return NULL;
}

START_TEST(mprotect_races_with_readers)
{
	char *p = um(2);

	gpu_start(&gpu, 4);
	cpu_fill(p, 2 * PAGE, 4);
	start(protect_often, p);
	for (int i = 0; i < 10; i++) {
		gpu_check(&gpu, p, 2 * PAGE, 4);
		cpu_check(p, 2 * PAGE, 4);
	}
	finish();
	gpu_fill(&gpu, p, 2 * PAGE, 5);
	cpu_check(p, 2 * PAGE, 5);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, cpu_writes_while_the_xpu_writes);
	tcase_add_test(tc, hints_race_with_launches);
	tcase_add_loop_test(tc, regions_come_and_go_beside_launches, 0, 2);
	tcase_add_loop_test(tc, munmap_under_a_launch, 0, 2);
	tcase_add_test(tc, discard_races_with_faults);
	tcase_add_test(tc, mremap_races_with_evictions);
	tcase_add_test(tc, attach_and_detach_under_cpu_faults);
	tcase_add_test(tc, opposite_copies_do_not_deadlock);
	tcase_add_test(tc, mprotect_races_with_readers);
}

int main(void)
{
	return run_suite("races", add);
}
