/* For programs that embed a compiled model: opening its ranks, inference, training, checkpoints. The functions of the
 * generated model.h call these.
 *
 * A job consists of ranks. Each opens its part of the model (rt_open), and all call the functions that are collective
 * in the same order. A rank is a process of an MPI program or of a launcher's, or a thread: rt_run_threads.
 *
 * No function exits or prints more than warnings (on stderr). Functions return RT_OK or an enum rt_status
 * (base/status.h); rt_error() is the text of the last error. NULL in place of what a function needs is RT_ERROR_USAGE;
 * functions that return a number give NaN, -1 or 0 then, and those that return an address NULL.
 *
 * One struct rt serves one thread at a time; different ones are independent. */
#ifndef RT_RT_H
#define RT_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/contract.h"
#include "base/dtype.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rt;         /* a rank */
struct rt_program; /* a model: MODEL_program in its model.h */
struct rt_comm;    /* comm.h */

/* An input or output of the model: the complete tensor, not this rank's part. Names are in manifest.json, in this
 * order. */
struct rt_port {
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM]; /* RT_EXTENT(k): it follows from the sizes of a call (rt_set_sizes) */
    /* Of an output whose size along dimension `dim` depends on data: 1 + the index of the output that holds how many
     * indices are valid, an int64_t; elements at others are undefined. Else 0. */
    int dim, count;
    /* Of an output that the largest sizes do not make largest, as one of n - size elements: how many it has at most.
     * Else 0. */
    int64_t most;
    /* Of an input: the same for all samples, so that there is one tensor whatever the number of micro-batches. */
    bool shared;
};

/* Scalars that a training step computes in addition to the outputs: global norm of the reduced gradients; 1 if the
 * update was skipped because that norm was not finite; the loss scale of the step. */
enum rt_metric { RT_NORM, RT_SKIPPED, RT_LOSS_SCALE };

/* Ranks of a scale unit of the program, and its ports; index: a constant of model.h. */
int rt_program_ranks(const struct rt_program *program);
const struct rt_port *rt_program_input(const struct rt_program *program, int index);
const struct rt_port *rt_program_output(const struct rt_program *program, int index);

/* A size that each call chooses: least, least + step .. most. `name`: the dimension's in the model. Or one that the
 * program keeps, the rows of its caches so far: `next` is 1 + the number of the extent that it becomes in the next
 * step, and it is 0 at first. */
struct rt_size {
    const char *name;
    int64_t least, most, step;
    int next; /* 0: each call chooses the size */
};

/* An extent that no step may have larger, though the bounds of its sizes would allow it. `name`: what it is of them. */
struct rt_limit {
    const char *name;
    int extent;
    int64_t most;
};

/* In dims of a port: the k-th of the program's extents, the first of which are the sizes. */
#define RT_EXTENT(k) (INT64_MIN + (k))

