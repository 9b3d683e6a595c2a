/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * env.c - what the environment tells the library, in a process of its own
 *
 * The library reads it once, so each case is a child. Whatever is set, the
 * library either works or refuses with a reason.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmm/gmm.h"
#include "input.h"

#define CHILD_LIMIT_S 20

static const char *const names[] = {
	"GMM_ARENA",	"GMM_WORKERS",	     "GMM_RECYCLE",
	"GMM_REPLICAS", "GMM_UNSAFE_KERNEL", "GMM_USER_FAULTS_ONLY"
};

static void set(struct input *in, const char *name)
{
	static const char *const values[] = { "",
					      "0",
					      "1",
					      "-1",
					      " 1",
					      "0x",
					      "1e3",
					      "1K",
					      "64",
					      "0x400000000000",
					      "+1",
					      "99999999999999999999",
					      "0x300000000000",
					      "4095",
					      "0x7fffffffffff" };
	char text[24];

	if (below(in, 3) == 0)
		return;
	if (below(in, 2)) {
		setenv(name,
		       values[below(in, sizeof(values) / sizeof(values[0]))],
		       1);
	} else {
		snprintf(text, sizeof(text), below(in, 2) ? "%llu" : "%#llx",
			 (unsigned long long)number(in));
		setenv(name, text, 1);
	}
}

static void child(struct input *in)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_XPU_VISIBLE;
	volatile char *p;

	alarm(CHILD_LIMIT_S);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		set(in, names[i]);
	p = gm_mmap(NULL, 1, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (p == MAP_FAILED) {
		if (!*gm_error())
			wrong("%s, and gm_error() says nothing",
			      strerror(errno));
		if (errno != EINVAL && errno != ENOMEM && errno != EPERM &&
		    errno != ENOSYS)
			wrong("%s: %s", strerror(errno), gm_error());
		_exit(0);
	}
	if (!p)
		wrong("unified memory at NULL");
	*p = 1;
	if (gmadvise(0, (void *)p, 1, GM_WILLNEED) || *p != 1)
		wrong("it does not work: %s", gm_error());
	if (gm_munmap((void *)p, GM_PAGE_SIZE))
		wrong("unmap: %s", gm_error());
	_exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { .at = data, .end = data + size };
	pid_t pid = fork();
	int status;

	if (pid == 0)
		child(&in);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		wrong("no child: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		wrong("the child ended with %#x", (unsigned int)status);
	return 0;
}
