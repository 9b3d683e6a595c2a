/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * fork.c - what a child of fork() has: nothing
 *
 * Regions and dock are not inherited, and there are no threads that could
 * serve. The files refer to the parent's memory, so they are closed. The
 * child's calls fail until it executes a program.
 */
#include <pthread.h>
#include <unistd.h>
#include <urcu/urcu-bp.h>

#include "user.h"

static bool is_child;
static bool registered;

bool gm_fork_is_child(void)
{
	return is_child;
}

/* Takes no lock whose holder may wait for the program. */
static void before(void)
{
	gm_mover_hold();
	urcu_bp_before_fork();
}

static void after_in_parent(void)
{
	urcu_bp_after_fork_parent();
	gm_mover_release();
}

static void after_in_child(void)
{
	urcu_bp_after_fork_child();
	gm_mover_reset();
	if (gm_as_if_ready()) {
		gm_user_close();
		is_child = true;
	}
}

int gm_fork_init(void)
{
	if (registered)
		return 0;
	if (pthread_atfork(before, after_in_parent, after_in_child))
		return gm_host_error(-ENOMEM, "no memory for a fork handler");
	registered = true;
	return 0;
}
