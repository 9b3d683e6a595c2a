/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sim.h - the simulated machine: processors, memories, clock and scheduler
 *
 * Everything runs in one thread. Processors and service threads are tasks,
 * each with a stack of its own; a task can be replaced by another only where
 * it passes a point (sim_point()), which each call of the contract does. All
 * choices come from one seed, so a run can be repeated exactly.
 */
#ifndef SIM_H
#define SIM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/core.h"
#include "core/manager.h"

/* A page has four pieces, each of which stands for some 4 KiB pages. */
#define SIM_PIECES 4
#define SIM_PIECE (GM_PAGE_SIZE / SIM_PIECES)
#define SIM_ALL ((1u << SIM_PIECES) - 1)

#define SIM_BASE 0x10000000ull /* first address of an address space */
#define SIM_MAX_TASKS 512
#define SIM_MAX_AS 4
#define SIM_MAX_DEVS 16
#define SIM_MAX_CORES 4
#define SIM_MAX_HELD 64
#define SIM_TLB 16

/*
 * The calls of the contract and the operators: X(name, may be made to fail)
 */
#define SIM_CALLS(X)        \
	X(LOCK, 0)          \
	X(TRYLOCK, 1)       \
	X(UNLOCK, 0)        \
	X(WAITQ_READ, 0)    \
	X(WAITQ_WAIT, 0)    \
	X(WAITQ_WAKE, 0)    \
	X(RCU_LOCK, 0)      \
	X(RCU_UNLOCK, 0)    \
	X(RCU_SYNC, 0)      \
	X(NOW, 0)           \
	X(SLEEP, 0)         \
	X(PARALLEL, 0)      \
	X(ZALLOC, 1)        \
	X(ZFREE, 0)         \
	X(SLOTS_GET, 1)     \
	X(PAGE_GET, 1)      \
	X(PAGE_PUT, 0)      \
	X(COPY, 0)          \
	X(ZERO, 0)          \
	X(EXCHANGE, 0)      \
	X(CPU_NODE, 0)      \
	X(CPU_MAP, 1)       \
	X(CPU_UNMAP, 1)     \
	X(CPU_FILL, 1)      \
	X(CPU_SCATTER, 1)   \
	X(CPU_POISON, 1)    \
	X(CPU_UNPOISON, 1)  \
	X(CPU_WAKE, 0)      \
	X(USER_READ, 0)     \
	X(USER_WRITE, 0)    \
	X(USER_COPY, 0)     \
	X(RANGE_MAP, 1)     \
	X(RANGE_UNMAP, 0)   \
	X(RANGE_TRACK, 1)   \
	X(RANGE_MOVE, 1)    \
	X(RANGE_PROTECT, 1) \
	X(OP_EXAMINE, 1)    \
	X(OP_RELEASE, 0)    \
	X(OP_ENTER, 1)      \
	X(OP_CLEAR, 1)      \
	X(OP_MEMCPY, 1)     \
	X(OP_ZERO, 1)       \
	X(OP_PROTECT, 1)    \
	X(OP_ENTER_RUNS, 1) \
	X(OP_CLEAR_RUNS, 1) \
	X(STEP, 0) /* the machine's own, inside a call or an access */

#define SIM_CALL_ENUM(name, may_fail) SIM_##name,
enum sim_call { SIM_CALLS(SIM_CALL_ENUM) SIM_NR_CALLS };
#undef SIM_CALL_ENUM

extern const char *const sim_call_names[SIM_NR_CALLS];
extern const bool sim_call_may_fail[SIM_NR_CALLS];

/* --- tasks ------------------------------------------------------------ */

enum sim_task_state {
	SIM_UNUSED,
	SIM_RUNNABLE,
	SIM_BLOCKED,
	SIM_SLEEPING,
	SIM_DONE,
};

struct sim_held {
	struct gm_lock *lock;
	enum gm_rank rank;
};

/* A touch of what is not there, on its way to gm_cpu_fault(). */
struct sim_fault {
	struct sim_fault *next;
	struct sim_task *task;
	uint64_t va;
	enum gm_access access;
	uint32_t seq;
	bool waiting; /* the task sleeps for it */
	bool queued; /* no worker has it yet */
	int error;
};

