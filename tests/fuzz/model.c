/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"
#include "model.h"

struct piece pieces[PIECES];
bool cut[PAGES];
char *window;

struct span span_of(uint64_t addr, uint64_t len)
{
	uint64_t start = (uint64_t)window, end = start + PAGES * GM_PAGE_SIZE;
	uint64_t stop = addr + len < addr ? UINT64_MAX : addr + len;

	if (addr < start)
		addr = start;
	if (stop > end)
		stop = end;
	if (!len || addr >= stop)
		return (struct span){ 0, 0 };
	return (struct span){ (addr - start) / PIECE,
			      (stop - start + PIECE - 1) / PIECE };
}

bool any_mapped(struct span s)
{
	for (size_t i = s.first; i < s.last; i++) {
		if (pieces[i].mapped)
			return true;
	}
	return false;
}

bool all_mapped(struct span s)
{
	for (size_t i = s.first; i < s.last; i++) {
		if (!pieces[i].mapped)
			return false;
	}
	return true;
}

static struct span page_span(size_t page)
{
	return (struct span){ page * PER_PAGE, (page + 1) * PER_PAGE };
}

#define for_pages(p, s)                       \
	for (size_t p = (s).first / PER_PAGE; \
	     (s).first < (s).last && p <= ((s).last - 1) / PER_PAGE; p++)

bool any_page(struct span s)
{
	for_pages(p, s)
	{
		if (any_mapped(page_span(p)))
			return true;
	}
	return false;
}

bool any_hole(struct span s)
{
	for_pages(p, s)
	{
		if (any_mapped(page_span(p)) && !all_mapped(page_span(p)))
			return true;
	}
	return false;
}

bool any_cut(struct span s)
{
	for_pages(p, s)
	{
		if (cut[p])
			return true;
	}
	return false;
}

bool all_prot(struct span s, int prot)
{
	for (size_t i = s.first; i < s.last; i++) {
		if (pieces[i].mapped && (pieces[i].prot & prot) != prot)
			return false;
	}
	return true;
}

bool all_pages(uint64_t addr, uint64_t len)
{
	uint64_t start = (uint64_t)window, end = start + PAGES * GM_PAGE_SIZE;
	struct span s = span_of(addr, len);

	if (addr < start || addr + len > end)
		return false;
	for_pages(p, s)
	{
		if (!any_mapped(page_span(p)))
			return false;
	}
	return true;
}

/* Pages of which a part is treated apart stay cut, until they are gone. */
static void note_cuts(struct span s)
{
	for_pages(p, s)
	{
		struct span page = page_span(p);

		if (!any_mapped(page))
			cut[p] = false;
		else if (s.first > page.first || s.last < page.last)
			cut[p] = true;
	}
}

void model_map(struct span s, int prot)
{
	for (size_t i = s.first; i < s.last; i++)
		pieces[i] =
			(struct piece){ .mapped = 1, .prot = (uint8_t)prot };
	for_pages(p, s) cut[p] = false;
}

void model_unmap(struct span s)
{
	for (size_t i = s.first; i < s.last; i++)
		pieces[i].mapped = 0;
	note_cuts(s);
}

void model_protect(struct span s, int prot)
{
	for (size_t i = s.first; i < s.last; i++)
		pieces[i].prot = (uint8_t)prot;
	note_cuts(s);
}

void model_doubt(struct span s, enum doubt doubt)
{
	for (size_t i = s.first; i < s.last; i++) {
		if (pieces[i].doubt < doubt)
			pieces[i].doubt = (uint8_t)doubt;
	}
}

void model_zero(uint64_t addr, uint64_t len)
{
	struct span s = span_of(addr, len);
	uint64_t end = addr + len;

	for (size_t i = s.first; i < s.last; i++) {
		uint64_t at = (uint64_t)piece_at(i);
		unsigned char *bytes = (unsigned char *)&pieces[i].word;

		if (at >= addr && at + 8 <= end && pieces[i].doubt == OR_ZERO)
			pieces[i].doubt = NO_DOUBT;
		for (unsigned int k = 0; k < 8; k++) {
			if (at + k >= addr && at + k < end)
				bytes[k] = 0;
		}
	}
}

void model_read(size_t i, uint64_t word, const char *who)
{
	struct piece *p = &pieces[i];

	if (word != p->word && p->doubt != ANYTHING &&
	    !(p->doubt == OR_ZERO && !word))
		wrong("the %s reads %#llx at %p, not %#llx", who,
		      (unsigned long long)word, (void *)piece_at(i),
		      (unsigned long long)p->word);
	p->word = word;
	p->doubt = NO_DOUBT;
}
