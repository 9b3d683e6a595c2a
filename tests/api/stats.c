/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* stats.c - what the library tells: places, memories, counters, trace, errors */
#include "harness.h"

START_TEST(where_follows_a_page_around)
{
	char *p = um(1);
	struct gm_where w;
	uint64_t xpu;

	gpu_start(&gpu, 4);
	xpu = 1ull << gpu.node;
	w = where(p + 12345);
	ck_assert_uint_eq(w.addr, (uintptr_t)p);
	cpu_fill(p, PAGE, 1);
	w = where(p);
	ck_assert_uint_eq(w.mapped, 1);
	ck_assert_int_eq(w.node, HOST);
	gpu_peek(&gpu, p, 1);
	w = where(p);
	ck_assert_int_eq(w.state, GM_STATE_SHARED);
	ck_assert_uint_eq(w.copies, xpu | 1);
	ck_assert_uint_eq(w.mapped, xpu);
	gpu_poke(&gpu, p, 1, 1);
	w = where(p);
	ck_assert_int_eq(w.state, GM_STATE_MODIFIED);
	ck_assert_uint_eq(w.copies, xpu);
	ck_assert_uint_ge(w.faults, 2);
	evict_all(&gpu);
	w = where(p);
	ck_assert_uint_eq(w.copies, 1);
	ck_assert_uint_eq(w.mapped, 0);
	works(gmadvise(0, p, PAGE, GM_DONTNEED));
	w = where(p);
	ck_assert_int_eq(w.state, GM_STATE_EMPTY);
	ck_assert_int_eq(w.node, GM_NODE_NONE);
	ck_assert_int_eq(gm_where(p + PAGE, &w), -EFAULT);
	ck_assert(strstr(gm_error(), "not unified") != NULL);
	ck_assert_int_eq(gm_where(&w, &w), -EFAULT);
	ck_assert_int_eq(gm_where(NULL, &w), -EFAULT);
}
END_TEST

START_TEST(nodes_tell_what_is_where)
{
	struct gm_node_info n[8], *xpu = NULL, *host = NULL;
	char *p = um(4);
	int nr;

	ck_assert_int_ge(gm_nodes(NULL, 0), 1);
	gpu_start(&gpu, 8);
	put(&gpu, p, 2 * PAGE, 1, ON_XPU);
	put(&gpu, p + 2 * PAGE, PAGE, 2, ON_BOTH);
	works(gmadvise(gpu.node, p, PAGE, GM_PIN));
	nr = gm_nodes(n, 8);
	ck_assert_int_le(nr, 8);
	ck_assert_int_eq(gm_nodes(n, 1), nr);
	for (int i = 0; i < nr; i++) {
		if (n[i].id == gpu.node)
			xpu = &n[i];
		if (n[i].id == HOST)
			host = &n[i];
	}
	ck_assert(xpu && host);
	ck_assert(xpu->is_xpu && !host->is_xpu && !xpu->lost);
	ck_assert_str_eq(host->name, "host");
	ck_assert(*xpu->name);
	ck_assert_uint_eq(xpu->total, 8 * PAGE);
	ck_assert_uint_eq(xpu->resident, 3 * PAGE);
	ck_assert_uint_eq(xpu->free, 5 * PAGE);
	ck_assert_uint_eq(xpu->pinned, PAGE);
	ck_assert_uint_eq(xpu->replicas, PAGE); /* needs no copy back */
	ck_assert_uint_gt(host->total, host->free);
	ck_assert_uint_eq(host->replicas, PAGE);
}
END_TEST

START_TEST(counters_add_up)
{
	struct gm_stats all, part, sum = { 0 };
	struct gm_node_info n[8];
	char *p = um(12);
	int nr;

	gpu_start(&gpu, 4);
	gpu_fill(&gpu, p, 12 * PAGE, 1);
	cpu_check(p, 12 * PAGE, 1);
	works(gmemcpy(gpu.node, p, p + PAGE, PAGE));
	nr = gm_nodes(n, 8);
	works(gm_process_stats(&all));
	for (int i = 0; i < nr; i++) {
		uint64_t *to = (uint64_t *)&sum, *from = (uint64_t *)&part;

		works(gm_node_stats(n[i].id, &part));
		for (size_t k = 0; k < sizeof(sum) / 8; k++)
			to[k] += from[k];
	}
	ck_assert_int_eq(memcmp(&all, &sum, sizeof(all)), 0);
	ck_assert_uint_eq(all.bytes_to_host, all.to_host * PAGE);
	ck_assert_uint_ge(all.evicted_dirty, 8);
	ck_assert_uint_eq(all.bytes_memcpy, PAGE);
	ck_assert_uint_gt(all.ns_copying, 0);
	ck_assert_uint_gt(all.ns_faults, 0);
	ck_assert_int_eq(gm_node_stats(63, &part), -EINVAL);
	ck_assert_int_eq(gm_node_stats(-1, &part), -EINVAL);
	ck_assert_int_eq(gm_node_stats(1000, &part), -EINVAL);
}
END_TEST

