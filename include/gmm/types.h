/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * types.h - the words that applications, drivers and the manager share
 */
#ifndef GMM_TYPES_H
#define GMM_TYPES_H

#include <stddef.h>
#include <stdint.h>

/*
 * The one page size of the manager (GMM paper, section 4.4). Only the
 * simulated machine defines another, so that its pages are tiny.
 */
#ifndef GM_PAGE_SHIFT
#define GM_PAGE_SHIFT 21
#endif
#define GM_PAGE_SIZE ((uint64_t)1 << GM_PAGE_SHIFT)
#define GM_PAGE_MASK (GM_PAGE_SIZE - 1)

/* Most XPU contexts that one address space can have attached at once. */
#define GM_MAX_CTX 15

/* "No node in particular", where a node id is optional. */
#define GM_NODE_NONE (-1)

/**
 * enum gm_access - what a processor tried to do with a page
 * @GM_READ: load; a fetch counts as a load
 * @GM_WRITE: store, or an atomic read-modify-write
 */
enum gm_access {
	GM_READ = 1,
	GM_WRITE = 2,
};

/**
 * enum gm_prot - rights of a mapping, in the processor's page table
 * @GM_PROT_READ: loads are allowed
 * @GM_PROT_WRITE: stores are allowed; never set without GM_PROT_READ
 *
 * The values are those of PROT_READ and PROT_WRITE.
 */
enum gm_prot {
	GM_PROT_READ = 1,
	GM_PROT_WRITE = 2,
};

#endif /* GMM_TYPES_H */
