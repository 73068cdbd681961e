/* The checks of ir/verify.h, a file each: parts.c whether ranks hold the indices that they read (Note [Runs]), splits.c
 * nodes along a mesh axis, moves.c collectives and transfers, order.c what the order of all nodes must satisfy. Each
 * check reports violations of the node v->node with verify_fail. */
#ifndef IR_VERIFY_VERIFIER_H
#define IR_VERIFY_VERIFIER_H

#include "ir/dims.h"
#include "ir/ir.h"

struct verifier {
    struct graph *graph;
    struct arena *arena; /* released at the end */
    struct diags *diags;
    bool *written;                          /* per tensor: a value exists at this point of the order */
    int node;                               /* the node under check; -1: the graph itself */
    bool any_packed, any_runs, any_gathers; /* nodes that verify_packing, verify_runs and verify_gathers are about */
};

__attribute__((format(printf, 2, 3))) void verify_fail(struct verifier *v, const char *format, ...);
const struct tensor *verify_tensor(const struct verifier *v, int id);
/* WHOLE for an input that is left out. */
enum placement_kind verify_kind(const struct verifier *v, int tensor, int axis);

/* An operand whose dimension contains the factor that is split along the axes of its cuts. */
void verify_parts(struct verifier *v, const struct dims *dims, const struct node *node, int o,
                  const struct tensor *tensor, int factor, int dim);
/* An operand that is read in windows by the positions of the cut factor. */
void verify_window(struct verifier *v, const struct factor *halo, const struct tensor *tensor, int axis, int dim,
                   const struct rt_cut *by_factor);
/* A Crop does not communicate: the window of every rank must lie in its part. */
void verify_crop(struct verifier *v, const struct tensor *from, const struct tensor *to, int axis);

/* A node along an axis that splits one of its factors; that divides its elements flat; that its replicas share; or
 * that does not split it. */
void verify_split(struct verifier *v, const struct dims *dims, const struct node *node, int axis);
void verify_flat(struct verifier *v, const struct dims *dims, const struct node *node, int axis);
void verify_replicas(struct verifier *v, const struct node *node, int axis);
void verify_unsplit(struct verifier *v, const struct node *node, int axis);
/* The axis of ring attention, and no other, divides its positions, in one or two runs for each rank. */
void verify_ring(struct verifier *v, const struct dims *dims, const struct node *node);

/* A collective; a transfer or broadcast between stages; the stage of any other node. */
void verify_move(struct verifier *v, const struct node *node);
void verify_crossing(struct verifier *v, const struct node *node);
void verify_stage(struct verifier *v, const struct node *node);

/* The whole order of nodes: axes that some stages lack, packed operands, gathers that start before they are waited
 * for, and products in runs of rows. */
void verify_unequal_stages(struct verifier *v);
void verify_packing(struct verifier *v);
void verify_gathers(struct verifier *v);
void verify_runs(struct verifier *v);
bool verify_is_begun_gather(const struct node *node);

#endif
