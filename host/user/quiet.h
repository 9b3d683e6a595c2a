/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * quiet.h - no signal handler of the program's runs inside a call
 */
#ifndef GM_USER_QUIET_H
#define GM_USER_QUIET_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>

/*
 * A call may hold the lock of the very page that a signal handler of the
 * program's touches, and on the same thread that would wait for ever; ended by
 * pthread_cancel() at one of its system calls, it would take the lock along.
 * So neither happens inside a call. Signals of the thread's own doing stay.
 */
struct quiet {
	sigset_t mask;
	int cancel;
};

static inline struct quiet be_quiet(void)
{
	static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	struct quiet quiet;
	sigset_t set;
	unsigned int i;

	sigfillset(&set);
	for (i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&set, own[i]);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &quiet.cancel);
	pthread_sigmask(SIG_BLOCK, &set, &quiet.mask);
	return quiet;
}

/* Handlers run here: errno and the answer are the call's. */
static inline void be_loud(struct quiet *quiet)
{
	int saved = errno;

	pthread_sigmask(SIG_SETMASK, &quiet->mask, NULL);
	pthread_setcancelstate(quiet->cancel, NULL);
	errno = saved;
}

/* From here to the end of the function. */
#define QUIETLY \
	struct quiet quiet_ __attribute__((cleanup(be_loud))) = be_quiet()

#endif /* GM_USER_QUIET_H */
