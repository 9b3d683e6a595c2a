/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * events.c - what userfaultfd tells, and who serves it
 *
 *	reader	reads, sorts, queues; nothing else, so that it can never wait
 *		for anybody who waits for it
 *	workers	serve faults
 *	server	tells the core of unmaps, moves and discards, in their order
 *
 * While an event is unread, the kernel refuses UFFDIO_MOVE with EAGAIN, and
 * the program's munmap() or madvise() has not returned. So a worker that gets
 * EAGAIN waits until the reader has read more events. And once it has
 * returned, the program's next touch must find what the call promised: a
 * fault waits until the events that were read before it have been served.
 */
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "sys.h"
#include "uffd.h"
#include "user.h"

#define NR_FAULTS 1024U
#define NR_EVENTS (1U << 18)
#define NR_MSGS 16
#define NR_COPIERS 16U
#define WAIT_NS 2000000ULL

/**
 * struct fault - threads of the program that wait in one page
 * @va: where the last of them is
 * @tid: which it is
 * @write: one of them wants to write
 * @after: events that had been read before
 */
struct fault {
	uint64_t va;
	uint32_t tid;
	uint8_t write;
	uint32_t after;
};

struct event {
	uint64_t start;
	uint64_t end;
	uint64_t to;
	uint8_t type;
};

/**
 * struct events - queues and counts
 * @faults: a ring; @nr_faults of them from @first on
 * @overflow: faults were dropped; all who wait are to be woken and try again
 * @busy: the page that each worker serves
 * @posted: futex of the workers
 * @ring: events, from @served to @seen
 * @seen: events read
 * @served: events that the core knows of
 * @waiters: threads that wait for @seen, @served
 * @bell: a page whose discarding makes an event
 * @turn: odd while the reader takes messages and looks at them
 * @turn_waiters: threads that wait for @turn
 */
static struct {
	struct gm_as *as;
	struct gm_lock lock;
	struct fault faults[NR_FAULTS]; /* (lock) */
	unsigned int first; /* (lock) */
	unsigned int nr_faults; /* (lock) */
	bool overflow; /* (lock) */
	uint64_t busy[GM_MAX_WORKERS]; /* (lock) */
	uint32_t posted; /* (A) */
	uint32_t idle; /* (A) */
	struct event *ring; /* between the two counts */
	uint32_t seen; /* (A) */
	uint32_t served; /* (A) */
	uint32_t seen_waiters; /* (A) */
	uint32_t served_waiters; /* (A) */
	uint64_t bell; /* (C) */
	uint32_t turn; /* (A) */
	uint32_t turn_waiters; /* (A) */
} ev;

#define SLOT(va) ((va) & ~GM_PAGE_MASK)

static int make_bell(void)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	/* Without rights, for mlockall() touches all that can be touched. */
	void *p = gm_sys_mmap(0, GM_SMALL_PAGE, PROT_NONE, 0);

	if (p == MAP_FAILED)
		return gm_host_error(-ENOMEM, "no memory");
	ev.bell = (uint64_t)p;
	reg.range.start = ev.bell;
	reg.range.len = GM_SMALL_PAGE;
	if (gm_sys_madvise(ev.bell, GM_SMALL_PAGE, MADV_DONTFORK) ||
	    gm_sys_ioctl(gm_user.fd_region, UFFDIO_REGISTER, &reg))
		return gm_host_error(-errno, "cannot watch memory");
	return 0;
}

int gm_events_init(struct gm_as *as)
{
	int rc;

	/* All zeros, from the start or by gm_events_exit(). */
	ev.as = as;
	ev.ring = gm_sys_mmap(0, NR_EVENTS * sizeof(*ev.ring),
			      PROT_READ | PROT_WRITE, MAP_NORESERVE);
	if (ev.ring == MAP_FAILED) {
		ev.ring = NULL;
		return gm_host_error(-ENOMEM, "no memory");
	}
	rc = make_bell();
	if (rc)
		gm_events_exit();
	return rc;
}

