/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * user.h - what the files of the Linux process host share
 */
#ifndef GM_USER_H
#define GM_USER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/core.h"
#include "core/manager.h"

#define GM_SMALL_PAGE 4096ULL
#define GM_MAX_WORKERS 16
#define GM_MAX_HOST_NODES 16
/* Touched frames that only reclaim may take. */
#define GM_RESERVE_FRAMES 16
/* Zeroed frames beyond the reserve that are kept ready for first touches. */
#define GM_ZEROED_FRAMES 32

#if defined(__SANITIZE_THREAD__)
#define GM_ARENA_BASE 0x550000000000ULL
#else
#define GM_ARENA_BASE 0x300000000000ULL
#endif
#define GM_ARENA_LEN (16ULL << 40)

/* Thread-local data of a library that may be loaded late: never allocated. */
#define GM_TLS __thread __attribute__((tls_model("initial-exec")))

/**
 * struct gm_user - the host's settings and files; one in a process
 * @fd_region: userfaultfd of the regions: missing pages and events
 * @fd_dock: userfaultfd of the dock: a destination of moves, without events
 * @fd_pagemap: /proc/self/pagemap
 * @fd_maps: /proc/self/maps
 * @nr_nodes: host nodes
 * @nr_workers: threads that serve faults
 * @nr_helpers: threads that help in gm_host_parallel()
 * @arena_base: where gm_mmap() looks for room
 * @arena_len: bytes of it
 * @ram: bytes of memory that the machine has
 * @recycle: most pages kept with their memory for reuse
 * @replicas: budget of replicas in pages
 */
struct gm_user {
	int fd_region;
	int fd_dock;
	int fd_pagemap;
	int fd_maps;
	int nr_nodes;
	unsigned int nr_workers;
	unsigned int nr_helpers;
	uint64_t arena_base;
	uint64_t arena_len;
	uint64_t ram;
	uint64_t recycle;
	uint64_t replicas;
};

extern struct gm_user gm_user;

/* lock.c: as gm_lock(), but outside the order; for the host's own leaves. */
void gm_lock_raw(struct gm_lock *l);
void gm_unlock_raw(struct gm_lock *l);
void gm_futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void gm_futex_wake(uint32_t *word, int n);
/* Debug builds stop if a lock of @rank or later is held. */
void gm_assert_below(enum gm_rank rank);

/* init.c */
/* Like gm_as_current(), but never makes the library ready. */
struct gm_as *gm_as_if_ready(void);
void gm_error_clear(void);
int gm_user_probe(void);
/* A new userfaultfd. */
int gm_uffd_make(uint64_t features, int *out);
void gm_user_close(void);

/* fork.c */
int gm_fork_init(void);
bool gm_fork_is_child(void);

/* threads.c */
/**
 * struct gm_thread - a thread of the library
 * @handle: to join it
 * @tid: its number, or 0
 * @run: what it does
 * @index: which of those that do the same
 * @stack: an address in its stack, 0 until it runs
 * @touches: it reads or writes the program's memory for a caller, and may wait
 *	there for those that serve faults
 */
struct gm_thread {
	pthread_t handle;
	pid_t tid; /* (A) */
	void (*run)(struct gm_thread *self);
	unsigned int index;
	uint64_t stack; /* (A) an address in it */
	bool touches; /* (A) */
};
int gm_threads_start(struct gm_as *as);
void gm_threads_stop(void);
bool gm_threads_stopping(void);
/* Is the stack of one of them in the range? */
bool gm_threads_own(uint64_t va, uint64_t len);
/* A thread of the library that may not touch unified memory now? */
bool gm_thread_must_not_touch(pid_t tid);
/* The calling thread, if it is the library's, may from now on, or not. */
void gm_thread_touches(bool may);

/* events.c */
int gm_events_init(struct gm_as *as);
void gm_events_exit(void);
void gm_events_reader(struct gm_thread *self);
void gm_events_server(struct gm_thread *self);
void gm_events_worker(struct gm_thread *self);
/* Let the three above find that they are to stop. */
void gm_events_ring(void);
/* How many events have been read. Wait until there are more, or a while. */
uint32_t gm_events_seen(void);
void gm_events_wait(uint32_t seen);
/* gm_events_barrier(), in gm_host.h: wait until the events of what the program
 * has done so far have reached the core. */
/* Wait until what the kernel has handed over by now has been looked at. */
void gm_events_look(void);
/* Has an unmap or move of part of the range been read, but not served? */
bool gm_events_pending(uint64_t start, uint64_t end);
/* The calling thread reads this page of a region, with its entry's lock held:
 * what it finds missing is zeros. The number is for the end of it. */
unsigned int gm_events_copying(uint64_t va);
void gm_events_copied(unsigned int copier);
/* Events of our own doing, which the core is not told. */
void gm_events_mute(uint64_t start, uint64_t end);
void gm_events_unmute(uint64_t start, uint64_t end);
/* Empty a page of a region, page table included. */
int gm_events_zap(uint64_t va, uint64_t len);

