/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * bell.c - wait for the device, or for what we do ourselves
 *
 * The device's bells are words that it can turn back, and so undo a ring of
 * ours that a sleeper has not seen yet. Deaths and stops therefore ring a bell
 * that only this process can reach, and who sleeps listens to both.
 */
#include "runtime.h"

void bell_read(struct ear *ear)
{
	ear->heard = atomic_load(ear->bell);
	ear->own = atomic_load(&ear->gpu->own_bell);
}

static bool rung(void *arg)
{
	const struct ear *ear = arg;

	return atomic_load_explicit(ear->bell, memory_order_relaxed) !=
		       ear->heard ||
	       atomic_load_explicit(&ear->gpu->own_bell,
				    memory_order_relaxed) != ear->own;
}

void bell_wait(struct ear *ear, struct wire_spin *spin)
{
	struct futex_waitv words[2] = {
		{ .val = ear->heard,
		  .uaddr = (uintptr_t)ear->bell,
		  .flags = FUTEX_32 },
		{ .val = ear->own,
		  .uaddr = (uintptr_t)&ear->gpu->own_bell,
		  .flags = FUTEX_32 },
	};

	if (wire_spin(spin, rung, ear))
		return;
	atomic_store(ear->sleeps, 1);
	if (!rung(ear))
		syscall(SYS_futex_waitv, words, 2, 0, NULL, 0);
}

void bell_ring(struct sgpu *gpu)
{
	atomic_fetch_add(&gpu->own_bell, 1);
	wire_futex_wake(&gpu->own_bell, INT32_MAX);
}
