/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * fake.h - the smallest core that the Linux process host can be tested with
 *
 * One directory of pages that are either in the page table or at rest.
 */
#ifndef GM_TEST_FAKE_H
#define GM_TEST_FAKE_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#include "sys.h"
#include "user.h"

#define FAKE_PAGES 128

extern struct gm_as *fake_as;
extern uint64_t fake_base;
/* What gm_cpu_fault() is to return instead of serving; 0: serve. */
extern int fake_error;
/* How long the core takes to serve an event. */
extern unsigned int fake_event_ms;
extern uint32_t fake_faults, fake_fills, fake_unmapped, fake_discarded,
	fake_remapped;
extern uint64_t fake_last_va, fake_last_len;

/* Make the library ready, with @n pages at fake_base, tracked if @tracked. */
void fake_start(unsigned int n, int tracked);
void fake_stop(void);
/* Take page @i off the CPU; what cpu_unmap said. */
int fake_take(unsigned int i);
/* The same for @n pages in one call. */
void fake_take_many(unsigned int i, unsigned int n, int *status);
int fake_put(unsigned int i);
struct gm_page *fake_page(unsigned int i);
char *fake_ptr(unsigned int i);
/* Bytes of [va, va + len) that are in huge pages. */
uint64_t fake_huge(const void *va, uint64_t len);
unsigned int fake_count_fds(void);
unsigned int fake_count_threads(void);
unsigned int fake_count_maps(void);
int fake_run(Suite *suite);
/* Each test is a case of its own, for CK_RUN_CASE. */
#define fake_add(suite, name) fake_add_test(suite, #name, name, 0)
#define fake_add_abort(suite, name) fake_add_test(suite, #name, name, SIGABRT)
void fake_add_test(Suite *suite, const char *name, const TTest *test,
		   int signal);

void gm_user_exit(void);

#endif /* GM_TEST_FAKE_H */
