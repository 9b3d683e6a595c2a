/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* move.c - gm_move_pages() and gm_exchange_pages() of unified memory */
#include <pthread.h>

#include "fake.h"

#define CAPS (GM_CAP_REPLAY | GM_CAP_WRITE_FAULT | GM_CAP_COPY_ENGINES)
#define ALL_FLAGS (GM_MOVE_PARALLEL | GM_MOVE_CONCURRENT)
enum { MAX = 24 };

static const int all_flags[] = { 0, GM_MOVE_PARALLEL, GM_MOVE_CONCURRENT,
				 ALL_FLAGS };

/* A list of neighbouring pages. */
struct list {
	void *pages[MAX];
	int nodes[MAX];
	int status[MAX];
	int n;
};

static void list_make(struct list *l, char *p, int n, int node)
{
	l->n = n;
	for (int i = 0; i < n; i++) {
		l->pages[i] = p + (size_t)i * PAGE;
		l->nodes[i] = node;
		l->status[i] = -EINVAL;
	}
}

static void list_is(const struct list *l, int status)
{
	for (int i = 0; i < l->n; i++)
		ck_assert_msg(l->status[i] == status,
			      "page %d: status %d, not %d: %s", i, l->status[i],
			      status, gm_error());
}

static void move_all(char *p, int n, int node, int flags)
{
	struct list l;

	list_make(&l, p, n, node);
	works(gm_move_pages((unsigned long)n, l.pages, l.nodes, l.status,
			    flags));
	list_is(&l, node);
}

static void are_on(char *p, int n, int node)
{
	struct list l;
	int rc;

	list_make(&l, p, n, 0);
	rc = gm_move_pages((unsigned long)n, l.pages, NULL, l.status, 0);
	ck_assert_int_eq(rc, node < 0 ? n : 0);
	list_is(&l, node);
}

START_TEST(without_nodes_it_reports)
{
	char *p = um(4);

	gpu_start(&gpu, 4);
	are_on(p, 4, -ENOENT);
	cpu_fill(p, 2 * PAGE, 1);
	gpu_fill(&gpu, p + 2 * PAGE, 2 * PAGE, 1);
	are_on(p, 2, HOST);
	are_on(p + 2 * PAGE, 2, gpu.node);
	/* Nothing was touched by asking. */
	all_in(p + 2 * PAGE, 2, GM_STATE_MODIFIED, 1ull << gpu.node);
	works(gm_munmap(p, PAGE));
	are_on(p, 1, -EFAULT);
}
END_TEST

START_TEST(lists_move_there_and_back)
{
	int flags = all_flags[_i];
	char *p = um(20);
	struct gm_stats s;

	gpu_start(&gpu, 20);
	gpu_start(&gpu2, 20);
	cpu_fill(p, 20 * PAGE, 1);
	s = stats();
	move_all(p, 20, gpu.node, flags);
	are_on(p, 20, gpu.node);
	ck_assert_uint_eq(since(s, moved), 20);
	ck_assert_uint_eq(since(s, to_xpu), 20);
	move_all(p, 20, gpu2.node, flags);
	gpu_check(&gpu2, p, 20 * PAGE, 1);
	gpu_fill(&gpu2, p, 20 * PAGE, 2);
	move_all(p, 20, gpu.node, flags);
	ck_assert_uint_gt(since(s, xpu_to_xpu), 0);
	move_all(p, 20, HOST, flags);
	are_on(p, 20, HOST);
	cpu_check(p, 20 * PAGE, 2);
	/* They are there: nothing moves. */
	s = stats();
	move_all(p, 20, HOST, flags);
	ck_assert_uint_eq(since(s, moved), 0);
}
END_TEST

START_TEST(each_page_has_its_own_status)
{
	char *p = um(6), *q = plain(SMALL);
	void *pages[8] = { p + 3 * PAGE,
			   p,
			   p + PAGE + 17,
			   p + PAGE,
			   p + 4 * PAGE,
			   p + 2 * PAGE,
			   q,
			   p };
	int nodes[8], status[8];

	gpu_start(&gpu, 8);
	for (int i = 0; i < 8; i++)
		nodes[i] = gpu.node;
	cpu_fill(p, 4 * PAGE, 1);
	memset(q, 1, SMALL);
	works(gmadvise(HOST, p + 2 * PAGE, PAGE, GM_PIN));
	works(gm_mprotect(p, PAGE, PROT_NONE));
	ck_assert_int_eq(gm_move_pages(8, pages, nodes, status, ALL_FLAGS), 5);
	ck_assert_int_eq(status[0], gpu.node);
	ck_assert_int_eq(status[1], -EACCES);
	ck_assert_int_eq(status[2], gpu.node);
	ck_assert_int_eq(status[3], gpu.node);
	ck_assert_int_eq(status[4], -ENOENT);
	ck_assert_int_eq(status[5], -EBUSY);
	ck_assert_int_eq(status[6], -ENODEV);
	ck_assert_int_eq(status[7], -EACCES);
	works(gm_mprotect(p, PAGE, RW));
	works(gmadvise(HOST, p + 2 * PAGE, PAGE, GM_UNPIN));
	cpu_check(p, 4 * PAGE, 1);
	nodes[6] = HOST;
	ck_assert_int_eq(gm_move_pages(1, pages + 6, nodes + 6, status, 0), 0);
	ck_assert_int_eq(status[0], HOST);
}
END_TEST

