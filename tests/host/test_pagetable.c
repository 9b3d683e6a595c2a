/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The program's page table, with everything that a slot can be. */
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "fake.h"

#define RW (GM_PROT_READ | GM_PROT_WRITE)

static void fill_page(unsigned int i, unsigned int seed)
{
	uint32_t *p = (uint32_t *)fake_ptr(i);
	unsigned int k;

	for (k = 0; k < GM_PAGE_SIZE / 4; k++)
		p[k] = k * 2654435761U + seed;
}

static void check_words(const void *at, unsigned int seed, uint64_t off,
			uint64_t len)
{
	const uint32_t *p = at;
	uint64_t k;

	for (k = off / 4; k < (off + len) / 4; k++) {
		if (p[k] != (uint32_t)k * 2654435761U + seed)
			ck_abort_msg("word %llu is %x", (unsigned long long)k,
				     p[k]);
	}
}

static void check_page(unsigned int i, unsigned int seed)
{
	check_words(fake_ptr(i), seed, 0, GM_PAGE_SIZE);
}

START_TEST(out_and_home)
{
	unsigned int i;

	fake_start(4, 1);
	for (i = 0; i < 4; i++)
		fill_page(i, i);
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(fake_take(i), 0);
		check_words(gm_host_page_ptr(fake_page(i)), i, 0, GM_PAGE_SIZE);
	}
	for (i = 0; i < 4; i += 2)
		ck_assert_int_eq(fake_put(i), 0);
	for (i = 0; i < 4; i++) /* the others by faults */
		check_page(i, i);
	ck_assert_uint_eq(fake_huge(fake_ptr(0), 4 * GM_PAGE_SIZE),
			  4 * GM_PAGE_SIZE);
	fake_stop();
}
END_TEST

START_TEST(batch)
{
	int status[GM_BATCH];
	unsigned int i;

	fake_start(GM_BATCH, 1);
	for (i = 0; i < GM_BATCH; i++) {
		if (i != 3 && i != 9)
			fill_page(i, i);
	}
	memset(fake_ptr(9) + 8192, 5, 4096); /* by a fault: all of it */
	fake_take_many(0, GM_BATCH, status);
	for (i = 0; i < GM_BATCH; i++)
		ck_assert_int_eq(status[i], i == 3 ? -ENOENT : 0);
	for (i = 0; i < GM_BATCH; i++) {
		if (i != 3 && i != 9)
			check_page(i, i);
	}
	ck_assert_int_eq(fake_ptr(9)[8192], 5);
	ck_assert_int_eq(fake_ptr(9)[0], 0);
	ck_assert_uint_eq(fake_huge(fake_ptr(0), GM_BATCH * GM_PAGE_SIZE),
			  (GM_BATCH - 1) * GM_PAGE_SIZE);
	fake_stop();
}
END_TEST

/* A region that nobody watched: each slot is something else. */
START_TEST(untracked_slots)
{
	unsigned int i;
	volatile char sum;

	fake_start(8, 0);
	/* 1: huge zero page; 2: whole; 3..6: 4 KiB pages; 7: first is a hole */
	sum = fake_ptr(1)[0];
	fill_page(2, 2);
	ck_assert_int_eq(
		madvise(fake_ptr(3), 5 * GM_PAGE_SIZE, MADV_NOHUGEPAGE), 0);
	fill_page(3, 3);
	memset(fake_ptr(4), 4, 4096);
	sum += fake_ptr(5)[4096]; /* a zero page */
	memset(fake_ptr(6) + GM_PAGE_SIZE - 4096, 6, 4096);
	memset(fake_ptr(7) + 4096, 7, 4096);
	ck_assert_int_eq(madvise(fake_ptr(3), 5 * GM_PAGE_SIZE, MADV_HUGEPAGE),
			 0);
	ck_assert_int_eq(
		gm_host_range_track(fake_as, fake_base, 8 * GM_PAGE_SIZE), 0);
	ck_assert_int_eq(fake_take(0), -ENOENT);
	for (i = 1; i < 8; i++)
		ck_assert_int_eq(fake_take(i), 0);
	ck_assert_int_eq(fake_ptr(1)[77777], 0);
	check_page(2, 2);
	check_page(3, 3);
	ck_assert_int_eq(fake_ptr(4)[4095], 4);
	ck_assert_int_eq(fake_ptr(4)[4096], 0);
	ck_assert_int_eq(fake_ptr(5)[4096], 0);
	ck_assert_int_eq(fake_ptr(6)[0], 0);
	ck_assert_int_eq(fake_ptr(6)[GM_PAGE_SIZE - 1], 6);
	ck_assert_int_eq(fake_ptr(7)[0], 0);
	ck_assert_int_eq(fake_ptr(7)[4096], 7);
	ck_assert_int_eq(fake_ptr(7)[8192], 0);
	for (i = 0; i < 8; i++)
		fake_ptr(i)[1] = 1;
	/* What came in 4 KiB pieces is whole again. */
	ck_assert_uint_eq(fake_huge(fake_ptr(2), 6 * GM_PAGE_SIZE),
			  6 * GM_PAGE_SIZE);
	ck_assert_uint_eq(fake_fills, 0);
	(void)sum;
	fake_stop();
}
END_TEST

