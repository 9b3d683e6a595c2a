// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * gpu.c - the GPU: open it, share its memory, load the device code
 */
#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gm_sgpu.h"
#include "gmm_ggml.h"

#define DEVICE_CODE "libggml-gmm-device.so"

static struct gpu gpu = { .lock = PTHREAD_MUTEX_INITIALIZER };

void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("ggml-gmm: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

static int is_cpu_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	const char *name = slash ? slash + 1 : info->dlpi_name;

	char *real;
	int found;

	if (strncmp(name, "libggml-cpu", 11))
		return 0;
	/* Not a link to it: what it needs itself is looked for beside it. */
	real = realpath(info->dlpi_name, NULL);
	found = real && strlen(real) < sizeof(gpu.library);
	if (found)
		strcpy(gpu.library, real);
	free(real);
	return found;
}

/*
 * The library that this program's CPU backend came from: texts are equal to the
 * last bit only with the same kernels on both sides.
 */
static bool find_cpu(void)
{
	ggml_backend_init_t init = NULL;
	ggml_backend_reg_t reg = NULL;
	void *library;

	if (!dl_iterate_phdr(is_cpu_library, NULL)) {
		complain("this program has not loaded a libggml-cpu*.so, whose "
			 "kernels run on the GPU; a llama.cpp built with "
			 "GGML_BACKEND_DL does");
		return false;
	}
	library = dlopen(gpu.library, RTLD_NOW | RTLD_NOLOAD);
	if (library)
		init = (ggml_backend_init_t)dlsym(library, "ggml_backend_init");
	if (init)
		reg = init();
	if (!reg || reg->api_version != GGML_BACKEND_API_VERSION) {
		complain("%s is not of backend interface %d", gpu.library,
			 GGML_BACKEND_API_VERSION);
		return false;
	}
	gpu.cpu = reg->iface.get_device(reg, 0);
	return true;
}

static bool load_code(void)
{
	struct sgpu_module *module;
	char path[4096];
	Dl_info info;
	char *slash;

	if (!dladdr(&gpu, &info) ||
	    strlen(info.dli_fname) + sizeof(DEVICE_CODE) > sizeof(path)) {
		complain("cannot tell where this library is");
		return false;
	}
	strcpy(path, info.dli_fname);
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, DEVICE_CODE);
	if (sgpu_module_load(gpu.dev, path, &module) ||
	    sgpu_kernel_find(module, "graph", &gpu.kernel)) {
		complain("%s: %s", path, sgpu_error(gpu.dev));
		return false;
	}
	return true;
}

static bool open_gpu(void)
{
	struct gm_node_info nodes[64];
	int n;

	if (!find_cpu())
		return false;
	if (sgpu_open(NULL, &gpu.dev)) {
		complain("no GPU: %s", sgpu_error(NULL));
		return false;
	}
	if (gm_sgpu_attach(gpu.dev, &gpu.node)) {
		complain("the GPU cannot share this program's memory: %s",
			 gm_error());
		sgpu_close(gpu.dev);
		return false;
	}
	if (!load_code()) {
		sgpu_close(gpu.dev);
		return false;
	}
	n = gm_nodes(nodes, 64);
	for (int i = 0; i < n && i < 64; i++) {
		if (nodes[i].id == gpu.node)
			gpu.capacity = nodes[i].total;
	}
	return true;
}

struct gpu *gpu_get(void)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static bool tried, opened;

	pthread_mutex_lock(&once);
	if (!tried)
		opened = open_gpu();
	tried = true;
	pthread_mutex_unlock(&once);
	return opened ? &gpu : NULL;
}
