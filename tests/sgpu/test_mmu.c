/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* test_mmu.c - the page table, the link and what fails there on demand */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "kernels.h"
#include "suites.h"

#define RW (SGPU_HW_READ | SGPU_HW_WRITE)

static struct rig rig;

static int store(uint64_t page)
{
	struct access a = { (void *)(uintptr_t)va(&rig, page), ACCESS_STORE };

	return rig_run(&rig, "access", 1, &a, sizeof(a));
}

static int load(uint64_t page)
{
	struct access a = { (void *)(uintptr_t)va(&rig, page), ACCESS_LOAD };

	return rig_run(&rig, "access", 1, &a, sizeof(a));
}

START_TEST(map_is_seen_at_once)
{
	rig_open(&rig, NULL);
	ck_assert_int_eq(rig_map(&rig, 3, 5, 1, RW), 0);
	ck_assert_int_eq(store(3), 0);
	ck_assert_uint_eq(*frame(&rig, 5), 7);
	ck_assert_uint_eq(rig.reads + rig.writes, 0);
	rig_close(&rig);
}
END_TEST

START_TEST(map_replaces)
{
	rig_open(&rig, NULL);
	ck_assert_int_eq(rig_map(&rig, 3, 5, 1, RW), 0);
	ck_assert_int_eq(rig_map(&rig, 3, 6, 1, RW), 0);
	ck_assert_int_eq(store(3), 0);
	ck_assert_uint_eq(*frame(&rig, 5), 0);
	ck_assert_uint_eq(*frame(&rig, 6), 7);
	rig_close(&rig);
}
END_TEST

START_TEST(unmap_revokes)
{
	rig_open(&rig, NULL);
	ck_assert_int_eq(rig_map(&rig, 2, 10, 4, RW), 0);
	ck_assert_int_eq(rig_unmap(&rig, 3, 2), 0);
	ck_assert_int_eq(load(2), 0);
	ck_assert_int_eq(load(5), 0);
	ck_assert_uint_eq(rig.reads, 0);
	ck_assert_int_eq(load(3), 0);
	ck_assert_int_eq(load(4), 0);
	ck_assert_uint_eq(rig.reads, 2);
	/* What is not mapped, and all of it. */
	ck_assert_int_eq(rig_unmap(&rig, 3, 2), 0);
	ck_assert_int_eq(rig_unmap(&rig, 3, 2), 0);
	ck_assert_int_eq(rig_unmap(&rig, 0, rig.info.arena_len / PAGE), 0);
	ck_assert_int_eq(load(2), 0);
	ck_assert_uint_eq(rig.reads, 3);
	rig_close(&rig);
}
END_TEST

START_TEST(protect_both_ways)
{
	rig_open(&rig, NULL);
	ck_assert_int_eq(rig_map(&rig, 1, 1, 2, RW), 0);
	/* Page 3 is not mapped and stays so. */
	ck_assert_int_eq(rig_protect(&rig, 1, 3, SGPU_HW_READ), 0);
	ck_assert_int_eq(load(1), 0);
	ck_assert_uint_eq(rig.reads + rig.writes, 0);
	ck_assert_int_eq(store(1), 0);
	ck_assert_uint_eq(rig.writes, 1);
	ck_assert_int_eq(rig_protect(&rig, 2, 1, RW), 0);
	ck_assert_int_eq(store(2), 0);
	ck_assert_uint_eq(rig.writes, 1);
	ck_assert_int_eq(load(3), 0);
	ck_assert_uint_eq(rig.reads, 1);
	rig_close(&rig);
}
END_TEST

