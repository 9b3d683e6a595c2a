/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* kernel.c - system calls and debuggers on unified memory, wherever it lives */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "harness.h"

static int temp_file(int flags)
{
	char name[] = "./api-kernel-XXXXXX";
	int fd = mkostemp(name, flags);

	ck_assert_msg(fd >= 0, "no file here: %s", strerror(errno));
	unlink(name);
	return fd;
}

static void same(const void *a, const void *b, size_t len)
{
	ck_assert_int_eq(memcmp(a, b, len), 0);
}

/* Write from, read into, a page of each kind. */
START_TEST(read_and_write)
{
	char *p = um(2), *model = plain(2 * PAGE);
	int fd = temp_file(0);

	gpu_start(&gpu, 4);
	cpu_fill(model, 2 * PAGE, 1);
	put(&gpu, p, 2 * PAGE, 1, (enum place)_i);
	ck_assert_int_eq(write(fd, p + 11, 2 * PAGE - 11), 2 * PAGE - 11);
	put(&gpu, p, 2 * PAGE, 2, (enum place)_i);
	ck_assert_int_eq(pread(fd, p, PAGE + 77, 0), PAGE + 77);
	same(p, model + 11, PAGE + 77);
	cpu_check_from(p, (PAGE + 80) / 8, 2 * WORDS, 2);
	close(fd);
}
END_TEST

START_TEST(writev_and_sendfile)
{
	char *p = um(3), *model = plain(3 * PAGE), *back = plain(3 * PAGE);
	struct iovec v[3];
	int fd = temp_file(0), to = temp_file(0);

	gpu_start(&gpu, 4);
	cpu_fill(model, 3 * PAGE, 1);
	put(&gpu, p, 3 * PAGE, 1, (enum place)_i);
	for (int i = 0; i < 3; i++)
		v[i] = (struct iovec){ p + (2 - i) * PAGE, PAGE };
	ck_assert_int_eq(writev(fd, v, 3), 3 * PAGE);
	lseek(fd, 0, SEEK_SET);
	ck_assert_int_eq(sendfile(to, fd, NULL, 3 * PAGE), 3 * PAGE);
	ck_assert_int_eq(pread(to, back, 3 * PAGE, 0), 3 * PAGE);
	for (int i = 0; i < 3; i++)
		same(back + i * PAGE, model + (2 - i) * PAGE, PAGE);
	close(fd);
	close(to);
}
END_TEST

