/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * model.h - what unified memory in one window of addresses should hold
 *
 * By 4 KiB piece: whether it is mapped, with what rights, and the first word
 * of it. What a call that failed half way has left is in doubt, until it is
 * read the next time.
 */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gmm/gmm.h"

#define PAGES 12
#define PIECE 4096u
#define PER_PAGE (GM_PAGE_SIZE / PIECE)
#define PIECES (PAGES * PER_PAGE)

enum doubt { NO_DOUBT, OR_ZERO, ANYTHING };

struct piece {
	uint64_t word;
	uint8_t mapped;
	uint8_t prot;
	uint8_t doubt;
};

extern struct piece pieces[PIECES];
extern bool cut[PAGES];
extern char *window;

/* Ranges are in pieces: [first, last). */
struct span {
	size_t first;
	size_t last;
};

/* What of [addr, addr + len), rounded outward to pieces, is in the window. */
struct span span_of(uint64_t addr, uint64_t len);
/* Is any piece of it mapped; all of them? */
bool any_mapped(struct span s);
bool all_mapped(struct span s);
/* Is there a mapped piece in the pages of it? */
bool any_page(struct span s);
/* A page that is mapped, but not all of it. */
bool any_hole(struct span s);
bool any_cut(struct span s);
bool all_prot(struct span s, int prot);
bool all_pages(uint64_t addr, uint64_t len);

void model_map(struct span s, int prot);
void model_unmap(struct span s);
void model_protect(struct span s, int prot);
void model_doubt(struct span s, enum doubt doubt);
/* [addr, addr + len) reads as zeros. */
void model_zero(uint64_t addr, uint64_t len);
/* A word has been read: is it one that may be there? */
void model_read(size_t piece, uint64_t word, const char *who);

static inline char *piece_at(size_t i)
{
	return window + i * PIECE;
}

#endif /* FUZZ_MODEL_H */