struct rt_options {
    const char *directory; /* that has manifest.json, location.json and weights/ */
    const char *comm;      /* "auto", "self", "loopback", "shm" */
    /* a communicator of all ranks, which stays the caller's; NULL: made from rank, world and comm */
    struct rt_comm *joined;
    /* Address of the caller's MPI_Comm, an intracommunicator of all ranks, which stays the caller's; NULL: none. rank
     * and world are then its own. Collective over it. rt_close must come before MPI_Finalize. */
    const void *mpi_comm;
    /* Of programs for GPUs; each NULL: none. Addresses of the caller's ncclComm_t (NCCL 2.18 or later, loaded as
     * libnccl.so.2) of all ranks, with the job's numbers, and of a cudaStream_t that can be captured, so not the legacy
     * default stream. All ranks give the same of the two. Both stay the caller's and are used until rt_close: a
     * communicator is split off, and the work of a step is queued on the stream. With either of them the rank uses the
     * current device of the thread that calls rt_open. */
    const void *nccl_comm, *cuda_stream;
    int rank, world; /* used where joined and mpi_comm are NULL; world 0: from the environment, else one rank */
    /* Where ranks find each other that were started by torchrun, mpirun or by hand: HOST:PORT, file:PATH or mpi
     * (comm/rendezvous.h). NULL: MASTER_ADDR and MASTER_PORT, else MPI. */
    const char *rendezvous;
    int join_timeout; /* seconds to wait for all ranks to join; 0: 300. Not below 0, like threads and world */
    /* If not NULL: gets a file descriptor of the shared memory the ranks then use, owned by the caller; -1 if there is
     * none. */
    int *segment;
    int threads;         /* of a rank; no more than the cores start; 0: cores / ranks on this machine, at least 1 */
    const char *kernels; /* "auto", "reference" (plain C, no library) or, on GPUs, "tf32" */
    bool json;           /* warnings on stderr are JSON (base/text/diagnostic.h) */
    /* Only the first scale unit reads weights and sends them to the others, which need no files but manifest.json. The
     * same on all ranks. */
    bool broadcast_weights;
    /* Past a second, a line on stderr says how far loading weights and reading and writing checkpoints are, if stderr
     * is a terminal. For one rank of the job. */
    bool progress;
    /* Which of the program's adapters is applied, as in rt_set_adapter, the same on all ranks; NULL: the first. */
    const char *adapter;
};

/* Opens a rank of a job of any number of scale units. RT_ERROR_MISMATCH: the number of ranks is not a multiple of
 * plan_ngpus. */
int rt_open(struct rt **out, const struct rt_program *program, const struct rt_options *options);

/* Releases the rank; NULL: nothing. A rank of rt_run_threads, and one that executes a step whose hooks call this, stays
 * open: the job, or the step, then fails with RT_ERROR_USAGE. */
void rt_close(struct rt *rt);

/* Runs a job whose ranks are threads of this process: options->world of them, by default one scale unit. Opens each
 * rank on a thread of its own, calls run(rt, context) there, and closes the rank when it returns; returns when all
 * have. Of `options` (may be NULL) joined, mpi_comm, nccl_comm, cuda_stream, rank, comm and rendezvous are not
 * read. Any number of jobs may run at a time.
 *
 * RT_OK if all calls returned 0. A rank that fails, or whose call returns something else, ends the waits of the others.
 * If another rank waits for one whose call has returned 0, that is RT_ERROR_SYSTEM (E0905) on the waiting rank.
 * The result is then the status of the first rank that did not fail because of another one, and rt_error(NULL) is its
 * text ("rank 1: index 12 is out of range"). */
int rt_run_threads(const struct rt_program *program, const struct rt_options *options,
                   int (*run)(struct rt *rt, void *context), void *context);

/* Ends the waits of the job's other ranks, whose calls then return RT_ERROR_PEER; to be called when this rank cannot go
 * on. rt_run_threads does so when `run` fails. */
void rt_abort(struct rt *rt);

/* This rank's number in the job, the number of ranks, and the number of scale units. */
int rt_rank(const struct rt *rt);
int rt_world(const struct rt *rt);
int rt_units(const struct rt *rt);

/* The number of this rank's scale unit. */
int rt_scale_unit(const struct rt *rt);

/* Runs one inference step. `inputs` and `outputs` have one pointer per port to a complete, row-major tensor of the
 * port's dtype, owned by the caller and valid until the call returns. An output pointer may be NULL: not copied. With
 * several micro-batches (rt_program.micro_batches) dimension 0 of each tensor is that many times as large as the
 * port's: the micro-batches follow each other. A shared input is the same for all.
 * Random operators draw other numbers in each step; they depend on the number of steps since rt_open and on the scale
 * unit, not on how the model is divided among ranks. Running statistics of a training program are those of scale unit
 * 0. Collective over the job's ranks. */
int rt_infer_step(struct rt *rt, const void *const *inputs, void *const *outputs);

