/* The intermediate representation: what a program is, from the imported model to the ranks' programs.
 *
 * A graph holds tensors and nodes by id; ids stay valid, dead ones are skipped by `order`, which lists the live
 * nodes in an order of execution (every value is written before it is read). Shapes are static and complete: what a
 * rank holds of a tensor follows from its layout. Side tables are arrays indexed by id.
 *
 * The same structures serve every level; a level says what holds (verify.h checks it):
 *   IMPORTED       core operators, shapes known; dead and foldable nodes may remain
 *   TYPED          nothing dead, nothing foldable, no Identity
 *   TRAINING       TYPED, with gradients and parameter updates
 *   PLACED         nodes carry splits, tensors the layout their producer gives them
 *   COMMUNICATING  every input has the layout its node wants: redistributions are nodes
 *   SCHEDULED      stages and order are final
 *   PLANNED        every rank's buffers have addresses
 */
#ifndef IR_IR_H
#define IR_IR_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/vec.h"
#include "runtime/base/contract.h"
#include "runtime/base/dtype.h"
#include "runtime/base/manifest.h"
#include "runtime/base/part.h"

enum { MAX_NDIM = RT_MAX_NDIM, MAX_AXES = RT_MAX_AXES };

enum level { IMPORTED, TYPED, TRAINING, PLACED, COMMUNICATING, SCHEDULED, PLANNED, LEVELS };
extern const char *const level_names[LEVELS];

/* Named axes of the device mesh; the first varies fastest with the shard number. */
struct mesh {
    int naxes;
    struct {
        const char *name;
        int size;
    } axis[MAX_AXES];
};

int mesh_size(const struct mesh *mesh);
/* The shard's place on each axis. */
void mesh_coordinate(const struct mesh *mesh, int shard, int coordinate[MAX_AXES]);
/* The shards that differ from `shard` only on `axis`, in order; returns their number (the axis' size). */
int mesh_group(const struct mesh *mesh, int shard, int axis, int *shards);
/* The axis along which the model is divided into stages, -1 if the mesh has none. */
int mesh_pipeline_axis(const struct mesh *mesh);
int mesh_axis_by_name(const struct mesh *mesh, const char *name);

extern const char *const reduce_names[RT_REDUCES]; /* in text IR */

/* What the positions of an operator read of a dimension: position p the indices [p * stride - before, + span). */
struct reach {
    int64_t positions, stride, before, span;
};

/* What the ranks along one mesh axis hold of a tensor: all of it; a part of one dimension (Note [Cuts] in
 * runtime/base/part.h); a value that only their sum (max, min) makes whole; or a window of one dimension: what their
 * parts of an operator's positions reach (Note [Windows in parts] there). Only redistribution makes windows. */
struct holding {
    enum holding_kind { HOLD_WHOLE, HOLD_PART, HOLD_PARTIAL, HOLD_WINDOW } kind;
    int dim;               /* of a PART or WINDOW */
    int64_t blocks, unit;  /* of a PART; of the positions of a WINDOW, in one block */
    enum rt_reduce reduce; /* of a PARTIAL */
    struct reach reach;    /* of a WINDOW */
};

struct layout {
    struct holding axis[MAX_AXES];
};

enum tensor_kind {
    TENSOR_VALUE,  /* computed by a node */
    TENSOR_INPUT,  /* given to each step, complete */
    TENSOR_WEIGHT, /* stored in the model or beside it; loaded once */
    TENSOR_CONST,  /* known at compile time, bytes in `data` */
    TENSOR_STATE,  /* kept from step to step, zero at first: sums of gradients, moments of an optimizer */
    TENSOR_CONTROL /* a number that the runtime gives to each step (runtime/base/controls.def) */
};

/* Where the bytes of a weight lie. file 0 is the model itself, others are its external data; of IR text, those that it
 * names (graph.files). */
struct stored {
    int file;
    uint64_t offset;
    enum rt_dtype dtype; /* as stored; the tensor's own may differ (--dtype) */
};