START_TEST(many_runs)
{
	struct sgpu_hw_run runs[SGPU_HW_RUNS];

	rig_open(&rig, NULL);
	for (unsigned int i = 0; i < SGPU_HW_RUNS; i++)
		runs[i] = (struct sgpu_hw_run){ .va = va(&rig, 2 * i),
						.daddr = (127 - i % 128) * PAGE,
						.len = PAGE,
						.prot = RW };
	ck_assert_int_eq(sgpu_hw_map(rig.gpu, runs, SGPU_HW_RUNS), 0);
	for (unsigned int i = 0; i < SGPU_HW_RUNS; i += 51) {
		ck_assert_int_eq(store(2 * i), 0);
		ck_assert_uint_eq(*frame(&rig, 127 - i % 128), 7);
	}
	ck_assert_uint_eq(rig.writes, 0);
	ck_assert_int_eq(sgpu_hw_unmap(rig.gpu, runs, SGPU_HW_RUNS), 0);
	ck_assert_int_eq(load(0), 0);
	ck_assert_uint_eq(rig.reads, 1);
	rig_close(&rig);
}
END_TEST

START_TEST(bad_runs)
{
	struct sgpu_hw_run good;
	struct sgpu_hw_run bad[9];

	rig_open(&rig, NULL);
	good = (struct sgpu_hw_run){ va(&rig, 1), PAGE, PAGE, RW };
	for (int i = 0; i < 9; i++)
		bad[i] = good;
	bad[0].va -= 2 * PAGE;
	bad[1].va += 4096;
	bad[2].len = 0;
	bad[3].len = 4096;
	bad[4].daddr = rig.info.memory;
	bad[5].daddr = 4096;
	bad[6].prot = SGPU_HW_WRITE;
	bad[7].len = ~(PAGE - 1);
	bad[8].prot = 7;
	for (int i = 0; i < 9; i++) {
		struct sgpu_hw_run two[2] = { good, bad[i] };

		ck_assert_int_eq(sgpu_hw_map(rig.gpu, two, 2), -EINVAL);
	}
	ck_assert_int_eq(sgpu_hw_map(rig.gpu, &good, 0), -EINVAL);
	ck_assert_int_eq(sgpu_hw_map(rig.gpu, &good, SGPU_HW_RUNS + 1),
			 -EINVAL);
	ck_assert_int_eq(load(1), 0);
	ck_assert_uint_eq(rig.reads, 1); /* the good one was not done either */
	rig_close(&rig);
}
END_TEST

static void *map_unmap(void *arg)
{
	uint64_t base = (uint64_t)(uintptr_t)arg;

	for (unsigned int i = 0; i < 300; i++) {
		if (rig_map(&rig, base + i % 8, base + i % 8, 1, RW) ||
		    rig_unmap(&rig, base + i % 8, 1))
			return arg ? arg : (void *)1;
	}
	return NULL;
}

START_TEST(commands_from_many_threads)
{
	pthread_t t[20];
	void *failed;

	rig_open(&rig, NULL);
	for (uintptr_t i = 0; i < 20; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, map_unmap,
						(void *)(1 + i * 5)),
				 0);
	for (int i = 0; i < 20; i++) {
		pthread_join(t[i], &failed);
		ck_assert_ptr_null(failed);
	}
	rig_close(&rig);
}
END_TEST

/* A page is remapped under a running writer: no store gets lost. */
START_TEST(no_store_is_lost)
{
	struct span a;
	struct sgpu_hw_fault all = { .waiters = ~0ull, .epoch = 1 };
	uint64_t n = 300000, at = 0;

	rig_open(&rig, NULL);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, RW), 0);
	rig.hold = true;
	ck_assert_int_eq(sgpu_launch(rig.gpu, NULL, rig_kernel(&rig, "count"),
				     n, &a, sizeof(a)),
			 0);
	for (int i = 0; i < 50; i++) {
		uint64_t to = (at + 1) % 8;

		ck_assert_int_eq(rig_unmap(&rig, 0, 1), 0);
		*frame(&rig, to) = *frame(&rig, at);
		*frame(&rig, at) = 0;
		ck_assert_int_eq(rig_map(&rig, 0, to, 1, RW), 0);
		/* Whoever waits meanwhile. */
		sgpu_hw_fault_done(rig.gpu, &all, 0);
		at = to;
	}
	/* One that faulted before the last map may say so only now. */
	for (uint64_t end = now_us() + 20000000;
	     *(volatile uint64_t *)frame(&rig, at) < n && now_us() < end;)
		sgpu_hw_fault_done(rig.gpu, &all, 0);
	ck_assert_int_eq(sgpu_sync(rig.gpu, NULL), 0);
	ck_assert_uint_eq(*frame(&rig, at), n);
	rig_close(&rig);
}
END_TEST

