/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Locks, event counts, the rank checker, RCU, gm_host_parallel(). */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "fake.h"

#define THREADS 6
#define ROUNDS 20000

static struct gm_lock the_lock;
static uint64_t counter;

static void *count_up(void *arg)
{
	int i;

	for (i = 0; i < ROUNDS; i++) {
		gm_lock(&the_lock, GM_RANK_NODE);
		counter++;
		gm_unlock(&the_lock, GM_RANK_NODE);
	}
	return NULL;
}

START_TEST(excludes)
{
	pthread_t t[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, count_up, NULL),
				 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(counter, THREADS * ROUNDS);
	ck_assert_int_eq(gm_trylock(&the_lock, GM_RANK_NODE), 1);
	gm_unlock(&the_lock, GM_RANK_NODE);
}
END_TEST

/* Both halves of the word wrap around without disturbing each other. */
START_TEST(wraps_around)
{
	pthread_t t[THREADS];
	int i;

	the_lock.word = ~0ULL;
	counter = 0;
	for (i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, count_up, NULL);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	ck_assert_uint_eq(counter, THREADS * ROUNDS);
	ck_assert_uint_eq((uint32_t)the_lock.word, the_lock.word >> 32);
}
END_TEST

static uint32_t arrived, order[THREADS], nr_order;

static void *arrive(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg;

	gm_lock(&the_lock, GM_RANK_NODE);
	order[nr_order++] = me;
	gm_unlock(&the_lock, GM_RANK_NODE);
	return NULL;
}

START_TEST(is_fair)
{
	pthread_t t[THREADS];
	uintptr_t i;

	gm_lock(&the_lock, GM_RANK_NODE);
	for (i = 0; i < THREADS; i++) {
		pthread_create(&t[i], NULL, arrive, (void *)i);
		/* It has its ticket when the upper half has moved. */
		while ((uint32_t)(gm_load(&the_lock.word) >> 32) -
			       (uint32_t)gm_load(&the_lock.word) !=
		       i + 2)
			;
	}
	gm_unlock(&the_lock, GM_RANK_NODE);
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < THREADS; i++)
		ck_assert_uint_eq(order[i], i);
	(void)arrived;
}
END_TEST

START_TEST(trylock_fails)
{
	gm_lock(&the_lock, GM_RANK_ENTRY);
	struct gm_lock other = { 0 };

	ck_assert_int_eq(gm_trylock(&other, GM_RANK_ENTRY), 1);
	gm_unlock(&other, GM_RANK_ENTRY);
	other.word = 1ULL << 32; /* somebody has it */
	ck_assert_int_eq(gm_trylock(&other, GM_RANK_ENTRY), 0);
	gm_unlock(&the_lock, GM_RANK_ENTRY);
}
END_TEST

#ifdef GM_DEBUG_LOCKS
static struct gm_lock pair[2];

START_TEST(wrong_order)
{
	signal(SIGABRT, SIG_DFL);
	gm_lock(&pair[0], GM_RANK_NODE);
	gm_lock(&pair[1], GM_RANK_ENTRY);
}
END_TEST

START_TEST(descending_entries)
{
	gm_lock(&pair[1], GM_RANK_ENTRY);
	gm_lock(&pair[0], GM_RANK_ENTRY);
}
END_TEST

START_TEST(ascending_entries)
{
	gm_lock(&pair[0], GM_RANK_ENTRY);
	gm_lock(&pair[1], GM_RANK_ENTRY);
	gm_unlock(&pair[0], GM_RANK_ENTRY);
	ck_assert_int_eq(gm_trylock(&pair[0], GM_RANK_ENTRY), 1);
	gm_assert_held(&pair[0], GM_RANK_ENTRY);
	gm_unlock(&pair[0], GM_RANK_ENTRY);
	gm_unlock(&pair[1], GM_RANK_ENTRY);
}
END_TEST

START_TEST(taken_twice)
{
	gm_lock(&pair[0], GM_RANK_ENTRY);
	gm_lock(&pair[0], GM_RANK_ENTRY);
}
END_TEST

START_TEST(not_held)
{
	gm_assert_held(&pair[0], GM_RANK_ENTRY);
}
END_TEST

START_TEST(unlock_not_held)
{
	gm_unlock(&pair[0], GM_RANK_ENTRY);
}
END_TEST

