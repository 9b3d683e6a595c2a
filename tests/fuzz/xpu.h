/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * xpu.h - an XPU over host memory, and a driver that believes nothing
 *
 * Its page table is an array. Each operator checks that what the manager asks
 * for can be, and some of them fail when the input says so.
 */
#ifndef FUZZ_XPU_H
#define FUZZ_XPU_H

#include <stdbool.h>

#include "gmm/kpi.h"
#include "input.h"

#define XPU_FRAMES 6
#define XPU_PTES 512

struct xpu_pte {
	uint64_t va;
	uint64_t daddr;
	unsigned int prot;
};

struct xpu {
	unsigned char *memory;
	struct xpu_pte ptes[XPU_PTES];
	_Atomic int fail; /* operators to come that succeed before one fails */
	_Atomic int failed;
	_Atomic int lock;
	struct gm_dev *dev;
	int node;
	bool attached;
};

extern const struct gm_dev_ops xpu_ops;

void xpu_start(struct xpu *xpu);
/* A load or store by the XPU; false if its page table does not allow it. */
bool xpu_access(struct xpu *xpu, uint64_t va, uint64_t *word, bool store);
unsigned int xpu_mapped(const struct xpu *xpu);

#endif /* FUZZ_XPU_H */
