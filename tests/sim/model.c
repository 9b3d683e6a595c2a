// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <stdlib.h>
#include <string.h>

#include "tests/sim/torture.h"

#define MODEL_ARRAYS(X)                 \
	X(val, GM_PAGE_SIZE)            \
	X(alt, GM_PAGE_SIZE)            \
	X(flags, GM_PAGE_SIZE)          \
	X(writers, MODEL_WORDS)         \
	X(prot, SIM_PIECES)             \
	X(mapped, SIM_PIECES)           \
	X(changing, 1)                  \
	X(gen, 1)                       \
	X(cut, 1)                       \
	X(loose, 1)                     \
	X(claims, 1)                    \
	X(pins, 1)                      \
	X(discards, 1)                  \
	X(pinned, 1)                    \
	X(lost, 1)                      \
	X(swaps, 1)                     \
	X(changed_at, sizeof(uint64_t)) \
	X(lost_at, sizeof(uint64_t))

struct model *model_new(struct sim_as *as)
{
	struct model *m = calloc(1, sizeof(*m));
	uint64_t plain;

	if (!m)
		abort();
	m->as = as;
	m->nr_slots = as->nr_slots;
#define MODEL_ALLOC(name, n)                     \
	m->name = calloc(as->nr_slots + 1, (n)); \
	if (!m->name)                            \
		abort();
	MODEL_ARRAYS(MODEL_ALLOC)
	plain = as->nr_slots - sim.cfg.nr_plain;
	memset(m->mapped + plain * SIM_PIECES, 1,
	       sim.cfg.nr_plain * SIM_PIECES);
	memset(m->prot + plain * SIM_PIECES, GM_PROT_READ | GM_PROT_WRITE,
	       sim.cfg.nr_plain * SIM_PIECES);
	return m;
}

void model_free(struct model *m)
{
#define MODEL_FREE(name, n) free(m->name);
	MODEL_ARRAYS(MODEL_FREE)
	free(m);
}

static uint64_t model_flags(const struct model *m, uint64_t va)
{
	uint64_t flags;

	memcpy(&flags, m->flags + model_off(va), sizeof(flags));
	return flags;
}

bool model_may_store(const struct model *m, uint64_t va)
{
	const uint8_t *f = m->flags + model_off(va);
	unsigned int i;

	if (m->changing[model_slot(va)] & MODEL_NO_STORES)
		return false;
	if (!model_flags(m, va))
		return true;
	for (i = 0; i < 8; i++)
		if ((f[i] & MODEL_CLAIMED) && !(f[i] & MODEL_SOFT))
			return false;
	return true;
}

void model_loaded(struct model *m, uint64_t va, uint64_t word, const char *who)
{
	uint64_t off = model_off(va);
	uint8_t got[8];
	unsigned int i;

	if (m->changing[model_slot(va)] & MODEL_LEAVING)
		return;
	memcpy(got, &word, 8);
	for (i = 0; i < 8; i++) {
		uint8_t *f = &m->flags[off + i];

		SIM_CHECK(got[i] == m->val[off + i] ||
				  ((*f & MODEL_EITHER) &&
				   got[i] == m->alt[off + i]),
			  "%s loads %#018lx at %#lx (as %u, page %lu, byte %u: "
			  "%02x or %02x, flags %x)",
			  who, (unsigned long)word, (unsigned long)va,
			  m->as->index, (unsigned long)model_slot(va), i,
			  m->val[off + i], m->alt[off + i], *f);
		if ((*f & MODEL_EITHER) && !(*f & MODEL_CLAIMED)) {
			m->val[off + i] = got[i];
			*f = 0;
		}
	}
}

void model_stored(struct model *m, uint64_t va, uint64_t word)
{
	uint64_t off = model_off(va);
	unsigned int i;

	SAY("store", m, va, 8, (int)(word & 0xffff));
	memcpy(m->val + off, &word, 8);
	if (!model_mapped(m, va) ||
	    (m->changing[model_slot(va)] & MODEL_LEAVING)) {
		/* Into memory of which nobody knows yet that it is there. */
		memset(m->flags + off, MODEL_STORED, 8);
		return;
	}
	if (!model_flags(m, va))
		return;
	for (i = 0; i < 8; i++) {
		uint8_t *f = &m->flags[off + i];

		if (*f & MODEL_CLAIMED)
			*f |= MODEL_STORED;
		else
			*f = 0;
	}
}

