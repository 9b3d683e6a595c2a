/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * harness.h - what the tests of the public interface share
 *
 * Each test is a process. world_begin() makes the library ready and notes what
 * the process has; world_end() closes the GPUs that the test has opened and
 * wants to see nothing more than that.
 */
#ifndef TEST_API_HARNESS_H
#define TEST_API_HARNESS_H

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gm_sgpu.h"
#include "gmm/gmm.h"
#include "kernels.h"
#include "sgpu.h"

#define PAGE ((size_t)GM_PAGE_SIZE)
#define WORDS (PAGE / sizeof(uint64_t))
#define SMALL ((size_t)4096)
#define RW (PROT_READ | PROT_WRITE)
#define UNIFIED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE)
/* Mappings that the address sanitizer's allocator takes now and then. */
#ifdef __SANITIZE_ADDRESS__
#define SANITIZER_VMAS 16
#else
#define SANITIZER_VMAS 0
#endif
/* The CPU's node. */
#define HOST 0

/**
 * struct gpu - one software GPU
 * @sgpu: NULL if closed
 * @module: the test kernels
 * @node: its node while it is attached
 * @pages: of its memory
 * @attached: to this process
 */
struct gpu {
	struct sgpu *sgpu;
	struct sgpu_module *module;
	int node;
	size_t pages;
	int attached;
};

/* Two are enough; closed by world_end(). */
extern struct gpu gpu, gpu2;

void world_begin(void);
void world_end(void);

/* Start it, with the kernels loaded; @fail as in struct sgpu_config. */
void gpu_open_failing(struct gpu *g, size_t pages, const char *fail);
void gpu_open(struct gpu *g, size_t pages);
void gpu_attach(struct gpu *g);
void gpu_detach(struct gpu *g);
/* Open and attach. */
void gpu_start(struct gpu *g, size_t pages);
void gpu_close(struct gpu *g);
/* Its device program; 0 if there is none. With two GPUs: the newest. */
int gpu_pid(void);

struct sgpu_kernel *gpu_kernel(struct gpu *g, const char *name);
void gpu_launch(struct gpu *g, const char *name, uint64_t grid,
		const struct kargs *args);
/* Launch and wait: what sgpu_sync() says. */
int gpu_try(struct gpu *g, const char *name, uint64_t grid,
	    const struct kargs *args);
/* The same, and it has to succeed. */
void gpu_run(struct gpu *g, const char *name, uint64_t grid,
	     const struct kargs *args);

/* Whole kernels. Words from the start of @p, which may be of any length. */
void gpu_fill(struct gpu *g, void *p, size_t bytes, uint64_t seed);
void gpu_check(struct gpu *g, const void *p, size_t bytes, uint64_t seed);
/* What the words add up to. */
void gpu_sum_is(struct gpu *g, const void *p, size_t bytes, uint64_t sum);
/* One word of each page. */
void gpu_peek(struct gpu *g, const void *p, size_t pages);
void gpu_poke(struct gpu *g, void *p, size_t pages, uint64_t value);

void cpu_fill(void *p, size_t bytes, uint64_t seed);
void cpu_check(const void *p, size_t bytes, uint64_t seed);
/* Words @from to @to - 1 of what began at @p. */
void cpu_check_from(const void *p, size_t from, size_t to, uint64_t seed);
void all_zero(const void *p, size_t bytes);

/* Unified memory; the test fails if there is none. */
void *um(size_t pages);
/* Plain memory. */
void *plain(size_t bytes);

/* Where the data of a page is, and how it got there. */
enum place {
	ON_CPU, /* written by the CPU */
	ON_XPU, /* written by the XPU */
	ON_BOTH, /* written by the CPU, read by the XPU */
	EVICTED, /* written by the XPU, evicted */
	REST, /* written by the CPU, read by the XPU, dropped there */
	NR_PLACES,
	DISCARDED = NR_PLACES, /* it was there, and reads as zeros now */
	NR_PLACES_ALL
};
extern const char *const place_names[];

/* Make [p, p + bytes) read as the pattern, its pages being at the place. */
void put(struct gpu *g, void *p, size_t bytes, uint64_t seed, enum place place);
/* Evict all that is not pinned. */
void evict_all(struct gpu *g);

struct gm_where where(const void *p);
/* Is every page in this state, with its data on these nodes (bits)? */
void all_in(const void *p, size_t pages, int state, uint64_t copies);

struct gm_stats stats(void);
#define since(before, field) (stats().field - (before).field)

/* A call that has to fail so, and say why. */
#define fails(call, error)                                                    \
	do {                                                                  \
		errno = 0;                                                    \
		ck_assert_msg((call) == -1, "%s succeeded", #call);           \
		ck_assert_msg(errno == (error), "%s: %s, not %s: %s", #call,  \
			      strerrorname_np(errno), strerrorname_np(error), \
			      gm_error());                                    \
		ck_assert_msg(*gm_error(), "%s: no text", #call);             \
	} while (0)
#define fails_map(call, error)                                                \
	do {                                                                  \
		errno = 0;                                                    \
		ck_assert_msg((call) == MAP_FAILED, "%s succeeded", #call);   \
		ck_assert_msg(errno == (error), "%s: %s, not %s: %s", #call,  \
			      strerrorname_np(errno), strerrorname_np(error), \
			      gm_error());                                    \
		ck_assert_msg(*gm_error(), "%s: no text", #call);             \
	} while (0)
#define works(call)                                                      \
	ck_assert_msg((call) == 0, "%s: %s: %s", #call, strerror(errno), \
		      gm_error())

/* Does a load or store there end in this signal? Runs in this process. */
int touch_signal(void *p, int write);

unsigned int count_fds(void);
unsigned int count_threads(void);
unsigned int count_children(void);
unsigned int count_vmas(void);
/* Wait, at most some seconds, until the condition holds. */
#define eventually(cond)                                 \
	do {                                             \
		int tries_ = 0;                          \
		while (!(cond) && tries_++ < 5000)       \
			usleep(1000);                    \
		ck_assert_msg(cond, "never: %s", #cond); \
	} while (0)

/* main(): run the suite, or exit with 77 if the machine lacks something. */
int run_suite(const char *name, void (*add)(TCase *tc));

#endif
