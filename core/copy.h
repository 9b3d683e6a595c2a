/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * copy.h - gmemcpy, its two sides: copy.c writes, source.c reads
 */
#ifndef GMM_CORE_COPY_H
#define GMM_CORE_COPY_H

#include "core/internal.h"

/* Small enough to stay in a CPU's cache on its way. */
#define GM_COPY_CHUNK (GM_PAGE_SIZE < 65536 ? GM_PAGE_SIZE : (uint64_t)65536)

/* Pages of the destination that are mapped together. */
#define GM_COPY_BATCH 8

/**
 * struct gm_memcpy - one gmemcpy() under way, or one thread's part of it
 * @as: the address space
 * @node: where the destination is to be, or GM_NODE_NONE
 * @buffer: GM_COPY_CHUNK bytes
 * @slot: a vacant place for a page that the CPU lends, or NULL
 * @ctx: the context that @filled are for; referenced, or NULL
 * @nr_filled: how many
 * @filled: pages of the destination that are on their XPU and not mapped yet
 */
struct gm_memcpy {
	struct gm_as *as;
	int node;
	char *buffer;
	struct gm_page *slot;
	struct gm_ctx *ctx;
	unsigned int nr_filled;
	uint64_t filled[GM_COPY_BATCH];
};

/**
 * struct gm_piece - bytes of one page of the source that are to be read
 * @src: where they are
 * @page: where they go; NULL: into the buffer, and stay there
 * @off: and at which byte of it
 * @n: how many; without a page, in the end how many they were
 */
struct gm_piece {
	uint64_t src;
	struct gm_page *page;
	uint64_t off;
	uint64_t n;
};

/* Read a piece; -EAGAIN: the world changed, again. */
int gm_copy_read(struct gm_memcpy *m, struct gm_piece *p);
/* Read a page's worth from anywhere into a page in hand. */
int gm_copy_fill(struct gm_memcpy *m, struct gm_page *page, uint64_t src);

/* Is this unified memory whose rights do not allow it? */
int gm_copy_denied(struct gm_as *as, uint64_t va, unsigned int right);
/* The text of an error at @va; @what is a load or a store. Returns @err. */
int gm_copy_text(int err, uint64_t va, const char *what);
/* The same of what the program itself could not touch: why not? */
int gm_copy_fault_text(struct gm_as *as, int err, uint64_t va,
		       unsigned int right);

#endif /* GMM_CORE_COPY_H */
