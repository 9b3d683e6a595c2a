/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Plain pages are taken out and put back, whatever happens meanwhile. */
#include <pthread.h>
#include <string.h>

#include "fake.h"

enum { PAGES = 3, WORDS = GM_PAGE_SIZE / 8 };

static char *base;
static struct gm_piece pieces[PAGES];

static uint64_t word(unsigned int page, uint64_t i)
{
	return (page + 1) * 0x9e3779b97f4a7c15ULL + i;
}

/* Two neighbours and one apart, in huge pages. */
static char *place(unsigned int i)
{
	return base + (i + (i == 2)) * GM_PAGE_SIZE;
}

static void fill(unsigned int i)
{
	uint64_t *p = (uint64_t *)place(i), k;

	for (k = 0; k < WORDS; k++)
		p[k] = word(i, k);
}

static void check_at(const char *at, unsigned int i, uint64_t from, uint64_t to)
{
	const uint64_t *p = (const uint64_t *)at;
	uint64_t k;

	for (k = from; k < to; k++)
		if (p[k] != word(i, k))
			ck_abort_msg("page %u, word %lu is %lx", i,
				     (unsigned long)k, (unsigned long)p[k]);
}

static void begin(void)
{
	uint64_t len = 8 * GM_PAGE_SIZE;
	void *raw;
	unsigned int i;

	fake_start(1, 1);
	raw = gm_sys_mmap(0, len, PROT_READ | PROT_WRITE, 0);
	ck_assert_ptr_ne(raw, MAP_FAILED);
	base = (char *)(((uint64_t)raw + GM_PAGE_MASK) & ~GM_PAGE_MASK);
	ck_assert_int_eq(madvise(base, len - GM_PAGE_SIZE, MADV_HUGEPAGE), 0);
	for (i = 0; i < PAGES; i++)
		fill(i);
}

/* Out, to memory of ours. Returns how many went. */
static unsigned int take(void)
{
	struct gm_page *slots[PAGES];
	unsigned int i, away = 0;
	int rc = gm_host_slots_get(fake_as, slots, PAGES);

	ck_assert_int_eq(rc, 0);
	for (i = 0; i < PAGES; i++)
		pieces[i] = (struct gm_piece){ .va = (uint64_t)place(i),
					       .slot = slots[i],
					       .out = slots[i]->addr };
	gm_mover_take(pieces, PAGES, GM_PAGE_SIZE);
	for (i = 0; i < PAGES; i++)
		away += pieces[i].away;
	return away;
}

static void put(void)
{
	unsigned int i;

	for (i = 0; i < PAGES; i++)
		if (pieces[i].away)
			gm_mover_put(&pieces[i], pieces[i].out, GM_PAGE_SIZE);
	gm_mover_end();
	for (i = 0; i < PAGES; i++) {
		gm_frames_discard(pieces[i].slot);
		gm_host_page_put(fake_as, pieces[i].slot);
	}
}

START_TEST(out_and_back)
{
	unsigned int i;

	begin();
	for (i = 0; i < 20; i++) {
		ck_assert_int_eq(gm_mover_begin(), 0);
		ck_assert_uint_eq(take(), PAGES);
		put();
	}
	for (i = 0; i < PAGES; i++) {
		check_at(place(i), i, 0, WORDS);
		ck_assert_uint_eq(fake_huge(place(i), GM_PAGE_SIZE),
				  GM_PAGE_SIZE);
	}
	fake_stop();
}
END_TEST

static uint32_t fail_at, nr_calls;

static int fail_nth(enum gm_sys_call call, unsigned long what)
{
	if (call != GM_SYS_IOCTL && call != GM_SYS_OPEN)
		return 0;
	return gm_add(&nr_calls, 1) + 1 == gm_load(&fail_at) ? ENOMEM : 0;
}

START_TEST(each_call_fails_once)
{
	unsigned int n, i, failed = 0;

	begin();
	for (n = 1;; n++) {
		gm_store(&nr_calls, 0);
		gm_store(&fail_at, n);
		gm_store(&gm_sys_hook, fail_nth);
		if (gm_mover_begin() == 0) {
			failed += take() < PAGES;
			put();
		} else {
			failed++;
		}
		gm_store(&gm_sys_hook, NULL);
		for (i = 0; i < PAGES; i++)
			check_at(place(i), i, 0, WORDS);
		if (gm_load(&nr_calls) < n)
			break;
	}
	ck_assert_uint_gt(n, 6);
	ck_assert_uint_gt(failed, 3);
	fake_stop();
}
END_TEST

static int writing;

static void *write_on(void *arg)
{
	uint64_t n = 0;

	for (; gm_load(&writing); n++)
		__atomic_store_n((uint64_t *)place(0) + n % WORDS, n,
				 __ATOMIC_RELAXED);
	return (void *)n;
}

