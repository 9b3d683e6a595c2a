/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef SGPU_TEST_SUITES_H
#define SGPU_TEST_SUITES_H

#include <check.h>

Suite *mmu_suite(void);
Suite *fault_suite(void);
Suite *error_suite(void);
Suite *life_suite(void);

#endif /* SGPU_TEST_SUITES_H */
