/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* open.c - a GPU from open to close; errors; forks */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "runtime.h"

#define DEADLINE_MS 5000

static _Atomic unsigned int forks;
static __thread char open_text[SGPU_ERROR_MAX];

void open_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(open_text, sizeof(open_text), fmt, ap);
	va_end(ap);
}

static void after_fork(void)
{
	atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, after_fork);
}

int gpu_check(struct sgpu *gpu)
{
	if (!gpu)
		return -EINVAL;
	return gpu->generation == atomic_load_explicit(&forks,
						       memory_order_relaxed)
		       ? 0
		       : -ENODEV;
}

static int control_init(struct sgpu *gpu)
{
	void *p;

	gpu->control_fd =
		shared_file("sgpu-control", sizeof(struct wire_control));
	if (gpu->control_fd < 0)
		return gpu->control_fd;
	p = mmap(NULL, sizeof(struct wire_control), PROT_READ | PROT_WRITE,
		 MAP_SHARED, gpu->control_fd, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	gpu->control = p;
	madvise(p, sizeof(struct wire_control), MADV_DONTFORK);
	gpu->stop_fd = eventfd(0, EFD_CLOEXEC);
	return gpu->stop_fd < 0 ? -ENOMEM : 0;
}

static struct sgpu *new_gpu(void)
{
	struct sgpu *gpu = calloc(1, sizeof(*gpu));

	if (!gpu)
		return NULL;
	gpu->generation = atomic_load(&forks);
	gpu->control_fd = gpu->memory_fd = gpu->stop_fd = -1;
	gpu->socket = gpu->pidfd = -1;
	gpu->state = GPU_DEAD;
	gpu->epoch = 1;
	gpu->head = gpu->tail = 1;
	gpu->next_stream = 1;
	gpu->stream0.gpu = gpu;
	gpu->deadline_ms = DEADLINE_MS;
	pthread_rwlock_init(&gpu->context_lock, NULL);
	pthread_mutex_init(&gpu->socket_lock, NULL);
	pthread_mutex_init(&gpu->launch_lock, NULL);
	pthread_mutex_init(&gpu->lock, NULL);
	pthread_mutex_init(&gpu->inject_lock, NULL);
	pthread_cond_init(&gpu->changed, NULL);
	return gpu;
}

static void free_gpu(struct sgpu *gpu)
{
	const int fds[] = { gpu->control_fd, gpu->stop_fd, gpu->socket,
			    gpu->pidfd };

	modules_free(gpu);
	streams_free(gpu);
	memory_fini(gpu);
	if (gpu->control && !gpu_check(gpu))
		munmap(gpu->control, sizeof(*gpu->control));
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
	free(gpu->program);
	free(gpu);
}

SGPU_API int sgpu_open(const struct sgpu_config *config, struct sgpu **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct sgpu *gpu;
	int ret;

	if (!out)
		return -EINVAL;
	pthread_once(&once, watch_forks);
	open_error("out of memory");
	gpu = new_gpu();
	if (!gpu)
		return -ENOMEM;
	ret = config_resolve(config, gpu);
	if (!ret)
		ret = memory_init(gpu);
	if (!ret)
		ret = control_init(gpu);
	if (!ret) {
		pthread_rwlock_wrlock(&gpu->context_lock);
		ret = context_start_locked(gpu);
		pthread_rwlock_unlock(&gpu->context_lock);
		if (ret) {
			open_error("%s does not start: %s", gpu->program,
				   strerror(-ret));
			ret = ret == -ENOMEM ? ret : -EIO;
		}
	}
	if (ret) {
		free_gpu(gpu);
		return ret;
	}
	open_error("%s", "");
	*out = gpu;
	return 0;
}

/* What still runs ends, so that the driver need not wait for it. */
static int driver_lets_go(struct sgpu *gpu)
{
	int (*detach)(struct sgpu * gpu);

	pthread_mutex_lock(&gpu->lock);
	detach = gpu->on_close;
	pthread_mutex_unlock(&gpu->lock);
	if (!detach)
		return 0;
	if (launches_running(gpu)) {
		context_fail(gpu, atomic_load(&gpu->epoch), -ECANCELED,
			     "the GPU was closed");
		sgpu_reset(gpu); /* the driver has replaced the context */
	}
	return detach(gpu);
}

SGPU_API void sgpu_close(struct sgpu *gpu)
{
	if (!gpu)
		return;
	/* A fork lets go of what it inherited; the context is its parent's. */
	if (!gpu_check(gpu)) {
		if (driver_lets_go(gpu))
			return;
		context_stop(gpu);
	}
	free_gpu(gpu);
}

SGPU_API const char *sgpu_error(struct sgpu *gpu)
{
	if (!gpu)
		return open_text;
	if (gpu_check(gpu))
		return "this process was forked from the one that opened the "
		       "GPU; it must open its own";
	return gpu->error;
}
