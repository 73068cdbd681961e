/* A plan as data: how the ranks of a mesh share the work of a graph.
 *
 * Policies, rule files, plan files and searches return a plan; they read the graph and change nothing in it. plan_apply
 * is the only function that writes a plan to a graph. plan.json is a plan as text (plan_text.h).
 *
 * A plan names nodes, tensors and mesh axes as the model does, so it needs no graph to be written, read or compared. An
 * ONNX node may have become several nodes: entries with the same name and operator belong to them in graph order. */
#ifndef PASSES_PLAN_PLAN_H
#define PASSES_PLAN_PLAN_H

#include "ir/dims.h"
#include "ir/ir.h"
#include "ir/decisions.h"

/* The ranks along mesh axis `axis` divide dimension `dim` of `tensor` by the cut (blocks, grain) of Note [Cuts] in
 * runtime/base/shape/part.h, mirrored if blocks is negative. `tensor` is the name of an input or output of the node. If
 * several of them have that name, the first is meant; "in0", "in1" .. and "out0" .. mean the others, unless a tensor of
 * the node is called so. A split of a dimension that splits before it in the node's list divide too divides the parts
 * that those leave (Note [Nested cuts] there). */
struct plan_split {
    const char *tensor;
    int axis, dim; /* axis: an index in the plan's mesh */
    int64_t blocks, grain;
    const char *blocks_text, *grain_text; /* as text IR has those that depend on open sizes; NULL: fixed numbers */
    int line, column;                     /* in plan->file */
};

struct plan_node {
    const char *name, *op; /* ONNX name; name of the operator */
    int nsplits;           /* at most one per mesh axis; 0: every rank of its stage computes the whole node */
    struct plan_split *splits;
    int stage;      /* pipeline stage (chunk) */
    bool recompute; /* its result is computed again in the backward phase instead of being kept */
    int line, column;
    bool gives_splits, gives_stage, gives_recompute; /* what a partial plan says of the node */
};

struct plan {
    const char *file;            /* that it was read from; NULL: none */
    bool partial;                /* it says something of some nodes alone */
    struct decisions decisions;  /* as read: 0 and NULL where the file does not say */
    struct chunks chunks;        /* the pipeline stages */
    VEC(struct plan_node) nodes; /* one entry per node of the graph */
    int line, column;            /* of the list of nodes in `file` */
};

struct limits;

/* A plan while a policy makes it: the splits and the stage of every node, by node id. */
struct draft {
    const struct graph *graph;
    struct node_split (*split)[RT_MAX_AXES];
    int *stage;
    struct chunks chunks;
    const struct limits *limits; /* what splits of nodes are allowed (constraints.h); NULL: all */
    bool (*fixed)[RT_MAX_AXES];  /* per node: `split` along the axis is given, and no policy changes it; NULL: none */
    int *given_stage;            /* per node, -1: not given; NULL: none is */
};

/* Starts with the splits and stages of the graph's nodes. Tables lie in graph->arena. */
void draft_init(struct draft *draft, const struct graph *graph);

/* Notes in draft->given_stage that the user gives the node this stage. */
void draft_give_stage(struct draft *draft, int id, int stage);

/* Number of pipeline stages, the coordinate of a stage on the pipeline axis, and the first stage there. */
int draft_stages(const struct draft *draft);
int draft_coordinate(const struct draft *draft, int stage);
int draft_first(const struct draft *draft, int stage);

/* A mesh axis other than `axis` along which a node with these splits is split in the same factor or the same dimension
 * of an operand as by `split`; -1 if there is none. */
int split_other_axis(const struct node_split splits[RT_MAX_AXES], const struct dims *dims, int axis,
                     const struct node_split *split);

/* Of a graph with open sizes: why a dimension of so many pieces cannot be divided among so many ranks, for a message;
 * NULL: it can. Open ones can be if the parts are equal for all sizes. split_open_refused: of the factor that the split
 * divides. */
const char *open_cut_refused(const struct graph *graph, int64_t extent, int64_t ways);
const char *split_open_refused(const struct graph *graph, const struct dims *dims, const struct node_split *splits,
                               int axis, const struct node_split *split);

/* Why a node with these splits cannot be split along `axis` by `split` too, for a message. */
const char *split_refused(const struct graph *graph, const struct dims *dims, const struct node_split *splits, int axis,
                          const struct node_split *split);

/* Splits the node along `axis` too. NULL, or why it cannot be. */
const char *split_nest(const struct graph *graph, const struct dims *dims, struct node_split *splits, int axis,
                       const struct node_split *split);

/* The tensor of an operand (inputs, then outputs) of the node; -1: it is left out. */
int split_tensor(const struct node *node, const struct dims *dims, int operand);

/* The operand that a user means by the name of a tensor of the node, by "in0", "in1" .., "out0" .., or by a glob over
 * the names of its tensors, in this order; -1: the node has none. */
int split_operand(const struct graph *graph, const struct node *node, const struct dims *dims, const char *name);

/* The split of the node's operator that divides exactly so the dimension of the operand among `ways` ranks. False: it
 * has none. */
bool split_of_cut(const struct node *node, const struct dims *dims, int operand, int dim, int64_t blocks, int64_t grain,
                  int ways, struct node_split *out);

/* The plan that the draft has come to, of whose decisions it has the mesh alone. Memory is of graph->arena; names are
 * those of the graph. */
void plan_of_draft(struct plan *plan, const struct draft *draft);

/* Sets dropped[id] for the nodes of the forward phase that the plan recomputes. */
void plan_recomputed(const struct plan *plan, const struct graph *graph, bool *dropped);

/* A partial plan (--refine) gives the splits, stages and recomputation of some nodes of the forward phase; a policy
 * decides the rest, also of the axes that the partial plan's mesh does not have. Entries for nodes of later phases are
 * left out: those follow. */

/* 0, or -1 after E0424 for each entry that is for no node of the graph. */
int plan_check_entries(const struct plan *partial, const struct graph *graph, struct diags *diags);

/* Sets splits, `fixed` and `given_stage` of the nodes that the graph has. 0, or -1 after E0420, or E0424 where the mesh
 * is another one. is_base: for a search, which also plans without the stages of the partial plan, and then either
 * without the axes that only some stages have or with them for all nodes. */
int plan_refine(struct draft *draft, const struct plan *partial, bool is_base, struct diags *diags);

/* Writes the plan to a TYPED graph in which pass recompute has copied the nodes that it marks: the splits and the stage
 * of every node. Refuses what the graph cannot have: 0, or -1 after diagnostics, and the graph is then of no use.
 *
 *   E0415   the plan has a schedule that this version does not support
 *   E0420   the operator or the mesh does not allow a split; names node and dimension
 *   E0424   the plan does not describe this graph; names line and column if it was read from a file */
int plan_apply(struct graph *graph, const struct plan *plan, struct diags *diags);

#endif
