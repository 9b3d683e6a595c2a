/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * pagetable.c - the program's page table
 *
 * UFFDIO_MOVE takes whole pages out of a region and puts them back, without a
 * copy and without losing a store. What this file is about is everything else
 * that a slot of a region can be: untouched, in 4 KiB pages, pinned, locked,
 * read-only, cut into several mappings, or gone. A page is never left torn: a
 * move that stopped in the middle is carried on from its count, or taken back.
 */
#include <string.h>

#include "sys.h"
#include "uffd.h"
#include "user.h"

#define EAGER_TRIES 4

/* One call. Returns bytes moved; 0 and *@err, if none. */
static uint64_t move_once(int fd, uint64_t dst, uint64_t src, uint64_t len,
			  uint64_t mode, int *err)
{
	struct uffdio_move move = {
		.dst = dst, .src = src, .len = len, .mode = mode
	};

	*err = 0;
	if (gm_sys_ioctl(fd, UFFDIO_MOVE, &move) == 0)
		return len;
	*err = errno;
	return *err == EAGAIN && move.move > 0 ? (uint64_t)move.move : 0;
}

/*
 * Move as much of the range as will go. Returns how much; if that is not all,
 * *@err says why it stopped there.
 */
uint64_t gm_move_range(int fd, uint64_t dst, uint64_t src, uint64_t len,
		       uint64_t mode, int *err)
{
	uint64_t done = 0, step, give_up = 0;
	unsigned int tries = 0;
	uint32_t seen;

	*err = 0;
	while (done < len) {
		seen = gm_events_seen();
		step = move_once(fd, dst + done, src + done, len - done, mode,
				 err);
		done += step;
		if (step) {
			tries = 0;
			give_up = 0;
			continue;
		}
		if (*err != EAGAIN && *err != EINTR)
			break;
		/* A page that just changes is free at once; an unread event
		 * is not: wait for the reader. */
		if (++tries <= EAGER_TRIES)
			continue;
		if (!give_up)
			give_up = gm_host_now() + GM_PATIENCE_NS;
		else if (gm_host_now() > give_up)
			break;
		gm_events_wait(seen);
	}
	return done;
}

static bool move_in_dock(uint64_t dst, uint64_t src)
{
	int err;

	return gm_move_range(gm_user.fd_dock, dst, src, GM_PAGE_SIZE,
			     GM_MOVE_HOLES, &err) == GM_PAGE_SIZE;
}

static int status_of(int err)
{
	switch (err) {
	case EBUSY:
	case EEXIST:
	case ENOMEM:
	case EFAULT:
		return -err;
	case EINVAL:
		return -EBUSY; /* a mapping of a kind that cannot be moved */
	default:
		return -EAGAIN; /* ENOENT, ESRCH: the mapping is gone */
	}
}

void gm_wake_range(uint64_t va, uint64_t len)
{
	struct uffdio_range range = { va, len };

	gm_sys_ioctl(gm_user.fd_region, UFFDIO_WAKE, &range);
}

void gm_host_cpu_wake(struct gm_as *as, uint64_t va)
{
	gm_wake_range(va & ~GM_PAGE_MASK, GM_PAGE_SIZE);
}

/* --- mappings of other kinds -------------------------------------------- */

/* The mapping that holds all of the page at @va, or what is there instead. */
int gm_vma_whole(uint64_t va, struct gm_vma *vma)
{
	if (gm_vma_find(va, vma) || vma->start >= va + GM_PAGE_SIZE ||
	    vma->shared || !vma->anonymous)
		return -ENOENT;
	return vma->start <= va && vma->end >= va + GM_PAGE_SIZE ? 0 : -ERANGE;
}

/*
 * UFFDIO_MOVE wants both sides to have the same rights and the same lock
 * state. Give the slot in the dock what the region has; whether that changed
 * anything is seen when the move is tried again.
 */
static int match_slot(struct gm_page *slot, const struct gm_vma *vma,
		      uint64_t va)
{
	bool locked = gm_vma_locked(va, GM_PAGE_SIZE);

	if (gm_sys_mlock(slot->addr, GM_PAGE_SIZE, locked) ||
	    gm_sys_mprotect(slot->addr, GM_PAGE_SIZE, (int)vma->prot))
		return -EBUSY;
	return 0;
}

