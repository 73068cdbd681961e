/* The structure of a generated program, and what its code calls. A program that embeds a model needs rt.h alone.
 *
 * rankc writes one `const struct rt_program` per model: tables (ports, weights, rank classes), and for each rank class
 * one function per segment of a step (base/schedule.h) and the function of a step, which says when each is executed.
 * The runtime determines which rank this process is, opens the model's files, loads this rank's slices of the weights,
 * allocates each arena once and calls the function of a step. The main() of a program is rt_main(). */
#ifndef RT_GENERATED_H
#define RT_GENERATED_H

#include "base/number/coding.h"
#include "base/shape/flat.h"
#include "base/shape/mesh.h"
#include "base/shape/part.h"
#include "base/lr_schedule.h"
#include "base/schedule.h"
#include "comm.h"
#include "rt.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RT_FORMAT 29 /* version of struct rt_program; a program of another version is refused: RT_ERROR_MISMATCH */

/* What open sizes are made of (ir/open.h), beside C's own operators. */
static inline int64_t lesser(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t greater(int64_t a, int64_t b) {
    return a < b ? b : a;
}

/* Dimension `dim` is divided among the ranks along mesh axis `axis`: Note [Cuts] in base/shape/part.h. Of several
 * splits of one dimension, each divides the part that those before it in the list leave (Note [Nested cuts] there). */
struct rt_split {
    int dim, axis;
    int64_t blocks, grain;
};

/* Initial values of a weight, in place of those stored in the model (state/load_part.h). */
enum rt_init_kind { RT_INIT_STORED, RT_INIT_NORMAL, RT_INIT_UNIFORM, RT_INIT_CONSTANT };
struct rt_init {
    enum rt_init_kind kind;
    double a, b;  /* NORMAL: mean, standard deviation. UNIFORM: minimum, maximum. CONSTANT: a is the value */
    uint64_t key; /* of the random number generator, different for each weight */
};

/* rt_weight.file of a program compiled with --weights copy: the part is a tensor of weights/slices-*.safetensors, found
 * through "weights" of manifest.json. */
#define RT_SLICES (-1)

/* A tensor that rt_open loads: a part of a stored tensor, converted to `dtype`. dims is the shape of the complete
 * stored tensor, row-major. `nsplits` cuts select the part: at most one per mesh axis, on distinct dimensions. Only f32
 * matrices are packed. */
struct rt_weight {
    int file;        /* index into "files" of location.json, or RT_SLICES */
    uint64_t offset; /* in that file, bytes; any alignment */
    enum rt_dtype stored, dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    int nsplits;
    struct rt_split split[RT_MAX_AXES];
    enum rt_packing packing;
    bool trained;  /* training steps update it: a parameter, or a running statistic */
    bool own;      /* they give each scale unit a value of its own (state/own.c): a running statistic */
    unsigned flat; /* the part is cut flat along these axes (base/shape/flat.h): bit a for axis a; 0: it is not */
    struct rt_init init;
    bool adapter;            /* a matrix of the chosen adapter (rt_set_adapter) */
    struct rt_coding coding; /* the conversion from the stored values (--weight-dtype) */
};

/* Optimizer state, such as Adam's first moment: zero at first, kept from step to step. Cut like a weight. */
struct rt_state {
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    int nsplits;
    struct rt_split split[RT_MAX_AXES];
    unsigned flat; /* as of a weight */
};

#define RT_ABSENT ((size_t)-1) /* offset of a weight, state or port that ranks of a class do not hold */

/* An address in a rank's memory, in bytes from the start of an arena. */
struct rt_address {
    enum rt_arena arena;
    size_t offset;
};

struct rt_place {
    enum rt_arena arena;
    size_t offset;
    size_t stride; /* bytes from one slot to the next (Note [Slots] in base/schedule.h); 0: it is in no slot */
    int set;       /* of slots, in one of which it is (rt_slot_set) */
    int chunk;     /* of an output: which computes it, by the rank's own numbers */
};

/* What ranks execute of one phase without a break, for one micro-batch or once per step. */
struct rt_segment {
    enum phase phase;
    int chunk; /* by the rank's own numbers */
    int (*run)(struct rt *rt);
};

/* One end of a transfer between chunks: rt_post. */
struct rt_transfer {
    bool sends;
    enum phase phase;      /* of the segment that computes or reads the value */
    int chunk;             /* in whose slot the value lies, by the rank's own numbers */
    struct rt_place place; /* of the value */
    int64_t bytes;         /* or RT_EXTENT(k) */
    int peer;              /* the stage of the other end: its coordinate on the pipeline axis */
    int instruction;       /* the node: index into "instructions" of manifest.json */
};

/* A cache in RT_STATE: `blocks` blocks of `block` bytes, each of which begins with the rows that are kept, of `row`
 * bytes. Numbers may be RT_EXTENT(k). */
struct rt_rows {
    size_t offset;
    int64_t blocks, block, row;
};

/* Ranks that execute the same code form a class. */
struct rt_rank_class {
    size_t bytes[RT_ARENAS];
    /* where the complete tensors are; offset RT_ABSENT: ranks of this class do not hold it */
    const struct rt_place *inputs, *outputs;
    const size_t *weights; /* in RT_WEIGHTS, of each weight, or RT_ABSENT; of one that is cut flat the index in flats */
    const size_t *states;  /* in RT_OPTIMIZER, of each state; likewise */
    size_t replaced;       /* bytes of RT_STATE, from its start on, of the states that each step replaces */
    const struct rt_rows *growing; /* the caches behind them */
    int ngrowing;
    const struct rt_flat *flats; /* stored tensors that are cut flat; their slices lie behind `bytes` of their arenas */
    int nflats;
    /* In RT_ACTIVATIONS: offset of the controls (enum rt_control) in the device's memory. RT_ABSENT: code reads them in
     * the process' memory, as inputs that follow those of the model. */
    size_t controls;
    int row; /* of this class in the tables of a source file that several classes share */
    const struct rt_segment *segments;
    const struct rt_transfer *transfers;
    int ntransfers;
    struct rt_schedule schedule;
    /* Executes a step by calls of rt_run, rt_post and rt_wait, in the order in which the ranks do so. micro_batches: at
     * least those of `schedule`. Calls for what a caller did not ask for (a phase, a micro-batch) do nothing. */
    int (*step)(struct rt *rt, int micro_batches);
};

/* A strided copy of count[0] x count[1] x count[2] rows of `bytes` contiguous bytes each. Strides are in bytes. */
struct rt_copies {
    void *to;
    const void *from;
    size_t bytes;
    int64_t count[3], to_stride[3], from_stride[3];
};

/* A device holds the arenas and executes the segments of a step: the host (core/host.c) or a GPU (cuda/device.cu).
 * Calls take effect in the order in which they are made. If the device's memory is not the process' (`remote`), they
 * may complete after they return; `finish` waits for all of them. */
struct rt_decoding;
struct rt_device {
    const char *name;
    bool remote;
    /* open is called once rt->rank is known, with the options of rt_open; close also after a failed open. */
    int (*open)(struct rt *rt, const struct rt_options *options);
    void (*close)(struct rt *rt);
    /* A zero-filled arena; NULL: out of memory. */
    void *(*allocate)(struct rt *rt, enum rt_arena arena, size_t bytes);
    void (*release)(struct rt *rt, void *memory, size_t bytes);
    /* put copies from the process' memory to the device, get copies back. `src` of put may be changed as soon as put
     * returns; `dst` of get is valid after finish. */
    int (*put)(struct rt *rt, void *dst, const void *src, size_t bytes);
    int (*get)(struct rt *rt, void *dst, const void *src, size_t bytes);
    int (*zero)(struct rt *rt, void *memory, size_t bytes);
    /* Copies within the arenas; dst may be src. If the control is 0 in the current step, dst becomes zero instead. */
    int (*copy_where)(struct rt *rt, void *dst, const void *src, size_t bytes, enum rt_control control);
    int (*copy)(struct rt *rt, const struct rt_copies *rows);
    /* dst += src, elementwise. */
    int (*add)(struct rt *rt, void *dst, const void *src, int64_t count, enum rt_dtype dtype);
    /* Creates a communicator for the device's memory among the ranks of `host`, a communicator for the process' memory
     * that stays the caller's. `color` distinguishes it from other communicators of the same split. */
    int (*connect)(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out);
    int (*run)(struct rt *rt, const struct rt_segment *segment);
    /* Waits for all calls. Errors of a segment, such as an index out of range, are reported here at the latest. */
    int (*finish)(struct rt *rt);
    /* Decoding by the device alone (generate/decoding.h); NULL: it cannot. From open on each step of the sizes that are
     * then current fills its inputs from the tokens of the step before, and chooses the next ones; rt_infer_ahead
     * executes one. take_tokens waits for the oldest step whose tokens it has not given. close: NULL or not open does
     * nothing. */
    int (*open_decoding)(struct rt *rt, const struct rt_decoding *decoding);
    int (*take_tokens)(struct rt *rt, int64_t *ids);
    void (*close_decoding)(struct rt *rt);
    /* For traces; NULL: a call has been executed when it returns. mark notes when the calls so far have been executed,
     * as number 0, 1, 2, .. of a step. times tells, after finish, the ns from mark 0 to each of n marks. */
    int (*mark)(struct rt *rt, int64_t number);
    int (*times)(struct rt *rt, int64_t n, int64_t *ns);
};
extern const struct rt_device rt_host, rt_cuda_device;

struct rt_training {
    /* micro-batches per step and scale unit; if more than 1, gradient sums have memory of their own */
    int accumulate;
    int metrics; /* how many of enum rt_metric the program computes */
    /* gradients of outputs that the caller passes, as ports that follow the inputs; 0: output 0 is the loss */
    int seeds;
    /* gradients of inputs that a program without a loss returns, as ports that follow the outputs */
    int gradients;
    int64_t bucket_bytes;  /* gradients are all-reduced in buckets of this size during backward; 0: after backward */
    double clip_grad_norm; /* 0: none */
    /* Output 0 is the sum of a loss over a micro-batch, divided by this number, and output 1 the sum of the weights of
     * its elements: the loss of a step is the mean over all that count in it. 0: output 0 is the loss. */
    int64_t elements;
    bool averages; /* the update phase exchanges parameters and their averages if control RT_TRAINING is 0 */
    double lr;     /* before the schedule's factor */
    struct rt_lr_schedule schedule;
};

struct rt_program {
    int format;       /* RT_FORMAT */
    const char *name; /* model and instance, for messages */
    const char *key;  /* content hash of the program: every rank of a job must have the same */
    const char *work; /* hash of model, plan and the options that change results: a checkpoint belongs to it */
    int plan_ngpus;   /* ranks of a scale unit; the program runs on any multiple of it (base/io/location.h) */
    struct rt_mesh mesh;
    int nreplicas;   /* replica axes, numbered mesh.naxes and up: in training the scale units of a ZeRO group, and the
                      * groups if there are several; else 0 */
    int zero_groups; /* ZeRO groups; 1 without ZeRO */
    /* The mesh axis of pipeline stages that execute several micro-batches, so that one stage alone has the loss or an
     * output; 0: none, n: axis n - 1 */
    int stages;
    int micro_batches;       /* of rt_infer_step; 0: one. Training has rt_training.accumulate */
    unsigned communicates;   /* bit a: a collective along axis a exists */
    bool convolves, attends; /* the program has convolutions, attention: a device may load a library for them */
    int ninputs, noutputs, nweights, nstates, nclasses;
    const struct rt_port *inputs, *outputs;
    /* Sizes that each call chooses, and what follows from them: nextents numbers, the first nsizes of which are the
     * sizes. find_extents computes them. nsizes 0: all sizes are fixed. */
    const struct rt_size *sizes;
    int nsizes, nextents;
    void (*find_extents)(const int64_t *sizes, int64_t *extents);
    const struct rt_limit *limits;
    int nlimits;
    const struct rt_weight *weights;
    /* Adapters, among which the program chooses: their names; bytes of a file from a matrix of one to that of the
     * next. */
    int nadapters;
    const char *const *adapters;
    uint64_t adapter_bytes;
    const struct rt_state *states;
    const struct rt_rank_class *classes;
    const int *class_of_shard;          /* plan_ngpus entries */
    const struct rt_training *training; /* NULL: the program does not train */
    const struct rt_device *device;
};

/* The number of the size that the program keeps; -1: there is none. */
static inline int rt_growing_size(const struct rt_program *program) {
    int s = 0;
    while (s < program->nsizes && !program->sizes[s].next) s++;
    return s < program->nsizes ? s : -1;
}

/* The state of one rank. Generated code reads rt->arena and rt->coordinate and calls the functions below. */
struct rt {
    const struct rt_program *program;
    const struct rt_rank_class *rank_class; /* the class that this rank belongs to */
    int rank, world;                        /* in the job: this rank and the number of ranks */
    /* number of the scale unit, rank / plan_ngpus; number in the plan, rank % plan_ngpus */
    int unit, shard;
    int coordinate[RT_LAYOUT_AXES];  /* of the shard on the mesh, and of the unit on the replica axes */
    int ways[RT_LAYOUT_AXES];        /* ranks along each of these axes */
    int threads;                     /* used by this rank's kernels */
    unsigned char *arena[RT_ARENAS]; /* zero-filled at open */
    unsigned char **slice;           /* of each of rank_class->flats, its address */
    struct rt_comm *comm;            /* of all ranks, for buffers in the process' memory */
    /* of the ranks with this shard number, one per scale unit; for buffers in the process' memory */
    struct rt_comm *units;
    struct rt_comm *axis[RT_LAYOUT_AXES]; /* of the ranks along a mesh or replica axis, for buffers in arenas */
    void *device;                         /* state of the program's device */
    const int64_t *extents;               /* of the current step's sizes: struct PREFIX_extents of model.h */
    const void *const *inputs;            /* of the current step: the caller's tensors, then the controls */
    size_t slot[RT_SLOT_SETS]; /* of the current micro-batch, by set of slots (Note [Slots] in base/schedule.h) */
    int64_t step;              /* steps begun */
    int instruction;           /* current one: index into "instructions" of manifest.json; -1: none */
    struct rt_private *internal;
    int reference_kernels; /* 1: kernels in plain C instead of a library's; set by rt_kernels_select */
    /* Likewise. 1: f32 matrix products on a GPU use TF32, which rounds operands to 10 bits of mantissa. */
    int tf32;
};

/* Bytes of symmetric memory per rank that the program needs: the argument of rt_comm_open_shared. */
size_t rt_program_symmetric(const struct rt_program *program);

/* main() of a generated program: takes the options of `rankc run` and --rank R --world N, returns rankc's exit
 * codes. */
int rt_main(int argc, char **argv, const struct rt_program *program);

/* Called by generated code */

/* What a step consists of (struct rt_rank_class). rt_run executes a segment, a row of the class' `segments`, for a
 * micro-batch (0 for what is done once in a step): it passes the inputs, calls the segment's function and returns the
 * outputs.
 *
 * rt_post begins `n` transfers, rows `first` and further of `transfers`: values are sent to another chunk, when the
 * segment that computes them has been executed, or received. It does not wait: rt_wait does, for received values before
 * the segment that reads them, and for sent ones before their memory is used again. The messages of a pair of ranks
 * match in the order of posting. */
int rt_run(struct rt *rt, int segment, int micro);
int rt_post(struct rt *rt, int first, int n, int micro);
int rt_wait(struct rt *rt, int first, int n, int micro);

/* Records that an instruction (index into "instructions" of manifest.json; -1: none) begins. Reports about a rank that
 * fails, dies or hangs name it. A rank that records none for the launcher's time limit counts as stuck. */
void rt_at(struct rt *rt, int instruction);

/* True while something observes each instruction (struct rt_observer in core/private.h), such as the search for a
 * non-finite value. A device then calls the segment's function, instead of replaying a captured graph. */
bool rt_is_watched(const struct rt *rt);

/* RT_TRY for call number `number` of a generated function; `instruction`, which the function has, is the number of its
 * first one for rt_at. */
#define RT_TRY_AT(number, call)                                                                                        \
    do {                                                                                                               \
        rt_at(rt, instruction + (number));                                                                             \
        RT_TRY(call);                                                                                                  \
    } while (0)

/* The same for a call that has no status. */
#define RT_AT(number, call) (rt_at(rt, instruction + (number)), (call))

/* Start, within each block, of this rank's part of a dimension cut along mesh axis `axis` (Note [Cuts] in
 * base/shape/part.h), in elements. If the cut is mirrored, the start in blocks 0, 2, ..; rt_part_turn is how much
 * further the part begins in the others. */
int64_t rt_part_start(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t grain);
int64_t rt_part_turn(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t grain);

/* Padding that this rank's windowed operator (convolution, pooling) needs before and behind the part of the dimension
 * that it holds, in elements: rt_placement_before, _behind in base/shape/part.h. */
int64_t rt_window_before(const struct rt *rt, int axis, const struct rt_placement *window);
int64_t rt_window_behind(const struct rt *rt, int axis, const struct rt_placement *window, int64_t behind);

/* Redistribution along one mesh axis. The tensor is seen as (outer, extent, inner); its middle dimension is cut into
 * (blocks, grain), see base/shape/part.h (blocks < 0: mirrored). `scratch` has room for one complete tensor. dst, src
 * and scratch do not overlap, except that dst of rt_all_reduce may be src. `begun`: 1: rt_start was called for src; 2:
 * rt_reduce_run was called for all rows of src. groups: 0, or into how many groups of ranks a gather in runs of rows is
 * divided. */
int rt_all_gather(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                  int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t grain, int groups);
int rt_reduce_scatter(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                      int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t grain,
                      enum rt_reduce reduce, int begun);
int rt_all_reduce(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t count,
                  enum rt_reduce reduce, int begun);

/* Announces a later collective, with `begun` 1, whose operand `src` is complete: copies it to dst, which may be src,
 * and allows the transport to begin. Do not access what is summed or gathered until that collective returns.
 *
 *     RT_SUM_WHOLE   rt_all_reduce of dst
 *     RT_SCATTER     rt_reduce_scatter_flat of dst
 *     RT_GATHER      rt_all_gather_flat; dst is the place of the rank's slice in what is gathered, and src of that
 *                    call. Gathers along an axis complete in the order in which they were announced
 *
 * elements and outer: as of rt_all_gather_flat; outer 0 and all of dst for RT_SUM_WHOLE. */
int rt_start(struct rt *rt, enum rt_early kind, int axis, void *dst, const void *src, enum rt_dtype dtype,
             int64_t elements, unsigned outer);

/* Products in runs of rows (passes/place/product_runs.c): transports add or gather the rows of other runs meanwhile.
 * Where a transport cannot begin a collective, or an observer reads values, a reduction is complete when it is waited
 * for, and a gather when it begins.
 *
 *     rt_reduce_run       begins the sum of `count` elements of the input of a later reduction with `begun` 2:
 *                         groups 0: of rt_all_reduce; else of rt_reduce_scatter, the parts of group `group` of the
 *                         axis' ranks, which are divided into `groups` groups
 *     rt_all_gather       with groups: begins a gather of each group's parts of each of `outer` items
 *     rt_all_gather_run   waits for the next of them
 *
 * Do not access what is added or gathered until the call has returned that waits for it. */
int rt_reduce_run(struct rt *rt, int axis, void *data, enum rt_dtype dtype, int64_t count, int group, int groups);
int rt_all_gather_run(struct rt *rt, int axis);

/* Redistribution between two placements (base/shape/part.h) of the same or of different dimensions. dims: extents of
 * the tensor, complete in dimensions from_dim and to_dim, this rank's part in the others.
 *     rt_chunk           complete tensor -> this rank's part or window; no communication
 *     rt_crop            part that contains the window -> window; no communication
 *     rt_all_to_all      part -> part
 *     rt_halo_exchange   part -> window
 * `scratch` has room for all data this rank sends and all it receives. */
int rt_chunk(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim, const int64_t *dims,
             int dim, const struct rt_placement *to);
int rt_crop(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim, const int64_t *dims,
            int from_dim, const struct rt_placement *from, int to_dim, const struct rt_placement *window);
int rt_all_to_all(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype, int ndim,
                  const int64_t *dims, int from_dim, const struct rt_placement *from, int to_dim,
                  const struct rt_placement *to);
int rt_halo_exchange(struct rt *rt, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype, int ndim,
                     const int64_t *dims, int from_dim, const struct rt_placement *from, int to_dim,
                     const struct rt_placement *window);

/* Ring attention along a mesh axis (passes/place/ring.c): keys and values stay cut, and every rank has those of one
 * rank at a time. A turn has keys of a rank that follow each other: its part, or half of it if the cut is mirrored. The
 * turns together have all keys of the sequence, each once.
 *
 *     rt_ring_open     completes the description, which the caller begins
 *     rt_ring_turn     brings the keys and values of turn `turn`, and describes them; turns are taken in order
 *     rt_ring_give     behind the last turn of a rank's part: adds the gradients of the part's k and v over the ranks,
 *                      and stores the sums in that rank's dk and dv (`to`); `gradients` is laid out as `memory`
 *
 * k and v are (b.., kv, part, width), the elements of a line next to each other. All ranks along the axis call these
 * functions. */
struct rt_ring_operand {
    void *at;
    const int64_t *step; /* (ndim): elements between neighbours in each dimension */
};
struct rt_ring {
    /* the caller's */
    int axis;
    struct rt_cut cut; /* of the keys */
    enum rt_dtype dtype;
    int ndim;
    int64_t extent[RT_MAX_NDIM];   /* of the samples and of the heads: the first ndim - 2 */
    int64_t width[2];              /* of a line of k, of v */
    struct rt_ring_operand own[2]; /* the rank's k and v */
    unsigned char *memory;         /* room for the largest part of k and v */
    /* set by rt_ring_open */
    int turns;
    int64_t lines; /* product of `extent` */
    /* of the current turn */
    int rank;                     /* whose keys they are */
    bool last;                    /* of that rank's part */
    int64_t first, keys;          /* the first key, in the whole sequence; how many they are */
    int64_t part;                 /* keys of that rank's part */
    int64_t at[2];                /* of k, of v: bytes from `memory` or `gradients` to the first key */
    int64_t step[2][RT_MAX_NDIM]; /* of k, of v: elements between neighbours in each dimension */
};

void rt_ring_open(struct rt_ring *ring);
int rt_ring_turn(struct rt *rt, struct rt_ring *ring, int turn);
int rt_ring_give(struct rt *rt, const struct rt_ring *ring, void *gradients, const struct rt_ring_operand *to);

/* Point-to-point and broadcast along the pipeline axis. Sends to or receives from the stage at this rank's coordinate +
 * `distance`, which may be negative; where stages are unequal, to as many of its ranks as take the value from this one.
 * Broadcasts from stage `root`, of unequal ones from its first rank; the root's dst gets a copy of its src, the other
 * ranks' src is ignored. */
int rt_send(struct rt *rt, int axis, const void *src, int64_t bytes, int distance);
int rt_receive(struct rt *rt, int axis, void *dst, int64_t bytes, int distance);
int rt_broadcast(struct rt *rt, int axis, void *dst, const void *src, int64_t bytes, int root);

/* Flat cuts (base/shape/flat.h): where the rank's slice of `elements`, its part of a tensor, begins, and how many
 * elements it has; `axes` is the set of axes that cut it. */
int64_t rt_flat_start(const struct rt *rt, unsigned axes, int64_t elements);
int64_t rt_flat_count(const struct rt *rt, unsigned axes, int64_t elements);

/* Collectives along `axis` of a tensor that is cut flat. The axes in `outer` cut `elements` into slices; `axis`, which
 * comes after them, cuts each slice among its ranks. gather: dst = all slices; src may be the rank's own place in dst.
 * scatter: dst = the rank's slice of the reduction, and may be its place in src; the operand of a dummy micro-batch
 * counts as zero and src is overwritten then. each_micro_batch: src is one micro-batch's, not their sum. begun:
 * rt_start was called for it. */
int rt_all_gather_flat(struct rt *rt, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t elements,
                       unsigned outer, int begun);
int rt_reduce_scatter_flat(struct rt *rt, int axis, void *dst, void *src, enum rt_dtype dtype, int64_t elements,
                           unsigned outer, enum rt_reduce reduce, int each_micro_batch, int begun);

/* dst = sum + all ranks' src, added in rank order where the transport defines one; dst may be sum. */
int rt_all_reduce_onto(struct rt *rt, int axis, void *dst, const void *sum, void *src, enum rt_dtype dtype,
                       int64_t elements, int each_micro_batch);

/* dst = sum + the rank's slice of all ranks' src, added in rank order where the transport defines one; dst may be
 * sum. */
int rt_reduce_scatter_onto(struct rt *rt, int axis, void *dst, const void *sum, void *src, enum rt_dtype dtype,
                           int64_t elements, unsigned outer, int each_micro_batch);

/* Records the error of a failed call of `comm`; returns `status`. */
int rt_fail_comm(struct rt *rt, const struct rt_comm *comm, int status);

/* Begins the remaining gradient buckets and waits for all of them (Note [Buckets] in core/sums.c). A device that
 * captures a segment as a graph calls it before the capture ends. rt_sums_variant identifies how sums begin in the next
 * one; a graph may be replayed only for the variant it was captured with. */
int rt_end_sums(struct rt *rt);
int rt_sums_variant(const struct rt *rt);

/* Records an error that depends on data, such as an index out of range, and stops the step; returns `status`. */
int rt_fail(struct rt *rt, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif

#endif
