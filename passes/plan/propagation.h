/* Propagation of splits: from one node or tensor to all nodes that must be split with it.
 *
 * Note [Propagation]
 * A policy decides little: "split the columns of this product", "split the batch of this input". The rest follows from
 * the annotations of operators (ir/dims.h), as in GSPMD and Shardy. If an operand of a node is split, the node splits
 * the factor that this dimension belongs to. That splits the node's other operands and its results, and so on: forward
 * to readers, backward to producers. Propagation ends where a factor is summed (the result is partial), at stored
 * tensors (each rank loads its shard), and at the outputs of the graph.
 *
 * Where a dimension is a product of factors (heads times head size) or consists of blocks (a fused query-key-value
 * product), the split at the origin was too fine. Propagation then starts again with larger granules or with more
 * blocks (Note [Cuts] in runtime/base/shape/part.h). So heads stay whole and a fused weight is split in three places
 * because of the graph, with no pattern to match.
 */
#ifndef PASSES_PLAN_PROPAGATION_H
#define PASSES_PLAN_PROPAGATION_H

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/plan/plan.h"

/* The splits of a graph along one mesh axis, while they are decided. The splits themselves are in the draft. */
struct propagation {
    const struct graph *graph;
    struct node_split (*split)[RT_MAX_AXES]; /* per node: the draft's */
    const struct draft *draft;
    struct arena *arena;
    int axis, ways; /* the mesh axis and its size */
    struct uses uses;
    struct dims **dims; /* per node; NULL: not bound yet (propagation_dims) */
    bool *decided;      /* per node: it is split along this axis, or a policy wants it to stay as it is */
    int *requested;     /* per tensor, during an attempt: 1 + the index of its request; 0: none */
    bool *closed;       /* per node: a policy splits it by itself; PROPAGATE_GATHER ends before it */
    int *update;        /* per tensor: 1 + the first of the updates of this weight; 0: none */
    int *next_update;   /* per update: 1 + the next one of the same weight; 0: none */
    unsigned *lacking;  /* stages_lacking, if some pipeline stages alone have the axis; else NULL */
    bool nests; /* the cuts along this axis may divide parts along other axes (Note [Nested cuts] in base/part.h) */
};

/* No node is closed, and those that are fixed in the draft are decided. Tables lie in the arena. */
void propagation_init(struct propagation *propagation, struct draft *draft, struct arena *arena, int axis);

/* What is decided so far, as a graph of the typical sizes (graph_typical) has it, for costs. */
struct propagation *propagation_typical(struct propagation *propagation);

/* True if the draft gives the node's split along this axis. */
bool propagation_is_fixed(const struct propagation *propagation, int node);

/* True if a stage that computes the node does not have the axis. */
bool propagation_lacks_axis(const struct propagation *propagation, int node);

/* The node's annotation bound to its shapes. */
const struct dims *propagation_dims(struct propagation *propagation, int node);

/* What happens at readers that cannot be split as their operand is. */
enum propagation_mode {
    PROPAGATE_STRICT, /* propagation fails */
    PROPAGATE_GATHER  /* they read the whole tensor, gathered */
};

/* Splits a factor of the node and propagates. False: it is not possible, and the draft is unchanged. */
bool propagate_factor(struct propagation *propagation, int node, int factor, enum propagation_mode mode);

/* The same with the blocks and the granule of `split`. */
bool propagate_cut(struct propagation *propagation, int node, const struct node_split *split,
                   enum propagation_mode mode);

/* As propagate_factor with PROPAGATE_GATHER, with larger granules where producers can then follow. */
bool propagate_region(struct propagation *propagation, int node, int factor);

/* Splits dimension `dim` of an input of the graph by the cut (blocks, grain) and propagates. False: as above. */
bool propagate_input(struct propagation *propagation, int tensor, int dim, int64_t blocks, int64_t grain,
                     enum propagation_mode mode);

/* Propagates the part in which a node that is fixed holds a tensor, up to nodes that are decided or cannot follow. */
void propagate_held(struct propagation *propagation, int tensor, const struct placement *part);

/* Splits the node as given, or with larger granules or more blocks. Propagates strictly if that is possible, else with
 * gathers, else splits the node alone. False if the node cannot be split so. */
bool propagate_split(struct propagation *propagation, int node, const struct node_split *split);

/* In training, where a node was split so that ranks read a part of the parameter: splits the update of the parameter
 * likewise, the product that computes its gradient, and other readers of the parameter, if that is possible. Else the
 * update stays whole, and ranks hold the whole parameter beside the part. */
void propagate_update(struct propagation *propagation, int parameter, const struct placement *part);

/* Why the node cannot be split so along the axis, for a message. */
const char *propagation_refuses(struct propagation *propagation, int node, const struct node_split *split);

/* Splits a factor of the node and of no other; its readers gather the result. False if it cannot be split. */
bool split_alone(struct propagation *propagation, int node, int factor);

#endif