static uint32_t stop_writers;

/* Each writer counts in its own word of every page. */
static void *writer(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg, n = 0;
	unsigned int i;

	while (!gm_load(&stop_writers)) {
		for (i = 0; i < 2; i++)
			((volatile uint64_t *)fake_ptr(i))[me * 1000]++;
		n++;
	}
	return (void *)(uintptr_t)n;
}

static void race(int small)
{
	uint64_t until, moves = 0;
	pthread_t t[3];
	uintptr_t i;
	void *n[3];

	fake_start(2, 0);
	if (small)
		madvise(fake_ptr(0), 2 * GM_PAGE_SIZE, MADV_NOHUGEPAGE);
	for (i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, writer, (void *)i);
	gm_host_sleep_until(gm_host_now() + 5000000);
	ck_assert_int_eq(
		gm_host_range_track(fake_as, fake_base, 2 * GM_PAGE_SIZE), 0);
	for (until = gm_host_now() + 2000000000; gm_host_now() < until;)
		moves += fake_take((unsigned int)(moves & 1)) == 0;
	gm_store(&stop_writers, 1);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], &n[i]);
	for (i = 0; i < 3; i++) {
		ck_assert_uint_eq(((uint64_t *)fake_ptr(0))[i * 1000],
				  (uint64_t)n[i]);
		ck_assert_uint_eq(((uint64_t *)fake_ptr(1))[i * 1000],
				  (uint64_t)n[i]);
	}
	ck_assert_uint_gt(moves, 20);
	fake_stop();
}

START_TEST(no_store_lost_huge)
{
	race(0);
}
END_TEST

START_TEST(no_store_lost_small)
{
	race(1);
}
END_TEST

START_TEST(read_only)
{
	struct gm_page *slot;
	unsigned int i;
	int status;

	fake_start(3, 1);
	fill_page(0, 1);
	fill_page(1, 2);
	ck_assert_int_eq(fake_take(1), 0);
	/* With the core's knowledge. */
	ck_assert_int_eq(gm_host_range_protect(fake_as, fake_base,
					       3 * GM_PAGE_SIZE, PROT_READ),
			 0);
	ck_assert_int_eq(gm_host_slots_get(fake_as, &slot, 1), 0);
	gm_host_cpu_unmap(fake_as, fake_base, &slot, 1, GM_PROT_READ, &status);
	ck_assert_int_eq(status, 0);
	check_words(gm_host_page_ptr(slot), 1, 0, GM_PAGE_SIZE);
	ck_assert_uint_eq(
		gm_vma_present(fake_base, fake_base + GM_PAGE_SIZE, NULL, NULL),
		0);
	gm_host_cpu_map(fake_as, fake_base, &slot, 1, GM_PROT_READ, &status);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(slot->vacant, 1);
	check_page(0, 1);
	/* Without: an mprotect that nobody told us of. */
	check_page(1, 2);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(fake_take(i), 0);
	check_page(0, 1);
	check_page(1, 2);
	gm_host_cpu_unmap(fake_as, (uint64_t)fake_ptr(2), &slot, 1,
			  GM_PROT_READ, &status);
	ck_assert_int_eq(status, -ENOENT);
	/* No rights: it stays. */
	mprotect(fake_ptr(0), GM_PAGE_SIZE, PROT_NONE);
	ck_assert_int_eq(fake_take(0), -EBUSY);
	gm_host_cpu_unmap(fake_as, fake_base, &slot, 1, 0, &status);
	ck_assert_int_eq(status, -EBUSY);
	mprotect(fake_ptr(0), GM_PAGE_SIZE, PROT_READ | PROT_WRITE);
	check_page(0, 1);
	ck_assert_int_eq(fake_take(0), 0);
	gm_host_page_put(fake_as, slot);
	fake_stop();
}
END_TEST