START_TEST(pipes_and_paths)
{
	char *p = um(1), c[16];
	int ends[2];

	gpu_start(&gpu, 4);
	ck_assert_int_eq(pipe(ends), 0);
	strcpy(p + 800, "/proc/self/exe");
	gpu_poke(&gpu, p, 1, 0x6f6c6c6568);
	ck_assert_int_eq(write(ends[1], p, 5), 5);
	ck_assert_int_eq(read(ends[0], c, 16), 5);
	same(c, "hello", 5);
	gpu_poke(&gpu, p, 1, 1);
	ck_assert_int_eq(access(p + 800, X_OK), 0);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

START_TEST(direct_io)
{
	char *p = um(2), *model = plain(2 * PAGE);
	int fd = temp_file(O_DIRECT);

	gpu_start(&gpu, 4);
	cpu_fill(model, 2 * PAGE, 1);
	put(&gpu, p, 2 * PAGE, 1, (enum place)_i);
	ck_assert_int_eq(pwrite(fd, p, 2 * PAGE, 0), 2 * PAGE);
	put(&gpu, p, 2 * PAGE, 2, (enum place)_i);
	ck_assert_int_eq(pread(fd, p + SMALL, PAGE, 0), PAGE);
	same(p + SMALL, model, PAGE);
	cpu_check_from(p, (PAGE + SMALL) / 8, 2 * WORDS, 2);
	gpu_sum_is(&gpu, p + SMALL, 8, pattern(1, 0));
	close(fd);
}
END_TEST

/* --- pages that the kernel holds ------------------------------------------------ */

static int ring_setup(void)
{
	struct io_uring_params params = { 0 };

	return (int)syscall(SYS_io_uring_setup, 4, &params);
}

/* A registered buffer: the page stays until it is given back. */
START_TEST(page_held_by_the_kernel_is_busy)
{
	char *p = um(2);
	struct iovec v = { p + 3 * SMALL, SMALL };
	struct kargs a = { .src = (uint64_t *)p, .n = 1 };
	struct gm_stats s;
	int ring = ring_setup();

	if (ring < 0)
		return; /* this machine forbids io_uring */
	gpu_start(&gpu, 4);
	cpu_fill(p, 2 * PAGE, 1);
	ck_assert_int_eq(syscall(SYS_io_uring_register, ring,
				 IORING_REGISTER_BUFFERS, &v, 1),
			 0);
	s = stats();
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &a), -EBUSY);
	ck_assert_uint_gt(since(s, busy_waits), 0);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	fails(gmadvise(gpu.node, p, 2 * PAGE, GM_WILLNEED), EBUSY);
	ck_assert(where(p + PAGE).copies >> gpu.node & 1);
	cpu_check(p, 2 * PAGE, 1);
	ck_assert_int_eq(syscall(SYS_io_uring_register, ring,
				 IORING_UNREGISTER_BUFFERS, NULL, 0),
			 0);
	gpu_check(&gpu, p, 2 * PAGE, 1);
	close(ring);
}
END_TEST

/* It is given back while an XPU waits: the launch then goes on. */
START_TEST(page_held_for_a_while_is_waited_for)
{
	char *p = um(1);
	struct iovec v = { p, SMALL };
	struct kargs a = { .src = (uint64_t *)p, .n = 1 };
	struct gm_stats s;
	int ring = ring_setup();

	if (ring < 0)
		return;
	gpu_start(&gpu, 4);
	cpu_fill(p, PAGE, 1);
	ck_assert_int_eq(syscall(SYS_io_uring_register, ring,
				 IORING_REGISTER_BUFFERS, &v, 1),
			 0);
	s = stats();
	gpu_launch(&gpu, "peek", 1, &a);
	eventually(since(s, busy_waits) > 0);
	ck_assert_int_eq(syscall(SYS_io_uring_register, ring,
				 IORING_UNREGISTER_BUFFERS, NULL, 0),
			 0);
	ck_assert_int_eq(sgpu_sync(gpu.sgpu, NULL), 0);
	gpu_check(&gpu, p, PAGE, 1);
	close(ring);
}
END_TEST

/* Needs GM_PIN: the kernel's move does not see what a pipe holds. */
START_TEST(vmsplice_of_pinned_memory)
{
	char *p = um(1), back[SMALL];
	struct iovec v = { p, SMALL };
	struct kargs a = { .dst = (uint64_t *)p, .n = 1, .seed = 7 };
	int ends[2];

	gpu_start(&gpu, 4);
	cpu_fill(p, PAGE, 1);
	works(gmadvise(HOST, p, PAGE, GM_PIN));
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(vmsplice(ends[1], &v, 1, 0), SMALL);
	ck_assert_int_eq(gpu_try(&gpu, "poke", 1, &a), -EBUSY);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	ck_assert_int_eq(read(ends[0], back, SMALL), SMALL);
	cpu_check(back, SMALL, 1);
	works(gmadvise(HOST, p, PAGE, GM_UNPIN));
	gpu_run(&gpu, "poke", 1, &a);
	ck_assert_uint_eq(*(uint64_t *)p, 7);
	close(ends[0]);
	close(ends[1]);
}
END_TEST

START_TEST(device_code_has_no_system_calls_on_missing_pages)
{
	uint64_t *p = um(1), *out = um(1);
	struct kargs a = { .src = p, .out = out };

	gpu_start(&gpu, 4);
	*p = 1;
	gpu_run(&gpu, "syscall", 1, &a);
	ck_assert_uint_eq(*out, EFAULT);
}
END_TEST