START_TEST(copy_and_zero)
{
	static unsigned char buf[3 * 4096];
	uint64_t host = (uint64_t)(uintptr_t)buf;
	uint64_t end;

	rig_open(&rig, NULL);
	end = rig.info.memory;
	memset(buf, 0x5a, sizeof(buf));
	ck_assert_int_eq(
		sgpu_hw_copy(rig.gpu, SGPU_HW_TO_DEV, PAGE + 5, host, 4097), 0);
	ck_assert_int_eq(sgpu_hw_copy(rig.gpu, SGPU_HW_IN_DEV, 2 * PAGE + 1,
				      PAGE + 5, 4097),
			 0);
	memset(buf, 0, sizeof(buf));
	ck_assert_int_eq(sgpu_hw_copy(rig.gpu, SGPU_HW_FROM_DEV, host + 1,
				      2 * PAGE + 1, 4097),
			 0);
	ck_assert(!buf[0] && buf[1] == 0x5a && buf[4097] == 0x5a && !buf[4098]);
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, PAGE + 6, 4095), 0);
	ck_assert_uint_eq(((unsigned char *)frame(&rig, 1))[5], 0x5a);
	ck_assert_uint_eq(((unsigned char *)frame(&rig, 1))[6], 0);
	ck_assert_uint_eq(((unsigned char *)frame(&rig, 1))[5 + 4096], 0x5a);
	/* Outside, also by wrapping round. */
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, end - 1, 2), -EINVAL);
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, ~0ull, 2), -EINVAL);
	ck_assert_int_eq(
		sgpu_hw_copy(rig.gpu, SGPU_HW_TO_DEV, end - 1, host, 2),
		-EINVAL);
	ck_assert_int_eq(sgpu_hw_copy(rig.gpu, SGPU_HW_FROM_DEV, host, end, 1),
			 -EINVAL);
	rig_close(&rig);
}
END_TEST

static unsigned long huge_kb(int pid)
{
	char line[256];
	unsigned long sum = 0, kb;
	FILE *f;

	snprintf(line, sizeof(line), "/proc/%d/smaps", pid);
	f = fopen(line, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "ShmemPmdMapped: %lu", &kb) == 1)
			sum += kb;
	}
	fclose(f);
	return sum;
}

/* Frames are huge pages, on both sides, from their first use on. */
START_TEST(frames_are_huge)
{
	struct span a;

	rig_open(&rig, NULL);
	for (uint64_t i = 0; i < 8; i++)
		ck_assert_int_eq(sgpu_hw_zero(rig.gpu, i * PAGE, PAGE), 0);
	ck_assert_uint_eq(huge_kb(getpid()), 8 * PAGE / 1024);
	a = (struct span){ (void *)(uintptr_t)va(&rig, 0), 1, NULL };
	ck_assert_int_eq(rig_run(&rig, "touch_pages", 12, &a, sizeof(a)), 0);
	ck_assert_uint_eq(huge_kb(rig.info.pid), 12 * PAGE / 1024);
	rig_close(&rig);
}
END_TEST

START_TEST(slow_link)
{
	struct sgpu_config c = { .link_mbps = 100 };
	unsigned char *buf = calloc(1, PAGE);
	uint64_t begin, took;

	rig_open(&rig, &c);
	begin = now_us();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(sgpu_hw_copy(rig.gpu, SGPU_HW_TO_DEV, 0,
					      (uint64_t)(uintptr_t)buf, PAGE),
				 0);
	took = now_us() - begin;
	ck_assert_msg(took >= 62000, "%llu us", (unsigned long long)took);
	rig_close(&rig);
	free(buf);
}
END_TEST

