/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * probe.c - does this machine have what unified memory needs?
 *
 * What is missing is said in one sentence, with what to do about it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>

#include "sys.h"
#include "uffd.h"
#include "user.h"

#define NEEDED                                                  \
	((uint64_t)UFFD_FEATURE_MOVE | UFFD_FEATURE_POISON |    \
	 UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | \
	 UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_THREAD_ID |    \
	 UFFD_FEATURE_EXACT_ADDRESS)

static bool env_is_one(const char *name)
{
	const char *value = getenv(name);

	return value && !strcmp(value, "1");
}

/* GM_TEST: what the tests want the machine to look like. */
static const char *seen_as(const char *name)
{
#ifdef GM_TEST
	return getenv(name);
#else
	(void)name;
	return NULL;
#endif
}

/*
 * The repairs of UFFDIO_MOVE that this host cannot do without came with 6.17
 * and went to the stable series 6.12, 6.15 and 6.16.
 */
static bool repaired(int major, int minor, int patch)
{
	if (major != 6)
		return major > 6;
	switch (minor) {
	case 12:
		return patch >= 43;
	case 15:
		return patch >= 11;
	case 16:
		return patch >= 2;
	}
	return minor >= 17;
}

static int check_kernel(void)
{
	const char *fake = seen_as("GMM_TEST_KERNEL");
	int major = 0, minor = 0, patch = 0;
	struct utsname uts;

	uname(&uts);
	sscanf(fake ? fake : uts.release, "%d.%d.%d", &major, &minor, &patch);
	if (repaired(major, minor, patch))
		return 0;
	if (major < 6 || (major == 6 && minor < 8))
		return gm_host_error(-ENOSYS,
				     "Linux %d.%d.%d is too old: unified "
				     "memory needs 6.12.43 or later",
				     major, minor, patch);
	if (env_is_one("GMM_UNSAFE_KERNEL"))
		return 0;
	return gm_host_error(-ENOSYS,
			     "Linux %d.%d.%d can lose or corrupt moved pages: "
			     "use 6.12.43, 6.15.11, 6.16.2, 6.17 or later, or "
			     "set GMM_UNSAFE_KERNEL=1 to take the risk",
			     major, minor, patch);
}

static int check_huge_pages(void)
{
	const char *fake = seen_as("GMM_TEST_THP");
	char buf[128] = "";
	int fd = gm_sys_open("/sys/kernel/mm/transparent_hugepage/enabled",
			     O_RDONLY);
	ssize_t n;
	int off;

	if (fd < 0)
		return gm_host_error(
			-ENOSYS,
			"this kernel has no transparent huge pages: "
			"one with CONFIG_TRANSPARENT_HUGEPAGE is needed");
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (fake)
		snprintf(buf, sizeof(buf), "%s", fake);
	off = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
	if (off > 0)
		return gm_host_error(
			-ENOSYS,
			"this process has transparent huge pages disabled by "
			"prctl(PR_SET_THP_DISABLE), its own or its parent's");
	if (n <= 0 || !strstr(buf, "[never]"))
		return 0;
	return gm_host_error(
		-ENOSYS,
		"transparent huge pages are off: run 'echo madvise | sudo tee "
		"/sys/kernel/mm/transparent_hugepage/enabled'");
}

/* The device file first: it needs only the right to open it. */
static int open_uffd(bool user_only)
{
	const char *path = seen_as("GMM_TEST_UFFD");
	int flags =
		O_CLOEXEC | O_NONBLOCK | (user_only ? UFFD_USER_MODE_ONLY : 0);
	int dev = gm_sys_open(path ? path : "/dev/userfaultfd", O_RDWR);
	int fd;

	if (dev >= 0) {
		fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		close(dev);
		if (fd >= 0)
			return fd;
	}
	if (path && !user_only) {
		errno = EPERM;
		return -1;
	}
	return (int)syscall(SYS_userfaultfd, flags);
}

static int uffd_failed(void)
{
	if (errno == ENOSYS)
		return gm_host_error(-ENOSYS,
				     "this kernel has no userfaultfd: one with "
				     "CONFIG_USERFAULTFD is needed");
	if (errno == EPERM)
		return gm_host_error(
			-EPERM,
			"no right to serve the kernel's page faults: run 'sudo "
			"setfacl -m u:%u:rw /dev/userfaultfd' or 'sudo sysctl "
			"vm.unprivileged_userfaultfd=1'; "
			"GMM_USER_FAULTS_ONLY=1 goes on without, and system "
			"calls on pages that are on an XPU then fail with "
			"EFAULT",
			(unsigned int)getuid());
	return gm_host_error(-errno, "cannot make a userfaultfd: %s",
			     strerror(errno));
}

