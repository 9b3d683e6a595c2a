/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * sys.h - the system calls of this host, each in one place
 *
 * The memory calls go to the kernel directly: under the preload library the C
 * library's names lead back to us. Tests that are built with GM_TEST can make
 * any of them fail.
 */
#ifndef GM_USER_SYS_H
#define GM_USER_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than the headers of the systems that we build on. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum gm_sys_call {
	GM_SYS_MMAP,
	GM_SYS_MUNMAP,
	GM_SYS_MPROTECT,
	GM_SYS_MADVISE,
	GM_SYS_MREMAP,
	GM_SYS_MLOCK,
	GM_SYS_IOCTL,
	GM_SYS_OPEN,
	GM_SYS_THREAD,
};

#ifdef GM_TEST
/* Returns the errno with which a call is to fail, 0 to let it go on. */
extern int (*gm_sys_hook)(enum gm_sys_call call, unsigned long what);
static inline int gm_sys_fails(enum gm_sys_call call, unsigned long what)
{
	int (*hook)(enum gm_sys_call, unsigned long) =
		__atomic_load_n(&gm_sys_hook, __ATOMIC_ACQUIRE);
	int err = hook ? hook(call, what) : 0;

	if (err)
		errno = err;
	return err;
}
#else
#define gm_sys_fails(call, what) 0
#endif

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
/* The sanitizers follow mappings through the C library's functions. */
#define GM_SYS(name, ...) ((long)name(__VA_ARGS__))
#else
#define GM_SYS(name, ...) syscall(SYS_##name, __VA_ARGS__)
#endif

static inline void *gm_sys_mmap(uint64_t addr, uint64_t len, int prot,
				int flags)
{
	if (gm_sys_fails(GM_SYS_MMAP, (unsigned long)flags))
		return MAP_FAILED;
	return (void *)GM_SYS(mmap, (void *)addr, (size_t)len, prot,
			      flags | MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      (off_t)0);
}

/* Unmapping our own memory only fails where a mapping must be split. */
static inline int gm_sys_munmap(uint64_t addr, uint64_t len)
{
	if (gm_sys_fails(GM_SYS_MUNMAP, 0))
		return -1;
	return (int)GM_SYS(munmap, (void *)addr, (size_t)len);
}

static inline int gm_sys_mprotect(uint64_t addr, uint64_t len, int prot)
{
	if (gm_sys_fails(GM_SYS_MPROTECT, (unsigned long)prot))
		return -1;
	return (int)GM_SYS(mprotect, (void *)addr, (size_t)len, prot);
}

static inline int gm_sys_madvise(uint64_t addr, uint64_t len, int advice)
{
	if (gm_sys_fails(GM_SYS_MADVISE, (unsigned long)advice))
		return -1;
	return (int)GM_SYS(madvise, (void *)addr, (size_t)len, advice);
}

static inline int gm_sys_mremap(uint64_t from, uint64_t len, uint64_t to)
{
	if (gm_sys_fails(GM_SYS_MREMAP, 0))
		return -1;
	return GM_SYS(mremap, (void *)from, (size_t)len, (size_t)len,
		      MREMAP_MAYMOVE | MREMAP_FIXED, (void *)to) == (long)to
		       ? 0
		       : -1;
}

/* Lock what is there and what comes, but populate nothing; or unlock. */
static inline int gm_sys_mlock(uint64_t addr, uint64_t len, int on)
{
	if (gm_sys_fails(GM_SYS_MLOCK, (unsigned long)on))
		return -1;
	return on ? (int)syscall(SYS_mlock2, addr, len, 1 /* ONFAULT */)
		  : (int)syscall(SYS_munlock, addr, len);
}

static inline int gm_sys_ioctl(int fd, unsigned long request, void *arg)
{
	if (gm_sys_fails(GM_SYS_IOCTL, request))
		return -1;
	return ioctl(fd, request, arg);
}

static inline int gm_sys_open(const char *path, int flags)
{
	if (gm_sys_fails(GM_SYS_OPEN, 0))
		return -1;
	return open(path, flags | O_CLOEXEC);
}

#endif /* GM_USER_SYS_H */