START_TEST(pieces_of_other_rights)
{
	unsigned int i;

	fake_start(2, 1);
	for (i = 0; i < 2; i++)
		fill_page(i, i);
	ck_assert_int_eq(fake_take(0), 0);
	mprotect(fake_ptr(0) + 8192, 4096, PROT_READ);
	mprotect(fake_ptr(1) + 8192, 4096, PROT_READ);
	/* Whole pages only; the data is where it was. */
	ck_assert_int_eq(fake_take(1), -EXDEV);
	check_page(1, 1);
	/* Home it comes, in pieces. */
	check_page(0, 0);
	fake_ptr(0)[0]++;
	fake_stop();
}
END_TEST

START_TEST(locked)
{
	unsigned int i;

	fake_start(4, 1);
	for (i = 0; i < 4; i++)
		fill_page(i, i);
	ck_assert_int_eq(fake_take(3), 0);
	ck_assert_int_eq(mlock(fake_ptr(0), 2 * GM_PAGE_SIZE), 0);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(fake_take(i), 0);
	for (i = 0; i < 2; i++)
		check_page(i, i);
	ck_assert_int_eq(fake_take(2), 0);
	/* Everything, the dock included: what is vacant there may be filled. */
	ck_assert_int_eq(mlockall(MCL_CURRENT), 0);
	for (i = 0; i < 4; i++)
		check_page(i, i);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(fake_take(i), 0);
	munlockall();
	for (i = 0; i < 4; i++)
		check_page(i, i);
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(fake_take(i), 0);
	for (i = 0; i < 4; i++)
		check_page(i, i);
	fake_stop();
}
END_TEST

START_TEST(occupied)
{
	struct gm_page *page;
	int status;

	fake_start(1, 1);
	fake_ptr(0)[5] = 5;
	ck_assert_int_eq(gm_host_page_get(fake_as, 0, 0, &page), 0);
	memset(gm_host_page_ptr(page), 9, GM_PAGE_SIZE);
	gm_host_cpu_map(fake_as, fake_base, &page, 1, RW, &status);
	ck_assert_int_eq(status, -EEXIST);
	ck_assert_int_eq(fake_ptr(0)[5], 5);
	/* One 4 KiB page in the middle: nothing stays torn. */
	ck_assert_int_eq(gm_events_zap(fake_base, 300 * 4096), 0);
	ck_assert_int_eq(gm_events_zap(fake_base + 301 * 4096,
				       GM_PAGE_SIZE - 301 * 4096),
			 0);
	gm_host_cpu_map(fake_as, fake_base, &page, 1, RW, &status);
	ck_assert_int_eq(status, -EEXIST);
	ck_assert_uint_eq(
		gm_vma_present(fake_base, fake_base + GM_PAGE_SIZE, NULL, NULL),
		4096);
	ck_assert_int_eq(((char *)gm_host_page_ptr(page))[0], 9);
	ck_assert_int_eq(((char *)gm_host_page_ptr(page))[GM_PAGE_SIZE - 1], 9);
	/* Fill the rest with zeros. */
	ck_assert_int_eq(gm_host_cpu_fill(fake_as, fake_base), 0);
	ck_assert_uint_eq(
		gm_vma_present(fake_base, fake_base + GM_PAGE_SIZE, NULL, NULL),
		GM_PAGE_SIZE);
	ck_assert_int_eq(fake_ptr(0)[5], 0);
	ck_assert_uint_eq(fake_faults, 1);
	gm_host_page_put(fake_as, page);
	fake_stop();
}
END_TEST

