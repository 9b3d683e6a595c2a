/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * list.h - circular doubly linked lists
 */
#ifndef GMM_CORE_LIST_H
#define GMM_CORE_LIST_H

#include "core/core.h"

#define gm_container(ptr, type, member) \
	((type *)((char *)(ptr) - __builtin_offsetof(type, member)))

/* The body may take @pos off its list and hand it on. */
#define gm_list_for_each_safe(pos, tmp, head)                    \
	for (pos = (head)->next, tmp = pos->next; pos != (head); \
	     pos = tmp, tmp = pos->next)

static inline void gm_list_init(struct gm_list *l)
{
	l->prev = l;
	l->next = l;
}

static inline int gm_list_empty(const struct gm_list *l)
{
	return l->next == l;
}

static inline void gm_list_add_tail(struct gm_list *head, struct gm_list *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

static inline void gm_list_add_head(struct gm_list *head, struct gm_list *l)
{
	gm_list_add_tail(head->next, l);
}

static inline void gm_list_del(struct gm_list *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	gm_list_init(l);
}

#endif /* GMM_CORE_LIST_H */
