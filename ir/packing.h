/* Which stored matrices are kept in the packed panel layout that the matrix product kernel reads (Note [Panels] in
 * runtime/base/shape/panel.h): those whose only consumers are products, as the second operand, and Gathers. Pass pack
 * (passes/rewrite/pack.c) decides, and sets attribute packed=1 on the nodes that read a packed matrix. */
#ifndef IR_PACKING_H
#define IR_PACKING_H

#include "ir/ir.h"

/* The packing in which the node's kernel can read operand `k`; RT_PLAIN if it reads none. Independent of the
 * decision. */
enum rt_packing packing_read(const struct graph *graph, const struct node *node, int k);

/* Per tensor: it is not packed, because it is an output or part of an update. */
bool *packing_excluded(const struct graph *graph, struct arena *arena);

/* The packing that all consumers of the tensor can read; RT_PLAIN if they differ, if no consumer is a product, or if
 * the tensor is excluded (packing_excluded). */
enum rt_packing packing_possible(const struct graph *graph, const struct uses *uses, const bool *excluded, int tensor);

/* The packing of operand `k` after pass pack. */
enum rt_packing packing_of(const struct graph *graph, const struct node *node, int k);

#endif
