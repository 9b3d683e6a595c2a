/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The machine is looked at, children have nothing, and nothing is left. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "fake.h"

static void expect_refusal(int err, const char *text)
{
	errno = 0;
	ck_assert_ptr_null(gm_as_current());
	ck_assert_int_eq(errno, err);
	ck_assert_msg(strstr(gm_error(), text) != NULL, "%s", gm_error());
	ck_assert_ptr_eq(gm_mmap(NULL, 4096, PROT_READ,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE,
				 -1, 0),
			 MAP_FAILED);
	ck_assert_int_eq(errno, err);
}

START_TEST(refuses_kernels)
{
	static const char *const old[] = { "5.15.0", "6.7.12" };
	static const char *const unsafe[] = { "6.8.0", "6.12.42", "6.13.7",
					      "6.15.10", "6.16.1" };
	static const char *const good[] = { "6.12.43", "6.15.11", "6.16.2",
					    "6.17.0", "7.0.0" };
	unsigned int i, fds = fake_count_fds();

	for (i = 0; i < 2; i++) {
		setenv("GMM_TEST_KERNEL", old[i], 1);
		expect_refusal(ENOSYS, "is too old");
	}
	for (i = 0; i < 5; i++) {
		setenv("GMM_TEST_KERNEL", unsafe[i], 1);
		unsetenv("GMM_UNSAFE_KERNEL");
		expect_refusal(ENOSYS, "GMM_UNSAFE_KERNEL=1");
		setenv("GMM_UNSAFE_KERNEL", "1", 1);
		ck_assert_ptr_nonnull(gm_as_current());
		gm_user_exit();
	}
	unsetenv("GMM_UNSAFE_KERNEL");
	for (i = 0; i < 5; i++) {
		setenv("GMM_TEST_KERNEL", good[i], 1);
		ck_assert_ptr_nonnull(gm_as_current());
		gm_user_exit();
	}
	ck_assert_uint_eq(fake_count_fds(), fds);
}
END_TEST

START_TEST(refuses_without_huge_pages)
{
	setenv("GMM_TEST_THP", "always madvise [never]", 1);
	expect_refusal(ENOSYS, "/sys/kernel/mm/transparent_hugepage/enabled");
	/* Mended, it works without a new start. */
	setenv("GMM_TEST_THP", "always [madvise] never", 1);
	ck_assert_ptr_nonnull(gm_as_current());
}
END_TEST