START_TEST(slow_commands)
{
	struct sgpu_config c = { .latency_us = 20000 };
	uint64_t begin, took;

	rig_open(&rig, &c);
	begin = now_us();
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, RW), 0);
	took = now_us() - begin;
	ck_assert_msg(took >= 20000, "%llu us", (unsigned long long)took);
	rig_close(&rig);
}
END_TEST

/* The Nth fails, changes nothing, and the next works. */
START_TEST(injected_errors)
{
	rig_open(&rig, NULL);
	ck_assert_int_eq(sgpu_hw_inject(rig.gpu, "map:2"), 0);
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, RW), 0);
	ck_assert_int_eq(rig_map(&rig, 0, 9, 1, RW), -EIO);
	ck_assert_int_eq(store(0), 0);
	ck_assert_uint_eq(*frame(&rig, 0), 7);
	ck_assert_int_eq(rig_map(&rig, 1, 1, 1, RW), 0);

	ck_assert_int_eq(sgpu_hw_inject(rig.gpu, "unmap:1,protect:1"), 0);
	ck_assert_int_eq(rig_unmap(&rig, 0, 1), -EIO);
	ck_assert_int_eq(rig_protect(&rig, 0, 1, SGPU_HW_READ), -EIO);
	ck_assert_int_eq(store(0), 0);
	ck_assert_uint_eq(rig.reads + rig.writes, 0);
	ck_assert_int_eq(rig_protect(&rig, 0, 1, SGPU_HW_READ), 0);
	ck_assert_int_eq(rig_unmap(&rig, 0, 1), 0);

	ck_assert_int_eq(sgpu_hw_inject(rig.gpu, "copy:1,zero:2+"), 0);
	ck_assert_int_eq(sgpu_hw_copy(rig.gpu, SGPU_HW_IN_DEV, 0, PAGE, 8),
			 -EIO);
	ck_assert_int_eq(sgpu_hw_copy(rig.gpu, SGPU_HW_IN_DEV, 0, PAGE, 8), 0);
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, 0, 8), 0);
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, 0, 8), -EIO);
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, 0, 8), -EIO);
	ck_assert_int_eq(sgpu_hw_inject(rig.gpu, NULL), 0);
	ck_assert_int_eq(sgpu_hw_zero(rig.gpu, 0, 8), 0);
	rig_close(&rig);
}
END_TEST

START_TEST(bad_injections)
{
	static const char *const bad[] = {
		"map",	  "map:",
		"map:0",  "map:x",
		"mop:1",  "map:1,",
		"map:-1", ":",
		"map:1 ", "map:99999999999999999999"
	};

	rig_open(&rig, NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(sgpu_hw_inject(rig.gpu, bad[i]) == -EINVAL, "%s",
			      bad[i]);
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, RW), 0);
	rig_close(&rig);
}
END_TEST

START_TEST(injected_by_config)
{
	struct sgpu_config c = { .fail = "map:1" };

	rig_open(&rig, &c);
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, RW), -EIO);
	ck_assert_int_eq(rig_map(&rig, 0, 0, 1, RW), 0);
	rig_close(&rig);
}
END_TEST

Suite *mmu_suite(void)
{
	Suite *s = suite_create("mmu");
	TCase *t = tcase_create("mmu");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, map_is_seen_at_once);
	tcase_add_test(t, map_replaces);
	tcase_add_test(t, unmap_revokes);
	tcase_add_test(t, protect_both_ways);
	tcase_add_test(t, many_runs);
	tcase_add_test(t, bad_runs);
	tcase_add_test(t, commands_from_many_threads);
	tcase_add_test(t, no_store_is_lost);
	tcase_add_test(t, copy_and_zero);
	tcase_add_test(t, frames_are_huge);
	tcase_add_test(t, slow_link);
	tcase_add_test(t, slow_commands);
	tcase_add_test(t, injected_errors);
	tcase_add_test(t, bad_injections);
	tcase_add_test(t, injected_by_config);
	suite_add_tcase(s, t);
	return s;
}
