/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * report.h - what the manager did, in plain words
 */
#ifndef REPORT_H
#define REPORT_H

#include "build.h"
#include "gmm/gmm.h"

/* What happened since the last call. */
struct gm_stats stats_step(void);
void report(const struct gm_stats *d, double seconds);

/* Where every page lives. */
void draw_map(const struct arena *arenas, size_t n, int node);

#endif
