// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * xpu.c - a software GPU to measure with, and unified memory
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "gm_sgpu.h"

#define KERNELS "gmm-bench-kernels.so"

void own_folder(char *path, size_t size, const char *name)
{
	ssize_t len = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	if (len <= 0)
		die("/proc/self/exe: %s", strerror(errno));
	path[len] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash - path) + strlen(name) + 2 > size)
		die("the path of this program is too long");
	strcpy(slash + 1, name);
}

/* Beside this program, as built; else where it was installed. */
static void find_kernels(char *path, size_t size)
{
	own_folder(path, size, KERNELS);
	if (access(path, R_OK))
		snprintf(path, size, "%s/%s", BENCH_KERNEL_DIR, KERNELS);
}

void xpu_open(struct xpu *xpu, uint64_t memory, unsigned int workers)
{
	struct sgpu_config config = { .memory = memory, .workers = workers };
	char path[PATH_MAX];
	int err;

	err = sgpu_open(&config, &xpu->gpu);
	if (err)
		die("a GPU with %llu MiB does not start: %s",
		    (unsigned long long)memory >> 20, sgpu_error(NULL));
	err = gm_sgpu_attach(xpu->gpu, &xpu->node);
	if (err)
		die("the GPU cannot be attached: %s", gm_error());
	find_kernels(path, sizeof(path));
	err = sgpu_module_load(xpu->gpu, path, &xpu->module);
	if (err)
		die("%s: %s", path, sgpu_error(xpu->gpu));
	xpu->result = unified(sizeof(*xpu->result));
}

void xpu_close(struct xpu *xpu)
{
	unified_free(xpu->result, sizeof(*xpu->result));
	if (gm_sgpu_detach(xpu->gpu))
		die("the GPU cannot be detached: %s", gm_error());
	sgpu_close(xpu->gpu);
}

struct sgpu_kernel *xpu_kernel(struct xpu *xpu, const char *name)
{
	struct sgpu_kernel *kernel;

	if (sgpu_kernel_find(xpu->module, name, &kernel))
		die("kernel %s: %s", name, sgpu_error(xpu->gpu));
	return kernel;
}

double xpu_run(struct xpu *xpu, struct sgpu_kernel *kernel, uint64_t grid,
	       const void *args, size_t len)
{
	double start = seconds();
	int err = sgpu_launch(xpu->gpu, NULL, kernel, grid, args, len);

	if (!err)
		err = sgpu_sync(xpu->gpu, NULL);
	if (err)
		die("the kernel failed: %s", sgpu_error(xpu->gpu));
	return seconds() - start;
}

void *unified(size_t len)
{
	void *p = gm_mmap(NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE, -1, 0);

	if (p == MAP_FAILED)
		die("no unified memory: %s", gm_error());
	return p;
}

void unified_free(void *p, size_t len)
{
	if (gm_munmap(p, len))
		die("gm_munmap: %s", gm_error());
}

void bring_home(char *data, size_t pages, uint64_t round)
{
	for (size_t i = 0; i < pages; i++)
		*(volatile uint64_t *)(data + i * GM_PAGE_SIZE) = i + round;
}

void advise(int node, void *p, size_t len, int advice)
{
	if (gmadvise(node, p, len, advice))
		die("gmadvise(%d): %s", advice, gm_error());
}

struct gm_stats stats_now(void)
{
	struct gm_stats s;

	if (gm_process_stats(&s))
		die("no statistics: %s", gm_error());
	return s;
}

uint64_t pages_moved(void)
{
	return stats_now().to_xpu;
}
