// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * exhaust.c - one fixed scenario, in which every call of the host and every
 *	operator is made to fail, once at each place where it is called
 *
 * Nothing runs at random. A step that fails has an error with a text and is
 * tried again, and then must succeed; no data may be lost and nothing leak. An
 * operator is also made to say that its device is gone: the rest of the
 * scenario then goes on without it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/torture.h"

struct torture t;
struct torture_totals totals;
bool torture_trace;

void torture_say(const char *what, const struct model *m, uint64_t va,
		 uint64_t len, int err)
{
}

#define PAGES(n) ((uint64_t)(n)*GM_PAGE_SIZE)

static struct sim_dev *devs[2];
static struct sim_ctx *ctxs[2];
static struct model *m;
static uint64_t value;
static uint64_t failed_steps;

/* One failure is injected, so the second try succeeds; a third is for a dead
 * device, of which the first two may have told. */
static void step_failed(int err, int tries, const char *what)
{
	SIM_CHECK(err < 0 && sim.current->has_error, "%s: error %d, no text",
		  what, err);
	SIM_CHECK(sim.injected, "%s: error %d, and nothing was made to fail",
		  what, err);
	SIM_CHECK(tries < 3, "%s fails again and again: %d (%s)", what, err,
		  sim.current->error);
	failed_steps++;
}

/* What was only on a device that is lost cannot be had any more. */
static bool gone(int err)
{
	return (err == -EHWPOISON || err == -EFAULT) &&
	       ((devs[0] && devs[0]->lost) || (devs[1] && devs[1]->lost));
}

#define TRY(err, stop, expr)                                        \
	do {                                                        \
		int tries_ = 0;                                     \
		while ((err = CALL(expr)) && !(stop) && !gone(err)) \
			step_failed(err, tries_++, #expr);          \
	} while (0)

#define STEP(expr)                      \
	do {                            \
		int err_;               \
		TRY(err_, false, expr); \
	} while (0)

/* A step that a dead device may make impossible. */
#define STEP_ON(i, expr)                                \
	do {                                            \
		int err_;                               \
		if (!devs[i]->dead)                     \
			TRY(err_, devs[i]->dead, expr); \
	} while (0)

static void cpu_store(uint64_t va)
{
	uint64_t word = ++value * 0x9e3779b97f4a7c15ull;
	int tries = 0, err;

	while ((err = sim_cpu_access(m->as, va, &word, 8, true))) {
		if (err == -EHWPOISON && m->lost[model_slot(va)])
			return;
		sim.current->has_error = true; /* the worker's task had it */
		step_failed(err, tries++, "a CPU store");
	}
	model_stored(m, va, word);
}

static void cpu_load(uint64_t va)
{
	uint64_t word;
	int tries = 0, err;

	while ((err = sim_cpu_access(m->as, va, &word, 8, false))) {
		if (err == -EHWPOISON && m->lost[model_slot(va)])
			return;
		sim.current->has_error = true;
		step_failed(err, tries++, "a CPU load");
	}
	model_loaded(m, va, word, "a CPU");
}

static void xpu(unsigned int i, uint64_t va, enum sim_xpu_kind kind)
{
	uint64_t word = ++value * 0x9e3779b97f4a7c15ull, stored = word;
	int tries = 0, err;

	while ((err = sim_xpu_access(ctxs[i], 0, va, &word, kind))) {
		if (devs[i]->dead ||
		    (err == -EHWPOISON && m->lost[model_slot(va)]))
			return;
		step_failed(err, tries++, "an XPU access");
	}
	if (kind == SIM_XPU_LOAD)
		model_loaded(m, va, word, "an XPU");
	else
		model_stored(m, va, stored);
}

static void all(uint64_t va, unsigned int n, int who, bool store)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (who < 0 && store)
			cpu_store(va + PAGES(i) + 8);
		else if (who < 0)
			cpu_load(va + PAGES(i) + 8);
		else
			xpu((unsigned int)who, va + PAGES(i) + 8,
			    store ? SIM_XPU_STORE : SIM_XPU_LOAD);
	}
}

static uint64_t make(unsigned int pages)
{
	uint64_t va = 0;

	STEP(gm_as_map(&m->as->as, 0, PAGES(pages), 3, 0, &va));
	model_map(m, va, PAGES(pages), 3);
	return va;
}

static void bring_up(unsigned int i, unsigned int frames, unsigned int caps,
		     unsigned int flags)
{
	struct sim_dev *d = sim_dev_new(frames, caps, flags);

	devs[i] = d;
	memset(d->registered, 1, frames);
	STEP(gm_dev_create(&d->ops, d, "exhaust", caps, &d->dev));
	STEP(gm_dev_register_physmem(d->dev, d->base, d->base + PAGES(frames)));
	ctxs[i] = sim_ctx_new(d, m->as);
	STEP(gm_as_attach(&m->as->as, d->dev, ctxs[i]));
	ctxs[i]->attached = true;
}

