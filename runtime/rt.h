/* What a generated program is made of, and what runs it.
 *
 * rankc writes one `const struct rt_program` per model: tables (ports, weights, rank classes) and one step function per
 * rank class. The runtime does the rest: it finds out which rank it is, maps the model, loads the rank's slices of the
 * weights, allocates each arena once, and calls the step. A program's main() is rt_main(); a C program that embeds a
 * module calls rt_open(), rt_infer_step() and rt_close() through the model's own model.h.
 *
 * Nothing here exits or prints unless asked (rt_main does both). Functions return RT_OK or a status of comm.h; the text
 * of the last error is rt_error(). One struct rt serves one thread at a time; different ones are independent.
 */
#ifndef RT_RT_H
#define RT_RT_H

#include "base/part.h"
#include "base/schedule.h"
#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RT_FORMAT    10 /* of struct rt_program; a program of another format is refused with RT_ERROR_MISMATCH */
#define RT_MAX_NDIM  8
#define RT_MAX_AXES  4
#define RT_ALIGNMENT 64 /* of every arena and of every offset in it */

/* Memory of a rank by class; each is one allocation, planned at compile time. COMMUNICATION lies in the symmetric
 * segment, at offsets equal on all ranks. */
enum rt_arena {
    RT_WEIGHTS,
    RT_GRADIENTS,
    RT_OPTIMIZER,
    RT_ACTIVATIONS,
    RT_COMMUNICATION,
    RT_SCRATCH,
    RT_ARENAS,
    RT_CALLER = RT_ARENAS /* the caller's memory: the offset is the index of an input */
};

/* An input or output of the model, complete (not this rank's part). Names are in manifest.json, in this order. */
struct rt_port {
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM];
};

/* One cut of a tensor: dimension `dim` is divided among the ranks of mesh axis `axis` (Note [Cuts] in base/part.h). */
struct rt_split {
    int dim, axis;
    int64_t blocks, unit;
};

/* How a part of a matrix lies in memory: as it is stored, or in panels (Note [Panels] in base/panel.h) of (k,n), being
 * stored as (k,n) or as (n,k). */
enum rt_packing { RT_PLAIN, RT_PACK_ROWS, RT_PACK_COLUMNS };

/* Values that a weight has instead of those in the model (init.h). */
enum rt_init_kind { RT_INIT_STORED, RT_INIT_NORMAL, RT_INIT_UNIFORM, RT_INIT_CONSTANT };
struct rt_init {
    enum rt_init_kind kind;
    double a, b;  /* mean and standard deviation; least and most; value */
    uint64_t key; /* of the weight's random numbers */
};

/* In the place of a file: the part lies in a slice of its own in weights/, as "weights" of manifest.json says. */
#define RT_SLICES (-1)

/* A tensor that is loaded at open: a part of a stored tensor, converted to `dtype`. dims are those of the stored,
 * complete, row-major tensor; `nsplits` cuts select the part, at most one per mesh axis, on distinct dimensions. Only
 * f32 matrices are packed. */
struct rt_weight {
    int file;        /* index into "files" of location.json, or RT_SLICES */
    uint64_t offset; /* of its first byte in that file; any alignment */
    enum rt_dtype stored, dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    int nsplits;
    struct rt_split split[RT_MAX_AXES];
    enum rt_packing packing;
    bool trained; /* steps change it */
    struct rt_init init;
};

/* A tensor that is kept from step to step, zero at first: a moment of an optimizer. Cut as a weight is. */
struct rt_state {
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    int nsplits;
    struct rt_split split[RT_MAX_AXES];
};

#define RT_ABSENT ((size_t)-1) /* offset of a weight or port that a class does not hold */

struct rt_place {
    enum rt_arena arena;
    size_t offset;
};

struct rt;

