/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * mover.c - plain pages are taken out of the program's sight, and put back
 *
 * As with unified memory a page leaves by UFFDIO_MOVE, atomically, so that every
 * store of the program is in it or faults afterwards. For as long as it is away,
 * its mapping is registered with a userfaultfd of this one batch, which nobody
 * serves: who touches what is not there waits until the batch is over, some
 * hundred microseconds later. What the program does to its mappings meanwhile (munmap, mremap,
 * madvise) waits too, until we have read of it; the pages then go where they
 * belong by now. Closing the file lets everybody go on, whatever has happened.
 *
 * fork() is held up by an atfork handler: the child would find holes.
 */
#include <sched.h>
#include <string.h>

#include "sys.h"
#include "uffd.h"
#include "user.h"

#define EVENTS                                                     \
	((uint64_t)UFFD_FEATURE_MOVE | UFFD_FEATURE_EVENT_REMOVE | \
	 UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP)
/* A page that just changes is free at once. */
#define OUT_TRIES 100
/* Parts of pages, when the program cuts them up while they are away. */
#define MAX_PARTS 1024

/**
 * struct part - bytes of a page that is away
 * @src: where they are now, in the dock
 * @dst: where the program is to see them
 * @len: how many; 0: nowhere any more
 */
struct part {
	uint64_t src;
	uint64_t dst;
	uint64_t len;
};

static struct {
	struct gm_lock lock; /* one batch at a time, and no fork() in it */
	int fd; /* (lock) */
	unsigned int nr; /* (lock) */
	struct part parts[MAX_PARTS]; /* (lock) */
} mover;

/* For fork.c. */
void gm_mover_hold(void)
{
	gm_lock_raw(&mover.lock);
}

void gm_mover_release(void)
{
	gm_unlock_raw(&mover.lock);
}

/* In a child, where who waited for it is not. */
void gm_mover_reset(void)
{
	memset(&mover.lock, 0, sizeof(mover.lock));
}

/*
 * Is anything in the range touched by a thread that the program's threads wait
 * for, meanwhile? The page of a stack, say, cannot be moved by who is on it.
 */
bool gm_mover_needs(uint64_t va, uint64_t len)
{
	uint64_t own[] = { (uint64_t)__builtin_frame_address(0),
			   (uint64_t)&errno, (uint64_t)gm_error(),
			   (uint64_t)&mover, (uint64_t)&gm_user };
	unsigned int i;

	for (i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (own[i] + GM_OWN_STACK > va &&
		    own[i] < va + len + GM_OWN_STACK)
			return true;
	return gm_frames_own(va, len) || gm_threads_own(va, len);
}

/* --- what the program does meanwhile ------------------------------------- */

static struct part *add_part(uint64_t src, uint64_t dst, uint64_t len)
{
	GM_BUG_ON(mover.nr == MAX_PARTS);
	mover.parts[mover.nr] = (struct part){ src, dst, len };
	return &mover.parts[mover.nr++];
}

/* The bytes of a part from @at on become a part of their own. */
static void split(unsigned int i, uint64_t at)
{
	struct part *p = &mover.parts[i];
	uint64_t head = at - p->dst;

	if (at <= p->dst || head >= p->len)
		return;
	add_part(p->src + head, at, p->len - head);
	mover.parts[i].len = head;
}

/* [start, end) has moved by @delta, or is gone. */
static void happened(uint64_t start, uint64_t end, bool gone, uint64_t delta)
{
	unsigned int i;

	for (i = 0; i < mover.nr; i++) {
		split(i, start);
		split(i, end);
	}
	for (i = 0; i < mover.nr; i++) {
		struct part *p = &mover.parts[i];

		if (p->dst < start || p->dst >= end)
			continue;
		p->dst += delta;
		if (gone)
			p->len = 0;
	}
}

/* Who has done it goes on as soon as it is read. */
static void drain(void)
{
	struct uffd_msg msg;

	while (read(mover.fd, &msg, sizeof(msg)) == sizeof(msg)) {
		if (msg.event == UFFD_EVENT_REMAP)
			happened(msg.arg.remap.from,
				 msg.arg.remap.from + msg.arg.remap.len, false,
				 msg.arg.remap.to - msg.arg.remap.from);
		else if (msg.event == UFFD_EVENT_UNMAP ||
			 msg.event == UFFD_EVENT_REMOVE)
			happened(msg.arg.remove.start, msg.arg.remove.end, true,
				 0);
		/* A page fault waits until we are done. */
	}
}

/* --- out ------------------------------------------------------------------- */

/*
 * The whole mapping, though only of some pages: cut in two, even for a moment,
 * it could not be moved by the program's mremap().
 */
static bool watch(uint64_t va, uint64_t len, struct gm_vma *watched)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct gm_vma vma;

	if (va >= watched->start && va + len <= watched->end)
		return true;
	if (gm_vma_find(va, &vma) || va < vma.start || va + len > vma.end)
		return false;
	reg.range.start = vma.start;
	reg.range.len = vma.end - vma.start;
	if (gm_sys_ioctl(mover.fd, UFFDIO_REGISTER, &reg))
		return false;
	*watched = vma;
	return true;
}