START_TEST(region_is_counted_page_by_page)
{
	struct gm_region_stats r;
	char *p = um(8);

	gpu_start(&gpu, 8);
	put(&gpu, p, PAGE, 1, ON_XPU);
	put(&gpu, p + PAGE, PAGE, 1, ON_BOTH);
	put(&gpu, p + 2 * PAGE, PAGE, 1, ON_CPU);
	put(&gpu, p + 3 * PAGE, PAGE, 1, DISCARDED);
	works(gm_mprotect(p + 5 * PAGE, SMALL, PROT_READ));
	works(gm_region_stats(p + 4 * PAGE + 3, &r));
	ck_assert_uint_eq(r.start, (uintptr_t)p);
	ck_assert_uint_eq(r.end, (uintptr_t)p + 8 * PAGE);
	ck_assert_uint_eq(r.states[GM_STATE_SHARED], 1);
	ck_assert_uint_eq(r.states[GM_STATE_FRAGMENTED], 1);
	ck_assert_uint_ge(r.states[GM_STATE_EMPTY], 1);
	ck_assert_uint_eq(r.on_node[gpu.node], 2);
	for (int i = 1; i < GM_NR_STATES; i++)
		r.states[0] += r.states[i];
	ck_assert_uint_eq(r.states[0], 8);
	ck_assert_int_eq(gm_region_stats(p + 8 * PAGE, &r), -EFAULT);
}
END_TEST

START_TEST(trace_is_in_order)
{
	struct gm_event e[64];
	char *p = um(8);
	uint64_t lost = 99, time = 0;
	size_t n;
	int faults = 0, evicts = 0, prefetches = 0, discards = 0, errors = 0;
	struct kargs a = { .dst = (uint64_t *)(p + 100 * PAGE), .n = 1 };

	ck_assert_uint_eq(gm_trace_read(e, 64, &lost), 0);
	ck_assert_uint_eq(lost, 0);
	gpu_start(&gpu, 4);
	ck_assert_int_eq(gm_trace_start(64), 0);
	gpu_poke(&gpu, p, 6, 1);
	works(gmadvise(gpu.node, p + 6 * PAGE, PAGE, GM_WILLNEED));
	works(gmadvise(GM_NODE_NONE, p, PAGE, GM_DONTNEED));
	gpu_try(&gpu, "poke", 1, &a);
	n = gm_trace_read(e, 64, &lost);
	ck_assert_uint_eq(lost, 0);
	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_ge(e[i].time, time);
		ck_assert_uint_le(e[i].duration, e[i].time);
		time = e[i].time;
		faults += e[i].kind == GM_EV_FAULT;
		evicts += e[i].kind == GM_EV_EVICT;
		prefetches += e[i].kind == GM_EV_PREFETCH;
		discards += e[i].kind == GM_EV_DISCARD;
		errors += e[i].kind == GM_EV_ERROR;
		if (e[i].kind == GM_EV_FAULT) {
			ck_assert_int_eq(e[i].to, gpu.node);
			ck_assert_int_eq(e[i].from, GM_NODE_NONE);
			ck_assert_int_eq(e[i].access, GM_WRITE);
			ck_assert_uint_eq(e[i].bytes, 0);
		}
		if (e[i].kind == GM_EV_EVICT)
			ck_assert_uint_eq(e[i].bytes, PAGE);
		if (e[i].kind == GM_EV_PREFETCH)
			ck_assert_uint_eq(e[i].addr, (uintptr_t)p + 6 * PAGE);
	}
	ck_assert_int_eq(faults, 6);
	ck_assert_int_ge(evicts, 2);
	ck_assert_int_eq(prefetches, 1);
	ck_assert_int_eq(discards, 1);
	ck_assert_int_eq(errors, 1);
	ck_assert_uint_eq(gm_trace_read(e, 64, &lost), 0);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
}
END_TEST

START_TEST(trace_counts_what_it_loses)
{
	struct gm_event e[8];
	char *p = um(30);
	uint64_t lost;

	gpu_start(&gpu, 32);
	ck_assert_int_eq(gm_trace_start(8), 0);
	gpu_poke(&gpu, p, 30, 1);
	ck_assert_uint_eq(gm_trace_read(e, 3, &lost), 3);
	ck_assert_uint_eq(lost, 22);
	ck_assert_uint_eq(gm_trace_read(e, 8, &lost), 5);
	ck_assert_uint_eq(lost, 0);
	ck_assert_uint_eq(e[4].addr, (uintptr_t)p + 29 * PAGE);
	ck_assert_int_eq(gm_trace_start(0), 0);
	gpu_poke(&gpu, p, 30, 1);
	ck_assert_uint_eq(gm_trace_read(e, 8, NULL), 0);
	ck_assert_int_eq(gm_trace_start(SIZE_MAX / 64), -ENOMEM);
	ck_assert(*gm_error());
}
END_TEST

/* --- gm_error() ------------------------------------------------------------------ */

static char said[64][512];
static unsigned int nr_said;

static void say(const char *what)
{
	ck_assert_msg(*gm_error(), "%s: no text", what);
	for (unsigned int i = 0; i < nr_said; i++)
		ck_assert_msg(strcmp(said[i], gm_error()) != 0,
			      "%s: said before: %s", what, gm_error());
	snprintf(said[nr_said++], 512, "%s", gm_error());
}

