/* The structure of a generated program, and the runtime that executes it.
 *
 * rankc writes one `const struct rt_program` per model: tables (ports, weights, rank classes), and for each rank class
 * one function per segment of a step and the table that says when it is executed (base/schedule.h). The runtime
 * determines which rank this process is, opens the model's files, loads this rank's slices of the weights, allocates
 * each arena once and executes the rows of the table. The main() of a program is rt_main(). A C program that embeds the
 * model calls rt_open(), rt_infer_step() and rt_close(), or the functions of the generated model.h that wrap them.
 *
 * Only rt_main exits or prints more than warnings (on stderr). Functions return RT_OK or an enum rt_status (comm.h);
 * rt_error() is the text of the last error. One struct rt serves one thread at a time; different ones are
 * independent. */
#ifndef RT_RT_H
#define RT_RT_H

#include "base/contract.h"
#include "base/flat.h"
#include "base/part.h"
#include "base/lr_schedule.h"
#include "base/schedule.h"
#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RT_FORMAT 16 /* version of struct rt_program; a program of another version is refused: RT_ERROR_MISMATCH */

/* An input or output of the model: the complete tensor, not this rank's part. Names are in manifest.json, in this
 * order. */
struct rt_port {
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    /* Of an output whose size along dimension `dim` depends on data: 1 + the index of the output that holds how many
     * indices are valid, an int64_t; elements at others are undefined. Else 0. */
    int dim, count;
};

/* Dimension `dim` is divided among the ranks along mesh axis `axis`: Note [Cuts] in base/part.h. Of several splits of
 * one dimension, each divides the part that those before it in the list leave (Note [Nested cuts] there). */
struct rt_split {
    int dim, axis;
    int64_t blocks, grain;
};

/* Initial values of a weight, in place of those stored in the model (state/init.h). */
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
    bool trained;  /* a parameter: training steps update it */
    unsigned flat; /* the part is cut flat along these axes (base/flat.h): bit a for axis a; 0: it is not */
    struct rt_init init;
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

struct rt_place {
    enum rt_arena arena;
    size_t offset;
    size_t stride; /* bytes from one slot to the next (Note [Slots] in base/schedule.h); 0: it is in no slot */
    int set;       /* of slots, in one of which it is (rt_slot_set) */
};

struct rt;

/* What ranks execute of one phase without a break, for one micro-batch or once per step. */
struct rt_segment {
    enum phase phase;
    int chunk; /* of all chunks of the program */
    int (*run)(struct rt *rt);
};

/* One end of a transfer between chunks (Note [Transfers between chunks] in base/schedule.h). */
struct rt_transfer {
    struct rt_place place; /* of the value, in a slot */
    size_t bytes;
    int peer;        /* coordinate of the other end on the axis of the pipeline stages */
    int instruction; /* the node: index into "instructions" of manifest.json */
};

/* Ranks that execute the same code form a class. */
struct rt_rank_class {
    size_t bytes[RT_ARENAS];
    /* where the complete tensors are; offset RT_ABSENT: ranks of this class do not hold it */
    const struct rt_place *inputs, *outputs;
    const size_t *weights; /* in RT_WEIGHTS, of each weight, or RT_ABSENT; of one that is cut flat the index in flats */
    const size_t *states;  /* in RT_OPTIMIZER, of each state; likewise */
    const struct rt_flat *flats; /* stored tensors that are cut flat; their slices lie behind `bytes` of their arenas */
    int nflats;
    /* In RT_ACTIVATIONS: offset of the controls (enum rt_control) in the device's memory. RT_ABSENT: code reads them in
     * the process' memory, as inputs that follow those of the model. */
    size_t controls;
    int row; /* of this class in the tables of a source file that several classes share */
    const struct rt_segment *segments;
    const struct rt_transfer *transfers;
    int ntransfers;
    struct rt_schedule schedule; /* when ranks execute which of `segments` in a step */
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
struct rt_device {
    const char *name;
    bool remote;
    /* open is called once rt->rank is known; close also after a failed open. */
    int (*open)(struct rt *rt);
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
};
extern const struct rt_device rt_host, rt_cuda_device;

/* Scalars that a training step computes in addition to the outputs: global norm of the reduced gradients; 1 if the
 * update was skipped because that norm was not finite; the loss scale of the step. */
enum rt_metric { RT_NORM, RT_SKIPPED, RT_LOSS_SCALE };

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
    double lr;             /* before the schedule's factor */
    struct rt_lr_schedule schedule;
};

