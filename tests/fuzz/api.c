/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * api.c - the calls of gmm.h, and faults of an XPU, with any arguments
 *
 * One process with one XPU that is nearly always too small. Most calls are
 * about one window of addresses, of which a model knows what should be there;
 * plain munmap() and madvise() of the program's come in between. A call that
 * succeeds must have done what it says, one that fails must say why, and
 * nothing outside its range may have changed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "api.h"

#define UNIFIED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE)
/* From what the library hands out by itself. */
#define WINDOW_OFF (64ull << 30)

struct xpu xpu;
static uint64_t stamp;

void failed_with(const char *call, int err, const int *errs, size_t n)
{
	if (!*gm_error())
		wrong("%s: %s, and gm_error() says nothing", call,
		      strerrorname_np(err));
	if (xpu.failed)
		return;
	for (size_t i = 0; i < n; i++) {
		if (errs[i] == err)
			return;
	}
	wrong("%s: %s: %s", call, strerrorname_np(err), gm_error());
}

/* --- addresses ---------------------------------------------------------- */

static uint64_t any_addr(struct input *in)
{
	uint64_t base = (uint64_t)window;

	switch (below(in, 16)) {
	case 0:
		return number(in);
	case 1:
		return base + below(in, PAGES * GM_PAGE_SIZE);
	case 2 ... 5:
		return base + below(in, PIECES) * PIECE;
	default:
		return base + below(in, PAGES) * GM_PAGE_SIZE;
	}
}

static uint64_t any_len(struct input *in)
{
	switch (below(in, 16)) {
	case 0:
		return number(in);
	case 1:
		return below(in, 4 * GM_PAGE_SIZE);
	case 2 ... 5:
		return below(in, 3 * PER_PAGE) * PIECE;
	default:
		return (1 + below(in, 4)) * GM_PAGE_SIZE;
	}
}

static bool wraps(uint64_t addr, uint64_t len)
{
	return addr + len < addr || addr + len > 1ull << 56;
}

/* Only the window is there: nothing else of the process may be hit. */
static bool outside(uint64_t addr, uint64_t len)
{
	uint64_t base = (uint64_t)window;

	return addr < base || len > PAGES * GM_PAGE_SIZE ||
	       addr + len > base + PAGES * GM_PAGE_SIZE;
}

static uint64_t round_page(uint64_t len)
{
	return (len + GM_PAGE_MASK) & ~GM_PAGE_MASK;
}

static int any_prot(struct input *in)
{
	static const int prots[] = { PROT_NONE, PROT_READ,
				     PROT_READ | PROT_WRITE };
	uint64_t i = below(in, 16);

	if (i == 15)
		return (int)number(in);
	return prots[i < 3 ? i : 2];
}

static bool good_prot(int prot)
{
	return prot == PROT_NONE || prot == PROT_READ ||
	       prot == (PROT_READ | PROT_WRITE);
}

static int any_node(struct input *in)
{
	uint64_t i = below(in, 8);

	return i < 3 ? xpu.node : i < 6 ? 0 : (int)number(in);
}

/* --- mappings ----------------------------------------------------------- */

static void do_map(struct input *in)
{
	uint64_t page = below(in, PAGES), n = 1 + below(in, PAGES - page);
	uint64_t addr = (uint64_t)window + page * GM_PAGE_SIZE;
	uint64_t len = n * GM_PAGE_SIZE - below(in, 3);
	struct span s = { page * PER_PAGE, (page + n) * PER_PAGE };
	bool replace = below(in, 2), taken = any_page(s);
	int prot = any_prot(in);
	int flags = replace ? MAP_FIXED : MAP_FIXED_NOREPLACE;
	void *p = gm_mmap((void *)addr, len, prot, UNIFIED | flags, -1, 0);

	if (p != MAP_FAILED) {
		if (!good_prot(prot) || (taken && !replace))
			wrong("mapped what cannot be");
		if ((uint64_t)p != addr)
			wrong("mapped elsewhere");
		model_map(s, prot);
		return;
	}
	if (good_prot(prot) && (replace || !taken))
		failed("map", errno, ENOMEM);
	else
		failed("map", errno, EINVAL, EEXIST);
}

