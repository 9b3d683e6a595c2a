/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * move.c - gm_move_pages() and gm_exchange_pages(): whose page is each?
 *
 * Unified pages are the core's, plain ones plain.c's. A list is worked on in
 * stretches of one kind, in its order.
 */
#include <stdio.h>
#include <string.h>

#include "quiet.h"
#include "sys.h"
#include "user.h"

/* Addresses as numbers, a few at a time. */
#define STRETCH 256
#define MPOL_MF_MOVE (1 << 1)

_Static_assert(sizeof(void *) == sizeof(uint64_t), "addresses as numbers");

static int finish(int rc)
{
	if (rc >= 0)
		return rc;
	errno = -rc;
	return -1;
}

/* An array of the program's, read or written by us. */
static int check_array(const void *p, unsigned long n, size_t size,
		       unsigned int prot, const char *name)
{
	if (n > SIZE_MAX / 2 / size ||
	    gm_vma_check((uint64_t)p, n * size, prot))
		return gm_host_error(-EFAULT,
				     "%s: not %lu elements of memory that can "
				     "be %s",
				     name, n,
				     prot == PROT_READ ? "read" : "written");
	return 0;
}

static int check_flags(int flags)
{
	if (!(flags & ~(GM_MOVE_PARALLEL | GM_MOVE_CONCURRENT)))
		return 0;
	return gm_host_error(-EINVAL,
			     "flags 0x%x: GM_MOVE_PARALLEL and "
			     "GM_MOVE_CONCURRENT are possible",
			     (unsigned int)flags);
}

static int check_nodes(const int *nodes, unsigned long n)
{
	unsigned long i;
	int rc = 0;

	for (i = 0; !rc && nodes && i < n; i++)
		if (i == 0 || nodes[i] != nodes[i - 1])
			rc = gm_machine_has_node(nodes[i]);
	return rc;
}

static bool unified(struct gm_as *as, const void *addr)
{
	uint64_t va = (uint64_t)addr;

	return gm_range_possible(va, 1) && gm_as_overlaps(as, va, 1);
}

/* How many from the first on are of its kind. */
static unsigned long stretch(struct gm_as *as, void **pages, unsigned long n)
{
	bool kind = unified(as, pages[0]);
	unsigned long i = 1;

	n = GM_MIN(n, (unsigned long)STRETCH);
	while (i < n && unified(as, pages[i]) == kind)
		i++;
	return i;
}

static int count_failed(const int *status, unsigned long n)
{
	unsigned long i, failed = 0;

	for (i = 0; i < n; i++)
		failed += status[i] < 0;
	return (int)GM_MIN(failed, (unsigned long)INT32_MAX);
}

/*
 * The program's arrays may be unified memory themselves: nothing is locked
 * here, and the core gets copies.
 */
static void move_stretch(struct gm_as *as, unsigned long n, void **pages,
			 const int *nodes, int *status, unsigned int flags)
{
	uint64_t vas[STRETCH];
	int to[STRETCH], result[STRETCH];

	memcpy(vas, pages, n * sizeof(*vas));
	if (nodes)
		memcpy(to, nodes, n * sizeof(*to));
	if (unified(as, pages[0]))
		gm_as_move(as, n, vas, nodes ? to : NULL, result, flags);
	else
		gm_plain_move(as, n, (void **)vas, nodes ? to : NULL, result,
			      flags);
	memcpy(status, result, n * sizeof(*status));
}

/* The library cannot be made ready: so there is no unified memory. */
static int linux_alone(unsigned long count, void **pages, const int *nodes,
		       int *status, int flags)
{
	static uint32_t said;
	char text[640];
	int n, rc = check_flags(flags);

	if (rc)
		return finish(rc);
	if (!gm_fork_is_child() &&
	    !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
		n = snprintf(text, sizeof(text),
			     "gmm: pages are moved by Linux alone: %s\n",
			     gm_error());
		if (write(STDERR_FILENO, text,
			  (size_t)GM_MIN(n, (int)sizeof(text) - 1)) < 0)
			return -1;
	}
	return (int)syscall(SYS_move_pages, 0, count, pages, nodes, status,
			    MPOL_MF_MOVE);
}

int gm_move_pages(unsigned long count, void **pages, const int *nodes,
		  int *status, int flags)
{
	struct gm_as *as;
	unsigned long i, n;
	int rc;

	QUIETLY;
	gm_error_clear();
	as = gm_as_current();
	if (!as)
		return linux_alone(count, pages, nodes, status, flags);
	gm_events_barrier();
	rc = check_flags(flags);
	if (!rc)
		rc = check_array(pages, count, sizeof(*pages), PROT_READ,
				 "pages");
	if (!rc && nodes)
		rc = check_array(nodes, count, sizeof(*nodes), PROT_READ,
				 "nodes");
	if (!rc)
		rc = check_array(status, count, sizeof(*status),
				 PROT_READ | PROT_WRITE, "status");
	if (!rc)
		rc = check_nodes(nodes, count);
	for (i = 0; !rc && i < count; i += n) {
		n = stretch(as, pages + i, count - i);
		move_stretch(as, n, pages + i, nodes ? nodes + i : NULL,
			     status + i, (unsigned int)flags);
	}
	return finish(rc ? rc : count_failed(status, count));
}

enum pair_kind { PAIR_UNIFIED, PAIR_PLAIN, PAIR_MIXED };

static enum pair_kind pair_kind(struct gm_as *as, const void *a, const void *b)
{
	bool one = unified(as, a);

	if (unified(as, b) != one)
		return PAIR_MIXED;
	return one ? PAIR_UNIFIED : PAIR_PLAIN;
}

/* Pairs of one kind. Returns how many they were. */
static unsigned long exchange_stretch(struct gm_as *as, unsigned long n,
				      void **from, void **to, int *status,
				      unsigned int flags)
{
	enum pair_kind kind = pair_kind(as, from[0], to[0]);
	uint64_t a[STRETCH], b[STRETCH];
	int result[STRETCH];
	unsigned long i, k = 1;

	n = GM_MIN(n, (unsigned long)STRETCH);
	while (k < n && pair_kind(as, from[k], to[k]) == kind)
		k++;
	memcpy(a, from, k * sizeof(*a));
	memcpy(b, to, k * sizeof(*b));
	for (i = 0; i < k && kind == PAIR_MIXED; i++)
		result[i] = gm_host_error(-EINVAL,
					  "unified memory cannot change places "
					  "with plain memory");
	if (kind == PAIR_UNIFIED)
		gm_as_exchange(as, k, a, b, result, flags);
	else if (kind == PAIR_PLAIN)
		gm_plain_exchange(as, k, (void **)a, (void **)b, result, flags);
	memcpy(status, result, k * sizeof(*status));
	return k;
}

int gm_exchange_pages(unsigned long count, void **from, void **to, int *status,
		      int flags)
{
	struct gm_as *as;
	unsigned long i, n;
	int rc;

	QUIETLY;
	gm_error_clear();
	as = gm_as_current();
	if (!as)
		return -1;
	gm_events_barrier();
	rc = check_flags(flags);
	if (!rc)
		rc = check_array(from, count, sizeof(*from), PROT_READ, "from");
	if (!rc)
		rc = check_array(to, count, sizeof(*to), PROT_READ, "to");
	if (!rc)
		rc = check_array(status, count, sizeof(*status),
				 PROT_READ | PROT_WRITE, "status");
	for (i = 0; !rc && i < count; i += n)
		n = exchange_stretch(as, count - i, from + i, to + i,
				     status + i, (unsigned int)flags);
	return finish(rc ? rc : count_failed(status, count));
}