/* What a model that is trained says of a WEIGHT. */
enum mark {
    MARK_NONE,
    MARK_PARAMETER, /* the exporter, or training_info, calls it a parameter */
    MARK_BUFFER,    /* the exporter calls it a buffer; a running statistic */
    MARK_FIXED,     /* training_info updates others, but not this one */
    MARK_FOLDED,    /* the exporter computed it from `sources` */
    MARK_MOVED,     /* the exporter transposed or reshaped the parameter `sources` (pass roles) */
    MARKS
};
extern const char *const mark_names[MARKS]; /* in IR text; "" for none */

struct tensor {
    const char *name; /* of the ONNX value; never empty */
    enum tensor_kind kind;
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[MAX_NDIM]; /* complete */
    int producer;           /* node id of a VALUE, else -1 */
    int copy_of;            /* the tensor of another stage that this one recomputes; -1: none */
    const void *data;       /* CONST: its bytes; WEIGHT: its stored bytes if mapped, unaligned, else NULL */
    struct stored stored;   /* WEIGHT */
    enum mark mark;         /* WEIGHT */
    /* of MARK_FOLDED and MARK_MOVED: names of values that it was computed from, between ", "; else NULL */
    const char *sources;
    bool constant;        /* WEIGHT: no parameter, as pass roles found: nothing trains it, and it may be folded */
    bool gradient;        /* STATE: a sum of gradients, cleared before each step; INPUT: the gradient of an output */
    struct layout layout; /* from PLACED on */
};

struct attr {
    const char *key;
    enum attr_kind { ATTR_INT, ATTR_INTS, ATTR_FLOAT, ATTR_TEXT } kind;
    int n; /* of INTS */
    const int64_t *ints;
    int64_t value;
    double number;
    const char *text;
};

/* How the ranks along one mesh axis share a node: factor `factor` of its annotation is cut; or they all do all; or, of
 * linear operators, each computes on partial values and gives a partial value. */
enum { SPLIT_NONE = -1, SPLIT_PARTIAL = -2 };
struct node_split {
    int factor;
    int64_t blocks, unit;
};

/* Names of phases (runtime/base/manifest.h) in text IR. Nodes of a phase come before those of the next. Of a
 * micro-batch's values, the phases after the backward phase read those of the last micro-batch, or sums in a STATE.
 * Evaluation and inference run the forward phase alone. */
extern const char *const phase_names[PHASES];

struct op;

struct node {
    const struct op *op;
    const char *name; /* of the ONNX node it came from; by it users know the node */
    int ninputs, noutputs;
    int *inputs; /* tensor ids, -1: optional input left out */
    int *outputs;
    int nattrs;
    struct attr *attrs;
    struct node_split split[MAX_AXES];
    int stage; /* place on the pipeline axis of the ranks that compute it, or STAGE_ALL */
    enum phase phase;
};

enum { STAGE_ALL = -1 };

/* At the end of the phase of `value`'s node, `weight` (a WEIGHT or STATE) becomes `value`: parameters in training,
 * state carried across steps. Where the graph trains, what the forward phase makes waits for the end of the backward
 * phase. */
struct update {
    int weight, value;
};

/* A node that was fused into another: who may look for what this computes. */
struct member {
    int node; /* the one it is part of */
    const char *name;
};

/* Of a graph between autodiff and optimizer: the gradient of the loss with respect to a weight. */
struct parameter {
    int weight, gradient;
};

struct graph {
    struct arena *arena;
    const char *name;
    enum level level;
    struct mesh mesh;
    bool train; /* parameters may change: weights are not folded */
    VEC(struct tensor) tensors;
    VEC(struct node) nodes;
    VEC(int) order;   /* live nodes */
    VEC(int) placed;  /* from the policy on: the nodes a plan is about, before redistribution and fusion */
    VEC(int) inputs;  /* tensors, in the model's order */
    VEC(int) outputs; /* likewise; one tensor may be listed twice */
    VEC(const char *) output_names;
    VEC(struct member) members; /* names for messages; not part of the text form */
    int nmetrics; /* outputs at the end that are not the model's: gradients of its inputs, norm of the gradient */
    VEC(struct update) updates;
    VEC(struct parameter) parameters;
    VEC(int) controls;       /* tensors, in the order in which the runtime numbers them */
    VEC(const char *) files; /* names in IR text of the files with weights: [0] is stored.file 1 */
};