struct rt_program {
    int format;       /* RT_FORMAT */
    const char *name; /* model and instance, for messages */
    const char *key;  /* content hash of the program: every rank of a job must have the same */
    const char *work; /* hash of model, plan and the options that change results: a checkpoint belongs to it */
    int plan_ngpus;   /* ranks of a scale unit; the program runs on any multiple of it (base/location.h) */
    int naxes, mesh[RT_MAX_AXES]; /* sizes of the mesh axes; the first varies fastest with the shard number */
    int nreplicas;                /* replica axes, numbered naxes and up: in training the scale units of a ZeRO group,
                                   * and the groups if there are several; else 0 */
    int zero_groups;              /* ZeRO groups; 1 without ZeRO */
    /* The mesh axis of pipeline stages that execute several micro-batches, so that one stage alone has the loss or an
     * output; 0: none, n: axis n - 1 */
    int stages;
    int micro_batches;       /* of rt_infer_step; 0: one. Training has rt_training.accumulate */
    unsigned communicates;   /* bit a: a collective along axis a exists */
    bool convolves, attends; /* the program has convolutions, attention: a device may load a library for them */
    int ninputs, noutputs, nweights, nstates, nclasses;
    const struct rt_port *inputs, *outputs;
    const struct rt_weight *weights;
    const struct rt_state *states;
    const struct rt_rank_class *classes;
    const int *class_of_shard;          /* plan_ngpus entries */
    const struct rt_training *training; /* NULL: the program does not train */
    const struct rt_device *device;
};

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
    const void *const *inputs;            /* of the current step: the caller's tensors, then the controls */
    size_t slot[RT_SLOT_SETS]; /* of the current micro-batch, by set of slots (Note [Slots] in base/schedule.h) */
    int64_t step;              /* steps begun */
    int instruction;           /* current one: index into "instructions" of manifest.json; -1: none */
    struct rt_private *internal;
    int reference_kernels; /* 1: kernels in plain C instead of a library's; set by rt_kernels_select */
    /* Likewise. 1: f32 matrix products on a GPU use TF32, which rounds operands to 10 bits of mantissa. */
    int tf32;
};

struct rt_options {
    const char *directory; /* that has manifest.json, location.json and weights/ */
    const char *comm;      /* "auto", "self", "loopback", "shm" */
    /* a communicator of all ranks, which stays the caller's; NULL: made from rank, world and comm */
    struct rt_comm *joined;
    /* Address of the caller's MPI_Comm, an intracommunicator of all ranks, which stays the caller's; NULL: none. rank
     * and world are then its own. Collective over it. rt_close must come before MPI_Finalize. */
    const void *mpi_comm;
    int rank, world; /* used where joined and mpi_comm are NULL; world 0: from the environment, else one rank */
    /* Where ranks find each other that were started by torchrun, mpirun or by hand: HOST:PORT, file:PATH or mpi
     * (comm/rendezvous.h). NULL: MASTER_ADDR and MASTER_PORT, else MPI. */
    const char *rendezvous;
    int join_timeout; /* seconds to wait for all ranks to join; 0: 300 */
    /* If not NULL: gets a file descriptor of the shared memory the ranks then use, owned by the caller; -1 if there is
     * none. */
    int *segment;
    int threads;         /* 0: cores / ranks on this machine, at least 1 */
    const char *kernels; /* "auto", "reference" (plain C, no library) or, on GPUs, "tf32" */
    bool json;           /* warnings on stderr are JSON (base/diagnostic.h) */
    /* Only the first scale unit reads weights and sends them to the others, which need no files but manifest.json. The
     * same on all ranks. */
    bool broadcast_weights;
};

/* Bytes of symmetric memory per rank that the program needs: the argument of rt_comm_open_shared when the ranks are
 * threads of the caller (samples/embed). */
size_t rt_program_symmetric(const struct rt_program *program);

/* Opens a rank of a job of any number of scale units. RT_ERROR_MISMATCH: the number of ranks is not a multiple of
 * plan_ngpus. */
int rt_open(struct rt **out, const struct rt_program *program, const struct rt_options *options);
void rt_close(struct rt *rt);

/* Runs a job whose ranks are threads of this process: options->world of them, by default one scale unit. Opens each
 * rank on a thread of its own, calls run(rt, context) there, and closes the rank when it returns; returns when all
 * have. Of `options` (may be NULL) joined, mpi_comm, rank, comm and rendezvous are not read. Any number of jobs may run
 * at a time.
 *
 * RT_OK if all calls returned 0. A rank that fails, or whose call returns something else, ends the waits of the others.
 * The result is then the status of the first rank that did not fail because of another one, and rt_error(NULL) is its
 * text ("rank 1: index 12 is out of range"). */
