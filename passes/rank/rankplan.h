/* The plan of every rank's program: the nodes that it executes and the addresses of its tensors. The last step before
 * sources are generated.
 *
 * A shard is a position on the mesh. Shards of the same pipeline coordinate whose parts of all tensors have the same
 * extents run the same code and form a class; which part a rank has follows at run time from its position on the
 * mesh. Memory is planned per class, in these arenas:
 *
 *   WEIGHTS        stored tensors that the class reads, one after the other
 *   GRADIENTS      accumulated gradients, one after the other
 *   OPTIMIZER      other states (moments, scales), one after the other
 *   STATE          states of inference, one after the other: first those that each step replaces, then caches that grow
 *   ACTIVATIONS    computed values, which share addresses where their lifetimes allow; inputs, if the target wants them
 *   COMMUNICATION  values that ranks exchange, at equal offsets on all shards of a coordinate, so that peers reach them
 *   SCRATCH        workspace for one node at a time: that of the node that needs most
 *   HOST           stored tensors that the plan leaves in the host's memory, one after the other */
#ifndef PASSES_RANK_RANKPLAN_H
#define PASSES_RANK_RANKPLAN_H

#include "ir/dims.h"
#include "ir/op.h"
#include "ir/packing.h"
#include "ir/schedule.h"
#include "runtime/base/shape/flat.h"
#include "runtime/base/manifest.h"

/* By enum rt_arena: what manifest.json and generated code call it, and its enumerator. */
extern const char *const plan_arena_names[RT_ARENAS], *const plan_arena_enumerators[RT_ARENAS + 1];

/* Not an arena: a stored tensor that is cut flat, or in HOST (struct rt_flat in runtime/base/shape/flat.h). */
enum { PLAN_FLAT = MANIFEST_FLAT };

struct plan_place {
    int arena; /* enum rt_arena, or PLAN_FLAT */
    /* in bytes; -1: the class does not hold the tensor; in RT_CALLER: the index of the input; in PLAN_FLAT: the index
     * in the class' `flats` */
    int64_t offset;
    int64_t stride; /* bytes from one slot to the next (Note [Slots in memory] in slots.c); 0: it is in no slot */
    int set;        /* of slots, in one of which it is (rt_slot_set); its chunk is an index into class->chunks */
};

/* A tensor that is a strided view of another (Note [Views] in views.h): the result of `node` in its operand, or an
 * operand of `node` in its result. */
enum plan_view_kind { VIEW_NONE, VIEW_OF_OPERAND, VIEW_IN_RESULT };
struct plan_view {
    enum plan_view_kind kind;
    int node;
};

struct strides; /* views.h */

struct rank_class {
    int shard;                    /* the first shard of the class */
    int coordinate;               /* on the pipeline axis; 0 without one */
    int nchunks, *chunks;         /* the pipeline stages there, ascending */
    int64_t (*dims)[RT_MAX_NDIM]; /* per tensor: extents of the part; one table for all stages that have the same */
    /* per tensor: the strides of a view (views.h); NULL: its elements are contiguous */
    const struct strides **strides;
    struct plan_place *place; /* per tensor */
    int64_t bytes[RT_ARENAS]; /* without the slices of tensors that are cut flat */
    int64_t replaced;         /* bytes of STATE, from its start on, of the states that each step replaces */
    VEC(struct rt_flat) flats;
    /* offset in ACTIVATIONS of the controls (f64 each); -1: the caller passes them after the inputs */
    int64_t controls;
    const struct schedule *schedule;             /* of its coordinate */
    int nsegments, *segments;                    /* those of the graph that the schedule executes, ascending */
    VEC(int) kept;                               /* roots that lie in a slot (slots.c) */
    int transferred;                             /* the first of them: values that go from rank to rank */
    VEC(int) alike;                              /* roots of values that are the same for all micro-batches (slots.c) */
    int64_t alike_bytes;                         /* their bytes */
    int64_t slot_bytes[RT_SLOT_SETS][RT_ARENAS]; /* size of one slot of each set */
    VEC(int) peak_live; /* tensors that are live when the live activations have the most bytes */
    /* Of ACTIVATIONS and COMMUNICATION, per position in the order: bytes of the values that are live there and lie in
     * no slot; of SCRATCH: those of the node's workspace. NULL for other arenas. Activations may lie where
     * COMMUNICATION is free. */
    int64_t *live[RT_ARENAS];
    int64_t held[RT_ARENAS]; /* bytes that are taken during the whole step: by slots, and by copies of inputs */
};

struct target_kernel; /* passes/pipeline.h */

/* Memory that a target's kernels need beyond that of the graph. */
struct plan_kernels {
    bool holds_inputs; /* inputs and controls are copied to ACTIVATIONS: kernels cannot read the caller's memory */
    const struct target_kernel *of; /* by enum op_id, that of operators of the user last; NULL: none needs workspace */
};

