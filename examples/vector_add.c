// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * vector_add.c - the smallest program: the CPU writes, the GPU adds, the CPU
 * reads, all through the same pointers and without one copy in the program
 */
#include <stdio.h>

#include "util/util.h"
#include "vector_add.h"

#define N 1000000

int main(void)
{
	float *a = unified(3 * N * sizeof(float));
	float *b = a + N;
	float *sum = b + N;
	struct vector_add_args args = { a, b, sum };
	struct gpu gpu = gpu_open(0, "vector_add_kernel.so");

	for (int i = 0; i < N; i++) {
		a[i] = (float)i;
		b[i] = (float)(2 * i);
	}
	gpu_run(&gpu, gpu_kernel(&gpu, "vector_add"), N, &args, sizeof(args));
	for (int i = 0; i < N; i++)
		must(sum[i] == (float)i + (float)(2 * i), "wrong sum",
		     "the GPU's result is not the CPU's");
	printf("%d sums, all right\n", N);
	gpu_close(&gpu);
	return 0;
}