/* Bytes that have gone; those of one page in part are brought back. */
static uint64_t move_out(uint64_t dst, uint64_t src, uint64_t len)
{
	struct uffdio_move move = { .dst = dst, .src = src, .len = len };
	uint64_t done = 0, rest;
	unsigned int tries;

	for (tries = 0; done < len && tries < OUT_TRIES; tries++) {
		move.dst = dst + done;
		move.src = src + done;
		move.len = len - done;
		move.move = 0;
		if (gm_sys_ioctl(gm_user.fd_dock, UFFDIO_MOVE, &move) == 0)
			return len;
		if (errno != EAGAIN && errno != EINTR)
			break;
		if (move.move > 0)
			done += (uint64_t)move.move;
		else
			sched_yield();
	}
	/* Not all of it: what is left of a page goes back as a part. */
	rest = done % (len < GM_PAGE_SIZE ? len : GM_PAGE_SIZE);
	if (rest)
		add_part(dst + done - rest, src + done - rest, rest);
	return done - rest;
}

/* How many from the first on lie side by side, here and there. */
static unsigned int neighbours(const struct gm_piece *p, unsigned int n,
			       uint64_t size)
{
	unsigned int i;

	for (i = 1; i < n; i++)
		if (p[i].va != p[0].va + i * size ||
		    p[i].out != p[0].out + i * size)
			break;
	return i;
}

void gm_mover_take(struct gm_piece *pieces, unsigned int n, uint64_t size)
{
	struct gm_vma watched = { 0 };
	unsigned int i, k, run;
	uint64_t done;

	for (i = 0; i < n; i += run) {
		run = neighbours(pieces + i, n - i, size);
		done = 0;
		if (watch(pieces[i].va, run * size, &watched))
			done = move_out(pieces[i].out, pieces[i].va,
					run * size);
		for (k = 0; k < run; k++)
			pieces[i + k].away = (k + 1) * size <= done;
	}
}

/* --- back -------------------------------------------------------------------- */

/* By copying, which mappings of more kinds allow: in small pages. */
static bool copy_back(struct part *p)
{
	struct uffdio_copy copy = { .dst = p->dst,
				    .src = p->src,
				    .len = p->len };
	uint64_t step = 0;

	if (gm_sys_ioctl(mover.fd, UFFDIO_COPY, &copy) == 0) {
		step = p->len;
	} else if (copy.copy > 0) {
		step = (uint64_t)copy.copy;
	} else if (errno == EEXIST) {
		step = GM_SMALL_PAGE;
	} else if (errno == ENOENT || errno == EINVAL || errno == ESRCH) {
		/* It is nobody's place any more, and no event says whose. */
		step = p->len;
	} else if (errno == ENOMEM) {
		/* What has happened cannot be refused. */
		gm_host_sleep_until(gm_host_now() + 1000000);
	}
	p->src += step;
	p->dst += step;
	p->len -= step;
	return step != 0;
}

static void put_part(unsigned int i)
{
	struct part *p = &mover.parts[i];
	struct uffdio_move move;

	while (p->len) {
		move = (struct uffdio_move){
			.dst = p->dst,
			.src = p->src,
			.len = p->len,
			.mode = UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES
		};
		if (gm_sys_ioctl(mover.fd, UFFDIO_MOVE, &move) == 0) {
			p->len = 0;
			return;
		}
		if (move.move > 0) {
			p->src += (uint64_t)move.move;
			p->dst += (uint64_t)move.move;
			p->len -= (uint64_t)move.move;
		} else if (errno == EAGAIN || errno == EINTR) {
			sched_yield();
		} else if (copy_back(p)) {
			continue;
		}
		drain();
	}
}

/* @from is where a page is by now, in the dock, whose place @piece was. */
void gm_mover_put(const struct gm_piece *piece, uint64_t from, uint64_t size)
{
	add_part(from, piece->va, size);
}

/* --- the batch ------------------------------------------------------------------ */

int gm_mover_begin(void)
{
	int rc;

	gm_lock_raw(&mover.lock);
	mover.nr = 0;
	rc = gm_uffd_make(EVENTS, &mover.fd);
	if (rc)
		gm_unlock_raw(&mover.lock);
	return rc;
}

/* Neighbours go back with one call. */
static void join_parts(void)
{
	unsigned int i, k = 0;

	for (i = 1; i < mover.nr; i++) {
		struct part *a = &mover.parts[k], *b = &mover.parts[i];

		if (b->src == a->src + a->len && b->dst == a->dst + a->len)
			a->len += b->len;
		else
			mover.parts[++k] = *b;
	}
	mover.nr = GM_MIN(mover.nr, k + 1);
}

void gm_mover_end(void)
{
	unsigned int i;

	join_parts();
	drain();
	/* More parts may come while we put them back. */
	for (i = 0; i < mover.nr; i++)
		put_part(i);
	close(mover.fd);
	gm_unlock_raw(&mover.lock);
}
