/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * api.c - the calls of gmm.h: arguments, and errors as system calls have them
 */
#include <string.h>
#include <sys/mman.h>

#include "quiet.h"
#include "sys.h"
#include "user.h"

static struct gm_as *enter_counts(void)
{
	gm_error_clear();
	return gm_as_current();
}

/* Ready, and with what the program did itself before in force. */
static struct gm_as *enter(void)
{
	struct gm_as *as = enter_counts();

	if (as)
		gm_events_barrier();
	return as;
}

static int finish(int rc)
{
	if (!rc)
		return 0;
	errno = -rc;
	return -1;
}

static bool wraps(uint64_t addr, uint64_t len)
{
	return addr + len < addr || addr + len > 1ULL << 56;
}

static int bad_prot(int prot)
{
	if (prot == PROT_NONE || prot == PROT_READ ||
	    prot == (PROT_READ | PROT_WRITE))
		return 0;
	return gm_host_error(-EINVAL,
			     "rights 0x%x: PROT_NONE, PROT_READ or "
			     "PROT_READ | PROT_WRITE are possible",
			     (unsigned int)prot);
}

/* Checks what gm_mmap() got; the flags of the core in *@out. */
static int check_map(uint64_t addr, size_t len, int prot, int flags, int fd,
		     int64_t offset, unsigned int *out)
{
	int known = MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE | MAP_FIXED |
		    MAP_FIXED_NOREPLACE | MAP_NORESERVE;
	int needed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE;

	*out = 0;
	if (!len)
		return gm_host_error(-EINVAL, "a length of 0");
	if (flags & ~known || (flags & needed) != needed)
		return gm_host_error(
			-EINVAL,
			"flags 0x%x: unified memory is MAP_PRIVATE | "
			"MAP_ANONYMOUS | MAP_XPU_VISIBLE",
			(unsigned int)flags);
	if (bad_prot(prot))
		return -EINVAL;
	if (fd != -1 || offset)
		return gm_host_error(-EINVAL, "unified memory is of no file: "
					      "fd must be -1, offset 0");
	if (len > GM_ARENA_LEN)
		return gm_host_error(-ENOMEM,
				     "0x%zx bytes are more than the "
				     "address space holds",
				     len);
	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
		if (addr & GM_PAGE_MASK || !addr || wraps(addr, len))
			return gm_host_error(
				-EINVAL,
				"address 0x%llx: a multiple of 2 MiB is needed",
				(unsigned long long)addr);
		*out = GM_RANGE_FIXED;
	}
	if (flags & MAP_FIXED_NOREPLACE)
		*out |= GM_RANGE_NOREPLACE;
	return 0;
}

void *gm_mmap(void *addr, size_t len, int prot, int flags, int fd,
	      int64_t offset)
{
	QUIETLY;
	struct gm_as *as = enter();
	uint64_t hint = (uint64_t)addr, va;
	unsigned int range_flags;
	int rc;

	if (!as)
		return MAP_FAILED;
	rc = check_map(hint, len, prot, flags, fd, offset, &range_flags);
	if (!rc) {
		len = (len + GM_PAGE_MASK) & ~GM_PAGE_MASK;
		if (!(range_flags & GM_RANGE_FIXED))
			hint = wraps(hint, len) ? 0 : hint & ~GM_PAGE_MASK;
		rc = gm_as_map(as, hint, len, (unsigned int)prot, range_flags,
			       &va);
	}
	return finish(rc) ? MAP_FAILED : (void *)va;
}

/* A range of 4 KiB pages; *@len is rounded up. */
static int check_small(uint64_t addr, size_t *len)
{
	if (addr & (GM_SMALL_PAGE - 1))
		return gm_host_error(-EINVAL,
				     "address 0x%llx: a multiple of "
				     "4 KiB is needed",
				     (unsigned long long)addr);
	if (*len > SIZE_MAX - GM_SMALL_PAGE || wraps(addr, *len))
		return gm_host_error(-EINVAL, "the range wraps around");
	*len = (*len + GM_SMALL_PAGE - 1) & ~(GM_SMALL_PAGE - 1);
	return 0;
}

int gm_munmap(void *addr, size_t len)
{
	QUIETLY;
	struct gm_as *as = enter();
	uint64_t va = (uint64_t)addr;
	int rc;

	if (!as)
		return -1;
	rc = check_small(va, &len);
	if (!rc && !len)
		rc = gm_host_error(-EINVAL, "a length of 0");
	if (!rc && !gm_as_overlaps(as, va, len))
		rc = gm_host_error(-EINVAL,
				   "no unified memory in 0x%zx bytes "
				   "at 0x%llx",
				   len, (unsigned long long)va);
	if (!rc)
		rc = gm_as_unmap(as, va, len);
	return finish(rc);
}

