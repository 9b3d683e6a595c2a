// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * sched.c - tasks, and who of them goes on
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/sim/sim.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SIM_STACK (512 * 1024)
#else
#define SIM_STACK (128 * 1024)
#endif

#define SIM_PATIENCE 30000000 /* steps without any progress */

struct sim_machine sim;

static struct sim_task tasks[SIM_MAX_TASKS + 1];
static struct sim_task main_task = { .name = "main" };

/*
 * sim_swap() saves the callee's registers on the stack, leaves the stack
 * pointer in *@from and goes on with the stack @to.
 */
#ifdef __x86_64__
void sim_swap(void **from, void *to);
__asm__(".text\n"
	".globl sim_swap\n"
	".type sim_swap, @function\n"
	"sim_swap:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size sim_swap, .-sim_swap\n");
#else
#include <ucontext.h>
static void sim_swap(void **from, void *to)
{
	swapcontext(*from, to);
}
#endif

struct sim_task *sim_task(unsigned int id)
{
	return &tasks[id];
}

uint64_t sim_rand(void)
{
	uint64_t a = sim.rng[0];
	uint64_t b = sim.rng[1];
	uint64_t out = a + b;

	b ^= a;
	sim.rng[0] = ((a << 24) | (a >> 40)) ^ b ^ (b << 16);
	sim.rng[1] = (b << 37) | (b >> 27);
	return out;
}