START_TEST(reasons_are_counted)
{
	char *p = um(3);
	struct gm_stats s;
	struct list l;

	gpu_start(&gpu, 2);
	cpu_fill(p, 3 * PAGE, 1);
	works(gmadvise(gpu.node, p, 2 * PAGE, GM_PIN));
	s = stats();
	list_make(&l, p + 2 * PAGE, 1, gpu.node);
	ck_assert_int_eq(gm_move_pages(1, l.pages, l.nodes, l.status, 0), 1);
	list_is(&l, -ENOMEM);
	ck_assert_uint_eq(since(s, move_nomem), 1);
	works(gmadvise(0, p, 2 * PAGE, GM_UNPIN));
	/* A page that was cut stays. */
	works(gm_munmap(p + 2 * PAGE + SMALL, SMALL));
	ck_assert_int_eq(gm_move_pages(1, l.pages, l.nodes, l.status, 0), 1);
	list_is(&l, -EFAULT);
	ck_assert_uint_eq(since(s, move_failed), 1);
	ck_assert_uint_eq(since(s, faults_failed), 0);
}
END_TEST

START_TEST(bad_input_changes_nothing)
{
	char *p = um(2);
	struct list l;
	void *rodata = (void *)(uintptr_t) "constant, never written";

	cpu_fill(p, 2 * PAGE, 1);
	list_make(&l, p, 2, HOST);
	fails(gm_move_pages(2, l.pages, l.nodes, l.status, 1), EINVAL);
	fails(gm_exchange_pages(1, l.pages, l.pages, l.status, 1 << 8), EINVAL);
	fails(gm_move_pages(2, NULL, l.nodes, l.status, 0), EFAULT);
	fails(gm_move_pages(2, l.pages, (int *)8, l.status, 0), EFAULT);
	fails(gm_move_pages(2, l.pages, l.nodes, NULL, 0), EFAULT);
	fails(gm_move_pages(2, l.pages, l.nodes, rodata, 0), EFAULT);
	fails(gm_move_pages(1ul << 62, l.pages, l.nodes, l.status, 0), EFAULT);
	fails(gm_exchange_pages(2, l.pages, NULL, l.status, 0), EFAULT);
	l.nodes[1] = 63;
	fails(gm_move_pages(2, l.pages, l.nodes, l.status, 0), ENODEV);
	l.nodes[1] = -1;
	fails(gm_move_pages(2, l.pages, l.nodes, l.status, 0), ENODEV);
	list_is(&l, -EINVAL);
	works(gm_move_pages(0, NULL, NULL, NULL, 0));
	works(gm_exchange_pages(0, NULL, NULL, NULL, 0));
	cpu_check(p, 2 * PAGE, 1);
}
END_TEST

static void exchange_all(char *from, char *to, int n, int status, int flags)
{
	struct list a, b;

	list_make(&a, from, n, 0);
	list_make(&b, to, n, 0);
	works(gm_exchange_pages((unsigned long)n, a.pages, b.pages, a.status,
				flags));
	list_is(&a, status);
}

START_TEST(full_xpu_exchanges_with_the_host)
{
	int flags = all_flags[_i];
	char *p = um(20), *q = um(20);
	struct gm_stats s;

	gpu_start(&gpu, 20);
	gpu_fill(&gpu, p, 20 * PAGE, 1);
	cpu_fill(q, 20 * PAGE, 2);
	s = stats();
	exchange_all(p, q, 20, HOST, flags);
	are_on(p, 20, HOST);
	are_on(q, 20, gpu.node);
	ck_assert_uint_eq(since(s, exchanged), 20);
	/* There was room for none of them. */
	ck_assert_uint_eq(since(s, evicted_dirty) + since(s, evicted_clean), 0);
	ck_assert_uint_eq(since(s, reclaims), 0);
	ck_assert_uint_eq(since(s, to_xpu), 0);
	cpu_check(p, 20 * PAGE, 1);
	gpu_check(&gpu, q, 20 * PAGE, 2);
	/* The other way about, and of pages that both have. */
	cpu_check(q, 20 * PAGE, 2);
	gpu_peek(&gpu, p, 10);
	exchange_all(q, p, 10, gpu.node, flags);
	gpu_check(&gpu, q, 10 * PAGE, 2);
	cpu_check(p, 20 * PAGE, 1);
}
END_TEST

