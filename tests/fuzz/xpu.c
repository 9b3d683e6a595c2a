/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xpu.h"

#define SIZE (XPU_FRAMES * GM_PAGE_SIZE)

static void lock(struct xpu *xpu)
{
	while (__atomic_exchange_n(&xpu->lock, 1, __ATOMIC_ACQUIRE))
		;
}

static void unlock(struct xpu *xpu)
{
	__atomic_store_n(&xpu->lock, 0, __ATOMIC_RELEASE);
}

static int fails(struct xpu *xpu)
{
	if (!xpu->fail || --xpu->fail)
		return 0;
	xpu->failed = 1;
	return -EIO;
}

static struct xpu_pte *find(struct xpu *xpu, uint64_t va)
{
	for (unsigned int i = 0; i < XPU_PTES; i++) {
		if (xpu->ptes[i].prot && xpu->ptes[i].va == va)
			return &xpu->ptes[i];
	}
	return NULL;
}

static void check_range(uint64_t va, uint64_t len)
{
	if (!len || (va | len) & GM_PAGE_MASK || va + len < va)
		wrong("pages at %#llx, %#llx bytes", (unsigned long long)va,
		      (unsigned long long)len);
}

static int examine(void *pmap, uint64_t va, uint64_t len)
{
	check_range(va, len);
	return va + len > 1ull << 47 ? -EADDRNOTAVAIL : 0;
}

static void enter_one(struct xpu *xpu, uint64_t va, uint64_t daddr,
		      unsigned int prot)
{
	struct xpu_pte *p = find(xpu, va);

	for (unsigned int i = 0; !p && i < XPU_PTES; i++) {
		if (!xpu->ptes[i].prot)
			p = &xpu->ptes[i];
	}
	if (!p)
		wrong("more pages are mapped than there can be");
	*p = (struct xpu_pte){ .va = va, .daddr = daddr, .prot = prot };
}

static int enter(void *pmap, const struct gm_pmap_run *run)
{
	struct xpu *xpu = pmap;

	check_range(run->va, run->len);
	if (run->daddr & GM_PAGE_MASK || run->daddr >= SIZE ||
	    run->len > SIZE - run->daddr)
		wrong("frames at %#llx", (unsigned long long)run->daddr);
	if (run->prot != GM_PROT_READ &&
	    run->prot != (GM_PROT_READ | GM_PROT_WRITE))
		wrong("rights %u", run->prot);
	if (fails(xpu))
		return -EIO;
	lock(xpu);
	for (uint64_t off = 0; off < run->len; off += GM_PAGE_SIZE)
		enter_one(xpu, run->va + off, run->daddr + off, run->prot);
	unlock(xpu);
	return 0;
}

static int clear(void *pmap, uint64_t va, uint64_t len)
{
	struct xpu *xpu = pmap;

	check_range(va, len);
	if (fails(xpu))
		return -EIO;
	lock(xpu);
	for (unsigned int i = 0; i < XPU_PTES; i++) {
		if (xpu->ptes[i].va - va < len)
			xpu->ptes[i].prot = 0;
	}
	unlock(xpu);
	return 0;
}

static int protect(void *pmap, uint64_t va, uint64_t len, unsigned int prot)
{
	struct xpu *xpu = pmap;

	check_range(va, len);
	if (fails(xpu))
		return -EIO;
	lock(xpu);
	for (unsigned int i = 0; i < XPU_PTES; i++) {
		if (xpu->ptes[i].prot && xpu->ptes[i].va - va < len)
			xpu->ptes[i].prot = prot;
	}
	unlock(xpu);
	return 0;
}

static void *device(struct xpu *xpu, uint64_t daddr, uint64_t len)
{
	if (daddr >= SIZE || len > SIZE - daddr)
		wrong("device memory at %#llx, %#llx bytes",
		      (unsigned long long)daddr, (unsigned long long)len);
	return xpu->memory + daddr;
}

static int copy(void *data, const struct gm_copy *c)
{
	struct xpu *xpu = data;
	void *dst = (void *)(uintptr_t)c->dst;
	const void *src = (const void *)(uintptr_t)c->src;

	if (c->len > GM_PAGE_SIZE)
		wrong("a copy of %#llx bytes", (unsigned long long)c->len);
	if (c->dir != GM_COPY_FROM_DEV)
		dst = device(xpu, c->dst, c->len);
	if (c->dir != GM_COPY_TO_DEV)
		src = device(xpu, c->src, c->len);
	if (fails(xpu))
		return -EIO;
	memcpy(dst, src, c->len);
	return 0;
}

static int zero(void *data, uint64_t daddr, uint64_t len)
{
	struct xpu *xpu = data;
	void *p = device(xpu, daddr, len);

	if (fails(xpu))
		return -EIO;
	memset(p, 0, len);
	return 0;
}

const struct gm_dev_ops xpu_ops = {
	.size = sizeof(xpu_ops),
	.version = GM_DEV_OPS_VERSION,
	.va_examine = examine,
	.pmap_enter = enter,
	.pmap_clear = clear,
	.memcpy = copy,
	.zero = zero,
	.pmap_protect = protect,
};

void xpu_start(struct xpu *xpu)
{
	xpu->memory = aligned_alloc(4096, SIZE);
	if (!xpu->memory ||
	    gm_dev_create(&xpu_ops, xpu, "fuzzed",
			  GM_CAP_REPLAY | GM_CAP_WRITE_FAULT |
				  GM_CAP_COPY_ENGINES,
			  &xpu->dev) ||
	    gm_dev_register_physmem(xpu->dev, 0, SIZE))
		wrong("no XPU");
	xpu->node = gm_dev_node(xpu->dev);
}

bool xpu_access(struct xpu *xpu, uint64_t va, uint64_t *word, bool store)
{
	struct xpu_pte *p = find(xpu, va & ~GM_PAGE_MASK);
	void *at;

	if (!p || (store && !(p->prot & GM_PROT_WRITE)))
		return false;
	at = xpu->memory + p->daddr + (va & GM_PAGE_MASK);
	if (store)
		memcpy(at, word, sizeof(*word));
	else
		memcpy(word, at, sizeof(*word));
	return true;
}

unsigned int xpu_mapped(const struct xpu *xpu)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < XPU_PTES; i++)
		n += xpu->ptes[i].prot != 0;
	return n;
}
