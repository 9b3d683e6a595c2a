/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* api.h - what the parts of fuzz-api share */
#ifndef FUZZ_API_H
#define FUZZ_API_H

#include "gmm/gmm.h"
#include "gmm/kpi.h"
#include "input.h"
#include "model.h"
#include "xpu.h"

extern struct xpu xpu;

/* A call has failed: it may have, with one of these, and says why. */
void failed_with(const char *call, int err, const int *errs, size_t n);
#define failed(call, err, ...)                                 \
	do {                                                   \
		const int errs_[] = { __VA_ARGS__ };           \
		failed_with(call, err, errs_,                  \
			    sizeof(errs_) / sizeof(errs_[0])); \
	} while (0)

/* Registration: a device and its frames, in every order. */
void do_kpi(struct input *in);

#endif /* FUZZ_API_H */