struct sim_task {
	void *sp;
	uint16_t id;
	uint16_t next; /* in a queue */
	uint8_t state;
	bool daemon; /* may wait for ever */
	int run_index;
	uint64_t wake_at;
	const char *name;
	void (*fn)(void *arg);
	void *arg;
	const char *why; /* what it waits for, for the dump */
	const void *what;
	struct sim_held held[SIM_MAX_HELD];
	unsigned int nr_held;
	unsigned int rcu; /* depth of read sides */
	uint64_t rcu_seq;
	unsigned int in_op; /* inside an operator */
	bool has_error; /* gm_host_error() was called */
	char error[200];
	struct sim_fault fault;
	uint64_t busy_since; /* step at which its operation began */
	const char *doing;
	void *stack;
#if defined(__SANITIZE_ADDRESS__)
	void *fake_stack;
#endif
};

struct sim_task *sim_task_new(const char *name, void (*fn)(void *arg),
			      void *arg, bool daemon);
/* Stop running until sim_task_wake(). */
void sim_task_block(const char *why, const void *what);
void sim_task_wake(struct sim_task *task);
struct sim_task *sim_task(unsigned int id);
void sim_yield(void);
void sim_sleep_until(uint64_t ns);

/* --- the machine ------------------------------------------------------ */

struct sim_config {
	uint64_t seed;
	unsigned int nr_as;
	unsigned int nr_slots; /* pages of addresses in each address space */
	unsigned int nr_plain; /* of which the last ones are plain memory */
	unsigned int host_nodes;
	unsigned int host_frames; /* that can be at rest */
	unsigned int reserve; /* of which these only for reclaim */
	unsigned int max_replicas;
	unsigned int fault_workers; /* for each address space */
	unsigned int switch_mean; /* points between switches; 0: none */
	unsigned int fine_mean; /* the same in basic blocks of the core */
	unsigned int tick; /* nanoseconds from point to point */
	unsigned int inject_ppm; /* failing calls in a million */
	unsigned int lost_ppm; /* failing operators that say -ENODEV */
	bool trace; /* print what is done to page tables */
};

struct sim_rank_stats {
	uint64_t taken;
	uint64_t waited;
	uint64_t refused; /* trylock */
	uint64_t wait_ns;
};

struct sim_machine {
	struct sim_config cfg;
	uint64_t rng[2];
	uint64_t now;
	uint64_t steps;
	uint64_t progress; /* step at which an operation last ended */
	int64_t countdown; /* points until the next switch */
	int64_t fine_countdown;
	struct sim_task *current;
	struct sim_task *slow; /* is passed over most of the time */
	struct sim_task *run[SIM_MAX_TASKS];
	unsigned int nr_run;
	unsigned int nr_sleeping;
	uint64_t next_wake;
	unsigned int nr_tasks;
	bool stopping;
	struct sim_as *as[SIM_MAX_AS];
	struct sim_dev *devs[SIM_MAX_DEVS];
	uint64_t calls[SIM_NR_CALLS];
	/* failures */
	bool inject; /* allowed at the moment */
	uint64_t tries[SIM_NR_CALLS]; /* while allowed */
	int fail_call; /* -1, or: fail this call ... */
	uint64_t fail_nth; /* ... the n-th time, from 1 */
	int fail_error; /* with this, 0: its usual one */
	uint64_t injected;
	/* memory */
	uint64_t heap_live;
	uint64_t places_live;
	uint64_t frames_used;
	struct sim_rank_stats ranks[GM_NR_RANKS];
	void (*on_violation)(void);
};

extern struct sim_machine sim;

/* Build a machine, run fn(arg) as its first task until that returns, and
 * take it down, looking for leaks. */
void sim_run(const struct sim_config *cfg, void (*fn)(void *arg), void *arg);

void sim_violation(const char *fmt, ...)
	__attribute__((format(printf, 1, 2), noreturn));
void sim_dump(void);

uint64_t sim_rand(void);
static inline uint64_t sim_below(uint64_t n)
{
	return (uint64_t)(((unsigned __int128)sim_rand() * n) >> 64);
}
static inline bool sim_chance(unsigned int one_in)
{
	return sim_below(one_in) == 0;
}

void sim_switch_away(void);

/* Here another task may go on. */
static inline void sim_point(enum sim_call call)
{
	sim.calls[call]++;
	sim.steps++;
	sim.now += sim.cfg.tick;
	if (__builtin_expect(--sim.countdown < 0, 0))
		sim_switch_away();
}

/* The same, for a call of the contract: checks what holds for all. */
void sim_enter(enum sim_call call);
bool sim_inject(enum sim_call call);