/* Ranks whose code is the same. */
struct rt_class {
    size_t bytes[RT_ARENAS];
    const struct rt_place *inputs, *outputs; /* where complete ports are copied to and from; RT_ABSENT: nowhere */
    const size_t *weights;                   /* offset in RT_WEIGHTS of each weight, or RT_ABSENT */
    const size_t *states;                    /* offset in RT_OPTIMIZER of each state, or RT_ABSENT */
    /* offset in RT_ACTIVATIONS of the controls, or RT_ABSENT: behind the inputs */
    size_t controls;
    int row;                          /* in the tables of a source that classes share */
    int (*infer_step)(struct rt *rt); /* forward, of one micro-batch */
    int (*backward)(struct rt *rt);   /* and backward; NULL, and the next two: the program does not train */
    int (*reduce)(struct rt *rt);     /* gradients, over units, and their norm */
    int (*update)(struct rt *rt);     /* parameters and the optimizer's states */
};

/* Rows of `bytes` bytes, count[0] x count[1] x count[2] of them, that are copied with strides in bytes. */
struct rt_copies {
    void *to;
    const void *from;
    size_t bytes;
    int64_t count[3], to_stride[3], from_stride[3];
};

/* What the runtime gives to each training step: f64 numbers behind the inputs (TRAINING_CONTROLS of ir/ir.h says what
 * for). */
enum rt_control {
    RT_LR,
    RT_STEP,
    RT_SHARE,
    RT_REAL,
    RT_FACTOR,
    RT_TRAINING,
    RT_MICRO,
    RT_SEED,
    RT_RESCALE,
    RT_MOST,
    RT_CONTROLS
};

/* Where arenas lie and phases run: the host (host.c), or a GPU (cuda/device.cu). Calls take effect in their order, and
 * on a device whose memory is not the process' (`remote`) some time after they return: `finish` waits for all of
 * them. */
struct rt_device {
    const char *name;
    bool remote;
    /* Called once the rank is known, and at the end, also after a failed open. */
    int (*open)(struct rt *rt);
    void (*close)(struct rt *rt);
    /* An arena of zeros; NULL: there is no room. */
    void *(*allocate)(struct rt *rt, enum rt_arena arena, size_t bytes);
    void (*release)(struct rt *rt, void *memory, size_t bytes);
    /* From and to the process' memory. `src` of put may be changed as soon as it returns; `dst` of get has the bytes
     * after finish. */
    int (*put)(struct rt *rt, void *dst, const void *src, size_t bytes);
    int (*get)(struct rt *rt, void *dst, const void *src, size_t bytes);
    int (*zero)(struct rt *rt, void *memory, size_t bytes);
    /* From one place in arenas to another, or the same; zeros where the control is 0 in the step under way. */
    int (*copy_where)(struct rt *rt, void *dst, const void *src, size_t bytes, enum rt_control control);
    int (*copy)(struct rt *rt, const struct rt_copies *rows);
    /* A communicator for memory of the device, of the ranks that the given one of the process' memory joins (which it
     * does not own); `color` tells it from others that are split off at the same time. */
    int (*connect)(struct rt *rt, struct rt_comm *host, int color, struct rt_comm **out);
    /* Executes a phase of the rank's class. */
    int (*run)(struct rt *rt, int (*phase)(struct rt *rt));
    /* What a phase met that it cannot compute is found here at the latest. */
    int (*finish)(struct rt *rt);
};
extern const struct rt_device rt_host, rt_cuda_device;

/* Numbers that a step gives beside its outputs: global norm of the reduced gradients; 1 if the step was skipped because
 * that was not finite; the loss scale it was computed with. */
enum rt_metric { RT_NORM, RT_SKIPPED, RT_LOSS_SCALE };

struct rt_training {
    int accumulate;        /* micro-batches of a unit in a step; more than 1: sums of gradients have memory */
    int units;             /* data parallel copies of the plan */
    int metrics;           /* of enum rt_metric, how many the program has: RT_SKIPPED where steps may be skipped .. */
    int seeds;             /* gradients of outputs, which are given; 0: output 0 is the loss. Ports behind the inputs */
    int gradients;         /* of inputs, which a program without a loss gives. Ports behind the outputs */
    int64_t bucket_bytes;  /* of gradients, whose sum begins while backward goes on; 0: none does */
    double clip_grad_norm; /* 0: none */
    double lr;             /* as the schedule has not changed it */
    struct rt_schedule schedule;
};

