/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * host.h - what the core asks of an operating system
 *
 * A host is a folder host/X with a header gm_host.h, which is found by the
 * include path and brings:
 *
 *   * the errno constants, and no other names that could clash;
 *   * struct gm_lock (at most 8 bytes; all zeros is unlocked) and
 *     struct gm_waitq (all zeros is ready for use);
 *   * struct gm_host_as, the host's part of an address space;
 *   * GM_COVER(state, event), which the core says each time an event meets an
 *     entry in a state; a host may evaluate both and do nothing.
 *
 * Preconditions of everything below, unless said otherwise:
 *
 *   pre: va and len are multiples of GM_PAGE_SIZE; the range is inside what
 *        gm_host_range_map() returned. The program may have unmapped or moved
 *        it since: the call then fails with -EAGAIN and changes nothing;
 *   pre: pointers to results are not NULL; on failure they are left alone;
 *   pre: calls may come from several threads at once, for different pages;
 *        for one page the core holds its entry's lock.
 *
 * Return: 0 or a negative errno, unless said otherwise.
 *
 * Frames of host memory. A struct gm_page of a host node is a *place at rest*
 * for one page, outside all regions. It is either vacant or holds memory.
 * gm_host_cpu_unmap() takes a page out of the program's page table into a
 * vacant place, gm_host_cpu_map() puts it from the place into the page table
 * and leaves the place vacant; neither copies. A page that the program has
 * mapped has no struct gm_page: the page table is the truth about it.
 */
#ifndef GMM_CORE_HOST_H
#define GMM_CORE_HOST_H

#include "gmm/types.h"
#include "gm_host.h"

#ifndef GM_SETTLE
#define GM_SETTLE() ((void)0)
#endif

struct gm_as;
struct gm_page;

/* --- locks, waiting, time --------------------------------------------- */

#define GM_LOCK_RANK(name, protects, forbidden) GM_RANK_##name,
#include "core/lock_order.h"
enum gm_rank { GM_LOCK_ORDER(GM_LOCK_RANK) GM_NR_RANKS };
#undef GM_LOCK_RANK

/*
 * Locks are fair: granted in the order of arrival. Their holder may sleep
 * where lock_order.h does not forbid it.
 * pre: the calling thread does not hold @l; @rank is above all it holds, or
 *      ENTRY and at a higher address than the entries it holds.
 */
void gm_lock(struct gm_lock *l, enum gm_rank rank);
/* Returns non-zero if it got the lock. pre: of gm_lock(), but the address. */
int gm_trylock(struct gm_lock *l, enum gm_rank rank);
/* pre: the calling thread holds @l. */
void gm_unlock(struct gm_lock *l, enum gm_rank rank);
/* Debug builds stop if the calling thread does not hold @l. */
void gm_assert_held(const struct gm_lock *l, enum gm_rank rank);

/*
 * Event counts: read the count, look at the condition, wait for the count to
 * move on. A wake before the wait is not lost.
 */
uint32_t gm_waitq_read(struct gm_waitq *wq);
/* pre: no lock of rank NODE or later is held. May return early. */
void gm_waitq_wait(struct gm_waitq *wq, uint32_t seen);
void gm_waitq_wake(struct gm_waitq *wq);

/*
 * Read-copy-update.
 * pre of the read side: short, no other call of this file inside but these.
 * pre of synchronize: no lock is held, not inside a read side.
 */
void gm_rcu_read_lock(void);
void gm_rcu_read_unlock(void);
void gm_rcu_synchronize(void);

/* Nanoseconds that only grow. Never 0. */
uint64_t gm_host_now(void);
/* pre: no lock of rank NODE or later is held. */
void gm_host_sleep_until(uint64_t ns);

/*
 * Call fn(arg, i) for each i below @n, on up to @width threads of which the
 * caller is one; return when all have returned. A text that fn makes by
 * gm_host_error() is the caller's afterwards, whichever thread ran it.
 * pre: no lock is held; or only such of rank ENTRY, and @fn neither takes a lock
 *      nor waits for anybody: it copies.
 */
void gm_host_parallel(void (*fn)(void *arg, unsigned int i), void *arg,
		      unsigned int n, unsigned int width);

/* --- small memory, messages ------------------------------------------- */

/* Zeroed, aligned to 64 bytes; NULL if there is none. Never the program's
 * allocator: the program may be inside it, waiting for us. */