/* Arguments of which hardly any can be; what comes of it goes at once. */
static void do_map_any(struct input *in)
{
	uint64_t addr = below(in, 2) ? 0 : number(in);
	uint64_t len = any_len(in);
	int prot = any_prot(in), flags = UNIFIED;
	int fd = below(in, 4) ? -1 : (int)number(in);
	int64_t offset = below(in, 4) ? 0 : (int64_t)number(in);
	void *p;

	if (below(in, 2))
		flags = (int)number(in) & ~MAP_FIXED;
	if (!outside(addr & ~GM_PAGE_MASK, 0))
		return;
	p = gm_mmap((void *)addr, len, prot, flags, fd, offset);
	if (p == MAP_FAILED) {
		failed("map any", errno, EINVAL, ENOMEM, EEXIST);
		return;
	}
	if (!len || !good_prot(prot) || fd != -1 || offset ||
	    (flags & UNIFIED) != UNIFIED || (uint64_t)p & GM_PAGE_MASK)
		wrong("mapped what cannot be");
	if (prot & PROT_READ && *(volatile char *)p)
		wrong("new memory is not zero");
	if (gm_munmap(p, round_page(len)))
		wrong("unmap: %s", gm_error());
}

static void do_unmap(struct input *in)
{
	uint64_t addr = any_addr(in), len = any_len(in);
	struct span s = span_of(addr, len);
	bool bad = addr % PIECE || !len || wraps(addr, len);

	if (gm_munmap((void *)addr, len)) {
		if (bad || !any_mapped(s))
			failed("unmap", errno, EINVAL);
		else
			failed("unmap", errno, ENOMEM, EBUSY);
		return;
	}
	if (bad || !any_page(s))
		wrong("unmapped what cannot be");
	model_unmap(s);
}

static void do_protect(struct input *in)
{
	uint64_t addr = any_addr(in), len = any_len(in);
	struct span s = span_of(addr, len);
	int prot = any_prot(in);
	bool bad = addr % PIECE || wraps(addr, len) || !good_prot(prot);

	/* Half of what is a page no more: the kernel stops at the hole. */
	if (!bad && any_page(s) && any_hole(s))
		return;
	if (gm_mprotect((void *)addr, len, prot)) {
		if (bad)
			failed("protect", errno, EINVAL);
		else if (!outside(addr, len) && all_mapped(s))
			failed("protect", errno, EBUSY);
		else
			failed("protect", errno, ENOMEM);
		return;
	}
	if (bad || (len && (outside(addr, len) || !all_mapped(s))))
		wrong("protected what cannot be");
	model_protect(s, prot);
}

/* Moved out of the window: what was there must be in its new place. */
static void check_moved(const char *p, struct span from, uint64_t len)
{
	for (size_t i = from.first; i < from.last; i += 101) {
		const char *at = p + (i - from.first) * PIECE;

		if (pieces[i].prot & PROT_READ && pieces[i].mapped)
			model_read(i, *(const volatile uint64_t *)at, "moved");
	}
	if (gm_munmap((void *)p, len))
		wrong("unmap of what was moved: %s", gm_error());
	model_unmap(from);
}

static void do_remap(struct input *in)
{
	uint64_t addr = any_addr(in), len = any_len(in), new = any_len(in);
	int flags = below(in, 8) ? (int)below(in, 2) * MREMAP_MAYMOVE
				 : (int)number(in);
	struct span s;
	uint64_t end;
	char *p;
	bool bad = addr & GM_PAGE_MASK || !len || !new ||
		   flags & ~MREMAP_MAYMOVE || wraps(addr, len);

	if (!bad &&
	    (len > PAGES * GM_PAGE_SIZE || any_hole(span_of(addr, len))))
		return;
	s = span_of(addr, bad ? 0 : round_page(len));
	/* Different rights: what the new part has is the last page's affair. */
	if (!bad && !all_prot(s, 3))
		return;
	p = gm_mremap((void *)addr, len, new, flags);
	if (p == MAP_FAILED) {
		if (bad)
			failed("remap", errno, EINVAL, ENOMEM);
		else if (!all_pages(addr, round_page(len)))
			failed("remap", errno, EFAULT, ENOMEM);
		else
			failed("remap", errno, ENOMEM, EBUSY, EFAULT);
		return;
	}
	if (bad || !all_pages(addr, round_page(len)))
		wrong("remapped what cannot be");
	new = round_page(new);
	len = round_page(len);
	if ((uint64_t)p != addr) {
		check_moved(p, s, new);
	} else if (new < len) {
		model_unmap(span_of(addr + new, len - new));
	} else if (new > len) {
		model_map(span_of(addr + len, new - len), 3);
		/* What is beyond the window is none of the model's. */
		end = (uint64_t)window + PAGES * GM_PAGE_SIZE;
		if (addr + new > end &&
		    gm_munmap((void *)end, addr + new - end))
			wrong("unmap of what has grown: %s", gm_error());
	}
}