struct rt_program {
    int format;       /* RT_FORMAT */
    const char *name; /* of model and instance, for messages */
    const char *key;  /* content hash of the program: every rank of a job must have the same */
    const char *work; /* of model, plan and options alone, whatever rankc compiled them: checkpoints are of that */
    int plan_ngpus, runtime_ngpus;
    int naxes, mesh[RT_MAX_AXES]; /* sizes of the mesh axes; the first varies fastest with the shard number */
    unsigned communicates;        /* bit a: something moves along axis a */
    bool convolves, attends;      /* a device may open its library for it */
    int ninputs, noutputs, nweights, nstates, nclasses;
    const struct rt_port *inputs, *outputs;
    const struct rt_weight *weights;
    const struct rt_state *states;
    const struct rt_class *classes;
    const int *class_of_shard;          /* plan_ngpus entries */
    const struct rt_training *training; /* NULL: the program does not train */
    const struct rt_device *device;
};

/* A rank at work. Generated code reads rt->arena and rt->coordinate and calls the functions below. */
struct rt {
    const struct rt_program *program;
    const struct rt_class *kind;       /* what ranks like this one run */
    int rank, world;                   /* of the whole job */
    int unit, shard;                   /* rank / plan_ngpus, rank % plan_ngpus */
    int coordinate[RT_MAX_AXES];       /* of the shard on the mesh */
    int threads;                       /* of this rank, for products and kernels */
    unsigned char *arena[RT_ARENAS];   /* zero-filled at open */
    struct rt_comm *comm;              /* all ranks; for memory of the process, as `units` is */
    struct rt_comm *units;             /* the same rank of every unit */
    struct rt_comm *axis[RT_MAX_AXES]; /* ranks that differ from this one only on that mesh axis; for arenas */
    struct rt_comm *unit_arenas;       /* `units`, for arenas */
    void *device;                      /* what the program's device keeps */
    const void *const *inputs;         /* of the step under way, the caller's */
    int64_t step;                      /* steps begun */
    int site;                          /* instruction under way: index into "instructions" of manifest.json */
    struct rt_private *internal;
    int reference_kernels; /* kernels in plain C, without a library; set by rt_kernels_select */
    /* likewise: products of f32 on a GPU's tensor cores, operands rounded to 10 bits of mantissa */
    int tf32;
};

struct rt_options {
    const char *directory;  /* of manifest.json, location.json and weights/ */
    const char *comm;       /* "auto", "self", "loopback", "shm" */
    struct rt_comm *joined; /* the caller's communicator of all ranks (kept open), or NULL: rank, world and comm say */
    int rank, world;        /* used where joined is NULL; world 0: from the environment, else one rank */
    const char *rendezvous; /* where ranks that no launcher of rankc started meet: HOST:PORT, file:PATH or mpi. NULL:
                                MASTER_ADDR and MASTER_PORT, else by the MPI that started them */
    int join_timeout;       /* seconds that they wait for each other; 0: 300 */
    /* if not NULL: a descriptor of the memory they then share, the caller's to close; else -1 */
    int *segment;
    int threads;         /* 0: cores / ranks on this machine, at least 1 */
    const char *kernels; /* "auto", "reference" (plain products, no library) or, on GPUs, "tf32" */
    bool json;           /* warnings on stderr are objects of JSON (base/diagnostic.h) */
};

/* Bytes of symmetric memory that each rank of the program needs: for rt_comm_open_shared, where ranks are threads of
 * the caller's (samples/embed). */
size_t rt_program_symmetric(const struct rt_program *program);

int rt_open(struct rt **out, const struct rt_program *program, const struct rt_options *options);
void rt_close(struct rt *rt);

/* One step. `inputs` and `outputs` are one pointer per port: complete tensors, row-major, of the port's dtype, the
 * caller's, and alive until the call returns. An output pointer may be NULL. Collective over the job's ranks. */
int rt_infer_step(struct rt *rt, const void *const *inputs, void *const *outputs);

/* Training ---------------------------------------------------------------------------------------------------------
 *
 * Of a program with a loss, rt_train_step does all of a step. Or step by step: rt_gradients, then in this order what is
 * wanted of rt_sync_shard_grad, rt_scale_grads, rt_clip_gnorm, then rt_optimizer_step. Of one without: rt_zero_grad,
 * rt_forward and rt_backward in turns, once per micro-batch, then the same. All are collective over the job's ranks. */

