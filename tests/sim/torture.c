// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * torture.c - runs of random operations, each on a machine of its own
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/options.h"
#include "tests/sim/torture.h"

struct torture t;
struct torture_totals totals;
bool torture_trace;

#define TORTURE_OP_NAME(name, weight, fn) [OP_##name] = #name,
static const char *const op_names[NR_OPS] = { TORTURE_OPS(TORTURE_OP_NAME) };
#define TORTURE_OP_WEIGHT(name, weight, fn) [OP_##name] = weight,
static const unsigned int op_weights[NR_OPS] = { TORTURE_OPS(
	TORTURE_OP_WEIGHT) };
#define TORTURE_OP_TABLE(name, weight, fn) [OP_##name] = fn,
static torture_fn *const op_fns[NR_OPS] = { TORTURE_OPS(TORTURE_OP_TABLE) };

void torture_say(const char *what, const struct model *m, uint64_t va,
		 uint64_t len, int err)
{
	printf("%8lu %3u %-14s as %u %#lx-%#lx (%lu+%lu): %d\n",
	       (unsigned long)sim.steps, sim.current->id, what, m->as->index,
	       (unsigned long)va, (unsigned long)(va + len),
	       (unsigned long)model_slot(va),
	       (unsigned long)((len + GM_PAGE_MASK) >> GM_PAGE_SHIFT), err);
}

/* --- a run ------------------------------------------------------------------ */

static void worker_park(void)
{
	unsigned int rest = t.rests;

	t.parked++;
	if (t.parked == t.active)
		sim_task_wake(t.coordinator);
	while (t.rests == rest)
		sim_task_block("park", &t.park);
}

static enum torture_op pick_op(void)
{
	uint64_t r = sim_below(t.weight_sum);
	unsigned int i;

	for (i = 0; r >= t.weights[i]; i++)
		r -= t.weights[i];
	return (enum torture_op)i;
}

static void worker_main(void *arg)
{
	struct worker *w = arg;

	while (t.ops_left) {
		enum torture_op op = pick_op();
		int r;

		if (t.park)
			worker_park();
		if (!t.ops_left)
			break;
		t.ops_left--;
		sim.current->doing = op_names[op];
		sim.current->busy_since = sim.steps;
		r = op_fns[op](w);
		sim.current->doing = NULL;
		SIM_CHECK(!sim.current->nr_held, "%s leaves a lock held",
			  op_names[op]);
		sim.progress = sim.steps;
		totals.ops[op]++;
		if (r == OP_SKIPPED)
			totals.skipped[op]++;
		else if (r)
			totals.errors[op]++;
		t.ops_done++;
		if (!--t.until_check) {
			t.park = true;
			t.until_check = 1 + sim_below(2 * options.check_every);
		}
	}
	t.active--;
	if (t.parked == t.active)
		sim_task_wake(t.coordinator);
}

static void quiesce(void)
{
	unsigned int a;

	for (a = 0; a < t.cfg.nr_as; a++)
		while (!sim_as_quiet(sim.as[a]))
			sim_sleep_until(sim.now + 10000);
}

static void coordinate(void)
{
	unsigned int i;
	bool inject;

	while (t.active) {
		while (t.active && !(t.park && t.parked == t.active))
			sim_task_block("workers", &t.parked);
		if (!t.active)
			break;
		quiesce();
		inject = sim.inject;
		sim.inject = false;
		torture_check();
		sim.inject = inject;
		t.park = false;
		t.rests++;
		t.parked = 0;
		for (i = 0; i < t.nr_workers; i++)
			if (t.tasks[i]->why && t.tasks[i]->what == &t.park)
				sim_task_wake(t.tasks[i]);
	}
	quiesce();
	sim.inject = false;
	torture_check();
}