START_TEST(two_xpus_exchange)
{
	int flags = all_flags[_i];
	char *p = um(9), *q = um(9);

	/* With room for what the checking kernels say. */
	gpu_start(&gpu, 10);
	gpu_start(&gpu2, 10);
	gpu_fill(&gpu, p, 9 * PAGE, 1);
	gpu_fill(&gpu2, q, 9 * PAGE, 2);
	exchange_all(p, q, 9, gpu2.node, flags);
	are_on(p, 9, gpu2.node);
	are_on(q, 9, gpu.node);
	gpu_check(&gpu2, p, 9 * PAGE, 1);
	gpu_check(&gpu, q, 9 * PAGE, 2);
	exchange_all(p, q, 9, gpu.node, flags);
	cpu_check(p, 9 * PAGE, 1);
	cpu_check(q, 9 * PAGE, 2);
}
END_TEST

START_TEST(exchange_that_is_none)
{
	char *p = um(4);
	void *from[6] = { p, p, p, p + PAGE, p + 3 * PAGE, p };
	void *to[6] = { p + PAGE + 5, p, p + 2 * PAGE, p + PAGE, p, plain(8) };
	struct gm_stats s;
	int status[6];

	gpu_start(&gpu, 4);
	cpu_fill(p, 2 * PAGE, 1);
	gpu_fill(&gpu, p + 3 * PAGE, PAGE, 3);
	works(gmadvise(gpu.node, p + 3 * PAGE, PAGE, GM_PIN));
	s = stats();
	ck_assert_int_eq(gm_exchange_pages(6, from, to, status, ALL_FLAGS), 3);
	ck_assert_int_eq(status[0], HOST); /* of one node */
	ck_assert_int_eq(status[1], HOST); /* with itself */
	ck_assert_int_eq(status[2], -ENOENT);
	ck_assert_int_eq(status[3], HOST);
	ck_assert_int_eq(status[4], -EBUSY);
	ck_assert_int_eq(status[5], -EINVAL); /* of two kinds */
	ck_assert_uint_eq(since(s, exchanged), 0);
	ck_assert_uint_eq(since(s, move_absent), 1);
	ck_assert_uint_eq(since(s, move_busy), 1);
	cpu_check(p, 2 * PAGE, 1);
}
END_TEST

/* --- while others write -------------------------------------------------- */

enum { COUNTS = 40000 };

