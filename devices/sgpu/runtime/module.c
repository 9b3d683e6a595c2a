/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* module.c - modules and kernels, over the socket */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime.h"

#define TEXT_AT offsetof(struct wire_msg, text)

/*
 * Send and wait for the answer; HELLO is an answer to nothing.
 * Return: 0; -ECONNRESET if there is no device to answer; -ETIMEDOUT.
 */
int message(struct sgpu *gpu, struct wire_msg *msg)
{
	struct pollfd fd = { .fd = gpu->socket, .events = POLLIN };
	uint32_t verb = msg->verb;
	ssize_t n;
	int ret;

	/* One that answers has read: there is room, or it is not to be trusted. */
	if (verb != WIRE_HELLO &&
	    send(gpu->socket, msg, TEXT_AT + strlen(msg->text) + 1,
		 MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -ECONNRESET;
	do {
		ret = poll(&fd, 1, SGPU_MESSAGE_TIMEOUT_MS);
	} while (ret < 0 && errno == EINTR);
	if (ret == 0)
		return -ETIMEDOUT;
	n = recv(gpu->socket, msg, sizeof(*msg), MSG_DONTWAIT);
	if (n <= (ssize_t)TEXT_AT || msg->verb != verb)
		return -ECONNRESET;
	msg->text[n - (ssize_t)TEXT_AT - 1] = 0;
	return 0;
}

static int load_locked(struct sgpu *gpu, const struct sgpu_module *module,
		       struct wire_msg *msg)
{
	int ret;

	memset(msg, 0, TEXT_AT);
	msg->verb = WIRE_LOAD;
	msg->module = module->id;
	strcpy(msg->text, module->path);
	ret = message(gpu, msg);
	if (!ret && msg->status) {
		gpu_error(gpu, "%s: %.400s", module->path, msg->text);
		ret = -ENOEXEC;
	}
	return ret;
}

static int find_locked(struct sgpu *gpu, const struct sgpu_kernel *kernel,
		       struct wire_msg *msg)
{
	int ret;

	memset(msg, 0, TEXT_AT);
	msg->verb = WIRE_FIND;
	msg->module = kernel->module->id;
	msg->kernel = kernel->id;
	strcpy(msg->text, kernel->name);
	ret = message(gpu, msg);
	if (!ret && msg->status) {
		gpu_error(gpu, "no kernel %s in %s", kernel->name,
			  kernel->module->path);
		ret = -ENOENT;
	}
	return ret;
}

/* A new context gets what the old one had, under the same ids. */
int modules_reload_locked(struct sgpu *gpu)
{
	struct wire_msg *msg = malloc(sizeof(*msg));
	int ret = msg ? 0 : -ENOMEM;

	for (struct sgpu_module *m = gpu->modules; m && !ret; m = m->next)
		ret = load_locked(gpu, m, msg);
	for (struct sgpu_kernel *k = gpu->kernels; k && !ret; k = k->next)
		ret = find_locked(gpu, k, msg);
	free(msg);
	return ret;
}

/* Hold the context for a message. Return: as gpu_check(), the sticky error. */
static int enter(struct sgpu *gpu)
{
	int ret = gpu_check(gpu);

	if (ret)
		return ret;
	pthread_rwlock_rdlock(&gpu->context_lock);
	pthread_mutex_lock(&gpu->socket_lock);
	pthread_mutex_lock(&gpu->lock);
	ret = gpu->state == GPU_GONE ? -ENODEV : gpu->sticky;
	pthread_mutex_unlock(&gpu->lock);
	if (ret) {
		pthread_mutex_unlock(&gpu->socket_lock);
		pthread_rwlock_unlock(&gpu->context_lock);
	}
	return ret;
}

/* A device that does not answer has lost the thread: start it anew. */
static int leave(struct sgpu *gpu, int ret)
{
	if (ret == -ETIMEDOUT || ret == -ECONNRESET) {
		context_fail(gpu, gpu->epoch, -ECANCELED,
			     "the context did not answer");
		ret = -ENODEV;
	}
	pthread_mutex_unlock(&gpu->socket_lock);
	pthread_rwlock_unlock(&gpu->context_lock);
	return ret;
}

SGPU_API int sgpu_module_load(struct sgpu *gpu, const char *path,
			      struct sgpu_module **out)
{
	struct sgpu_module *module = NULL;
	struct wire_msg *msg;
	char *real;
	int ret = gpu_check(gpu);

	if (ret || !path || !out)
		return ret ? ret : -EINVAL;
	/* The device need not have our working directory when it restarts. */
	real = realpath(path, NULL);
	if (!real) {
		ret = errno == ENOMEM ? -ENOMEM : -ENOENT;
		gpu_error(gpu, "%.400s: %s", path, strerror(errno));
		return ret;
	}
	msg = malloc(sizeof(*msg));
	if (strlen(real) < WIRE_TEXT)
		module = calloc(1, sizeof(*module) + strlen(real) + 1);
	ret = msg && module ? enter(gpu) : -ENOMEM;
	if (ret)
		goto out;
	strcpy(module->path, real);
	module->gpu = gpu;
	module->id = gpu->nr_modules;
	ret = module->id < WIRE_MODULES ? load_locked(gpu, module, msg)
					: -ENOMEM;
	if (!ret) {
		gpu->nr_modules++;
		module->next = gpu->modules;
		gpu->modules = module;
		*out = module;
	}
	ret = leave(gpu, ret);
out:
	if (ret)
		free(module);
	free(msg);
	free(real);
	return ret;
}

/* What was found once is known, whatever has become of the context. */
static struct sgpu_kernel *known(struct sgpu_module *module, const char *name)
{
	struct sgpu_kernel *k;

	pthread_mutex_lock(&module->gpu->socket_lock);
	k = module->gpu->kernels;
	while (k && (k->module != module || strcmp(k->name, name)))
		k = k->next;
	pthread_mutex_unlock(&module->gpu->socket_lock);
	return k;
}

SGPU_API int sgpu_kernel_find(struct sgpu_module *module, const char *name,
			      struct sgpu_kernel **out)
{
	struct sgpu_kernel *kernel;
	struct wire_msg *msg;
	struct sgpu *gpu;
	int ret;

	if (!module || !name || !out)
		return -EINVAL;
	gpu = module->gpu;
	ret = gpu_check(gpu);
	if (ret)
		return ret;
	if (strlen(name) >= SGPU_NAME_MAX)
		return -ENOENT;
	kernel = known(module, name);
	if (kernel) {
		*out = kernel;
		return 0;
	}
	msg = malloc(sizeof(*msg));
	kernel = calloc(1, sizeof(*kernel) + strlen(name) + 1);
	ret = msg && kernel ? enter(gpu) : -ENOMEM;
	if (ret)
		goto out;
	strcpy(kernel->name, name);
	kernel->module = module;
	kernel->id = gpu->nr_kernels;
	ret = kernel->id < WIRE_KERNELS ? find_locked(gpu, kernel, msg)
					: -ENOMEM;
	if (!ret) {
		gpu->nr_kernels++;
		kernel->next = gpu->kernels;
		gpu->kernels = kernel;
		*out = kernel;
	}
	ret = leave(gpu, ret);
out:
	if (ret)
		free(kernel);
	free(msg);
	return ret;
}

void modules_free(struct sgpu *gpu)
{
	while (gpu->kernels) {
		struct sgpu_kernel *k = gpu->kernels;

		gpu->kernels = k->next;
		free(k);
	}
	while (gpu->modules) {
		struct sgpu_module *m = gpu->modules;

		gpu->modules = m->next;
		free(m);
	}
}
