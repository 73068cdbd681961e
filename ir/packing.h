/* Which stored matrices lie in panels (Note [Panels] in runtime/base/panel.h): those that only products read, as their
 * right side, and Gather. passes/rewrite/pack.c decides; its decision is attribute packed=1 of the nodes that read
 * them. */
#ifndef IR_PACKING_H
#define IR_PACKING_H

#include "ir/ir.h"

/* What the node would read operand `k` as; RT_PLAIN where its kernel reads no panels. */
enum rt_packing packing_read(const struct graph *graph, const struct node *node, int k);

/* What all readers of the tensor would read it as, if at least one is a product and nothing else needs its bytes. */
enum rt_packing packing_possible(const struct graph *graph, const struct uses *uses, int tensor);

/* What operand `k` of the node is, now that it is decided. */
enum rt_packing packing_of(const struct graph *graph, const struct node *node, int k);

#endif
