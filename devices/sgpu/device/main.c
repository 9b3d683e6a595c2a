/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * main.c - the device program: one context of a software GPU
 *
 * Started by the runtime with the arena's base and length as arguments and the
 * files of enum WIRE_FD_*. It ends when the runtime's end of the socket closes
 * or the runtime's process dies (a fork of which may still hold that end).
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "device.h"

struct wire_control *control;
static void *modules[WIRE_MODULES];

/* Before any thread or library can settle there. */
static int reserve_arena(uint64_t base, uint64_t len)
{
	void *p = mmap((void *)(uintptr_t)base, len, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			       MAP_FIXED_NOREPLACE,
		       -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	return p == (void *)(uintptr_t)base ? 0 : -EEXIST;
}

static int map_control(void)
{
	void *p = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE,
		       MAP_SHARED, WIRE_FD_CONTROL, 0);

	if (p == MAP_FAILED)
		return -errno;
	control = p;
	return control->magic == WIRE_MAGIC ? 0 : -EPROTO;
}

static void reply(struct wire_msg *msg)
{
	size_t len = offsetof(struct wire_msg, text) + strlen(msg->text) + 1;

	if (send(WIRE_FD_SOCKET, msg, len, MSG_NOSIGNAL) < 0)
		_exit(0);
}

static void load(struct wire_msg *msg)
{
	void *handle = NULL;

	if (msg->module < WIRE_MODULES)
		handle = dlopen(msg->text, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		const char *why = dlerror();

		msg->status = -ENOEXEC;
		snprintf(msg->text, sizeof(msg->text), "%s", why ? why : "");
		return;
	}
	modules[msg->module] = handle;
	msg->status = 0;
	msg->text[0] = 0;
}

static void find(struct wire_msg *msg)
{
	char name[WIRE_TEXT + 16];
	void *fn = NULL;

	snprintf(name, sizeof(name), "sgpu_kernel_%s", msg->text);
	if (msg->module < WIRE_MODULES && msg->kernel < WIRE_KERNELS &&
	    modules[msg->module])
		fn = dlsym(modules[msg->module], name);
	msg->status = fn ? 0 : -ENOENT;
	msg->text[0] = 0;
	if (fn)
		kernel_set(msg->kernel, (sgpu_kernel_fn *)(uintptr_t)fn);
}

static void serve(void)
{
	static struct wire_msg msg;
	ssize_t n = recv(WIRE_FD_SOCKET, &msg, sizeof(msg), 0);

	if (n < 0 && errno == EINTR)
		return;
	if (n <= (ssize_t)offsetof(struct wire_msg, text))
		_exit(0);
	msg.text[sizeof(msg.text) - 1] = 0;
	if (msg.verb == WIRE_LOAD)
		load(&msg);
	else if (msg.verb == WIRE_FIND)
		find(&msg);
	else
		msg.status = -ENOSYS;
	reply(&msg);
}

static int start(uint64_t base, uint64_t len)
{
	int ret = reserve_arena(base, len);

	if (!ret)
		ret = map_control();
	if (!ret)
		ret = mmu_init();
	if (!ret)
		ret = fault_init();
	if (!ret)
		ret = mmu_start();
	if (!ret)
		ret = workers_start();
	return ret;
}

int main(int argc, char **argv)
{
	static struct wire_msg hello = { .verb = WIRE_HELLO };
	struct pollfd fds[2] = { { .fd = WIRE_FD_SOCKET, .events = POLLIN },
				 { .events = POLLIN } };

	if (argc != 3) {
		fprintf(stderr, "sgpu-device is started by libsgpu\n");
		return 2;
	}
	hello.status =
		start(strtoull(argv[1], NULL, 16), strtoull(argv[2], NULL, 16));
	reply(&hello);
	if (hello.status)
		return 1;
	fds[1].fd = (int)syscall(SYS_pidfd_open, control->parent, 0);
	if (getppid() != control->parent)
		return 0;
	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (fds[1].revents)
			_exit(0);
		if (fds[0].revents)
			serve();
	}
}
