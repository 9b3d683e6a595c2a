// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * sync.c - locks, event counts, RCU, time, parallel calls, injected failures
 */
#include <stdio.h>
#include <string.h>

#include "host/sim/sim.h"

#define SIM_CALL_NAME(name, may_fail) [SIM_##name] = #name,
const char *const sim_call_names[SIM_NR_CALLS] = { SIM_CALLS(SIM_CALL_NAME) };
#define SIM_CALL_MAY(name, may_fail) [SIM_##name] = may_fail,
const bool sim_call_may_fail[SIM_NR_CALLS] = { SIM_CALLS(SIM_CALL_MAY) };

uint64_t sim_cover[SIM_COVER_STATES][SIM_COVER_EVENTS];

/* --- what holds for every call ----------------------------------------- */

void sim_enter(enum sim_call call)
{
	struct sim_task *me = sim.current;

	SIM_CHECK(!me->rcu, "%s inside an RCU read side", sim_call_names[call]);
	SIM_CHECK(!me->in_op, "%s inside an operator", sim_call_names[call]);
	sim_point(call);
}

bool sim_inject(enum sim_call call)
{
	if (!sim.inject)
		return false;
	sim.tries[call]++;
	if (sim.fail_call == (int)call) {
		if (sim.tries[call] != sim.fail_nth)
			return false;
	} else if (!sim.cfg.inject_ppm ||
		   sim_below(1000000) >= sim.cfg.inject_ppm) {
		return false;
	}
	sim.injected++;
	return true;
}

int sim_rank_held(void)
{
	struct sim_task *me = sim.current;
	int rank = -1;
	unsigned int i;

	for (i = 0; i < me->nr_held; i++)
		if ((int)me->held[i].rank > rank)
			rank = (int)me->held[i].rank;
	return rank;
}

bool sim_holds_rank(enum gm_rank rank)
{
	struct sim_task *me = sim.current;
	unsigned int i;

	for (i = 0; i < me->nr_held; i++)
		if (me->held[i].rank == rank)
			return true;
	return false;
}

/* --- locks -------------------------------------------------------------- */

static void sim_lock_check(struct gm_lock *l, enum gm_rank rank, bool ordered)
{
	struct sim_task *me = sim.current;
	unsigned int i;

	SIM_CHECK(rank < GM_NR_RANKS, "lock of no rank");
	SIM_CHECK(me->nr_held < SIM_MAX_HELD, "too many locks held");
	SIM_CHECK(l->owner != me->id, "lock %p taken twice", (void *)l);
	for (i = 0; i < me->nr_held; i++) {
		const struct sim_held *h = &me->held[i];

		if (h->rank < rank)
			continue;
		SIM_CHECK(rank == GM_RANK_ENTRY && h->rank == rank,
			  "lock order: rank %d wanted, rank %d held", rank,
			  h->rank);
		SIM_CHECK(!ordered || (uintptr_t)h->lock < (uintptr_t)l,
			  "lock order: entries not in ascending order");
	}
}

static void sim_lock_got(struct sim_task *task, struct gm_lock *l,
			 enum gm_rank rank)
{
	l->owner = task->id;
	l->rank = (uint16_t)(rank + 1);
	task->held[task->nr_held].lock = l;
	task->held[task->nr_held++].rank = rank;
	sim.ranks[rank].taken++;
}

void gm_lock(struct gm_lock *l, enum gm_rank rank)
{
	struct sim_task *me = sim.current;
	struct sim_task *tail;
	uint64_t since;

	sim_enter(SIM_LOCK);
	sim_lock_check(l, rank, true);
	SIM_CHECK(!l->rank || l->rank == rank + 1, "lock %p changes its rank",
		  (void *)l);
	if (!l->owner) {
		sim_lock_got(me, l, rank);
		return;
	}
	since = sim.now;
	sim.ranks[rank].waited++;
	me->next = 0;
	if (l->head) {
		tail = sim_task(l->tail);
		tail->next = me->id;
	} else {
		l->head = me->id;
	}
	l->tail = me->id;
	/* Whoever unlocks makes us the owner. */
	sim_task_block("lock", l);
	SIM_CHECK(l->owner == me->id, "lock %p vanished while waited for",
		  (void *)l);
	sim.ranks[rank].wait_ns += sim.now - since;
}