/* --- what the program does by itself ------------------------------------ */

static void do_plain(struct input *in)
{
	uint64_t addr = (uint64_t)window + below(in, PIECES) * PIECE;
	uint64_t len = (1 + below(in, PER_PAGE)) * PIECE;
	struct gm_where w;
	struct span s;

	if (below(in, 2)) {
		addr &= ~GM_PAGE_MASK;
		len = GM_PAGE_SIZE;
	}
	if (outside(addr, len) || !xpu.attached)
		return;
	s = span_of(addr, len);
	if (below(in, 2)) {
		if (munmap((void *)addr, len))
			wrong("plain munmap: %s", strerror(errno));
		model_unmap(s);
	} else if (all_mapped(s)) {
		if (madvise((void *)addr, len, MADV_DONTNEED))
			wrong("plain madvise: %s", strerror(errno));
		model_zero(addr, len);
	}
	/* The report has been read by now, but perhaps not followed yet. */
	gm_where(window, &w);
}

/* --- hints and copies --------------------------------------------------- */

static bool known_advice(int advice)
{
	return advice == GM_WILLNEED || advice == GM_DONTNEED ||
	       (advice >= GM_READ_MOSTLY && advice <= GM_UNPIN);
}

static void do_advise(struct input *in)
{
	uint64_t addr = any_addr(in), len = any_len(in);
	int advice = (int)below(in, 16), node = any_node(in), rc;
	bool bad;

	advice = advice < 4    ? GM_WILLNEED
		 : advice < 8  ? GM_DONTNEED
		 : advice < 14 ? GM_READ_MOSTLY + advice - 8
			       : (int)number(in);
	bad = !known_advice(advice) || wraps(addr, len);
	rc = gmadvise(node, (void *)addr, len, advice);
	if (rc && bad)
		failed("advise", errno, EINVAL);
	else if (rc)
		failed("advise", errno, EINVAL, ENODEV, ENOMEM, EBUSY, EFAULT,
		       EACCES);
	else if (bad)
		wrong("advised what cannot be");
	if (bad || advice != GM_DONTNEED)
		return;
	if (rc)
		model_doubt(span_of(addr, len), OR_ZERO);
	else
		model_zero(addr, len);
	if (!rc && len && !all_pages(addr, len))
		wrong("discarded what is not there");
}

/* Plain memory may be copied to and from, but ours is not to be hit. */
static bool ours(uint64_t addr, uint64_t len)
{
	uint64_t far = 64 * GM_PAGE_SIZE, base = (uint64_t)window;

	return addr < 1ull << 47 && addr + len > 4096 &&
	       (addr < base - far || len > far || addr + len > base + far);
}

static void do_copy(struct input *in)
{
	uint64_t dst = any_addr(in), src = any_addr(in), len = any_len(in);
	struct span d, s;
	struct piece *old;
	bool good;

	/* Whole pieces, that the model can follow. */
	if (below(in, 4)) {
		dst &= ~(uint64_t)(PIECE - 1);
		src &= ~(uint64_t)(PIECE - 1);
		len &= 4 * GM_PAGE_SIZE - PIECE;
	}
	if (ours(dst, len) || ours(src, len))
		return;
	d = span_of(dst, len);
	s = span_of(src, len);
	good = !wraps(dst, len) && !wraps(src, len) && !outside(dst, len) &&
	       !outside(src, len) && all_mapped(d) && all_mapped(s) &&
	       all_prot(d, 3) && all_prot(s, 1);
	if (gmemcpy(any_node(in), (void *)dst, (void *)src, len)) {
		if (good)
			failed("copy", errno, EINVAL, ENODEV, ENOMEM, EBUSY,
			       EFAULT);
		else
			failed("copy", errno, EINVAL, ENODEV, ENOMEM, EBUSY,
			       EFAULT, EACCES);
		model_doubt(d, ANYTHING);
		return;
	}
	if (len && !good)
		wrong("copied what cannot be");
	if ((dst | src | len) % PIECE) {
		model_doubt(d, ANYTHING);
		return;
	}
	old = malloc(sizeof(pieces));
	memcpy(old, pieces, sizeof(pieces));
	for (size_t i = 0; i < d.last - d.first; i++) {
		pieces[d.first + i].word = old[s.first + i].word;
		pieces[d.first + i].doubt = old[s.first + i].doubt;
	}
	free(old);
}