START_TEST(refuses_a_process_without_huge_pages)
{
	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	expect_refusal(ENOSYS, "PR_SET_THP_DISABLE");
	ck_assert_int_eq(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
	ck_assert_ptr_nonnull(gm_as_current());
}
END_TEST

START_TEST(starts_after_mlockall)
{
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		return; /* no right to lock memory */
	ck_assert_msg(gm_as_current() != NULL, "%s", gm_error());
}
END_TEST

START_TEST(refuses_without_rights)
{
	setenv("GMM_TEST_UFFD", "/nowhere", 1);
	expect_refusal(EPERM, "/dev/userfaultfd");
	ck_assert_ptr_nonnull(strstr(gm_error(), "sudo"));
	setenv("GMM_USER_FAULTS_ONLY", "1", 1);
	ck_assert_ptr_nonnull(gm_as_current());
}
END_TEST

static int broken_move(enum gm_sys_call call, unsigned long what)
{
	return call == GM_SYS_IOCTL && (what & 0xff) == 0x05 ? EINVAL : 0;
}

START_TEST(refuses_a_broken_move)
{
	gm_store(&gm_sys_hook, broken_move);
	expect_refusal(ENOSYS, "moving a page was tried");
	gm_store(&gm_sys_hook, NULL);
	ck_assert_ptr_nonnull(gm_as_current());
}
END_TEST

/* Whatever call fails while it starts: an error, and nothing stays behind. */
static uint32_t calls, fail_at;

static int fail_nth(enum gm_sys_call call, unsigned long what)
{
	/* Who cannot unmap cannot clean up. */
	return call != GM_SYS_MUNMAP &&
			       gm_add(&calls, 1) + 1 == gm_load(&fail_at)
		       ? ENOMEM
		       : 0;
}

START_TEST(start_fails_cleanly)
{
	unsigned int fds, maps, threads, ok = 0;
	uint64_t va;

	fake_start(1, 1); /* what the C library keeps is there from now on */
	fake_stop();
	fds = fake_count_fds();
	maps = fake_count_maps();
	threads = fake_count_threads();
	for (fail_at = 1; fail_at < 120; fail_at++) {
		struct gm_as *as;

		calls = 0;
		gm_store(&gm_sys_hook, fail_nth);
		as = gm_as_current();
		if (as && gm_host_range_map(as, 0, GM_PAGE_SIZE, 3,
					    GM_RANGE_TRACKED, &va) == 0) {
			gm_store(&gm_sys_hook, NULL);
			gm_host_range_unmap(as, va, GM_PAGE_SIZE);
			ok++;
		} else {
			ck_assert_uint_gt(strlen(gm_error()), 5);
		}
		gm_store(&gm_sys_hook, NULL);
		gm_user_exit();
		ck_assert_uint_eq(fake_count_fds(), fds);
		ck_assert_uint_le(fake_count_maps(), maps);
		ck_assert_uint_eq(fake_count_threads(), threads);
	}
	ck_assert_uint_gt(ok, 0);
}
END_TEST

START_TEST(nothing_is_left)
{
	unsigned int fds, maps, threads, i;

	fake_start(4, 1);
	fake_stop();
	fds = fake_count_fds();
	maps = fake_count_maps();
	threads = fake_count_threads();
	for (i = 0; i < 20; i++) {
		fake_start(4, i & 1);
		memset(fake_ptr(0), 1, 4 * GM_PAGE_SIZE);
		if (i & 1)
			ck_assert_int_eq(fake_take(0), 0);
		fake_stop();
	}
	ck_assert_uint_eq(fake_count_fds(), fds);
	ck_assert_uint_eq(fake_count_maps(), maps);
	ck_assert_uint_eq(fake_count_threads(), threads);
}
END_TEST

START_TEST(no_threads_for_the_cpu_alone)
{
	unsigned int threads = fake_count_threads();

	fake_start(4, 0);
	memset(fake_ptr(0), 1, 4 * GM_PAGE_SIZE);
	ck_assert_uint_eq(fake_count_threads(), threads);
	ck_assert_uint_eq(fake_huge(fake_ptr(0), 4 * GM_PAGE_SIZE),
			  4 * GM_PAGE_SIZE);
	ck_assert_uint_eq(fake_faults, 0);
	fake_stop();
}
END_TEST

START_TEST(child_has_nothing)
{
	int fd[2], status;
	char c;
	pid_t pid;

	fake_start(2, 1);
	fake_ptr(0)[0] = 1;
	ck_assert_int_eq(pipe(fd), 0);
	pid = fork();
	if (!pid) {
		if (gm_as_current() || errno != EPERM ||
		    !strstr(gm_error(), "fork"))
			_exit(1);
		if (gm_munmap(fake_ptr(0), 4096) != -1 || errno != EPERM)
			_exit(2);
		if (write(fd[1], fake_ptr(0), 1) != -1 || errno != EFAULT)
			_exit(3);
		if (gm_user.fd_region != -1 || gm_user.fd_dock != -1)
			_exit(4);
		signal(SIGSEGV, SIG_DFL);
		fake_ptr(0)[0] = 2;
		_exit(5);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV,
		      "status %x", (unsigned int)status);
	/* And the parent is as before. */
	ck_assert_int_eq(fake_take(0), 0);
	ck_assert_int_eq(fake_ptr(0)[0], 1);
	(void)c;
	fake_stop();
}
END_TEST

START_TEST(child_of_a_program_without_may_start)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(gm_as_current() ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE)
#define RW (PROT_READ | PROT_WRITE)

START_TEST(bad_arguments)
{
	static const struct {
		uint64_t addr;
		size_t len;
		int prot, flags, fd;
		int64_t offset;
		int err;
	} bad[] = {
		{ 0, 0, RW, FLAGS, -1, 0, EINVAL },
		{ 0, 1, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, EINVAL },
		{ 0, 1, RW, FLAGS | MAP_SHARED, -1, 0, EINVAL },
		{ 0, 1, RW, FLAGS | MAP_HUGETLB, -1, 0, EINVAL },
		{ 0, 1, PROT_WRITE, FLAGS, -1, 0, EINVAL },
		{ 0, 1, RW | PROT_EXEC, FLAGS, -1, 0, EINVAL },
		{ 0, 1, RW, FLAGS, 3, 0, EINVAL },
		{ 0, 1, RW, FLAGS, -1, 4096, EINVAL },
		{ 0x1000, 1, RW, FLAGS | MAP_FIXED, -1, 0, EINVAL },
		{ 0, 1, RW, FLAGS | MAP_FIXED, -1, 0, EINVAL },
		{ 0, SIZE_MAX, RW, FLAGS, -1, 0, ENOMEM },
		{ ~GM_PAGE_MASK, GM_PAGE_SIZE * 2, RW, FLAGS | MAP_FIXED, -1, 0,
		  EINVAL },
	};
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		errno = 0;
		ck_assert_ptr_eq(gm_mmap((void *)bad[i].addr, bad[i].len,
					 bad[i].prot, bad[i].flags, bad[i].fd,
					 bad[i].offset),
				 MAP_FAILED);
		ck_assert_msg(errno == bad[i].err, "%u: %d", i, errno);
		ck_assert_uint_gt(strlen(gm_error()), 5);
	}
	ck_assert_int_eq(gm_munmap((void *)1, 4096), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(gm_munmap((void *)4096, 0), -1);
	ck_assert_int_eq(gm_munmap((void *)4096, 4096), -1);
	ck_assert_int_eq(gm_munmap((void *)4096, SIZE_MAX), -1);
	ck_assert_int_eq(gm_mprotect((void *)4096, 4096, PROT_EXEC), -1);
	ck_assert_int_eq(gmadvise(0, (void *)4096, 0, GM_WILLNEED), 0);
	ck_assert_int_eq(gmadvise(0, (void *)4096, 0, 77), -1);
	ck_assert_int_eq(gmadvise(0, (void *)-4096, 8192, GM_WILLNEED), -1);
	ck_assert_int_eq(gmemcpy(0, NULL, NULL, 0), 0);
	ck_assert_int_eq(gmemcpy(0, (void *)-1, NULL, 8), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_eq(gm_mremap((void *)4096, 1, 1, 0), MAP_FAILED);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_eq(gm_mremap((void *)GM_PAGE_SIZE, 1, 1, 8), MAP_FAILED);
}
END_TEST

START_TEST(nodes_of_the_host)
{
	struct gm_node_info info;

	ck_assert_int_ge(gm_nodes(&info, 1), 1);
	ck_assert_uint_gt(info.total, 1ULL << 28);
	ck_assert_uint_lt(info.free, info.total);
	ck_assert_int_ge(gm_nodes(NULL, 0), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("process");

	fake_add(suite, refuses_kernels);
	fake_add(suite, refuses_without_huge_pages);
	fake_add(suite, refuses_without_rights);
	fake_add(suite, refuses_a_process_without_huge_pages);
	fake_add(suite, starts_after_mlockall);
	fake_add(suite, refuses_a_broken_move);
	fake_add(suite, no_threads_for_the_cpu_alone);
	fake_add(suite, child_has_nothing);
	fake_add(suite, child_of_a_program_without_may_start);
	fake_add(suite, bad_arguments);
	fake_add(suite, nodes_of_the_host);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
	/* The sanitizers have mappings and threads of their own. */
	fake_add(suite, start_fails_cleanly);
	fake_add(suite, nothing_is_left);
#else
	(void)start_fails_cleanly;
	(void)nothing_is_left;
#endif
	return fake_run(suite);
}