int gm_trylock(struct gm_lock *l, enum gm_rank rank)
{
	sim_enter(SIM_TRYLOCK);
	sim_lock_check(l, rank, false);
	if (l->owner || sim_inject(SIM_TRYLOCK)) {
		sim.ranks[rank].refused++;
		return 0;
	}
	sim_lock_got(sim.current, l, rank);
	return 1;
}

void gm_unlock(struct gm_lock *l, enum gm_rank rank)
{
	struct sim_task *me = sim.current;
	struct sim_task *next;
	unsigned int i;

	sim_enter(SIM_UNLOCK);
	SIM_CHECK(l->owner == me->id, "unlock of a lock not held: rank %d",
		  rank);
	SIM_CHECK(l->rank == rank + 1, "unlock with another rank");
	for (i = me->nr_held; i--;)
		if (me->held[i].lock == l)
			break;
	SIM_CHECK(i < me->nr_held, "unlock of a lock not held");
	memmove(&me->held[i], &me->held[i + 1],
		(me->nr_held - i - 1) * sizeof(me->held[0]));
	me->nr_held--;
	l->owner = 0;
	if (!l->head) {
		/* All zeros again, but for the rank that never changes. */
		l->tail = 0;
		return;
	}
	next = sim_task(l->head);
	l->head = next->next;
	if (!l->head)
		l->tail = 0;
	sim_lock_got(next, l, rank);
	sim_task_wake(next);
}

void gm_assert_held(const struct gm_lock *l, enum gm_rank rank)
{
	SIM_CHECK(l->owner == sim.current->id, "a lock of rank %d is not held",
		  rank);
}

static bool sim_within(const void *what, const void *p, size_t len)
{
	return (uintptr_t)what - (uintptr_t)p < len;
}

/* Memory goes: nobody may hold or wait for what is in it. */
void sim_lock_check_freed(const void *p, size_t len)
{
	unsigned int i, j;

	for (i = 1; i <= sim.nr_tasks; i++) {
		const struct sim_task *task = sim_task(i);

		if (task->state == SIM_UNUSED || task->state == SIM_DONE)
			continue;
		for (j = 0; j < task->nr_held; j++)
			SIM_CHECK(!sim_within(task->held[j].lock, p, len),
				  "memory freed with a lock held in it");
		SIM_CHECK(!task->why || !sim_within(task->what, p, len),
			  "memory freed while %s waits in it for %s",
			  task->name, task->why);
	}
}

/* --- event counts -------------------------------------------------------- */

uint32_t gm_waitq_read(struct gm_waitq *wq)
{
	sim_enter(SIM_WAITQ_READ);
	return wq->count;
}

void gm_waitq_wait(struct gm_waitq *wq, uint32_t seen)
{
	struct sim_task *me = sim.current;

	sim_enter(SIM_WAITQ_WAIT);
	SIM_CHECK(sim_rank_held() < GM_RANK_NODE, "wait with rank %d held",
		  sim_rank_held());
	if (wq->count != seen)
		return;
	if (sim.cfg.switch_mean && sim_chance(64)) {
		sim_yield();
		return;
	}
	me->next = 0;
	if (wq->head)
		sim_task(wq->tail)->next = me->id;
	else
		wq->head = me->id;
	wq->tail = me->id;
	sim_task_block("wait queue", wq);
}

void gm_waitq_wake(struct gm_waitq *wq)
{
	unsigned int id;

	sim_enter(SIM_WAITQ_WAKE);
	wq->count++;
	id = wq->head;
	wq->head = wq->tail = 0;
	while (id) {
		struct sim_task *task = sim_task(id);

		id = task->next;
		sim_task_wake(task);
	}
}

/* --- RCU ------------------------------------------------------------------ */

static uint64_t sim_rcu_seq;
static unsigned int sim_rcu_syncs;

void gm_rcu_read_lock(void)
{
	struct sim_task *me = sim.current;

	SIM_CHECK(!me->in_op, "RCU inside an operator");
	if (!me->rcu++)
		me->rcu_seq = ++sim_rcu_seq;
	sim_point(SIM_RCU_LOCK);
}

static void sim_rcu_wake(void)
{
	unsigned int i;

	for (i = 1; i <= sim.nr_tasks; i++) {
		struct sim_task *task = sim_task(i);

		if (task->state == SIM_BLOCKED && task->why &&
		    task->what == &sim_rcu_seq)
			sim_task_wake(task);
	}
}

