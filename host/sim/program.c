// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * program.c - the simulated program: its accesses, its faults on their way to
 *	the core, its own system calls and the events that they cause
 *
 * The order of things is that of userfaultfd: an unmapping is done before its
 * event can be read, a discard only afterwards, a change of rights makes no
 * event; the call that made an event returns when it has been read, which says
 * nothing about when it is worked on. One task reads, one works on the events
 * in their order, several serve faults.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/sim/sim.h"

/* --- waiting for a page ---------------------------------------------------- */

static void sim_waiting_del(struct sim_as *as, struct sim_fault *f)
{
	unsigned int i;

	for (i = 0; i < as->nr_waiting; i++)
		if (as->waiting[i] == f)
			break;
	as->waiting[i] = as->waiting[--as->nr_waiting];
}

static void sim_fault_wake(struct sim_as *as, struct sim_fault *f, int error)
{
	struct sim_fault **p;

	sim_waiting_del(as, f);
	f->waiting = false;
	f->error = error;
	if (f->queued) {
		for (p = &as->faults; *p != f; p = &(*p)->next)
			;
		*p = f->next;
		if (!f->next)
			as->faults_tail = p;
		f->queued = false;
		as->nr_faults_queued--;
	}
	sim_task_wake(f->task);
}

void sim_wake_range(struct sim_as *as, uint64_t va, uint64_t len)
{
	unsigned int i = 0;

	while (i < as->nr_waiting) {
		struct sim_fault *f = as->waiting[i];

		if (f->va - va < len)
			sim_fault_wake(as, f, 0);
		else
			i++;
	}
}

/* Wait until the page may be there. */
static int sim_fault_wait(struct sim_as *as, uint64_t va, bool write)
{
	struct sim_fault *f = &sim.current->fault;

	f->va = va;
	f->access = write ? GM_WRITE : GM_READ;
	f->seq++;
	f->waiting = f->queued = true;
	f->error = 0;
	f->next = NULL;
	*as->faults_tail = f;
	as->faults_tail = &f->next;
	as->nr_faults_queued++;
	as->waiting[as->nr_waiting++] = f;
	as->nr_faults++;
	if (as->nr_idle)
		sim_task_wake(as->idle[--as->nr_idle]);
	sim_task_block("page", (void *)(uintptr_t)va);
	return f->error;
}

/* No region of the core's: like any other memory of the program. */
static void sim_fill_plain(struct sim_as *as, uint64_t va)
{
	struct sim_slot *slot = sim_slot_at(as, va);
	unsigned int bit = sim_piece_mask(va);

	if (!(slot->mapped & bit) || ((slot->present | slot->poison) & bit))
		return;
	memset(slot->data + (va & GM_PAGE_MASK & ~(SIM_PIECE - 1)), 0,
	       SIM_PIECE);
	if (!slot->present)
		slot->nid = (uint8_t)sim_node_near();
	slot->present |= bit;
}

static void sim_fault_serve(struct sim_as *as, struct sim_fault *f)
{
	uint32_t seq = f->seq;
	uint64_t va = f->va, after = as->events_posted;
	int err;

	/* What has happened before it is told before. */
	while (as->events_done < after)
		sim_sleep_until(sim.now + 1000);

	sim.current->has_error = false;
	sim.current->doing = "cpu fault";
	err = gm_cpu_fault(&as->as, va, f->access);
	SIM_CHECK(!sim.current->nr_held, "cpu_fault returns with a lock held");
	SIM_CHECK(err <= 0, "cpu_fault returns %d", err);
	SIM_CHECK(!err || sim.current->has_error,
		  "cpu_fault: error %d without a text", err);
	sim.current->doing = NULL;
	if (!f->waiting || f->seq != seq)
		return;
	if (!err) {
		as->nr_unwoken++;
	} else if (err == -EFAULT) {
		/*
		 * The region is on its way, in the making or being taken down,
		 * or an event will tell of it. To put zeros there would hide
		 * what an XPU has; the page table knows when it is over.
		 */
		sim_sleep_until(sim.now + 10000);
		if (!f->waiting || f->seq != seq)
			return;
		err = 0;
	} else if (err == -EHWPOISON) {
		err = 0; /* the page table says it too by now */
	}
	sim_fault_wake(as, f, err);
}

static void sim_fault_worker(void *arg)
{
	struct sim_as *as = arg;

	for (;;) {
		struct sim_fault *f = as->faults;

		if (!f) {
			as->idle[as->nr_idle++] = sim.current;
			sim_task_block("faults", as);
			continue;
		}
		as->faults = f->next;
		if (!as->faults)
			as->faults_tail = &as->faults;
		f->queued = false;
		as->nr_faults_queued--;
		as->nr_serving++;
		sim_point(SIM_STEP);
		if (f->waiting)
			sim_fault_serve(as, f);
		as->nr_serving--;
	}
}

/* --- accesses ---------------------------------------------------------------- */

