/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * harness.h - a GPU with the smallest driver there can be
 *
 * Page i of the arena has frame i; a fault maps it with the rights it asks
 * for, unless a test says what to answer instead.
 */
#ifndef SGPU_TEST_HARNESS_H
#define SGPU_TEST_HARNESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "sgpu.h"
#include "sgpu_hw.h"

#define PAGE SGPU_HW_PAGE

struct rig {
	struct sgpu *gpu;
	struct sgpu_hw_info info;
	struct sgpu_module *module;
	pthread_t threads[2];
	unsigned int nr_threads;
	_Atomic int answer; /* if not 0, of faults on page 63 */
	_Atomic unsigned int reads;
	_Atomic unsigned int writes;
	_Atomic unsigned int deaths;
	_Atomic unsigned int gone;
	_Atomic uint64_t last_addr;
	_Atomic bool hold; /* leave faults unanswered */
	const void *copy; /* if not NULL, a page to copy into each frame */
};

/* Open, load the kernels, bind, serve faults. Fails the test if it cannot. */
void rig_open(struct rig *rig, const struct sgpu_config *config);
void rig_close(struct rig *rig);

/* The same without driver. */
void rig_open_bare(struct rig *rig, const struct sgpu_config *config);
void rig_bind(struct rig *rig);
void rig_unbind(struct rig *rig);

struct sgpu_kernel *rig_kernel(struct rig *rig, const char *name);
/* Launch and wait; what sgpu_sync() says. */
int rig_run(struct rig *rig, const char *name, uint64_t grid, const void *args,
	    size_t len);

/* Where page @i is on the device, and its frame in this process. */
static inline uint64_t va(const struct rig *rig, uint64_t i)
{
	return rig->info.arena_base + i * PAGE;
}

static inline uint64_t *frame(const struct rig *rig, uint64_t i)
{
	return (uint64_t *)((char *)rig->info.window + i * PAGE);
}

int rig_map(struct rig *rig, uint64_t page, uint64_t frame_nr, uint64_t n,
	    uint32_t prot);
int rig_unmap(struct rig *rig, uint64_t page, uint64_t n);
int rig_protect(struct rig *rig, uint64_t page, uint64_t n, uint32_t prot);

uint64_t now_us(void);
/* Wait, up to ten seconds, for a word to become a value. */
bool becomes(_Atomic unsigned int *word, unsigned int value);

#endif /* SGPU_TEST_HARNESS_H */
