/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * nodes.c - pages on two host nodes, by the kernel's own word
 *
 * For a machine with two NUMA nodes; all CPUs may be on the first.
 */
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "tests/api/harness.h"

#define ALL_FLAGS (GM_MOVE_PARALLEL | GM_MOVE_CONCURRENT)
enum { MAX = 16, SMALLS = 512 };

static const int all_flags[] = { 0, GM_MOVE_PARALLEL, GM_MOVE_CONCURRENT,
				 ALL_FLAGS };

/* Every small page of the range is on the node, says Linux. */
static void kernel_says(char *p, size_t bytes, int node)
{
	void *pages[SMALLS];
	int status[SMALLS];

	for (size_t at = 0; at < bytes; at += PAGE) {
		size_t n = bytes - at < PAGE ? (bytes - at) / SMALL : SMALLS;

		for (size_t i = 0; i < n; i++)
			pages[i] = p + at + i * SMALL;
		ck_assert_int_eq(
			syscall(SYS_move_pages, 0, n, pages, NULL, status, 0),
			0);
		for (size_t i = 0; i < n; i++)
			ck_assert_msg(status[i] == node,
				      "%zu + %zu small pages: on node %d, not "
				      "%d",
				      at / SMALL, i, status[i], node);
	}
}

/* Bytes of the mapping around @p that are in huge pages. */
static size_t huge_bytes(const void *p)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long from, to, kb = 0;
	char line[512];
	int inside = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (unsigned long)p >= from &&
				 (unsigned long)p < to;
		else if (inside && sscanf(line, "AnonHugePages: %lu", &kb) == 1)
			break;
	}
	fclose(f);
	return kb << 10;
}

static void move_to(char *p, size_t n, size_t step, int node, int flags)
{
	void *pages[MAX];
	int nodes[MAX], status[MAX];

	for (size_t i = 0; i < n; i++) {
		pages[i] = p + i * step;
		nodes[i] = node;
	}
	works(gm_move_pages(n, pages, nodes, status, flags));
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(status[i], node);
}

/* New pages of this thread come from there. */
static void prefer(int node)
{
	unsigned long mask = 1ul << node;

	ck_assert_int_eq(
		syscall(SYS_set_mempolicy, MPOL_PREFERRED, &mask, 64ul), 0);
}

static void fill_on(char *p, size_t bytes, uint64_t seed, int node)
{
	prefer(node);
	cpu_fill(p, bytes, seed);
	prefer(0);
	kernel_says(p, bytes, node);
}

START_TEST(two_nodes_are_listed)
{
	struct gm_node_info nodes[4];

	ck_assert_int_eq(gm_nodes(nodes, 4), 2);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(nodes[i].id, i);
		ck_assert_int_eq(nodes[i].is_xpu, 0);
		ck_assert_uint_gt(nodes[i].total, 500ul << 20);
		ck_assert_uint_gt(nodes[i].free, 100ul << 20);
	}
}
END_TEST

START_TEST(unified_pages_move_between_host_nodes)
{
	int flags = all_flags[_i];
	struct gm_stats s = stats();
	char *p = um(6);

	fill_on(p, 6 * PAGE, 1, 0);
	move_to(p, 6, PAGE, 1, flags);
	kernel_says(p, 6 * PAGE, 1);
	ck_assert_uint_ge(huge_bytes(p), 6 * PAGE);
	ck_assert_int_eq(where(p).node, 1);
	ck_assert_uint_eq(since(s, moved), 6);
	ck_assert_uint_eq(since(s, between_hosts), 6);
	cpu_check(p, 6 * PAGE, 1);
	move_to(p, 3, PAGE, 0, flags);
	kernel_says(p, 3 * PAGE, 0);
	kernel_says(p + 3 * PAGE, 3 * PAGE, 1);
	cpu_check(p, 6 * PAGE, 1);
	ck_assert_uint_ge(huge_bytes(p), 6 * PAGE);
}
END_TEST

START_TEST(prefetch_to_a_host_node_goes_there)
{
	char *p = um(4);

	fill_on(p, 2 * PAGE, 1, 0);
	gpu_start(&gpu, 4);
	gpu_fill(&gpu, p + 2 * PAGE, 2 * PAGE, 2);
	works(gmadvise(1, p, 4 * PAGE, GM_WILLNEED));
	kernel_says(p, 4 * PAGE, 1);
	ck_assert_uint_ge(huge_bytes(p), 4 * PAGE);
	cpu_check(p, 2 * PAGE, 1);
	cpu_check(p + 2 * PAGE, 2 * PAGE, 2);
	works(gmadvise(0, p, PAGE, GM_PIN));
	kernel_says(p, PAGE, 0);
	ck_assert_int_eq(gmadvise(1, p, PAGE, GM_WILLNEED), -1);
	ck_assert_int_eq(errno, EBUSY);
	kernel_says(p, PAGE, 0);
}
END_TEST

START_TEST(read_only_pages_move_too)
{
	char *p = um(2);

	fill_on(p, 2 * PAGE, 1, 0);
	works(gm_mprotect(p, 2 * PAGE, PROT_READ));
	move_to(p, 2, PAGE, 1, ALL_FLAGS);
	kernel_says(p, 2 * PAGE, 1);
	cpu_check(p, 2 * PAGE, 1);
}
END_TEST

