/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* kernels.c - device code for the tests of the device alone */
#include <immintrin.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pthread.h>
#include <unistd.h>

#include "kernels.h"
#include "sgpu_kernel.h"

SGPU_KERNEL(nothing)
{
}

/* Each index writes its number. */
SGPU_KERNEL(iota)
{
	const struct span *a = args;

	((uint64_t *)a->p)[thread->index] = thread->index + a->value;
}

SGPU_KERNEL(add)
{
	const struct three *a = args;

	a->c[thread->index] = a->a[thread->index] + a->b[thread->index];
}

/* Each index adds one to the word at the start of its own 2 MiB page. */
SGPU_KERNEL(touch_pages)
{
	const struct span *a = args;
	unsigned char *p = (unsigned char *)a->p + (thread->index << 21);

	atomic_fetch_add((_Atomic uint64_t *)p, a->value);
}

/* All indices add to one word. */
SGPU_KERNEL(count)
{
	const struct span *a = args;

	atomic_fetch_add((_Atomic uint64_t *)a->p, a->value);
}

static void load(uint64_t how, volatile uint64_t *p)
{
	static _Alignas(64) unsigned char local[4096];
	void *to = local;
	const void *from = (const void *)(uintptr_t)p;
	size_t n = sizeof(local);

	if (how == ACCESS_LOAD)
		(void)*p;
	else if (how == ACCESS_MOVSB_FROM)
		__asm__ volatile("rep movsb"
				 : "+D"(to), "+S"(from), "+c"(n)::"memory");
	else if (how == ACCESS_SSE_LOAD)
		__asm__ volatile("movdqu %0, %%xmm3" ::"m"(*p) : "xmm3");
	else if (how == ACCESS_AVX_LOAD)
		__asm__ volatile("vmovdqu %0, %%ymm4" ::"m"(*p) : "xmm4");
}

/* What reads and writes in one instruction. */
static void modify(uint64_t how, volatile uint64_t *p)
{
	uint64_t v = ~0ull;

	if (how == ACCESS_LOCK_ADD)
		__asm__ volatile("lock addq $1, %0" : "+m"(*p));
	else if (how == ACCESS_CMPXCHG_FAIL)
		__asm__ volatile("lock cmpxchgq %2, %1"
				 : "+a"(v), "+m"(*p)
				 : "r"(1ull)
				 : "cc");
	else if (how == ACCESS_XCHG)
		__asm__ volatile("xchgq %0, %1" : "+r"(v), "+m"(*p));
}

static void store(uint64_t how, volatile uint64_t *p)
{
	static const unsigned char local[4096];
	void *to = (void *)(uintptr_t)p;
	const void *from = local;
	size_t n = sizeof(local);

	if (how == ACCESS_STORE)
		*p = 7;
	else if (how == ACCESS_MOVSB_TO)
		__asm__ volatile("rep movsb"
				 : "+D"(to), "+S"(from), "+c"(n)::"memory");
	else if (how == ACCESS_SSE_STORE)
		__asm__ volatile("movdqu %%xmm3, %0" : "=m"(*p)::"xmm3");
	else if (how == ACCESS_NT_STORE)
		__asm__ volatile("movntiq %1, %0" : "=m"(*p) : "r"(9ull));
	else if (how == ACCESS_AVX_STORE)
		__asm__ volatile("vmovdqu %%ymm4, %0" : "=m"(*p)::"xmm4");
}

/* One kind of access, and no other, to p. */
SGPU_KERNEL(access)
{
	const struct access *a = args;

	load(a->how, a->p);
	modify(a->how, a->p);
	store(a->how, a->p);
}

/* Registers live through a fault: sum in a vector across pages. */
SGPU_KERNEL(vector_sum)
{
	const struct span *a = args;
	const unsigned char *p = a->p;
	__m128i sum = _mm_setzero_si128();

	for (uint64_t i = 0; i < a->value; i++)
		sum = _mm_add_epi64(
			sum, _mm_loadu_si128((const __m128i *)(p + (i << 21))));
	_mm_storeu_si128((__m128i *)a->out, sum);
}

SGPU_KERNEL(crash)
{
	const struct crash *a = args;

	if (thread->index != a->index)
		return;
	switch (a->how) {
	case CRASH_NULL:
		*(volatile int *)(uintptr_t)a->addr = 1;
		break;
	case CRASH_NONCANONICAL:
		(void)*(volatile char *)0x8000000000000000ull;
		break;
	case CRASH_DIVIDE:
		/* volatile, or the compiler sees through it */
		__asm__ volatile("xorl %%edx, %%edx; movl $1, %%eax;"
				 "xorl %%ecx, %%ecx; divl %%ecx" ::
					 : "eax", "ecx", "edx", "cc");
		break;
	case CRASH_ABORT:
		abort();
	case CRASH_ILL:
		__asm__ volatile("ud2");
		break;
	case CRASH_EXIT:
		_exit(3);
	case CRASH_WILD:
		(void)*(volatile char *)(uintptr_t)a->addr;
		break;
	case CRASH_JUMP:
		((void (*)(void))(uintptr_t)a->addr)();
		break;
	case CRASH_BLOCKED: {
		sigset_t all;

		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, NULL);
		*(volatile int *)(uintptr_t)a->addr = 1;
		break;
	}
	}
}

/* Wait until a word is not 0; the word is set by the host or other kernels. */
SGPU_KERNEL(wait_word)
{
	const struct span *a = args;

	while (!atomic_load((_Atomic uint64_t *)a->p)) {
		struct timespec ts = { .tv_nsec = 200000 };

		nanosleep(&ts, NULL);
	}
}

/* value = old * 10 + digit: shows the order of launches. */
SGPU_KERNEL(append)
{
	const struct span *a = args;
	volatile uint64_t *p = a->p;
	struct timespec ts = { .tv_nsec = 1000000 };
	uint64_t old = *p;

	nanosleep(&ts, NULL);
	*p = old * 10 + a->value;
}

static void *helper(void *arg)
{
	*(volatile uint64_t *)arg = 11;
	return NULL;
}

/* A thread of the kernel's own faults, as one of an OpenMP team would. */
SGPU_KERNEL(own_thread)
{
	const struct span *a = args;
	pthread_t t;

	if (!pthread_create(&t, NULL, helper, a->p))
		pthread_join(t, NULL);
}

/* What the device process has open beyond what it was given, as a bit mask. */
SGPU_KERNEL(open_files)
{
	const struct span *a = args;
	uint64_t mask = 0;

	for (int fd = 0; fd < 64; fd++) {
		if (lseek(fd, 0, SEEK_CUR) >= 0 || dup2(fd, fd) == fd)
			mask |= 1ull << fd;
	}
	*(uint64_t *)a->p = mask;
}

/* How long each first touch of a page took, in nanoseconds, in out. */
SGPU_KERNEL(time_touches)
{
	const struct span *a = args;

	for (uint64_t i = 0; i < a->value; i++) {
		struct timespec from, to;

		clock_gettime(CLOCK_MONOTONIC, &from);
		*((volatile unsigned char *)a->p + (i << 21)) = 1;
		clock_gettime(CLOCK_MONOTONIC, &to);
		((uint64_t *)a->out)[i] =
			(uint64_t)(to.tv_sec - from.tv_sec) * 1000000000u +
			(uint64_t)to.tv_nsec - (uint64_t)from.tv_nsec;
	}
}
