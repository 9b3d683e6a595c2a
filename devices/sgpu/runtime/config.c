/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* config.c - what was asked for, checked */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define DEFAULT_MEMORY ((uint64_t)256 << 20)
#ifdef __SANITIZE_THREAD__ /* keeps the usual place to itself */
#define DEFAULT_ARENA_BASE 0x550000000000ull
#define DEFAULT_ARENA_LEN ((uint64_t)256 << 30)
#else
#define DEFAULT_ARENA_BASE 0x300000000000ull
#define DEFAULT_ARENA_LEN ((uint64_t)16 << 40)
#endif
#define ADDRESS_END ((uint64_t)1 << 47)
/* From the library's folder: as installed, then as built. */
#define INSTALLED "../libexec/gmm/sgpu-device"
#define INSTALLED_MULTIARCH "../../libexec/gmm/sgpu-device"
#define BUILT "sgpu-device"

static int parse_u64(const char *name, uint64_t *out, bool suffix)
{
	const char *s = getenv(name);
	unsigned long long v;
	unsigned int shift = 0;
	char *end;

	if (!s || !*s)
		return 0;
	errno = 0;
	v = strtoull(s, &end, 0);
	if (suffix && (*end == 'K' || *end == 'M' || *end == 'G')) {
		shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
		end++;
	}
	if (errno || end == s || *end || *s < '0' || *s > '9' ||
	    v > UINT64_MAX >> shift) {
		open_error("%s=%s is not a number%s", name, s,
			   suffix ? " with K, M, G or nothing behind it, "
				    "or too large"
				  : "");
		return -EINVAL;
	}
	*out = (uint64_t)v << shift;
	return 0;
}

static int check_numbers(struct sgpu_config *c)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t workers = c->workers;
	int ret;

	if (!c->memory) {
		c->memory = DEFAULT_MEMORY;
		ret = parse_u64("SGPU_MEMORY", &c->memory, true);
		if (ret)
			return ret;
	}
	if (!workers) {
		workers = cpus > 2 ? (uint64_t)cpus - 1 : 1;
		if (workers > WIRE_WORKERS)
			workers = WIRE_WORKERS;
		ret = parse_u64("SGPU_WORKERS", &workers, false);
		if (ret)
			return ret;
	}
	if (!c->memory || c->memory % WIRE_PAGE ||
	    c->memory > ADDRESS_END / 2) {
		open_error("a memory of %llu bytes: a multiple of 2 MiB is "
			   "needed, up to %llu (SGPU_MEMORY=256M is usual)",
			   (unsigned long long)c->memory,
			   (unsigned long long)ADDRESS_END / 2);
		return -EINVAL;
	}
	if (!workers || workers > WIRE_WORKERS) {
		open_error("%llu workers: 1 to %d are possible",
			   (unsigned long long)workers, WIRE_WORKERS);
		return -EINVAL;
	}
	c->workers = (uint32_t)workers;
	return 0;
}

static int check_arena(struct sgpu_config *c)
{
	if (!c->arena_base && !c->arena_len) {
		c->arena_base = DEFAULT_ARENA_BASE;
		c->arena_len = DEFAULT_ARENA_LEN;
	}
	if (!c->arena_base || !c->arena_len || c->arena_base % WIRE_PAGE ||
	    c->arena_len % WIRE_PAGE || c->arena_base >= ADDRESS_END ||
	    c->arena_len > ADDRESS_END - c->arena_base) {
		open_error("an arena of %#llx bytes at %#llx cannot be",
			   (unsigned long long)c->arena_len,
			   (unsigned long long)c->arena_base);
		return -EINVAL;
	}
	return 0;
}

static char *beside_library(const char *name)
{
	Dl_info info;
	const char *slash;
	char *path, *real;

	if (!dladdr((void *)(uintptr_t)config_resolve, &info) ||
	    !info.dli_fname)
		return NULL;
	slash = strrchr(info.dli_fname, '/');
	if (asprintf(&path, "%.*s%s",
		     slash ? (int)(slash + 1 - info.dli_fname) : 0,
		     info.dli_fname, name) < 0)
		return NULL;
	real = access(path, X_OK) ? NULL : realpath(path, NULL);
	free(path);
	return real;
}

/* Asked for, then the environment, then beside the library. */
static int find_program(struct sgpu *gpu)
{
	const char *path = gpu->config.program;

	if (!path)
		path = getenv("SGPU_PROGRAM");
	if (path && *path) {
		if (access(path, X_OK)) {
			open_error("the device program %s: %s", path,
				   strerror(errno));
			return -ENOENT;
		}
		/* A restart may come after a chdir(). */
		gpu->program = realpath(path, NULL);
		return gpu->program ? 0 : -ENOMEM;
	}
	gpu->program = beside_library(BUILT);
	if (!gpu->program)
		gpu->program = beside_library(INSTALLED);
	if (!gpu->program)
		gpu->program = beside_library(INSTALLED_MULTIARCH);
	if (!gpu->program) {
		open_error("no device program beside the library nor "
			   "installed; SGPU_PROGRAM can name it");
		return -ENOENT;
	}
	return 0;
}

int config_resolve(const struct sgpu_config *config, struct sgpu *gpu)
{
	const char *fail;
	int ret;

	if (config)
		gpu->config = *config;
	fail = gpu->config.fail ? gpu->config.fail : getenv("SGPU_FAIL");
	ret = inject_parse(fail, &gpu->inject);
	if (ret) {
		open_error("'%s' is no list of faults to inject", fail);
		return ret;
	}
	gpu->injecting = fail && *fail;
	ret = check_numbers(&gpu->config);
	if (!ret)
		ret = check_arena(&gpu->config);
	if (!ret)
		ret = find_program(gpu);
	gpu->config.fail = NULL;
	gpu->config.program = NULL;
	return ret;
}
