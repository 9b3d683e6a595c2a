/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * torture.h - random operations on a simulated machine, checked at each step
 */
#ifndef TORTURE_H
#define TORTURE_H

#include "tests/sim/model.h"

/* X(name, how often, function) */
#define TORTURE_OPS(X)                       \
	X(CPU_LOAD, 300, op_cpu_load)        \
	X(CPU_STORE, 300, op_cpu_store)      \
	X(XPU_LOAD, 400, op_xpu_load)        \
	X(XPU_STORE, 300, op_xpu_store)      \
	X(XPU_ADD, 200, op_xpu_add)          \
	X(XPU_BATCH, 30, op_xpu_batch)       \
	X(WILLNEED, 40, op_willneed)         \
	X(ADVISE, 30, op_advise)             \
	X(MOVE, 30, op_move)                 \
	X(EXCHANGE, 40, op_exchange)         \
	X(PREFETCH_ALL, 2, op_prefetch_all)  \
	X(DONTNEED, 30, op_dontneed)         \
	X(SYS_DONTNEED, 15, op_sys_dontneed) \
	X(MEMCPY, 50, op_memcpy)             \
	X(MMAP, 25, op_mmap)                 \
	X(MUNMAP, 8, op_munmap)              \
	X(SYS_MUNMAP, 6, op_sys_munmap)      \
	X(PROTECT, 15, op_protect)           \
	X(SYS_PROTECT, 8, op_sys_protect)    \
	X(REMAP, 8, op_remap)                \
	X(SYS_REMAP, 8, op_sys_remap)        \
	X(KERNEL_PIN, 8, op_kernel_pin)      \
	X(QUERY, 8, op_query)                \
	X(DEVICE, 6, op_device)              \
	X(RESET, 3, op_reset)                \
	X(DEATH, 1, op_death)

#define TORTURE_OP_ENUM(name, weight, fn) OP_##name,
enum torture_op { TORTURE_OPS(TORTURE_OP_ENUM) NR_OPS };
#undef TORTURE_OP_ENUM

#define MAX_RANGES 3
#define MAX_WORKERS 80

/* A device through its life. */
struct tdev {
	struct sim_dev *dev;
	bool created;
	int node;
	bool busy; /* a step of its life is under way */
	unsigned int nr_ranges;
	unsigned int range_end[MAX_RANGES]; /* frames */
	bool range_on[MAX_RANGES];
};

struct worker {
	unsigned int index;
	unsigned int as;
	uint64_t ops;
};

struct torture {
	struct sim_config cfg;
	struct model *m[SIM_MAX_AS];
	struct tdev devs[SIM_MAX_DEVS];
	unsigned int nr_devs;
	unsigned int nr_workers;
	unsigned int max_pages; /* that are mapped in an address space */
	unsigned int weights[NR_OPS];
	unsigned int weight_sum;
	bool tight; /* memories may be too small for all at once */
	uint64_t hot[SIM_MAX_AS];
	uint64_t ops_left;
	uint64_t ops_done;
	uint64_t until_check;
	uint64_t device_at; /* step of the last change in a device's life */
	uint64_t reset_at; /* step at which a context was last replaced */
	uint64_t next_value;
	unsigned int active;
	unsigned int parked;
	bool park;
	unsigned int rests; /* how often all were parked */
	struct sim_task *coordinator;
	struct worker workers[MAX_WORKERS];
	struct sim_task *tasks[MAX_WORKERS];
};

extern struct torture t;

/* Over all runs. */
struct torture_totals {
	uint64_t ops[NR_OPS];
	uint64_t skipped[NR_OPS];
	uint64_t errors[NR_OPS];
	uint64_t by_errno[256];
	uint64_t checks;
	uint64_t calls;
	uint64_t injected;
	uint64_t runs;
	uint64_t deaths;
};
extern struct torture_totals totals;

#define OP_SKIPPED 1

/* With --trace: one line for each range that an operation begins or ends. */
extern bool torture_trace;
void torture_say(const char *what, const struct model *m, uint64_t va,
		 uint64_t len, int err);
#define SAY(what, m, va, len, err)                          \
	do {                                                \
		if (torture_trace)                          \
			torture_say(what, m, va, len, err); \
	} while (0)
typedef int torture_fn(struct worker *w);
#define TORTURE_OP_FN(name, weight, fn) torture_fn fn;
TORTURE_OPS(TORTURE_OP_FN)
#undef TORTURE_OP_FN

/* A call of the core by this task; its error must come with a text. */
int torture_called(int err, const char *what);
#define CALL(expr) (sim.current->has_error = false, torture_called(expr, #expr))

/* Is this error one that may be? */
bool torture_explained(struct model *m, uint64_t va, uint64_t len, int err);
void torture_error_range(struct model *m, uint64_t va, uint64_t len, int err,
			 const char *what);

/* Addresses and nodes to work on. */
uint64_t pick_word(struct worker *w, struct model *m);
bool pick_run(struct model *m, unsigned int max, uint64_t *va, uint64_t *len);
void cut_run(uint64_t *va, uint64_t *len, uint64_t grain);
int pick_node(void);
struct sim_ctx *pick_ctx(struct model *m);

void torture_setup_devices(void);
void torture_devices_end(bool must);
int tdev_step(struct tdev *d, unsigned int as);
bool torture_guard(struct sim_ctx *ctx, uint64_t va);
void torture_died(struct sim_dev *dev, bool lost);

/* At a quiet moment: everything is as it should be. */
void torture_check(void);
struct gm_entry *torture_entry(struct gm_as *as, uint64_t va,
			       const struct gm_region **region);

#endif /* TORTURE_H */