void gm_events_exit(void)
{
	struct uffdio_range range = { ev.bell, GM_SMALL_PAGE };

	if (ev.bell) {
		ioctl(gm_user.fd_region, UFFDIO_UNREGISTER, &range);
		gm_sys_munmap(ev.bell, GM_SMALL_PAGE);
	}
	if (ev.ring)
		gm_sys_munmap((uint64_t)ev.ring, NR_EVENTS * sizeof(*ev.ring));
	memset(&ev, 0, sizeof(ev));
}

/* --- events of our own doing -------------------------------------------- */

void gm_events_mute(uint64_t start, uint64_t end)
{
	gm_mute_add(start, end, false);
}

/*
 * A system call that makes events returns when the reader has taken them,
 * which is before it has looked at them: let it finish its turn. (It takes
 * nothing but in its turn.)
 */
void gm_events_look(void)
{
	uint32_t turn = __atomic_load_n(&ev.turn, __ATOMIC_SEQ_CST);

	if (!(turn & 1))
		return;
	__atomic_fetch_add(&ev.turn_waiters, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&ev.turn, __ATOMIC_SEQ_CST) == turn)
		gm_futex_wait(&ev.turn, turn, WAIT_NS);
	__atomic_fetch_sub(&ev.turn_waiters, 1, __ATOMIC_SEQ_CST);
}

void gm_events_unmute(uint64_t start, uint64_t end)
{
	gm_events_look();
	gm_mute_drop(start, end, false);
}

/* If it is not watched any more, there is no event, and the mute goes. */
int gm_events_zap(uint64_t va, uint64_t len)
{
	int rc;

	gm_mute_add(va, va + len, true);
	rc = gm_sys_madvise(va, len, MADV_DONTNEED_LOCKED) ? -errno : 0;
	gm_events_look();
	gm_mute_drop(va, va + len, true);
	return rc;
}

/* --- the reader --------------------------------------------------------- */

static void post(void)
{
	gm_add(&ev.posted, 1);
	if (__atomic_load_n(&ev.idle, __ATOMIC_SEQ_CST))
		gm_futex_wake(&ev.posted, 1);
}

static void queue_fault(const struct uffd_msg *msg)
{
	struct fault fault = {
		.va = msg->arg.pagefault.address,
		.tid = msg->arg.pagefault.feat.ptid,
		.write = !!(msg->arg.pagefault.flags &
			    UFFD_PAGEFAULT_FLAG_WRITE),
		.after = ev.seen,
	};
	unsigned int i;
	struct fault *f;

	gm_lock_raw(&ev.lock);
	for (i = 0; i < ev.nr_faults; i++) {
		f = &ev.faults[(ev.first + i) % NR_FAULTS];
		if (SLOT(f->va) == SLOT(fault.va)) {
			fault.write |= f->write;
			*f = fault;
			break;
		}
	}
	if (i == ev.nr_faults && i < NR_FAULTS)
		ev.faults[(ev.first + ev.nr_faults++) % NR_FAULTS] = fault;
	else if (i == NR_FAULTS)
		ev.overflow = true;
	gm_unlock_raw(&ev.lock);
	post();
}

/*
 * Threads that copy a page out, the library's or others that called it: tid and
 * page. They hold the entry's lock, so nobody else could serve their faults.
 */
static struct copier {
	pid_t tid; /* (A) 0: free */
	uint64_t slot; /* (A) */
} copiers[NR_COPIERS];