START_TEST(no_store_is_lost)
{
	uint64_t n, i;
	pthread_t thread;
	void *result;

	begin();
	gm_store(&writing, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, write_on, NULL), 0);
	for (i = 0; i < 300; i++) {
		ck_assert_int_eq(gm_mover_begin(), 0);
		take();
		put();
	}
	gm_store(&writing, 0);
	pthread_join(thread, &result);
	n = (uint64_t)result;
	for (i = n > WORDS ? n - WORDS : 0; i < n; i++)
		ck_assert_uint_eq(((uint64_t *)place(0))[i % WORDS], i);
	check_at(place(1), 1, 0, WORDS);
	check_at(place(2), 2, 0, WORDS);
	fake_stop();
}
END_TEST

/* --- the program's own calls, while its pages are away ------------------------ */

enum what { DISCARD_PART, UNMAP_ONE, REMAP_ALL, PROTECT, NR_WHATS };

static enum what what;
static uint64_t moved_to;
static uint32_t started;

static void *change(void *arg)
{
	char *to;

	gm_store(&started, 1);
	switch (what) {
	case DISCARD_PART:
		ck_assert_int_eq(
			gm_sys_madvise((uint64_t)place(1) + GM_SMALL_PAGE,
				       2 * GM_SMALL_PAGE, MADV_DONTNEED),
			0);
		break;
	case UNMAP_ONE:
		ck_assert_int_eq(
			gm_sys_munmap((uint64_t)place(1), GM_PAGE_SIZE), 0);
		break;
	case REMAP_ALL:
		to = gm_sys_mmap(0, 5 * GM_PAGE_SIZE, PROT_NONE, 0);
		ck_assert_ptr_ne(to, MAP_FAILED);
		moved_to = ((uint64_t)to + GM_PAGE_MASK) & ~GM_PAGE_MASK;
		ck_assert_int_eq(gm_sys_mremap((uint64_t)base, 4 * GM_PAGE_SIZE,
					       moved_to),
				 0);
		break;
	default:
		ck_assert_int_eq(gm_sys_mprotect((uint64_t)base,
						 4 * GM_PAGE_SIZE, PROT_READ),
				 0);
	}
	return arg;
}

START_TEST(calls_of_the_program_meanwhile)
{
	uint64_t shift = 0, small = GM_SMALL_PAGE / 8;
	pthread_t thread;

	what = (enum what)_i;
	begin();
	ck_assert_int_eq(gm_mover_begin(), 0);
	ck_assert_uint_eq(take(), PAGES);
	started = 0;
	ck_assert_int_eq(pthread_create(&thread, NULL, change, NULL), 0);
	while (!gm_load(&started))
		sched_yield();
	/* Whether the call has got far or not, the outcome is the same. */
	usleep(_i % 2 ? 20000 : 0);
	put();
	pthread_join(thread, NULL);
	if (what == REMAP_ALL)
		shift = moved_to - (uint64_t)base;
	check_at(place(0) + shift, 0, 0, WORDS);
	check_at(place(2) + shift, 2, 0, WORDS);
	if (what == DISCARD_PART) {
		check_at(place(1), 1, 0, small);
		ck_assert_uint_eq(((uint64_t *)place(1))[small], 0);
		ck_assert_uint_eq(((uint64_t *)place(1))[3 * small - 1], 0);
		check_at(place(1), 1, 3 * small, WORDS);
	} else if (what != UNMAP_ONE) {
		check_at(place(1) + shift, 1, 0, WORDS);
	}
	fake_stop();
}
END_TEST

START_TEST(what_the_library_needs_is_left_alone)
{
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	struct gm_page *slot;

	begin();
	ck_assert(gm_mover_needs(here & ~GM_PAGE_MASK, GM_PAGE_SIZE));
	ck_assert_int_eq(gm_host_slots_get(fake_as, &slot, 1), 0);
	ck_assert(gm_mover_needs(slot->addr, GM_PAGE_SIZE));
	ck_assert(gm_mover_needs((uint64_t)slot & ~GM_PAGE_MASK, GM_PAGE_SIZE));
	gm_host_page_put(fake_as, slot);
	/* While a thread has not begun, its stack may be anywhere. */
	while (gm_mover_needs((uint64_t)place(0), GM_PAGE_SIZE))
		sched_yield();
	fake_stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mover");
	TCase *tc = tcase_create("calls");

	fake_add(suite, out_and_back);
	fake_add(suite, each_call_fails_once);
	fake_add(suite, no_store_is_lost);
	fake_add(suite, what_the_library_needs_is_left_alone);
	tcase_add_loop_test(tc, calls_of_the_program_meanwhile, 0, NR_WHATS);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	return fake_run(suite);
}
