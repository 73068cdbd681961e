/* One walk over a graph that replaces tensors and drops or adds nodes: the frame of most passes.
 *
 *     rewrite_begin(&rewrite, graph);
 *     for (int i = 0; i < rewrite.order_n; i++) {
 *         int id = rewrite_next(&rewrite, i);     // inputs already replaced
 *         ... rewrite_keep(&rewrite, id), or rewrite_replace(&rewrite, its output, another tensor)
 *     }
 *     rewrite_end(&rewrite);                      // order, outputs and updates are the new ones
 *
 * Nodes added to the graph in between (graph_add_node, build) come before the node that is kept next. */
#ifndef PASSES_REWRITE_REWRITE_H
#define PASSES_REWRITE_REWRITE_H

#include "ir/ir.h"

struct rewrite {
    struct graph *graph;
    int *order, order_n; /* as it was */
    int *become;         /* per tensor: what its readers read now */
    int capacity;
};

void rewrite_begin(struct rewrite *rewrite, struct graph *graph);
int rewrite_next(struct rewrite *rewrite, int i);
void rewrite_keep(struct rewrite *rewrite, int node);
void rewrite_replace(struct rewrite *rewrite, int tensor, int by);
/* What readers of the tensor read now. */
int rewrite_read(const struct rewrite *rewrite, int tensor);
void rewrite_end(struct rewrite *rewrite);

#endif