unsigned int gm_events_copying(uint64_t va)
{
	pid_t tid = (pid_t)syscall(SYS_gettid), none;
	unsigned int i;

	for (i = 0;; i = (i + 1) % NR_COPIERS) {
		none = 0;
		if (__atomic_compare_exchange_n(&copiers[i].tid, &none, tid, 0,
						__ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			break;
		/* As many are under way: each ends by itself. */
		if (i == NR_COPIERS - 1)
			gm_host_sleep_until(gm_host_now() + 50000);
	}
	gm_store(&copiers[i].slot, va);
	return i;
}

void gm_events_copied(unsigned int i)
{
	gm_store(&copiers[i].slot, 0);
	gm_store(&copiers[i].tid, 0);
}

static bool is_copying(pid_t tid, uint64_t slot)
{
	unsigned int i;

	for (i = 0; i < NR_COPIERS; i++) {
		if (gm_load(&copiers[i].tid) == tid &&
		    gm_load(&copiers[i].slot) == slot)
			return true;
	}
	return false;
}

/* A thread that copies a page out found a hole in it: see there. */
static bool own_fault(const struct uffd_msg *msg)
{
	pid_t tid = (pid_t)msg->arg.pagefault.feat.ptid;
	struct uffdio_zeropage zero = {
		.range = { msg->arg.pagefault.address & ~(GM_SMALL_PAGE - 1),
			   GM_SMALL_PAGE },
	};

	if (!is_copying(tid, SLOT(zero.range.start))) {
		if (gm_thread_must_not_touch(tid))
			gm_host_bug(__FILE__, __LINE__,
				    "a thread of the library touches unified "
				    "memory");
		return false;
	}
	/* EAGAIN: an event is pending, which we read next. It faults again. */
	if (ioctl(gm_user.fd_region, UFFDIO_ZEROPAGE, &zero))
		ioctl(gm_user.fd_region, UFFDIO_WAKE, &zero.range);
	return true;
}

static void push_event(uint8_t type, uint64_t start, uint64_t end, uint64_t to)
{
	uint32_t seen = ev.seen, served;

	/* Full only if 2^18 calls of the program outran the core. */
	while (seen - (served = gm_load(&ev.served)) == NR_EVENTS) {
		gm_add(&ev.served_waiters, 1);
		gm_futex_wait(&ev.served, served, WAIT_NS);
		__atomic_fetch_sub(&ev.served_waiters, 1, __ATOMIC_SEQ_CST);
	}
	ev.ring[seen % NR_EVENTS] = (struct event){ start, end, to, type };
}

/*
 * Behind a REMAP comes the UNMAP of where the memory was. The core has heard of
 * that already, and may have put something new there by then.
 */
static bool is_echo(uint8_t type, uint64_t start, uint64_t end)
{
	static struct {
		uint64_t start, end;
	} moved[8]; /* the reader's */
	static unsigned int next;
	unsigned int i;

	if (type == UFFD_EVENT_REMAP) {
		moved[next].start = start;
		moved[next].end = end;
		next = (next + 1) % 8;
	}
	for (i = 0; type == UFFD_EVENT_UNMAP && i < 8; i++) {
		if (moved[i].start == start && moved[i].end == end) {
			moved[i].end = 0;
			return true;
		}
	}
	return false;
}

/* Returns true if this was the bell. */
static bool queue_event(const struct uffd_msg *msg)
{
	uint64_t start = msg->arg.remove.start, end = msg->arg.remove.end;
	uint64_t to = 0;
	uint8_t type = msg->event;

	if (type == UFFD_EVENT_REMAP) {
		start = msg->arg.remap.from;
		end = start + msg->arg.remap.len;
		to = msg->arg.remap.to;
	}
	if (start == ev.bell ||
	    (type == UFFD_EVENT_REMOVE ? gm_mute_drop(start, end, true)
				       : gm_mute_inside(start, end)))
		type = 0; /* ours */
	if (is_echo(type, start, end))
		type = 0;
	push_event(type, start, end, to);
	__atomic_store_n(&ev.seen, ev.seen + 1, __ATOMIC_SEQ_CST);
	gm_futex_wake(&ev.seen, INT_MAX);
	return start == ev.bell;
}

/* What there is to read. Returns true if the bell was in it. */
static bool read_some(void)
{
	struct uffd_msg msgs[NR_MSGS];
	bool bell = false;
	ssize_t got;
	int i;

	got = read(gm_user.fd_region, msgs, sizeof(msgs));
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return false;
	if (got < 0 && errno == EBADF)
		gm_host_bug(__FILE__, __LINE__,
			    "the program has closed the library's files: keep "
			    "those that were open when it started");
	if (got <= 0)
		gm_host_bug(__FILE__, __LINE__, "userfaultfd cannot be read");
	for (i = 0; i < (int)(got / (ssize_t)sizeof(msgs[0])); i++) {
		if (msgs[i].event != UFFD_EVENT_PAGEFAULT)
			bell |= queue_event(&msgs[i]);
		else if (!own_fault(&msgs[i]))
			queue_fault(&msgs[i]);
	}
	return bell;
}

/*
 * Ends only when the bell was read: whoever rings it waits for that. The turn
 * begins after poll(), so that a reader with nothing to do is not in it.
 */
void gm_events_reader(struct gm_thread *self)
{
	struct pollfd pfd = { .fd = gm_user.fd_region, .events = POLLIN };
	bool stop = false;

	while (!stop) {
		poll(&pfd, 1, -1);
		__atomic_fetch_add(&ev.turn, 1, __ATOMIC_SEQ_CST);
		stop = read_some();
		__atomic_fetch_add(&ev.turn, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&ev.turn_waiters, __ATOMIC_SEQ_CST))
			gm_futex_wake(&ev.turn, INT_MAX);
	}
}

uint32_t gm_events_seen(void)
{
	return __atomic_load_n(&ev.seen, __ATOMIC_SEQ_CST);
}

/* Not for ever: a page that changes under a move gives EAGAIN, but no event. */
void gm_events_wait(uint32_t seen)
{
	gm_futex_wait(&ev.seen, seen, WAIT_NS);
}

/* --- the server --------------------------------------------------------- */

static void serve_event(const struct event *event)
{
	uint64_t len = event->end - event->start;

	switch (event->type) {
	case UFFD_EVENT_REMOVE:
		gm_as_discarded(ev.as, event->start, len);
		break;
	case UFFD_EVENT_UNMAP:
		gm_as_unmapped(ev.as, event->start, len);
		gm_range_forget(event->start, len);
		break;
	case UFFD_EVENT_REMAP:
		gm_range_adopt(event->to, len);
		gm_as_remapped(ev.as, event->start, event->to, len);
		gm_range_forget(event->start, len);
		break;
	}
}

void gm_events_server(struct gm_thread *self)
{
	uint32_t seen;

	while (!gm_threads_stopping()) {
		seen = gm_events_seen();
		if (seen == ev.served) {
			gm_futex_wait(&ev.seen, seen, 0);
			continue;
		}
		serve_event(&ev.ring[ev.served % NR_EVENTS]);
		__atomic_fetch_add(&ev.served, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&ev.served_waiters, __ATOMIC_SEQ_CST))
			gm_futex_wake(&ev.served, INT_MAX);
	}
}

