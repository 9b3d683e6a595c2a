/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pieces.c - pages of which a part is missing, cut off, or poisoned
 */
#include <stddef.h>
#include <string.h>

#include "sys.h"
#include "uffd.h"
#include "user.h"

_Static_assert(sizeof(struct uffdio_poison) == sizeof(struct uffdio_zeropage) &&
		       offsetof(struct uffdio_poison, updated) ==
			       offsetof(struct uffdio_zeropage, zeropage),
	       "alike, but for the name of how much was done");

/* Zeros or poison, as @how says, in every small page that is missing. */
static int fill_small(uint64_t start, uint64_t end, unsigned long how)
{
	struct uffdio_zeropage arg;
	uint64_t give_up = gm_host_now() + GM_PATIENCE_NS;
	uint32_t seen;

	while (start < end) {
		seen = gm_events_seen();
		memset(&arg, 0, sizeof(arg));
		arg.range.start = start;
		arg.range.len = end - start;
		if (gm_sys_ioctl(gm_user.fd_region, how, &arg) == 0)
			return 0;
		if (arg.zeropage > 0)
			start += (uint64_t)arg.zeropage;
		else if (errno == EEXIST)
			start += GM_SMALL_PAGE;
		else if (errno != EAGAIN || gm_host_now() > give_up)
			return errno == ENOENT ? -EAGAIN : -errno;
		else
			gm_events_wait(seen);
	}
	return 0;
}

/*
 * All of it may be missing, if the program has just discarded it: then a huge
 * page is better than 512 small ones.
 */
static bool fill_huge(uint64_t va)
{
	struct gm_page *frame = gm_frames_try_get(true);
	uint64_t done;
	int err;

	if (!frame)
		return false;
	done = gm_move_range(gm_user.fd_region, va, frame->addr, GM_PAGE_SIZE,
			     0, &err);
	if (done == GM_PAGE_SIZE)
		frame->vacant = 1;
	else if (done)
		gm_frames_discard(frame); /* zeros, whichever side they are */
	gm_host_page_put(NULL, frame);
	return done == GM_PAGE_SIZE;
}

int gm_host_cpu_fill(struct gm_as *as, uint64_t va)
{
	uint64_t end = va + GM_PAGE_SIZE, at = va, from, to;
	struct gm_vma vma;
	int rc;

	if (gm_vma_whole(va, &vma) == 0 && (vma.prot & PROT_WRITE) &&
	    !gm_vma_present(va, end, NULL, NULL) && fill_huge(va))
		return 0;
	while (at < end && gm_vma_find(at, &vma) == 0 && vma.start < end) {
		at = GM_MAX(at, vma.start);
		vma.end = GM_MIN(vma.end, end);
		while (at < vma.end &&
		       gm_vma_missing(at, vma.end, &from, &to)) {
			rc = fill_small(from, to, UFFDIO_ZEROPAGE);
			if (rc && rc != -EINVAL)
				return rc;
			at = to;
		}
		at = vma.end;
	}
	gm_host_cpu_wake(as, va);
	return 0;
}

/* One mapping's part of a cut page; skips what is there already. */
static void scatter_piece(uint64_t start, uint64_t end, uint64_t src,
			  bool writable)
{
	uint64_t at = start, done;
	int err = 0;

	while (at < end) {
		done = writable ? gm_move_range(gm_user.fd_region, at,
						src + (at - start), end - at,
						GM_MOVE_HOLES, &err)
				: gm_copy_range(at, src + (at - start),
						end - at, &err);
		at += done;
		if (at == end || done)
			continue;
		if (err == EEXIST)
			at += GM_SMALL_PAGE;
		else if (writable && (err == EINVAL || err == EBUSY))
			writable = false; /* locked or held: copy */
		else
			return; /* somebody else's mapping by now */
	}
}

int64_t gm_host_cpu_scatter(struct gm_as *as, uint64_t va, struct gm_page *page,
			    uint64_t off, uint64_t len)
{
	uint64_t at = va + off, end = at + len;
	struct gm_vma vma;
	int64_t bytes = 0;

	while (at < end && gm_vma_find(at, &vma) == 0 && vma.start < end) {
		at = GM_MAX(at, vma.start);
		vma.end = GM_MIN(vma.end, end);
		if (vma.anonymous && !vma.shared) {
			bytes += (int64_t)(vma.end - at);
			if (page)
				scatter_piece(at, vma.end,
					      page->addr + (at - va),
					      vma.prot & PROT_WRITE);
		}
		at = vma.end;
	}
	if (page)
		gm_frames_discard(page);
	gm_wake_range(va + off, len);
	return bytes;
}

int gm_host_cpu_poison(struct gm_as *as, uint64_t va)
{
	int rc = fill_small(va, va + GM_PAGE_SIZE, UFFDIO_POISON);

	if (!rc)
		gm_host_cpu_wake(as, va);
	return rc;
}

int gm_host_cpu_unpoison(struct gm_as *as, uint64_t va)
{
	int rc = gm_events_zap(va, GM_PAGE_SIZE);

	return rc == -ENOMEM ? -EAGAIN : rc;
}
