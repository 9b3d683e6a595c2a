/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <stdlib.h>

#include "suites.h"

int main(void)
{
	SRunner *runner = srunner_create(mmu_suite());
	int failed;

	srunner_add_suite(runner, fault_suite());
	srunner_add_suite(runner, error_suite());
	srunner_add_suite(runner, life_suite());
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