static void end_address_spaces(void)
{
	unsigned int a, i;

	for (a = 0; a < t.cfg.nr_as; a++) {
		gm_as_exit(&t.m[a]->as->as);
		SIM_CHECK(!sim.current->nr_held, "as_exit: a lock is held");
		/* The exit has detached what was still attached. */
		for (i = 0; i < SIM_MAX_DEVS; i++)
			if (sim.devs[i] && sim.devs[i]->ctxs[a])
				sim_ctx_free(sim.devs[i]->ctxs[a]);
		model_free(t.m[a]);
		sim_as_free(sim.as[a]);
		t.m[a] = NULL;
	}
}

static void run_main(void *arg)
{
	unsigned int a, i, tries;

	SIM_CHECK(!gm_machine_init((int)t.cfg.host_nodes, t.cfg.max_replicas),
		  "machine_init failed");
	for (a = 0; a < t.cfg.nr_as; a++) {
		struct sim_as *as = sim_as_new(a);

		SIM_CHECK(!gm_as_init(&as->as), "as_init failed");
		t.m[a] = model_new(as);
		t.workers[0].as = a;
		for (i = 0, tries = 2 + (unsigned int)sim_below(5); i < tries;
		     i++)
			op_mmap(&t.workers[0]);
	}
	if (!sim_chance(8))
		torture_setup_devices();
	sim.inject = true;
	t.coordinator = sim.current;
	t.active = t.nr_workers;
	for (i = 0; i < t.nr_workers; i++) {
		t.workers[i].index = i;
		t.workers[i].as = i % t.cfg.nr_as;
		t.tasks[i] = sim_task_new("worker", worker_main, &t.workers[i],
					  false);
	}
	coordinate();
	if (sim_chance(2))
		torture_devices_end(false);
	if (sim_chance(2))
		torture_check();
	end_address_spaces();
	torture_devices_end(true);
	gm_machine_exit();
}

/* What kind of machine, from the seed. */
static void run_config(uint64_t seed)
{
	static const unsigned int means[] = { 1, 2, 2, 4, 8, 32 };
	struct sim_config *c = &t.cfg;
	unsigned int i;

	memset(&t, 0, sizeof(t));
	/* The generator is the machine's; seed it for these choices too. */
	sim.rng[0] = seed * 0x9e3779b97f4a7c15ull + 1;
	sim.rng[1] = seed ^ 0x6a09e667f3bcc908ull;
	for (i = 0; i < 8; i++)
		sim_rand();
	c->seed = seed;
	c->trace = options.trace;
	c->nr_as = 1 + (unsigned int)sim_chance(3);
	c->nr_plain = 6;
	c->nr_slots = 48 + (unsigned int)sim_below(80) + c->nr_plain;
	c->host_nodes = 1 + (unsigned int)sim_chance(3);
	t.tight = !sim_chance(4);
	c->host_frames = t.tight ? 40 + (unsigned int)sim_below(80) : 4096;
	if (t.tight && sim_chance(4))
		c->host_frames = 32 + (unsigned int)sim_below(10);
	c->reserve = 32;
	c->max_replicas = (unsigned int)sim_below(t.tight ? 12 : 100);
	c->fault_workers = 1 + (unsigned int)sim_below(4);
	c->switch_mean = means[sim_below(6)];
	c->fine_mean = options.fine ? 4u << sim_below(6) : 0;
	c->tick = 20u << sim_below(8);
	if (sim_chance(2))
		c->inject_ppm = 200u << sim_below(7);
	t.nr_devs = 1 + (unsigned int)sim_below(3);
	if (sim_chance(10))
		t.nr_devs = 0;
	t.nr_workers = 2 + (unsigned int)sim_below(7);
	t.max_pages = c->nr_slots / 2;
	for (i = 0; i < NR_OPS; i++) {
		t.weights[i] = op_weights[i];
		if (i > OP_XPU_ADD && sim_chance(4))
			t.weights[i] = 0;
		else if (sim_chance(8))
			t.weights[i] *= 4;
	}
	if (sim_chance(2))
		t.weights[OP_DEATH] = 0;
	else if (c->inject_ppm)
		c->lost_ppm = 20000;
	for (i = 0; i < NR_OPS; i++)
		t.weight_sum += t.weights[i];
	t.until_check = options.check_every;
	for (i = 0; i < SIM_MAX_AS; i++)
		t.hot[i] = sim_below(c->nr_slots);
}

