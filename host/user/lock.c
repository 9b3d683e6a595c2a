/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * lock.c - fair locks, event counts, read-copy-update
 *
 * The lock is a ticket lock in eight bytes that sleeps on a futex. Each ticket
 * waits with its own bit of the futex's bitset, so an unlock wakes the one
 * whose turn it is (and those 32 tickets behind it), not the whole queue.
 */
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <urcu/urcu-bp.h>

#include "user.h"

#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
static char rcu_order;
#define RCU_ACQUIRE() __tsan_acquire(&rcu_order)
#define RCU_RELEASE() __tsan_release(&rcu_order)
#else
#define RCU_ACQUIRE() ((void)0)
#define RCU_RELEASE() ((void)0)
#endif

#define SPINS 100
#define ONE_TICKET (1ULL << 32)

static void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

/* The futex is the half of the word that is served. */
static uint32_t *serving_of(struct gm_lock *l)
{
	uint32_t *halves = (uint32_t *)(void *)&l->word;

	return halves + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

void gm_futex_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
	struct timespec ts = { (time_t)(timeout_ns / 1000000000),
			       (long)(timeout_ns % 1000000000) };
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen,
		timeout_ns ? &ts : NULL, NULL, 0);
	errno = saved;
}

void gm_futex_wake(uint32_t *word, int n)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
	errno = saved;
}

static void wait_turn(struct gm_lock *l, uint32_t ticket)
{
	uint64_t word = __atomic_load_n(&l->word, __ATOMIC_ACQUIRE);
	int saved = errno;
	int i;

	/* Only the next in line has reason to hope for a short wait. */
	for (i = 0; i < SPINS && ticket - (uint32_t)word == 1; i++) {
		cpu_relax();
		word = __atomic_load_n(&l->word, __ATOMIC_ACQUIRE);
	}
	while ((uint32_t)word != ticket) {
		syscall(SYS_futex, serving_of(l), FUTEX_WAIT_BITSET_PRIVATE,
			(uint32_t)word, NULL, NULL, 1U << (ticket & 31));
		word = __atomic_load_n(&l->word, __ATOMIC_ACQUIRE);
	}
	errno = saved;
}

void gm_lock_raw(struct gm_lock *l)
{
	uint64_t old =
		__atomic_fetch_add(&l->word, ONE_TICKET, __ATOMIC_ACQUIRE);

	if ((uint32_t)old != (uint32_t)(old >> 32))
		wait_turn(l, (uint32_t)(old >> 32));
}