void gm_rcu_read_unlock(void)
{
	struct sim_task *me = sim.current;

	SIM_CHECK(me->rcu, "RCU read side not entered");
	sim_point(SIM_RCU_UNLOCK);
	if (!--me->rcu && sim_rcu_syncs)
		sim_rcu_wake();
}

/* Is somebody still in a read side that began before @seq? */
static bool sim_rcu_busy(uint64_t seq)
{
	unsigned int i;

	for (i = 1; i <= sim.nr_tasks; i++) {
		const struct sim_task *task = sim_task(i);

		if (task->state != SIM_UNUSED && task->rcu &&
		    task->rcu_seq <= seq)
			return true;
	}
	return false;
}

void gm_rcu_synchronize(void)
{
	uint64_t seq;

	sim_enter(SIM_RCU_SYNC);
	SIM_CHECK(!sim.current->nr_held, "synchronize with rank %d held",
		  sim_rank_held());
	seq = sim_rcu_seq;
	sim_rcu_syncs++;
	while (sim_rcu_busy(seq))
		sim_task_block("RCU readers", &sim_rcu_seq);
	sim_rcu_syncs--;
}

/* --- time, parallel calls -------------------------------------------------- */

uint64_t gm_host_now(void)
{
	sim_enter(SIM_NOW);
	return sim.now;
}

void gm_host_sleep_until(uint64_t ns)
{
	sim_enter(SIM_SLEEP);
	SIM_CHECK(sim_rank_held() < GM_RANK_NODE, "sleep with rank %d held",
		  sim_rank_held());
	sim_sleep_until(ns);
}

struct sim_parallel {
	void (*fn)(void *arg, unsigned int i);
	void *arg;
	unsigned int next;
	unsigned int n;
	unsigned int helpers;
	struct sim_task *caller;
	bool waits; /* for the helpers, and nothing else */
	/* what a helper said that went wrong */
	char text[sizeof(((struct sim_task *)0)->error)];
};

static void sim_parallel_work(struct sim_parallel *job)
{
	unsigned int held = sim.current->nr_held;

	while (job->next < job->n) {
		job->fn(job->arg, job->next++);
		SIM_CHECK(sim.current->nr_held == held,
			  "a parallel call ends with a lock held");
		sim_point(SIM_STEP);
	}
}

static void sim_parallel_task(void *arg)
{
	struct sim_parallel *job = arg;
	struct sim_task *me = sim.current;

	me->has_error = false;
	sim_parallel_work(job);
	if (me->has_error)
		memcpy(job->text, me->error, sizeof(job->text));
	/* The caller may as well wait for something else, in its own part. */
	if (!--job->helpers && job->waits)
		sim_task_wake(job->caller);
}

void gm_host_parallel(void (*fn)(void *arg, unsigned int i), void *arg,
		      unsigned int n, unsigned int width)
{
	struct sim_parallel job = {
		.fn = fn, .arg = arg, .n = n, .caller = sim.current
	};
	unsigned int i;

	sim_enter(SIM_PARALLEL);
	SIM_CHECK(sim_rank_held() < 0 || sim_rank_held() == GM_RANK_ENTRY,
		  "parallel with rank %d held", sim_rank_held());
	for (i = 1; i < width && i < n; i++) {
		job.helpers++;
		sim_task_new("parallel", sim_parallel_task, &job, false);
	}
	sim_parallel_work(&job);
	job.waits = true;
	while (job.helpers)
		sim_task_block("parallel", &job);
	if (!job.text[0])
		return;
	memcpy(sim.current->error, job.text, sizeof(job.text));
	sim.current->has_error = true;
}

/* --- messages --------------------------------------------------------------- */

int gm_host_error(int err, const char *fmt, ...)
{
	struct sim_task *me = sim.current;
	va_list ap;

	SIM_CHECK(err < 0, "gm_host_error(%d, \"%s\")", err, fmt);
	va_start(ap, fmt);
	vsnprintf(me->error, sizeof(me->error), fmt, ap);
	va_end(ap);
	SIM_CHECK(me->error[0], "an error without a text");
	me->has_error = true;
	return err;
}

void gm_host_bug(const char *file, int line, const char *what)
{
	sim_violation("the core says: %s:%d: %s", file, line, what);
}
