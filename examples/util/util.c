// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * util.c - what every example needs: stop with a reason, open a GPU
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "util.h"

void must(int ok, const char *what, const char *why)
{
	if (ok)
		return;
	fflush(stdout);
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		why && *why ? why : "no reason was given");
	exit(EXIT_FAILURE);
}

void *unified(size_t len)
{
	void *p = gm_mmap(NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE, -1, 0);

	must(p != MAP_FAILED, "no unified memory", gm_error());
	return p;
}

/* The file @name in the directory of this program. */
static void beside_program(char *path, size_t size, const char *name)
{
	ssize_t len = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	must(len > 0, "where is this program?", strerror(errno));
	path[len] = '\0';
	slash = strrchr(path, '/');
	must(slash && strlen(name) < (size_t)(path + size - slash - 1), name,
	     "its path is too long");
	strcpy(slash + 1, name);
}

struct gpu gpu_open(uint64_t memory, const char *kernels)
{
	struct sgpu_config config = { .memory = memory };
	struct gpu gpu = { .node = GM_NODE_NONE };
	char path[4096];
	int err;

	err = sgpu_open(&config, &gpu.dev);
	must(!err, "no GPU", sgpu_error(NULL));
	err = gm_sgpu_attach(gpu.dev, &gpu.node);
	must(!err, "the GPU cannot share this program's memory", gm_error());
	beside_program(path, sizeof(path), kernels);
	err = sgpu_module_load(gpu.dev, path, &gpu.module);
	must(!err, path, sgpu_error(gpu.dev));
	return gpu;
}

struct sgpu_kernel *gpu_kernel(struct gpu *gpu, const char *name)
{
	struct sgpu_kernel *kernel;
	int err = sgpu_kernel_find(gpu->module, name, &kernel);

	must(!err, name, sgpu_error(gpu->dev));
	return kernel;
}

void gpu_run(struct gpu *gpu, struct sgpu_kernel *kernel, uint64_t grid,
	     const void *args, size_t len)
{
	int err = sgpu_launch(gpu->dev, NULL, kernel, grid, args, len);

	if (!err)
		err = sgpu_sync(gpu->dev, NULL);
	must(!err, "the kernel failed", sgpu_error(gpu->dev));
}

void gpu_close(struct gpu *gpu)
{
	int err = gm_sgpu_detach(gpu->dev);

	must(!err, "the GPU cannot be detached", gm_error());
	sgpu_close(gpu->dev);
}

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}
