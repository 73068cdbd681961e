/* The intermediate representation (IR): the program at every step from the imported model to the ranks' programs.
 *
 * A graph holds tensors and nodes in arrays that are indexed by id. Ids never change. `order` lists the ids of the live
 * nodes in an order of execution: every value is written before it is read. Dead nodes are not in it. Shapes are
 * static and global; the part of a tensor that a rank holds follows from the tensor's layout. Side tables of passes are
 * arrays indexed by id.
 *
 * Every level uses the same structures; the level states which invariants hold, and verify.h checks them:
 *
 *   IMPORTED       core operators, shapes known; dead and foldable nodes may remain
 *   TYPED          no dead node, no foldable node, no Identity
 *   TRAINING       TYPED, with gradients and parameter updates
 *   PLACED         every node has its splits, every tensor the layout in which its producer leaves it
 *   COMMUNICATING  every input has the layout that its node needs: redistributions are explicit nodes
 *   STAGED         pipeline stages are final: sends and receives between them are explicit nodes
 *   SEGMENTED      the order of execution is final, and divided into segments (schedule.h)
 *   SCHEDULED      schedules say when ranks execute each segment
 *   PLANNED        every buffer of every rank has an address */
#ifndef IR_IR_H
#define IR_IR_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/map.h"
#include "ir/base/vec.h"
#include "ir/layout.h"
#include "ir/mesh.h"
#include "ir/open.h"
#include "ir/step_table.h"
#include "runtime/base/number/coding.h"
#include "runtime/base/contract.h"
#include "runtime/base/dtype.h"
#include "runtime/base/shape/part.h"

enum level { IMPORTED, TYPED, TRAINING, PLACED, COMMUNICATING, STAGED, SEGMENTED, SCHEDULED, PLANNED, LEVELS };
extern const char *const level_names[LEVELS];

extern const char *const reduce_names[RT_REDUCES]; /* in text IR */

enum tensor_kind {
    TENSOR_VALUE,  /* computed by a node */
    TENSOR_INPUT,  /* an argument of every step; the caller passes the whole tensor */
    TENSOR_WEIGHT, /* stored in the model or beside it; loaded once */
    TENSOR_CONST,  /* known at compile time; its bytes are in `data` */
    TENSOR_STATE,  /* kept between steps, zero at the start: accumulated gradients, optimizer moments */
    TENSOR_CONTROL /* a scalar that the runtime sets in each step (runtime/base/controls.def) */
};

/* Where the bytes of a weight are stored. File 0 is the model; the others are its external data files. In a graph read
 * from text IR, file k is graph.files[k - 1]. file < 0: nowhere. `offset` is in bytes. */
struct stored {
    int file;
    uint64_t offset;
    enum rt_dtype dtype;     /* in the file; the tensor's dtype may differ (--dtype) */
    struct rt_coding coding; /* of --weight-dtype: how the weight is made of what is in the file */
};

/* What the model itself states about a WEIGHT. Evidence for pass roles (passes/train/roles.h); used in training
 * only. */
enum mark {
    MARK_NONE,
    MARK_PARAMETER, /* the exporter or training_info lists it as a parameter */
    MARK_BUFFER,    /* the exporter lists it as a buffer, or it is a running statistic */
    MARK_DERIVED,   /* the exporter computed it from values that it does not list as parameters */
    MARK_FIXED,     /* training_info updates other weights and not this one */
    MARK_FOLDED,    /* the exporter computed it from `sources` */
    MARK_MOVED,     /* it is the parameter `sources`, transposed or reshaped by the exporter (pass roles) */
    MARK_ADAPTER,   /* a matrix of a low-rank adapter (passes/train/lora.h) */
    MARKS
};
extern const char *const mark_names[MARKS]; /* in IR text; "" for none */
extern const char *const coding_names[];    /* of enum rt_makes, likewise */

