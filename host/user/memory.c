/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * memory.c - host memory: nodes, limits, copying and zeroing
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "sys.h"
#include "user.h"

#ifndef MPOL_F_NODE
#define MPOL_DEFAULT 0
#define MPOL_PREFERRED 1
#define MPOL_F_NODE (1 << 0)
#define MPOL_F_ADDR (1 << 1)
#endif

/*
 * The memory limit of the control group, and what is used of it; -1: none.
 * @fd_stat: its memory.stat, for the page cache that counts as used but is not
 * in the way
 */
static struct {
	int fd_used;
	int fd_stat;
	int fd_limit;
} cgroup = { -1, -1, -1 };

/* Reads the number after @key (or at the start) of a small file. */
static int read_number(int fd, const char *key, uint64_t *out)
{
	char buf[4096];
	ssize_t n = pread(fd, buf, sizeof(buf) - 1, 0);
	char *p = buf, *end;

	if (n <= 0)
		return -ENOENT;
	buf[n] = '\0';
	if (key) {
		p = strstr(buf, key);
		if (!p)
			return -ENOENT;
		p += strlen(key);
	}
	*out = strtoull(p, &end, 10);
	return end == p ? -ENOENT : 0;
}

static int open_in(const char *dir, const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return gm_sys_open(path, O_RDONLY);
}

static void open_cgroup(const char *dir, bool v2)
{
	gm_memory_exit();
	cgroup.fd_limit =
		open_in(dir, v2 ? "memory.max" : "memory.limit_in_bytes");
	cgroup.fd_used =
		open_in(dir, v2 ? "memory.current" : "memory.usage_in_bytes");
	cgroup.fd_stat = open_in(dir, "memory.stat");
}