#define SIM_CHECK(cond, ...)                        \
	do {                                        \
		if (__builtin_expect(!(cond), 0))   \
			sim_violation(__VA_ARGS__); \
	} while (0)

/* Highest rank held by the current task, -1 if none. */
int sim_rank_held(void);
bool sim_holds_rank(enum gm_rank rank);
void sim_lock_check_freed(const void *p, size_t len);

/* --- small memory, places at rest ------------------------------------- */

void sim_heap_init(void);
void sim_heap_exit(void);
bool sim_heap_owns(const void *p, size_t len);

/* A host frame at rest, or room for one. */
struct sim_place {
	struct gm_page page;
	_Alignas(16) uint8_t data[GM_PAGE_SIZE];
	struct sim_as *as;
	struct sim_place *next;
	uint32_t index;
	bool used;
};

void sim_places_init(void);
void sim_places_exit(void);
static inline struct sim_place *sim_place(const struct gm_page *page)
{
	return (struct sim_place *)((char *)page -
				    offsetof(struct sim_place, page));
}
/* The place that holds this memory, if any. */
/* The host node of the running task. */
int sim_node_near(void);
struct sim_place *sim_place_of(const void *p, size_t len);
void sim_place_fill(struct sim_place *place);
void sim_place_vacate(struct sim_place *place);
unsigned int sim_places_count(void);

/* --- the program: its page table, its accesses, its system calls ------- */

/* The page table of one page. Masks have a bit for each piece. */
struct sim_slot {
	_Alignas(16) uint8_t data[GM_PAGE_SIZE];
	uint8_t mapped;
	uint8_t readable;
	uint8_t writable;
	uint8_t present;
	uint8_t tracked;
	uint8_t poison;
	uint8_t reserved; /* GM_RANGE_RESERVE_ONLY */
	uint8_t nid; /* of what is present */
	uint16_t pins; /* the kernel's */
};

enum sim_event_kind {
	SIM_EV_UNMAP,
	SIM_EV_REMOVE,
	SIM_EV_REMAP,
	SIM_EV_MOVED, /* the unmapping that follows a REMAP: not told */
};

struct sim_event {
	struct sim_event *next;
	enum sim_event_kind kind;
	uint64_t va;
	uint64_t len;
	uint64_t to;
	bool read; /* the call that made it may return */
	bool done; /* a worker has told the core */
	struct sim_task *waiter;
};

struct sim_as {
	struct gm_as as;
	unsigned int index;
	struct sim_slot *slots;
	unsigned int nr_slots;
	struct sim_fault *faults; /* in the order of arrival */
	struct sim_fault **faults_tail;
	struct sim_fault *waiting[SIM_MAX_TASKS];
	unsigned int nr_waiting;
	struct sim_task *idle[16]; /* fault workers */
	unsigned int nr_idle;
	unsigned int nr_serving;
	unsigned int nr_faults_queued;
	struct sim_event *events; /* oldest first */
	struct sim_event **events_tail;
	unsigned int nr_unread;
	unsigned int nr_pending; /* not yet worked on */
	uint64_t events_posted;
	uint64_t events_done; /* in the same order */
	struct sim_task *reader;
	struct sim_task *event_worker;
	uint64_t nr_faults;
	uint64_t nr_unwoken; /* served without a wake of the core's */
};

static inline struct sim_slot *sim_slot_at(struct sim_as *as, uint64_t va)
{
	uint64_t i = (va - SIM_BASE) >> GM_PAGE_SHIFT;

	return va >= SIM_BASE && i < as->nr_slots ? &as->slots[i] : NULL;
}
static inline unsigned int sim_piece_mask(uint64_t va)
{
	return 1u << ((va & GM_PAGE_MASK) / SIM_PIECE);
}

struct sim_as *sim_as_new(unsigned int index);
void sim_as_free(struct sim_as *as);

/*
 * The program touches memory; [va, va + len) inside one piece. When it returns
 * 0 the access has just happened and nothing else has since.
 * Return: 0; -EFAULT, -EACCES: SIGSEGV; -EHWPOISON: SIGBUS; other: the fault
 * could not be served.
 */
int sim_cpu_access(struct sim_as *as, uint64_t va, void *buf, size_t len,
		   bool write);
/* The same for any length, in pieces. */
int sim_cpu_access_range(struct sim_as *as, uint64_t va, void *buf, size_t len,
			 bool write);

/*
 * The program's own system calls. They return as soon as their events have been
 * read; sim_event_wait() then waits until the core has been told.
 */
