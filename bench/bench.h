/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * bench.h - what the parts of gmm-bench share
 *
 * Speeds are ratios to the machine's own: the unit is the best single-thread
 * copy of huge pages that are there already, measured again before each
 * subject. So a figure means the same on a slow and on a fast machine, and
 * what disturbs one disturbs both.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "gmm/gmm.h"
#include "kernels.h"
#include "sgpu.h"

#define MAX_ROUNDS 1000

struct options {
	int json;
	unsigned int rounds; /* that are timed; one more comes before them */
	uint64_t memory; /* of the XPU; what it works on is half of that */
	const char *model; /* the only one for llm; NULL: three of them */
	unsigned int tokens; /* of each of its answers */
};

extern struct options options;

void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* --- stats.c ----------------------------------------------------------- */

/* One figure, measured once a round. */
struct series {
	const char *metric;
	const char *unit;
	unsigned int n;
	double values[MAX_ROUNDS];
};

void series_start(struct series *s, const char *metric, const char *unit);
void series_add(struct series *s, double value);
/* The median, and the quartiles as low and high. */
void series_print(struct series *s);
/* Sorts @values. */
double percentile(double *values, unsigned int n, double p);

/* --- unit.c ------------------------------------------------------------ */

/* Use memory and give it back: memory that a virtual machine has never used
 * is many times slower. */
void warm_up(void);
/* @len bytes of ordinary anonymous memory in huge pages, all touched. */
void *huge_alloc(size_t len);
void huge_free(void *p, size_t len);
/* Without touching it. */
void *huge_reserve(size_t len);
/* Bytes a second of the best copy loop, measured now. */
double unit_speed(void);

double seconds(void);

/* --- xpu.c ------------------------------------------------------------- */

struct xpu {
	struct sgpu *gpu;
	struct sgpu_module *module;
	int node;
	struct bench_result *result; /* unified */
};

/* The path of @name in the folder of this program. */
void own_folder(char *path, size_t size, const char *name);
void xpu_open(struct xpu *xpu, uint64_t memory, unsigned int workers);
void xpu_close(struct xpu *xpu);
struct sgpu_kernel *xpu_kernel(struct xpu *xpu, const char *name);
/* Run it and wait; how long that took, in seconds. */
double xpu_run(struct xpu *xpu, struct sgpu_kernel *kernel, uint64_t grid,
	       const void *args, size_t len);

void *unified(size_t len);
void unified_free(void *p, size_t len);
/* The CPU writes every page, so that no XPU has one. */
void bring_home(char *data, size_t pages, uint64_t round);
/* gmadvise() that must succeed. */
void advise(int node, void *p, size_t len, int advice);
/* What has happened so far; pages copied into XPUs. */
struct gm_stats stats_now(void);
uint64_t pages_moved(void);

/* --- the benchmarks ----------------------------------------------------- */

void bench_copy(void);
void bench_fault_seq(void);
void bench_fault_random(void);
void bench_fault_latency(void);
void bench_prefetch_32m(void);
void bench_prefetch_2m(void);
void bench_memcpy_2m(void);
void bench_memcpy_32m(void);
void bench_memcpy_plain(void);
void bench_memcpy_home(void);
void bench_first_touch(void);
void bench_first_touch_attached(void);
void bench_resident(void);
void bench_matmul(void);
void bench_llm(void);
/* Whether its program is. */
int llm_there(void);

#endif