bool gm_events_pending(uint64_t start, uint64_t end)
{
	uint32_t at = gm_load(&ev.served), seen = gm_events_seen();
	const struct event *event;

	for (; at != seen; at++) {
		event = &ev.ring[at % NR_EVENTS];
		if (event->type == UFFD_EVENT_UNMAP ||
		    event->type == UFFD_EVENT_REMAP) {
			if (event->start < end && event->end > start)
				return true;
		}
	}
	return false;
}

static void wait_served(uint32_t target)
{
	uint32_t served = __atomic_load_n(&ev.served, __ATOMIC_SEQ_CST);

	if ((int32_t)(served - target) >= 0)
		return;
	__atomic_fetch_add(&ev.served_waiters, 1, __ATOMIC_SEQ_CST);
	for (;;) {
		served = __atomic_load_n(&ev.served, __ATOMIC_SEQ_CST);
		if ((int32_t)(served - target) >= 0 || gm_threads_stopping())
			break;
		gm_futex_wait(&ev.served, served, WAIT_NS);
	}
	__atomic_fetch_sub(&ev.served_waiters, 1, __ATOMIC_SEQ_CST);
}

void gm_events_barrier(void)
{
	gm_events_look();
	wait_served(gm_events_seen());
}

void gm_host_told(struct gm_as *as)
{
	(void)as;
	gm_events_barrier();
}

/* --- the workers -------------------------------------------------------- */

static bool is_busy_locked(uint64_t slot)
{
	unsigned int i;

	for (i = 0; i < gm_user.nr_workers; i++) {
		if (ev.busy[i] == slot)
			return true;
	}
	return false;
}