static int trylock_raw(struct gm_lock *l)
{
	uint64_t old = __atomic_load_n(&l->word, __ATOMIC_RELAXED);

	return (uint32_t)old == (uint32_t)(old >> 32) &&
	       __atomic_compare_exchange_n(&l->word, &old, old + ONE_TICKET, 0,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/*
 * One exchange both releases and tells whether somebody waits: afterwards the
 * lock may be freed, and must not be looked at. (A wake of memory that is used
 * for something else by then is harmless: every waiter looks again.)
 */
void gm_unlock_raw(struct gm_lock *l)
{
	uint64_t old = __atomic_load_n(&l->word, __ATOMIC_RELAXED);
	uint64_t new;
	int saved;

	do {
		new = (old & ~(uint64_t)UINT32_MAX) | (uint32_t)(old + 1);
	} while (!__atomic_compare_exchange_n(
		&l->word, &old, new, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	if ((uint32_t) new == (uint32_t)(new >> 32))
		return;
	saved = errno;
	syscall(SYS_futex, serving_of(l), FUTEX_WAKE_BITSET_PRIVATE, INT_MAX,
		NULL, NULL, 1U << ((uint32_t) new & 31));
	errno = saved;
}

#ifdef GM_DEBUG_LOCKS

#define HELD_MAX 32
#define RANK_NAME(name, protects, forbidden) #name,

static const char *const rank_names[] = { GM_LOCK_ORDER(RANK_NAME) };

struct held {
	const struct gm_lock *lock;
	enum gm_rank rank;
};

static GM_TLS struct held held[HELD_MAX];
static GM_TLS unsigned int nr_held;
static GM_TLS unsigned int rcu_depth;

static void violation(const char *what, enum gm_rank wanted, enum gm_rank has)
{
	char text[128];

	snprintf(text, sizeof(text), "lock order: %s (%s, holding %s)", what,
		 rank_names[wanted], rank_names[has]);
	gm_host_bug(__FILE__, __LINE__, text);
}

static void check_order(const struct gm_lock *l, enum gm_rank rank, int try)
{
	unsigned int i;

	if (rcu_depth)
		violation("taken inside an RCU read side", rank, rank);
	for (i = 0; i < nr_held; i++) {
		if (held[i].lock == l)
			violation("taken twice", rank, held[i].rank);
		if (held[i].rank > rank)
			violation("taken too late", rank, held[i].rank);
		if (held[i].rank == rank && rank != GM_RANK_ENTRY)
			violation("two of one rank", rank, held[i].rank);
		if (held[i].rank == rank && !try && held[i].lock > l)
			violation("entries not in ascending order", rank, rank);
	}
	if (nr_held == HELD_MAX)
		violation("too many held", rank, rank);
}

static void note_held(const struct gm_lock *l, enum gm_rank rank)
{
	held[nr_held].lock = l;
	held[nr_held].rank = rank;
	nr_held++;
}

static void note_released(const struct gm_lock *l, enum gm_rank rank)
{
	unsigned int i = nr_held;

	while (i-- > 0) {
		if (held[i].lock != l)
			continue;
		if (held[i].rank != rank)
			violation("released as another rank", rank,
				  held[i].rank);
		held[i] = held[--nr_held];
		return;
	}
	violation("released but not held", rank, rank);
}

void gm_assert_held(const struct gm_lock *l, enum gm_rank rank)
{
	unsigned int i;

	for (i = 0; i < nr_held; i++) {
		if (held[i].lock == l && held[i].rank == rank)
			return;
	}
	violation("needed but not held", rank, rank);
}

void gm_assert_below(enum gm_rank rank)
{
	unsigned int i;

	if (rcu_depth)
		violation("sleeps inside an RCU read side", rank, rank);
	for (i = 0; i < nr_held; i++) {
		if (held[i].rank >= rank)
			violation("call not allowed", rank, held[i].rank);
	}
}

#define note_rcu(change) (rcu_depth += (change))

#else /* !GM_DEBUG_LOCKS */

#define check_order(l, rank, try) ((void)(rank))
#define note_held(l, rank) ((void)(rank))
#define note_released(l, rank) ((void)(rank))
#define note_rcu(change) ((void)0)

void gm_assert_held(const struct gm_lock *l, enum gm_rank rank)
{
}

void gm_assert_below(enum gm_rank rank)
{
}

#endif /* GM_DEBUG_LOCKS */

void gm_lock(struct gm_lock *l, enum gm_rank rank)
{
	check_order(l, rank, 0);
	gm_lock_raw(l);
	note_held(l, rank);
}

int gm_trylock(struct gm_lock *l, enum gm_rank rank)
{
	check_order(l, rank, 1);
	if (!trylock_raw(l))
		return 0;
	note_held(l, rank);
	return 1;
}

void gm_unlock(struct gm_lock *l, enum gm_rank rank)
{
	note_released(l, rank);
	gm_unlock_raw(l);
}

uint32_t gm_waitq_read(struct gm_waitq *wq)
{
	return __atomic_load_n(&wq->count, __ATOMIC_SEQ_CST);
}

void gm_waitq_wait(struct gm_waitq *wq, uint32_t seen)
{
	gm_assert_below(GM_RANK_NODE);
	__atomic_fetch_add(&wq->waiters, 1, __ATOMIC_SEQ_CST);
	if (gm_waitq_read(wq) == seen)
		gm_futex_wait(&wq->count, seen, 0);
	__atomic_fetch_sub(&wq->waiters, 1, __ATOMIC_SEQ_CST);
	(void)gm_waitq_read(wq);
}

void gm_waitq_wake(struct gm_waitq *wq)
{
	__atomic_fetch_add(&wq->count, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&wq->waiters, __ATOMIC_SEQ_CST))
		gm_futex_wake(&wq->count, INT_MAX);
}

void gm_rcu_read_lock(void)
{
	urcu_bp_read_lock();
	note_rcu(1);
}

void gm_rcu_read_unlock(void)
{
	note_rcu(-1);
	RCU_RELEASE();
	urcu_bp_read_unlock();
}

void gm_rcu_synchronize(void)
{
	gm_assert_below((enum gm_rank)0);
	urcu_bp_synchronize_rcu();
	RCU_ACQUIRE();
}

uint64_t gm_host_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec + 1;
}

void gm_host_sleep_until(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000),
			       (long)(ns % 1000000000) };

	gm_assert_below(GM_RANK_NODE);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) ==
	       EINTR)
		;
}
