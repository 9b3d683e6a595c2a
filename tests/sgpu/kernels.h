/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* kernels.h - arguments of the test kernels */
#ifndef SGPU_TEST_KERNELS_H
#define SGPU_TEST_KERNELS_H

#include <stdint.h>

struct span {
	void *p;
	uint64_t value;
	void *out;
};

struct three {
	const uint64_t *a;
	const uint64_t *b;
	uint64_t *c;
};

enum access_how {
	ACCESS_LOAD,
	ACCESS_MOVSB_FROM,
	ACCESS_SSE_LOAD,
	ACCESS_AVX_LOAD,
	ACCESS_FIRST_WRITE,
	ACCESS_STORE = ACCESS_FIRST_WRITE,
	ACCESS_LOCK_ADD,
	ACCESS_CMPXCHG_FAIL,
	ACCESS_XCHG,
	ACCESS_MOVSB_TO,
	ACCESS_SSE_STORE,
	ACCESS_NT_STORE,
	ACCESS_AVX_STORE,
	ACCESS_NR
};

struct access {
	void *p;
	uint64_t how;
};

enum crash_how {
	CRASH_NULL,
	CRASH_NONCANONICAL,
	CRASH_DIVIDE,
	CRASH_ABORT,
	CRASH_ILL,
	CRASH_EXIT,
	CRASH_WILD,
	CRASH_JUMP,
	CRASH_BLOCKED,
};

struct crash {
	uint64_t how;
	uint64_t index;
	uint64_t addr;
};

#endif /* SGPU_TEST_KERNELS_H */
