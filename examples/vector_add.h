/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * vector_add.h - what the kernel of vector_add.c is given
 */
#ifndef VECTOR_ADD_H
#define VECTOR_ADD_H

struct vector_add_args {
	const float *a;
	const float *b;
	float *sum;
};

#endif
