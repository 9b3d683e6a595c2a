// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * op_device.c - the life of devices: made, filled, attached, reset, dead
 */
#include <stdio.h>
#include <string.h>

#include "tests/sim/torture.h"

static void tdev_new(struct tdev *d)
{
	unsigned int frames = t.tight ? 2 + (unsigned int)sim_below(10)
				      : 64 + (unsigned int)sim_below(64);
	unsigned int caps = GM_CAP_REPLAY, i;

	if (!sim_chance(4))
		caps |= GM_CAP_WRITE_FAULT;
	if (sim_chance(2))
		caps |= GM_CAP_COPY_ENGINES;
	/* Large enough for several victims at once, and still too small. */
	if (t.tight && sim_chance(3))
		frames = 12 + (unsigned int)sim_below(20);
	d->dev = sim_dev_new(frames, caps, (unsigned int)sim_below(8));
	d->created = false;
	d->nr_ranges = 1 + (unsigned int)sim_below(GM_MIN(frames, MAX_RANGES));
	for (i = 0; i < d->nr_ranges; i++) {
		d->range_end[i] = frames * (i + 1) / d->nr_ranges;
		d->range_on[i] = false;
	}
}

static int tdev_create(struct tdev *d)
{
	char name[32];
	int err;

	snprintf(name, sizeof(name), "sim%u", d->dev->index);
	err = CALL(gm_dev_create(&d->dev->ops, d->dev, name, d->dev->caps,
				 &d->dev->dev));
	if (err) {
		SIM_CHECK(err == -ENOMEM, "dev_create: error %d", err);
		return err;
	}
	d->created = true;
	d->node = gm_dev_node(d->dev->dev);
	return 0;
}

static void tdev_frames(struct tdev *d, unsigned int i, bool on)
{
	unsigned int f;

	for (f = i ? d->range_end[i - 1] : 0; f < d->range_end[i]; f++)
		d->dev->registered[f] = on;
}

static uint64_t tdev_begin(const struct tdev *d, unsigned int i)
{
	return d->dev->base + (i ? d->range_end[i - 1] : 0) * GM_PAGE_SIZE;
}

static uint64_t tdev_end(const struct tdev *d, unsigned int i)
{
	return d->dev->base + d->range_end[i] * GM_PAGE_SIZE;
}

static int tdev_register(struct tdev *d, unsigned int i)
{
	int err;

	tdev_frames(d, i, true);
	err = CALL(gm_dev_register_physmem(d->dev->dev, tdev_begin(d, i),
					   tdev_end(d, i)));
	d->range_on[i] = !err;
	if (err) {
		SIM_CHECK(err == -ENOMEM || (err == -ENODEV && d->dev->dead),
			  "register_physmem: error %d", err);
		tdev_frames(d, i, false);
	}
	return err;
}

/* No page table of the device may know these frames any more. */
static void tdev_check_unmapped(struct tdev *d, unsigned int first,
				unsigned int end)
{
	unsigned int a, i;

	if (d->dev->dead)
		return;
	for (a = 0; a < t.cfg.nr_as; a++) {
		const struct sim_ctx *ctx = d->dev->ctxs[a];

		for (i = 0; ctx && i < ctx->as->nr_slots; i++)
			SIM_CHECK(!ctx->pt[i].frame ||
					  ctx->pt[i].frame - 1 < first ||
					  ctx->pt[i].frame - 1 >= end,
				  "a frame taken back is still mapped");
	}
}

static int tdev_unregister(struct tdev *d, unsigned int i)
{
	int err = CALL(gm_dev_unregister_physmem(d->dev->dev, tdev_begin(d, i),
						 tdev_end(d, i)));

	if (err) {
		SIM_CHECK(err == -ENOMEM || err == -EBUSY || sim.injected ||
				  d->dev->dead,
			  "unregister_physmem: error %d", err);
		return err;
	}
	tdev_check_unmapped(d, i ? d->range_end[i - 1] : 0, d->range_end[i]);
	d->range_on[i] = false;
	tdev_frames(d, i, false);
	return 0;
}