START_TEST(waits_with_node_lock)
{
	struct gm_waitq wq = { 0 };

	gm_lock(&pair[0], GM_RANK_NODE);
	gm_waitq_wait(&wq, 1);
}
END_TEST

START_TEST(lock_in_rcu)
{
	gm_rcu_read_lock();
	gm_lock(&pair[0], GM_RANK_NODE);
}
END_TEST

START_TEST(synchronize_with_lock)
{
	gm_lock(&pair[0], GM_RANK_AS);
	gm_rcu_synchronize();
}
END_TEST
#endif

static struct gm_waitq wq;
static uint32_t flag;

static void *waker(void *arg)
{
	gm_store(&flag, 1);
	gm_waitq_wake(&wq);
	return NULL;
}

START_TEST(wake_is_not_lost)
{
	pthread_t t;
	uint32_t seen;
	int i;

	for (i = 0; i < 500; i++) {
		gm_store(&flag, 0);
		pthread_create(&t, NULL, waker, NULL);
		for (;;) {
			seen = gm_waitq_read(&wq);
			if (gm_load(&flag))
				break;
			gm_waitq_wait(&wq, seen);
		}
		pthread_join(t, NULL);
	}
}
END_TEST

struct thing {
	uint64_t a, b;
};
static struct thing *published;
static uint32_t stop_readers, torn;

static void *reader(void *arg)
{
	struct thing *thing;

	while (!gm_load(&stop_readers)) {
		gm_rcu_read_lock();
		thing = gm_load(&published);
		if (thing->a != thing->b)
			gm_add(&torn, 1);
		gm_rcu_read_unlock();
	}
	return NULL;
}

START_TEST(rcu_protects)
{
	struct thing *old, *new;
	pthread_t t[3];
	uint64_t i;
	int k;

	published = gm_host_zalloc(sizeof(*published));
	for (k = 0; k < 3; k++)
		pthread_create(&t[k], NULL, reader, NULL);
	for (i = 1; i < 300; i++) {
		new = gm_host_zalloc(sizeof(*new));
		new->a = new->b = i;
		old = published;
		gm_store(&published, new);
		gm_rcu_synchronize();
		old->a = ~0ULL;
		old->b = 1;
		gm_host_zfree(old, sizeof(*old));
	}
	gm_store(&stop_readers, 1);
	for (k = 0; k < 3; k++)
		pthread_join(t[k], NULL);
	ck_assert_uint_eq(torn, 0);
}
END_TEST

static uint32_t hits[1000];

static void hit(void *arg, unsigned int i)
{
	gm_add(&hits[i], 1);
}

static void *many_jobs(void *arg)
{
	int i;

	for (i = 0; i < 200; i++)
		gm_host_parallel(hit, NULL, 1000, 4);
	return NULL;
}

START_TEST(parallel_does_each_once)
{
	pthread_t t[3];
	int i;

	memset(hits, 0, sizeof(hits));
	gm_host_parallel(hit, NULL, 1000, 4); /* no threads yet */
	fake_start(1, 1);
	for (i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, many_jobs, NULL);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < 1000; i++)
		ck_assert_uint_eq(hits[i], 601);
	gm_host_parallel(hit, NULL, 0, 4);
	gm_host_parallel(hit, NULL, 1, 0);
	ck_assert_uint_eq(hits[0], 602);
	fake_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lock");
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	fake_add(suite, excludes);
	fake_add(suite, wraps_around);
	fake_add(suite, is_fair);
	fake_add(suite, trylock_fails);
#ifdef GM_DEBUG_LOCKS
	fake_add_abort(suite, wrong_order);
	fake_add_abort(suite, descending_entries);
	fake_add(suite, ascending_entries);
	fake_add_abort(suite, taken_twice);
	fake_add_abort(suite, not_held);
	fake_add_abort(suite, unlock_not_held);
	fake_add_abort(suite, waits_with_node_lock);
	fake_add_abort(suite, lock_in_rcu);
	fake_add_abort(suite, synchronize_with_lock);
#endif
	fake_add(suite, wake_is_not_lost);
	fake_add(suite, rcu_protects);
	fake_add(suite, parallel_does_each_once);
	return fake_run(suite);
}
