/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* memory.c - the memory window: frames, copies, the link */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Sealed: a device that made it shorter would have us killed by SIGBUS. */
int shared_file(const char *name, uint64_t len)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0) {
		open_error("cannot make %s: %s", name, strerror(errno));
		return -ENOMEM;
	}
	if (ftruncate(fd, (off_t)len) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		open_error("no %llu bytes for %s: %s", (unsigned long long)len,
			   name, strerror(errno));
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

/* A 2 MiB aligned place for the window, without leaving the slack mapped. */
static void *map_window(int fd, uint64_t len)
{
	char *p = mmap(NULL, len + WIRE_PAGE, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *window;
	void *q;

	if (p == MAP_FAILED)
		return p;
	window = (char *)(((uintptr_t)p + WIRE_PAGE - 1) & ~(WIRE_PAGE - 1));
	if (window > p)
		munmap(p, (size_t)(window - p));
	if (p + WIRE_PAGE > window)
		munmap(window + len, (size_t)(p + WIRE_PAGE - window));
	q = mmap(window, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 fd, 0);
	if (q == MAP_FAILED)
		munmap(window, len);
	return q;
}

int memory_init(struct sgpu *gpu)
{
	uint64_t frames = gpu->config.memory >> WIRE_PAGE_SHIFT;
	void *p;

	gpu->ready = calloc(frames / 64 + 1, sizeof(*gpu->ready));
	if (!gpu->ready)
		return -ENOMEM;
	gpu->memory_fd = shared_file("sgpu-memory", gpu->config.memory);
	if (gpu->memory_fd < 0)
		return gpu->memory_fd;
	p = map_window(gpu->memory_fd, gpu->config.memory);
	if (p == MAP_FAILED) {
		open_error("no addresses for a memory of %llu bytes: %s",
			   (unsigned long long)gpu->config.memory,
			   strerror(errno));
		return -ENOMEM;
	}
	gpu->window = p;
	madvise(p, gpu->config.memory, MADV_DONTFORK);
	return 0;
}

void memory_fini(struct sgpu *gpu)
{
	/* A child of fork() never had the window. */
	if (gpu->window && !gpu_check(gpu))
		munmap(gpu->window, gpu->config.memory);
	if (gpu->memory_fd >= 0)
		close(gpu->memory_fd);
	free((void *)gpu->ready);
}

/*
 * Make frames huge pages at their first use: MADV_COLLAPSE works where huge
 * pages of shared memory are off, but on a fresh page it costs milliseconds,
 * too much to do for all of them at start. Where it fails the frame is small
 * pages: slower, and right.
 */
void frames_ready(struct sgpu *gpu, uint64_t daddr, uint64_t len)
{
	uint64_t end = (daddr + len + WIRE_PAGE - 1) >> WIRE_PAGE_SHIFT;

	for (uint64_t f = daddr >> WIRE_PAGE_SHIFT; f < end; f++) {
		unsigned char *frame = gpu->window + (f << WIRE_PAGE_SHIFT);
		uint64_t bit = 1ull << f % 64;

		if (atomic_load_explicit(&gpu->ready[f / 64],
					 memory_order_relaxed) &
		    bit)
			continue;
		/* A page table is needed, and one page, for a start. */
		madvise(frame, 4096, MADV_POPULATE_READ);
		madvise(frame, WIRE_PAGE, MADV_COLLAPSE);
		atomic_fetch_or(&gpu->ready[f / 64], bit);
	}
}

/* When a copy that comes now is through the link, at its configured speed. */
static uint64_t link_reserve(struct sgpu *gpu, enum sgpu_hw_dir dir,
			     uint64_t len)
{
	_Atomic uint64_t *busy = &gpu->link_busy[dir == SGPU_HW_FROM_DEV];
	uint64_t ns, old, now, end;

	if (!gpu->config.link_mbps || dir == SGPU_HW_IN_DEV)
		return 0;
	ns = len * 1000 / gpu->config.link_mbps;
	now = wire_now();
	old = atomic_load(busy);
	do {
		end = (old > now ? old : now) + ns;
	} while (!atomic_compare_exchange_weak(busy, &old, end));
	return end;
}

static void wait_until(uint64_t end)
{
	struct timespec ts = {
		.tv_sec = (time_t)(end / 1000000000u),
		.tv_nsec = (long)(end % 1000000000u),
	};

	while (end && wire_now() < end)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static bool inside(const struct sgpu *gpu, uint64_t daddr, uint64_t len)
{
	return len <= gpu->config.memory && daddr <= gpu->config.memory - len;
}

/* What a copy or a fill meets before it begins. */
static int begin(struct sgpu *gpu, enum inject_what what)
{
	int ret = gpu_check(gpu);

	if (ret)
		return ret;
	if (inject_hit(gpu, INJECT_LOST))
		return gpu_gone(gpu, -ENODEV, true, "its memory is lost");
	if (atomic_load(&gpu->state) == GPU_GONE)
		return -ENODEV;
	return inject_hit(gpu, what) ? -EIO : 0;
}

SGPU_API int sgpu_hw_copy(struct sgpu *gpu, enum sgpu_hw_dir dir, uint64_t dst,
			  uint64_t src, uint64_t len)
{
	void *to = (void *)(uintptr_t)dst;
	const void *from = (const void *)(uintptr_t)src;
	uint64_t end;
	int ret = begin(gpu, INJECT_COPY);

	if (ret || !len)
		return ret;
	if (dir != SGPU_HW_FROM_DEV) {
		if (!inside(gpu, dst, len))
			return -EINVAL;
		frames_ready(gpu, dst, len);
		to = gpu->window + dst;
	}
	if (dir != SGPU_HW_TO_DEV) {
		if (!inside(gpu, src, len))
			return -EINVAL;
		frames_ready(gpu, src, len);
		from = gpu->window + src;
	}
	end = link_reserve(gpu, dir, len);
	/* What is little goes to host memory to be read there at once. */
	if (dir == SGPU_HW_FROM_DEV && len < WIRE_PAGE / 4)
		memcpy(to, from, len);
	else
		stream_copy(to, from, len);
	wait_until(end);
	return 0;
}

SGPU_API int sgpu_hw_zero(struct sgpu *gpu, uint64_t daddr, uint64_t len)
{
	int ret = begin(gpu, INJECT_ZERO);

	if (ret || !len)
		return ret;
	if (!inside(gpu, daddr, len))
		return -EINVAL;
	frames_ready(gpu, daddr, len);
	memset(gpu->window + daddr, 0, len);
	return 0;
}
