/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * worker.c - which part of which launch a worker runs next
 *
 * Launches have ids without gaps and live in a ring. A launch may start when
 * no earlier one of its lane (the streams' grain here) is unfinished.
 */
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "device.h"

/* A worker takes a launch in about so many parts, to even out the load. */
#define PARTS_PER_WORKER 8

struct progress {
	uint64_t next; /* S: first index not handed out */
	uint64_t left; /* S: indices that have not ended */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* S */
static uint64_t tail; /* S: the oldest unfinished launch */
static uint64_t known; /* S: launches below it have their progress set */
static struct progress progress[WIRE_LAUNCHES]; /* S */
static _Atomic(sgpu_kernel_fn *) kernels[WIRE_KERNELS];

void kernel_set(uint32_t id, sgpu_kernel_fn *fn)
{
	atomic_store(&kernels[id], fn);
}

static void learn_locked(uint64_t head)
{
	for (; known < head; known++) {
		struct progress *p = &progress[known % WIRE_LAUNCHES];

		p->next = 0;
		p->left = control->launch[known % WIRE_LAUNCHES].grid;
	}
}

static uint64_t part_of(const struct wire_launch *l)
{
	uint64_t n = l->grid / ((uint64_t)control->workers * PARTS_PER_WORKER);

	return n ? n : 1;
}

/* Take a part of the first launch that has one to give. */
static bool take(uint64_t *id, uint64_t *begin, uint64_t *end)
{
	uint64_t head = atomic_load(&control->head);
	uint64_t lanes = 0;
	bool found = false;

	pthread_mutex_lock(&lock);
	learn_locked(head);
	for (uint64_t i = tail; i < head && !found; i++) {
		const struct wire_launch *l =
			&control->launch[i % WIRE_LAUNCHES];
		struct progress *p = &progress[i % WIRE_LAUNCHES];
		uint64_t n = part_of(l);

		if (!p->left)
			continue;
		if (!(lanes & 1ull << l->lane) && p->next < l->grid) {
			*id = i;
			*begin = p->next;
			*end = l->grid - p->next < n ? l->grid : p->next + n;
			p->next = *end;
			found = true;
		}
		lanes |= 1ull << l->lane;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static void put(uint64_t id, uint64_t n)
{
	struct wire_launch *l = &control->launch[id % WIRE_LAUNCHES];
	bool ended;

	pthread_mutex_lock(&lock);
	ended = !(progress[id % WIRE_LAUNCHES].left -= n);
	if (ended)
		atomic_store(&l->done, id);
	while (tail < known && !progress[tail % WIRE_LAUNCHES].left)
		tail++;
	pthread_mutex_unlock(&lock);
	if (!ended)
		return;
	wire_ring(&control->done_bell, &control->done_sleeps);
	/* The next launch of the lane may start. */
	wire_ring(&control->launch_bell, &control->launch_sleeps);
}

static void run(uint32_t worker, uint64_t id, uint64_t begin, uint64_t end)
{
	const struct wire_launch *l = &control->launch[id % WIRE_LAUNCHES];
	sgpu_kernel_fn *fn = atomic_load(&kernels[l->kernel]);
	_Alignas(64) unsigned char args[WIRE_ARGS];
	struct sgpu_thread thread = {
		.grid = l->grid,
		.worker = worker,
		.workers = control->workers,
	};

	memcpy(args, l->args, l->len);
	running.worker = worker;
	running.launch = id;
	atomic_store(&last_launch, id);
	for (thread.index = begin; thread.index < end; thread.index++) {
		/* Before the call, also in the eyes of the handler. */
		*(volatile uint64_t *)&running.index = thread.index;
		fn(&thread, args);
	}
	running.launch = 0;
}

static bool rung(void *arg)
{
	return atomic_load_explicit(&control->launch_bell,
				    memory_order_relaxed) != *(uint32_t *)arg;
}

static void *worker_thread(void *arg)
{
	uint32_t worker = (uint32_t)(uintptr_t)arg;
	struct wire_spin spin = { WIRE_SPIN_MIN };
	uint64_t id, begin, end;

	/* Below the threads that fetch what this one waits for. */
	setpriority(PRIO_PROCESS, 0, 10);
	for (;;) {
		uint32_t bell = atomic_load(&control->launch_bell);

		if (take(&id, &begin, &end)) {
			run(worker, id, begin, end);
			put(id, end - begin);
			continue;
		}
		if (wire_spin(&spin, rung, &bell))
			continue;
		wire_hear(&control->launch_bell, &control->launch_sleeps, bell);
	}
	return NULL;
}

int workers_start(void)
{
	int ret = 0;

	tail = known = atomic_load(&control->head);
	for (uint32_t i = 0; i < control->workers && !ret; i++) {
		pthread_t thread;

		ret = -pthread_create(&thread, NULL, worker_thread,
				      (void *)(uintptr_t)i);
	}
	return ret;
}
