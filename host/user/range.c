/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * range.c - addresses of unified memory
 *
 * They come from one arena, first fit, so that another process can keep the
 * same addresses free. What is in use there is kept in a sorted array of
 * ranges that do not touch.
 */
#include <string.h>

#include "sys.h"
#include "uffd.h"
#include "user.h"

struct range {
	uint64_t start;
	uint64_t end;
};

/**
 * struct arena - used addresses
 * @lock: rank POOL
 * @used: sorted, apart from each other
 * @nr: how many
 * @room: how many fit
 * @low: no unified memory has ever been below
 * @high: nor from here on
 */
static struct {
	struct gm_lock lock;
	struct range *used; /* (lock) */
	size_t nr; /* (lock) */
	size_t room; /* (lock) */
	uint64_t low; /* (lock), read without */
	uint64_t high; /* (lock), read without */
} arena;

#define FIRST_ROOM 64

int gm_range_init(void)
{
	memset(&arena, 0, sizeof(arena));
	arena.used = gm_host_zalloc(FIRST_ROOM * sizeof(*arena.used));
	if (!arena.used)
		return gm_host_error(-ENOMEM, "no memory");
	arena.room = FIRST_ROOM;
	return 0;
}

void gm_range_exit(void)
{
	gm_host_zfree(arena.used, arena.room * sizeof(*arena.used));
	memset(&arena, 0, sizeof(arena));
}

/* Room for one more range. */
static int grow_locked(void)
{
	struct range *more;

	if (arena.nr < arena.room)
		return 0;
	more = gm_host_zalloc(2 * arena.room * sizeof(*more));
	if (!more)
		return -ENOMEM;
	memcpy(more, arena.used, arena.nr * sizeof(*more));
	gm_host_zfree(arena.used, arena.room * sizeof(*more));
	arena.used = more;
	arena.room *= 2;
	return 0;
}