/* Called before the backward of micro-batch j with its loss: what the loss is multiplied with, and so its gradient. */
struct rt_scale {
    double (*factor)(void *context, int micro_batch, double loss);
    void *context;
};

/* One training step of the rank's unit: `accumulate` micro-batches, samples[j] being inputs as of rt_infer_step, then
 * the update. is_dummy[j] (NULL: none is) says that micro-batch j counts for nothing; it must hold legal values all the
 * same. losses[j] (losses may be NULL) gets the loss of micro-batch j, of this unit, not scaled. A step with dummies
 * alone changes no parameter's gradient; the mean is over the real micro-batches of all units. scale may be NULL. */
int rt_train_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                  const struct rt_scale *scale, double *losses);

/* The same without the update: leaves gradients. */
int rt_gradients(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                 const struct rt_scale *scale, double *losses);

/* Of a program without a loss. Forward is rt_infer_step whose inputs stay where they are until the backward that
 * follows it. Backward takes the gradients of the float outputs (complete, in their order), adds those of the
 * parameters to their sums and gives those of the float inputs; a pointer there, or all of them, may be NULL. */
int rt_forward(struct rt *rt, const void *const *inputs, void *const *outputs);
int rt_backward(struct rt *rt, const void *const *output_gradients, void *const *input_gradients);

/* Sums of gradients become zero. rt_gradients does so itself. */
int rt_zero_grad(struct rt *rt);

/* Gradients are reduced over the units: of a program with a loss to the mean over all real micro-batches, else to the
 * sum. A second call before the next backward does nothing; the functions below call it where it was not. */
int rt_sync_shard_grad(struct rt *rt);

/* Gradients are multiplied with `factor`, the norm of what follows too. */
int rt_scale_grads(struct rt *rt, double factor);

/* Clips gradients to the norm `most` over all parameters (torch.nn.utils.clip_grad_norm_; INFINITY: not), in place of
 * the program's. *norm (norm may be NULL) gets the norm before. */
int rt_clip_gnorm(struct rt *rt, double most, double *norm);

/* Updates the parameters. */
int rt_optimizer_step(struct rt *rt);

/* Called on every rank right before and after gradients are reduced; either may be NULL. A status other than RT_OK ends
 * the step with it. */
struct rt_reduce_hooks {
    int (*before)(void *context, struct rt *rt);
    int (*after)(void *context, struct rt *rt);
    void *context;
};
void rt_set_reduce_hooks(struct rt *rt, const struct rt_reduce_hooks *hooks);

/* The learning rate of the steps to come, which the program's schedule multiplies with its factors; at first the
 * program's. Parameters with one of their own (--param) keep that. */
void rt_set_learning_rate(struct rt *rt, double lr);

/* The micro-batches of each unit in the steps to come; at first the program's. RT_ERROR_MISMATCH where the program was
 * compiled for one and has no memory to sum gradients of more. */
int rt_set_accumulate(struct rt *rt, int micro_batches);

/* The learning rate of the last training step, as scheduled. */
double rt_learning_rate(const struct rt *rt);

/* The loss of the last micro-batch of this rank's unit, of either kind of step. */
double rt_loss(struct rt *rt);

/* Norm of the gradient of the last training step, scaled and before clipping. */
double rt_gradient_norm(const struct rt *rt);

/* A number of the last training step; NaN if the program has it not. */
double rt_metric(struct rt *rt, enum rt_metric metric);

/* Checkpoints. D/step-K/ holds what training has made of the parameters and of the optimizer's states after step K:
 *
 *   checkpoint.json              step, program, the complete tensors and how they are cut, and the files with their
 *                                hashes
 *   parameters-R.safetensors     the parts of the parameters that rank R writes: those that no rank before it has alike
 *   optimizer-R.safetensors      likewise of the states; both say of each tensor which part it is. NAME#2 is NAME cut
 *                                in another way, where the plan has it so too
 *
 * It is written beside, waits for the disk, and gets its name in one step: whatever happens meanwhile, the checkpoints
 * that were there stay. Loaded into the same program, the run goes on bit for bit as if it had not been interrupted. */
