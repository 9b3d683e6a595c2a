/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * hostile.c - a device program that writes nonsense into its registers
 *
 * Started in place of sgpu-device. It says hello, answers all messages in the
 * worst of taste, and meanwhile fills the shared registers with noise and
 * with words that mean something.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "../../devices/sgpu/wire.h"

static struct wire_control *control;

static uint64_t random_word(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static void *scribble(void *arg)
{
	uint64_t seed = (uint64_t)getpid() * 0x9e3779b97f4a7c15ull | 1;
	volatile uint32_t *words = (volatile uint32_t *)control;
	size_t n = sizeof(*control) / sizeof(*words);

	for (;;) {
		uint64_t r = random_word(&seed);
		uint32_t w = (uint32_t)random_word(&seed);
		struct wire_fault *f = &control->fault[r % WIRE_FAULTS];
		struct wire_command *c = &control->command[r % WIRE_COMMANDS];

		words[r % n] = r >> 60 ? w : w % 4;
		f->addr = r >> 63 ? control->arena_base + (w & ~7u) : r;
		f->access = w % 5;
		atomic_fetch_or(&control->faults, r);
		wire_ring(&control->fault_bell, &control->fault_sleeps);
		if (w % 3 == 0) {
			c->status = (int32_t)w;
			atomic_store(&c->done, w >> 8 & 3);
			wire_futex_wake(&c->done, 1);
		}
		control->launch[r % WIRE_LAUNCHES].done = r % 64;
		wire_ring(&control->done_bell, &control->done_sleeps);
		if (r % 20000 == 0) {
			control->crash.signal = (int)w;
			control->crash.launch = r;
			control->crash.valid = 1;
			_exit((int)w & 255);
		}
	}
	return arg;
}

int main(void)
{
	static struct wire_msg msg = { .verb = WIRE_HELLO };
	pthread_t thread;
	ssize_t n;

	control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE,
		       MAP_SHARED, WIRE_FD_CONTROL, 0);
	if (control == MAP_FAILED)
		return 1;
	send(WIRE_FD_SOCKET, &msg, offsetof(struct wire_msg, text) + 1, 0);
	pthread_create(&thread, NULL, scribble, NULL);
	while ((n = recv(WIRE_FD_SOCKET, &msg, sizeof(msg), 0)) > 0) {
		memset(msg.text, 'x', sizeof(msg.text));
		msg.status = msg.verb == WIRE_FIND && getpid() % 2 ? 12345 : 0;
		send(WIRE_FD_SOCKET, &msg, sizeof(msg), MSG_NOSIGNAL);
	}
	return 0;
}
