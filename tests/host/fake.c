/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fake.h"

struct gm_as *fake_as;
uint64_t fake_base;
int fake_error;
unsigned int fake_event_ms;
uint32_t fake_faults, fake_fills, fake_unmapped, fake_discarded, fake_remapped;
uint64_t fake_last_va, fake_last_len;

static unsigned int nr_pages;
static struct {
	struct gm_lock lock;
	struct gm_page *page;
} entries[FAKE_PAGES];

/* --- what a core does ---------------------------------------------------- */

static int serve_locked(unsigned int i, uint64_t va)
{
	struct gm_page *page = entries[i].page;
	int status = 0;

	if (!page && gm_vma_present(va, va + GM_PAGE_SIZE, NULL, NULL)) {
		gm_add(&fake_fills, 1);
		return gm_host_cpu_fill(fake_as, va);
	}
	if (!page) {
		/* A real core gets it before it locks. */
		gm_unlock(&entries[i].lock, GM_RANK_ENTRY);
		status = gm_host_page_get(fake_as, GM_NODE_NONE, GM_HOST_ZEROED,
					  &page);
		gm_lock(&entries[i].lock, GM_RANK_ENTRY);
		if (status)
			return status;
	}
	gm_host_cpu_map(fake_as, va, &page, 1, GM_PROT_READ | GM_PROT_WRITE,
			&status);
	if (!status || page != entries[i].page)
		gm_host_page_put(fake_as, page);
	if (!status)
		entries[i].page = NULL;
	if (status == -EEXIST) {
		gm_host_cpu_wake(fake_as, va);
		return 0;
	}
	return status;
}

int gm_cpu_fault(struct gm_as *as, uint64_t va, enum gm_access access)
{
	unsigned int i =
		(unsigned int)((va - gm_load(&fake_base)) >> GM_PAGE_SHIFT);
	int rc = gm_load(&fake_error);

	gm_add(&fake_faults, 1);
	if (rc == -EHWPOISON)
		gm_host_cpu_poison(as, va & ~GM_PAGE_MASK);
	if (rc)
		return rc;
	if (i >= gm_load(&nr_pages))
		return -EFAULT;
	gm_lock(&entries[i].lock, GM_RANK_ENTRY);
	rc = serve_locked(i, va & ~GM_PAGE_MASK);
	gm_unlock(&entries[i].lock, GM_RANK_ENTRY);
	return rc;
}

static void slowly(void)
{
	unsigned int ms = gm_load(&fake_event_ms);

	if (ms)
		gm_host_sleep_until(gm_host_now() + ms * 1000000ULL);
}

/* Pages wholly in the range are forgotten. */
static void forget(uint64_t va, uint64_t len)
{
	uint64_t at = (va + GM_PAGE_MASK) & ~GM_PAGE_MASK;
	unsigned int i;

	for (; at + GM_PAGE_SIZE <= va + len; at += GM_PAGE_SIZE) {
		i = (unsigned int)((at - gm_load(&fake_base)) >> GM_PAGE_SHIFT);
		if (i >= gm_load(&nr_pages))
			continue;
		gm_lock(&entries[i].lock, GM_RANK_ENTRY);
		if (entries[i].page)
			gm_host_page_put(fake_as, entries[i].page);
		entries[i].page = NULL;
		gm_unlock(&entries[i].lock, GM_RANK_ENTRY);
	}
}

static void note(uint32_t *count, uint64_t va, uint64_t len)
{
	gm_store(&fake_last_va, va);
	gm_store(&fake_last_len, len);
	gm_add(count, 1);
}

void gm_as_unmapped(struct gm_as *as, uint64_t va, uint64_t len)
{
	slowly();
	forget(va, len);
	note(&fake_unmapped, va, len);
}

void gm_as_remapped(struct gm_as *as, uint64_t from, uint64_t to, uint64_t len)
{
	slowly();
	note(&fake_remapped, to, len);
}

void gm_as_discarded(struct gm_as *as, uint64_t va, uint64_t len)
{
	slowly();
	forget(va, len);
	note(&fake_discarded, va, len);
}

/* --- what is not used here ------------------------------------------------ */