int rt_run_threads(const struct rt_program *program, const struct rt_options *options,
                   int (*run)(struct rt *rt, void *context), void *context);

/* This rank's number in the job, the number of ranks, and the number of scale units. */
int rt_rank(const struct rt *rt);
int rt_world(const struct rt *rt);
int rt_units(const struct rt *rt);

/* Runs one inference step. `inputs` and `outputs` have one pointer per port to a complete, row-major tensor of the
 * port's dtype, owned by the caller and valid until the call returns. An output pointer may be NULL: not copied. With
 * several micro-batches (rt_program.micro_batches) dimension 0 of each tensor is that many times as large as the
 * port's: the micro-batches follow each other. An input without dimensions is the same for all.
 * Random operators draw other numbers in each step; they depend on the number of steps since rt_open and on the scale
 * unit, not on how the model is divided among ranks. Collective over the job's ranks. */
int rt_infer_step(struct rt *rt, const void *const *inputs, void *const *outputs);

/* Training ---------------------------------------------------------------------------------------------------------
 *
 * A program with a loss: rt_train_step runs a whole step. Or in parts: rt_gradients; then, in this order, any of
 * rt_sync_shard_grad, rt_scale_grads, rt_clip_gnorm; then rt_optimizer_step. A program without a loss: rt_zero_grad;
 * then rt_forward and rt_backward alternately, once per micro-batch; then the same functions. All are collective over
 * the job's ranks. rt_infer_step in between overwrites gradients that are reduced already, and those of a program with
 * a loss that was compiled for one micro-batch per step: rt_sync_shard_grad, rt_clip_gnorm and rt_optimizer_step then
 * return RT_ERROR_USAGE. */

/* A loss scale: factor() is called with the loss of a micro-batch before its backward pass and returns what the loss,
 * and so its gradient, is multiplied with. With pipeline stages the result matters on the ranks that
 * compute the loss; on others `loss` is 0. */
struct rt_scale {
    double (*factor)(void *context, int micro_batch, double loss);
    void *context;
};

/* Runs one training step of this rank's scale unit: forward and backward of `accumulate` micro-batches, then the
 * update. samples[j] are the inputs of micro-batch j, as for rt_infer_step. is_dummy[j] marks a micro-batch that does
 * not count; its values must be legal all the same. is_dummy NULL: none. losses[j] (losses may be NULL) gets the loss
 * of micro-batch j of this unit, unscaled. The gradient is the mean over the real micro-batches of all units; a unit
 * with dummies alone adds nothing to it. scale may be NULL. */
int rt_train_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                  const struct rt_scale *scale, double *losses);

/* The same without reduction and update: gradients stay in memory for the functions below. */
int rt_gradients(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                 const struct rt_scale *scale, double *losses);

/* For programs without a loss. rt_forward is rt_infer_step for training: its inputs must stay valid and unchanged until
 * the following rt_backward. rt_backward takes the gradients of the float outputs (complete tensors, in port order),
 * adds the gradients of the parameters to their sums, and returns those of the float inputs; input_gradients or any
 * pointer in it may be NULL. */
int rt_forward(struct rt *rt, const void *const *inputs, void *const *outputs);
int rt_backward(struct rt *rt, const void *const *output_gradients, void *const *input_gradients);

/* Sets the gradient sums to zero. rt_gradients does so itself. */
int rt_zero_grad(struct rt *rt);

/* Reduces gradients over the scale units: to the mean over all real micro-batches if the program has a loss, else to
 * the sum. A second call before the next backward does nothing. rt_clip_gnorm and rt_optimizer_step call it if it was
 * not called. The sums take the place of the rank's own gradients: after it, rt_backward returns RT_ERROR_USAGE until
 * rt_zero_grad was called. */
int rt_sync_shard_grad(struct rt *rt);

/* Multiplies gradients, and so the norm that rt_clip_gnorm returns afterwards, with `factor`. */
int rt_scale_grads(struct rt *rt, double factor);

/* Clips gradients to the norm `most` over all parameters, as torch.nn.utils.clip_grad_norm_ does, instead of to the
 * program's --clip-grad-norm. INFINITY: no clipping. *norm (norm may be NULL) gets the norm before clipping. */
