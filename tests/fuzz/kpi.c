/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * kpi.c - devices come and go: operators, names, frames, in every order
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

#define MAX_RANGES 4
#define STEPS 12

struct range {
	uint64_t begin;
	uint64_t end;
};

struct device {
	struct gm_dev *dev;
	struct range ranges[MAX_RANGES];
	unsigned int nr;
	bool attached;
};

static struct gm_dev *create(struct input *in)
{
	static char name[40];
	struct gm_dev_ops ops = xpu_ops;
	struct gm_dev *dev = NULL;
	size_t len = below(in, 8) ? 1 + below(in, 31) : below(in, 39);
	bool bad = !len || len > 31;
	int rc;

	switch (below(in, 16)) {
	case 0:
		ops.size = (uint32_t)number(in);
		bad |= ops.size < sizeof(ops);
		break;
	case 1:
		ops.version = (uint32_t)number(in);
		bad |= ops.version != GM_DEV_OPS_VERSION;
		break;
	case 2:
		ops.va_examine = NULL;
		bad = true;
		break;
	case 3:
		ops.pmap_clear = NULL;
		bad = true;
		break;
	case 4:
		ops.zero = NULL;
		bad = true;
		break;
	}
	memset(name, 'n', len);
	name[len] = 0;
	rc = gm_dev_create(&ops, &xpu, name, (unsigned int)number(in), &dev);
	if (rc)
		failed("create", -rc, bad ? EINVAL : ENOSPC);
	if (!rc && bad)
		wrong("a device that cannot be");
	return rc ? NULL : dev;
}

static bool overlaps(const struct device *d, uint64_t begin, uint64_t end)
{
	for (unsigned int i = 0; i < d->nr; i++) {
		if (begin < d->ranges[i].end && d->ranges[i].begin < end)
			return true;
	}
	return false;
}

static uint64_t frame(struct input *in)
{
	uint64_t v = below(in, 4) ? below(in, 64) << GM_PAGE_SHIFT : number(in);

	return below(in, 8) ? v & ~GM_PAGE_MASK : v;
}

static void add(struct device *d, struct input *in)
{
	uint64_t begin = frame(in), end = frame(in);
	bool bad = begin >= end || (begin | end) & GM_PAGE_MASK;
	int rc;

	/* What is described costs memory: a few, or more than there can be. */
	if (d->nr == MAX_RANGES ||
	    (!bad && end - begin > 1ull << 34 && end - begin < 1ull << 62))
		return;
	rc = gm_dev_register_physmem(d->dev, begin, end);
	if (!rc) {
		if (bad || overlaps(d, begin, end))
			wrong("frames that cannot be");
		d->ranges[d->nr++] = (struct range){ begin, end };
	} else if (bad) {
		failed("register", -rc, EINVAL);
	} else if (overlaps(d, begin, end)) {
		failed("register", -rc, EEXIST, ENOMEM);
	} else {
		failed("register", -rc, ENOMEM);
	}
}

static void take_back(struct device *d, struct input *in)
{
	uint64_t begin = frame(in), end = frame(in);
	unsigned int i = (unsigned int)below(in, MAX_RANGES);
	int rc;

	if (below(in, 2) && i < d->nr) {
		begin = d->ranges[i].begin;
		end = d->ranges[i].end;
	}
	rc = gm_dev_unregister_physmem(d->dev, begin, end);
	if (rc)
		failed("unregister", -rc, ENOENT);
	for (i = 0; i < d->nr; i++) {
		if (d->ranges[i].begin == begin && d->ranges[i].end == end)
			break;
	}
	if (!rc == (i == d->nr))
		wrong("unregister: %d", rc);
	if (!rc)
		d->ranges[i] = d->ranges[--d->nr];
}

/* Returns whether it is gone. */
static bool destroy(struct device *d)
{
	int rc = gm_dev_destroy(d->dev);

	if (rc)
		failed("destroy", -rc, EBUSY);
	if (!rc == (d->nr || d->attached))
		wrong("destroy: %d, with %u ranges", rc, d->nr);
	return !rc;
}

static void attach(struct device *d)
{
	int rc = gm_as_attach(gm_as_current(), d->dev, &xpu);

	if (rc)
		failed("attach", -rc, EEXIST);
	if (!rc == d->attached)
		wrong("attach: %d", rc);
	d->attached = true;
}

static void detach(struct device *d)
{
	int rc = gm_as_detach(gm_as_current(), d->dev);

	if (rc)
		failed("detach", -rc, ENOENT);
	if (!rc != d->attached)
		wrong("detach: %d", rc);
	d->attached = false;
}

void do_kpi(struct input *in)
{
	struct device d = { .dev = create(in) };
	enum gm_access access = GM_READ;
	int status;

	for (unsigned int i = 0; d.dev && i < STEPS; i++) {
		uint64_t va = (uint64_t)window;

		switch (below(in, 6)) {
		case 0 ... 1:
			add(&d, in);
			break;
		case 2:
			take_back(&d, in);
			break;
		case 3:
			if (destroy(&d))
				return;
			break;
		case 4:
			if (below(in, 2))
				attach(&d);
			else
				detach(&d);
			break;
		case 5: /* with no frames, or not attached: served it is not */
			if (!d.nr || !d.attached)
				gm_dev_fault_many(gm_as_current(), &va, 1,
						  d.dev, &access, &status);
			break;
		}
	}
	if (!d.dev)
		return;
	if (d.attached)
		detach(&d);
	while (d.nr) {
		struct range r = d.ranges[--d.nr];

		if (gm_dev_unregister_physmem(d.dev, r.begin, r.end))
			wrong("unregister at the end: %s", gm_error());
	}
	if (!destroy(&d))
		wrong("destroy at the end: %s", gm_error());
}
