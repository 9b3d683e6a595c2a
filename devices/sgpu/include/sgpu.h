/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sgpu.h - the runtime of the software GPU: open, load kernels, launch, wait
 *
 * What a maker's runtime would be. It knows nothing of a memory manager: the
 * pointers that a launch gets are valid on the GPU if somebody maps them there.
 * All functions return 0 or a negative errno; sgpu_error() says more.
 */
#ifndef SGPU_H
#define SGPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sgpu;
struct sgpu_module;
struct sgpu_kernel;
struct sgpu_stream;

/**
 * struct sgpu_config - how a GPU is made; zeros mean the default
 * @memory: bytes of its memory, a multiple of 2 MiB (default 256 MiB, or the
 *	environment's SGPU_MEMORY, which understands K, M and G)
 * @workers: threads that run kernels (default: CPUs - 1, at least 1; SGPU_WORKERS)
 * @link_mbps: speed of its link in 10^6 bytes/s, 0 for the machine's own
 * @latency_us: added to each command
 * @arena_base: addresses at which the program's pointers may be mapped on the
 * @arena_len: GPU; reserved there at start (default: 0x3000_0000_0000, 16 TiB)
 * @fail: faults to inject, for tests; see sgpu_hw.h (SGPU_FAIL)
 * @program: path of the device program (default: found beside the library,
 *	then the one installed; SGPU_PROGRAM)
 */
struct sgpu_config {
	uint64_t memory;
	uint32_t workers;
	uint32_t link_mbps;
	uint32_t latency_us;
	uint64_t arena_base;
	uint64_t arena_len;
	const char *fail;
	const char *program;
};

/**
 * sgpu_open() - start a GPU
 * @config: NULL for the defaults
 * @out: the GPU
 *
 * Return: 0; -EINVAL for a configuration that cannot be; -ENOENT if the device
 * program is not found; -ENOMEM; -EIO if it does not start.
 */
int sgpu_open(const struct sgpu_config *config, struct sgpu **out);

/*
 * Stop it. Launches that still run are ended, and a driver that is attached lets
 * go first; should that fail, the GPU stays open. NULL is allowed.
 */
void sgpu_close(struct sgpu *gpu);

/**
 * sgpu_module_load() - load a shared object with kernels into the GPU
 * @path: made with sgpu_kernel.h
 *
 * Return: 0; -ENOENT; -ENOEXEC if it cannot be loaded there; -ENODEV.
 */
int sgpu_module_load(struct sgpu *gpu, const char *path,
		     struct sgpu_module **out);

/* Return: 0; -ENOENT if @module has no kernel of that name. */
int sgpu_kernel_find(struct sgpu_module *module, const char *name,
		     struct sgpu_kernel **out);

int sgpu_stream_create(struct sgpu *gpu, struct sgpu_stream **out);
/* Waits for its launches. */
void sgpu_stream_destroy(struct sgpu_stream *stream);

#define SGPU_ARGS_MAX 256

/**
 * sgpu_launch() - run a kernel once for each index below @grid
 * @stream: launches of one stream run in order; NULL is the default stream
 * @kernel: from sgpu_kernel_find()
 * @grid: how many indices; each runs on one of the GPU's workers
 * @args: copied
 * @len: at most SGPU_ARGS_MAX
 *
 * Returns at once; errors of the kernel come from sgpu_sync().
 *
 * Return: 0; -EINVAL; -ENODEV if the GPU is dead; the sticky error of an
 * earlier launch, until sgpu_reset().
 */
int sgpu_launch(struct sgpu *gpu, struct sgpu_stream *stream,
		struct sgpu_kernel *kernel, uint64_t grid, const void *args,
		size_t len);

/**
 * sgpu_sync() - wait for all launches of a stream, or with NULL of all streams
 *
 * Return: 0; -EFAULT, -EACCES, -ENOMEM, -EBUSY, -EHWPOISON, -EIO: a kernel
 * could not reach its memory; sgpu_error() names kernel, index and address;
 * sticky: later launches fail until sgpu_reset(). -ECANCELED: a kernel crashed
 * by itself. -ENODEV: the GPU is dead.
 */
int sgpu_sync(struct sgpu *gpu, struct sgpu_stream *stream);

/* Clear a sticky error: modules, kernels and streams live on. -ENODEV if dead. */
int sgpu_reset(struct sgpu *gpu);

/*
 * The text of the last error of this GPU; valid until the next one. With NULL
 * why this thread's last sgpu_open() failed.
 */
const char *sgpu_error(struct sgpu *gpu);

#ifdef __cplusplus
}
#endif

#endif /* SGPU_H */
