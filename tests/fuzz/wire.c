/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * wire.c - the runtime of the software GPU against a hostile device
 *
 * One case is the life of one GPU: commands, copies, launches, faults, modules
 * and restarts, while the device writes what it likes into the registers, says
 * what it likes over the socket, and dies when it likes. The environment that
 * the GPU is opened with is part of the input. The sanitizers see what is out
 * of bounds; here is checked that every call ends in time with a result that
 * its header names, and that what is handed out can be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "wire_device.h"

#define PAGE SGPU_HW_PAGE
#define MAX_STREAMS 4
#define MAX_KERNELS 4
/* Of the made-up clock: a message may take 20 s, and a restart many. */
#define SLACK_NS 1000000000ull

/* What a case has. */
struct life {
	struct input *in;
	struct sgpu *gpu;
	struct sgpu_module *module;
	struct sgpu_stream *streams[MAX_STREAMS];
	struct sgpu_kernel *kernels[MAX_KERNELS];
	unsigned int nr_streams;
	unsigned int nr_kernels;
	uint32_t deadline_ms;
};

static void allowed(const char *call, int ret, const int *errs, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		if (ret == errs[i])
			return;
	}
	wrong("%s returned %d", call, ret);
}

#define check(call, ret, ...)                                             \
	do {                                                              \
		const int errs[] = { 0, -ENODEV, __VA_ARGS__ };           \
		allowed(call, ret, errs, sizeof(errs) / sizeof(errs[0])); \
	} while (0)

/* What a kernel's failure can be: of the header, or what we answered. */
#define STICKY -EFAULT, -EACCES, -ENOMEM, -EBUSY, -EHWPOISON, -EIO, -ECANCELED

/* --- the hardware ------------------------------------------------------- */

static void fill_run(struct life *l, struct sgpu_hw_run *run)
{
	const struct sgpu_config *c = &l->gpu->config;
	struct input *in = l->in;

	run->va = c->arena_base + below(in, 64) * PAGE;
	run->daddr = below(in, c->memory / PAGE) * PAGE;
	run->len = (1 + below(in, 2)) * PAGE;
	run->prot = 1 + 2 * (uint32_t)below(in, 2);
	switch (below(in, 16)) {
	case 0:
		run->va = number(in);
		break;
	case 1:
		run->daddr = number(in);
		break;
	case 2:
		run->len = number(in);
		break;
	case 3:
		run->prot = (uint32_t)number(in);
		break;
	}
}

static void do_command(struct life *l)
{
	static int (*const calls[])(
		struct sgpu *, const struct sgpu_hw_run *,
		unsigned int) = { sgpu_hw_map, sgpu_hw_unmap, sgpu_hw_protect };
	struct sgpu_hw_run runs[SGPU_HW_RUNS];
	unsigned int n = (unsigned int)below(l->in, 6);
	uint64_t start = device.now, end;
	int ret;

	if (n == 5)
		n = SGPU_HW_RUNS + 1 - (unsigned int)below(l->in, 3);
	for (unsigned int i = 0; i < n && i < SGPU_HW_RUNS; i++)
		fill_run(l, &runs[i]);
	ret = calls[below(l->in, 3)](l->gpu, runs, n);
	check("a command", ret, -EINVAL, -EAGAIN, -ENOMEM, -EIO, -ETIMEDOUT);
	end = start + l->deadline_ms * 1000000ull + SLACK_NS;
	if (device.now > end)
		wrong("a command was %llu ns over its deadline",
		      (unsigned long long)(device.now - end));
}

static void do_copy(struct life *l)
{
	static unsigned char plain[4096];
	uint64_t memory = l->gpu->config.memory;
	struct input *in = l->in;
	enum sgpu_hw_dir dir = (enum sgpu_hw_dir)below(in, 3);
	uint64_t len = below(in, sizeof(plain) + 1);
	uint64_t dst = (uintptr_t)plain, src = (uintptr_t)plain;
	int ret;

	if (dir != SGPU_HW_FROM_DEV)
		dst = below(in, 4) ? below(in, memory / 2 - len) : number(in);
	if (dir != SGPU_HW_TO_DEV)
		src = memory / 2 +
		      (below(in, 4) ? below(in, memory / 2 - len) : number(in));
	/* The two sides of a copy never overlap. */
	if (dir == SGPU_HW_IN_DEV && dst < src + len && src < dst + len)
		return;
	ret = below(in, 4) ? sgpu_hw_copy(l->gpu, dir, dst, src, len)
			   : sgpu_hw_zero(l->gpu, number(in), len);
	check("a copy", ret, -EINVAL, -EIO);
}