static bool model_can_claim(const struct model *m, uint64_t va, uint64_t len,
			    bool soft)
{
	uint64_t slot, i;

	if (va < SIM_BASE || model_slot(va + len - 1) >= m->nr_slots)
		return false;
	for (slot = model_slot(va); slot <= model_slot(va + len - 1); slot++)
		if (m->changing[slot] || m->claims[slot] == 255)
			return false;
	for (i = model_off(va); i < model_off(va) + len; i++)
		if ((m->flags[i] & (MODEL_CLAIMED | MODEL_EITHER)) ||
		    (!soft && m->writers[i / 8]))
			return false;
	return true;
}

static void model_do_claim(struct model *m, uint64_t va, uint64_t len,
			   bool soft)
{
	uint64_t slot, i;

	for (slot = model_slot(va); slot <= model_slot(va + len - 1); slot++)
		m->claims[slot]++;
	for (i = model_off(va); i < model_off(va) + len; i++)
		m->flags[i] = MODEL_CLAIMED | (soft ? MODEL_SOFT : 0);
}

bool model_claim(struct model *m, uint64_t va, uint64_t len, bool soft)
{
	if (!model_can_claim(m, va, len, soft))
		return false;
	model_do_claim(m, va, len, soft);
	return true;
}

bool model_claim_two(struct model *m, uint64_t a, uint64_t b, uint64_t len)
{
	if (!model_can_claim(m, a, len, false) ||
	    !model_can_claim(m, b, len, false))
		return false;
	model_do_claim(m, a, len, false);
	model_do_claim(m, b, len, false);
	return true;
}

void model_expect(struct model *m, uint64_t va, const uint8_t *alt,
		  uint64_t len)
{
	uint64_t off = model_off(va), i;

	for (i = 0; i < len; i++) {
		m->alt[off + i] = alt ? alt[i] : 0;
		m->flags[off + i] |= MODEL_EITHER;
	}
}

void model_release(struct model *m, uint64_t va, uint64_t len, bool done)
{
	uint64_t slot, i;

	for (slot = model_slot(va); slot <= model_slot(va + len - 1); slot++)
		m->claims[slot]--;
	for (i = model_off(va); i < model_off(va) + len; i++) {
		uint8_t *f = &m->flags[i];

		if (!(*f & MODEL_EITHER)) {
			*f = 0;
		} else if (done && !(*f & MODEL_STORED)) {
			m->val[i] = m->alt[i];
			*f = 0;
		} else {
			*f = MODEL_EITHER;
		}
	}
}

bool model_change(struct model *m, uint64_t va, uint64_t len, unsigned int how,
		  struct model_change *c)
{
	uint64_t slot, i;

	if (va < SIM_BASE || len > MODEL_MAX_CHANGE * GM_PAGE_SIZE ||
	    model_slot(va + len - 1) >= m->nr_slots - sim.cfg.nr_plain)
		return false;
	c->first = model_slot(va);
	c->n = (unsigned int)(model_slot(va + len - 1) - c->first + 1);
	for (slot = c->first; slot < c->first + c->n; slot++) {
		if (m->changing[slot] || m->claims[slot] || m->pins[slot])
			return false;
		for (i = 0; i < MODEL_WORDS && (how & MODEL_NO_STORES); i++)
			if (m->writers[slot * MODEL_WORDS + i])
				return false;
	}
	for (i = 0; i < c->n; i++) {
		m->changing[c->first + i] = (uint8_t)how;
		m->changed_at[c->first + i] = sim.steps;
		c->gen[i] = m->gen[c->first + i];
	}
	return true;
}

static bool model_same(const struct model *m, const struct model_change *c,
		       uint64_t slot)
{
	return m->gen[slot] == c->gen[slot - c->first];
}

void model_changed(struct model *m, const struct model_change *c)
{
	uint64_t slot;

	for (slot = c->first; slot < c->first + c->n; slot++) {
		m->changed_at[slot] = sim.steps;
		if (model_same(m, c, slot))
			m->changing[slot] = 0;
	}
}