/*
 * A read-only page leaves by copying: nobody writes it, so nothing is lost. A
 * part that is missing is zero, and must not be touched: the fault would come
 * back to us. (Parts that the program discards meanwhile do fault; the reader
 * knows who copies.)
 */
static int copy_out(uint64_t va, struct gm_page *slot)
{
	uint64_t at = va, end = va + GM_PAGE_SIZE, from = 0, to = 0;
	struct gm_page *frame;
	unsigned int copier;

	if (!gm_vma_present(va, end, NULL, NULL))
		return -ENOENT;
	frame = gm_frames_try_get(true);
	if (frame && !move_in_dock(slot->addr, frame->addr)) {
		gm_host_page_put(NULL, frame);
		return -ENOMEM;
	}
	if (frame) {
		frame->vacant = 1;
		gm_host_page_put(NULL, frame);
	} else if (gm_memory_populate(slot->addr, GM_PAGE_SIZE, GM_NODE_NONE)) {
		gm_frames_discard(slot);
		return -ENOMEM;
	}
	copier = gm_events_copying(va);
	for (; at < end && gm_vma_present(at, end, &from, &to); at = to)
		memcpy((void *)(slot->addr + (from - va)), (void *)from,
		       to - from);
	gm_events_copied(copier);
	if (gm_events_zap(va, GM_PAGE_SIZE)) {
		gm_frames_discard(slot);
		return -EAGAIN;
	}
	return 0;
}

/* UFFDIO_COPY also serves a mapping without the right to write. */
uint64_t gm_copy_range(uint64_t dst, uint64_t src, uint64_t len, int *err)
{
	uint64_t done = 0, give_up = gm_host_now() + GM_PATIENCE_NS;
	struct uffdio_copy copy;
	uint32_t seen;

	*err = 0;
	while (done < len) {
		seen = gm_events_seen();
		memset(&copy, 0, sizeof(copy));
		copy.dst = dst + done;
		copy.src = src + done;
		copy.len = len - done;
		if (gm_sys_ioctl(gm_user.fd_region, UFFDIO_COPY, &copy) == 0)
			return len;
		*err = errno;
		if (copy.copy > 0)
			done += (uint64_t)copy.copy;
		else if (*err != EAGAIN || gm_host_now() > give_up)
			break;
		else
			gm_events_wait(seen);
	}
	return done;
}

static int copy_home(uint64_t va, struct gm_page *page)
{
	struct gm_policy policy;
	uint64_t done;
	int err;

	gm_memory_prefer(page->nid, &policy);
	done = gm_copy_range(va, page->addr, GM_PAGE_SIZE, &err);
	gm_memory_restore(&policy);
	if (done < GM_PAGE_SIZE) {
		if (done)
			gm_events_zap(va, GM_PAGE_SIZE);
		return status_of(err);
	}
	gm_frames_discard(page);
	return 0;
}

/* --- out ----------------------------------------------------------------- */

static void move_back(uint64_t va, struct gm_page *slot, uint64_t done)
{
	int err;

	if (done)
		gm_move_range(gm_user.fd_region, va, slot->addr, done,
			      GM_MOVE_HOLES, &err);
	/* What could not go back has no place any more: it was unmapped. */
	gm_frames_discard(slot);
}

/*
 * It is not there as one page. Is there an event about that? While one waits to
 * be read, the kernel refuses every move, and looks at nothing else before.
 */
static int not_whole(uint64_t va)
{
	struct uffdio_move nothing = { 0 };

	if (gm_sys_ioctl(gm_user.fd_region, UFFDIO_MOVE, &nothing) &&
	    errno == EAGAIN)
		return -EAGAIN;
	gm_events_look();
	return gm_events_pending(va, va + GM_PAGE_SIZE) ? -EAGAIN : -EXDEV;
}

