/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ggml-gmm.h - what a program may ask this backend beyond ggml's interface
 *
 * By ggml_backend_reg_get_proc_address() on the registry "GMM".
 */
#ifndef GGML_GMM_H
#define GGML_GMM_H

#include <stddef.h>

/* What ggml keeps in a buffer. */
enum ggml_gmm_use {
	GGML_GMM_STATES, /* the KV cache, above all */
	GGML_GMM_WEIGHTS,
	GGML_GMM_ACTIVATIONS,
};

/**
 * ggml_backend_gmm_buffers_t - "ggml_backend_gmm_buffers": visit all buffers
 * @fn: called for each, with its unified memory, for gm_where(); it must not
 *	make or free buffers
 * @arg: passed on
 */
typedef void (*ggml_backend_gmm_buffers_t)(void (*fn)(void *base, size_t len,
						      enum ggml_gmm_use use,
						      void *arg),
					   void *arg);

#endif /* GGML_GMM_H */