/* --- loads and stores --------------------------------------------------- */

static void do_cpu(struct input *in)
{
	size_t i = below(in, PAGES) * PER_PAGE;
	volatile uint64_t *at;

	if (below(in, 2))
		i += below(in, PER_PAGE);
	at = (volatile uint64_t *)piece_at(i);
	if (!pieces[i].mapped || !(pieces[i].prot & PROT_READ))
		return;
	model_read(i, *at, "CPU");
	if (pieces[i].prot & PROT_WRITE && below(in, 2)) {
		*at = ++stamp;
		pieces[i].word = stamp;
	}
}

static void xpu_touch(size_t i, bool store)
{
	uint64_t word = ++stamp;

	/* Somebody may have been quicker: the access would fault again. */
	if (!xpu_access(&xpu, (uint64_t)piece_at(i), &word, store))
		return;
	if (!pieces[i].mapped)
		wrong("the XPU reaches what is unmapped");
	if (!(pieces[i].prot & (store ? PROT_WRITE : PROT_READ)))
		wrong("the XPU reaches what is forbidden");
	if (store) {
		pieces[i].word = word;
		pieces[i].doubt = NO_DOUBT;
	} else {
		model_read(i, word, "XPU");
	}
}

static void check_status(uint64_t va, unsigned int access, int status)
{
	struct span s = span_of(va, 1);
	bool known = access == GM_READ || access == GM_WRITE;

	if (!status) {
		if (!xpu.attached || !known || !any_mapped(s) || any_cut(s) ||
		    !all_prot(s, (int)access))
			wrong("a fault at %#llx, access %u is served: mapped "
			      "%d, cut %d, rights %d",
			      (unsigned long long)va, access, any_mapped(s),
			      any_cut(s), pieces[s.first].prot);
		return;
	}
	if (!xpu.attached)
		failed("fault", -status, ENODEV);
	else if (!known)
		failed("fault", -status, EINVAL);
	else if (!any_page(s) || any_cut(s))
		failed("fault", -status, EFAULT, EACCES);
	else if (!all_prot(s, (int)access))
		failed("fault", -status, EACCES);
	else
		failed("fault", -status, EBUSY, ENOMEM);
}

static void do_fault(struct input *in)
{
	static const unsigned int kinds[] = { 1, 2, 1, 2, 1, 2, 0, 3, 255 };
	uint64_t vas[100];
	enum gm_access access[100];
	int status[100];
	unsigned int n = below(in, 4) ? 1 : (unsigned int)below(in, 101), i;
	int served, ok = 0;

	for (i = 0; i < n; i++) {
		vas[i] = any_addr(in);
		access[i] = (enum gm_access)kinds[below(in, 9)];
	}
	served = gm_dev_fault_many(gm_as_current(), vas, n, xpu.dev, access,
				   status);
	for (i = 0; i < n; i++) {
		check_status(vas[i], (unsigned int)access[i], status[i]);
		ok += !status[i];
	}
	if (ok != served)
		wrong("%d are served, it says %d", ok, served);
	for (i = 0; i < n; i++) {
		if (!status[i])
			xpu_touch(span_of(vas[i], 1).first,
				  access[i] == GM_WRITE);
	}
}

/* --- questions ---------------------------------------------------------- */

static void do_ask(struct input *in)
{
	uint64_t addr = any_addr(in);
	bool there = any_page(span_of(addr, 1)), null = below(in, 8) == 0;
	static struct gm_region_stats rs;
	struct gm_where w;
	int rc = gm_where((void *)addr, null ? NULL : &w);

	if (rc ? there && !null : !there || null)
		wrong("where at %#llx: %d", (unsigned long long)addr, rc);
	rc = gm_region_stats((void *)addr, null ? NULL : &rs);
	if (rc ? there && !null : !there || null)
		wrong("region_stats at %#llx: %d", (unsigned long long)addr,
		      rc);
	if (!rc && (addr < rs.start || addr >= rs.end))
		wrong("another region's statistics");
}