/* --- from outside ----------------------------------------------------------------- */

/* Another process reads: the page is fetched, for the program runs. */
START_TEST(process_vm_readv_from_outside)
{
	char *p = um(2);
	pid_t pid, self = getpid();
	int status;

	gpu_start(&gpu, 4);
	put(&gpu, p, 2 * PAGE, 1, (enum place)_i);
	pid = fork();
	if (!pid) {
		char *back = plain(2 * PAGE), path[64];
		struct iovec to = { back, 2 * PAGE }, from = { p, 2 * PAGE };
		char *model = plain(2 * PAGE);
		int mem;

		cpu_fill(model, 2 * PAGE, 1);
		if (process_vm_readv(self, &to, 1, &from, 1, 0) !=
			    (ssize_t)(2 * PAGE) ||
		    memcmp(back, model, 2 * PAGE))
			_exit(1);
		snprintf(path, sizeof(path), "/proc/%d/mem", self);
		mem = open(path, O_RDWR);
		if (mem < 0 ||
		    pread(mem, back, 64, (off_t)(uintptr_t)p) != 64 ||
		    memcmp(back, model, 64))
			_exit(2);
		memset(back, 0, 64);
		if (pwrite(mem, back, 8, (off_t)(uintptr_t)(p + PAGE)) != 8)
			_exit(3);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	cpu_check(p, PAGE, 1);
	ck_assert_uint_eq(*(uint64_t *)(p + PAGE), 0);
	gpu_sum_is(&gpu, p + PAGE, 16, pattern(1, WORDS + 1));
}
END_TEST

/* Reads 64 bytes of another process, as a debugger does. */
static int read_outside(pid_t pid, const void *p)
{
	char back[64], model[64];
	struct iovec to = { back, 64 }, from = { (void *)(uintptr_t)p, 64 };

	cpu_fill(model, 64, 1);
	if (process_vm_readv(pid, &to, 1, &from, 1, 0) != 64)
		return 1;
	return memcmp(back, model, 64) ? 2 : 0;
}

/* Stops the program, has a page read that is away, lets the program go on. */
static int debug(pid_t program, const void *p)
{
	pid_t reader;
	int status, early;

	kill(program, SIGSTOP);
	reader = fork();
	if (!reader)
		_exit(read_outside(program, p));
	usleep(200000);
	early = waitpid(reader, &status, WNOHANG) != 0;
	kill(program, SIGCONT);
	if (early)
		return 3;
	waitpid(reader, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

START_TEST(debugger_waits_while_the_program_stands_still)
{
	char *p = um(1);
	pid_t pid, self = getpid();
	int status;

	gpu_start(&gpu, 4);
	put(&gpu, p, PAGE, 1, ON_XPU);
	pid = fork();
	if (!pid)
		_exit(debug(self, p));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	cpu_check(p, PAGE, 1);
}
END_TEST

START_TEST(userfaultfd_of_the_program_is_refused)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *p = um(1);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0)
		return;
	gpu_start(&gpu, 4);
	reg.range.start = (uintptr_t)p;
	reg.range.len = PAGE;
	ck_assert_int_eq(ioctl(fd, UFFDIO_API, &api), 0);
	ck_assert_int_eq(ioctl(fd, UFFDIO_REGISTER, &reg), -1);
	ck_assert_int_eq(errno, EBUSY);
	close(fd);
}
END_TEST

START_TEST(pagemap_sees_only_what_is_mapped)
{
	char *p = um(2);
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);

	ck_assert_int_ge(fd, 0);
	gpu_start(&gpu, 4);
	cpu_fill(p, 2 * PAGE, 1);
	gpu_fill(&gpu, p, PAGE, 2);
	ck_assert_int_eq(
		pread(fd, &entry, 8, (off_t)((uintptr_t)p / SMALL * 8)), 8);
	ck_assert_uint_eq(entry >> 63, 0); /* not present */
	ck_assert_int_eq(pread(fd, &entry, 8,
			       (off_t)((uintptr_t)(p + PAGE) / SMALL * 8)),
			 8);
	ck_assert_uint_eq(entry >> 63, 1);
	cpu_check(p, PAGE, 2);
	close(fd);
}
END_TEST