/* The move said EINVAL: what kind of mapping is this? */
static int unmap_odd(uint64_t va, struct gm_page *slot, bool *again)
{
	struct gm_vma vma;
	int rc = gm_vma_whole(va, &vma);

	*again = false;
	if (rc)
		return not_whole(va);
	if (vma.prot == PROT_READ)
		return copy_out(va, slot);
	if (!(vma.prot & PROT_WRITE))
		return -EBUSY;
	*again = true;
	return match_slot(slot, &vma, va);
}

/*
 * The first @done bytes of a page have been moved, then @err came. Finish it,
 * or leave it as it was.
 */
static int unmap_hard(uint64_t va, struct gm_page *slot, uint64_t done, int err)
{
	struct gm_vma vma;
	int rc, round;
	bool again;

	for (round = 0; round < 4 && done < GM_PAGE_SIZE; round++) {
		if (err == ENOENT && !done) {
			/* Not even mapped, at its start or anywhere? */
			if (gm_vma_whole(va, &vma))
				return not_whole(va);
			if (!gm_vma_present(va, va + GM_PAGE_SIZE, NULL, NULL))
				return -ENOENT;
		}
		if (err == EINVAL && !done) {
			rc = unmap_odd(va, slot, &again);
			if (!again || rc)
				return rc;
		} else if (err == EEXIST && !done) {
			/* mlockall() has filled the slot. */
			gm_frames_discard(slot);
		} else if (err != ENOENT) {
			break;
		}
		done += gm_move_range(gm_user.fd_dock, slot->addr + done,
				      va + done, GM_PAGE_SIZE - done,
				      GM_MOVE_HOLES, &err);
	}
	if (done < GM_PAGE_SIZE) {
		move_back(va, slot, done);
		return status_of(err);
	}
	return 0;
}

/*
 * A page in 4 KiB pieces: put what it holds into a huge frame, so that it will
 * be one where it goes, and empty both slots, page tables included, so that
 * later huge pages there are not split. Without a frame it stays as it is.
 */
static void make_huge(uint64_t va, struct gm_page *slot)
{
	struct gm_page *frame;

	gm_events_zap(va, GM_PAGE_SIZE);
	frame = gm_frames_try_get(false);
	if (!frame)
		return;
	if (gm_vma_huge(frame->addr, frame->addr + GM_PAGE_SIZE)) {
		gm_host_copy((void *)frame->addr, (void *)slot->addr,
			     GM_PAGE_SIZE);
		gm_frames_discard(slot);
		if (move_in_dock(slot->addr, frame->addr)) {
			frame->vacant = 1;
		} else {
			/* Cannot be, but must not lose the data if it is. */
			memcpy((void *)slot->addr, (void *)frame->addr,
			       GM_PAGE_SIZE);
		}
		slot->vacant = 0;
	}
	gm_host_page_put(NULL, frame);
}

/* How many of the places follow each other in the dock. */
static unsigned int neighbours(struct gm_page **pages, unsigned int n)
{
	unsigned int i;

	for (i = 1;
	     i < n && pages[i]->addr == pages[0]->addr + i * GM_PAGE_SIZE; i++)
		;
	return i;
}

static void taken(uint64_t va, struct gm_page **slots, unsigned int n)
{
	unsigned int i;

	if (!n)
		return;
	for (i = 0; i < n; i++)
		slots[i]->vacant = 0;
	if (!gm_vma_huge(slots[0]->addr, slots[0]->addr + n * GM_PAGE_SIZE)) {
		for (i = 0; i < n; i++)
			if (!gm_vma_huge(slots[i]->addr,
					 slots[i]->addr + GM_PAGE_SIZE))
				make_huge(va + i * GM_PAGE_SIZE, slots[i]);
	}
	/* Last, for a page made huge may have come to another node. */
	for (i = 0; i < n && gm_user.nr_nodes > 1; i++)
		slots[i]->nid = (int16_t)gm_memory_node_at(slots[i]->addr);
}

static int unmap_read_only(uint64_t va, struct gm_page *slot)
{
	struct gm_vma vma;
	int rc = gm_vma_whole(va, &vma);

	if (rc)
		return not_whole(va);
	return vma.prot == PROT_READ ? copy_out(va, slot) : -EBUSY;
}

