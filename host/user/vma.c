/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * vma.c - what Linux knows of our mappings and pages
 *
 * Asked only where something went another way than expected.
 */
#include <string.h>

#include "sys.h"
#include "uffd.h"
#include "user.h"

/* One line of /proc/self/maps begins "start-end rwxp offset dev inode". */
static const char *parse_hex(const char *p, uint64_t *out)
{
	uint64_t v = 0;

	for (;; p++) {
		if (*p >= '0' && *p <= '9')
			v = v << 4 | (uint64_t)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			v = v << 4 | (uint64_t)(*p - 'a' + 10);
		else
			break;
	}
	*out = v;
	return p;
}

static void parse_line(const char *p, struct gm_vma *vma)
{
	uint64_t major;

	p = parse_hex(p, &vma->start);
	p = parse_hex(p + 1, &vma->end);
	vma->prot = (p[1] == 'r' ? PROT_READ : 0) |
		    (p[2] == 'w' ? PROT_WRITE : 0) |
		    (p[3] == 'x' ? PROT_EXEC : 0);
	vma->shared = p[4] == 's';
	p = strchr(p + 6, ' ');
	p = parse_hex(p + 1, &major);
	p = strchr(p, ' ');
	vma->anonymous = !major && p[1] == '0' && p[2] <= ' ';
}

/* Before 6.11. No stdio: we may be serving a thread that is inside it. */
static int find_by_text(uint64_t addr, struct gm_vma *vma)
{
	char buf[4096];
	size_t have = 0;
	off_t offset = 0;
	ssize_t got;
	char *line, *end;

	while ((got = pread(gm_user.fd_maps, buf + have, sizeof(buf) - 1 - have,
			    offset)) > 0) {
		offset += got;
		have += (size_t)got;
		buf[have] = '\0';
		for (line = buf; (end = strchr(line, '\n')); line = end + 1) {
			parse_line(line, vma);
			if (vma->end > addr)
				return 0;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
	}
	return -ENOENT;
}

int gm_vma_find(uint64_t addr, struct gm_vma *vma)
{
	struct procmap_query query = {
		.size = sizeof(query),
		.query_flags = PROCMAP_QUERY_COVERING_OR_NEXT_VMA,
		.query_addr = addr,
	};

	if (gm_sys_ioctl(gm_user.fd_maps, PROCMAP_QUERY, &query) == 0) {
		vma->start = query.vma_start;
		vma->end = query.vma_end;
		/* The flags have the values of PROT_READ, _WRITE, _EXEC. */
		vma->prot = query.vma_flags & 7;
		vma->shared = query.vma_flags & PROCMAP_QUERY_VMA_SHARED;
		vma->anonymous = !query.inode;
		return 0;
	}
	return errno == ENOTTY ? find_by_text(addr, vma) : -ENOENT;
}

int gm_vma_check(uint64_t addr, uint64_t len, unsigned int prot)
{
	uint64_t end = addr + len;
	struct gm_vma vma;

	if (end < addr)
		return -EFAULT;
	while (addr < end) {
		if (gm_vma_find(addr, &vma) || vma.start > addr ||
		    (vma.prot & prot) != prot)
			return -EFAULT;
		addr = vma.end;
	}
	return 0;
}

/*
 * Only this call both refuses locked memory and does no harm to other memory:
 * it makes the page one of the first to be swapped, and it was just used.
 */
bool gm_vma_locked(uint64_t addr, uint64_t len)
{
	return gm_sys_madvise(addr, len, MADV_COLD) && errno == EINVAL;
}

/*
 * The runs of 4 KiB pages in [start, end) of which @mask is, or with @inverted
 * is not, true. Returns how many were found, at most @n.
 */
static int scan(uint64_t start, uint64_t end, uint64_t mask, uint64_t anyof,
		uint64_t inverted, struct page_region *out, unsigned int n)
{
	struct pm_scan_arg arg = {
		.size = sizeof(arg),
		.start = start,
		.end = end,
		.vec = (uint64_t)out,
		.vec_len = n,
		.category_inverted = inverted,
		.category_mask = mask,
		.category_anyof_mask = anyof,
		/* Something must be asked for; equal answers are merged. */
		.return_mask = anyof ? 0 : mask,
	};
	int rc;

	if (!arg.return_mask)
		arg.return_mask = PAGE_IS_HUGE;
	do {
		rc = gm_sys_ioctl(gm_user.fd_pagemap, PAGEMAP_SCAN, &arg);
	} while (rc < 0 && errno == EINTR);
	return rc;
}

uint64_t gm_vma_present(uint64_t start, uint64_t end, uint64_t *from,
			uint64_t *to)
{
	struct page_region found[16];
	uint64_t at = start, bytes = 0;
	int i, n;

	do {
		n = scan(at, end, 0, PAGE_IS_PRESENT | PAGE_IS_SWAPPED, 0,
			 found, 16);
		/* Not knowing must never look like "nothing there". */
		if (n < 0) {
			found[0].start = at;
			found[0].end = end;
			n = 1;
		}
		for (i = 0; i < n; i++) {
			if (!bytes && from) {
				*from = found[i].start;
				*to = found[i].end;
			}
			bytes += found[i].end - found[i].start;
			at = found[i].end;
		}
	} while (n == 16 && at < end);
	return bytes;
}

bool gm_vma_missing(uint64_t start, uint64_t end, uint64_t *from, uint64_t *to)
{
	uint64_t both = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
	struct page_region found;

	if (scan(start, end, both, 0, both, &found, 1) <= 0)
		return false;
	*from = found.start;
	*to = found.end;
	return true;
}

bool gm_vma_huge(uint64_t start, uint64_t end)
{
	struct page_region found;

	return scan(start, end, PAGE_IS_HUGE, 0, 0, &found, 1) == 1 &&
	       found.start == start && found.end == end;
}