/* A line of /proc/self/cgroup is "id:controllers:path". */
void gm_memory_init(void)
{
	char buf[2048], dir[512], *line, *path, *next;
	int fd = gm_sys_open("/proc/self/cgroup", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return;
	buf[n] = '\0';
	for (line = buf; line && *line && cgroup.fd_limit < 0; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		path = strrchr(line, ':');
		if (!path)
			continue;
		if (strstr(line, ":memory:")) {
			snprintf(dir, sizeof(dir),
				 "/sys/fs/cgroup/memory%.400s", path + 1);
			open_cgroup(dir, false);
		} else if (!strncmp(line, "0::", 3)) {
			snprintf(dir, sizeof(dir), "/sys/fs/cgroup%.400s",
				 path + 1);
			open_cgroup(dir, true);
		}
	}
}

void gm_memory_exit(void)
{
	int *fds[] = { &cgroup.fd_used, &cgroup.fd_stat, &cgroup.fd_limit };
	unsigned int i;

	for (i = 0; i < 3; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

static bool cgroup_limit(uint64_t *limit, uint64_t *used)
{
	/* "max" is no number: there is no limit */
	return cgroup.fd_limit >= 0 && cgroup.fd_used >= 0 &&
	       !read_number(cgroup.fd_limit, NULL, limit) &&
	       !read_number(cgroup.fd_used, NULL, used);
}

/* Memory that holds files. @key is searched for: "active_file" is in both. */
static uint64_t cgroup_cache(const char *key)
{
	uint64_t cache;

	if (cgroup.fd_stat < 0 || read_number(cgroup.fd_stat, key, &cache))
		return 0;
	return cache;
}

/*
 * Bytes that may still be touched before the control group's killer comes:
 * the kernel would kill, where we can say ENOMEM.
 */
uint64_t gm_memory_headroom(void)
{
	uint64_t limit, used;

	if (!cgroup_limit(&limit, &used))
		return UINT64_MAX;
	if (used + GM_PAGE_SIZE < limit)
		return limit - used;
	used -= GM_MIN(used, cgroup_cache("inactive_file "));
	return limit > used ? limit - used : 0;
}

/* What the control group could have if all its files were dropped. */
static uint64_t cgroup_free(void)
{
	uint64_t limit, used, cache;

	if (!cgroup_limit(&limit, &used))
		return UINT64_MAX;
	cache = cgroup_cache("\ninactive_file ") +
		cgroup_cache("\nactive_file ");
	used -= GM_MIN(used, cache);
	return limit > used ? limit - used : 0;
}

int gm_memory_nr_nodes(void)
{
	char path[64];
	int n = 0;

	do {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d",
			 n);
	} while (access(path, F_OK) == 0 && ++n < GM_MAX_HOST_NODES);
	return n ? n : 1;
}

/* What could be had without swapping. */
static int machine_memory(uint64_t *total, uint64_t *free_bytes)
{
	int fd = gm_sys_open("/proc/meminfo", O_RDONLY);
	int rc;

	if (fd < 0)
		return -errno;
	rc = read_number(fd, "MemTotal:", total) |
	     read_number(fd, "MemAvailable:", free_bytes);
	close(fd);
	return rc ? -ENOENT : 0;
}

/* The same of one node; of what the kernel could drop, only files are known. */
static int node_memory(int nid, uint64_t *total, uint64_t *free_bytes)
{
	uint64_t active, inactive;
	char path[80];
	int fd, rc;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo",
		 nid);
	fd = gm_sys_open(path, O_RDONLY);
	if (fd < 0)
		return -errno;
	rc = read_number(fd, "MemTotal:", total) |
	     read_number(fd, "MemFree:", free_bytes) |
	     read_number(fd, "Active(file):", &active) |
	     read_number(fd, "Inactive(file):", &inactive);
	close(fd);
	if (rc)
		return -ENOENT;
	*free_bytes += active + inactive;
	return 0;
}

/* A control group's limit is for all nodes; each is given the same of it. */
int gm_memory_of_node(int nid, uint64_t *total, uint64_t *free_bytes)
{
	int rc = gm_user.nr_nodes > 1 ? node_memory(nid, total, free_bytes)
				      : machine_memory(total, free_bytes);

	if (rc)
		return rc;
	*total *= 1024;
	*free_bytes = GM_MIN(*free_bytes * 1024,
			     cgroup_free() / (uint64_t)gm_user.nr_nodes);
	return 0;
}

int gm_memory_node_at(uint64_t addr)
{
	int nid = 0;

	if (gm_user.nr_nodes > 1 &&
	    syscall(SYS_get_mempolicy, &nid, NULL, 0UL, addr,
		    (unsigned long)(MPOL_F_NODE | MPOL_F_ADDR)))
		nid = 0;
	return nid;
}

/*
 * As gm_memory_node_at(), but of @n small pages, and without making any: the
 * first that has a node. One that is not there, or is zeros that all share, or
 * is swapped out, has none.
 */
static int node_of_first(uint64_t addr, unsigned int n)
{
	void *pages[GM_PAGE_SIZE / GM_SMALL_PAGE];
	int status[GM_PAGE_SIZE / GM_SMALL_PAGE];
	unsigned int i;

	for (i = 0; i < n; i++)
		pages[i] = (void *)(addr + i * GM_SMALL_PAGE);
	if (syscall(SYS_move_pages, 0, (unsigned long)n, pages, NULL, status,
		    0))
		return -ENOENT;
	for (i = 0; i < n; i++)
		if (status[i] >= 0)
			return status[i];
	return -ENOENT;
}

int gm_host_cpu_node(struct gm_as *as, uint64_t va)
{
	int nid;

	va &= ~GM_PAGE_MASK;
	nid = node_of_first(va, 1);
	if (nid < 0)
		nid = node_of_first(va, GM_PAGE_SIZE / GM_SMALL_PAGE);
	return nid;
}

/*
 * From now on this thread's new pages come from node @nid, if it has room. The
 * thread's policy is used, not the mapping's: a policy of its own would split
 * the dock.
 */
void gm_memory_prefer(int nid, struct gm_policy *old)
{
	unsigned long mask[GM_POLICY_WORDS] = { 0 };

	old->set = false;
	if (gm_user.nr_nodes == 1 || nid < 0)
		return;
	mask[nid / 64] |= 1UL << (nid % 64);
	old->set = !syscall(SYS_get_mempolicy, &old->mode, old->mask, 1024UL,
			    0UL, 0UL) &&
		   !syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, 1024UL);
}