struct gm_machine gm_machine;
int gm_machine_init(int n, uint64_t max)
{
	return 0;
}
void gm_machine_exit(void)
{
}
int gm_as_init(struct gm_as *as)
{
	return 0;
}
void gm_as_exit(struct gm_as *as)
{
}
int gm_as_map(struct gm_as *as, uint64_t hint, uint64_t len, unsigned int prot,
	      unsigned int flags, uint64_t *va)
{
	return gm_host_range_map(as, hint, len, prot, flags, va);
}
int gm_as_unmap(struct gm_as *as, uint64_t va, uint64_t len)
{
	gm_host_range_unmap(as, va, len);
	return 0;
}
int gm_as_protect(struct gm_as *as, uint64_t va, uint64_t len,
		  unsigned int prot)
{
	return gm_host_range_protect(as, va, len, prot);
}
int gm_as_remap(struct gm_as *as, uint64_t va, uint64_t old_len,
		uint64_t new_len, int may_move, uint64_t *new_va)
{
	return -ENOMEM;
}
int gm_as_advise(struct gm_as *as, int node, uint64_t va, uint64_t len,
		 int advice)
{
	return 0;
}
int gm_as_copy(struct gm_as *as, int node, uint64_t dst, uint64_t src,
	       uint64_t len)
{
	return gm_host_user_copy(as, dst, src, len);
}
int gm_as_overlaps(struct gm_as *as, uint64_t va, uint64_t len)
{
	return va < fake_base + nr_pages * GM_PAGE_SIZE && va + len > fake_base;
}
int gm_as_where(struct gm_as *as, uint64_t va, struct gm_where *out)
{
	return 0;
}
int gm_as_region_stats(struct gm_as *as, uint64_t va,
		       struct gm_region_stats *out)
{
	return 0;
}
int gm_machine_nodes(struct gm_node_info *out, size_t n)
{
	if (n)
		memset(out, 0, sizeof(*out));
	return 1;
}
int gm_machine_stats(int nid, struct gm_stats *out)
{
	return 0;
}

/* --- what tests use ------------------------------------------------------- */

void fake_start(unsigned int n, int tracked)
{
	uint64_t va;

	fake_as = gm_as_current();
	ck_assert_msg(fake_as != NULL, "%s", gm_error());
	gm_store(&nr_pages, n);
	ck_assert_int_eq(gm_host_range_map(fake_as, 0, n * GM_PAGE_SIZE,
					   GM_PROT_READ | GM_PROT_WRITE,
					   tracked ? GM_RANGE_TRACKED : 0, &va),
			 0);
	gm_store(&fake_base, va);
}

void fake_stop(void)
{
	unsigned int i;

	for (i = 0; i < nr_pages; i++) {
		gm_lock(&entries[i].lock, GM_RANK_ENTRY);
		if (entries[i].page)
			gm_host_page_put(fake_as, entries[i].page);
		entries[i].page = NULL;
		gm_unlock(&entries[i].lock, GM_RANK_ENTRY);
	}
	gm_host_range_unmap(fake_as, fake_base, nr_pages * GM_PAGE_SIZE);
	gm_user_exit();
}

char *fake_ptr(unsigned int i)
{
	return (char *)fake_base + i * GM_PAGE_SIZE;
}

struct gm_page *fake_page(unsigned int i)
{
	return entries[i].page;
}

void fake_take_many(unsigned int i, unsigned int n, int *status)
{
	struct gm_page *slots[GM_BATCH];
	unsigned int k;

	ck_assert_int_eq(gm_host_slots_get(fake_as, slots, n), 0);
	for (k = 0; k < n; k++)
		gm_lock(&entries[i + k].lock, GM_RANK_ENTRY);
	gm_host_cpu_unmap(fake_as, (uint64_t)fake_ptr(i), slots, n,
			  GM_PROT_READ | GM_PROT_WRITE, status);
	for (k = 0; k < n; k++) {
		if (!status[k])
			entries[i + k].page = slots[k];
		else
			gm_host_page_put(fake_as, slots[k]);
	}
	for (k = n; k-- > 0;)
		gm_unlock(&entries[i + k].lock, GM_RANK_ENTRY);
}

int fake_take(unsigned int i)
{
	int status;

	fake_take_many(i, 1, &status);
	return status;
}

int fake_put(unsigned int i)
{
	int status = -ENOENT;

	gm_lock(&entries[i].lock, GM_RANK_ENTRY);
	if (entries[i].page)
		gm_host_cpu_map(fake_as, (uint64_t)fake_ptr(i),
				&entries[i].page, 1,
				GM_PROT_READ | GM_PROT_WRITE, &status);
	if (!status) {
		gm_host_page_put(fake_as, entries[i].page);
		entries[i].page = NULL;
	}
	gm_unlock(&entries[i].lock, GM_RANK_ENTRY);
	return status;
}

uint64_t fake_huge(const void *va, uint64_t len)
{
	uint64_t at = (uint64_t)va, end = at + len, bytes = 0;

	for (; at < end; at += GM_PAGE_SIZE)
		bytes += gm_vma_huge(at, at + GM_PAGE_SIZE) ? GM_PAGE_SIZE : 0;
	return bytes;
}

static unsigned int count_dir(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

unsigned int fake_count_fds(void)
{
	return count_dir("/proc/self/fd");
}

unsigned int fake_count_threads(void)
{
	return count_dir("/proc/self/task");
}

/* Mappings as large as a page of ours: stacks, dock, regions, queues. */
unsigned int fake_count_maps(void)
{
	struct gm_vma vma = { 0 };
	unsigned int n = 0;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long start, end;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 &&
		    end - start >= GM_PAGE_SIZE && !strchr(line, '/'))
			n++;
	}
	fclose(f);
	(void)vma;
	return n;
}

void fake_add_test(Suite *suite, const char *name, const TTest *test,
		   int signal)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 60);
	if (signal)
		tcase_add_test_raise_signal(tc, test, signal);
	else
		tcase_add_test(tc, test);
	suite_add_tcase(suite, tc);
}

int fake_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