void *gm_host_zalloc(size_t size);
/* pre: @p is NULL or came from gm_host_zalloc(@size). */
void gm_host_zfree(void *p, size_t size);

/*
 * Make the text of gm_error() for this thread, printf's way. Returns @err.
 */
int gm_host_error(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Something that cannot be is so: print it and stop the process. */
void gm_host_bug(const char *file, int line, const char *what)
	__attribute__((noreturn));

/* --- host memory at rest ---------------------------------------------- */

/*
 * @n vacant places, neighbours where possible, so that neighbouring pages
 * can be moved there in one go.
 * pre: 0 < n <= GM_BATCH; no lock of rank ENTRY or later is held.
 * Return: 0 and all of them, or -ENOMEM and none.
 */
int gm_host_slots_get(struct gm_as *as, struct gm_page **slots, unsigned int n);

enum gm_host_page_flags {
	GM_HOST_ZEROED = 1 << 0, /* reads as zeros (otherwise: anything) */
	GM_HOST_RESERVE = 1 << 1, /* for reclaim: may use the reserve */
};

/*
 * A place with memory, touched and ready, on node @nid or, if that is full,
 * on another host node. @nid may be GM_NODE_NONE: the node of this CPU.
 * pre: no lock of rank ENTRY or later is held.
 * Return: 0, or -ENOMEM.
 */
int gm_host_page_get(struct gm_as *as, int nid, unsigned int flags,
		     struct gm_page **page);

/* Give a place back, vacant or with memory. Never fails, never sleeps. */
void gm_host_page_put(struct gm_as *as, struct gm_page *page);

/* Where the core and the operators may read and write a page at rest.
 * pre: it holds memory. */
void *gm_host_page_ptr(const struct gm_page *page);

/*
 * Copy and zero host memory; the best loop for pages that the CPU will not
 * read soon.
 * pre: both sides are pages at rest or the core's own memory.
 */
void gm_host_copy(void *dst, const void *src, size_t len);
void gm_host_zero(void *dst, size_t len);
/* The two change places. pre: multiples of 8; @len too. */
void gm_host_exchange(void *a, void *b, size_t len);

/* --- the program's page table ----------------------------------------- */

/*
 * Put pages at rest where the program sees them, at @va and following, and
 * wake the threads that wait there. status[i] says what became of pages[i]:
 *   0        mapped; the place is vacant now
 *   -EEXIST  something is there already (all or part of the page), or nobody
 *            watches the range: a late fault of what was there before
 *   -EAGAIN  the mapping changed; look the region up again
 *   -EXDEV   as gm_host_cpu_unmap() says; a host may rather put what is cut
 *            in place piece by piece
 *   -ENOMEM, -EFAULT (the host cannot say better)
 * pre: 0 < n <= GM_BATCH, the pages hold memory, @prot is not 0.
 */
void gm_host_cpu_map(struct gm_as *as, uint64_t va, struct gm_page **pages,
		     unsigned int n, unsigned int prot, int *status);

/*
 * Take pages from where the program sees them into vacant places. Atomic for
 * each page: every store of the program is either in the page or faults
 * afterwards. Parts that were never touched read as zeros. status[i]:
 *   0        slots[i] holds the page; the program's next touch faults
 *   -ENOENT  nothing was there, though it is mapped; never said of a range
 *            that has been unmapped or moved away, for its data may live on
 *   -EXDEV   it is no longer one page of one mapping, and no event about that
 *            is on its way: it was cut, or unmapped, while nobody watched, or
 *            by a call of which there is no event
 *   -EBUSY   the kernel holds the page
 *   -EAGAIN  the mapping changed; look the region up again
 *   -ENOMEM, -EFAULT
 * pre: 0 < n <= GM_BATCH, the slots are vacant.
 */
void gm_host_cpu_unmap(struct gm_as *as, uint64_t va, struct gm_page **slots,
		       unsigned int n, unsigned int prot, int *status);

/*
 * The host node of what the program has mapped at @va, without touching it: of
 * its first part that is there. -ENOENT: nothing is, or only zeros that all
 * share.
 */
int gm_host_cpu_node(struct gm_as *as, uint64_t va);

/*
 * The program faults in a page of which a part is there: fill the missing
 * parts with zeros and wake.
 */
int gm_host_cpu_fill(struct gm_as *as, uint64_t va);

/*
 * The mapping of this one page has been cut, or moved to an address that is
 * no multiple of GM_PAGE_SIZE. Put bytes [off, off + len) of @page, as far as
 * the program still has their place mapped and nothing is there, at @va + off,
 * piece by piece. @page may be NULL: the data is already there. @page's memory
 * is used up when 0 or more is returned, give the place back.
 * Here va, off and len are multiples of 4 KiB.
 * Return: the bytes of [va + off, va + off + len) that the program still has
 * mapped, or a negative errno.
 */
int64_t gm_host_cpu_scatter(struct gm_as *as, uint64_t va, struct gm_page *page,
			    uint64_t off, uint64_t len);

/* Make every touch of this page a SIGBUS. */
int gm_host_cpu_poison(struct gm_as *as, uint64_t va);
/* Take that back, so that the page can be touched again. */
int gm_host_cpu_unpoison(struct gm_as *as, uint64_t va);

/* Wake the threads that wait in this page, to try again. */
void gm_host_cpu_wake(struct gm_as *as, uint64_t va);

/*
 * Read, write, zero as the program itself would: it may fault, and the fault
 * is served by another thread. @addr is any address, unified or not.
 * pre: no lock is held.
 * Return: 0; -EFAULT if it is not memory with that right.
 */
int gm_host_user_read(struct gm_as *as, void *dst, uint64_t addr, size_t len);
int gm_host_user_write(struct gm_as *as, uint64_t addr, const void *src,
		       size_t len);
/*
 * Read through a buffer of @size bytes, from where eat(arg, off, n) takes the
 * @n bytes of addr + off; its first error ends it and is returned. No lock is
 * held when it is called.
 */
int gm_host_user_feed(struct gm_as *as, uint64_t addr, size_t len, void *buf,
		      size_t size, int (*eat)(void *arg, size_t off, size_t n),
		      void *arg);
/* dst and src are both the program's and may overlap. */
int gm_host_user_copy(struct gm_as *as, uint64_t dst, uint64_t src, size_t len);

/* --- address ranges --------------------------------------------------- */

enum gm_range_flags {
	GM_RANGE_FIXED = 1 << 0, /* at @hint or not at all; replaces */
	GM_RANGE_NOREPLACE = 1 << 1, /* with FIXED: -EEXIST if it is in use */
	GM_RANGE_TRACKED = 1 << 2, /* as if gm_host_range_track() was called */
	GM_RANGE_RESERVE_ONLY = 1 << 3, /* keep others out; never touched */
};

/*
 * Make a range of the program's memory, empty, not inherited by fork(), where
 * gm_as_taken() says 0; at a @hint that is not FIXED the core has asked.
 * pre: @hint is 0 or a multiple of GM_PAGE_SIZE; rank AS may be held.
 * Return: 0 and the address; -ENOMEM, -EEXIST, -EINVAL.
 */
int gm_host_range_map(struct gm_as *as, uint64_t hint, uint64_t len,
		      unsigned int prot, unsigned int flags, uint64_t *va);

/*
 * Undo gm_host_range_map() for all or part of a range, without any event to
 * the core. Never fails. Here va and len are multiples of 4 KiB.
 */
void gm_host_range_unmap(struct gm_as *as, uint64_t va, uint64_t len);

/*
 * From now on touches of what is not there come to gm_cpu_fault(), and the
 * program's own munmap(), mremap() and madvise() to gm_as_unmapped(),
 * gm_as_remapped() and gm_as_discarded(). Pages that are there stay.
 * pre: rank AS may be held. Calling it twice succeeds.
 * Return: 0; -ENOENT if the program has unmapped the range.
 */
int gm_host_range_track(struct gm_as *as, uint64_t va, uint64_t len);

/*
 * What the program has done by itself before has come to gm_as_unmapped(),
 * gm_as_remapped() and gm_as_discarded() when this returns.
 * pre: no lock is held; not from inside those three.
 */
void gm_host_told(struct gm_as *as);

/*
 * Move what the program has at @from to @to, which gm_host_range_map() made
 * and nobody knows (what a stray touch put there is dropped), and undo the mapping of @from; without any event to
 * the core. @to is tracked if @from was.
 */
int gm_host_range_move(struct gm_as *as, uint64_t from, uint64_t to,
		       uint64_t len);

/*
 * Change the program's rights to a range. Here va and len are multiples of
 * 4 KiB.
 */
int gm_host_range_protect(struct gm_as *as, uint64_t va, uint64_t len,
			  unsigned int prot);

#endif /* GMM_CORE_HOST_H */
