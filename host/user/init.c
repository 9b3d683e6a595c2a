/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * init.c - the library of this process: made ready at the first call
 *
 * The environment can set, all in docs/design/host-user.md:
 *
 *	GMM_ARENA		first address for unified memory
 *	GMM_WORKERS		threads that serve CPU faults (2 to 4, by CPUs)
 *	GMM_RECYCLE		0: freed pages go back to Linux at once
 *	GMM_REPLICAS		most memory for replicas, in MiB (half of all)
 *	GMM_UNSAFE_KERNEL	1: go on with a kernel that may lose pages
 *	GMM_USER_FAULTS_ONLY	1: go on without the right to kernel faults
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys.h"
#include "user.h"

#ifdef GM_TEST
int (*gm_sys_hook)(enum gm_sys_call call, unsigned long what);
#endif

struct gm_user gm_user = { -1, -1, -1, -1, 1, 2, 0, 0, 0, 0, 0, 0 };

static struct {
	struct gm_lock lock;
	struct gm_as as;
	uint8_t ready; /* (A) */
} library;

/* The thread's last error. Long enough for each sentence that we have. */
static GM_TLS char error_text[512];

int gm_host_error(int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error_text, sizeof(error_text), fmt, args);
	va_end(args);
	return err;
}

const char *gm_error(void)
{
	return error_text;
}

void gm_error_clear(void)
{
	error_text[0] = '\0';
}

void gm_host_bug(const char *file, int line, const char *what)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "gmm: bug at %s:%d: %s\n", file,
			 line, what);

	n = GM_MIN(n, (int)sizeof(text) - 1);
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		abort();
	abort();
}

/* Leaves @value alone if it is not set. */
static int env_number(const char *name, uint64_t *value, uint64_t min,
		      uint64_t max)
{
	const char *text = getenv(name);
	unsigned long long number;
	const char *fmt;
	char *end;

	if (!text || !*text)
		return 0;
	errno = 0;
	number = strtoull(text, &end, 0);
	if (errno || *text < '0' || *text > '9' || *end || number < min ||
	    number > max) {
		/* In the base that the user thinks in. */
		fmt = strncmp(text, "0x", 2) ? "%s=%.64s: a number from %llu "
					       "to %llu is needed"
					     : "%s=%.64s: a number from 0x%llx "
					       "to 0x%llx is needed";
		return gm_host_error(-EINVAL, fmt, name, text,
				     (unsigned long long)min,
				     (unsigned long long)max);
	}
	*value = number;
	return 0;
}

static int read_settings(void)
{
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);
	uint64_t cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t workers = GM_MAX(2, GM_MIN(cpus / 2, 4)), recycle = 1;
	uint64_t replicas, arena = GM_ARENA_BASE;
	int rc;

	gm_user.ram = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	replicas = gm_user.ram / 2 >> 20;
	rc = env_number("GMM_WORKERS", &workers, 1, GM_MAX_WORKERS);
	if (!rc)
		rc = env_number("GMM_RECYCLE", &recycle, 0, 1);
	if (!rc)
		rc = env_number("GMM_REPLICAS", &replicas, 0, UINT64_MAX >> 20);
	if (!rc)
		rc = env_number("GMM_ARENA", &arena, GM_PAGE_SIZE, 1ULL << 46);
	if (rc)
		return rc;
	gm_user.nr_nodes = gm_memory_nr_nodes();
	gm_user.nr_workers = (unsigned int)workers;
	gm_user.nr_helpers = (unsigned int)GM_MIN(GM_MAX(cpus, 3) - 1, 7);
	gm_user.recycle = GM_MIN(gm_user.ram / 16, 1ULL << 30) >> GM_PAGE_SHIFT;
	if (!recycle)
		gm_user.recycle = 0;
	gm_user.replicas = replicas << 20 >> GM_PAGE_SHIFT;
	gm_user.arena_base = arena & ~GM_PAGE_MASK;
	gm_user.arena_len = GM_ARENA_LEN;
#if defined(__SANITIZE_THREAD__)
	/* From here to the lowest place of programs. */
	gm_user.arena_len = 256ULL << 30;
#endif
	return 0;
}

/* Each step undoes itself if it fails; what came before is undone here. */
static int make_ready(void)
{
	int rc;

	if (sysconf(_SC_PAGESIZE) != (long)GM_SMALL_PAGE)
		return gm_host_error(-ENOSYS, "only machines with pages of "
					      "4 KiB are supported");
	rc = read_settings();
	if (!rc)
		rc = gm_fork_init();
	if (rc)
		return rc;
	rc = gm_user_probe();
	if (rc)
		return rc;
	gm_memory_init();
	rc = gm_frames_init();
	if (rc)
		goto err_probe;
	rc = gm_range_init();
	if (rc)
		goto err_frames;
	rc = gm_machine_init(
		gm_user.nr_nodes,
		GM_MAX(gm_user.replicas / (uint64_t)gm_user.nr_nodes, 1ULL));
	if (rc)
		goto err_range;
	rc = gm_as_init(&library.as);
	if (rc)
		goto err_machine;
	return 0;

err_machine:
	gm_machine_exit();
err_range:
	gm_range_exit();
err_frames:
	gm_frames_exit();
err_probe:
	gm_memory_exit();
	gm_user_close();
	return rc;
}

struct gm_as *gm_as_if_ready(void)
{
	return gm_load(&library.ready) ? &library.as : NULL;
}

struct gm_as *gm_as_current(void)
{
	int rc = 0;

	if (gm_fork_is_child()) {
		errno = EPERM;
		gm_host_error(-EPERM,
			      "a child of fork() has no unified memory: use it "
			      "in the parent, or execute a program");
		return NULL;
	}
	if (gm_load(&library.ready))
		return &library.as;
	gm_lock_raw(&library.lock);
	if (!library.ready) {
		rc = make_ready();
		if (!rc)
			gm_store(&library.ready, 1);
	}
	gm_unlock_raw(&library.lock);
	if (rc) {
		errno = -rc;
		return NULL;
	}
	return &library.as;
}

#ifdef GM_TEST
/* Everything back, to see that there is nothing left. No caller may be in. */
void gm_user_exit(void);
void gm_user_exit(void)
{
	if (!library.ready)
		return;
	gm_as_exit(&library.as);
	gm_machine_exit();
	gm_threads_stop();
	gm_range_exit();
	gm_frames_exit();
	gm_memory_exit();
	gm_user_close();
	memset(&library.as, 0, sizeof(library.as));
	gm_store(&library.ready, 0);
}
#endif
