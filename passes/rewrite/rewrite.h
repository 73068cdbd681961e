/* One walk over a graph that replaces tensors and removes or adds nodes; most passes are such a walk.
 *
 *     rewrite_begin(&rewrite, graph);
 *     for (int i = 0; i < rewrite.order_n; i++) {
 *         int id = rewrite_next(&rewrite, i);     // inputs already replaced
 *         ... rewrite_keep(&rewrite, id), or rewrite_replace(&rewrite, its output, another tensor)
 *     }
 *     rewrite_end(&rewrite);                      // order, outputs and updates are the new ones
 *
 * Nodes that are added meanwhile (graph_add_node, build) stand in the new order before the node that is kept next. */
#ifndef PASSES_REWRITE_REWRITE_H
#define PASSES_REWRITE_REWRITE_H

#include "ir/ir.h"

struct rewrite {
    struct graph *graph;
    const int *order; /* before the walk: order_n nodes */
    int order_n;
    int *become;  /* per tensor: its replacement, or itself */
    int capacity; /* of become */
};

/* Takes the graph's order, which is empty until nodes are kept or added. */
void rewrite_begin(struct rewrite *rewrite, struct graph *graph);
/* The id of the i-th node of the old order, after its inputs were replaced. */
int rewrite_next(struct rewrite *rewrite, int i);
/* Appends the node to the new order. */
void rewrite_keep(struct rewrite *rewrite, int node);
/* From now on nodes that read `tensor` read `by`, which is declared the operand of a reduction over replicas as
 * `tensor` is. */
void rewrite_replace(struct rewrite *rewrite, int tensor, int by);
/* Replaces outputs, new values of updates and gradients of parameters. */
void rewrite_end(struct rewrite *rewrite);

/* Such a walk over all nodes: become(env, node) returns the tensor that replaces the node's result, REWRITE_KEPT if the
 * node stays, or -1 after a diagnostic, which ends the walk. Returns 0, or -1 then. */
enum { REWRITE_KEPT = -2 };
int rewrite_each(struct graph *graph, int (*become)(void *env, int node), void *env);

struct op;
struct pass_context;
/* True if the target's kernel of the operator takes 16-bit floats, beside the rows of ops.def that say so. */
bool rewrite_takes_halves(const struct pass_context *context, const struct op *op);

#endif