/* The oldest fault of a page that no other worker serves just now. */
static bool take_fault(unsigned int self, struct fault *out)
{
	unsigned int i;
	struct fault *f;

	gm_lock_raw(&ev.lock);
	ev.busy[self] = 0;
	for (i = 0; i < ev.nr_faults; i++) {
		f = &ev.faults[(ev.first + i) % NR_FAULTS];
		if (!is_busy_locked(SLOT(f->va)))
			break;
	}
	if (i == ev.nr_faults) {
		gm_unlock_raw(&ev.lock);
		return false;
	}
	*out = *f;
	ev.busy[self] = SLOT(out->va);
	for (; i > 0; i--)
		ev.faults[(ev.first + i) % NR_FAULTS] =
			ev.faults[(ev.first + i - 1) % NR_FAULTS];
	ev.first = (ev.first + 1) % NR_FAULTS;
	ev.nr_faults--;
	gm_unlock_raw(&ev.lock);
	return true;
}

/* Faults were dropped: wake everybody, and they fault again. */
static void wake_dropped(void)
{
	struct uffdio_range all = { 1ULL << 20, (1ULL << 47) - (2ULL << 20) };
	bool overflow;

	gm_lock_raw(&ev.lock);
	overflow = ev.overflow && !ev.nr_faults;
	if (overflow)
		ev.overflow = false;
	gm_unlock_raw(&ev.lock);
	if (overflow)
		gm_sys_ioctl(gm_user.fd_region, UFFDIO_WAKE, &all);
}

/*
 * The signal that broken memory gives, with the address, to the thread that
 * faults; only the kernel may say BUS_ADRERR to another thread. The entry
 * stays as it is: a later touch may succeed.
 */
static void send_bus_error(const struct fault *fault)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	info.si_signo = SIGBUS;
	info.si_code = SI_QUEUE;
	info.si_addr = (void *)fault->va;
	syscall(SYS_rt_tgsigqueueinfo, getpid(), fault->tid, SIGBUS, &info);
}

/*
 * The core does not know this page, but it is watched: the program has moved
 * a piece to where no page begins. From now on it is plain memory. (With the
 * lock: a region that is just being made here is in the table afterwards, and
 * must stay watched.)
 */
static void let_go(uint64_t slot)
{
	struct uffdio_range range = { slot, GM_PAGE_SIZE };

	gm_lock(&ev.as->lock, GM_RANK_AS);
	if (!gm_as_overlaps(ev.as, slot, GM_PAGE_SIZE) &&
	    !gm_events_pending(slot, slot + GM_PAGE_SIZE))
		gm_sys_ioctl(gm_user.fd_region, UFFDIO_UNREGISTER, &range);
	gm_unlock(&ev.as->lock, GM_RANK_AS);
}

static void serve_fault(const struct fault *fault)
{
	uint64_t slot = SLOT(fault->va);
	int rc;

	wait_served(fault->after);
	rc = gm_cpu_fault(ev.as, fault->va, fault->write ? GM_WRITE : GM_READ);
	switch (rc) {
	case 0:
		return;
	case -EFAULT:
		let_go(slot);
		break;
	case -EHWPOISON: /* the page table says so by now */
	case -EACCES: /* the kernel says so itself */
	case -EAGAIN:
		break;
	default:
		send_bus_error(fault);
	}
	gm_host_cpu_wake(ev.as, slot);
}

void gm_events_worker(struct gm_thread *self)
{
	struct fault fault;
	uint32_t seen;

	while (!gm_threads_stopping()) {
		seen = gm_load(&ev.posted);
		if (take_fault(self->index, &fault)) {
			serve_fault(&fault);
			continue;
		}
		wake_dropped();
		__atomic_fetch_add(&ev.idle, 1, __ATOMIC_SEQ_CST);
		gm_futex_wait(&ev.posted, seen, 0);
		__atomic_fetch_sub(&ev.idle, 1, __ATOMIC_SEQ_CST);
	}
}

void gm_events_ring(void)
{
	/* The reader sleeps in read(): an event of our own wakes it. */
	if (ev.bell)
		gm_sys_madvise(ev.bell, GM_SMALL_PAGE, MADV_DONTNEED);
	gm_add(&ev.posted, 1);
	gm_futex_wake(&ev.posted, INT_MAX);
	gm_futex_wake(&ev.seen, INT_MAX);
	gm_futex_wake(&ev.served, INT_MAX);
}