static void do_count(struct input *in)
{
	struct gm_node_info nodes[4];
	struct gm_stats stats;
	size_t n = below(in, 5);
	int nr = gm_nodes(below(in, 4) ? nodes : NULL, n);
	int node = (int)number(in), rc;

	if (nr < 0 && (nr != -EINVAL || !n))
		wrong("nodes: %d", nr);
	rc = gm_node_stats(node, below(in, 8) ? &stats : NULL);
	if (rc && rc != -EINVAL)
		wrong("node_stats: %d", rc);
	rc = gm_process_stats(below(in, 8) ? &stats : NULL);
	if (rc && rc != -EINVAL)
		wrong("process_stats: %d", rc);
}

static void do_trace(struct input *in)
{
	struct gm_event events[8];
	uint64_t lost, capacity = number(in);
	size_t n;
	int rc;

	if (below(in, 2)) {
		n = gm_trace_read(events, below(in, 9), &lost);
		if (n > 8)
			wrong("%zu events", n);
		return;
	}
	if (capacity > 4096 && capacity < 1ull << 48)
		capacity %= 4096;
	rc = gm_trace_start(capacity);
	if (rc && (rc != -ENOMEM || capacity <= 4096))
		wrong("trace of %#llx: %d", (unsigned long long)capacity, rc);
}

/* --- the device --------------------------------------------------------- */

static void do_device(struct input *in)
{
	struct gm_as *as = gm_as_current();
	int rc;

	if (below(in, 3)) {
		xpu.fail = (int)below(in, 4);
		xpu.failed = xpu.failed || xpu.fail;
		return;
	}
	xpu.fail = 0;
	if (!xpu.attached || below(in, 4) == 0) {
		rc = gm_as_attach(as, xpu.dev, &xpu);
		if (rc)
			failed("attach", -rc, EEXIST);
		if (!rc == xpu.attached)
			wrong("attach: %d", rc);
		xpu.attached = true;
	} else if (below(in, 2)) {
		rc = gm_as_detach(as, xpu.dev);
		if (rc)
			failed("detach", -rc, ENOMEM);
		xpu.attached = rc;
		if (!rc && xpu_mapped(&xpu))
			wrong("pages are mapped on a detached XPU");
	} else {
		/* Its page table is empty: as the driver says it is. */
		memset(xpu.ptes, 0, sizeof(xpu.ptes));
		rc = gm_as_reset(as, xpu.dev);
		if (rc)
			wrong("reset: %d", rc);
	}
}

/* --- the case ----------------------------------------------------------- */

static void start(void)
{
	char *p;

	if (!gm_as_current()) {
		printf("skipped: %s\n", gm_error());
		exit(77);
	}
	p = gm_mmap(NULL, 1, 3, UNIFIED, -1, 0);
	if (p == MAP_FAILED)
		wrong("no unified memory: %s", gm_error());
	window = p + WINDOW_OFF;
	gm_munmap(p, GM_PAGE_SIZE);
	xpu_start(&xpu);
	if (gm_as_attach(gm_as_current(), xpu.dev, &xpu))
		wrong("attach: %s", gm_error());
	xpu.attached = true;
}

static void finish(void)
{
	xpu.fail = 0;
	for (size_t i = 0; i < PIECES; i += 61) {
		if (pieces[i].mapped && pieces[i].prot & PROT_READ)
			model_read(i, *(volatile uint64_t *)piece_at(i), "end");
	}
	if (gm_munmap(window, PAGES * GM_PAGE_SIZE) && errno != EINVAL)
		wrong("unmap at the end: %s", gm_error());
	model_unmap((struct span){ 0, PIECES });
	if (xpu_mapped(&xpu))
		wrong("pages are mapped on the XPU, and there are none");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const ops[])(struct input *) = {
		do_map,	  do_map,   do_map,    do_map_any, do_unmap, do_protect,
		do_remap, do_plain, do_advise, do_advise,  do_copy,  do_cpu,
		do_cpu,	  do_cpu,   do_fault,  do_fault,   do_fault, do_ask,
		do_count, do_trace, do_device, do_kpi,
	};
	struct input in = { .at = data, .end = data + size };

	if (!window)
		start();
	if (!xpu.attached && gm_as_attach(gm_as_current(), xpu.dev, &xpu))
		wrong("attach: %s", gm_error());
	xpu.attached = true;
	xpu.failed = 0;
	while (in.at < in.end)
		ops[below(&in, sizeof(ops) / sizeof(ops[0]))](&in);
	finish();
	return 0;
}