int sim_cpu_access(struct sim_as *as, uint64_t va, void *buf, size_t len,
		   bool write)
{
	struct sim_slot *slot = sim_slot_at(as, va);
	unsigned int bit = sim_piece_mask(va);
	unsigned int tries = 0;
	uint8_t *data;
	int err;

	if (!slot)
		return -EFAULT;
	data = slot->data + (va & GM_PAGE_MASK);
	for (;;) {
		sim_point(SIM_STEP);
		if (!(slot->mapped & bit) || slot->reserved)
			return -EFAULT;
		if (!((write ? slot->writable : slot->readable) & bit))
			return -EACCES;
		if (slot->poison & bit)
			return -EHWPOISON;
		if (slot->present & bit)
			break;
		if (!(slot->tracked & bit)) {
			sim_fill_plain(as, va);
			break;
		}
		SIM_CHECK(tries++ < 10000, "a CPU makes no progress at %#lx",
			  (unsigned long)va);
		err = sim_fault_wait(as, va, write);
		if (err)
			return err;
	}
	if (write)
		memcpy(data, buf, len);
	else
		memcpy(buf, data, len);
	return 0;
}

int sim_cpu_access_range(struct sim_as *as, uint64_t va, void *buf, size_t len,
			 bool write)
{
	uint8_t *p = buf;

	while (len) {
		size_t n = GM_MIN(len, SIM_PIECE - va % SIM_PIECE);
		int err = sim_cpu_access(as, va, p, n, write);

		/* Whatever the signal would have been. */
		if (err)
			return -EFAULT;
		va += n;
		p += n;
		len -= n;
	}
	return 0;
}

/* --- events -------------------------------------------------------------------- */

static void sim_event_reader(void *arg)
{
	struct sim_as *as = arg;
	struct sim_event *ev;

	for (;;) {
		for (ev = as->events; ev && ev->read; ev = ev->next)
			;
		if (!ev) {
			sim_task_block("events", &as->reader);
			continue;
		}
		sim_yield();
		ev->read = true;
		as->nr_unread--;
		sim_task_wake(ev->waiter);
		if (as->event_worker->what == &as->event_worker)
			sim_task_wake(as->event_worker);
	}
}

static void sim_event_tell(struct sim_as *as, struct sim_event *ev)
{
	sim.current->has_error = false;
	sim.current->doing = "event";
	switch (ev->kind) {
	case SIM_EV_UNMAP:
		gm_as_unmapped(&as->as, ev->va, ev->len);
		break;
	case SIM_EV_REMAP:
		gm_as_remapped(&as->as, ev->va, ev->to, ev->len);
		break;
	case SIM_EV_MOVED:
		break;
	case SIM_EV_REMOVE:
		gm_as_discarded(&as->as, ev->va, ev->len);
		break;
	}
	SIM_CHECK(!sim.current->nr_held, "an event ends with a lock held");
	sim.current->doing = NULL;
}

static void sim_event_worker(void *arg)
{
	struct sim_as *as = arg;
	struct sim_event *ev;

	for (;;) {
		ev = as->events;
		if (!ev || !ev->read) {
			sim_task_block("events", &as->event_worker);
			continue;
		}
		sim_yield();
		sim_event_tell(as, ev);
		as->events = ev->next;
		if (!as->events)
			as->events_tail = &as->events;
		as->nr_pending--;
		as->events_done++;
		sim_wake_range(as, ev->va, ev->len);
		ev->done = true;
		if (ev->waiter->why && ev->waiter->what == ev)
			sim_task_wake(ev->waiter);
	}
}

void gm_host_told(struct gm_as *as)
{
	while (as->host.sim->nr_pending)
		sim_yield();
}

/* Post an event and wait until it has been read. */
static void sim_event_post(struct sim_as *as, struct sim_event *ev,
			   enum sim_event_kind kind, uint64_t va, uint64_t to,
			   uint64_t len)
{
	memset(ev, 0, sizeof(*ev));
	ev->kind = kind;
	ev->va = va;
	ev->len = len;
	ev->to = to;
	ev->waiter = sim.current;
	*as->events_tail = ev;
	as->events_tail = &ev->next;
	as->nr_unread++;
	as->nr_pending++;
	as->events_posted++;
	if (as->reader->what == &as->reader)
		sim_task_wake(as->reader);
	while (!ev->read)
		sim_task_block("event read", ev);
}

void sim_event_wait(struct sim_event *ev)
{
	while (!ev->done)
		sim_task_block("event done", ev);
}

/* --- system calls ---------------------------------------------------------------- */

static bool sim_range_tracked(struct sim_as *as, uint64_t va, uint64_t len)
{
	uint64_t at;

	for (at = va; at < va + len; at += SIM_PIECE)
		if (sim_slot_at(as, at)->tracked & sim_piece_mask(at))
			return true;
	return false;
}

void sim_sys_munmap(struct sim_as *as, uint64_t va, uint64_t len,
		    struct sim_event *ev)
{
	bool tracked = sim_range_tracked(as, va, len);
	uint64_t at;