struct tensor {
    const char *name; /* name of the ONNX value; never empty */
    enum tensor_kind kind;
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM]; /* global extents */
    int producer;              /* node id of a VALUE, else -1 */
    int copy_of;               /* the tensor of another pipeline stage of which this is a recomputed copy; -1: none */
    const void *data; /* CONST: its bytes; WEIGHT: its bytes as stored if the file is mapped, unaligned, else NULL */
    struct stored stored; /* WEIGHT */
    enum mark mark;       /* WEIGHT */
    /* MARK_FOLDED, MARK_MOVED: names of the values that it was computed from, separated by ", "; else NULL */
    const char *sources;
    bool constant; /* WEIGHT: pass roles found that it is no parameter: it is not trained and may be folded */
    bool replaces; /* WEIGHT of --weight-dtype: nothing reads what it is made of */
    /* VALUE: along replica axes the ranks' values are operands of this reduction (Note [Replicas]) */
    enum joined { JOINED_NOT, JOINED_SUM, JOINED_MAX } joined;
    bool channels_last;   /* VALUE: the model's image with channels as the last dimension (Note [Channels last]) */
    bool shared;          /* INPUT: the same for all samples (samples_find_shared) */
    bool gradient;        /* STATE: accumulates a gradient, cleared before each step; INPUT: gradient of an output */
    bool host;            /* WEIGHT, STATE: it lies in the host's memory (passes/place/offload.c) */
    struct layout layout; /* valid from PLACED on */
};

/* Where dimension d of an image (n, c, i..) is with channels last, (n, i.., c); which dimension is at place d. */
static inline int image_place(int d, int ndim) {
    return d == 0 ? 0 : d == 1 ? ndim - 1 : d - 1;
}

static inline int image_dim(int d, int ndim) {
    return d == 0 ? 0 : d == ndim - 1 ? 1 : d + 1;
}

/* Names of enum joined in text IR; "" for JOINED_NOT. */
extern const char *const joined_names[3];

struct attr {
    const char *key;
    enum attr_kind { ATTR_INT, ATTR_INTS, ATTR_FLOAT, ATTR_TEXT } kind;
    int n; /* number of `ints` */
    const int64_t *ints;
    int64_t value;
    double number;
    const char *text;
};

/* How the ranks along one mesh axis share the work of a node. factor >= 0: they divide this factor of the node's
 * annotation (dims.h) by the cut (blocks, grain), mirrored if blocks is negative (part.h). If several axes divide one
 * factor their cuts nest, and `depth` is the number of cuts outside this one (Note [Nested cuts] in
 * runtime/base/shape/part.h). SPLIT_NONE: every rank computes the whole node. SPLIT_PARTIAL, linear operators only:
 * every rank applies the node to its partial values, and the result is a partial value. SPLIT_FLAT, elementwise
 * operators of operands of one shape or one element, and SumSquares: every rank computes a slice of the elements
 * (FLAT). */
enum { SPLIT_NONE = -1, SPLIT_PARTIAL = -2, SPLIT_FLAT = -3 };
struct node_split {
    int16_t factor, depth;
    int64_t blocks, grain;
};

/* Names of the phases (enum phase in runtime/base/schedule.h) in text IR. `order` lists the nodes of a phase before
 * those of the next one. The forward and the backward phase run once per micro-batch, later phases once per step: those
 * see the values of the last micro-batch, and the sums over all micro-batches in STATEs. Evaluation and inference run
 * the forward phase alone. */
extern const char *const phase_names[PHASES];

/* The pipeline stages of a program, also called chunks: home[c] is the coordinate on the pipeline axis of chunk c.
 * Every coordinate has one chunk or several. n = 0: chunk c is at coordinate c. */
struct chunks {
    int n;
    const int *home;
};

struct op;
struct user_op; /* ir/user.h */