struct rt_position {
    int64_t step, micro_batches; /* taken, of all units */
    int64_t seed;                /* of the order of the samples; -1: as they lie. The caller's to use */
};

/* Writes D/step-K for K = position->step, in place of an earlier one. Collective over the job's ranks, which see one
 * file system. RT_ERROR_SYSTEM: a file cannot be written; of this save nothing stays. RT_ERROR_BUSY: as
 * rt_hold_checkpoints. */
int rt_save(struct rt *rt, const char *directory, const struct rt_position *position);

/* Makes the job the only one that saves in D, from here to rt_close; without it each rt_save does so for as long as it
 * takes. D is made where `create`. RT_ERROR_BUSY: another job does; rt_error says which. Reading takes no lock: a
 * checkpoint that is removed or written again while rt_load reads it is loaded as it was, or refused. Collective. */
int rt_hold_checkpoints(struct rt *rt, const char *directory, bool create);

/* Removes the oldest checkpoints: of step K and those before it, as many stay as `most`, which is at least 1. Later
 * ones, of a run that this one went back from, stay. To be called by rank 0 after rt_save, by a job that holds D. */
int rt_thin_checkpoints(struct rt *rt, int64_t step, int most);

/* Goes on from D/step-K, `which` being K or "latest": then checkpoints that are damaged, for one rank or for all, are
 * passed over with a warning, and where all are damaged, the newest's fault is the error. RT_ERROR_MISMATCH: of another
 * program, or damaged. RT_ERROR_INPUT: a file is a link, and those are not followed. Collective. */
int rt_load(struct rt *rt, const char *directory, const char *which, struct rt_position *position);

/* True if the directory has checkpoints. */
bool rt_checkpoint_exists(const char *directory);

/* Output `index` of the last step, complete, in memory of the rank, which is its device's (or of the caller, if it is
 * an input): valid until the next step. NULL where this rank does not hold it. Saves the copy of rt_infer_step. */
const void *rt_output(const struct rt *rt, int index);

/* This rank's number among those of its machine, as its launcher says; by default its rank. */
int rt_local_rank(const struct rt *rt);

/* Text of the last failure of this rank (also of a failed rt_open, then with rt NULL: of this thread). */
const char *rt_error(const struct rt *rt);

/* main() of a generated program: options of `rankc run` plus --rank R --world N; exit codes of rankc. */
int rt_main(int argc, char **argv, const struct rt_program *program);

/* Called by generated code --------------------------------------------------------------------------------------- */

/* Leaves the step with the callee's status unless it is RT_OK. */
#define RT_TRY(call)                                                                                                   \
    do {                                                                                                               \
        int rt_try_status = (call);                                                                                    \
        if (rt_try_status) return rt_try_status;                                                                       \
    } while (0)

/* Instruction `site` (index into "instructions" of manifest.json) begins; -1: none of them. What is said of a rank that
 * fails, dies or is stuck names it, and a rank that never says so is taken for stuck. */
void rt_at(struct rt *rt, int site);

/* True while who looks for a value that is not finite is told of every instruction: a device calls phases then, and
 * does not repeat them without their calls. */
bool rt_is_watched(const struct rt *rt);

/* The same as RT_TRY for a call that may fail or take long, made by instruction `number`. */
#define RT_TRY_AT(number, call)                                                                                        \
    do {                                                                                                               \
        rt_at(rt, (number));                                                                                           \
        RT_TRY(call);                                                                                                  \
    } while (0)

/* The same for a call that has no status. */
#define RT_AT(number, call) (rt_at(rt, (number)), (call))

/* Start and length, within a block, of this rank's part of a dimension cut along mesh axis `axis`. */
int64_t rt_part_start(const struct rt *rt, int axis, int64_t extent, int64_t blocks, int64_t unit);

/* How far this rank's operator over a window reaches before and behind it (rt_holding_before, _behind in
 * base/part.h). */
