/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * util.h - what every example needs: stop with a reason, open a GPU
 */
#ifndef EXAMPLES_UTIL_H
#define EXAMPLES_UTIL_H

#include <stddef.h>
#include <stdint.h>

#include "gmm/gmm.h"
#include "gm_sgpu.h"
#include "sgpu.h"

/* A software GPU, attached, with one module of kernels loaded. */
struct gpu {
	struct sgpu *dev;
	struct sgpu_module *module;
	int node;
};

/* Print what failed and why, and exit, unless @ok. */
void must(int ok, const char *what, const char *why);

/* @len bytes of unified memory; exits if there are none. */
void *unified(size_t len);

/*
 * Start a GPU with @memory bytes (0: its default), attach it to this process
 * and load the kernels in the file @kernels that lies beside this program.
 */
struct gpu gpu_open(uint64_t memory, const char *kernels);
struct sgpu_kernel *gpu_kernel(struct gpu *gpu, const char *name);
/* Run a kernel for all indices below @grid, and wait. */
void gpu_run(struct gpu *gpu, struct sgpu_kernel *kernel, uint64_t grid,
	     const void *args, size_t len);
void gpu_close(struct gpu *gpu);

/* Seconds since some moment. */
double now(void);

#endif