	for (at = va; at < va + len; at += SIM_PIECE) {
		struct sim_slot *slot = sim_slot_at(as, at);
		uint8_t keep = (uint8_t)~sim_piece_mask(at);

		slot->mapped &= keep;
		slot->readable &= keep;
		slot->writable &= keep;
		slot->present &= keep;
		slot->tracked &= keep;
		slot->poison &= keep;
	}
	if (tracked)
		sim_event_post(as, ev, SIM_EV_UNMAP, va, 0, len);
	else
		ev->done = true;
}

void sim_sys_dontneed(struct sim_as *as, uint64_t va, uint64_t len,
		      struct sim_event *ev)
{
	uint64_t at;

	if (sim_range_tracked(as, va, len))
		sim_event_post(as, ev, SIM_EV_REMOVE, va, 0, len);
	else
		ev->done = true;
	for (at = va; at < va + len; at += SIM_PIECE) {
		struct sim_slot *slot = sim_slot_at(as, at);

		slot->present &= (uint8_t)~sim_piece_mask(at);
		sim_point(SIM_STEP);
	}
}

void sim_sys_mprotect(struct sim_as *as, uint64_t va, uint64_t len,
		      unsigned int prot)
{
	uint64_t at;

	for (at = va; at < va + len; at += SIM_PIECE) {
		struct sim_slot *slot = sim_slot_at(as, at);
		uint8_t bit = (uint8_t)sim_piece_mask(at);

		if (!(slot->mapped & bit))
			continue;
		slot->readable &= (uint8_t)~bit;
		slot->writable &= (uint8_t)~bit;
		if (prot & GM_PROT_READ)
			slot->readable |= bit;
		if (prot & GM_PROT_WRITE)
			slot->writable |= bit;
	}
}

void sim_sys_mremap(struct sim_as *as, uint64_t from, uint64_t to, uint64_t len,
		    struct sim_event ev[2])
{
	bool tracked = sim_range_tracked(as, from, len);
	uint64_t at;

	for (at = 0; at < len; at += GM_PAGE_SIZE) {
		struct sim_slot *a = sim_slot_at(as, from + at);
		struct sim_slot *b = sim_slot_at(as, to + at);

		SIM_CHECK(!b->mapped, "mremap to where something is");
		*b = *a;
		memset(a, 0, sizeof(*a));
	}
	ev[0].done = ev[1].done = true;
	if (!tracked)
		return;
	sim_event_post(as, &ev[0], SIM_EV_REMAP, from, to, len);
	sim_event_post(as, &ev[1], SIM_EV_MOVED, from, 0, len);
}

int sim_sys_pin(struct sim_as *as, uint64_t va)
{
	struct sim_slot *slot = sim_slot_at(as, va);

	if (!slot || !(slot->present & sim_piece_mask(va)))
		return -EFAULT;
	slot->pins++;
	return 0;
}

void sim_sys_unpin(struct sim_as *as, uint64_t va)
{
	struct sim_slot *slot = sim_slot_at(as, va);

	SIM_CHECK(slot->pins, "a pinned page went away");
	slot->pins--;
}

bool sim_as_quiet(const struct sim_as *as)
{
	return !as->nr_faults_queued && !as->nr_serving && !as->nr_pending;
}

/* --- address spaces ---------------------------------------------------------------- */

static void sim_as_start(struct sim_as *as)
{
	unsigned int i;

	as->faults_tail = &as->faults;
	as->events_tail = &as->events;
	for (i = 0; i < sim.cfg.fault_workers; i++)
		sim_task_new("faults", sim_fault_worker, as, true);
	as->reader = sim_task_new("reader", sim_event_reader, as, true);
	as->event_worker = sim_task_new("events", sim_event_worker, as, true);
}

struct sim_as *sim_as_new(unsigned int index)
{
	struct sim_as *as = calloc(1, sizeof(*as));
	unsigned int i;

	if (!as)
		sim_violation("out of memory");
	as->index = index;
	as->nr_slots = sim.cfg.nr_slots;
	as->slots = mmap(NULL, as->nr_slots * sizeof(*as->slots),
			 PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (as->slots == MAP_FAILED)
		sim_violation("out of memory");
	for (i = as->nr_slots - sim.cfg.nr_plain; i < as->nr_slots; i++)
		as->slots[i].mapped = as->slots[i].readable =
			as->slots[i].writable = SIM_ALL;
	sim.as[index] = as;
	as->as.host.sim = as;
	sim_as_start(as);
	return as;
}

/* After gm_as_exit(). Its tasks wait for ever, and end with the run. */
void sim_as_free(struct sim_as *as)
{
	unsigned int i;

	for (i = 0; i < as->nr_slots - sim.cfg.nr_plain; i++)
		SIM_CHECK(!as->slots[i].mapped && !as->slots[i].reserved,
			  "page %u of the address space is still mapped", i);
	sim.as[as->index] = NULL;
	munmap(as->slots, as->nr_slots * sizeof(*as->slots));
	free(as);
}