/* --- other calls on the range ------------------------------------------------------ */

START_TEST(own_hints_of_the_program)
{
	char *p = um(3);

	gpu_start(&gpu, 4);
	put(&gpu, p, 3 * PAGE, 1, (enum place)_i);
	madvise(p, 3 * PAGE, MADV_PAGEOUT);
	madvise(p, 3 * PAGE, MADV_COLD);
	cpu_check(p, PAGE, 1);
	gpu_check(&gpu, p, 3 * PAGE, 1);
	/* Cuts the page, as a partial munmap() does. */
	ck_assert_int_eq(madvise(p + SMALL, SMALL, MADV_DONTDUMP), 0);
	cpu_check(p, 3 * PAGE, 1);
	put(&gpu, p + PAGE, 2 * PAGE, 2, (enum place)_i);
	cpu_check(p, PAGE, 1);
	cpu_check(p + PAGE, 2 * PAGE, 2);
}
END_TEST

/*
 * Half a page of another kind: from then on the kernel cannot move it as one.
 * It comes home, and an XPU's launch that wants it fails.
 */
START_TEST(cut_by_a_flag)
{
	char *p = um(2);
	struct kargs a = { .src = (uint64_t *)p, .n = 1 };

	gpu_start(&gpu, 4);
	put(&gpu, p, 2 * PAGE, 1, (enum place)_i);
	ck_assert_int_eq(madvise(p + PAGE / 2, PAGE, MADV_DONTDUMP), 0);
	cpu_check(p, 2 * PAGE, 1);
	ck_assert_int_eq(gpu_try(&gpu, "peek", 1, &a), -EFAULT);
	ck_assert_int_eq(sgpu_reset(gpu.sgpu), 0);
	ck_assert_int_eq(where(p).state, GM_STATE_FRAGMENTED);
	cpu_check(p, 2 * PAGE, 1);
}
END_TEST

START_TEST(collapse_is_refused)
{
	char *p = um(1);

	gpu_start(&gpu, 4);
	p[SMALL] = 1;
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
	/* Whole already, or refused; never another page with other data. */
	madvise(p, PAGE, MADV_COLLAPSE);
	ck_assert_int_eq(p[SMALL], 1);
	gpu_sum_is(&gpu, p, PAGE, 1);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, own_hints_of_the_program, 0, NR_PLACES);
	tcase_add_loop_test(tc, cut_by_a_flag, 0, NR_PLACES);
	tcase_add_test(tc, collapse_is_refused);
	tcase_add_loop_test(tc, read_and_write, 0, NR_PLACES);
	tcase_add_loop_test(tc, writev_and_sendfile, 0, NR_PLACES);
	tcase_add_test(tc, pipes_and_paths);
	tcase_add_loop_test(tc, direct_io, 0, NR_PLACES);
	tcase_add_test(tc, page_held_by_the_kernel_is_busy);
	tcase_add_test(tc, page_held_for_a_while_is_waited_for);
	tcase_add_test(tc, vmsplice_of_pinned_memory);
	tcase_add_test(tc, device_code_has_no_system_calls_on_missing_pages);
	tcase_add_loop_test(tc, process_vm_readv_from_outside, 0, NR_PLACES);
	tcase_add_test(tc, debugger_waits_while_the_program_stands_still);
	tcase_add_test(tc, userfaultfd_of_the_program_is_refused);
	tcase_add_test(tc, pagemap_sees_only_what_is_mapped);
}

int main(void)
{
	return run_suite("kernel", add);
}