static int answer(struct life *l)
{
	static const int errs[] = { -EFAULT, -EACCES, -ENOMEM, -EBUSY,
				    -EHWPOISON };

	return below(l->in, 4) ? 0 : errs[below(l->in, 5)];
}

static void check_fault(const struct life *l, const struct sgpu_hw_fault *f)
{
	const struct sgpu_config *c = &l->gpu->config;

	if (f->addr < c->arena_base || f->addr - c->arena_base >= c->arena_len)
		wrong("a fault at %#llx", (unsigned long long)f->addr);
	if (f->access != SGPU_HW_READ && f->access != SGPU_HW_WRITE)
		wrong("a fault by access %u", f->access);
	if (!f->waiters)
		wrong("a fault that nobody waits for");
}

static void do_faults(struct life *l)
{
	struct sgpu_hw_fault faults[WIRE_FAULTS];
	struct sgpu *gpu = l->gpu;
	unsigned int room = 1 + (unsigned int)below(l->in, WIRE_FAULTS);
	uint64_t waiters = 0;
	int n;

	/* With one thread, nobody would restart it meanwhile. */
	if (!gpu->bound || (gpu->state == GPU_DEAD && gpu->told))
		return;
	n = sgpu_hw_fault_wait(gpu, faults, room);
	if (n <= 0)
		check("fault_wait", n, -ECONNRESET, -ESHUTDOWN);
	if (n == 0 || n > (int)room)
		wrong("%d faults, with room for %u", n, room);
	for (int i = 0; i < n; i++) {
		check_fault(l, &faults[i]);
		if (waiters & faults[i].waiters)
			wrong("two faults of one waiter");
		waiters |= faults[i].waiters;
		if (below(l->in, 8) == 7)
			faults[i].epoch += below(l->in, 3) - 1;
		sgpu_hw_fault_done(gpu, &faults[i], answer(l));
	}
}

static void do_bind(struct life *l)
{
	struct sgpu_hw_info info;

	if (l->gpu->bound) {
		if (below(l->in, 4))
			return;
		sgpu_hw_fault_stop(l->gpu);
		sgpu_hw_unbind(l->gpu);
		return;
	}
	check("bind", sgpu_hw_bind(l->gpu, &info), -EBUSY);
	device.stopped = false;
}

static void do_inject(struct life *l)
{
	static const char *const specs[] = {
		"",	 "map:1",  "unmap:2", "copy:1+", "hang:1",
		"die:1", "lost:3", "map:",    "die:1,,", "zero:1,protect:1+"
	};

	check("inject",
	      sgpu_hw_inject(
		      l->gpu,
		      specs[below(l->in, sizeof(specs) / sizeof(specs[0]))]),
	      -EINVAL);
}

/* --- the runtime -------------------------------------------------------- */

static void do_module(struct life *l)
{
	static const char *const paths[] = { "/dev/null", "/nowhere", "/" };
	struct sgpu_module *module;
	int ret;

	ret = sgpu_module_load(l->gpu, paths[below(l->in, 3)], &module);
	check("module_load", ret, -ENOENT, -ENOEXEC, -ENOMEM, STICKY);
	if (!ret)
		l->module = module;
}

static void do_kernel(struct life *l)
{
	char name[SGPU_NAME_MAX + 2] = { 0 };
	struct sgpu_kernel *kernel;
	int ret;

	if (!l->module)
		return;
	memset(name, 'k', 1 + below(l->in, sizeof(name) - 1));
	ret = sgpu_kernel_find(l->module, name, &kernel);
	check("kernel_find", ret, -ENOENT, -ENOMEM, STICKY);
	if (!ret)
		l->kernels[l->nr_kernels++ % MAX_KERNELS] = kernel;
}

static struct sgpu_stream *any_stream(struct life *l)
{
	unsigned int i = (unsigned int)below(l->in, MAX_STREAMS + 1);

	return i < l->nr_streams ? l->streams[i] : NULL;
}

static void do_launch(struct life *l)
{
	unsigned char args[SGPU_ARGS_MAX + 1] = { 0 };
	struct sgpu_kernel *kernel = l->kernels[below(l->in, MAX_KERNELS)];
	unsigned int n = below(l->in, 16) ? 1 : WIRE_LAUNCHES + 2;
	size_t len = below(l->in, 2) ? below(l->in, 8) : below(l->in, 258);
	int ret = 0;

	while (n-- && !ret)
		ret = sgpu_launch(l->gpu, any_stream(l), kernel, number(l->in),
				  args, len);
	check("launch", ret, -EINVAL, STICKY);
}