static void *count_up(void *arg)
{
	for (int i = 0; i < COUNTS; i++)
		__atomic_fetch_add((uint64_t *)arg, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

START_TEST(no_store_is_lost_meanwhile)
{
	char *p = um(2), *q = um(2);
	struct kargs a = { .dst = (uint64_t *)q, .n = COUNTS };
	struct gm_stats s = stats();
	pthread_t thread;

	gpu_start(&gpu, 4);
	cpu_fill(p + PAGE, PAGE, 5);
	cpu_fill(q + PAGE, PAGE, 6);
	ck_assert_int_eq(pthread_create(&thread, NULL, count_up, p), 0);
	gpu_launch(&gpu, "count", 1, &a);
	for (int i = 0; i < 300; i++) {
		int flags = all_flags[i % 4], status[2], to[2] = { 0, 0 };
		void *ps[2] = { p, p + PAGE }, *qs[2] = { q, q + PAGE };

		to[i & 1] = gpu.node;
		ck_assert_int_ge(gm_move_pages(2, ps, to, status, flags), 0);
		ck_assert_int_ge(gm_exchange_pages(2, ps, qs, status, flags),
				 0);
	}
	pthread_join(thread, NULL);
	ck_assert_int_eq(sgpu_sync(gpu.sgpu, NULL), 0);
	ck_assert_uint_gt(since(s, exchanged), 10);
	ck_assert_uint_eq(*(uint64_t *)p, COUNTS);
	ck_assert_uint_eq(*(uint64_t *)q, COUNTS);
	cpu_check(p + PAGE, PAGE, 5);
	cpu_check(q + PAGE, PAGE, 6);
}
END_TEST

/* --- while operators fail -------------------------------------------------- */

enum { NR = 4 };

/* Exchanges and moves of two times NR pages of which the n-th call fails. */
static unsigned int play_failing(enum fake_op op, unsigned int n, int forever)
{
	char *p = um(NR), *q = um(NR);
	struct list a, b;
	struct fake f;
	unsigned int calls;
	int bad;

	fake_open(&f, NR, CAPS);
	ck_assert_int_eq(fake_attach(&f), 0);
	cpu_fill(p, NR * PAGE, 1);
	cpu_fill(q, NR * PAGE, 2);
	move_all(p, NR, f.node, ALL_FLAGS);
	f.calls[op] = 0;
	f.error = -EIO;
	f.fail_from = forever;
	f.fail_at[op] = n;
	list_make(&a, p, NR, f.node);
	list_make(&b, q, NR, HOST);
	bad = gm_exchange_pages(NR, a.pages, b.pages, a.status,
				all_flags[n % 4]);
	ck_assert_int_ge(bad, 0);
	for (int i = 0; i < NR; i++)
		ck_assert_msg(a.status[i] >= 0 || a.status[i] == -EIO,
			      "status %d: %s", a.status[i], gm_error());
	ck_assert_int_ge(
		gm_move_pages(NR, a.pages, a.nodes, a.status, all_flags[n % 4]),
		0);
	calls = f.calls[op];
	if (op == OP_COPY && n <= calls && n < 2 * NR && !forever)
		ck_assert_int_gt(bad, 0);
	fake_heal(&f);
	cpu_check(q, NR * PAGE, 2);
	cpu_check(p, NR * PAGE, 1);
	/* Well again. */
	move_all(p, NR, f.node, ALL_FLAGS);
	exchange_all(p, q, NR, HOST, ALL_FLAGS);
	cpu_check(p, NR * PAGE, 1);
	cpu_check(q, NR * PAGE, 2);
	works(gm_munmap(p, NR * PAGE));
	works(gm_munmap(q, NR * PAGE));
	fake_detach(&f);
	fake_close(&f);
	return calls;
}

START_TEST(operators_that_fail_lose_nothing)
{
	static const enum fake_op ops[] = { OP_ENTER, OP_CLEAR, OP_COPY };
	unsigned int n, calls = 1, step = ops[_i] == OP_COPY ? 7 : 1;

	for (n = 1; n <= calls; n += step)
		calls = play_failing(ops[_i], n, 0);
	ck_assert_uint_gt(n, 1);
}
END_TEST

/* All writes fail from the n-th on: what was exchanged comes home by reads. */
START_TEST(xpu_that_fails_for_good_is_left_with_nothing)
{
	for (unsigned int n = 2; n < 100; n += 24) {
		char *p = um(1), *q = um(1);
		void *from = p, *to = q;
		struct fake f;
		int status;

		fake_open(&f, 1, CAPS);
		ck_assert_int_eq(fake_attach(&f), 0);
		cpu_fill(p, PAGE, 1);
		cpu_fill(q, PAGE, 2);
		move_all(p, 1, f.node, 0);
		f.calls[OP_COPY] = 0;
		f.error = -EIO;
		f.fail_at[OP_COPY] = n;
		ck_assert_int_eq(gm_exchange_pages(1, &from, &to, &status, 0),
				 n > 64 ? 0 : 1);
		ck_assert_int_eq(status, n > 64 ? HOST : -EIO);
		are_on(p, 1, HOST);
		are_on(q, 1, n > 64 ? f.node : HOST);
		fake_heal(&f);
		cpu_check(p, PAGE, 1);
		cpu_check(q, PAGE, 2);
		fake_detach(&f);
		fake_close(&f);
	}
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, without_nodes_it_reports);
	tcase_add_loop_test(tc, lists_move_there_and_back, 0, 4);
	tcase_add_test(tc, each_page_has_its_own_status);
	tcase_add_test(tc, reasons_are_counted);
	tcase_add_test(tc, bad_input_changes_nothing);
	tcase_add_loop_test(tc, full_xpu_exchanges_with_the_host, 0, 4);
	tcase_add_loop_test(tc, two_xpus_exchange, 0, 4);
	tcase_add_test(tc, exchange_that_is_none);
	tcase_add_test(tc, no_store_is_lost_meanwhile);
	tcase_add_loop_test(tc, operators_that_fail_lose_nothing, 0, 3);
	tcase_add_test(tc, xpu_that_fails_for_good_is_left_with_nothing);
}

int main(void)
{
	return run_suite("move", add);
}