int gm_uffd_make(uint64_t features, int *out)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = open_uffd(false);

	if (fd < 0 && errno == EPERM && env_is_one("GMM_USER_FAULTS_ONLY"))
		fd = open_uffd(true);
	if (fd < 0)
		return uffd_failed();
	api.features = features;
	if (gm_sys_ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return gm_host_error(-ENOSYS,
				     "this kernel's userfaultfd lacks moving "
				     "or poisoning of pages, or its events: "
				     "Linux 6.12.43 or later is needed");
	}
	*out = fd;
	return 0;
}

/* Move a huge page to the second of three pages and back, and look at it. */
static int try_move(uint64_t base)
{
	uint64_t a = (base + GM_PAGE_MASK) & ~GM_PAGE_MASK;
	uint64_t b = a + GM_PAGE_SIZE;
	struct uffdio_register reg = { .range = { a, 2 * GM_PAGE_SIZE },
				       .mode = UFFDIO_REGISTER_MODE_WP };
	struct uffdio_move move = { .dst = b, .src = a, .len = GM_PAGE_SIZE };
	volatile uint64_t *word = (uint64_t *)(a + GM_PAGE_SIZE / 2);

	/* mlockall(MCL_FUTURE) has filled all three. */
	munlock((void *)a, 2 * GM_PAGE_SIZE);
	if (gm_sys_madvise(a, 2 * GM_PAGE_SIZE, MADV_DONTNEED) ||
	    gm_sys_madvise(a, 2 * GM_PAGE_SIZE, MADV_HUGEPAGE) ||
	    gm_sys_ioctl(gm_user.fd_dock, UFFDIO_REGISTER, &reg))
		return -errno;
	*word = a;
	if (gm_sys_ioctl(gm_user.fd_dock, UFFDIO_MOVE, &move))
		return -errno;
	if (*word != 0 || word[GM_PAGE_SIZE / sizeof(*word)] != a)
		return -EIO;
	return 0;
}

static int check_move(void)
{
	void *p = gm_sys_mmap(0, 3 * GM_PAGE_SIZE, PROT_READ | PROT_WRITE, 0);
	int rc = p == MAP_FAILED ? -ENOMEM : try_move((uint64_t)p);

	if (p != MAP_FAILED)
		gm_sys_munmap((uint64_t)p, 3 * GM_PAGE_SIZE);
	if (rc)
		return gm_host_error(
			rc == -ENOMEM ? -ENOMEM : -ENOSYS,
			"moving a page was tried and failed (%s): a kernel "
			"with a working UFFDIO_MOVE is needed",
			strerror(-rc));
	return 0;
}

static int open_proc(const char *path, int *fd)
{
	*fd = gm_sys_open(path, O_RDONLY);
	if (*fd < 0)
		return gm_host_error(-errno, "cannot open %s: %s", path,
				     strerror(errno));
	return 0;
}

int gm_user_probe(void)
{
	int rc;

	gm_user.fd_region = gm_user.fd_dock = -1;
	gm_user.fd_pagemap = gm_user.fd_maps = -1;
	rc = check_kernel();
	if (!rc)
		rc = check_huge_pages();
	if (!rc)
		rc = gm_uffd_make(NEEDED, &gm_user.fd_region);
	if (!rc)
		rc = gm_uffd_make(UFFD_FEATURE_MOVE, &gm_user.fd_dock);
	if (!rc)
		rc = check_move();
	if (!rc)
		rc = open_proc("/proc/self/pagemap", &gm_user.fd_pagemap);
	if (!rc)
		rc = open_proc("/proc/self/maps", &gm_user.fd_maps);
	if (rc)
		gm_user_close();
	return rc;
}

void gm_user_close(void)
{
	int *fds[] = { &gm_user.fd_region, &gm_user.fd_dock,
		       &gm_user.fd_pagemap, &gm_user.fd_maps };
	unsigned int i;

	for (i = 0; i < 4; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}
