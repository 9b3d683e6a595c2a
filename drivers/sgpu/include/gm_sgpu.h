/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * gm_sgpu.h - attach software GPUs to this process's unified memory
 */
#ifndef GM_SGPU_H
#define GM_SGPU_H

#ifdef __cplusplus
extern "C" {
#endif

struct sgpu;

/**
 * gm_sgpu_attach() - give a GPU's memory to the manager
 * @gpu: from sgpu_open(), with nothing launched yet
 * @node: if not NULL, the id of its memory, for gmadvise() and gmemcpy()
 *
 * From here on unified pointers can be given to sgpu_launch().
 *
 * Return: 0; -EEXIST if it is attached; what gm_as_attach() says; gm_error()
 * explains.
 */
int gm_sgpu_attach(struct sgpu *gpu, int *node);

/**
 * gm_sgpu_detach() - take it back
 * @gpu: attached
 *
 * Waits for launches; pages that live on the GPU go to host memory.
 * sgpu_close() of an attached GPU does the same, but ends the launches.
 *
 * Return: 0; -ENOENT if it is not attached; -EPERM in a child of fork(); -ENOMEM if host memory cannot take
 * the pages: it is then still attached.
 */
int gm_sgpu_detach(struct sgpu *gpu);

#ifdef __cplusplus
}
#endif

#endif /* GM_SGPU_H */
