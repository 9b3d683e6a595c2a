/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * model.h - what unified memory should hold: flat bytes, with no notion of
 *	pages, nodes or copies
 *
 * A store updates the model in the same step in which the simulated processor
 * stores, and a load is compared in the step in which it loads. So for one
 * access there is exactly one right value. An operation on a range that takes
 * many steps *claims* its bytes; until it ends, either value is right.
 */
#ifndef TORTURE_MODEL_H
#define TORTURE_MODEL_H

#include "host/sim/sim.h"

#define MODEL_WORDS (GM_PAGE_SIZE / 8)
#define MODEL_MAX_CHANGE 24 /* pages */

enum model_changing {
	MODEL_CHANGING = 1 << 0,
	MODEL_NO_STORES = 1 << 1,
	/* Its data is going. A load may find it, or zeros, or a SIGSEGV. */
	MODEL_LEAVING = 1 << 2,
};

enum model_flags {
	MODEL_CLAIMED = 1 << 0, /* an operation works on this byte */
	MODEL_SOFT = 1 << 1, /* it is a discard: stores are allowed too */
	MODEL_EITHER = 1 << 2, /* the other value is right as well */
	MODEL_STORED = 1 << 3, /* stored to since it was claimed */
};

struct model {
	struct sim_as *as;
	unsigned int nr_slots;
	uint8_t *val; /* by byte */
	uint8_t *alt; /* by byte: the other value */
	uint8_t *flags; /* by byte */
	uint8_t *writers; /* by word: stores under way */
	uint8_t *prot; /* by piece */
	uint8_t *mapped; /* by piece */
	uint8_t *changing; /* by page: enum model_changing, 0: it is not */
	uint8_t *gen; /* by page: counts what was mapped here */
	uint8_t *cut; /* by page: some pieces were treated apart */
	uint8_t *loose; /* by page: an XPU did not give up its rights */
	uint8_t *claims; /* by page: operations with a claim in it */
	uint8_t *pins; /* by page: the kernel's */
	uint8_t *discards; /* by page: the program's own, under way */
	uint8_t *pinned; /* by page: GM_PIN may be in force */
	uint8_t *swaps; /* by page: exchanges under way */
	uint8_t *lost; /* by page: its data may have gone with an XPU */
	uint64_t *changed_at; /* by page: step of the last such change */
	uint64_t *lost_at; /* by page: step at which that was */
	unsigned int pin_calls; /* under way: they may hit what is new */
	unsigned int mmaps; /* under way: somewhere a range appears */
};

struct model *model_new(struct sim_as *as);
void model_free(struct model *m);

static inline uint64_t model_off(uint64_t va)
{
	return va - SIM_BASE;
}
static inline uint64_t model_slot(uint64_t va)
{
	return (va - SIM_BASE) >> GM_PAGE_SHIFT;
}
static inline uint64_t model_piece(uint64_t va)
{
	return (va - SIM_BASE) / SIM_PIECE;
}

/* May this word be stored to now, as far as claims go? */
bool model_may_store(const struct model *m, uint64_t va);
void model_loaded(struct model *m, uint64_t va, uint64_t word, const char *who);
void model_stored(struct model *m, uint64_t va, uint64_t word);

/* Claim [va, va + len); false, and nothing done, if something is in the way.
 * Then the other right value for all or part of it. */
bool model_claim(struct model *m, uint64_t va, uint64_t len, bool soft);
bool model_claim_two(struct model *m, uint64_t a, uint64_t b, uint64_t len);
void model_expect(struct model *m, uint64_t va, const uint8_t *alt,
		  uint64_t len);
/* It is over: the other value is the value now, or either may be there. */
void model_release(struct model *m, uint64_t va, uint64_t len, bool done);

/*
 * Begin and end a change of the mapping of the pages that the range touches.
 * Between the core's unmapping and the end of the call somebody else can get
 * the same addresses: the generation of the page tells.
 */
struct model_change {
	uint64_t first;
	unsigned int n;
	uint8_t gen[MODEL_MAX_CHANGE];
};
bool model_change(struct model *m, uint64_t va, uint64_t len, unsigned int how,
		  struct model_change *c);
void model_changed(struct model *m, const struct model_change *c);
void model_unmap(struct model *m, const struct model_change *c, uint64_t va,
		 uint64_t len);
/* A new generation: zeros, with these rights. */
void model_map(struct model *m, uint64_t va, uint64_t len, unsigned int prot);
void model_protect(struct model *m, uint64_t va, uint64_t len,
		   unsigned int prot);

/* Pages on their way from one address to another. */
struct model_saved {
	uint64_t first; /* page they came from */
	uint64_t at; /* step */
	uint64_t n;
	uint8_t val[MODEL_MAX_CHANGE * GM_PAGE_SIZE];
	uint8_t alt[MODEL_MAX_CHANGE * GM_PAGE_SIZE];
	uint8_t flags[MODEL_MAX_CHANGE * GM_PAGE_SIZE];
	uint8_t mapped[MODEL_MAX_CHANGE * SIM_PIECES];
	uint8_t prot[MODEL_MAX_CHANGE * SIM_PIECES];
	uint8_t lost[MODEL_MAX_CHANGE];
	uint8_t pinned[MODEL_MAX_CHANGE];
	uint8_t cut[MODEL_MAX_CHANGE];
};
void model_save(const struct model *m, uint64_t va, uint64_t len,
		struct model_saved *s);
void model_restore(struct model *m, uint64_t va, const struct model_saved *s);

static inline void model_lost(struct model *m, uint64_t slot)
{
	m->lost[slot] = 1;
	m->lost_at[slot] = sim.steps;
}
static inline bool model_mapped(const struct model *m, uint64_t va)
{
	return m->mapped[model_piece(va)];
}
static inline bool model_whole(const struct model *m, uint64_t slot)
{
	const uint8_t *p = &m->mapped[slot * SIM_PIECES];

	return p[0] && p[1] && p[2] && p[3];
}

#endif /* TORTURE_MODEL_H */