void model_unmap(struct model *m, const struct model_change *c, uint64_t va,
		 uint64_t len)
{
	uint64_t at;

	for (at = va; at < va + len; at += SIM_PIECE) {
		if (!model_same(m, c, model_slot(at)))
			continue; /* somebody has mapped it anew already */
		m->mapped[model_piece(at)] = 0;
		m->prot[model_piece(at)] = 0;
	}
}

void model_map(struct model *m, uint64_t va, uint64_t len, unsigned int prot)
{
	uint64_t slot, i;

	memset(m->mapped + model_piece(va), 1, len / SIM_PIECE);
	memset(m->prot + model_piece(va), (int)prot, len / SIM_PIECE);
	for (i = model_off(va); i < model_off(va) + len; i++) {
		bool stray = m->flags[i] & MODEL_STORED;

		m->alt[i] = 0;
		m->flags[i] = stray ? MODEL_EITHER : 0;
		if (!stray)
			m->val[i] = 0;
	}
	for (slot = model_slot(va); slot <= model_slot(va + len - 1); slot++) {
		m->lost[slot] = m->cut[slot] = m->loose[slot] = 0;
		m->pinned[slot] = m->pin_calls > 0;
		m->changing[slot] = 0;
		m->changed_at[slot] = sim.steps;
		m->gen[slot]++;
	}
}

void model_protect(struct model *m, uint64_t va, uint64_t len,
		   unsigned int prot)
{
	uint64_t i;

	for (i = model_piece(va); i < model_piece(va) + len / SIM_PIECE; i++)
		if (m->mapped[i])
			m->prot[i] = (uint8_t)prot;
}

void model_save(const struct model *m, uint64_t va, uint64_t len,
		struct model_saved *s)
{
	uint64_t i, n = len >> GM_PAGE_SHIFT;

	s->first = model_slot(va);
	s->at = sim.steps;
	s->n = n;
	memcpy(s->val, m->val + model_off(va), len);
	memcpy(s->alt, m->alt + model_off(va), len);
	memcpy(s->flags, m->flags + model_off(va), len);
	memcpy(s->mapped, m->mapped + model_piece(va), len / SIM_PIECE);
	memcpy(s->prot, m->prot + model_piece(va), len / SIM_PIECE);
	for (i = 0; i < n; i++) {
		s->lost[i] = m->lost[model_slot(va) + i];
		s->pinned[i] = m->pinned[model_slot(va) + i];
		s->cut[i] = m->cut[model_slot(va) + i];
	}
}

void model_restore(struct model *m, uint64_t va, const struct model_saved *s)
{
	uint8_t stray[MODEL_MAX_CHANGE * GM_PAGE_SIZE];
	uint8_t pinned[MODEL_MAX_CHANGE];
	uint64_t i, n = s->n, len = n << GM_PAGE_SHIFT;

	/* Also by who pinned it meanwhile, where nothing has moved. */
	for (i = 0; i < n; i++)
		pinned[i] = s->pinned[i] | m->pinned[s->first + i];
	for (i = 0; i < len; i++)
		stray[i] = m->flags[model_off(va) + i] & MODEL_STORED;
	model_map(m, va, len, 0);
	for (i = 0; i < len; i++) {
		uint64_t at = model_off(va) + i;

		/* Stored to before anybody knew the address. */
		if (stray[i] && !s->flags[i]) {
			m->alt[at] = s->val[i];
			m->flags[at] = MODEL_EITHER;
			continue;
		}
		m->val[at] = s->val[i];
		m->alt[at] = s->alt[i];
		m->flags[at] = s->flags[i];
	}
	memcpy(m->mapped + model_piece(va), s->mapped, len / SIM_PIECE);
	memcpy(m->prot + model_piece(va), s->prot, len / SIM_PIECE);
	for (i = 0; i < n; i++) {
		if (s->lost[i] || m->lost_at[s->first + i] >= s->at ||
		    m->lost_at[model_slot(va) + i] >= s->at)
			model_lost(m, model_slot(va) + i);
		m->pinned[model_slot(va) + i] |= pinned[i];
		m->cut[model_slot(va) + i] = s->cut[i];
		m->loose[model_slot(va) + i] = m->loose[s->first + i];
	}
}
