/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * plain.c - moving memory that is not unified, between host nodes
 */
#include <string.h>

#include "core/internal.h"
#include "sys.h"
#include "user.h"

#define SOME 64
#define MPOL_MF_MOVE (1 << 1)

static void count_moved(const int *status, unsigned long n)
{
	struct gm_node *node = gm_machine.nodes[0];
	unsigned long i;

	for (i = 0; i < n; i++) {
		if (status[i] < 0)
			gm_move_failed(node, status[i]);
		else
			gm_count(node, moved, 1);
	}
	gm_count(node, move_kernel, n);
}

/* Linux's own call, for some pages of one kind. */
static void kernel_move(unsigned long n, void **pages, const int *nodes,
			int *status)
{
	unsigned long i;
	long rc = syscall(SYS_move_pages, 0, n, pages, nodes, status,
			  MPOL_MF_MOVE);

	for (i = 0; rc < 0 && i < n; i++)
		status[i] = -errno;
	if (nodes)
		count_moved(status, n);
}

void gm_plain_move(unsigned long n, void **pages, const int *nodes, int *status,
		   unsigned int flags)
{
	unsigned long i, k;

	/* An XPU cannot have plain memory; the others go together. */
	for (i = 0; i < n; i += k) {
		bool xpu = nodes && nodes[i] >= gm_machine.nr_host_nodes;

		for (k = 1; i + k < n && k < SOME; k++)
			if (nodes &&
			    (nodes[i + k] >= gm_machine.nr_host_nodes) != xpu)
				break;
		if (!xpu) {
			kernel_move(k, pages + i, nodes ? nodes + i : NULL,
				    status + i);
			continue;
		}
		k = 1;
		status[i] = gm_host_error(-ENODEV,
					  "0x%llx is not unified memory: no "
					  "XPU can have it",
					  (unsigned long long)pages[i]);
		gm_move_failed(gm_machine.nodes[0], -ENODEV);
	}
}
