// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * scale.c - what a fault costs in a large address space, and which locks many
 *	processors wait for
 *
 * Costs are calls of the host contract, which do not depend on the machine
 * that runs this. Faults of 64 CPUs and 8 XPUs on pages of their own may take
 * no lock above that of their entry, and may not wait for each other there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/sim/sim.h"

#define PAGES(n) ((uint64_t)(n)*GM_PAGE_SIZE)
#define NR_CPUS 64
#define NR_XPUS 8
#define OWN 16 /* pages of each worker */
#define ROUNDS 300

static const char *const ranks[GM_NR_RANKS] = {
#define RANK_NAME(name, protects, forbidden) #name,
	GM_LOCK_ORDER(RANK_NAME)
#undef RANK_NAME
};

static struct sim_dev *devs[NR_XPUS];
static struct sim_ctx *ctxs[NR_XPUS];

static void up(struct sim_as *as, unsigned int n, unsigned int frames)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct sim_dev *d =
			sim_dev_new(frames, GM_CAP_REPLAY | GM_CAP_WRITE_FAULT,
				    SIM_DEV_PROTECT | SIM_DEV_RUNS);

		devs[i] = d;
		memset(d->registered, 1, frames);
		SIM_CHECK(
			!gm_dev_create(&d->ops, d, "scale", d->caps, &d->dev) &&
				!gm_dev_register_physmem(d->dev, d->base,
							 d->base +
								 PAGES(frames)),
			"no device");
		ctxs[i] = sim_ctx_new(d, as);
		SIM_CHECK(!gm_as_attach(&as->as, d->dev, ctxs[i]), "no attach");
		ctxs[i]->attached = true;
	}
}

static void down(struct sim_as *as, unsigned int n)
{
	unsigned int i;

	gm_as_exit(&as->as);
	for (i = 0; i < n; i++) {
		struct sim_dev *d = devs[i];

		sim_ctx_free(ctxs[i]);
		SIM_CHECK(!gm_dev_unregister_physmem(
				  d->dev, d->base,
				  d->base + PAGES(d->nr_frames)) &&
				  !gm_dev_destroy(d->dev),
			  "a device stays");
		sim_dev_free(d);
	}
	sim_as_free(as);
	gm_machine_exit();
}

static struct sim_as *begin(void)
{
	struct sim_as *as;

	SIM_CHECK(!gm_machine_init(1, 1 << 20), "machine_init");
	as = sim_as_new(0);
	SIM_CHECK(!gm_as_init(&as->as), "as_init");
	return as;
}

static uint64_t map(struct sim_as *as, uint64_t pages)
{
	uint64_t va;

	SIM_CHECK(!gm_as_map(&as->as, 0, PAGES(pages), 3, 0, &va), "mmap");
	return va;
}

/* --- cost of a fault -------------------------------------------------------- */

enum { COST_FIRST, COST_READ, COST_WRITE, COST_CPU, NR_COSTS };
static const char *const cost_names[] = { "XPU first touch", "XPU read",
					  "XPU write (upgrade)", "CPU fault" };

struct costs {
	uint64_t pages;
	unsigned int regions;
	uint64_t calls[NR_COSTS];
};

static uint64_t calls(void)
{
	uint64_t n = 0;
	int i;

	for (i = 0; i < SIM_STEP; i++)
		n += sim.calls[i];
	return n;
}

static void cost_main(void *arg)
{
	struct costs *c = arg;
	struct sim_as *as = begin();
	uint64_t va, word = 1, before;
	unsigned int i;

	up(as, 1, 64);
	for (i = 1; i < c->regions; i++)
		map(as, 1);
	va = map(as, c->pages) + PAGES(c->pages - 32);
	/* The first page of a leaf makes the leaf; that is not the fault. */
	sim_xpu_access(ctxs[0], 0, va, &word, SIM_XPU_STORE);
	sim_cpu_access(as, va + PAGES(1), &word, 8, true);
	before = calls();
	sim_xpu_access(ctxs[0], 0, va + PAGES(2), &word, SIM_XPU_STORE);
	c->calls[COST_FIRST] = calls() - before;
	before = calls();
	sim_xpu_access(ctxs[0], 0, va + PAGES(1), &word, SIM_XPU_LOAD);
	c->calls[COST_READ] = calls() - before;
	before = calls();
	sim_xpu_access(ctxs[0], 0, va + PAGES(1), &word, SIM_XPU_STORE);
	c->calls[COST_WRITE] = calls() - before;
	before = calls();
	sim_cpu_access(as, va + PAGES(1), &word, 8, false);
	c->calls[COST_CPU] = calls() - before;
	down(as, 1);
}