static void take_down(unsigned int i)
{
	struct sim_dev *d = devs[i];

	sim_ctx_stop(ctxs[i]);
	STEP(gm_as_detach(&m->as->as, d->dev));
	sim_ctx_free(ctxs[i]);
	STEP(gm_dev_unregister_physmem(d->dev, d->base,
				       d->base + PAGES(d->nr_frames)));
	STEP(gm_dev_destroy(d->dev));
	sim_dev_free(d);
}

static void copy(int node, uint64_t dst, uint64_t src, uint64_t len)
{
	uint8_t bytes[PAGES(8)];
	int err;

	memcpy(bytes, m->val + model_off(src), len);
	if (!model_claim(m, dst, len, false))
		return; /* what is there is in doubt since a failure */
	model_expect(m, dst, bytes, len);
	TRY(err, node > 0 && devs[0]->dead,
	    gm_as_copy(&m->as->as, node, dst, src, len));
	model_release(m, dst, len, !err);
}

/* Lists whose statuses are errors: the first is the step's. */
static int move_list(uint64_t va, unsigned int n, int node)
{
	uint64_t vas[4];
	int nodes[4], status[4];
	unsigned int i;

	for (i = 0; i < n; i++) {
		vas[i] = va + PAGES(i);
		nodes[i] = node;
	}
	gm_as_move(&m->as->as, n, vas, nodes, status,
		   GM_MOVE_PARALLEL | GM_MOVE_CONCURRENT);
	for (i = 0; i < n; i++)
		if (status[i] < 0)
			return status[i];
	return 0;
}

static int exchange_list(uint64_t from, uint64_t to, unsigned int n)
{
	uint64_t a[4], b[4];
	int status[4];
	unsigned int i;

	for (i = 0; i < n; i++) {
		a[i] = from + PAGES(i);
		b[i] = to + PAGES(i);
		m->swaps[model_slot(a[i])] = 1;
		m->swaps[model_slot(b[i])] = 1;
	}
	gm_as_exchange(&m->as->as, n, a, b, status, GM_MOVE_CONCURRENT);
	memset(m->swaps, 0, m->nr_slots);
	for (i = 0; i < n; i++)
		if (status[i] < 0)
			return status[i];
	return 0;
}

static void discard(uint64_t va, uint64_t len)
{
	int err;

	if (!model_claim(m, va, len, true))
		return;
	model_expect(m, va, NULL, len);
	TRY(err, false,
	    gm_as_advise(&m->as->as, GM_NODE_NONE, va, len, GM_DONTNEED));
	model_release(m, va, len, !err);
}

static void unmap(uint64_t va, uint64_t len)
{
	struct model_change c;

	SIM_CHECK(model_change(m, va, len, MODEL_LEAVING, &c), "change");
	STEP(gm_as_unmap(&m->as->as, va, len));
	model_unmap(m, &c, va, len);
	model_changed(m, &c);
}

static void protect(uint64_t va, uint64_t len, unsigned int prot)
{
	STEP(gm_as_protect(&m->as->as, va, len, prot));
	model_protect(m, va, len, prot);
}

static uint64_t remap(uint64_t va, unsigned int from, unsigned int to)
{
	struct model_saved saved;
	struct model_change c;
	uint64_t new_va = 0;

	SIM_CHECK(model_change(m, va, PAGES(from), MODEL_LEAVING, &c), "remap");
	model_save(m, va, PAGES(from), &saved);
	STEP(gm_as_remap(&m->as->as, va, PAGES(from), PAGES(to), 1, &new_va));
	model_unmap(m, &c, va, PAGES(from));
	model_changed(m, &c);
	model_map(m, new_va, PAGES(to), 3);
	model_restore(m, new_va, &saved);
	return new_va;
}

static void at_rest(void)
{
	bool inject = sim.inject;

	sim.inject = false;
	while (!sim_as_quiet(m->as))
		sim_sleep_until(sim.now + 10000);
	torture_check();
	sim.inject = inject;
}

/* Faults of every kind, sharing, upgrades, evictions, hints. */
static void part_one(uint64_t a)
{
	all(a, 4, -1, true);
	all(a, 4, 0, false); /* shared */
	all(a, 2, 0, true); /* upgraded */
	all(a, 1, -1, false);
	all(a, 3, 1, false); /* from one XPU to the other */
	at_rest();
	all(a, 8, 0, true); /* more than fits: dirty evictions */
	all(a, 8, 1, false);
	all(a, 8, 0, false);
	at_rest();
	STEP_ON(0, gm_as_advise(&m->as->as, devs[0]->dev->node->nid, a,
				PAGES(4), GM_WILLNEED));
	STEP(gm_as_advise(&m->as->as, 0, a, PAGES(3), GM_WILLNEED));
	STEP_ON(1, gm_as_advise(&m->as->as, devs[1]->dev->node->nid, a,
				PAGES(1), GM_PIN));
	STEP(gm_as_advise(&m->as->as, 0, a, PAGES(1), GM_UNPIN));
	at_rest();
}