void gm_memory_restore(const struct gm_policy *old)
{
	if (old->set)
		syscall(SYS_set_mempolicy, old->mode,
			old->mode == MPOL_DEFAULT ? NULL : old->mask, 1024UL);
}

/* Touch all of the range, on node @nid if it has room. */
int gm_memory_populate(uint64_t addr, uint64_t len, int nid)
{
	struct gm_policy policy;
	int rc;

	if (gm_memory_headroom() < len)
		return -ENOMEM;
	gm_memory_prefer(nid, &policy);
	do {
		rc = gm_sys_madvise(addr, len, MADV_POPULATE_WRITE);
	} while (rc && (errno == EAGAIN || errno == EINTR));
	rc = rc ? -ENOMEM : 0;
	gm_memory_restore(&policy);
	return rc;
}

/* --- copying ------------------------------------------------------------ */

static void copy_libc(void *dst, const void *src, size_t len)
{
	memcpy(dst, src, len);
}

static void zero_libc(void *dst, size_t len)
{
	memset(dst, 0, len);
}

#if defined(__x86_64__)
static void copy_string(void *dst, const void *src, size_t len)
{
	__asm__ volatile("rep movsb"
			 : "+D"(dst), "+S"(src), "+c"(len)
			 :
			 : "memory");
}

/* Stores that pass the caches by: the CPU will not read the page soon. */
__attribute__((target("avx2"))) static void copy_stream(void *dst,
							const void *src,
							size_t len)
{
	size_t head = -(uintptr_t)dst & 127, tail = (len - head) & 127;
	const __m256i *from = (const void *)((const char *)src + head);
	__m256i *to = (void *)((char *)dst + head);

	if (len < 4096) {
		memcpy(dst, src, len);
		return;
	}
	memcpy(dst, src, head);
	for (len -= head + tail; len; len -= 128, from += 4, to += 4) {
		__m256i a = _mm256_loadu_si256(from);
		__m256i b = _mm256_loadu_si256(from + 1);
		__m256i c = _mm256_loadu_si256(from + 2);
		__m256i d = _mm256_loadu_si256(from + 3);

		_mm256_stream_si256(to, a);
		_mm256_stream_si256(to + 1, b);
		_mm256_stream_si256(to + 2, c);
		_mm256_stream_si256(to + 3, d);
	}
	memcpy(to, from, tail);
	_mm_sfence();
}

__attribute__((target("avx2"))) static void zero_stream(void *dst, size_t len)
{
	__m256i zero = _mm256_setzero_si256();
	__m256i *to = dst;

	if (((uintptr_t)dst | len) & 127) {
		memset(dst, 0, len);
		return;
	}
	for (; len; len -= 128, to += 4) {
		_mm256_stream_si256(to, zero);
		_mm256_stream_si256(to + 1, zero);
		_mm256_stream_si256(to + 2, zero);
		_mm256_stream_si256(to + 3, zero);
	}
	_mm_sfence();
}
#endif

/* Chosen by gm_copy_calibrate(), before there is a second thread of ours. */
static void (*copy_best)(void *, const void *, size_t) = copy_libc;
static void (*zero_best)(void *, size_t) = zero_libc;

#if defined(__x86_64__)
/* The faster of three tries; the first also warms up. */
static uint64_t time_copy(void (*copy)(void *, const void *, size_t), char *buf)
{
	uint64_t best = UINT64_MAX, t;
	int i;

	for (i = 0; i < 3; i++) {
		t = gm_host_now();
		copy(buf, buf + GM_PAGE_SIZE, GM_PAGE_SIZE);
		t = gm_host_now() - t;
		best = GM_MIN(best, t);
	}
	return best;
}
#endif