void sim_sys_munmap(struct sim_as *as, uint64_t va, uint64_t len,
		    struct sim_event *ev);
void sim_sys_dontneed(struct sim_as *as, uint64_t va, uint64_t len,
		      struct sim_event *ev);
void sim_event_wait(struct sim_event *ev);
void sim_sys_mprotect(struct sim_as *as, uint64_t va, uint64_t len,
		      unsigned int prot);
/* @to is free. Whole pages. */
void sim_sys_mremap(struct sim_as *as, uint64_t from, uint64_t to, uint64_t len,
		    struct sim_event ev[2]);
/* The kernel takes or drops a reference to a page; -EFAULT if not there. */
int sim_sys_pin(struct sim_as *as, uint64_t va);
void sim_sys_unpin(struct sim_as *as, uint64_t va);
/* No fault and no event is under way. */
bool sim_as_quiet(const struct sim_as *as);
void sim_wake_range(struct sim_as *as, uint64_t va, uint64_t len);

/* --- XPUs ------------------------------------------------------------- */

enum sim_dev_flags {
	SIM_DEV_PROTECT = 1 << 0, /* has pmap_protect */
	SIM_DEV_RUNS = 1 << 1, /* has the batched operators */
	SIM_DEV_RELEASE = 1 << 2, /* has va_release */
};

struct sim_tlb {
	uint32_t slot; /* + 1, 0 is invalid */
	uint32_t frame;
	uint8_t prot;
};

struct sim_core {
	struct sim_tlb tlb[SIM_TLB];
};

struct sim_pte {
	uint32_t frame; /* + 1, 0 is not mapped */
	uint8_t prot;
};

/* A context: the page table of one address space on one device. */
struct sim_ctx {
	struct sim_dev *dev;
	struct sim_as *as;
	struct sim_pte *pt;
	struct sim_core cores[SIM_MAX_CORES];
	bool stopped;
	bool attached;
	bool replacing; /* its operators say -EAGAIN until gm_as_reset() ends */
	unsigned int operators; /* on its page table, under way */
	unsigned int users; /* accesses and faults under way */
	struct sim_task *drain;
	uint64_t refuse_start; /* what va_examine refuses */
	uint64_t refuse_end;
	int64_t examined; /* ranges examined and not released */
};

struct sim_dev {
	struct gm_dev *dev;
	struct gm_dev_ops ops;
	unsigned int index;
	unsigned int flags;
	unsigned int caps;
	uint64_t base; /* device address of frame 0 */
	unsigned int nr_frames;
	uint8_t (*frames)[GM_PAGE_SIZE];
	bool *registered; /* by frame */
	bool dead; /* it no longer obeys; its cores stand still */
	bool lost; /* its memory is gone too */
	struct sim_ctx *ctxs[SIM_MAX_AS];
};

struct sim_dev *sim_dev_new(unsigned int nr_frames, unsigned int caps,
			    unsigned int flags);
void sim_dev_free(struct sim_dev *dev);
/* It stops, as of now, with or without its memory. The core is not told. */
void sim_dev_die(struct sim_dev *dev, bool lost);
extern void (*sim_dev_died)(struct sim_dev *dev, bool lost);

struct sim_ctx *sim_ctx_new(struct sim_dev *dev, struct sim_as *as);
void sim_ctx_free(struct sim_ctx *ctx);
/* No access is under way when this returns, and none starts. */
void sim_ctx_stop(struct sim_ctx *ctx);
void sim_ctx_replace(struct sim_ctx *ctx);

/* Would the program let this context store there now? Asked just before a
 * store that its hardware does not check. */
extern bool (*sim_xpu_guard)(struct sim_ctx *ctx, uint64_t va);

enum sim_xpu_kind { SIM_XPU_LOAD, SIM_XPU_STORE, SIM_XPU_ADD };

/*
 * A core of the XPU touches an aligned word. SIM_XPU_ADD adds *word and
 * returns the old value there. When it returns 0 the access has just happened.
 */
int sim_xpu_access(struct sim_ctx *ctx, unsigned int core, uint64_t va,
		   uint64_t *word, enum sim_xpu_kind kind);
/* As the hardware: no fault is served; -EAGAIN if there is one. */
int sim_xpu_try(struct sim_ctx *ctx, unsigned int core, uint64_t va,
		uint64_t *word, enum sim_xpu_kind kind);

#endif /* SIM_H */