static int tdev_attach(struct tdev *d, unsigned int as)
{
	struct sim_ctx *ctx = sim_ctx_new(d->dev, sim.as[as]);
	int err;

	if (sim_chance(8)) {
		ctx->refuse_start =
			SIM_BASE + sim_below(ctx->as->nr_slots) * GM_PAGE_SIZE;
		ctx->refuse_end = ctx->refuse_start + 2 * GM_PAGE_SIZE;
	}
	/* Faults may come before the call has returned, not from our cores. */
	err = CALL(gm_as_attach(&ctx->as->as, d->dev->dev, ctx));
	if (err) {
		SIM_CHECK(err == -ENOMEM || err == -EADDRINUSE ||
				  err == -ENODEV || sim.injected,
			  "attach: error %d", err);
		SIM_CHECK(ctx->examined == 0 ||
				  !(d->dev->flags & SIM_DEV_RELEASE),
			  "attach failed with addresses still examined");
		sim_ctx_free(ctx);
		return err;
	}
	ctx->attached = true;
	return 0;
}

static int tdev_detach(struct tdev *d, struct sim_ctx *ctx)
{
	uint64_t word;
	unsigned int i;
	int err;

	sim_ctx_stop(ctx);
	/* What an operator refuses to read back then is given up. */
	if (sim.inject && (sim.cfg.inject_ppm || sim.fail_call >= 0))
		for (i = 0; i < ctx->as->nr_slots; i++)
			model_lost(t.m[ctx->as->index], i);
	err = CALL(gm_as_detach(&ctx->as->as, d->dev->dev));
	if (err) {
		SIM_CHECK(err == -ENOMEM, "detach: error %d", err);
		if (d->dev->dev->health != GM_DEV_WELL)
			sim_dev_die(d->dev, false);
		ctx->stopped = false;
		return err;
	}
	for (i = 0; i < ctx->as->nr_slots; i++)
		SIM_CHECK(!ctx->pt[i].frame || d->dev->dead || sim.injected,
			  "page %u is still mapped after detach", i);
	SIM_CHECK(!(d->dev->flags & SIM_DEV_RELEASE) || !ctx->examined ||
			  d->dev->dead,
		  "detached with %ld pages of addresses still examined",
		  (long)ctx->examined);
	word = 0;
	sim.current->has_error = false;
	err = gm_dev_fault(&ctx->as->as, SIM_BASE + word, d->dev->dev, GM_READ);
	SIM_CHECK(err == -ENODEV, "a fault after detach: %d", err);
	sim_ctx_free(ctx);
	return 0;
}

static bool tdev_attached(const struct tdev *d)
{
	unsigned int a;

	for (a = 0; a < t.cfg.nr_as; a++)
		if (d->dev->ctxs[a])
			return true;
	return false;
}

static int tdev_destroy(struct tdev *d)
{
	bool used = tdev_attached(d);
	unsigned int i;
	int err;

	for (i = 0; i < d->nr_ranges; i++)
		used |= d->range_on[i];
	err = CALL(gm_dev_destroy(d->dev->dev));
	SIM_CHECK(err == (used ? -EBUSY : 0), "destroy: error %d", err);
	if (err)
		return err;
	d->created = false;
	sim_dev_free(d->dev);
	d->dev = NULL;
	return 0;
}

/* Towards its end: one step, which may fail and is then tried again later. */
static int tdev_wind_down(struct tdev *d)
{
	unsigned int a, i;

	for (a = 0; a < t.cfg.nr_as; a++)
		if (d->dev->ctxs[a])
			return tdev_detach(d, d->dev->ctxs[a]);
	for (i = 0; i < d->nr_ranges; i++)
		if (d->range_on[i])
			return tdev_unregister(d, i);
	return tdev_destroy(d);
}

int tdev_step(struct tdev *d, unsigned int as)
{
	unsigned int i;

	if (!d->dev) {
		tdev_new(d);
		return 0;
	}
	if (!d->created)
		return tdev_create(d);
	if (d->dev->dead)
		return tdev_wind_down(d);
	i = (unsigned int)sim_below(d->nr_ranges);
	switch (sim_below(16)) {
	case 0:
		return d->range_on[i] ? tdev_unregister(d, i) : 0;
	case 1:
		return d->dev->ctxs[as] ? tdev_detach(d, d->dev->ctxs[as]) : 0;
	case 2:
		return tdev_destroy(d);
	}
	if (!d->range_on[i])
		return tdev_register(d, i);
	if (!d->dev->ctxs[as])
		return tdev_attach(d, as);
	return 0;
}