/* Which loop is best differs by machine: try them once. */
void gm_copy_calibrate(void)
{
#if defined(__x86_64__)
	char *buf = gm_host_zalloc(2 * GM_PAGE_SIZE);
	uint64_t best, t;

	if (!buf)
		return;
	memset(buf, 1, 2 * GM_PAGE_SIZE);
	best = time_copy(copy_libc, buf);
	t = time_copy(copy_string, buf);
	if (t < best) {
		best = t;
		copy_best = copy_string;
	}
	if (__builtin_cpu_supports("avx2")) {
		zero_best = zero_stream;
		if (time_copy(copy_stream, buf) < best)
			copy_best = copy_stream;
	}
	gm_host_zfree(buf, 2 * GM_PAGE_SIZE);
#endif
}

void gm_host_copy(void *dst, const void *src, size_t len)
{
	copy_best(dst, src, len);
}

/* In chunks that the nearest cache holds: each byte is read once. */
void gm_host_exchange(void *a, void *b, size_t len)
{
	char buf[4096];
	size_t n;

	for (; len; len -= n, a = (char *)a + n, b = (char *)b + n) {
		n = GM_MIN(len, sizeof(buf));
		memcpy(buf, a, n);
		memcpy(a, b, n);
		memcpy(b, buf, n);
	}
}

void gm_host_zero(void *dst, size_t len)
{
	zero_best(dst, len);
}

/* --- the program's memory ---------------------------------------------- */

/* From how many bytes on most of it will not be in a cache when it is read. */
#define STREAM_MIN (GM_PAGE_SIZE / 2)

static void copy_for_user(void *dst, const void *src, size_t len)
{
	if (len < STREAM_MIN)
		memcpy(dst, src, len);
	else
		gm_host_copy(dst, src, len);
}

/*
 * In the caller's own thread, so that unified pages fault as ever. Whether
 * plain memory can be touched is asked of the mappings, which costs one or two
 * microseconds a mapping and, unlike a trial access, never faults.
 */
int gm_host_user_read(struct gm_as *as, void *dst, uint64_t addr, size_t len)
{
	gm_assert_below((enum gm_rank)0);
	if (gm_vma_check(addr, len, PROT_READ))
		return -EFAULT;
	gm_thread_touches(true);
	copy_for_user(dst, (const void *)addr, len);
	gm_thread_touches(false);
	return 0;
}

int gm_host_user_write(struct gm_as *as, uint64_t addr, const void *src,
		       size_t len)
{
	gm_assert_below((enum gm_rank)0);
	if (gm_vma_check(addr, len, PROT_WRITE))
		return -EFAULT;
	gm_thread_touches(true);
	if (src)
		memcpy((void *)addr, src, len);
	else
		memset((void *)addr, 0, len);
	gm_thread_touches(false);
	return 0;
}

/* Into the buffer with plain stores, for from there it is read at once. */
int gm_host_user_feed(struct gm_as *as, uint64_t addr, size_t len, void *buf,
		      size_t size, int (*eat)(void *arg, size_t off, size_t n),
		      void *arg)
{
	size_t done, n;
	int err = 0;

	gm_assert_below((enum gm_rank)0);
	if (gm_vma_check(addr, len, PROT_READ))
		return -EFAULT;
	for (done = 0; !err && done < len; done += n) {
		n = GM_MIN(len - done, size);
		gm_thread_touches(true);
		memcpy(buf, (const void *)(addr + done), n);
		gm_thread_touches(false);
		err = eat(arg, done, n);
	}
	return err;
}

int gm_host_user_copy(struct gm_as *as, uint64_t dst, uint64_t src, size_t len)
{
	gm_assert_below((enum gm_rank)0);
	if (gm_vma_check(src, len, PROT_READ) ||
	    gm_vma_check(dst, len, PROT_WRITE))
		return -EFAULT;
	gm_thread_touches(true);
	if (dst - src < len || src - dst < len)
		memmove((void *)dst, (const void *)src, len);
	else
		copy_for_user((void *)dst, (const void *)src, len);
	gm_thread_touches(false);
	return 0;
}