int gm_mprotect(void *addr, size_t len, int prot)
{
	QUIETLY;
	struct gm_as *as = enter();
	uint64_t va = (uint64_t)addr;
	int rc;

	if (!as)
		return -1;
	rc = check_small(va, &len);
	if (!rc)
		rc = bad_prot(prot);
	if (!rc && len)
		rc = gm_as_protect(as, va, len, (unsigned int)prot);
	return finish(rc);
}

void *gm_mremap(void *addr, size_t old_len, size_t new_len, int flags)
{
	QUIETLY;
	struct gm_as *as = enter();
	uint64_t va = (uint64_t)addr, to = 0;
	int rc = 0;

	if (!as)
		return MAP_FAILED;
	if (va & GM_PAGE_MASK || flags & ~MREMAP_MAYMOVE || !old_len ||
	    !new_len)
		rc = gm_host_error(
			-EINVAL,
			"moving needs an address that is a multiple of 2 MiB, "
			"lengths above 0, and flags of 0 or MREMAP_MAYMOVE");
	else if (new_len > GM_ARENA_LEN)
		rc = gm_host_error(-ENOMEM,
				   "0x%zx bytes are more than the "
				   "address space holds",
				   new_len);
	else if (old_len > SIZE_MAX / 2 || wraps(va, old_len + GM_PAGE_SIZE))
		rc = gm_host_error(-EINVAL, "the range wraps around");
	if (!rc)
		rc = gm_as_remap(as, va,
				 (old_len + GM_PAGE_MASK) & ~GM_PAGE_MASK,
				 (new_len + GM_PAGE_MASK) & ~GM_PAGE_MASK,
				 flags & MREMAP_MAYMOVE, &to);
	return finish(rc) ? MAP_FAILED : (void *)to;
}

int gmadvise(int node, void *addr, size_t len, int advice)
{
	QUIETLY;
	struct gm_as *as = enter();
	bool known = advice == GM_WILLNEED || advice == GM_DONTNEED ||
		     (advice >= GM_READ_MOSTLY && advice <= GM_UNPIN);
	int rc = 0;

	if (!as)
		return -1;
	if (!known)
		rc = gm_host_error(-EINVAL, "advice %d is unknown", advice);
	else if (wraps((uint64_t)addr, len))
		rc = gm_host_error(-EINVAL, "the range wraps around");
	else if (len)
		rc = gm_as_advise(as, node, (uint64_t)addr, len, advice);
	return finish(rc);
}

int gmemcpy(int node, void *dst, const void *src, size_t len)
{
	QUIETLY;
	struct gm_as *as = enter();
	int rc = 0;

	if (!as)
		return -1;
	if (wraps((uint64_t)dst, len) || wraps((uint64_t)src, len))
		rc = gm_host_error(-EINVAL, "the range wraps around");
	else if (len)
		rc = gm_as_copy(as, node, (uint64_t)dst, (uint64_t)src, len);
	return finish(rc);
}

static int no_room(void)
{
	return gm_host_error(-EINVAL, "NULL: no room for the answer");
}

int gm_where(const void *addr, struct gm_where *out)
{
	QUIETLY;
	struct gm_as *as = enter();

	if (!as)
		return -errno;
	return out ? gm_as_where(as, (uint64_t)addr, out) : no_room();
}

int gm_region_stats(const void *addr, struct gm_region_stats *out)
{
	QUIETLY;
	struct gm_as *as = enter();

	if (!as)
		return -errno;
	return out ? gm_as_region_stats(as, (uint64_t)addr, out) : no_room();
}

int gm_nodes(struct gm_node_info *out, size_t n)
{
	QUIETLY;
	int i, nr;

	if (!enter_counts())
		return -errno;
	if (n && !out)
		return no_room();
	nr = gm_machine_nodes(out, n);
	for (i = 0; i < nr && (size_t)i < n; i++) {
		if (!out[i].is_xpu)
			gm_memory_of_node(out[i].id, &out[i].total,
					  &out[i].free);
	}
	return nr;
}

int gm_process_stats(struct gm_stats *out)
{
	QUIETLY;
	if (!enter_counts())
		return -errno;
	return out ? gm_machine_stats(GM_NODE_NONE, out) : no_room();
}

int gm_node_stats(int node, struct gm_stats *out)
{
	QUIETLY;
	if (!enter_counts())
		return -errno;
	if (node < 0)
		return gm_host_error(-EINVAL, "there is no node %d", node);
	return out ? gm_machine_stats(node, out) : no_room();
}

/* For the preload library: is there unified memory? 2: and nothing else. */
int gm_preload_meets(const void *addr, size_t len);
int gm_preload_meets(const void *addr, size_t len)
{
	struct gm_as *as = gm_as_if_ready();
	uint64_t va = (uint64_t)addr;

	/* Without RCU first: its own memory calls come here as well. */
	if (!as || gm_fork_is_child() || wraps(va, len) ||
	    !gm_range_possible(va, len) || !gm_as_overlaps(as, va, len))
		return 0;
	return gm_range_in_arena(va, len) ? 2 : 1;
}
