/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * wire_redirect.h - included before all else when the runtime is compiled to
 * be fuzzed: whatever reaches the device or waits goes to the fuzzer's device
 */
#ifndef FUZZ_WIRE_REDIRECT_H
#define FUZZ_WIRE_REDIRECT_H

#define syscall fuzz_syscall
#define clock_gettime fuzz_clock_gettime
#define clock_nanosleep fuzz_clock_nanosleep
#define poll fuzz_poll
#define send fuzz_send
#define recv fuzz_recv
#define posix_spawn fuzz_posix_spawn
#define waitid fuzz_waitid
#define waitpid fuzz_waitpid
#define kill fuzz_kill
#define madvise fuzz_madvise
#define pthread_create fuzz_pthread_create
#define pthread_join fuzz_pthread_join
#define pthread_cond_wait fuzz_pthread_cond_wait
#define pthread_cond_timedwait fuzz_pthread_cond_timedwait

#endif /* FUZZ_WIRE_REDIRECT_H */
