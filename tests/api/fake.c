/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include "fake.h"

/* Device addresses are no pointers: the manager must not use them as such. */
#define BASE ((uint64_t)0x40000000)

const char *const fake_ops[NR_OPS] = {
	[OP_EXAMINE] = "va_examine", [OP_ENTER] = "pmap_enter",
	[OP_CLEAR] = "pmap_clear",   [OP_COPY] = "memcpy",
	[OP_ZERO] = "zero",	     [OP_PROTECT] = "pmap_protect",
};

static int called(struct fake *f, enum fake_op op)
{
	unsigned int n = ++f->calls[op], at = f->fail_at[op];

	return at && (n == at || (f->fail_from && n > at)) ? f->error : 0;
}

static int examine(void *pmap, uint64_t va, uint64_t len)
{
	struct fake *f = pmap;
	int err = called(f, OP_EXAMINE);

	if (!err && va < f->refuse_below)
		err = -EADDRINUSE;
	if (!err)
		f->examined += (long)(len / PAGE);
	return err;
}

static void release(void *pmap, uint64_t va, uint64_t len)
{
	((struct fake *)pmap)->examined -= (long)(len / PAGE);
}

static int slot_of(struct fake *f, uint64_t va)
{
	for (int i = 0; i < FAKE_SLOTS; i++)
		if (f->va[i] == va)
			return i;
	return -1;
}

static int enter(void *pmap, const struct gm_pmap_run *run)
{
	struct fake *f = pmap;
	int err = called(f, OP_ENTER);

	if (err)
		return err;
	pthread_rwlock_wrlock(&f->lock);
	for (uint64_t o = 0; o < run->len; o += PAGE) {
		int i = slot_of(f, run->va + o);

		if (i < 0)
			i = slot_of(f, 0);
		f->va[i] = run->va + o;
		f->frame[i] = (run->daddr + o - BASE) / PAGE;
		f->prot[i] = run->prot;
	}
	pthread_rwlock_unlock(&f->lock);
	return 0;
}

static int clear(void *pmap, uint64_t va, uint64_t len)
{
	struct fake *f = pmap;
	int err = called(f, OP_CLEAR);

	if (err)
		return err;
	pthread_rwlock_wrlock(&f->lock);
	for (uint64_t o = 0; o < len; o += PAGE) {
		int i = slot_of(f, va + o);

		if (i >= 0)
			f->va[i] = 0;
	}
	pthread_rwlock_unlock(&f->lock);
	return 0;
}

static int protect(void *pmap, uint64_t va, uint64_t len, unsigned int prot)
{
	struct fake *f = pmap;
	int err = called(f, OP_PROTECT);

	if (err)
		return err;
	pthread_rwlock_wrlock(&f->lock);
	for (uint64_t o = 0; o < len; o += PAGE) {
		int i = slot_of(f, va + o);

		if (i >= 0)
			f->prot[i] = prot;
	}
	pthread_rwlock_unlock(&f->lock);
	return 0;
}

static void *device(struct fake *f, uint64_t daddr)
{
	return f->frames + (daddr - BASE);
}

static int copy(void *data, const struct gm_copy *c)
{
	struct fake *f = data;
	int err = called(f, OP_COPY);
	void *dst, *src;

	if (err)
		return err;
	dst = c->dir == GM_COPY_FROM_DEV ? (void *)(uintptr_t)c->dst
					 : device(f, c->dst);
	src = c->dir == GM_COPY_TO_DEV ? (void *)(uintptr_t)c->src
				       : device(f, c->src);
	memcpy(dst, src, c->len);
	return 0;
}

static int zero(void *data, uint64_t daddr, uint64_t len)
{
	struct fake *f = data;
	int err = called(f, OP_ZERO);

	if (!err)
		memset(device(f, daddr), 0, len);
	return err;
}

static const struct gm_dev_ops ops = {
	.size = sizeof(ops),
	.version = GM_DEV_OPS_VERSION,
	.va_examine = examine,
	.va_release = release,
	.pmap_enter = enter,
	.pmap_clear = clear,
	.pmap_protect = protect,
	.memcpy = copy,
	.zero = zero,
};

void fake_open(struct fake *f, size_t pages, unsigned int caps)
{
	memset(f, 0, sizeof(*f));
	pthread_rwlock_init(&f->lock, NULL);
	f->error = -EIO;
	f->pages = pages;
	f->frames = plain(pages * PAGE);
	/* What was there before must never be seen. */
	memset(f->frames, 0xa5, pages * PAGE);
	f->as = gm_as_current();
	ck_assert_msg(f->as != NULL, "%s", gm_error());
	ck_assert_int_eq(gm_dev_create(&ops, f, "fake", caps, &f->dev), 0);
	f->node = gm_dev_node(f->dev);
	ck_assert_int_eq(
		gm_dev_register_physmem(f->dev, BASE, BASE + pages * PAGE), 0);
}

int fake_attach(struct fake *f)
{
	return gm_as_attach(f->as, f->dev, f);
}

void fake_detach(struct fake *f)
{
	int ret = gm_as_detach(f->as, f->dev);

	ck_assert_msg(ret == 0, "%s", gm_error());
	for (int i = 0; i < FAKE_SLOTS && !f->gone; i++)
		ck_assert_uint_eq(f->va[i], 0);
	ck_assert_int_eq(f->examined, 0);
}

void fake_close(struct fake *f)
{
	int ret =
		gm_dev_unregister_physmem(f->dev, BASE, BASE + f->pages * PAGE);

	ck_assert_msg(ret == 0, "%s", gm_error());
	ret = gm_dev_destroy(f->dev);
	ck_assert_msg(ret == 0, "%s", gm_error());
	munmap(f->frames, f->pages * PAGE);
	pthread_rwlock_destroy(&f->lock);
}

void fake_heal(struct fake *f)
{
	for (int i = 0; i < NR_OPS; i++)
		f->fail_at[i] = 0;
	f->fail_from = 0;
}

/* Through the page table, if it allows that. */
static int access_once(struct fake *f, uint64_t addr, uint64_t *value,
		       int write)
{
	unsigned int need = write ? GM_PROT_WRITE : GM_PROT_READ;
	int i, done = 0;

	pthread_rwlock_rdlock(&f->lock);
	i = slot_of(f, addr & ~GM_PAGE_MASK);
	if (i >= 0 && (f->prot[i] & need)) {
		uint64_t *word = (uint64_t *)(f->frames + f->frame[i] * PAGE +
					      (addr & GM_PAGE_MASK));

		if (write)
			__atomic_store_n(word, *value, __ATOMIC_SEQ_CST);
		else
			*value = __atomic_load_n(word, __ATOMIC_SEQ_CST);
		done = 1;
	}
	pthread_rwlock_unlock(&f->lock);
	return done;
}

static int reach(struct fake *f, uint64_t addr, uint64_t *value, int write)
{
	int err = 0;

	while (!err && !access_once(f, addr, value, write))
		err = gm_dev_fault(f->as, addr, f->dev,
				   write ? GM_WRITE : GM_READ);
	return err;
}

int fake_load(struct fake *f, const uint64_t *p, uint64_t *value)
{
	return reach(f, (uint64_t)(uintptr_t)p, value, 0);
}

int fake_store(struct fake *f, uint64_t *p, uint64_t value)
{
	return reach(f, (uint64_t)(uintptr_t)p, &value, 1);
}