START_TEST(xpu_and_both_host_nodes)
{
	char *p = um(4);

	gpu_start(&gpu, 4);
	gpu_fill(&gpu, p, 4 * PAGE, 1);
	move_to(p, 4, PAGE, 1, ALL_FLAGS);
	kernel_says(p, 4 * PAGE, 1);
	ck_assert_uint_ge(huge_bytes(p), 4 * PAGE);
	move_to(p, 4, PAGE, gpu.node, ALL_FLAGS);
	gpu_check(&gpu, p, 2 * PAGE, 1);
	move_to(p, 4, PAGE, 0, 0);
	kernel_says(p, 4 * PAGE, 0);
	cpu_check(p, 4 * PAGE, 1);
}
END_TEST

static void exchange(char *p, char *q, size_t n, size_t step, int status,
		     int flags)
{
	void *from[MAX], *to[MAX];
	int result[MAX];

	for (size_t i = 0; i < n; i++) {
		from[i] = p + i * step;
		to[i] = q + i * step;
	}
	works(gm_exchange_pages(n, from, to, result, flags));
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(result[i], status);
}

START_TEST(unified_pages_change_nodes)
{
	int flags = all_flags[_i];
	struct gm_stats s = stats();
	char *p = um(5), *q = um(5);

	fill_on(p, 5 * PAGE, 1, 0);
	fill_on(q, 5 * PAGE, 2, 1);
	exchange(p, q, 5, PAGE, 1, flags);
	kernel_says(p, 5 * PAGE, 1);
	kernel_says(q, 5 * PAGE, 0);
	ck_assert_uint_eq(since(s, exchanged), 5);
	ck_assert_uint_ge(huge_bytes(p), 5 * PAGE);
	ck_assert_uint_ge(huge_bytes(q), 5 * PAGE);
	cpu_check(p, 5 * PAGE, 1);
	cpu_check(q, 5 * PAGE, 2);
}
END_TEST

/* --- while others write --------------------------------------------------- */

static int counting;

static void *count_up(void *arg)
{
	uint64_t n = 0;

	while (__atomic_load_n(&counting, __ATOMIC_ACQUIRE)) {
		__atomic_fetch_add((uint64_t *)arg, 1, __ATOMIC_SEQ_CST);
		n++;
	}
	return (void *)n;
}

/* Move and exchange while two threads write, one in each range. */
static void write_meanwhile(char *p, char *q, size_t step, int rounds)
{
	pthread_t a, b;
	void *na, *nb;

	*(uint64_t *)p = *(uint64_t *)q = 0;
	counting = 1;
	ck_assert_int_eq(pthread_create(&a, NULL, count_up, p), 0);
	ck_assert_int_eq(pthread_create(&b, NULL, count_up, q), 0);
	for (int i = 0; i < rounds; i++) {
		void *ps[2] = { p, p + step }, *qs[2] = { q, q + step };
		int to[2] = { i >> 1 & 1, i >> 1 & 1 }, status[2];

		ck_assert_int_ge(
			gm_move_pages(2, ps, to, status, all_flags[i % 4]), 0);
		ck_assert_int_ge(
			gm_exchange_pages(2, ps, qs, status, all_flags[i % 4]),
			0);
	}
	__atomic_store_n(&counting, 0, __ATOMIC_RELEASE);
	pthread_join(a, &na);
	pthread_join(b, &nb);
	ck_assert_uint_eq(*(uint64_t *)p, (uint64_t)na);
	ck_assert_uint_eq(*(uint64_t *)q, (uint64_t)nb);
	ck_assert_uint_gt((uint64_t)na, 0);
}

START_TEST(no_store_to_unified_pages_is_lost)
{
	struct gm_stats s = stats();
	char *p = um(2), *q = um(2);

	cpu_fill(p, 2 * PAGE, 1);
	cpu_fill(q, 2 * PAGE, 2);
	write_meanwhile(p, q, PAGE, 40);
	ck_assert_uint_gt(since(s, moved), 10);
	ck_assert_uint_gt(since(s, exchanged), 10);
	cpu_check_from(p, WORDS, 2 * WORDS, 1);
	cpu_check_from(q, WORDS, 2 * WORDS, 2);
}
END_TEST

/* --- plain memory ---------------------------------------------------------- */

START_TEST(plain_base_pages_move)
{
	char *p = plain(MAX * SMALL);

	ck_assert_int_eq(madvise(p, MAX * SMALL, MADV_NOHUGEPAGE), 0);
	fill_on(p, MAX * SMALL, 1, 0);
	move_to(p, MAX, SMALL, 1, ALL_FLAGS);
	kernel_says(p, MAX * SMALL, 1);
	move_to(p, 4, SMALL, 0, 0);
	kernel_says(p, 4 * SMALL, 0);
	cpu_check(p, MAX * SMALL, 1);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, two_nodes_are_listed);
	tcase_add_loop_test(tc, unified_pages_move_between_host_nodes, 0, 4);
	tcase_add_test(tc, prefetch_to_a_host_node_goes_there);
	tcase_add_test(tc, read_only_pages_move_too);
	tcase_add_test(tc, xpu_and_both_host_nodes);
	tcase_add_loop_test(tc, unified_pages_change_nodes, 0, 4);
	tcase_add_test(tc, no_store_to_unified_pages_is_lost);
	tcase_add_test(tc, plain_base_pages_move);
}

int main(void)
{
	if (access("/sys/devices/system/node/node1", F_OK)) {
		puts("skipped: this machine has one node");
		return 77;
	}
	return run_suite("nodes", add);
}
