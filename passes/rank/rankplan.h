/* What each rank executes, and where its buffers lie: the last step before sources.
 *
 * Shards whose parts have the same extents run the same code and form a class; what differs between them (which
 * part) follows at run time from their place on the mesh. Memory is planned per class: WEIGHTS        stored
 * tensors the class reads, one after the other ACTIVATIONS    inputs and values, sharing addresses when their
 * lifetimes allow COMMUNICATION  values that ranks exchange; offsets are equal on all shards, so that peers can
 * reach them SCRATCH        room for the one instruction that needs most
 */
#ifndef PASSES_RANK_RANKPLAN_H
#define PASSES_RANK_RANKPLAN_H

#include "ir/dims.h"
#include "ir/op.h"
#include "ir/packing.h"

/* By enum rt_arena: what manifest.json and generated code call it, and its enumerator. */
extern const char *const plan_arena_names[RT_ARENAS], *const plan_arena_enumerators[RT_ARENAS + 1];

struct plan_place {
    enum rt_arena arena;
    int64_t offset; /* -1: not held; of an input: its index */
};

/* A tensor that lies in another (Note [Views] in views.h): the result of a node in its operand, or an operand in its
 * result. */
enum plan_view_kind { VIEW_NONE, VIEW_OF_OPERAND, VIEW_IN_RESULT };
struct plan_view {
    enum plan_view_kind kind;
    int node;
};

struct strides; /* views.h */

struct plan_class {
    int shard;                 /* the first shard of the class */
    int stage;                 /* its place on the pipeline axis, 0 without one */
    int64_t (*dims)[MAX_NDIM]; /* per tensor: extents of the part; one table for all stages that have the same */
    /* per tensor: where elements lie in another tensor (views.h); NULL: one after the other */
    const struct strides **strides;
    struct plan_place *place; /* per tensor */
    int64_t bytes[RT_ARENAS];
    /* offset in ACTIVATIONS where the controls lie one after the other; -1: behind the caller's inputs */
    int64_t controls;
    VEC(int) peak_live; /* tensors live when most activations are */
};

/* What a set of kernels needs beyond what the graph says. */
struct plan_kernels {
    bool holds_inputs; /* inputs and controls lie in ACTIVATIONS: kernels cannot read the caller's memory */
    /* Bytes of SCRATCH that the node's kernel wants; NULL: none does. */
    int64_t (*scratch)(const struct graph *graph, const struct plan_class *class, const struct node *node);
};

struct rankplan {
    struct graph *graph;
    struct plan_view *view;   /* per tensor */
    bool *moves_nothing;      /* per node: it is not executed, its result and its operands being views */
    int *root;                /* per tensor: the tensor whose bytes it shares (views) */
    VEC(int) weights;         /* stored tensors that nodes or outputs read as memory, not as literals, by first use */
    VEC(int) states;          /* of the optimizer, that nodes read, by first use */
    enum rt_packing *packing; /* per tensor: how a stored matrix lies that is read in panels */
    bool *shared;             /* per tensor (root): lies in COMMUNICATION */
    struct plan_kernels kernels;
    int nclasses, *class_of; /* per shard */
    struct plan_class *classes;
};

/* Plans a SCHEDULED graph, which becomes PLANNED, for kernels that need no more than it says (NULL) or what they
 * say. */
void rankplan_make(struct rankplan *plan, struct graph *graph, const struct plan_kernels *kernels);

/* A constant of one element, read by elementwise operators only as a number in the code. */
bool rankplan_is_literal(const struct graph *graph, const struct node *node, int operand);

/* The operand where output `output` of an elementwise node lies, on ranks of the class (Note [In place] in memplan.c);
 * -1: none. */
int rankplan_in_place(const struct plan_class *class, const struct graph *graph, const struct node *node, int output);

/* The node as ranks of the class execute it: with the attributes of their part. Its annotation in *dims. */
void rankplan_localize(struct graph *graph, const struct plan_class *class, struct node *node, struct dims *dims);

/* stage_part() for ranks of the class. */
int rankplan_part(const struct plan_class *class, const struct node *node);

int64_t rankplan_elements(const struct plan_class *class, const struct graph *graph, int tensor);
int64_t rankplan_bytes(const struct plan_class *class, const struct graph *graph, int tensor);

/* Same order of communication on all ranks of every group, and no two live values on one address: 0 or -1. */
int rankplan_verify(const struct rankplan *plan, struct diags *diags);

#endif