/* The first range that ends at or after @addr. */
static size_t find_locked(uint64_t addr)
{
	size_t low = 0, high = arena.nr, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (arena.used[mid].end < addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void replace_locked(size_t at, size_t n, const struct range *by,
			   size_t m)
{
	memmove(arena.used + at + m, arena.used + at + n,
		(arena.nr - at - n) * sizeof(*arena.used));
	memcpy(arena.used + at, by, m * sizeof(*by));
	arena.nr = arena.nr + m - n;
}

static int add_locked(uint64_t start, uint64_t end)
{
	struct range all = { start, end };
	size_t at, n;

	if (grow_locked())
		return -ENOMEM;
	at = find_locked(start);
	for (n = 0; at + n < arena.nr && arena.used[at + n].start <= end; n++) {
		all.start = GM_MIN(all.start, arena.used[at + n].start);
		all.end = GM_MAX(all.end, arena.used[at + n].end);
	}
	replace_locked(at, n, &all, 1);
	return 0;
}

/* If there is no memory to note a hole, the addresses stay in use. */
static void remove_locked(uint64_t start, uint64_t end)
{
	struct range rest[2];
	size_t at, n, m = 0;

	if (grow_locked())
		return;
	at = find_locked(start);
	for (n = 0; at + n < arena.nr && arena.used[at + n].start < end; n++) {
		if (arena.used[at + n].start < start)
			rest[m++] = (struct range){ arena.used[at + n].start,
						    start };
		if (arena.used[at + n].end > end)
			rest[m++] =
				(struct range){ end, arena.used[at + n].end };
	}
	if (n)
		replace_locked(at, n, rest, m);
}

bool gm_range_possible(uint64_t va, uint64_t len)
{
	return va < gm_load(&arena.high) && va + len > gm_load(&arena.low);
}

bool gm_range_in_arena(uint64_t va, uint64_t len)
{
	return va >= gm_user.arena_base &&
	       va + len <= gm_user.arena_base + gm_user.arena_len;
}

static bool in_arena(uint64_t start, uint64_t len)
{
	return start < gm_user.arena_base + gm_user.arena_len &&
	       start + len > gm_user.arena_base;
}

void gm_range_adopt(uint64_t va, uint64_t len)
{
	gm_lock(&arena.lock, GM_RANK_POOL);
	if (!arena.high || va < arena.low)
		gm_store(&arena.low, va);
	if (va + len > arena.high)
		gm_store(&arena.high, va + len);
	if (in_arena(va, len))
		add_locked(va, va + len);
	gm_unlock(&arena.lock, GM_RANK_POOL);
}

/* Only what the arena hands out is kept; elsewhere the kernel knows. */
void gm_range_forget(uint64_t va, uint64_t len)
{
	if (!in_arena(va, len))
		return;
	gm_lock(&arena.lock, GM_RANK_POOL);
	remove_locked(va, va + len);
	gm_unlock(&arena.lock, GM_RANK_POOL);
}

/* The lowest gap of whole pages; it is in use from now on. */
static int reserve(uint64_t len, uint64_t *va)
{
	uint64_t at = gm_user.arena_base, end = at + gm_user.arena_len;
	int rc = -ENOMEM;
	size_t i;

	gm_lock(&arena.lock, GM_RANK_POOL);
	for (i = 0; i < arena.nr; i++) {
		if (arena.used[i].start >= at &&
		    arena.used[i].start - at >= len)
			break;
		at = GM_MAX(at,
			    (arena.used[i].end + GM_PAGE_MASK) & ~GM_PAGE_MASK);
	}
	if (at < end && end - at >= len)
		rc = add_locked(at, at + len);
	gm_unlock(&arena.lock, GM_RANK_POOL);
	*va = at;
	return rc;
}

/* Something else lies in the arena: go round it from now on. */
static void avoid(uint64_t va, uint64_t len)
{
	struct gm_vma vma;

	gm_range_forget(va, len);
	if (gm_vma_find(va, &vma) == 0 && vma.start < va + len)
		gm_range_adopt(GM_MAX(vma.start, va),
			       vma.end - GM_MAX(vma.start, va));
}

/* What a range is from birth: not inherited, and in huge pages. */
static int map_at(uint64_t va, uint64_t len, unsigned int prot,
		  unsigned int flags, int map_fixed)
{
	int how = (flags & GM_RANGE_RESERVE_ONLY) ? PROT_NONE : (int)prot;
	void *p = gm_sys_mmap(va, len, how, MAP_NORESERVE | map_fixed);
	int rc;

	if (p == MAP_FAILED)
		return errno == EEXIST ? -EEXIST : -ENOMEM;
	rc = (uint64_t)p == va ? 0 : -EEXIST; /* before 4.17, a hint only */
	if (!rc && (gm_sys_madvise(va, len, MADV_DONTFORK) ||
		    gm_sys_madvise(va, len, MADV_HUGEPAGE)))
		rc = -ENOMEM;
	/* Filled by mlockall(MCL_FUTURE): the directory takes it for empty. */
	if (!rc && (flags & GM_RANGE_TRACKED) &&
	    gm_sys_madvise(va, len, MADV_DONTNEED_LOCKED))
		rc = -ENOMEM;
	if (rc)
		gm_sys_munmap((uint64_t)p, len);
	return rc;
}

static int map_in_arena(uint64_t len, unsigned int prot, unsigned int flags,
			uint64_t *va)
{
	int rc;

	for (;;) {
		rc = reserve(len, va);
		if (rc)
			return rc;
		rc = map_at(*va, len, prot, flags, MAP_FIXED_NOREPLACE);
		if (!rc) {
			gm_range_adopt(*va, len);
			return 0;
		}
		if (rc != -EEXIST) {
			gm_range_forget(*va, len);
			return rc;
		}
		avoid(*va, len);
	}
}

int gm_host_range_map(struct gm_as *as, uint64_t hint, uint64_t len,
		      unsigned int prot, unsigned int flags, uint64_t *va)
{
	bool fixed = flags & GM_RANGE_FIXED;
	bool keep = !fixed || (flags & GM_RANGE_NOREPLACE);
	int rc = -EEXIST;

	if (hint || fixed) {
		*va = hint;
		rc = map_at(hint, len, prot, flags,
			    keep ? MAP_FIXED_NOREPLACE : MAP_FIXED);
		if (!rc)
			gm_range_adopt(hint, len);
	}
	if (rc && !fixed)
		rc = map_in_arena(len, prot, flags, va);
	if (rc == -EEXIST)
		return gm_host_error(rc, "0x%llx is in use",
				     (unsigned long long)hint);
	if (rc)
		return gm_host_error(rc,
				     "no room for 0x%llx bytes of unified "
				     "memory",
				     (unsigned long long)len);
	if (flags & GM_RANGE_TRACKED) {
		rc = gm_host_range_track(as, *va, len);
		if (rc)
			gm_host_range_unmap(as, *va, len);
	}
	return rc;
}

/*
 * To unregister first makes no event, and wakes whoever waits there for a page
 * that will never come.
 */
void gm_host_range_unmap(struct gm_as *as, uint64_t va, uint64_t len)
{
	struct uffdio_range range = { va, len };

	gm_sys_ioctl(gm_user.fd_region, UFFDIO_UNREGISTER, &range);
	/* Too many mappings to cut one: at least nothing may stay in it. */
	if (gm_sys_munmap(va, len) &&
	    gm_sys_mmap(va, len, PROT_NONE, MAP_NORESERVE | MAP_FIXED) ==
		    MAP_FAILED)
		gm_sys_madvise(va, len, MADV_DONTNEED_LOCKED);
	gm_range_forget(va, len);
}

int gm_host_range_track(struct gm_as *as, uint64_t va, uint64_t len)
{
	struct uffdio_register reg = {
		.range = { va, len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int rc = gm_threads_start(as);

	if (rc)
		return rc;
	if (gm_sys_ioctl(gm_user.fd_region, UFFDIO_REGISTER, &reg) == 0)
		return 0;
	rc = errno;
	if (rc == ENOMEM)
		return gm_host_error(-ENOMEM, "too many mappings to watch one "
					      "more (vm.max_map_count)");
	/* EINVAL: there is nothing, or what is there is not ours. */
	return gm_host_error(rc == EINVAL ? -ENOENT : -rc,
			     "0x%llx is not unified memory any more",
			     (unsigned long long)va);
}

int gm_host_range_move(struct gm_as *as, uint64_t from, uint64_t to,
		       uint64_t len)
{
	int rc;

	gm_events_mute(from, from + len);
	gm_events_mute(to, to + len);
	rc = gm_sys_mremap(from, len, to) ? -errno : 0;
	gm_events_unmute(from, from + len);
	gm_events_unmute(to, to + len);
	if (!rc)
		gm_range_forget(from, len);
	else if (rc == -EFAULT)
		rc = -EAGAIN; /* not mapped any more */
	return rc;
}

int gm_host_range_protect(struct gm_as *as, uint64_t va, uint64_t len,
			  unsigned int prot)
{
	if (gm_sys_mprotect(va, len, (int)prot) == 0)
		return 0;
	return errno == ENOMEM ? -ENOMEM : -errno;
}
