/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * oversubscribe.h - what the kernel of oversubscribe.c is given
 */
#ifndef OVERSUBSCRIBE_H
#define OVERSUBSCRIBE_H

#include <stdint.h>

#define WORDS_PER_PAGE ((2 << 20) / sizeof(uint64_t))

struct oversubscribe_args {
	uint64_t *data;
};

#endif