int64_t rt_window_before(const struct rt *rt, int axis, const struct rt_holding *window);
int64_t rt_window_behind(const struct rt *rt, int axis, const struct rt_holding *window, int64_t behind);

/* Redistribution along one mesh axis. A tensor is seen as (outer, extent, inner) around the dimension that is cut into
 * (blocks, unit); `site` names the instruction. `scratch` has room for one complete tensor; dst, src and scratch do
 * not overlap, but for rt_all_reduce, whose dst may be src. */
int rt_all_gather(struct rt *rt, int site, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                  int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t unit);
int rt_reduce_scatter(struct rt *rt, int site, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                      int64_t outer, int64_t extent, int64_t inner, int64_t blocks, int64_t unit,
                      enum rt_reduce reduce);
int rt_all_reduce(struct rt *rt, int site, int axis, void *dst, const void *src, enum rt_dtype dtype, int64_t count,
                  enum rt_reduce reduce, int begun);

/* What an rt_all_reduce that has `begun` is going to sum is complete: dst, which may be src, gets it, and the sum may
 * begin. */
int rt_all_reduce_start(struct rt *rt, int site, int axis, void *dst, const void *src, enum rt_dtype dtype,
                        int64_t count);

/* From a holding of one dimension to one of another, or of the same one (base/part.h), as dims gives the tensor:
 * complete in both dimensions, this rank's part in the others. rt_chunk takes its part or window of what it has whole,
 * rt_crop its window of a part that has all of it; they communicate nothing. rt_all_to_all goes from parts to parts;
 * rt_halo_exchange to windows. `scratch` has room for all that the rank sends to others and all that it receives from
 * them. */
int rt_chunk(struct rt *rt, int site, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim,
             const int64_t *dims, int dim, const struct rt_holding *to);
int rt_crop(struct rt *rt, int site, int axis, void *dst, const void *src, enum rt_dtype dtype, int ndim,
            const int64_t *dims, int from_dim, const struct rt_holding *from, int to_dim,
            const struct rt_holding *window);
int rt_all_to_all(struct rt *rt, int site, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                  int ndim, const int64_t *dims, int from_dim, const struct rt_holding *from, int to_dim,
                  const struct rt_holding *to);
int rt_halo_exchange(struct rt *rt, int site, int axis, void *dst, const void *src, void *scratch, enum rt_dtype dtype,
                     int ndim, const int64_t *dims, int from_dim, const struct rt_holding *from, int to_dim,
                     const struct rt_holding *window);

/* Between the ranks along one mesh axis: `bytes` bytes to or from the rank `distance` places further along it
 * (negative: before), or from the rank at place `root` to all (whose own dst is a copy of its src; the others' src is
 * not read). */
int rt_send(struct rt *rt, int site, int axis, const void *src, int64_t bytes, int distance);
int rt_receive(struct rt *rt, int site, int axis, void *dst, int64_t bytes, int distance);
int rt_broadcast(struct rt *rt, int site, int axis, void *dst, const void *src, int64_t bytes, int root);

/* The sum over the units, in their order; dst may be src. Where it has `begun`, _start has said that the rank's own
 * value, at src, is complete: dst gets it, which is the other's src, and the sum may begin. */
int rt_unit_sum_start(struct rt *rt, void *dst, const void *src, enum rt_dtype dtype, int64_t count);
int rt_unit_sum(struct rt *rt, void *dst, const void *src, enum rt_dtype dtype, int64_t count, int begun);
/* The largest over the units; dst may be src. */
int rt_unit_max(struct rt *rt, void *dst, const void *src, enum rt_dtype dtype, int64_t count);

/* Records why a call of a communicator failed; returns `status`. */
int rt_fail_comm(struct rt *rt, const struct rt_comm *comm, int status);

/* Hands over what is left of sums that begin early, and waits for all (Note [Buckets] in sums.c): a device calls it at
 * the end of a phase that it is going to repeat without its function. The variant says how sums begin in the next
 * phase: to be repeated it must be the same. */
int rt_end_sums(struct rt *rt);
int rt_sums_variant(const struct rt *rt);

/* A kernel met data that no plan can foresee (an index out of range): records the text and stops the step. */
int rt_fail(struct rt *rt, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif

#endif