int rt_clip_gnorm(struct rt *rt, double most, double *norm);

/* Updates the parameters and the optimizer states. */
int rt_optimizer_step(struct rt *rt);

/* Called on every rank right before and after gradients are reduced; either may be NULL. A status other than RT_OK ends
 * the step and is its result. */
struct rt_reduce_hooks {
    int (*before)(void *context, struct rt *rt);
    int (*after)(void *context, struct rt *rt);
    void *context;
};
void rt_set_reduce_hooks(struct rt *rt, const struct rt_reduce_hooks *hooks);

/* Sets the learning rate of the following steps, before the schedule's factor. Parameters with a learning rate of their
 * own (--param) keep it. */
void rt_set_learning_rate(struct rt *rt, double lr);

/* Sets the micro-batches per step and scale unit of the following steps. RT_ERROR_MISMATCH: the program was compiled
 * for one micro-batch per step and has no memory for gradient sums. */
int rt_set_accumulate(struct rt *rt, int micro_batches);

/* Learning rate of the last training step, with the schedule's factor. */
double rt_learning_rate(const struct rt *rt);

/* Loss of the last micro-batch of this rank's scale unit, in training or inference. NaN: the device failed. Collective
 * over the ranks of the unit if the program has pipeline stages. */
double rt_loss(struct rt *rt);

/* Global gradient norm of the last training step, after rt_scale_grads and before clipping. */
double rt_gradient_norm(const struct rt *rt);

/* A metric of the last training step; NaN if the program does not compute it. */
double rt_metric(struct rt *rt, enum rt_metric metric);

/* Checkpoints. D/step-K/ holds the parameters and optimizer states after step K:
 *
 *   checkpoint.json              step, program, the complete tensors, how they are cut, the files and their hashes
 *   parameters-R.safetensors     the parts of the parameters that rank R writes: a part that several ranks hold is
 *                                written by the first of them
 *   optimizer-R.safetensors      likewise the optimizer states. NAME#2 is the tensor NAME cut in a second way, where
 *                                the plan holds it in two ways
 *
 * A checkpoint is written under a temporary name, synced to disk and renamed: a failure at any time leaves earlier
 * checkpoints intact. Loaded into the same program, training continues bit for bit as if it had not been
 * interrupted.
 *
 * A checkpoint does not depend on the plan: a program of the same model and the same training options loads it under
 * any other one, and each rank reads its own parts. */
struct rt_position {
    int64_t step, micro_batches; /* done so far; micro-batches of all scale units */
    int64_t seed;                /* seed of the sample order, stored for the caller; -1: not shuffled */
    int64_t per_step;            /* set by rt_load: micro-batches of the last step, of all scale units; 0: unknown */
};

/* Writes D/step-K for K = position->step; an existing one is replaced. Collective over the job's ranks, which must see
 * the same file system. RT_ERROR_SYSTEM: a file cannot be written; nothing of this save remains. RT_ERROR_BUSY: another
 * job holds D. */
int rt_save(struct rt *rt, const char *directory, const struct rt_position *position);

/* The same in two steps, between which training goes on. rt_save_begin copies the tensors that this rank writes, and a
 * thread writes them to files. rt_save_end waits for it, reports errors of writing, and gives the checkpoint its name:
 * until then it does not exist. Both are collective; rt_save_is_written is not: this rank's files are written, or no
 * save was begun. rt_save_begin ends an earlier save first. */
int rt_save_begin(struct rt *rt, const char *directory, const struct rt_position *position);
bool rt_save_is_written(const struct rt *rt);
int rt_save_end(struct rt *rt);

/* Locks D against other jobs' saves until rt_close; without it each rt_save locks D for its duration. create: D is made
 * if it does not exist. RT_ERROR_BUSY: another job holds the lock, which rt_error names. Reading takes no lock: if a
 * checkpoint is removed or replaced while rt_load reads it, the old one is loaded or rt_load fails. Collective. */
int rt_hold_checkpoints(struct rt *rt, const char *directory, bool create);

/* Removes the oldest checkpoints up to step K, so that `most` (at least 1) of them remain. Checkpoints of later steps,
 * left by a run that was resumed from an earlier step, are kept. Rank 0 calls it after rt_save, while the job holds
 * D. */
int rt_thin_checkpoints(struct rt *rt, int64_t step, int most);

/* Loads D/step-K, `which` being K, or "latest": the newest checkpoint that is intact for all ranks, with a warning for
 * each damaged one; if all are damaged, the error is that of the newest. RT_ERROR_MISMATCH: damaged, or of another
 * program. RT_ERROR_INPUT: a file is a link; links are not followed. Collective. */