/* mute.c: ranges of which events are dropped; @exact: one REMOVE of just it. */
void gm_mute_add(uint64_t start, uint64_t end, bool exact);
bool gm_mute_drop(uint64_t start, uint64_t end, bool exact);
bool gm_mute_inside(uint64_t start, uint64_t end);

/* frames.c */
int gm_frames_init(void);
void gm_frames_exit(void);
void gm_frames_keeper(struct gm_thread *self);
void gm_frames_ring(void);
/* Is the dock, or what describes it, in the range? */
bool gm_frames_own(uint64_t va, uint64_t len);
int gm_frames_reserve(void);
void gm_frames_discard(struct gm_page *page);
/* Of internal use: a frame that need not be there. NULL if there is none. */
struct gm_page *gm_frames_try_get(bool zeroed);

/* memory.c */
void gm_copy_calibrate(void);
uint64_t gm_memory_headroom(void);
void gm_memory_init(void);
void gm_memory_exit(void);
int gm_memory_of_node(int nid, uint64_t *total, uint64_t *free_bytes);
int gm_memory_nr_nodes(void);
int gm_memory_node_at(uint64_t addr);
/* struct gm_policy - the memory policy of a thread, while it has another */
#define GM_POLICY_WORDS (1024 / 64)
struct gm_policy {
	unsigned long mask[GM_POLICY_WORDS];
	int mode;
	bool set;
};
void gm_memory_prefer(int nid, struct gm_policy *old);
void gm_memory_restore(const struct gm_policy *old);
int gm_memory_populate(uint64_t addr, uint64_t len, int nid);

/* plain.c: memory that is not unified. Status as gm_as_move()'s; @nodes may be
 * NULL. */
void gm_plain_move(struct gm_as *as, unsigned long n, void **pages,
		   const int *nodes, int *status, unsigned int flags);

void gm_plain_nodes(unsigned long n, void **pages, int *status);
bool gm_plain_can_take(uint64_t va, uint64_t size);

/* plain_exchange.c */
void gm_plain_exchange(struct gm_as *as, unsigned long n, void **from,
		       void **to, int *status, unsigned int flags);

/* mover.c */
/**
 * struct gm_piece - a plain page on its way
 * @va: where the program has it
 * @out: where it is taken to, in @slot
 * @slot: a vacant place
 * @frame: a place with memory of the node that it goes to
 * @away: it has been taken
 */
struct gm_piece {
	uint64_t va;
	uint64_t out;
	struct gm_page *slot;
	struct gm_page *frame;
	bool away;
};
/* Around which nothing is moved: a thread's stack and what is next to it. */
#define GM_OWN_STACK (256UL << 10)
bool gm_mover_needs(uint64_t va, uint64_t len);
/* One batch: take, then say for each what is away where it is now, then end,
 * which puts it back. */
int gm_mover_begin(void);
void gm_mover_take(struct gm_piece *pieces, unsigned int n, uint64_t size);
void gm_mover_put(const struct gm_piece *piece, uint64_t from, uint64_t size);
void gm_mover_end(void);
/* No batch is under way in between. */
void gm_mover_hold(void);
void gm_mover_release(void);
void gm_mover_reset(void);

/* range.c */
int gm_range_init(void);
void gm_range_exit(void);
void gm_range_forget(uint64_t va, uint64_t len);
void gm_range_adopt(uint64_t va, uint64_t len);
/* Could there be unified memory? Takes no lock, and is never wrong with no. */
bool gm_range_possible(uint64_t va, uint64_t len);
bool gm_range_in_arena(uint64_t va, uint64_t len);

/* vma.c */
struct gm_vma {
	uint64_t start;
	uint64_t end;
	unsigned int prot; /* PROT_* */
	bool shared;
	bool anonymous;
};
/* The mapping at @addr or the next one. -ENOENT: none follows. */
int gm_vma_find(uint64_t addr, struct gm_vma *vma);
/* 0 if all of the range is mapped with the rights @prot, else -EFAULT. */
int gm_vma_check(uint64_t addr, uint64_t len, unsigned int prot);
bool gm_vma_locked(uint64_t addr, uint64_t len);
/* Bytes of [start, end) that hold something; and where the first such run is. */
uint64_t gm_vma_present(uint64_t start, uint64_t end, uint64_t *from,
			uint64_t *to);
/* The first run of missing 4 KiB pages; false if there is none. */
bool gm_vma_missing(uint64_t start, uint64_t end, uint64_t *from, uint64_t *to);
bool gm_vma_huge(uint64_t start, uint64_t end);

/* pagetable.c: see there. */
#define GM_MOVE_HOLES UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES
/* How long a kernel that says EAGAIN is believed. */
#define GM_PATIENCE_NS 200000000ULL
int gm_vma_whole(uint64_t va, struct gm_vma *vma);
uint64_t gm_move_range(int fd, uint64_t dst, uint64_t src, uint64_t len,
		       uint64_t mode, int *err);
uint64_t gm_copy_range(uint64_t dst, uint64_t src, uint64_t len, int *err);
void gm_wake_range(uint64_t va, uint64_t len);

static inline struct gm_page *gm_page_of(struct gm_list *link)
{
	return (struct gm_page *)((char *)link -
				  __builtin_offsetof(struct gm_page, link));
}

#endif /* GM_USER_H */