/* graph.c ---------------------------------------------------------------------------------------------------------- */

void graph_init(struct graph *graph, struct arena *arena, const char *name);

int graph_add_tensor(struct graph *graph, enum tensor_kind kind, const char *name, enum rt_dtype dtype, int ndim,
                     const int64_t *dims);
/* A constant; `data` is copied. */
int graph_add_const(struct graph *graph, const char *name, enum rt_dtype dtype, int ndim, const int64_t *dims,
                    const void *data);
/* A node at the end of `order`. Arrays are copied, outputs become VALUEs produced by it. Shapes are not set. */
int graph_add_node(struct graph *graph, const struct op *op, const char *name, int ninputs, const int *inputs,
                   int noutputs, const int *outputs, int nattrs, const struct attr *attrs);
/* Likewise, with all that `node` says: its place and phase too. */
int graph_add_copy(struct graph *graph, const struct node *node);

/* The tensor of a control (runtime/base/controls.def). The first call adds those of all controls. */
int graph_control(struct graph *graph, enum rt_control control);

/* Brings the nodes of each phase before those of the next. */
void graph_sort_phases(struct graph *graph);
/* The phase in which a tensor comes to be; the first, if no node makes it. */
enum phase graph_phase_of(const struct graph *graph, int tensor);

/* Inputs at the end that are not the model's: gradients of its outputs, of a graph that is trained without a loss. */
int graph_gradient_inputs(const struct graph *graph);

int64_t tensor_elements(const struct tensor *tensor);
int64_t tensor_bytes(const struct tensor *tensor);
/* False if the extents are negative or no tensor of that shape could be held: products of sizes below are safe then. */
bool tensor_shape_fits(int ndim, const int64_t *dims);
/* WEIGHT, CONST or STATE: any rank may hold any part from the start */
bool tensor_is_stored(const struct tensor *tensor);

/* Text such as "f32[2,8,96]". */
const char *tensor_type(struct arena *arena, const struct tensor *tensor);
/* Text such as "node 17 'layer0/attn' (MatMul)", for a diagnostic's place. */
const char *node_place(const struct graph *graph, int node);

/* Readers of each tensor: users[first[t]] .. users[first[t + 1] - 1] are node ids, once per read, in order. */
struct uses {
    int *first, *users;
};
void graph_uses(const struct graph *graph, struct arena *arena, struct uses *uses);
/* The first input of the node that is the tensor; BUG if none is. */
int node_operand(const struct node *node, int tensor);

/* Attributes; the fallback serves where the node has none of that key. */
const struct attr *attr_find(const struct node *node, const char *key);
int64_t attr_int(const struct node *node, const char *key, int64_t fallback);
double attr_float(const struct node *node, const char *key, double fallback);
const char *attr_text(const struct node *node, const char *key, const char *fallback);
/* The list, its length in *n; NULL and 0 if absent. */
const int64_t *attr_ints(const struct node *node, const char *key, int *n);
struct attr attr_of_int(const char *key, int64_t value);
struct attr attr_of_ints(const char *key, int n, const int64_t *ints);
struct attr attr_of_float(const char *key, double number);
struct attr attr_of_text(const char *key, const char *text);
/* Sets or adds. */
void attr_set(struct graph *graph, struct node *node, struct attr attr);

/* Layouts ---------------------------------------------------------------------------------------------------------- */

bool holding_equal(const struct holding *a, const struct holding *b);
bool layout_equal(const struct layout *a, const struct layout *b);
/* The holding is of one dimension. */
bool holding_divides(const struct holding *holding);
struct rt_cut holding_cut(const struct graph *graph, const struct tensor *tensor, int axis);
/* A PART or WINDOW as `ways` ranks, or those of the axis, hold it. */
struct rt_holding holding_among(const struct tensor *tensor, const struct holding *holding, int ways);
struct rt_holding holding_of_ranks(const struct graph *graph, const struct tensor *tensor, int axis);
/* Extents of what the shard at `coordinate` holds of the tensor. */
void tensor_local_dims(const struct graph *graph, const struct tensor *tensor, const int *coordinate, int64_t *dims);

#endif
