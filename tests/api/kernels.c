/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* kernels.c - what the tests run on the software GPU */
#include <errno.h>
#include <unistd.h>

#include "kernels.h"
#include "sgpu_kernel.h"

#define PAGE_WORDS ((uint64_t)(2 << 20) / 8)

/* This index's share of the words: whole runs, so that pages are not torn. */
static uint64_t first(const struct sgpu_thread *t, uint64_t n)
{
	return n / t->grid * t->index;
}

static uint64_t last(const struct sgpu_thread *t, uint64_t n)
{
	return t->index + 1 == t->grid ? n : n / t->grid * (t->index + 1);
}

static void add(uint64_t *out, uint64_t value)
{
	if (out)
		__atomic_fetch_add(out, value, __ATOMIC_SEQ_CST);
}

SGPU_KERNEL(fill)
{
	const struct kargs *a = args;

	for (uint64_t i = first(thread, a->n); i < last(thread, a->n); i++)
		a->dst[i] = pattern(a->seed, i);
}

/* How many words are not the pattern's. */
SGPU_KERNEL(check)
{
	const struct kargs *a = args;
	uint64_t wrong = 0;

	for (uint64_t i = first(thread, a->n); i < last(thread, a->n); i++)
		wrong += a->src[i] != pattern(a->seed, i);
	add(a->out, wrong);
}

SGPU_KERNEL(sum)
{
	const struct kargs *a = args;
	uint64_t sum = 0;

	for (uint64_t i = first(thread, a->n); i < last(thread, a->n); i++)
		sum += a->src[i];
	add(a->out, sum);
}

SGPU_KERNEL(increment)
{
	const struct kargs *a = args;

	for (uint64_t i = first(thread, a->n); i < last(thread, a->n); i++)
		a->dst[i] += a->seed;
}

SGPU_KERNEL(copy)
{
	const struct kargs *a = args;

	for (uint64_t i = first(thread, a->n); i < last(thread, a->n); i++)
		a->dst[i] = a->src[i];
}

/* One word of each of n pages. */
SGPU_KERNEL(peek)
{
	const struct kargs *a = args;

	for (uint64_t i = first(thread, a->n); i < last(thread, a->n); i++)
		(void)*(const volatile uint64_t *)&a->src[i * PAGE_WORDS];
}

SGPU_KERNEL(poke)
{
	const struct kargs *a = args;

	for (uint64_t i = first(thread, a->n); i < last(thread, a->n); i++)
		*(volatile uint64_t *)&a->dst[i * PAGE_WORDS] = a->seed + i;
}

/* n steps along pointers, then where it got. */
SGPU_KERNEL(chase)
{
	const struct kargs *a = args;
	const uint64_t *p = a->src;

	for (uint64_t i = 0; i < a->n; i++)
		p = (const uint64_t *)(uintptr_t)*p;
	add(a->out, (uint64_t)(uintptr_t)p);
}

/* Until the CPU writes the seed. */
SGPU_KERNEL(spin)
{
	const struct kargs *a = args;

	while (__atomic_load_n(a->dst, __ATOMIC_ACQUIRE) != a->seed)
		;
	add(a->out, 1);
}

/* n turns with the CPU, which makes the word odd. */
SGPU_KERNEL(pingpong)
{
	const struct kargs *a = args;

	for (uint64_t i = 0; i < a->n; i++) {
		while (__atomic_load_n(a->dst, __ATOMIC_ACQUIRE) != 2 * i + 1)
			;
		__atomic_store_n(a->dst, 2 * i + 2, __ATOMIC_RELEASE);
	}
}

/* n atomic increments of one word. */
SGPU_KERNEL(count)
{
	const struct kargs *a = args;

	for (uint64_t i = 0; i < a->n; i++)
		__atomic_fetch_add(a->dst, 1, __ATOMIC_SEQ_CST);
}

SGPU_KERNEL(crash)
{
	__builtin_trap();
}

/* A system call on the memory: what errno says. */
SGPU_KERNEL(syscall)
{
	const struct kargs *a = args;
	int ends[2];

	if (pipe(ends))
		return;
	if (write(ends[1], a->src, 8) < 0)
		add(a->out, (uint64_t)errno);
	close(ends[0]);
	close(ends[1]);
}