static void sim_go(struct sim_task *to)
{
	struct sim_task *from = sim.current;

	if (to == from)
		return;
	sim.current = to;
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(
		from->state == SIM_DONE ? NULL : &from->fake_stack,
		to == &main_task ? main_task.stack : to->stack,
		to == &main_task ? (size_t)to->arg : SIM_STACK);
#endif
	sim_swap(&from->sp, to->sp);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

static void sim_run_add(struct sim_task *task)
{
	task->state = SIM_RUNNABLE;
	task->run_index = (int)sim.nr_run;
	sim.run[sim.nr_run++] = task;
}

static void sim_run_del(struct sim_task *task)
{
	struct sim_task *last = sim.run[--sim.nr_run];

	sim.run[task->run_index] = last;
	last->run_index = task->run_index;
	task->run_index = -1;
}

/* Wake whoever has slept long enough. */
static void sim_wake_sleepers(void)
{
	uint64_t next = UINT64_MAX;
	unsigned int i;

	for (i = 1; i <= sim.nr_tasks; i++) {
		if (tasks[i].state != SIM_SLEEPING)
			continue;
		if (tasks[i].wake_at <= sim.now) {
			sim.nr_sleeping--;
			sim_run_add(&tasks[i]);
		} else if (tasks[i].wake_at < next) {
			next = tasks[i].wake_at;
		}
	}
	sim.next_wake = next;
}

static struct sim_task *sim_pick(void)
{
	struct sim_task *task;

	if (sim.nr_sleeping && sim.next_wake <= sim.now)
		sim_wake_sleepers();
	if (!sim.nr_run && sim.nr_sleeping) {
		sim.now = sim.next_wake;
		sim_wake_sleepers();
	}
	if (!sim.nr_run)
		sim_violation("deadlock: nobody can go on");
	if (!sim.cfg.switch_mean)
		return sim.run[0];
	task = sim.run[sim_below(sim.nr_run)];
	if (task == sim.slow && !sim_chance(16))
		task = sim.run[sim_below(sim.nr_run)];
	return task;
}

static void sim_countdown_set(void)
{
	if (!sim.cfg.switch_mean)
		sim.countdown = INT64_MAX;
	else
		sim.countdown = (int64_t)sim_below(2 * sim.cfg.switch_mean);
}

/* Another task, or this one, goes on. */
void sim_switch_away(void)
{
	sim_countdown_set();
	if (sim.steps - sim.progress > SIM_PATIENCE)
		sim_violation("no operation ends any more");
	if (!sim.cfg.switch_mean || sim.current == &main_task)
		return;
	if (sim_chance(256))
		sim.slow = sim.nr_run > 1 && sim_chance(2)
				   ? sim.run[sim_below(sim.nr_run)]
				   : NULL;
	sim_go(sim_pick());
}

void sim_yield(void)
{
	struct sim_task *task;

	sim.steps++;
	sim.now += sim.cfg.tick;
	if (sim.cfg.switch_mean) {
		sim_switch_away();
		return;
	}
	/* Without chance: round robin. */
	sim_run_del(sim.current);
	sim_run_add(sim.current);
	task = sim_pick();
	sim_go(task);
}

void sim_task_block(const char *why, const void *what)
{
	struct sim_task *me = sim.current;

	if (me == &main_task)
		sim_violation("main would wait for %s", why);
	me->why = why;
	me->what = what;
	sim_run_del(me);
	me->state = SIM_BLOCKED;
	sim_go(sim_pick());
	me->why = NULL;
}

void sim_task_wake(struct sim_task *task)
{
	if (task->state == SIM_BLOCKED)
		sim_run_add(task);
}

void sim_sleep_until(uint64_t ns)
{
	struct sim_task *me = sim.current;

	if (ns <= sim.now) {
		sim_yield();
		return;
	}
	me->why = "time";
	me->what = NULL;
	me->wake_at = ns;
	sim_run_del(me);
	me->state = SIM_SLEEPING;
	if (!sim.nr_sleeping++ || ns < sim.next_wake)
		sim.next_wake = ns;
	sim_go(sim_pick());
	me->why = NULL;
}

static void sim_task_main(void)
{
	struct sim_task *me = sim.current;

#ifdef __SANITIZE_ADDRESS__
	{
		const void *bottom;
		size_t size;

		__sanitizer_finish_switch_fiber(NULL, &bottom, &size);
		if (!main_task.stack) {
			main_task.stack = (void *)bottom;
			main_task.arg = (void *)size;
		}
	}
#endif
	me->fn(me->arg);
	if (me->nr_held)
		sim_violation("a task ends with a lock held");
	sim_run_del(me);
	me->state = SIM_DONE;
	sim_go(sim.stopping ? &main_task : sim_pick());
	abort();
}

static void sim_task_stack(struct sim_task *task)
{
#ifdef __SANITIZE_ADDRESS__
	ASAN_UNPOISON_MEMORY_REGION(task->stack, SIM_STACK);
	task->fake_stack = NULL;
#endif
#ifdef __x86_64__
	void **top = (void **)((char *)task->stack + SIM_STACK - 64);
	int i;

	*top = (void *)sim_task_main;
	for (i = 0; i < 6; i++)
		*--top = NULL;
	task->sp = top;
#else
	if (!task->sp)
		task->sp = calloc(1, sizeof(ucontext_t));
	getcontext(task->sp);
	((ucontext_t *)task->sp)->uc_stack.ss_sp = task->stack;
	((ucontext_t *)task->sp)->uc_stack.ss_size = SIM_STACK;
	makecontext(task->sp, sim_task_main, 0);
#endif
}

struct sim_task *sim_task_new(const char *name, void (*fn)(void *arg),
			      void *arg, bool daemon)
{
	struct sim_task *task;
	void *stack;
	unsigned int i;

	for (i = 1; i <= sim.nr_tasks; i++)
		if (tasks[i].state == SIM_DONE && &tasks[i] != sim.current)
			break;
	if (i > SIM_MAX_TASKS)
		sim_violation("too many tasks");
	if (i > sim.nr_tasks)
		sim.nr_tasks = i;
	task = &tasks[i];
	stack = task->stack;
	if (!stack) {
		stack = mmap(NULL, SIM_STACK + 4096, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			     0);
		if (stack == MAP_FAILED ||
		    mprotect((char *)stack + 4096, SIM_STACK,
			     PROT_READ | PROT_WRITE))
			abort();
		stack = (char *)stack + 4096;
	}
#ifdef __x86_64__
	memset(task, 0, sizeof(*task));
#else
	{
		void *sp = task->sp;

		memset(task, 0, sizeof(*task));
		task->sp = sp;
	}
#endif
	task->stack = stack;
	task->id = (uint16_t)i;
	task->name = name;
	task->fn = fn;
	task->arg = arg;
	task->daemon = daemon;
	task->fault.task = task;
	sim_task_stack(task);
	sim_run_add(task);
	return task;
}

static void sim_dump_task(const struct sim_task *task)
{
	static const char *const states[] = { "unused", "can run", "waits",
					      "sleeps", "done" };
	unsigned int i;

	fprintf(stderr, "  %c%3u %-10s %-7s", task == sim.current ? '*' : ' ',
		task->id, task->name, states[task->state]);
	if (task->doing)
		fprintf(stderr, " [%s]", task->doing);
	if (task->why)
		fprintf(stderr, " for %s %p", task->why, task->what);
	if (task->fault.waiting)
		fprintf(stderr, " fault %#lx", (unsigned long)task->fault.va);
	for (i = 0; i < task->nr_held; i++)
		fprintf(stderr, "; holds %d:%p", task->held[i].rank,
			(void *)task->held[i].lock);
	fprintf(stderr, "\n");
}

void sim_dump(void)
{
	unsigned int i;

	fprintf(stderr, "step %lu, time %lu ns, tasks:\n",
		(unsigned long)sim.steps, (unsigned long)sim.now);
	for (i = 1; i <= sim.nr_tasks; i++)
		if (tasks[i].state != SIM_UNUSED && tasks[i].state != SIM_DONE)
			sim_dump_task(&tasks[i]);
}

void sim_violation(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "VIOLATION: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	sim_dump();
	if (sim.on_violation)
		sim.on_violation();
	if (getenv("SIM_ABORT"))
		abort();
	exit(1);
}

/*
 * The core compiled with -fsanitize-coverage=trace-pc calls this at each basic
 * block, so that tasks can be switched between any two of them.
 */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
	if (--sim.fine_countdown >= 0)
		return;
	if (!sim.cfg.fine_mean || sim.current == &main_task) {
		sim.fine_countdown = 1 << 20;
		return;
	}
	sim.fine_countdown = (int64_t)sim_below(2 * sim.cfg.fine_mean);
	if (sim.cfg.switch_mean)
		sim_go(sim_pick());
}