static struct costs cost(uint64_t pages, unsigned int regions)
{
	struct costs c = { .pages = pages, .regions = regions };
	struct sim_config cfg = { .seed = 1,
				  .nr_as = 1,
				  .nr_slots =
					  (unsigned int)(pages + regions + 16),
				  .host_nodes = 1,
				  .host_frames = 256,
				  .max_replicas = 64,
				  .fault_workers = 1,
				  .tick = 100000 };

	sim_run(&cfg, cost_main, &c);
	return c;
}

static void costs(void)
{
	/* As many pages as 1 GiB and 1 TiB have. */
	struct costs small = cost(512, 1), large = cost(524288, 1);
	struct costs many = cost(512, 2000);
	unsigned int i;

	printf("%-22s %10s %10s %14s\n", "contract calls", "1 GiB", "1 TiB",
	       "2000 regions");
	for (i = 0; i < NR_COSTS; i++) {
		printf("%-22s %10lu %10lu %14lu\n", cost_names[i],
		       (unsigned long)small.calls[i],
		       (unsigned long)large.calls[i],
		       (unsigned long)many.calls[i]);
		if (!small.calls[i] || small.calls[i] != large.calls[i] ||
		    small.calls[i] != many.calls[i]) {
			fprintf(stderr,
				"a fault costs more in a large space\n");
			exit(1);
		}
	}
}

/* --- many processors ---------------------------------------------------------- */

static struct sim_as *space;
static unsigned int left;
static struct sim_task *waiter;
static uint64_t shared_va;

struct scale_worker {
	unsigned int index;
	uint64_t va;
};

/* A CPU and the XPU of its number take pages from each other. */
static void scale_worker(void *arg)
{
	const struct scale_worker *w = arg;
	struct sim_ctx *ctx = ctxs[w->index % NR_XPUS];
	uint64_t word = w->index;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		uint64_t va = w->va + PAGES(sim_below(OWN));
		int err;

		err = sim_xpu_access(ctx, w->index % SIM_MAX_CORES, va, &word,
				     i & 1 ? SIM_XPU_LOAD : SIM_XPU_STORE);
		if (!err)
			err = sim_cpu_access(space, va, &word, 8, i & 2);
		SIM_CHECK(!err, "an access fails: %d", err);
		sim.progress = sim.steps;
	}
	if (!--left)
		sim_task_wake(waiter);
}

static void many_main(void *arg)
{
	static struct scale_worker workers[NR_CPUS];
	struct sim_rank_stats *out = arg;
	unsigned int i;

	space = begin();
	up(space, NR_XPUS, NR_CPUS * OWN / NR_XPUS + NR_CPUS);
	shared_va = map(space, NR_CPUS * OWN);
	memset(sim.ranks, 0, sizeof(sim.ranks));
	left = NR_CPUS;
	waiter = sim.current;
	for (i = 0; i < NR_CPUS; i++) {
		workers[i].index = i;
		workers[i].va = shared_va + PAGES(i * OWN);
		sim_task_new("worker", scale_worker, &workers[i], false);
	}
	while (left)
		sim_task_block("workers", &left);
	memcpy(out, sim.ranks, sizeof(sim.ranks));
	down(space, NR_XPUS);
}

static void many(void)
{
	struct sim_rank_stats stats[GM_NR_RANKS];
	struct sim_config cfg = { .seed = 2,
				  .nr_as = 1,
				  .nr_slots = NR_CPUS * OWN + 16,
				  .host_nodes = 1,
				  .host_frames = 8192,
				  .max_replicas = 8192,
				  .fault_workers = 16,
				  .switch_mean = 3,
				  .tick = 100 };
	int bad = 0;
	unsigned int i;

	sim_run(&cfg, many_main, stats);
	printf("\n%d CPUs and %d XPUs, %d faults and more, on their own "
	       "pages\n",
	       NR_CPUS, NR_XPUS, NR_CPUS * ROUNDS * 2);
	printf("%-10s %12s %12s %10s %14s\n", "lock", "taken", "waited for",
	       "refused", "ns waited");
	for (i = 0; i < GM_NR_RANKS; i++)
		printf("%-10s %12lu %12lu %10lu %14lu\n", ranks[i],
		       (unsigned long)stats[i].taken,
		       (unsigned long)stats[i].waited,
		       (unsigned long)stats[i].refused,
		       (unsigned long)stats[i].wait_ns);
	for (i = 0; i < GM_RANK_ENTRY; i++)
		bad |= stats[i].taken != 0;
	/* A processor may be quicker than the end of its own last fault. */
	if (bad ||
	    stats[GM_RANK_ENTRY].waited * 50 > stats[GM_RANK_ENTRY].taken) {
		fprintf(stderr, "faults on different pages wait for each other "
				"above the node\n");
		exit(1);
	}
}

int main(void)
{
	sim.fail_call = -1;
	costs();
	many();
	return 0;
}