START_TEST(fill_of_nothing_is_huge)
{
	fake_start(1, 1);
	while (fake_count_threads() < 5) /* the keeper has started */
		;
	gm_host_sleep_until(gm_host_now() + 100000000);
	ck_assert_int_eq(gm_host_cpu_fill(fake_as, fake_base), 0);
	ck_assert_uint_eq(fake_huge(fake_ptr(0), GM_PAGE_SIZE), GM_PAGE_SIZE);
	ck_assert_int_eq(fake_ptr(0)[4711], 0);
	ck_assert_uint_eq(fake_faults, 0);
	fake_stop();
}
END_TEST

START_TEST(gone)
{
	struct gm_page *page, *slot;
	int status;

	fake_start(2, 1);
	fill_page(0, 0);
	ck_assert_int_eq(gm_host_page_get(fake_as, 0, 0, &page), 0);
	ck_assert_int_eq(gm_host_slots_get(fake_as, &slot, 1), 0);
	munmap(fake_ptr(0), GM_PAGE_SIZE);
	gm_events_barrier();
	gm_host_cpu_map(fake_as, fake_base, &page, 1, RW, &status);
	ck_assert_int_eq(status, -EAGAIN);
	gm_host_cpu_unmap(fake_as, fake_base, &slot, 1, RW, &status);
	ck_assert_int_eq(status, -EXDEV);
	gm_host_cpu_unmap(fake_as, fake_base, &slot, 1, GM_PROT_READ, &status);
	ck_assert_int_eq(status, -EXDEV);
	ck_assert_int_eq(gm_host_cpu_poison(fake_as, fake_base), -EAGAIN);
	ck_assert_int_eq(
		gm_host_cpu_scatter(fake_as, fake_base, page, 0, GM_PAGE_SIZE),
		0);
	ck_assert_int_eq(page->vacant, 1);
	ck_assert_int_eq(gm_host_range_track(fake_as, fake_base, GM_PAGE_SIZE),
			 -ENOENT);
	gm_host_page_put(fake_as, page);
	gm_host_page_put(fake_as, slot);
	fake_stop();
}
END_TEST

START_TEST(scatter)
{
	struct gm_page *page;
	char *p;

	fake_start(3, 1);
	fill_page(0, 3);
	ck_assert_int_eq(fake_take(0), 0);
	page = fake_page(0);
	p = fake_ptr(0);
	/* A hole, a read-only piece, a piece without rights, a stranger. */
	munmap(p + 100 * 4096, 4096);
	mprotect(p + 200 * 4096, 2 * 4096, PROT_READ);
	mprotect(p + 300 * 4096, 4096, PROT_NONE);
	munmap(p + 400 * 4096, 4096);
	gm_sys_mmap((uint64_t)p + 400 * 4096, 4096, PROT_READ | PROT_WRITE,
		    MAP_FIXED);
	gm_events_barrier();
	ck_assert_int_eq(
		gm_host_cpu_scatter(fake_as, fake_base, page, 0, GM_PAGE_SIZE),
		GM_PAGE_SIZE - 4096);
	ck_assert_int_eq(page->vacant, 1);
	check_words(p, 3, 0, 100 * 4096);
	check_words(p, 3, 101 * 4096, 199 * 4096);
	mprotect(p + 300 * 4096, 4096, PROT_READ);
	check_words(p, 3, 300 * 4096, 100 * 4096);
	ck_assert_int_eq(p[400 * 4096], 0);
	check_words(p, 3, 401 * 4096, 111 * 4096);
	ck_assert_int_eq(
		gm_host_cpu_scatter(fake_as, fake_base, NULL, 0, GM_PAGE_SIZE),
		GM_PAGE_SIZE - 4096);
	fake_stop();
}
END_TEST