/* Applies another of the adapters of a program that has several (compile --adapter, repeated) from the next step on;
 * "none": the model without any. Only their matrices are read. State that steps keep was computed with the adapter of
 * then: rt_state_reset begins anew. RT_ERROR_USAGE: the program has no adapter of that name. Collective over the job's
 * ranks, which all choose the same. */
int rt_set_adapter(struct rt *rt, const char *name);

/* The sizes of the steps that follow, one for each of the program's (struct PREFIX_sizes of model.h); before the first
 * call the largest. Those that the program keeps are not read. All ranks choose the same. RT_ERROR_INPUT for a size
 * that the program was not compiled for; the sizes are then those of before. */
int rt_set_sizes(struct rt *rt, const int64_t *sizes);

/* State: what steps of inference keep for the next one (--state). Growing states are caches to which each step adds
 * rows; others, such as those of convolutions and recurrent layers, are replaced by each step. A step that would exceed
 * the capacity is RT_ERROR_INPUT, with code 508, before anything is written.
 *
 * length: the rows that are kept, 0 after rt_open and rt_state_reset, which also sets replaced states to zero; -1 if
 * nothing grows. capacity: the rows that there is room for; INT64_MAX if nothing grows. truncate goes back to the first
 * `length` rows; RT_ERROR_USAGE if there are fewer, or if there are replaced states, which cannot go back, and `length`
 * is not the present one. save writes the state to a file of this rank's own in a directory that exists, and restore
 * reads it in the same program on as many ranks: a prompt is computed once, and many texts go on from it. */
int64_t rt_state_length(const struct rt *rt);
int64_t rt_state_capacity(const struct rt *rt);
int rt_state_reset(struct rt *rt);
int rt_state_truncate(struct rt *rt, int64_t length);
int rt_state_save(struct rt *rt, const char *directory);
int rt_state_restore(struct rt *rt, const char *directory);

/* The extents of an input or output for the current sizes: writes port->ndim numbers to dims. */
int rt_port_extents(const struct rt *rt, const struct rt_port *port, int64_t *dims);

/* Training ---------------------------------------------------------------------------------------------------------
 *
 * A program with a loss: rt_train_batch and rt_train_step run a whole step. Or in parts: rt_gradients; then, in this
 * order, any of rt_sync_shard_grad, rt_scale_grads, rt_clip_gnorm; then rt_optimizer_step. A program without a loss:
 * rt_zero_grad; then rt_forward and rt_backward alternately, once per micro-batch; then the same functions. All are
 * collective over the job's ranks. rt_infer_step in between overwrites gradients that are reduced already, and those of
 * a program with a loss that was compiled for one micro-batch per step: rt_sync_shard_grad, rt_clip_gnorm and
 * rt_optimizer_step then return RT_ERROR_USAGE. */

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
 * of micro-batch j of this unit, unscaled; with --loss ..:mean=tokens the sum over its labels that count, divided by
 * the number of all its labels. The gradient is the mean over the real micro-batches of all units, or over the labels
 * that count in them; a unit with dummies alone adds nothing to it. scale may be NULL. */
int rt_train_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                  const struct rt_scale *scale, double *losses);

/* What a training step returns. All ranks of the job get the same, also those of pipeline stages that do not compute
 * the loss. */
struct rt_train_result {
    double loss;          /* mean over the micro-batches of all scale units, unscaled; with --loss ..:mean=tokens over
                           * all labels that count in them */
    double gradient_norm; /* global, before clipping */
    double learning_rate; /* with the schedule's factor; of parameters without one of their own */
    double loss_scale;    /* NaN: the program does not scale losses */
    bool skipped;         /* no update, because the gradient norm was not finite; only with a loss scale */
    /* Steps so far and the micro-batches of all scale units in them, checkpoints that were loaded included: for struct
     * rt_position. */
    int64_t step, micro_batches;
};

/* rt_train_step with one pointer per input to a tensor of the whole step: dimension 0 is `accumulate` times as large as
 * the port's, and the micro-batches of this rank's scale unit follow each other. A shared input is the
 * same for all. outputs likewise has one pointer per output, to a tensor of the whole step (of one without dimensions,
 * such as the loss: an element for each micro-batch); NULL: not copied. With pipeline stages an output is copied on the
 * ranks of the stage that computes it, and the memory of others is left alone. outputs and result may be NULL. */