struct node {
    const struct op *op;
    const char *name; /* name of the ONNX node that it was imported from; messages name the node by it */
    int ninputs, noutputs;
    int *inputs; /* tensor ids, -1: optional input left out */
    int *outputs;
    int nattrs;
    struct attr *attrs;
    enum phase phase;
    int stage; /* pipeline stage that computes it (struct chunks), or STAGE_ALL */
    /* BACKWARD: the node of the forward phase whose gradient it computes, or whose copy it is; -1: no single one */
    int origin;
    struct node_split split[RT_LAYOUT_AXES];
};

enum { STAGE_ALL = -1 };

/* `weight` (a WEIGHT or STATE) takes the value of tensor `value` at the end of the phase that computes it: parameters
 * in training, state carried between steps. In a graph with a backward phase, updates from the forward phase wait for
 * the end of the backward phase. */
struct update {
    int weight, value;
};

/* A node that was fused into node `node`: messages find the fused node by the original name. */
struct member {
    int node; /* the fused node */
    const char *name;
};

/* Where a node of the model comes from (ir/provenance.h). Texts are "" if the exporter did not record them. */
struct provenance {
    const char *node;  /* the node's name */
    const char *scope; /* path of the module that it is part of: "layers.0.attn.q_proj" */
    const char *word;  /* what it computes there: "softmax"; "" if that is what the module is for */
    const char *line;  /* of the exported program: "model.py:41 in forward" */
    const char *code;  /* that line */
};

/* A trained weight and the gradient of the loss with respect to it: from pass autodiff to pass optimizer. */
struct parameter {
    int weight, gradient;
};

/* Note [Counted outputs]
 * The size of output `output` along dimension `dim` depends on data: the tensor's extent there is a bound, and output
 * `count`, an i64 without dimensions, says how many of the indices are valid, from 0 on. The elements at other indices
 * are undefined. Programs write the valid ones, and not the count. */
struct counted_output {
    int output, dim, count; /* output, count: indices into graph->outputs */
};

/* A segment: the nodes at positions [first, end) of the order that ranks of the chunk take part in, all of the phase.
 * Segments of the whole step (reduction, update) belong to the first chunk of a coordinate and have the nodes of all.
 *
 * `in` lists the VALUEs that the segment reads and another segment of the coordinate computes, in order of their first
 * use; `out` those that it computes and that another segment of the coordinate reads or that are outputs of the graph,
 * in the order in which they are computed. The new value of a weight is read by the segment at whose end it is stored
 * (schedule_update_phase in schedule.h). */
struct segment {
    enum phase phase;
    int chunk, first, end;
    VEC(int) in, out; /* tensor ids */
};

struct graph {
    struct arena *arena;
    /* Inputs, outputs and attributes of nodes alone: most passes read those of all nodes, so they are kept close. */
    struct arena *lists;
    const char *name;
    enum level level;
    struct open_sizes *open; /* sizes chosen at run time; NULL: none */
    struct mesh mesh;
    struct chunks chunks;
    bool train; /* weights may change at run time and are not folded */
    /* Output 0 is the sum of a loss over its elements, divided by this number, and output 1 the sum of their weights: a
     * step's loss is the mean over all that count in it (--loss ..:mean=tokens). 0: output 0 is the loss. */
    int64_t loss_elements;
    bool keeps; /* nor are others yet, since adapters find them by name; not part of text IR */
    /* Of inference: how often a step executes the graph, each time on further samples; 0: once. In training the number
     * is that of struct training. */
    int micro_batches;
    int product_runs; /* runs that pass product_runs has chosen; 0: it was not asked to; not part of text IR */
    VEC(struct tensor) tensors;
    VEC(struct node) nodes;
    VEC(int) order;   /* live nodes */
    VEC(int) inputs;  /* tensor ids, in the model's order */
    VEC(int) outputs; /* tensor ids, in the model's order; a tensor may occur twice */
    VEC(const char *) output_names;
    VEC(struct counted_output) counted;
    VEC(struct member) members; /* original names of fused nodes, for messages; not part of text IR */
    VEC(int) recomputed;        /* forward nodes that pass recompute chose, for the plan; not part of text IR */
    int nmetrics; /* number of trailing outputs that rankc added: gradients of inputs, the gradients' norm */
    VEC(struct update) updates;
    VEC(struct parameter) parameters;
    VEC(int) controls;            /* tensor ids, indexed by enum rt_control; empty until graph_control */
    VEC(struct segment) segments; /* from SEGMENTED on; by chunk, those of a chunk by phase */
    VEC(struct schedule)
    schedules;                          /* from SCHEDULED on; by coordinate on the pipeline axis */
    VEC(struct user_op *) operators;    /* declared by the user; nodes point to their rows */
    VEC(struct provenance) provenances; /* not changed after import; those of live nodes are part of text IR */
    struct map provenance_index;        /* node name -> index in provenances, if there are any */
    const char *exporter;               /* what wrote the model: "pytorch 2.15.0"; NULL or "": unknown */
    int opset;                          /* version of the model's default operator set; 0: unknown */
    VEC(const char *) files;            /* text IR: names of the files with weights; at[0] is stored.file 1 */
    struct expr_texts *texts;           /* of attributes "expr", parsed; a copy of the graph shares them */
};