static void do_stream(struct life *l)
{
	if (l->nr_streams < MAX_STREAMS && below(l->in, 3)) {
		check("stream_create",
		      sgpu_stream_create(l->gpu, &l->streams[l->nr_streams]));
		l->nr_streams++;
	} else if (l->nr_streams) {
		sgpu_stream_destroy(l->streams[--l->nr_streams]);
	}
}

static void do_sync(struct life *l)
{
	int ret = sgpu_sync(l->gpu, any_stream(l));
	const char *text = sgpu_error(l->gpu);

	check("sync", ret, STICKY);
	if (strlen(text) >= SGPU_ERROR_MAX)
		wrong("an error text without end");
	if (ret && !*text)
		wrong("sync returned %d and says nothing", ret);
}

static void do_reset(struct life *l)
{
	if (below(l->in, 2))
		check("reset", sgpu_reset(l->gpu), -ETIMEDOUT);
	else
		check("restart", sgpu_hw_restart(l->gpu));
}

static void do_deadline(struct life *l)
{
	l->deadline_ms =
		(uint32_t)below(l->in, 2) * 5000 + (uint32_t)below(l->in, 3);
	sgpu_hw_deadline(l->gpu, l->deadline_ms);
}

static void live(struct life *l)
{
	static void (*const ops[])(struct life *) = {
		do_command, do_command, do_copy,   do_faults, do_faults,
		do_bind,    do_inject,	do_module, do_kernel, do_launch,
		do_launch,  do_stream,	do_sync,   do_reset,  do_deadline,
	};

	while (l->in->at < l->in->end)
		ops[below(l->in, sizeof(ops) / sizeof(ops[0]))](l);
}

/* --- the case ----------------------------------------------------------- */

static void set_env(struct input *in, const char *name)
{
	static const char *const values[] = { "",
					      "0",
					      "1",
					      "2M",
					      "4M",
					      "0x400000",
					      "-1",
					      "1K",
					      "3G ",
					      "16E",
					      "K",
					      " 8M",
					      "+4M",
					      "99999999G",
					      "48",
					      "49",
					      "018446744073709551616",
					      "map:1",
					      "map:0",
					      "die",
					      "copy:18446744073709551616",
					      "hang:2+," };
	char text[12] = { 0 };

	if (below(in, 8)) {
		unsetenv(name);
	} else if (below(in, 4)) {
		setenv(name,
		       values[below(in, sizeof(values) / sizeof(values[0]))],
		       1);
	} else {
		for (uint64_t i = below(in, sizeof(text)); i; i--)
			text[i - 1] = (char)(1 + below(in, 255));
		setenv(name, text, 1);
	}
}

static int open_gpu(struct input *in, struct sgpu **gpu)
{
	struct sgpu_config config = { .program = "/bin/true",
				      .memory = (2 + below(in, 4)) * PAGE,
				      .workers = 1 + (uint32_t)below(in, 4) };
	int ret;

	if (below(in, 4) == 0) {
		config.memory = 0;
		config.workers = 0;
		set_env(in, "SGPU_MEMORY");
		set_env(in, "SGPU_WORKERS");
		set_env(in, "SGPU_FAIL");
	} else {
		unsetenv("SGPU_FAIL");
	}
	if (below(in, 16) == 0) {
		config.arena_base = number(in);
		config.arena_len = number(in);
		config.memory = number(in);
		config.workers = (uint32_t)number(in);
	}
	config.link_mbps = below(in, 8) ? 0 : (uint32_t)number(in);
	ret = sgpu_open(&config, gpu);
	if (ret && ret != -EINVAL && ret != -ENOMEM)
		wrong("open returned %d: %s", ret, sgpu_error(NULL));
	if (ret && !*sgpu_error(NULL))
		wrong("open returned %d and says nothing", ret);
	return ret;
}

static int lowest_fd(void)
{
	int fd = dup(2);

	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { .at = data, .end = data + size };
	struct life l = { .in = &in, .deadline_ms = 5000 };
	int fd = lowest_fd();

	memset(&device, 0, sizeof(device));
	device.in = &in;
	device.now = 1000000000;
	if (!open_gpu(&in, &l.gpu)) {
		device.gpu = l.gpu;
		live(&l);
		sgpu_close(l.gpu);
	}
	if (lowest_fd() != fd)
		wrong("file descriptors leak");
	return 0;
}
