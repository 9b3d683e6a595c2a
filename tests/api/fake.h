/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * fake.h - an XPU inside the test: host memory behind kpi.h, whose operators
 * fail when they are told to
 */
#ifndef TEST_API_FAKE_H
#define TEST_API_FAKE_H

#include <pthread.h>

#include "gmm/kpi.h"
#include "harness.h"

enum fake_op {
	OP_EXAMINE,
	OP_ENTER,
	OP_CLEAR,
	OP_COPY,
	OP_ZERO,
	OP_PROTECT,
	NR_OPS
};
extern const char *const fake_ops[NR_OPS];

#define FAKE_SLOTS 256

/**
 * struct fake - the XPU
 * @dev: the manager's
 * @as: the manager's
 * @node: its node
 * @frames: its memory
 * @pages: of it
 * @lock: of the page table and the counters
 * @va: page table: 0 if the slot is free
 * @frame: which frame
 * @prot: rights
 * @calls: of each operator
 * @fail_at: the call that fails, 0 for none
 * @fail_from: that and all after it
 * @error: with which it fails
 * @refuse_below: va_examine() refuses lower addresses
 * @gone: its memory is lost: nobody clears its page table any more
 * @examined: addresses held by va_examine() and not given back
 */
struct fake {
	struct gm_dev *dev;
	struct gm_as *as;
	int node;
	char *frames;
	size_t pages;
	pthread_rwlock_t lock;
	uint64_t va[FAKE_SLOTS];
	uint64_t frame[FAKE_SLOTS];
	unsigned int prot[FAKE_SLOTS];
	_Atomic unsigned int calls[NR_OPS];
	_Atomic unsigned int fail_at[NR_OPS];
	_Atomic int fail_from;
	_Atomic int error;
	uint64_t refuse_below;
	int gone;
	_Atomic long examined;
};

void fake_open(struct fake *f, size_t pages, unsigned int caps);
/* 0 or what gm_as_attach() says. */
int fake_attach(struct fake *f);
void fake_detach(struct fake *f);
void fake_close(struct fake *f);
/* Take all failures back. */
void fake_heal(struct fake *f);

/* What a kernel would do, faults included: 0 or what gm_dev_fault() says. */
int fake_load(struct fake *f, const uint64_t *p, uint64_t *value);
int fake_store(struct fake *f, uint64_t *p, uint64_t value);

#endif
