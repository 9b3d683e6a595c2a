/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * lock_order.h - every lock of the manager, outermost first
 *
 * The one list. The ranks, the checker of debug builds and the table in
 * docs/locking.md are made from it. A thread may take a lock only if all it
 * holds have a smaller rank; several of the rank ENTRY are taken in ascending
 * address order, or the later ones by trylock.
 *
 * GM_LOCK(name, what it protects, what its holder may not do)
 */
#ifndef GM_LOCK_ORDER
#define GM_LOCK_ORDER(GM_LOCK)                                            \
	GM_LOCK(MACHINE, "the tables of devices and nodes",               \
		"serve a fault, copy, touch unified memory")              \
	GM_LOCK(DEV,                                                      \
		"one device's frames and attachments, and what is done "  \
		"to all its pages",                                       \
		"serve a fault, touch unified memory")                    \
	GM_LOCK(AS, "changes to an address space's region table",         \
		"copy, call an operator other than va_examine, "          \
		"touch unified memory")                                   \
	GM_LOCK(ENTRY, "one directory entry and the pages that it lists", \
		"allocate a page, touch unified memory")                  \
	GM_LOCK(NODE, "a node's free and active lists and its counts",    \
		"sleep, call the host or an operator")                    \
	GM_LOCK(POOL, "the host's frames at rest and address ranges",     \
		"sleep, touch unified memory")                            \
	GM_LOCK(HEAP, "the manager's own small memory",                   \
		"sleep, touch unified memory")                            \
	GM_LOCK(TRACE, "the ring of events", "sleep, touch unified memory")
#endif