/* On one mesh axis: the sets of coordinates that are not told apart (Note [Classes by coordinate] in classes.c). */
struct coordinate_sets {
    int n, *of; /* of[coordinate]: the number of its set */
    int *first; /* first[set]: the first coordinate of a set */
};

struct rankplan {
    struct graph *graph;
    struct plan_view *view; /* per tensor */
    bool *moves_nothing;    /* per node: it is not executed, because its result or its operands are views */
    int *root;              /* per tensor: the tensor in whose memory it lies; itself if it is no view */
    VEC(int) weights; /* stored tensors that are read from memory and not as literals, in the order of first use */
    VEC(int) states;  /* states in OPTIMIZER or STATE, in the order of first use */
    enum rt_packing *packing; /* per tensor: the packed format of a stored matrix that products read in panels */
    bool *shared;             /* per root: it lies in COMMUNICATION */
    struct plan_kernels kernels;
    struct coordinate_sets sets[RT_MAX_AXES]; /* per mesh axis */
    int nclasses, *class_of;                  /* class_of: by the numbers of the sets, in mixed radix */
    struct rank_class *classes;
    const struct transfer_ends *ends; /* of each coordinate */
};

/* Plans a SCHEDULED graph, which becomes PLANNED. kernels: the target's needs; NULL: none. Allocates in
 * graph->arena. */
void rankplan_make(struct rankplan *plan, struct graph *graph, const struct plan_kernels *kernels);

/* True if the operand is a constant of one element that an elementwise node reads as a literal in the code. */
bool rankplan_is_literal(const struct graph *graph, const struct node *node, int operand);

/* The operand whose memory output number `output` of an elementwise node overwrites on ranks of the class (Note [In
 * place] in memplan.c); -1: none. */
int rankplan_in_place(const struct rank_class *class, const struct graph *graph, const struct node *node, int output);

/* The plan as ranks execute it at such sizes (graph_at), with memory as it was planned: for what is estimated or
 * printed. In `arena`. rankplan_typical: at the typical sizes; the plan itself if no size is open. */
const struct rankplan *rankplan_at(const struct rankplan *plan, const int64_t *sizes, struct arena *arena);
const struct rankplan *rankplan_typical(const struct rankplan *plan, struct arena *arena);

/* The number of the shard's class. */
int rankplan_class_of(const struct rankplan *plan, int shard);
/* True if shards of the class have that coordinate on mesh axis `axis`. */
bool rankplan_class_includes(const struct rankplan *plan, const struct rank_class *class, int axis, int coordinate);

/* Changes the attributes of the node to those for the parts of ranks of the class, and binds its annotation in
 * *dims. */
void rankplan_localize(struct graph *graph, const struct rank_class *class, struct node *node, struct dims *dims);

/* Bits of enum stage_part for ranks of the class: what they execute of the node. */
int rankplan_part(const struct rank_class *class, const struct node *node);

/* True for a redistribution between a flat cut and what it was cut from. Its result lies in the place of its operand,
 * or the operand in that of the result: a rank's slice of a tensor is a run of its elements. */
bool rankplan_moves_slices(const struct graph *graph, const struct node *node);

/* True if `slice` is flat along an axis along which the tensor, which lies in its memory, is not. */
bool rankplan_is_gathered(const struct graph *graph, int slice, int tensor);

/* Elements and bytes of the part of the tensor on ranks of the class. */
int64_t rankplan_elements(const struct rank_class *class, const struct graph *graph, int tensor);
int64_t rankplan_bytes(const struct rank_class *class, const struct graph *graph, int tensor);

/* Bytes of the part at the largest sizes (ir/open.h). */
int64_t rankplan_room(const struct rank_class *class, const struct graph *graph, int tensor);

/* Bytes of each arena of a rank of the class, with that many scale units and groups of ZeRO, and their sum without
 * HOST. */
int64_t rankplan_peak(const struct rankplan *plan, const struct rank_class *class, int units, int groups,
                      int64_t bytes[RT_ARENAS]);

/* Of a plan with open sizes: the bytes of each arena that a call of such sizes touches on ranks of class c. */
void rankplan_touched(const struct rankplan *plan, int c, const int64_t *sizes, int64_t bytes[RT_ARENAS]);

/* What a step of the typical sizes does to states on ranks of class c. `copied`: bytes of caches that it copies, rather
 * than reads where they lie; `replaced`: bytes of the states that are no caches, such as windows of convolutions. */
void rankplan_state(const struct rankplan *plan, int c, int64_t *copied, int64_t *replaced);

/* Bytes of the memory that a root takes, aligned. Shared ones take those of the largest part among all classes of
 * the coordinate, so that offsets are equal on all of them. */
int64_t rankplan_memory(const struct rankplan *plan, const struct rank_class *class, int root);

/* Checks that ranks meet at every collective, so that there is no deadlock, and the memory plan: 0,
 * or -1 after a diagnostic. */
int rankplan_verify(const struct rankplan *plan, struct diags *diags);

#endif
