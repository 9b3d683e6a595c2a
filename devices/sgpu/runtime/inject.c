/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* inject.c - failures on demand */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static const char *const names[INJECT_NR] = {
	[INJECT_MAP] = "map",	      [INJECT_UNMAP] = "unmap",
	[INJECT_PROTECT] = "protect", [INJECT_COPY] = "copy",
	[INJECT_ZERO] = "zero",	      [INJECT_DIE] = "die",
	[INJECT_HANG] = "hang",	      [INJECT_LOST] = "lost",
};

static int parse_one(const char **s, struct inject *inject)
{
	size_t len = strcspn(*s, ":");
	char *end;

	for (int i = 0; i < INJECT_NR; i++) {
		const char *digits = *s + len + 1;

		if (strlen(names[i]) != len || strncmp(*s, names[i], len))
			continue;
		if ((*s)[len] != ':' || *digits < '0' || *digits > '9')
			return -EINVAL;
		errno = 0;
		inject->left[i] = strtoull(digits, &end, 10);
		if (errno || !inject->left[i])
			return -EINVAL;
		inject->on[i] = *end == '+';
		*s = end + inject->on[i];
		return 0;
	}
	return -EINVAL;
}

int inject_parse(const char *spec, struct inject *out)
{
	struct inject inject = { 0 };

	for (const char *s = spec; s && *s;) {
		int ret = parse_one(&s, &inject);

		if (ret)
			return ret;
		if (*s == ',' && s[1])
			s++;
		else if (*s)
			return -EINVAL;
	}
	*out = inject;
	return 0;
}

bool inject_hit(struct sgpu *gpu, enum inject_what what)
{
	struct inject *inject = &gpu->inject;
	bool hit = false;

	if (!atomic_load_explicit(&gpu->injecting, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&gpu->inject_lock);
	if (inject->left[what]) {
		hit = inject->left[what] == 1;
		if (!hit || !inject->on[what])
			inject->left[what]--;
	}
	pthread_mutex_unlock(&gpu->inject_lock);
	return hit;
}

SGPU_API int sgpu_hw_inject(struct sgpu *gpu, const char *spec)
{
	struct inject inject;
	int ret = gpu_check(gpu);

	if (!ret)
		ret = inject_parse(spec, &inject);
	if (ret)
		return ret;
	pthread_mutex_lock(&gpu->inject_lock);
	gpu->inject = inject;
	gpu->injecting = spec && *spec;
	pthread_mutex_unlock(&gpu->inject_lock);
	return 0;
}