static uint64_t current_seed;

static void say_replay(void)
{
	fprintf(stderr,
		"seed %lu, operation %lu; to see it again:\n"
		"  %s --replay %lu --ops %lu --check-every %lu%s\n",
		(unsigned long)current_seed, (unsigned long)t.ops_done,
		options.program, (unsigned long)current_seed,
		(unsigned long)options.run_ops,
		(unsigned long)options.check_every, options.extra);
}

static void on_signal(int sig)
{
	fprintf(stderr, "VIOLATION: signal %d in the core\n", sig);
	sim_dump();
	say_replay();
	_exit(1);
}

static void catch_signals(void)
{
#ifndef __SANITIZE_ADDRESS__
	static char stack[65536];
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_handler = on_signal,
				.sa_flags = SA_ONSTACK };

	sigaltstack(&ss, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGFPE, &sa, NULL);
	sigaction(SIGILL, &sa, NULL);
#else
	(void)on_signal;
#endif
}

static void one_run(uint64_t seed, uint64_t ops)
{
	unsigned int i;

	current_seed = seed;
	run_config(seed);
	t.ops_left = ops;
	sim_dev_died = torture_died;
	sim_xpu_guard = torture_guard;
	sim.fail_call = options.fail_call;
	sim.fail_nth = options.fail_nth;
	sim.fail_error = options.fail_error;
	sim_run(&t.cfg, run_main, NULL);
	totals.injected += sim.injected;
	totals.runs++;
	for (i = 0; i < SIM_NR_CALLS; i++)
		totals.calls += sim.calls[i];
}

static void report(double seconds)
{
	uint64_t ops = 0;
	unsigned int i;

	for (i = 0; i < NR_OPS; i++)
		ops += totals.ops[i];
	printf("%lu runs, %lu operations in %.1f s: %.0f operations/s, "
	       "%.0f contract calls and steps/s\n",
	       (unsigned long)totals.runs, (unsigned long)ops, seconds,
	       (double)ops / seconds, (double)totals.calls / seconds);
	printf("%lu checks at rest, %lu failures injected, %lu devices died\n",
	       (unsigned long)totals.checks, (unsigned long)totals.injected,
	       (unsigned long)totals.deaths);
	if (!options.verbose)
		return;
	for (i = 0; i < NR_OPS; i++)
		printf("  %-14s %10lu, skipped %9lu, refused %9lu\n",
		       op_names[i], (unsigned long)totals.ops[i],
		       (unsigned long)totals.skipped[i],
		       (unsigned long)totals.errors[i]);
	for (i = 0; i < 256; i++)
		if (totals.by_errno[i])
			printf("  errno %u (%s): %lu\n", i, strerror((int)i),
			       (unsigned long)totals.by_errno[i]);
}

int main(int argc, char **argv)
{
	struct timespec a, b;
	double seconds = 0;
	uint64_t done, run, i;

	options_parse(argc, argv);
	catch_signals();
	sim.on_violation = say_replay;
	clock_gettime(CLOCK_MONOTONIC, &a);
	torture_trace = options.trace;
	if (options.replay)
		one_run(options.seed, options.run_ops);
	for (done = 0, run = 0; !options.replay && done < options.ops; run++) {
		one_run(options.seed + run, options.run_ops);
		done += options.run_ops;
		if (options.seconds) {
			clock_gettime(CLOCK_MONOTONIC, &b);
			if (b.tv_sec - a.tv_sec >= (time_t)options.seconds)
				break;
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	seconds = (double)(b.tv_sec - a.tv_sec) +
		  (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	report(seconds);
	i = options.coverage ? coverage_report(options.coverage > 1) : 0;
	return i ? 1 : 0;
}