int rt_train_batch(struct rt *rt, const void *const *inputs, void *const *outputs, struct rt_train_result *result);

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

/* Multiplies gradients, and so the norm that rt_clip_gnorm returns afterwards, with `factor`, which is finite. */
int rt_scale_grads(struct rt *rt, double factor);

/* Clips gradients to the norm `most` over all parameters, as torch.nn.utils.clip_grad_norm_ does, instead of to the
 * program's --clip-grad-norm. `most` is at least 0; INFINITY: no clipping. *norm (norm may be NULL) gets the norm
 * before clipping. */
int rt_clip_gnorm(struct rt *rt, double most, double *norm);

/* Updates the parameters and the optimizer states. RT_ERROR_USAGE: no gradients were computed since the last update, or
 * since they were set to zero. */
int rt_optimizer_step(struct rt *rt);

/* Called on every rank right before and after gradients are reduced; either may be NULL, and so may `hooks`. A status
 * other than RT_OK ends the step and is its result. */
struct rt_reduce_hooks {
    int (*before)(void *context, struct rt *rt);
    int (*after)(void *context, struct rt *rt);
    void *context;
};
int rt_set_reduce_hooks(struct rt *rt, const struct rt_reduce_hooks *hooks);

/* Sets the learning rate of the following steps, before the schedule's factor: at least 0, and finite. Parameters with
 * a learning rate of their own (--param) keep it. */
int rt_set_learning_rate(struct rt *rt, double lr);

/* Sets the schedule of the following steps in place of the compiled one, from rt_lr_schedule_parse(). */
struct rt_lr_schedule;
int rt_set_lr_schedule(struct rt *rt, const struct rt_lr_schedule *schedule);

/* Sets the micro-batches per step and scale unit of the following steps. RT_ERROR_MISMATCH: the program was compiled
 * for one micro-batch per step and has no memory for gradient sums. */
int rt_set_accumulate(struct rt *rt, int micro_batches);

/* Learning rate of the last training step, with the schedule's factor. */
double rt_learning_rate(const struct rt *rt);

/* Loss of the last micro-batch of this rank's scale unit, in training or inference. NaN: the device failed. Collective
 * over the ranks of the unit if the program has pipeline stages. */
double rt_loss(struct rt *rt);

/* With --loss ..:mean=tokens, the weight of the labels that count in that micro-batch, divided by the number of its
 * labels; else 1. The mean over several micro-batches is the sum of their rt_loss divided by the sum of these. */
double rt_loss_weight(struct rt *rt);

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
 * job holds D. RT_ERROR_USAGE: a step or a number of micro-batches below 0, or a seed below -1. */
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

/* Removes the oldest checkpoints up to step K, so that `most` (at least 1) of them remain; rt_thin_checkpoints_but: and
 * beside them that of step `spared`. Checkpoints of later steps, left by a run that was resumed from an earlier step,
 * are kept. Rank 0 calls it after rt_save, while the job holds D. */
int rt_thin_checkpoints(struct rt *rt, int64_t step, int most);
int rt_thin_checkpoints_but(struct rt *rt, int64_t step, int most, int64_t spared);

/* Loads D/step-K, `which` being K, or "latest": the newest checkpoint that is intact for all ranks, with a warning for
 * each damaged one; if all are damaged, the error is that of the newest. RT_ERROR_MISMATCH: damaged, or of another
 * program. RT_ERROR_INPUT: a file is a link; links are not followed. position may be NULL. Collective. */
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

/* Text of this rank's last failure, with the ONNX node if a step failed in one; valid until the next failure. With
 * rt NULL, of the last failed rt_open or rt_run_threads of this thread. */
const char *rt_error(const struct rt *rt);

#ifdef __cplusplus
}
#endif

#endif
