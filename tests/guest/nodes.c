/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * nodes.c - pages on two host nodes, by the kernel's own word
 *
 * For a machine with two NUMA nodes; all CPUs may be on the first.
 */
#include <dlfcn.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

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

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (unsigned long)p >= from &&
				 (unsigned long)p < to;
		else if (inside && sscanf(line, "AnonHugePages: %lu", &kb) == 1)
			break;
	}
	if (f)
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

/* Two huge pages each; the first of both are written while they move. */
static void check_no_store_is_lost(char *p, char *q)
{
	struct gm_stats s = stats();

	cpu_fill(p, 2 * PAGE, 1);
	cpu_fill(q, 2 * PAGE, 2);
	write_meanwhile(p, q, PAGE, 40);
	ck_assert_uint_gt(since(s, moved), 10);
	ck_assert_uint_gt(since(s, exchanged), 10);
	cpu_check_from(p, WORDS, 2 * WORDS, 1);
	cpu_check_from(q, WORDS, 2 * WORDS, 2);
}

START_TEST(no_store_to_unified_pages_is_lost)
{
	check_no_store_is_lost(um(2), um(2));
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

static char *plain_huge(size_t pages)
{
	char *raw = plain((pages + 1) * PAGE);
	char *p = (char *)(((uintptr_t)raw + PAGE - 1) & ~(PAGE - 1));

	ck_assert_int_eq(madvise(p, pages * PAGE, MADV_HUGEPAGE), 0);
	return p;
}

START_TEST(plain_huge_pages_move_and_stay_huge)
{
	int flags = all_flags[_i];
	char *p = plain_huge(6);
	struct gm_stats s = stats();

	fill_on(p, 6 * PAGE, 1, 0);
	ck_assert_uint_eq(huge_bytes(p), 6 * PAGE);
	for (int round = 0; round < 3; round++) {
		int node = !(round & 1);

		move_to(p, 6, PAGE, node, flags);
		kernel_says(p, 6 * PAGE, node);
		ck_assert_uint_eq(huge_bytes(p), 6 * PAGE);
		cpu_check(p, 6 * PAGE, 1);
	}
	ck_assert_uint_eq(since(s, moved), 18);
	/* Not Linux did it, but we. */
	ck_assert_uint_eq(since(s, move_kernel), 0);
	ck_assert_uint_eq(since(s, between_hosts), 18);
}
END_TEST

START_TEST(plain_pages_change_nodes)
{
	int flags = all_flags[_i];
	char *p = plain_huge(9), *q = plain_huge(9);
	char *a = p + 8 * PAGE, *b = q + 8 * PAGE;
	struct gm_stats s = stats();

	ck_assert_int_eq(madvise(a, PAGE, MADV_NOHUGEPAGE), 0);
	ck_assert_int_eq(madvise(b, PAGE, MADV_NOHUGEPAGE), 0);
	fill_on(p, 8 * PAGE, 1, 0);
	fill_on(q, 8 * PAGE, 2, 1);
	fill_on(a, MAX * SMALL, 3, 1);
	fill_on(b, MAX * SMALL, 4, 0);
	exchange(p, q, 8, PAGE, 1, flags);
	kernel_says(p, 8 * PAGE, 1);
	kernel_says(q, 8 * PAGE, 0);
	ck_assert_uint_eq(huge_bytes(p), 8 * PAGE);
	ck_assert_uint_eq(huge_bytes(q), 8 * PAGE);
	exchange(a, b, MAX, SMALL, 0, flags);
	kernel_says(a, MAX * SMALL, 0);
	kernel_says(b, MAX * SMALL, 1);
	ck_assert_uint_eq(since(s, exchanged), 8 + MAX);
	cpu_check(p, 8 * PAGE, 1);
	cpu_check(q, 8 * PAGE, 2);
	cpu_check(a, MAX * SMALL, 3);
	cpu_check(b, MAX * SMALL, 4);
}
END_TEST

START_TEST(plain_pairs_that_cannot_be)
{
	char *p = plain_huge(2), *shared, *u = um(1);
	void *from[5], *to[5];
	int status[5];

	shared = mmap(NULL, SMALL, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fill_on(p, PAGE, 1, 0);
	ck_assert_int_eq(madvise(p + PAGE, PAGE, MADV_NOHUGEPAGE), 0);
	fill_on(p + PAGE, 2 * SMALL, 2, 1);
	fill_on(shared, SMALL, 3, 0);
	cpu_fill(u, PAGE, 4);
	from[0] = p; /* of two sizes */
	to[0] = p + PAGE;
	from[1] = shared;
	to[1] = p + PAGE;
	from[2] = p + PAGE + 4 * SMALL; /* not there */
	to[2] = p;
	from[3] = p;
	to[3] = u;
	from[4] = p + PAGE; /* of one node */
	to[4] = p + PAGE + SMALL;
	ck_assert_int_eq(gm_exchange_pages(5, from, to, status, ALL_FLAGS), 4);
	ck_assert_int_eq(status[0], -EINVAL);
	ck_assert_int_eq(status[1], -EACCES);
	ck_assert_int_eq(status[2], -ENOENT);
	ck_assert_int_eq(status[3], -EINVAL);
	ck_assert_int_eq(status[4], 1);
}
END_TEST

START_TEST(other_plain_pages_are_left_to_linux)
{
	char *locked = plain_huge(1), *shared, *file;
	struct gm_stats s = stats();
	int fd = memfd_create("file", 0);

	ck_assert_int_eq(ftruncate(fd, SMALL), 0);
	file = mmap(NULL, SMALL, RW, MAP_PRIVATE, fd, 0);
	shared = mmap(NULL, SMALL, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fill_on(locked, PAGE, 1, 0);
	ck_assert_int_eq(mlock(locked, PAGE), 0);
	fill_on(file, SMALL, 2, 0);
	fill_on(shared, SMALL, 3, 0);
	move_to(locked, 1, PAGE, 1, ALL_FLAGS);
	move_to(file, 1, SMALL, 1, ALL_FLAGS);
	move_to(shared, 1, SMALL, 1, ALL_FLAGS);
	kernel_says(locked, PAGE, 1);
	kernel_says(file, SMALL, 1);
	kernel_says(shared, SMALL, 1);
	ck_assert_uint_eq(since(s, move_kernel), 3);
	cpu_check(locked, PAGE, 1);
	cpu_check(file, SMALL, 2);
	cpu_check(shared, SMALL, 3);
	close(fd);
}
END_TEST

/* --- and while the program does everything to its mappings -------------------- */

static char *target;

static void *move_about(void *arg)
{
	for (int i = 0; __atomic_load_n(&counting, __ATOMIC_ACQUIRE); i++) {
		void *pages[4];
		int nodes[4], status[4];

		for (size_t k = 0; k < 4; k++) {
			pages[k] = __atomic_load_n(&target, __ATOMIC_ACQUIRE) +
				   k * PAGE;
			nodes[k] = i & 1;
		}
		ck_assert_int_ge(gm_move_pages(4, pages, nodes, status,
					       all_flags[i % 4]),
				 0);
	}
	return arg;
}

START_TEST(no_store_to_plain_pages_is_lost)
{
	char *p = plain_huge(4);
	pthread_t mover;
	uint64_t *words = (uint64_t *)p;
	uint64_t n = 0;
	struct gm_stats s = stats();

	cpu_fill(p, 4 * PAGE, 1);
	target = p;
	counting = 1;
	ck_assert_int_eq(pthread_create(&mover, NULL, move_about, NULL), 0);
	while (since(s, moved) < 40) {
		for (int i = 0; i < 1000; i++, n++)
			for (size_t k = 0; k < 4; k++)
				__atomic_store_n(words + k * WORDS, n,
						 __ATOMIC_RELAXED);
		for (size_t k = 0; k < 4; k++)
			ck_assert_uint_eq(words[k * WORDS], n - 1);
	}
	__atomic_store_n(&counting, 0, __ATOMIC_RELEASE);
	pthread_join(mover, NULL);
	for (size_t k = 0; k < 4; k++)
		cpu_check_from(p, k * WORDS + 1, (k + 1) * WORDS, 1);
}
END_TEST

START_TEST(no_store_to_exchanged_plain_pages_is_lost)
{
	check_no_store_is_lost(plain_huge(2), plain_huge(2));
}
END_TEST

START_TEST(mappings_change_meanwhile)
{
	char *p = plain_huge(8), *q = plain_huge(8);
	struct gm_stats s = stats();
	pthread_t mover;

	cpu_fill(p, 4 * PAGE, 1);
	target = p;
	counting = 1;
	ck_assert_int_eq(pthread_create(&mover, NULL, move_about, NULL), 0);
	for (int i = 0; i < 10 || since(s, moved) < 20; i++) {
		char *to = i & 1 ? p : q, *from = i & 1 ? q : p;
		pid_t pid;
		int st;

		/* A whole page and a part go; the rest moves elsewhere. */
		ck_assert_int_eq(madvise(from + 2 * PAGE, PAGE, MADV_DONTNEED),
				 0);
		ck_assert_int_eq(
			madvise(from + 3 * PAGE + SMALL, SMALL, MADV_DONTNEED),
			0);
		all_zero(from + 2 * PAGE, PAGE);
		all_zero(from + 3 * PAGE + SMALL, SMALL);
		ck_assert_ptr_eq(mremap(from, 4 * PAGE, 4 * PAGE,
					MREMAP_MAYMOVE | MREMAP_FIXED, to),
				 to);
		__atomic_store_n(&target, to, __ATOMIC_RELEASE);
		cpu_check(to, 2 * PAGE, 1);
		all_zero(to + 2 * PAGE, PAGE);
		cpu_check_from(to, 3 * WORDS, 3 * WORDS + SMALL / 8, 1);
		cpu_check_from(to, 3 * WORDS + SMALL / 4, 4 * WORDS, 1);
		/* A child has all of it. */
		pid = i % 8 ? 0 : fork();
		if (i % 8 == 0 && !pid) {
			int bad = 0;

			for (size_t w = 0; w < 2 * WORDS; w += 512)
				bad |= ((uint64_t *)to)[w] != pattern(1, w);
			_exit(bad);
		}
		if (i % 8 == 0) {
			ck_assert_int_eq(waitpid(pid, &st, 0), pid);
			ck_assert_int_eq(st, 0);
		}
		cpu_fill(to + 2 * PAGE, PAGE, 3);
		cpu_fill(to, 4 * PAGE, 1);
	}
	__atomic_store_n(&counting, 0, __ATOMIC_RELEASE);
	pthread_join(mover, NULL);
}
END_TEST

/* --- an unchanged program ------------------------------------------------------ */

/* Executed anew, under the preload library. */
static int be_unchanged(void)
{
	long (*call)(int, unsigned long, void **, const int *, int *, int) =
		(long (*)(int, unsigned long, void **, const int *, int *,
			  int))dlsym(RTLD_DEFAULT, "move_pages");
	char *p = mmap(NULL, 3 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *page = (char *)(((uintptr_t)p + PAGE - 1) & ~(PAGE - 1));
	void *pages[1] = { page };
	int node = 1, status = -1;
	struct gm_stats s;

	if (!call || p == MAP_FAILED || madvise(page, PAGE, MADV_HUGEPAGE))
		return 2;
	memset(page, 7, PAGE);
	if (call(0, 1, pages, NULL, &status, 0) || status != 0)
		return 3;
	if (call(getpid(), 1, pages, &node, &status, MPOL_MF_MOVE) ||
	    status != 1)
		return 4;
	if (huge_bytes(page) != PAGE || page[PAGE - 1] != 7)
		return 5;
	if (gm_process_stats(&s) || s.moved != 1 || s.move_kernel)
		return 6;
	/* Linux's own: of all who share it. */
	node = 0;
	if (call(0, 1, pages, &node, &status, MPOL_MF_MOVE_ALL) || status)
		return 7;
	return gm_process_stats(&s) || s.moved != 1 ? 8 : 0;
}

START_TEST(unchanged_programs_move_so_under_the_preload_library)
{
	const char *library = getenv("API_TEST_PRELOAD");
	pid_t pid;
	int st;

	ck_assert_ptr_nonnull(library);
	pid = fork();
	if (!pid) {
		setenv("LD_PRELOAD", library, 1);
		execl("/proc/self/exe", "guest-nodes", "unchanged",
		      (char *)NULL);
		_exit(99);
	}
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert_int_eq(st, 0);
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
	tcase_add_loop_test(tc, plain_huge_pages_move_and_stay_huge, 0, 4);
	tcase_add_loop_test(tc, plain_pages_change_nodes, 0, 4);
	tcase_add_test(tc, plain_pairs_that_cannot_be);
	tcase_add_test(tc, no_store_to_exchanged_plain_pages_is_lost);
	tcase_add_test(tc, other_plain_pages_are_left_to_linux);
	tcase_add_test(tc, no_store_to_plain_pages_is_lost);
	tcase_add_test(tc, mappings_change_meanwhile);
	tcase_add_test(tc,
		       unchanged_programs_move_so_under_the_preload_library);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "unchanged"))
		return be_unchanged();
	if (access("/sys/devices/system/node/node1", F_OK)) {
		puts("skipped: this machine has one node");
		return 77;
	}
	return run_suite("nodes", add);
}