/* Lists of pages that move, and that change places. */
static void part_lists(uint64_t a)
{
	STEP_ON(0, move_list(a, 4, devs[0]->dev->node->nid));
	STEP_ON(1, move_list(a, 2, devs[1]->dev->node->nid));
	STEP(move_list(a + PAGES(1), 1, 0));
	STEP_ON(0, exchange_list(a, a + PAGES(2), 2));
	STEP_ON(0, exchange_list(a + PAGES(1), a + PAGES(3), 1));
	all(a, 4, -1, false);
	at_rest();
}

/* Copies, discards, rights, cuts, moves. */
static uint64_t part_two(uint64_t a)
{
	int nid = devs[0]->dead ? 0 : devs[0]->dev->node->nid;
	uint64_t b = make(3);

	copy(GM_NODE_NONE, b, a, PAGES(2));
	if (!devs[0]->dead && !sim.injected)
		copy(nid, b + 5, a + PAGES(2) + 3, PAGES(1) + 20);
	copy(0, b + 7, a + PAGES(4) + 1, 90);
	all(b, 3, 0, false);
	discard(b, PAGES(1));
	discard(b + PAGES(1) + 3, 30);
	at_rest();
	all(a, 4, 0, true);
	protect(a, PAGES(3), GM_PROT_READ);
	all(a, 3, 1, false);
	protect(a, PAGES(3), 3);
	all(a, 3, 1, true);
	protect(a + SIM_PIECE, SIM_PIECE, GM_PROT_READ);
	protect(a + SIM_PIECE, SIM_PIECE, 3);
	at_rest();
	unmap(a + PAGES(2) + SIM_PIECE, PAGES(1));
	cpu_load(a + PAGES(2) + 8);
	at_rest();
	make(1); /* in the way: it must move to grow */
	return remap(b, 3, 5);
}

static void scenario(void *arg)
{
	uint64_t a, b;

	SIM_CHECK(!gm_machine_init(1, 4), "machine_init");
	SIM_CHECK(!gm_as_init(&sim_as_new(0)->as), "as_init");
	m = t.m[0] = model_new(sim.as[0]);
	sim.inject = true;
	a = make(8);
	bring_up(0, 6, GM_CAP_REPLAY | GM_CAP_WRITE_FAULT,
		 SIM_DEV_PROTECT | SIM_DEV_RUNS | SIM_DEV_RELEASE);
	bring_up(1, 3, GM_CAP_REPLAY, 0);
	part_one(a);
	part_lists(a);
	b = part_two(a);
	all(b, 5, 1, false);
	if (!devs[0]->dead) {
		sim_ctx_replace(ctxs[0]);
		STEP_ON(0, gm_as_reset(&m->as->as, devs[0]->dev));
		ctxs[0]->replacing = ctxs[0]->stopped = false;
	}
	all(b, 5, 0, true);
	at_rest();
	take_down(0);
	unmap(b, PAGES(5));
	take_down(1);
	at_rest();
	gm_as_exit(&m->as->as);
	model_free(m);
	sim_as_free(sim.as[0]);
	gm_machine_exit();
	sim.inject = false;
}

static int now_call;
static uint64_t now_nth;
static int now_error;

static void say(void)
{
	fprintf(stderr, "while %s failed the %lu. time, with %d\n",
		now_call < 0 ? "nothing" : sim_call_names[now_call],
		(unsigned long)now_nth, now_error);
}

static bool run(int call, uint64_t nth, int error)
{
	t.cfg = (struct sim_config){ .seed = 1,
				     .nr_as = 1,
				     .nr_slots = 48,
				     .host_nodes = 1,
				     .host_frames = 256,
				     .reserve = 16,
				     .max_replicas = 4,
				     .fault_workers = 1,
				     .tick = 100 };
	now_call = sim.fail_call = call;
	now_nth = sim.fail_nth = nth;
	now_error = sim.fail_error = error;
	sim_run(&t.cfg, scenario, NULL);
	return sim.injected;
}

static uint64_t every(int call, int error)
{
	uint64_t n = 1;

	while (run(call, n, error))
		n++;
	return n - 1;
}

int main(void)
{
	uint64_t total = 0, n;
	int call;

	sim.on_violation = say;
	sim_dev_died = torture_died;
	run(-1, 0, 0);
	for (call = 0; call < SIM_NR_CALLS; call++) {
		if (!sim_call_may_fail[call])
			continue;
		n = every(call, 0);
		if (call == SIM_CPU_MAP || call == SIM_CPU_UNMAP ||
		    call == SIM_CPU_FILL || call == SIM_CPU_SCATTER)
			n += every(call, -EAGAIN);
		if (call >= SIM_OP_ENTER && call <= SIM_OP_CLEAR_RUNS) {
			n += every(call, -ENODEV);
			n += every(call, -ETIMEDOUT);
		}
		printf("%-14s %6lu failures\n", sim_call_names[call],
		       (unsigned long)n);
		total += n;
	}
	printf("%lu failures, %lu steps failed and were done again\n",
	       (unsigned long)total, (unsigned long)failed_steps);
	return 0;
}
