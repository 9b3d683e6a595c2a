/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * runtime.h - inside libsgpu
 *
 *	config.c	what was asked for, checked
 *	context.c	the device process: start, death, restart
 *	module.c	modules and kernels, over the socket
 *	launch.c	streams, launches, sync, reset
 *	command.c	page table commands
 *	fault.c		the fault queue
 *	bell.c		waiting for the device, or for ourselves
 *	memory.c	the memory window: frames, copies, the link
 *	stream.c	the copy engine's loop
 *	inject.c	failures on demand
 *
 * Lock order: C (context), then S (socket), then L (launches), then E (state).
 */
#ifndef SGPU_RUNTIME_H
#define SGPU_RUNTIME_H

#include <pthread.h>
#include <stdarg.h>
#include <sys/types.h>

#include "../wire.h"
#include "sgpu.h"
#include "sgpu_hw.h"

#define SGPU_API __attribute__((visibility("default")))

#define SGPU_ERROR_MAX 512
#define SGPU_NAME_MAX 128
#define SGPU_MESSAGE_TIMEOUT_MS 20000

/**
 * enum gpu_state - whether there is a context
 * @GPU_RUNS: yes
 * @GPU_DEAD: its process is gone; a restart is due
 * @GPU_GONE: for good
 */
enum gpu_state { GPU_RUNS, GPU_DEAD, GPU_GONE };

enum inject_what {
	INJECT_MAP,
	INJECT_UNMAP,
	INJECT_PROTECT,
	INJECT_COPY,
	INJECT_ZERO,
	INJECT_DIE,
	INJECT_HANG,
	INJECT_LOST,
	INJECT_NR
};

struct inject {
	uint64_t left[INJECT_NR]; /* 1: the next one fails; 0: none does */
	bool on[INJECT_NR]; /* and all that follow */
};

struct sgpu_module {
	struct sgpu_module *next; /* S */
	struct sgpu *gpu;
	uint32_t id;
	char path[];
};

struct sgpu_kernel {
	struct sgpu_kernel *next; /* S */
	struct sgpu_module *module;
	uint32_t id;
	char name[];
};

struct sgpu_stream {
	struct sgpu_stream *next; /* L */
	struct sgpu *gpu;
	uint64_t id;
	uint64_t last; /* L: id of its latest launch, 0 before any */
};

/* What the runtime itself remembers of a launch. */
struct launch {
	uint64_t id;
	const char *kernel;
};

struct sgpu {
	/* Constant after open. */
	struct sgpu_config config;
	char *program;
	unsigned int generation; /* of forks, when it was opened */
	struct wire_control *control;
	unsigned char *window;
	int control_fd;
	int memory_fd;
	int stop_fd; /* ends the monitor */

	/* The context. C: starting one; commands hold it shared. */
	pthread_rwlock_t context_lock;
	int socket; /* S */
	pthread_t monitor; /* C */
	bool monitored; /* C */

	pthread_mutex_t socket_lock; /* S */
	struct sgpu_module *modules; /* S */
	struct sgpu_kernel *kernels; /* S */
	uint32_t nr_modules; /* S */
	uint32_t nr_kernels; /* S */

	pthread_mutex_t launch_lock; /* L */
	struct launch ring[WIRE_LAUNCHES]; /* L */
	uint64_t head; /* L: next id */
	uint64_t tail; /* L: launches below it have ended */
	uint64_t dropped; /* L: launches below it that did not end never will */
	uint64_t next_stream; /* L */
	struct sgpu_stream stream0; /* L */
	struct sgpu_stream *streams; /* L */

	pthread_mutex_t lock; /* E */
	pthread_cond_t changed; /* E: state */
	_Atomic int state; /* written under E */
	_Atomic uint64_t epoch; /* written under E: the context's number */
	int pidfd; /* E */
	pid_t pid; /* E */
	int sticky; /* E */
	bool dying; /* E: killed, its end not seen yet */
	bool doomed; /* E: the next death is for good */
	bool told; /* E: somebody waits for faults and knows of the death */
	bool bound; /* E */
	int (*on_close)(struct sgpu *gpu); /* E */
	_Atomic bool stopping; /* fault waits are over */
	_Atomic bool lost; /* the memory, too */
	char error[SGPU_ERROR_MAX]; /* E */

	_Atomic uint32_t own_bell; /* rung at a death, a stop, the end */

	/* Commands. */
	_Atomic uint32_t claimed; /* bit i: command i is in use */
	_Atomic uint32_t claimants; /* wait for one */
	_Atomic uint32_t deadline_ms;
	struct wire_spin command_spin;
	struct wire_spin fault_spin;
	struct wire_spin sync_spin;

	/* Memory. */
	_Atomic uint64_t *ready; /* bit i: frame i is a huge page by now */
	_Atomic uint64_t link_busy[2]; /* until when, each direction */

	pthread_mutex_t inject_lock;
	_Atomic bool injecting;
	struct inject inject; /* inject_lock */
};

/* What a thread that waits has heard; the first three are the caller's. */
struct ear {
	struct sgpu *gpu;
	_Atomic uint32_t *bell; /* the device's, with its companion */
	_Atomic uint32_t *sleeps;
	uint32_t heard;
	uint32_t own;
};

/* config.c */
int config_resolve(const struct sgpu_config *config, struct sgpu *gpu);
void open_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* context.c */
int gpu_check(struct sgpu *gpu);
void gpu_error(struct sgpu *gpu, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int context_start_locked(struct sgpu *gpu);
void context_stop(struct sgpu *gpu);
/* Make @err sticky, if none is, and end the context of @epoch. */
void context_fail(struct sgpu *gpu, uint64_t epoch, int err, const char *fmt,
		  ...) __attribute__((format(printf, 4, 5)));
/* End the GPU for good; returns when no context can run any more. */
int gpu_gone(struct sgpu *gpu, int err, bool lost, const char *why);

/* module.c */
int modules_reload_locked(struct sgpu *gpu);
int message(struct sgpu *gpu, struct wire_msg *msg);
void modules_free(struct sgpu *gpu);

/* launch.c */
const char *launch_name(struct sgpu *gpu, uint64_t id);
void launches_drop(struct sgpu *gpu);
bool launches_running(struct sgpu *gpu);
void streams_free(struct sgpu *gpu);

/* memory.c */
int shared_file(const char *name, uint64_t len);
void stream_copy(void *dst, const void *src, size_t len);
int memory_init(struct sgpu *gpu);
void memory_fini(struct sgpu *gpu);
void frames_ready(struct sgpu *gpu, uint64_t daddr, uint64_t len);

/* bell.c: read, look whether there is something, and if not, wait */
void bell_read(struct ear *ear);
void bell_wait(struct ear *ear, struct wire_spin *spin);
void bell_ring(struct sgpu *gpu);

/* inject.c */
int inject_parse(const char *spec, struct inject *out);
bool inject_hit(struct sgpu *gpu, enum inject_what what);

#endif /* SGPU_RUNTIME_H */