int rt_load(struct rt *rt, const char *directory, const char *which, struct rt_position *position);

/* The same for the parameters alone: the optimizer's state, the step and the position in the data stay those of a new
 * run. The checkpoint may be of a program with another optimizer or other options. */
int rt_load_parameters(struct rt *rt, const char *directory, const char *which);

/* True if the directory has checkpoints. */
bool rt_checkpoint_exists(const char *directory);

/* Output `index` of the last step: the complete tensor, valid until the next step, in the device's memory (if it is an
 * input of the model: in the caller's). NULL: this rank does not hold it. Avoids the copy of rt_infer_step. Of several
 * micro-batches, the arenas have the last one's. */
const void *rt_output(const struct rt *rt, int index);

/* This rank's number among the ranks of its machine, from the launcher's environment; else its rank. */
int rt_local_rank(const struct rt *rt);

/* Text of this rank's last failure; with rt NULL, of the last failed rt_open or rt_run_threads of this
 * thread. */
const char *rt_error(const struct rt *rt);

/* main() of a generated program: takes the options of `rankc run` and --rank R --world N, returns rankc's exit
 * codes. */
int rt_main(int argc, char **argv, const struct rt_program *program);

/* Called by generated code --------------------------------------------------------------------------------------- */

/* Returns the callee's status from the calling function unless it is RT_OK. */
#define RT_TRY(call)                                                                                                   \
    do {                                                                                                               \
        int rt_try_status = (call);                                                                                    \
        if (rt_try_status) return rt_try_status;                                                                       \
    } while (0)

/* Records that an instruction (index into "instructions" of manifest.json; -1: none) begins. Reports about a rank that
 * fails, dies or hangs name it. A rank that records none for the launcher's time limit counts as stuck. */
void rt_at(struct rt *rt, int instruction);

/* True while the search for a non-finite value observes each instruction (program/main_nonfinite.c). A device then
 * calls the segment's function, instead of replaying a captured graph. */
bool rt_is_watched(const struct rt *rt);

/* RT_TRY for a call that may fail or take long, made by instruction `number`. */
#define RT_TRY_AT(number, call)                                                                                        \
    do {                                                                                                               \
        rt_at(rt, (number));                                                                                           \
        RT_TRY(call);                                                                                                  \
    } while (0)

/* The same for a call that has no status. */
#define RT_AT(number, call) (rt_at(rt, (number)), (call))

/* Start, within each block, of this rank's part of a dimension cut along mesh axis `axis` (Note [Cuts] in base/part.h),
 * in elements. */
int64_t rt_part_start(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t grain);

/* Padding that this rank's windowed operator (convolution, pooling) needs before and behind the part of the dimension
 * that it holds, in elements: rt_placement_before, _behind in base/part.h. */
int64_t rt_window_before(const struct rt *rt, int axis, const struct rt_placement *window);
int64_t rt_window_behind(const struct rt *rt, int axis, const struct rt_placement *window, int64_t behind);

/* Redistribution along one mesh axis. The tensor is seen as (outer, extent, inner); its middle dimension is cut into
 * (blocks, grain), see base/part.h. `instruction` is the caller's number, as for rt_at. `scratch` has room for one
 * complete tensor. dst, src and scratch do not overlap, except that dst of rt_all_reduce may be src. `begun`:
 * rt_all_reduce_start was called for it. */
int rt_all_gather(struct rt *rt, int instruction, int axis, void *dst, const void *src, void *scratch,
                  enum rt_dtype dtype, int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t grain);
int rt_reduce_scatter(struct rt *rt, int instruction, int axis, void *dst, const void *src, void *scratch,
                      enum rt_dtype dtype, int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t grain,
                      enum rt_reduce reduce);
int rt_all_reduce(struct rt *rt, int instruction, int axis, void *dst, const void *src, enum rt_dtype dtype,
                  int64_t count, enum rt_reduce reduce, int begun);

/* Announces that the input of a later rt_all_reduce (with `begun` 1) is complete: copies src to dst, which may be src,
 * and allows the transport to begin the sum. Do not access dst until that rt_all_reduce returns. */
int rt_all_reduce_start(struct rt *rt, int instruction, int axis, void *dst, const void *src, enum rt_dtype dtype,
                        int64_t count);

