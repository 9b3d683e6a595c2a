/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* launch.c - streams, launches, sync, reset */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

#define RESET_TIMEOUT_S 30

static struct ear listen_to_launches(struct sgpu *gpu)
{
	struct ear ear = { .gpu = gpu,
			   .bell = &gpu->control->done_bell,
			   .sleeps = &gpu->control->done_sleeps };

	bell_read(&ear);
	return ear;
}

/* Drops L while it waits for some launch to end. */
static void wait_locked(struct sgpu *gpu, struct ear *ear)
{
	pthread_mutex_unlock(&gpu->launch_lock);
	bell_wait(ear, &gpu->sync_spin);
	pthread_mutex_lock(&gpu->launch_lock);
}

static bool ended_locked(struct sgpu *gpu, uint64_t id)
{
	return id < gpu->tail ||
	       atomic_load(&gpu->control->launch[id % WIRE_LAUNCHES].done) ==
		       id;
}

static void advance_locked(struct sgpu *gpu)
{
	while (gpu->tail < gpu->head && ended_locked(gpu, gpu->tail))
		gpu->tail++;
}

/* The context that had them is dead; no launch follows until a reset. */
void launches_drop(struct sgpu *gpu)
{
	pthread_mutex_lock(&gpu->launch_lock);
	gpu->tail = gpu->head;
	pthread_mutex_unlock(&gpu->launch_lock);
}

bool launches_running(struct sgpu *gpu)
{
	bool running;

	pthread_mutex_lock(&gpu->launch_lock);
	advance_locked(gpu);
	running = gpu->tail < gpu->head;
	pthread_mutex_unlock(&gpu->launch_lock);
	return running;
}

/* @id comes from the device. Names live until sgpu_close(). */
const char *launch_name(struct sgpu *gpu, uint64_t id)
{
	const struct launch *l = &gpu->ring[id % WIRE_LAUNCHES];
	const char *name = "(none)";

	pthread_mutex_lock(&gpu->launch_lock);
	if (id && l->id == id)
		name = l->kernel;
	pthread_mutex_unlock(&gpu->launch_lock);
	return name;
}

static int status(struct sgpu *gpu)
{
	int ret;

	pthread_mutex_lock(&gpu->lock);
	ret = gpu->doomed ? -ENODEV : gpu->sticky;
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

static void post_locked(struct sgpu *gpu, struct sgpu_stream *stream,
			const struct sgpu_kernel *kernel, uint64_t grid,
			const void *args, size_t len)
{
	uint64_t id = gpu->head;
	struct wire_launch *l = &gpu->control->launch[id % WIRE_LAUNCHES];

	gpu->ring[id % WIRE_LAUNCHES] =
		(struct launch){ .id = id, .kernel = kernel->name };
	l->id = id;
	l->grid = grid;
	l->kernel = kernel->id;
	l->lane = (uint32_t)(stream->id % WIRE_LANES);
	l->len = (uint32_t)len;
	if (len)
		memcpy(l->args, args, len);
	stream->last = id;
	gpu->head++;
	atomic_store(&gpu->control->head, gpu->head);
	wire_ring(&gpu->control->launch_bell, &gpu->control->launch_sleeps);
}

SGPU_API int sgpu_launch(struct sgpu *gpu, struct sgpu_stream *stream,
			 struct sgpu_kernel *kernel, uint64_t grid,
			 const void *args, size_t len)
{
	unsigned char copy[SGPU_ARGS_MAX];
	int ret = gpu_check(gpu);

	if (ret)
		return ret;
	if (!stream)
		stream = &gpu->stream0;
	if (!kernel || kernel->module->gpu != gpu || stream->gpu != gpu ||
	    !grid || len > SGPU_ARGS_MAX || (len && !args))
		return -EINVAL;
	/* They may be on a page that is away, so not under a lock. */
	if (len)
		memcpy(copy, args, len);
	pthread_mutex_lock(&gpu->launch_lock);
	for (;;) {
		struct ear ear = listen_to_launches(gpu);

		ret = status(gpu);
		advance_locked(gpu);
		if (ret || gpu->head - gpu->tail < WIRE_LAUNCHES)
			break;
		wait_locked(gpu, &ear); /* the queue is full */
	}
	if (!ret)
		post_locked(gpu, stream, kernel, grid, copy, len);
	pthread_mutex_unlock(&gpu->launch_lock);
	return ret;
}

static void wait_stream(struct sgpu *gpu, struct sgpu_stream *stream)
{
	uint64_t last;

	pthread_mutex_lock(&gpu->launch_lock);
	last = stream ? stream->last : gpu->head - 1;
	for (;;) {
		struct ear ear = listen_to_launches(gpu);

		advance_locked(gpu);
		if (last < gpu->tail || (stream && ended_locked(gpu, last)))
			break;
		wait_locked(gpu, &ear);
	}
	pthread_mutex_unlock(&gpu->launch_lock);
}

SGPU_API int sgpu_sync(struct sgpu *gpu, struct sgpu_stream *stream)
{
	int ret = gpu_check(gpu);

	if (ret)
		return ret;
	if (stream && stream->gpu != gpu)
		return -EINVAL;
	wait_stream(gpu, stream);
	return status(gpu);
}

SGPU_API int sgpu_stream_create(struct sgpu *gpu, struct sgpu_stream **out)
{
	struct sgpu_stream *stream;
	int ret = gpu_check(gpu);

	if (ret || !out)
		return ret ? ret : -EINVAL;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return -ENOMEM;
	stream->gpu = gpu;
	pthread_mutex_lock(&gpu->launch_lock);
	stream->id = gpu->next_stream++;
	stream->next = gpu->streams;
	gpu->streams = stream;
	pthread_mutex_unlock(&gpu->launch_lock);
	*out = stream;
	return 0;
}

SGPU_API void sgpu_stream_destroy(struct sgpu_stream *stream)
{
	struct sgpu_stream **link;
	struct sgpu *gpu;

	if (!stream || gpu_check(stream->gpu))
		return;
	gpu = stream->gpu;
	wait_stream(gpu, stream);
	pthread_mutex_lock(&gpu->launch_lock);
	for (link = &gpu->streams; *link != stream;)
		link = &(*link)->next;
	*link = stream->next;
	pthread_mutex_unlock(&gpu->launch_lock);
	free(stream);
}

void streams_free(struct sgpu *gpu)
{
	while (gpu->streams) {
		struct sgpu_stream *stream = gpu->streams;

		gpu->streams = stream->next;
		free(stream);
	}
}

/* Until there is nothing that ends, nor a driver that has yet to restart. */
static int wait_context(struct sgpu *gpu)
{
	struct timespec ts;
	int ret = 0;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += RESET_TIMEOUT_S;
	pthread_mutex_lock(&gpu->lock);
	while (!ret && !gpu->doomed &&
	       (gpu->dying || (gpu->state == GPU_DEAD && gpu->bound)))
		ret = -pthread_cond_timedwait(&gpu->changed, &gpu->lock, &ts);
	if (gpu->doomed)
		ret = -ENODEV;
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

SGPU_API int sgpu_reset(struct sgpu *gpu)
{
	int ret = gpu_check(gpu);

	if (!ret)
		ret = wait_context(gpu);
	if (!ret)
		ret = sgpu_hw_restart(gpu); /* nothing to do under a driver */
	if (ret)
		return ret;
	pthread_mutex_lock(&gpu->lock);
	if (gpu->state == GPU_RUNS) {
		gpu->sticky = 0;
		gpu->error[0] = 0;
	}
	pthread_mutex_unlock(&gpu->lock);
	return 0;
}