START_TEST(poison)
{
	pid_t pid;
	int status, fd[2];

	fake_start(2, 1);
	ck_assert_int_eq(gm_host_cpu_poison(fake_as, fake_base), 0);
	/* In a system call it is an error, else a signal. */
	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(write(fd[1], fake_ptr(0) + 12345, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(gm_host_cpu_unpoison(fake_as, fake_base), 0);
	ck_assert_int_eq(write(fd[1], fake_ptr(0) + 12345, 1), 1);
	fake_ptr(0)[9] = 1;
	ck_assert_uint_eq(fake_huge(fake_ptr(0), GM_PAGE_SIZE), GM_PAGE_SIZE);
	(void)pid;
	(void)status;
	fake_stop();
}
END_TEST

START_TEST(pinned)
{
	struct iovec iov;
	int fd[2];
	char buf[4096];

	/* vmsplice() holds the page, but so that the kernel does not see it:
	 * that is said in the limits. A fork does show. */
	fake_start(2, 1);
	fill_page(0, 0);
	ck_assert_int_eq(madvise(fake_ptr(0), GM_PAGE_SIZE, MADV_DOFORK), 0);
	if (fork() == 0)
		_exit(0);
	wait(NULL);
	ck_assert_int_eq(fake_take(0), -EBUSY);
	check_page(0, 0);
	fake_ptr(0)[0] = fake_ptr(0)[0];
	(void)iov;
	(void)fd;
	(void)buf;
}
END_TEST

START_TEST(moves_elsewhere)
{
	uint64_t to;

	fake_start(4, 1);
	fill_page(0, 0);
	fill_page(1, 1);
	ck_assert_int_eq(fake_take(1), 0);
	ck_assert_int_eq(gm_host_range_map(fake_as, 0, 4 * GM_PAGE_SIZE, RW,
					   GM_RANGE_TRACKED, &to),
			 0);
	ck_assert_int_eq(
		gm_host_range_move(fake_as, fake_base, to, 4 * GM_PAGE_SIZE),
		0);
	check_words((void *)to, 0, 0, GM_PAGE_SIZE);
	gm_store(&fake_base, to);
	check_page(1, 1); /* it is still watched */
	gm_events_barrier();
	ck_assert_uint_eq(fake_unmapped + fake_remapped + fake_discarded, 0);
	ck_assert_uint_eq(fake_huge(fake_ptr(0), 2 * GM_PAGE_SIZE),
			  2 * GM_PAGE_SIZE);
	fake_stop();
}
END_TEST

/* Each system call of a scenario fails once: no data may be lost. */
static uint32_t fail_at, nr_calls;

static int fail_nth(enum gm_sys_call call, unsigned long what)
{
	if (call != GM_SYS_IOCTL && call != GM_SYS_MADVISE)
		return 0;
	return gm_add(&nr_calls, 1) + 1 == gm_load(&fail_at) ? ENOMEM : 0;
}

START_TEST(failing_calls)
{
	unsigned int i, n;

	fake_start(3, 0);
	ck_assert_int_eq(madvise(fake_ptr(1), GM_PAGE_SIZE, MADV_NOHUGEPAGE),
			 0);
	fill_page(0, 0);
	fill_page(1, 1);
	fill_page(2, 2);
	ck_assert_int_eq(madvise(fake_ptr(1), GM_PAGE_SIZE, MADV_HUGEPAGE), 0);
	ck_assert_int_eq(
		gm_host_range_track(fake_as, fake_base, 3 * GM_PAGE_SIZE), 0);
	mprotect(fake_ptr(2), GM_PAGE_SIZE, PROT_READ);
	for (n = 1; n < 40; n++) {
		gm_store(&nr_calls, 0);
		gm_store(&fail_at, n);
		gm_store(&gm_sys_hook, fail_nth);
		for (i = 0; i < 3; i++)
			fake_take(i);
		for (i = 0; i < 3; i++)
			fake_put(i);
		gm_store(&gm_sys_hook, NULL);
		for (i = 0; i < 3; i++)
			check_page(i, i);
	}
	fake_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pagetable");

	fake_add(suite, out_and_home);
	fake_add(suite, batch);
	fake_add(suite, untracked_slots);
	fake_add(suite, no_store_lost_huge);
	fake_add(suite, no_store_lost_small);
	fake_add(suite, read_only);
	fake_add(suite, pieces_of_other_rights);
	fake_add(suite, locked);
	fake_add(suite, occupied);
	fake_add(suite, fill_of_nothing_is_huge);
	fake_add(suite, gone);
	fake_add(suite, scatter);
	fake_add(suite, poison);
	fake_add(suite, pinned);
	fake_add(suite, moves_elsewhere);
	fake_add(suite, failing_calls);
	return fake_run(suite);
}