/* Redistribution between two placements (base/part.h) of the same or of different dimensions. dims: extents of the
 * tensor, complete in dimensions from_dim and to_dim, this rank's part in the others.
 *     rt_chunk           complete tensor -> this rank's part or window; no communication
 *     rt_crop            part that contains the window -> window; no communication
 *     rt_all_to_all      part -> part
 *     rt_halo_exchange   part -> window
 * `scratch` has room for all data this rank sends and all it receives. */
int rt_chunk(struct rt *rt, int instruction, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim,
             const int64_t *dims, int dim, const struct rt_placement *to);
int rt_crop(struct rt *rt, int instruction, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim,
            const int64_t *dims, int from_dim, const struct rt_placement *from, int to_dim,
            const struct rt_placement *window);
int rt_all_to_all(struct rt *rt, int instruction, int axis, void *dst, const void *src, void *scratch,
                  enum rt_dtype dtype, int ndim, const int64_t *dims, int from_dim, const struct rt_placement *from,
                  int to_dim, const struct rt_placement *to);
int rt_halo_exchange(struct rt *rt, int instruction, int axis, void *dst, const void *src, void *scratch,
                     enum rt_dtype dtype, int ndim, const int64_t *dims, int from_dim, const struct rt_placement *from,
                     int to_dim, const struct rt_placement *window);

/* Point-to-point and broadcast along one mesh axis. Sends to or receives from the rank at this rank's place +
 * `distance`, which may be negative. Broadcasts from place `root` on the axis; the root's dst gets a copy of its src,
 * the other ranks' src is ignored. */
int rt_send(struct rt *rt, int instruction, int axis, const void *src, int64_t bytes, int distance);
int rt_receive(struct rt *rt, int instruction, int axis, void *dst, int64_t bytes, int distance);
int rt_broadcast(struct rt *rt, int instruction, int axis, void *dst, const void *src, int64_t bytes, int root);

/* Flat cuts (base/flat.h): where the rank's slice of `elements`, its part of a tensor, begins, and how many elements it
 * has; `axes` is the set of axes that cut it. */
int64_t rt_flat_start(const struct rt *rt, unsigned axes, int64_t elements);
int64_t rt_flat_count(const struct rt *rt, unsigned axes, int64_t elements);

/* Between the slice that the axes in `outer` leave of `elements` and that which `axis`, which comes after them, leaves
 * of it. gather: dst = all slices; src may be the rank's own place in dst. scatter: dst = the rank's slice of the
 * reduction, and may be its place in src; the operand of a dummy micro-batch counts as zero and src is overwritten
 * then. each_micro_batch: src is one micro-batch's, not their sum. begun: rt_all_gather_start, or
 * rt_reduce_scatter_start, was called for it. */
int rt_all_gather_flat(struct rt *rt, int instruction, int axis, void *dst, const void *src, enum rt_dtype dtype,
                       int64_t elements, unsigned outer, int begun);
int rt_reduce_scatter_flat(struct rt *rt, int instruction, int axis, void *dst, void *src, enum rt_dtype dtype,
                           int64_t elements, unsigned outer, enum rt_reduce reduce, int each_micro_batch, int begun);

/* Announces a later rt_all_gather_flat with `begun` 1: allows the transport to gather from now on. dst: the place of
 * the rank's slice in what is gathered, to which src is copied; it is the src of the later call. Do not access what is
 * gathered until that call returns. Calls with `begun` 1 complete the gathers along an axis in the order in which they
 * were announced. */
int rt_all_gather_start(struct rt *rt, int instruction, int axis, void *dst, const void *src, enum rt_dtype dtype,
                        int64_t elements, unsigned outer);

/* Announces that the input of a later rt_reduce_scatter_flat (with `begun` 1) is complete, as rt_all_reduce_start
 * does. */
int rt_reduce_scatter_start(struct rt *rt, int instruction, int axis, void *dst, const void *src, enum rt_dtype dtype,
                            int64_t elements, unsigned outer);

/* dst = sum + all ranks' src, added in rank order where the transport defines one; dst may be sum. */
int rt_all_reduce_onto(struct rt *rt, int instruction, int axis, void *dst, const void *sum, void *src,
                       enum rt_dtype dtype, int64_t elements, int each_micro_batch);

/* dst = sum + the rank's slice of all ranks' src, added in rank order where the transport defines one; dst may be
 * sum. */
int rt_reduce_scatter_onto(struct rt *rt, int instruction, int axis, void *dst, const void *sum, void *src,
                           enum rt_dtype dtype, int64_t elements, unsigned outer, int each_micro_batch);

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
