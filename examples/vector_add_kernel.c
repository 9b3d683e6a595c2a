// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * vector_add_kernel.c - runs on the GPU, once for each element
 */
#include "sgpu_kernel.h"
#include "vector_add.h"

SGPU_KERNEL(vector_add)
{
	const struct vector_add_args *v = args;

	v->sum[thread->index] = v->a[thread->index] + v->b[thread->index];
}