struct sim_first {
	void (*fn)(void *arg);
	void *arg;
};

static void sim_first_task(void *arg)
{
	struct sim_first *first = arg;

	first->fn(first->arg);
	sim.stopping = true;
}

static void sim_seed(uint64_t seed)
{
	int i;

	for (i = 0; i < 2; i++) {
		uint64_t z = (seed += 0x9e3779b97f4a7c15ull);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		sim.rng[i] = z ^ (z >> 31);
	}
}

void sim_run(const struct sim_config *cfg, void (*fn)(void *arg), void *arg)
{
	struct sim_first first = { fn, arg };
	void (*on_violation)(void) = sim.on_violation;
	int fail_call = sim.fail_call;
	uint64_t fail_nth = sim.fail_nth;
	int fail_error = sim.fail_error;
	unsigned int i;

	memset(&sim, 0, sizeof(sim));
	sim.cfg = *cfg;
	sim.on_violation = on_violation;
	sim.fail_call = fail_call;
	sim.fail_nth = fail_nth;
	sim.fail_error = fail_error;
	sim.now = 1000;
	sim_seed(cfg->seed);
	sim.current = &main_task;
	for (i = 1; i <= SIM_MAX_TASKS; i++)
		tasks[i].state = SIM_UNUSED;
	sim_heap_init();
	sim_places_init();
	sim_countdown_set();
	sim.fine_countdown = cfg->fine_mean;
	sim_task_new("first", sim_first_task, &first, false);
#ifndef __x86_64__
	if (!main_task.sp)
		main_task.sp = calloc(1, sizeof(ucontext_t));
#endif
	sim_go(sim_pick());
	sim_places_exit();
	sim_heap_exit();
}
