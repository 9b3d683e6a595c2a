/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * preload.c - unified memory for unchanged programs
 *
 * mmap() with MAP_XPU_VISIBLE makes unified memory; the other memory calls,
 * where they meet it, do what gmm.h's do. move_pages() of the calling process is
 * gm_move_pages(). Everything else goes to the kernel unchanged.
 */
#undef _FILE_OFFSET_BITS /* mmap() and mmap64() are to be two names */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gmm/gmm.h"

#define PUBLIC __attribute__((visibility("default")))
#define MPOL_MF_MOVE (1 << 1)
/* Of a program, all of them. */
#define ADDRESSES ((size_t)1 << 47)

/* Of libgmm. 0: no unified memory there, 1: some, 2: and nothing else. */
int gm_preload_meets(const void *addr, size_t len);

static void *plain_mmap(void *addr, size_t len, int prot, int flags, int fd,
			off_t offset)
{
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
}

PUBLIC void *mmap(void *addr, size_t len, int prot, int flags, int fd,
		  off_t offset)
{
	/* With MAP_SHARED it is some other kernel's flag. */
	if ((flags & MAP_XPU_VISIBLE) && (flags & MAP_TYPE) == MAP_PRIVATE)
		return gm_mmap(addr, len, prot, flags, fd, offset);
	/* A fixed mapping over unified memory ends that first. */
	if ((flags & MAP_FIXED) && gm_preload_meets(addr, len) &&
	    gm_munmap(addr, len))
		return MAP_FAILED;
	return plain_mmap(addr, len, prot, flags, fd, offset);
}

PUBLIC void *mmap64(void *addr, size_t len, int prot, int flags, int fd,
		    off64_t offset)
{
	return mmap(addr, len, prot, flags, fd, offset);
}

PUBLIC int munmap(void *addr, size_t len)
{
	int meets = gm_preload_meets(addr, len);

	if (meets && gm_munmap(addr, len))
		return -1;
	if (meets == 2)
		return 0;
	return (int)syscall(SYS_munmap, addr, len);
}

PUBLIC int mprotect(void *addr, size_t len, int prot)
{
	if (gm_preload_meets(addr, len))
		return gm_mprotect(addr, len, prot);
	return (int)syscall(SYS_mprotect, addr, len, prot);
}

PUBLIC void *mremap(void *addr, size_t old_len, size_t new_len, int flags, ...)
{
	void *fixed = NULL;
	va_list args;

	if (flags & MREMAP_FIXED) {
		va_start(args, flags);
		fixed = va_arg(args, void *);
		va_end(args);
	}
	if (gm_preload_meets(addr, old_len ? old_len : 1) &&
	    !(flags & ~MREMAP_MAYMOVE))
		return gm_mremap(addr, old_len, new_len, flags);
	return (void *)syscall(SYS_mremap, addr, old_len, new_len, flags,
			       fixed);
}

PUBLIC int madvise(void *addr, size_t len, int advice)
{
	if ((advice == MADV_DONTNEED || advice == MADV_FREE) &&
	    gm_preload_meets(addr, len))
		return gmadvise(GM_NODE_NONE, addr, len, GM_DONTNEED);
	return (int)syscall(SYS_madvise, addr, len, advice);
}

/*
 * libnuma's name for the system call. Of other processes, and of pages that
 * others share (MPOL_MF_MOVE_ALL), Linux alone can move them.
 */
long move_pages(int pid, unsigned long count, void **pages, const int *nodes,
		int *status, int flags);
PUBLIC long move_pages(int pid, unsigned long count, void **pages,
		       const int *nodes, int *status, int flags)
{
	bool ours = (!pid || pid == getpid()) && !(flags & ~MPOL_MF_MOVE);

	/* Only asking, it need not know of us if there is no unified memory. */
	if (ours && (nodes || gm_preload_meets(NULL, ADDRESSES)))
		return gm_move_pages(count, pages, nodes, status,
				     GM_MOVE_PARALLEL | GM_MOVE_CONCURRENT);
	return syscall(SYS_move_pages, pid, count, pages, nodes, status, flags);
}