static struct tdev *pick_tdev(void)
{
	struct tdev *d;

	if (!t.nr_devs)
		return NULL;
	d = &t.devs[sim_below(t.nr_devs)];
	return d->busy ? NULL : d;
}

int op_device(struct worker *w)
{
	struct tdev *d = pick_tdev();
	int err;

	if (!d)
		return OP_SKIPPED;
	d->busy = true;
	err = tdev_step(d, w->as);
	t.device_at = sim.steps;
	d->busy = false;
	return err;
}

int op_reset(struct worker *w)
{
	struct tdev *d = pick_tdev();
	struct sim_ctx *ctx;
	int err;

	if (!d || !d->dev || d->dev->dead || !d->dev->ctxs[w->as])
		return OP_SKIPPED;
	ctx = d->dev->ctxs[w->as];
	d->busy = true;
	sim_ctx_replace(ctx);
	sim_yield();
	err = CALL(gm_as_reset(&ctx->as->as, d->dev->dev));
	SIM_CHECK(!err || d->dev->dead, "reset: error %d", err);
	ctx->replacing = false;
	ctx->stopped = false;
	t.reset_at = sim.steps;
	d->busy = false;
	return err;
}

int op_death(struct worker *w __attribute__((unused)))
{
	struct tdev *d = pick_tdev();

	if (!d || !d->dev || !d->created || d->dev->lost)
		return OP_SKIPPED;
	d->busy = true;
	if (sim_chance(2)) {
		sim_dev_die(d->dev, true);
		gm_dev_lost(d->dev->dev);
		SIM_CHECK(!sim.current->nr_held, "dev_lost: a lock is held");
	} else {
		sim_dev_die(d->dev, false);
	}
	totals.deaths++;
	d->busy = false;
	return 0;
}

/*
 * Can the data of this page be lost with the device? Also if there is another
 * copy: until it hears of the death, the manager may drop that one.
 */
static bool survives(struct gm_entry *e, const struct gm_dev *dev)
{
	const struct gm_page *p;

	if (e->lock.owner)
		return false; /* nobody can tell just now */
	for (p = e->copies; p; p = p->next)
		if (p->nid == dev->node->nid)
			return false;
	return true;
}

/* Its memory goes, now: which pages may be gone with it? */
void torture_died(struct sim_dev *dev, bool lost)
{
	unsigned int a;
	uint64_t slot;

	if (!lost || !dev->dev)
		return;
	for (a = 0; a < t.cfg.nr_as; a++) {
		struct model *m = t.m[a];

		for (slot = 0; m && slot < m->nr_slots; slot++) {
			uint64_t va = SIM_BASE + slot * GM_PAGE_SIZE;
			struct gm_entry *e =
				torture_entry(&m->as->as, va, NULL);

			/* A copy over a page may have filled its successor,
			 * and half of an exchange may be there. */
			if (m->changing[slot] || m->claims[slot] ||
			    m->swaps[slot] || (e && !survives(e, dev->dev)))
				model_lost(m, slot);
		}
	}
}

void torture_setup_devices(void)
{
	unsigned int i, step;

	for (i = 0; i < t.nr_devs; i++)
		for (step = 0; step < 8; step++)
			tdev_step(&t.devs[i],
				  (unsigned int)sim_below(t.cfg.nr_as));
}

/* While there are address spaces, host memory may be too small for it. */
void torture_devices_end(bool must)
{
	unsigned int i, tries;

	for (i = 0; i < t.nr_devs; i++) {
		struct tdev *d = &t.devs[i];

		if (d->dev && !d->created) {
			sim_dev_free(d->dev);
			d->dev = NULL;
		}
		for (tries = 0; d->dev && tries < 100; tries++)
			tdev_wind_down(d);
		SIM_CHECK(!d->dev || !must, "a device cannot be taken down: %s",
			  sim.current->error);
	}
}