/* Live nodes in order, or backwards; the _ID forms declare the node's id in place of its position. */
#define GRAPH_EACH(graph, i, ...)                                                                                      \
    EACH_ROUND(i, 0, i < (graph)->order.n, 1, __VA_ARGS__ = &(graph)->nodes.at[(graph)->order.at[i]])
#define GRAPH_EACH_BACK(graph, i, ...)                                                                                 \
    EACH_ROUND(i, (graph)->order.n - 1, i >= 0, -1, __VA_ARGS__ = &(graph)->nodes.at[(graph)->order.at[i]])
#define GRAPH_EACH_ID(graph, id, ...)                                                                                  \
    for (int at_##id = 0, id, going_##id = 1;                                                                          \
         going_##id && at_##id < (graph)->order.n && (id = (graph)->order.at[at_##id], true);                          \
         going_##id = !going_##id, at_##id++)                                                                          \
        for (__VA_ARGS__ = &(graph)->nodes.at[id]; going_##id; going_##id = 0)
#define GRAPH_EACH_ID_BACK(graph, id, ...)                                                                             \
    for (int at_##id = (graph)->order.n - 1, id, going_##id = 1;                                                       \
         going_##id && at_##id >= 0 && (id = (graph)->order.at[at_##id], true); going_##id = !going_##id, at_##id--)   \
        for (__VA_ARGS__ = &(graph)->nodes.at[id]; going_##id; going_##id = 0)

/* graph.c */

/* An empty IMPORTED graph. Its tables and a copy of `name` are allocated in `arena`. */
void graph_init(struct graph *graph, struct arena *arena, const char *name);

/* Adds a tensor without producer and returns its id. `dims` has ndim extents. */
int graph_add_tensor(struct graph *graph, enum tensor_kind kind, const char *name, enum rt_dtype dtype, int ndim,
                     const int64_t *dims);
/* Adds a CONST and returns its id; `data` is copied. */
int graph_add_const(struct graph *graph, const char *name, enum rt_dtype dtype, int ndim, const int64_t *dims,
                    const void *data);
/* Adds a node at the end of `order` and returns its id. Arrays are copied. The outputs become VALUEs with this
 * producer; their shapes are not set (op_infer, or build() of ir/build.h, does that). */
int graph_add_node(struct graph *graph, const struct op *op, const char *name, int ninputs, const int *inputs,
                   int noutputs, const int *outputs, int nattrs, const struct attr *attrs);
/* Adds a VALUE of the tensor's type, shape and layout, whose name is followed by `suffix`; returns its id. */
int graph_add_like(struct graph *graph, int tensor, const char *suffix);
/* The new value of a weight or state; an output that rankc adds (nmetrics). */
void graph_add_update(struct graph *graph, int weight, int value);
void graph_add_metric(struct graph *graph, int tensor, const char *name);
/* Adds a copy of the node at the end of `order`, with its splits, stage and phase, as graph_add_node does. */
int graph_add_copy(struct graph *graph, const struct node *node);

/* A copy of the graph in `arena`, of a level before SEGMENTED. Passes may change either without the other; names and
 * the values of constants and weights are shared, so the arena of `graph` must outlive the copy. */
struct graph *graph_copy(const struct graph *graph, struct arena *arena);

/* Removes the nodes that are not live, and the tensors that nothing has to do with any more, from a graph of a level
 * before SEGMENTED; the others get new ids, in the order of the old ones. */
void graph_compact(struct graph *graph);

/* The tensor of a control (runtime/base/controls.def). The first call adds the tensors of all controls. */
int graph_control(struct graph *graph, enum rt_control control);

/* True for a graph with the phases of a training step: a graph for training from pass autodiff on. Graphs for inference
 * have controls too, for random operators. */
bool graph_trains(const struct graph *graph);

/* True if pipeline stages execute different micro-batches at the same time, by a table of ir/schedule.h: in training,
 * and in inference of several micro-batches. */
bool graph_overlaps_stages(const struct graph *graph);

/* Sorts `order` by phase; the order within a phase is kept. */
void graph_sort_phases(struct graph *graph);
/* Puts the nodes from position `first` of the order on into the phase. */
void graph_set_phase(struct graph *graph, int first, enum phase phase);
/* The phase of the node that computes the tensor; the first phase if no node does. */
enum phase graph_phase_of(const struct graph *graph, int tensor);

/* Sets `shared` of the inputs that are the same for all samples of the batch, such as masks and tables of positions
 * (Note [Batch] in samples.c). The graph is not divided among ranks yet. */
void samples_find_shared(struct graph *graph);

/* Number of trailing inputs that rankc added: gradients of the outputs, in a graph that is trained without a loss. */
int graph_gradient_inputs(const struct graph *graph);

/* The counted output of that index; NULL if its size does not depend on data. */
const struct counted_output *graph_counted(const struct graph *graph, int output);

/* Number of elements and size in bytes of the whole tensor, on all ranks together. */
int64_t tensor_elements(const struct tensor *tensor);
int64_t tensor_bytes(const struct tensor *tensor);
/* False if an extent is negative, or if a tensor of 8-byte elements would have 2^46 bytes or more. If true, products of
 * the extents and an element size cannot overflow. */
bool tensor_shape_fits(int ndim, const int64_t *dims);
/* The same for the largest open sizes; what this specimen has must not overflow either. */
bool graph_shape_fits(const struct graph *graph, int ndim, const int64_t *dims);
/* True if both have the same extents. */
bool tensor_same_shape(const struct tensor *a, const struct tensor *b);
bool tensor_same_type(const struct tensor *a, const struct tensor *b);
/* True for WEIGHT, CONST and STATE: a rank can load any part of it at the start, so any layout costs nothing. */
bool tensor_is_stored(const struct tensor *tensor);

/* What a rank stores of its part, as rt_flat_slice takes it (runtime/base/shape/flat.h). 0: all of it, where the plan
 * places it. */
unsigned tensor_slices(const struct tensor *tensor);

/* The graph at such sizes, in `arena`: extents, attributes and cuts are numbers, and no size is open. It shares
 * everything else with the graph, whose tensors and nodes have the same ids, and is not to be changed. */
struct graph *graph_at(const struct graph *graph, const int64_t *sizes, struct arena *arena);
/* The same at the typical sizes, of which none is 0; the graph itself if no size is open. What costs depend on is read
 * there. graph_typical_sizes: of a graph with open sizes. */
const struct graph *graph_typical(const struct graph *graph, struct arena *arena);
const int64_t *graph_typical_sizes(const struct graph *graph);
void split_at(const struct graph *graph, struct node_split *split, const int64_t *sizes);

/* Text such as "f32[2,8,96]". */
const char *tensor_type(struct arena *arena, const struct tensor *tensor);
/* The same with the names of open sizes: open_text. */
const char *graph_type_text(const struct graph *graph, struct arena *arena, const struct tensor *tensor,
                            const struct open_names *names);
/* Text such as "node 17 'layer0/attn' (MatMul)", for a diagnostic's place. */
const char *node_place(const struct graph *graph, int node);

/* The consumers of each tensor t: users[first[t]] .. users[first[t + 1] - 1] are node ids in order of execution. A node
 * that reads t twice is listed twice. Memory is of `arena`; the table is not updated when the graph changes. */
struct uses {
    int *first, *users;
};
struct uses graph_uses(const struct graph *graph, struct arena *arena);
bool graph_is_output(const struct graph *graph, int tensor);
/* Per tensor: true for outputs and new values of updates, which are stored whoever reads them. Memory is of `arena`;
 * the table is not updated when the graph changes. */
bool *graph_kept(const struct graph *graph, struct arena *arena);
/* Per node: true if it is in the order and an output or update depends on it. Memory is of `arena`. */
bool *graph_live(const struct graph *graph, struct arena *arena);
/* Leaves in the order the nodes for which chosen[node] == keep. */
void graph_keep(struct graph *graph, const bool *chosen, bool keep);
/* Per node: its position in the order. Memory is of `arena`. */
int *graph_positions(const struct graph *graph, struct arena *arena);
/* Leaves the order empty, to be made anew. Returns what it was, *n nodes. */
const int *graph_take_order(struct graph *graph, int *n);
/* The node that computes the tensor; NULL if none does, or if `tensor` is -1. */
const struct node *graph_producer(const struct graph *graph, int tensor);
/* Operand k of a node: its inputs, then its outputs. */
int node_tensor(const struct node *node, int k);
/* True if the tensor is an input of the node. */
bool node_reads(const struct node *node, int tensor);
/* Per tensor: the number of operands, outputs and new values of updates that it is. Memory is of `arena`. */
int *graph_readers(const struct graph *graph, struct arena *arena);
/* The index of the first input of the node that is `tensor`; BUG if none is. */
int node_operand(const struct node *node, int tensor);

/* Attributes by key. attr_find returns NULL, the others the fallback, if the node has no attribute `key`. */
const struct attr *attr_find(const struct node *node, const char *key);
int64_t attr_int(const struct node *node, const char *key, int64_t fallback);
double attr_float(const struct node *node, const char *key, double fallback);
const char *attr_text(const struct node *node, const char *key, const char *fallback);
/* The list of integers, its length in *n unless n is NULL; NULL and 0 if absent. */
const int64_t *attr_ints(const struct node *node, const char *key, int *n);
/* Attributes to pass to graph_add_node, build() or attr_set. They refer to `key`, `ints` and `text`. */
struct attr attr_of_int(const char *key, int64_t value);
struct attr attr_of_ints(const char *key, int n, const int64_t *ints);
struct attr attr_of_float(const char *key, double number);
struct attr attr_of_text(const char *key, const char *text);
/* Sets the attribute, or adds it; a list is copied. */
void attr_set(struct graph *graph, struct node *node, struct attr attr);

/* Layouts */

/* The run-time form of a PART or WINDOW of `tensor` (runtime/base/shape/part.h) that no other cut contains, among
 * `ways` ranks. */
struct rt_placement placement_among(const struct tensor *tensor, const struct placement *placement, int ways);
/* The same for the tensor's PART or WINDOW along `axis`, in the group of ranks along that axis to which the shard at
 * `coordinate` belongs: of the part of the dimension that the outer cuts leave the group. */
struct rt_placement placement_of_ranks(const struct graph *graph, const struct tensor *tensor, int axis,
                                       const int *coordinate);
/* Sets dims[0..ndim-1] to the extents of the part of the tensor that the shard at `coordinate` holds. */
void tensor_local_dims(const struct graph *graph, const struct tensor *tensor, const int *coordinate, int64_t *dims);

#endif