void gm_host_cpu_unmap(struct gm_as *as, uint64_t va, struct gm_page **slots,
		       unsigned int n, unsigned int prot, int *status)
{
	unsigned int i = 0, run, whole;
	uint64_t done, at;
	int err;

	/* What is there now may be another mapping, not yet known to be. */
	if (gm_events_pending(va, va + n * GM_PAGE_SIZE)) {
		for (i = 0; i < n; i++)
			status[i] = -EAGAIN;
		return;
	}
	while (i < n) {
		at = va + i * GM_PAGE_SIZE;
		if (!(prot & GM_PROT_WRITE)) {
			status[i] =
				prot ? unmap_read_only(at, slots[i]) : -EBUSY;
			if (!status[i]) {
				slots[i]->vacant = 0;
				slots[i]->nid = (int16_t)gm_memory_node_at(
					slots[i]->addr);
			}
			i++;
			continue;
		}
		run = neighbours(slots + i, n - i);
		done = gm_move_range(gm_user.fd_dock, slots[i]->addr, at,
				     run * GM_PAGE_SIZE, 0, &err);
		whole = (unsigned int)(done >> GM_PAGE_SHIFT);
		memset(status + i, 0, whole * sizeof(*status));
		taken(at, slots + i, whole);
		i += whole;
		if (whole == run)
			continue;
		at += whole * GM_PAGE_SIZE;
		status[i] = unmap_hard(at, slots[i], done & GM_PAGE_MASK, err);
		if (!status[i])
			taken(at, slots + i, 1);
		i++;
	}
}

/* --- in ------------------------------------------------------------------ */

static int map_odd(uint64_t va, struct gm_page *page, bool *again)
{
	struct gm_vma vma;
	int64_t there;
	int rc = gm_vma_whole(va, &vma);

	*again = false;
	if (rc == -ENOENT)
		return not_whole(va);
	if (rc == -ERANGE) { /* cut, without a word */
		there = gm_host_cpu_scatter(NULL, va, page, 0, GM_PAGE_SIZE);
		return there > 0 ? 0 : -EAGAIN;
	}
	if (!(vma.prot & PROT_WRITE))
		return copy_home(va, page);
	*again = true;
	return match_slot(page, &vma, va);
}

static int map_hard(uint64_t va, struct gm_page *page, uint64_t done, int err)
{
	int rc, ignored;
	bool again;

	if (!done && err == EINVAL) {
		rc = map_odd(va, page, &again);
		if (!again || rc)
			return rc;
		done = gm_move_range(gm_user.fd_region, va, page->addr,
				     GM_PAGE_SIZE, GM_MOVE_HOLES, &err);
		if (done == GM_PAGE_SIZE) {
			page->vacant = 1;
			return 0;
		}
	}
	/* The page at rest is held by somebody: the program gets a copy. */
	if (!done && (err == EBUSY || err == EINVAL))
		return copy_home(va, page);
	if (done)
		gm_move_range(gm_user.fd_dock, page->addr, va, done,
			      GM_MOVE_HOLES, &ignored);
	return status_of(err);
}

void gm_host_cpu_map(struct gm_as *as, uint64_t va, struct gm_page **pages,
		     unsigned int n, unsigned int prot, int *status)
{
	unsigned int i = 0, k, run, whole;
	uint64_t done, at;
	int err;

	while (i < n) {
		at = va + i * GM_PAGE_SIZE;
		if (!(prot & GM_PROT_WRITE)) {
			status[i] = copy_home(at, pages[i]);
			i++;
			continue;
		}
		run = neighbours(pages + i, n - i);
		done = gm_move_range(gm_user.fd_region, at, pages[i]->addr,
				     run * GM_PAGE_SIZE, GM_MOVE_HOLES, &err);
		whole = (unsigned int)(done >> GM_PAGE_SHIFT);
		memset(status + i, 0, whole * sizeof(*status));
		for (k = 0; k < whole; k++)
			pages[i + k]->vacant = 1;
		i += whole;
		if (whole == run)
			continue;
		at += whole * GM_PAGE_SIZE;
		status[i] = map_hard(at, pages[i], done & GM_PAGE_MASK, err);
		i++;
	}
}