#define causes(call)           \
	do {                   \
		(void)!(call); \
		say(#call);    \
	} while (0)

START_TEST(no_two_causes_share_a_text)
{
	char *p = um(4), *none = um(1), *hole = um(3);
	struct gm_where w;
	struct gm_stats s;

	gpu_start(&gpu, 4);
	works(gm_munmap(none, PAGE));
	works(gm_munmap(hole + PAGE, PAGE));
	causes(gm_mmap(0, 0, RW, UNIFIED, -1, 0) == MAP_FAILED);
	causes(gm_mmap(0, 1, RW, MAP_PRIVATE, -1, 0) == MAP_FAILED);
	causes(gm_mmap(0, 1, PROT_EXEC, UNIFIED, -1, 0) == MAP_FAILED);
	causes(gm_mmap(0, 1, RW, UNIFIED, 3, 0) == MAP_FAILED);
	causes(gm_mmap(0, SIZE_MAX, RW, UNIFIED, -1, 0) == MAP_FAILED);
	causes(gm_mmap((void *)1, 1, RW, UNIFIED | MAP_FIXED, -1, 0) ==
	       MAP_FAILED);
	causes(gm_mmap(p, 1, RW, UNIFIED | MAP_FIXED_NOREPLACE, -1, 0) ==
	       MAP_FAILED);
	causes(gm_munmap(p + 3, 1));
	causes(gm_munmap(none, 1));
	causes(gm_munmap(p, SIZE_MAX));
	causes(gm_mprotect(p, PAGE, PROT_EXEC | PROT_READ));
	causes(gm_mprotect(hole, 3 * PAGE, PROT_READ));
	causes(gm_mremap(p + 1, 1, 1, 0) == MAP_FAILED);
	causes(gm_mremap(none, PAGE, 2 * PAGE, 0) == MAP_FAILED);
	causes(gmadvise(0, p, 1, 17));
	causes(gmadvise(60, p, 1, GM_WILLNEED));
	causes(gmadvise(gpu.node, hole, 3 * PAGE, GM_WILLNEED));
	causes(gm_where(none, &w));
	causes(gm_node_stats(61, &s));
	works(gmadvise(HOST, p, PAGE, GM_PIN));
	causes(gmadvise(gpu.node, p, PAGE, GM_WILLNEED));
	works(gmadvise(0, p, PAGE, GM_UNPIN));
	works(gmadvise(gpu.node, p, 4 * PAGE, GM_PIN));
	causes(gmadvise(gpu.node, hole, PAGE, GM_WILLNEED));
	causes(gmemcpy(62, p, p, 1));
	causes(gmemcpy(HOST, NULL, p, 1));
	causes(gmemcpy(HOST, p, (void *)4096, 1));
	works(gm_mprotect(hole, PAGE, PROT_READ));
	causes(gmemcpy(HOST, hole, p, 1));
	works(gm_mprotect(hole, PAGE, PROT_NONE));
	causes(gmemcpy(HOST, p, hole, 1));
	ck_assert_int_eq(gm_sgpu_attach(gpu.sgpu, NULL), -EEXIST);
	/* A call that succeeds leaves no text. */
	works(gm_where(p, &w));
	ck_assert_str_eq(gm_error(), "");
}
END_TEST

/* Where the answers go is itself away, and in the page that is asked about. */
START_TEST(answers_in_unified_memory)
{
	const size_t events = 5 * PAGE / sizeof(struct gm_event);
	char *p = um(8);

	gpu_start(&gpu, 8);
	works(gm_trace_start(events));
	/* Some to read. */
	for (size_t i = 0; i < 2000; i += 2) {
		works(gmadvise(gpu.node, p, PAGE, GM_WILLNEED));
		*(volatile char *)p = 1;
	}
	works(gmadvise(gpu.node, p, 8 * PAGE, GM_WILLNEED));
	ck_assert_uint_ge(gm_trace_read((struct gm_event *)(p + PAGE), events,
					(uint64_t *)p),
			  1000);
	gm_trace_start(0);
	works(gmadvise(gpu.node, p, 8 * PAGE, GM_WILLNEED));
	works(gm_where(p, (struct gm_where *)p));
	works(gmadvise(gpu.node, p, 8 * PAGE, GM_WILLNEED));
	works(gm_region_stats(p, (struct gm_region_stats *)p));
	works(gmadvise(gpu.node, p, 8 * PAGE, GM_WILLNEED));
	ck_assert_int_ge(gm_nodes((struct gm_node_info *)p, 8), 2);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, answers_in_unified_memory);
	tcase_add_test(tc, where_follows_a_page_around);
	tcase_add_test(tc, nodes_tell_what_is_where);
	tcase_add_test(tc, counters_add_up);
	tcase_add_test(tc, region_is_counted_page_by_page);
	tcase_add_test(tc, trace_is_in_order);
	tcase_add_test(tc, trace_counts_what_it_loses);
	tcase_add_test(tc, no_two_causes_share_a_text);
}

int main(void)
{
	return run_suite("stats", add);
}
