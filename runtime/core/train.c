/* Training steps, whole or in parts under the caller's control: what surrounds the segments of each phase. */
#include "core/private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one table have the parameters of all */

static int refuse_number(struct rt *rt, const char *what, double number) {
    return rt_fail(rt, RT_ERROR_USAGE, "%s cannot be %g", what, number);
}

int rt_set_learning_rate(struct rt *rt, double lr) {
    RT_NEEDS(rt, rt);
    if (!(lr >= 0) || isinf(lr)) return refuse_number(rt, "the learning rate", lr);
    rt->internal->lr = lr;
    return RT_OK;
}

int rt_set_lr_schedule(struct rt *rt, const struct rt_lr_schedule *schedule) {
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, schedule);
    rt->internal->schedule = *schedule;
    return RT_OK;
}

double rt_learning_rate(const struct rt *rt) {
    return rt ? rt->internal->control[RT_LR] : NAN;
}

int rt_set_accumulate(struct rt *rt, int micro_batches) {
    RT_NEEDS(rt, rt);
    if (micro_batches < 1) return refuse_number(rt, "the number of micro-batches", micro_batches);
    const struct rt_training *training = rt->program->training;
    if (!training || (micro_batches > 1 && training->accumulate == 1))
        return rt_fail(
            rt, RT_ERROR_MISMATCH,
            "the program was compiled for steps of one micro-batch: it has no memory to accumulate gradients; compile "
            "with --accumulate");
    const struct rt_schedule *schedule = &rt->rank_class->schedule;
    if (!rt_schedule_allows(schedule, micro_batches))
        return rt_fail(rt, RT_ERROR_MISMATCH,
                       "the program's schedule does not allow %d micro-batch(es) per step: it is made for %s%d",
                       micro_batches, schedule->repeats ? "at least " : "", schedule->micro_batches);
    double *losses = realloc(rt->internal->losses, (size_t)micro_batches * 2 * sizeof *losses);
    if (!losses) return rt_fail_memory(rt);
    rt->internal->losses = losses;
    rt->internal->weights = losses + micro_batches;
    rt->internal->accumulate = micro_batches;
    return RT_OK;
}

int rt_set_reduce_hooks(struct rt *rt, const struct rt_reduce_hooks *hooks) {
    RT_NEEDS(rt, rt);
    rt->internal->hooks = hooks ? *hooks : (struct rt_reduce_hooks){0};
    return RT_OK;
}

void rt_reset_gradients(struct rt *rt) {
    const double most = rt->program->training->clip_grad_norm;
    rt->internal->reduced = false;
    rt->internal->control[RT_RESCALE] = 1;
    rt->internal->control[RT_MOST] = most > 0 ? most : INFINITY;
}

/* Begins to copy a scalar from the device: `to` has its bytes once the device has finished, 0 if `from` is NULL. */
static int fetch(struct rt *rt, double *to, const void *from, enum rt_dtype dtype) {
    *to = 0;
    return from ? rt->program->device->get(rt, to, from, rt_dtype_bytes(dtype)) : RT_OK;
}

/* Converts the bytes that fetch copied to a number. */
static double fetched(double bytes, enum rt_dtype dtype) {
    double number;
    rt_convert(&number, RT_F64, &bytes, dtype, 1);
    return number;
}

/* NaN if the device failed; the next call reports that. */
static double number_at(struct rt *rt, const void *from, enum rt_dtype dtype) {
    double bytes;
    if (fetch(rt, &bytes, from, dtype) || rt->program->device->finish(rt)) return NAN;
    return fetched(bytes, dtype);
}

/* The loss of the row's micro-batch; 0 on ranks that do not compute it. */
static double current_loss(struct rt *rt) {
    return number_at(rt, rt_current_output(rt, 0), rt->program->outputs[0].dtype);
}

/* Gives losses to the pipeline stages that do not compute them, where they are 0. */
static int share_losses(struct rt *rt, double *losses, int n) {
    const int axis = rt->program->stages - 1;
    if (axis < 0 || !losses) return RT_OK;
    struct rt_comm *comm = rt->internal->split[axis];
    for (int i = 0; i < n && !rt_speaks_for_stage(rt); i++) losses[i] = 0;
    return rt_end_collective(rt, comm, comm->driver->all_reduce(comm, losses, losses, (size_t)n, RT_F64, RT_SUM));
}

double rt_loss(struct rt *rt) {
    if (!rt || !rt->program->noutputs) return NAN;
    double loss = number_at(rt, rt_output(rt, 0), rt->program->outputs[0].dtype);
    return share_losses(rt, &loss, 1) ? NAN : loss;
}

double rt_loss_weight(struct rt *rt) {
    const int64_t elements = rt && rt->program->training ? rt->program->training->elements : 0;
    if (!elements) return 1;
    double weight = number_at(rt, rt_output(rt, 1), rt->program->outputs[1].dtype);
    return share_losses(rt, &weight, 1) ? NAN : weight / (double)elements;
}

double rt_gradient_norm(const struct rt *rt) {
    return rt ? rt->internal->norm * rt->internal->norm_scale : NAN;
}

static int output_of_metric(const struct rt *rt, enum rt_metric metric) {
    return rt->program->noutputs + rt->program->training->gradients + (int)metric;
}

double rt_metric(struct rt *rt, enum rt_metric metric) {
    const struct rt_training *training = rt ? rt->program->training : NULL;
    if (!training || (int)metric < 0 || (int)metric >= training->metrics) return NAN;
    return number_at(rt, rt_output(rt, output_of_metric(rt, metric)), RT_F64);
}

static int check_trains(struct rt *rt) {
    RT_NEEDS(rt, rt);
    if (rt->program->training) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "the program was not compiled to train");
}

/* Also checks that the program has no loss of its own if `module`, else that it has one. */
static int check_kind(struct rt *rt, bool module) {
    RT_TRY(check_trains(rt));
    if ((rt->program->training->seeds > 0) == module) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE,
                   module ? "the program computes the loss itself: call its training step"
                          : "the program does not compute the loss: call its forward and backward functions");
}

/* Checks that gradients have not been overwritten since they were computed. */
static int check_gradients(struct rt *rt) {
    RT_TRY(check_trains(rt));
    if (!rt->internal->lost) return RT_OK;
    return rt_fail(rt, RT_ERROR_USAGE, "an inference step has overwritten the gradients: compute them again");
}

/* A call of the training functions. Inputs come by micro-batch (samples) or in tensors of the whole step (batch); both
 * are NULL if neither forward nor backward is executed. The others may be NULL. */
struct training_call {
    const void *const *const *samples;
    const void *const *batch;
    void *const *outputs;          /* of the whole step */
    const unsigned char *is_dummy; /* by micro-batch */
    const struct rt_scale *scale;
    double *losses;
    int backwards[PHASE_WEIGHT + 1][RT_MAX_CHUNKS]; /* by phase and chunk of the rank: backward segments so far */
};

/* Also waits for sums that have begun, whose results are discarded. */
static int zero_gradients(struct rt *rt) {
    RT_TRY(rt_end_sums(rt));
    rt->internal->overlaps = rt->internal->known = false;
    rt->internal->passes = 0;
    rt->internal->summed = rt->internal->lost = rt->internal->computed = false;
    rt_reset_gradients(rt);
    return rt->program->device->zero(rt, rt->arena[RT_GRADIENTS], (size_t)rt->internal->bytes[RT_GRADIENTS]);
}

/* Sets RT_SHARE to 1 / real micro-batches of all scale units; to 0 if there are none. */
static int count_real(struct rt *rt, const unsigned char *is_dummy) {
    int64_t mine = 0, all = 0;
    for (int j = 0; j < rt->internal->accumulate; j++) mine += !is_dummy || !is_dummy[j];
    RT_TRY(rt_end_collective(rt, rt->units, rt->units->driver->all_reduce(rt->units, &all, &mine, 1, RT_I64, RT_SUM)));
    rt->internal->control[RT_SHARE] = all ? 1.0 / (double)all : 0;
    return RT_OK;
}

/* Sets RT_SHARE so that the mean is over all elements that count in the step: their weight is known once all of its
 * forward segments have been executed. */
static int count_weights(struct rt *rt) {
    const struct rt_training *training = rt->program->training;
    double mine = 0, all;
    RT_TRY(rt->program->device->finish(rt));
    for (int j = 0; j < rt->internal->accumulate; j++)
        mine += fetched(rt->internal->weights[j], rt->program->outputs[1].dtype);
    RT_TRY(share_losses(rt, &mine, 1));
    RT_TRY(rt_end_collective(rt, rt->units, rt->units->driver->all_reduce(rt->units, &all, &mine, 1, RT_F64, RT_SUM)));
    rt->internal->control[RT_SHARE] = (double)training->elements / all;
    return RT_OK;
}

/* Sets the controls of the forward segment of this scale unit's micro-batch. */
static void set_controls(struct rt *rt, int64_t micro) {
    struct rt_private *private = rt->internal;
    private->apart = true;
    private->control[RT_TRAINING] = 1;
    private->control[RT_STEP] = (double)(private->trained + 1);
    private->control[RT_MICRO] = (double)rt_numbered(rt, micro);
}

static bool is_real(const struct training_call *call, int micro) {
    return !call->is_dummy || !call->is_dummy[micro];
}

/* Before a forward segment, and before a backward segment whose micro-batch is not that of the last forward segment. */
static int enter_micro_batch(struct rt *rt, const struct training_call *call, int micro) {
    rt->internal->control[RT_REAL] = is_real(call, micro);
    set_controls(rt, micro);
    if (call->batch) return rt_take_micro_batch(rt, call->batch, micro);
    return rt_take_inputs(rt, 0, rt->program->ninputs, call->samples[micro]);
}

static int begin_forward(struct rt *rt, void *context, int micro) {
    return enter_micro_batch(rt, context, micro);
}

/* Losses are fetched asynchronously: losses[j] has the bytes of a loss, not a number, until read_losses. After a chunk
 * that does not compute the loss they have no meaning; the micro-batch's last forward segment is that of the loss. */
static int end_forward(struct rt *rt, void *context, int micro) {
    const struct training_call *call = context;
    if (call->outputs) RT_TRY(rt_give_micro_batch(rt, call->outputs, micro));
    if (rt->program->training->elements && is_real(call, micro) &&
        rt->rank_class->outputs[1].chunk == rt->internal->chunk)
        RT_TRY(fetch(rt, &rt->internal->weights[micro], rt_current_output(rt, 1), rt->program->outputs[1].dtype));
    if (!call->losses) return RT_OK;
    return fetch(rt, &call->losses[micro], rt_current_output(rt, 0), rt->program->outputs[0].dtype);
}

/* Before a segment of either part of the backward phase. */
static int enter_backward(struct rt *rt, struct training_call *call, enum phase phase, int micro) {
    const struct rt_schedule *schedule = &rt->rank_class->schedule;
    const bool last = ++call->backwards[phase][rt->internal->chunk] == rt->internal->accumulate;
    if (schedule->nchunks > 1 || schedule->slots[0] > 1) RT_TRY(enter_micro_batch(rt, call, micro));
    rt->internal->computed = true;
    rt_backward_begins(rt, last, !rt_values_are_read(rt));
    return RT_OK;
}

static int begin_backward(struct rt *rt, void *context, int micro) {
    struct training_call *call = context;
    const struct rt_scale *scale = call->scale;
    RT_TRY(enter_backward(rt, call, PHASE_BACKWARD, micro));
    rt->internal->control[RT_SEED] =
        scale ? scale->factor(scale->context, micro, is_real(call, micro) ? current_loss(rt) : 0) : 1;
    return RT_OK;
}

static int begin_weight(struct rt *rt, void *context, int micro) {
    return enter_backward(rt, context, PHASE_WEIGHT, micro);
}

static int begin_reduce(struct rt *rt, void *context, int micro) {
    const struct rt_reduce_hooks *hooks = &rt->internal->hooks;
    return hooks->before ? hooks->before(hooks->context, rt) : RT_OK;
}

static int end_reduce(struct rt *rt, void *context, int micro) {
    const struct rt_reduce_hooks *hooks = &rt->internal->hooks;
    rt->internal->reduced = rt->internal->summed = true;
    rt->internal->overlaps = false;
    return hooks->after ? hooks->after(hooks->context, rt) : RT_OK;
}

static int inspect(struct rt *rt, const struct training_call *call);

static int begin_update(struct rt *rt, void *context, int micro) {
    struct rt_private *private = rt->internal;
    const struct training_call *call = context;
    if (private->inspect && call->samples) RT_TRY(inspect(rt, call));
    const double factor = rt_lr_factor(&private->schedule, ++private->trained);
    private->control[RT_TRAINING] = 1;
    private->control[RT_STEP] = (double)private->trained;
    private->control[RT_FACTOR] = factor;
    private->control[RT_LR] = private->lr * factor;
    private->norm_scale = private->control[RT_RESCALE];
    return fetch(rt, &private->norm, rt_output(rt, output_of_metric(rt, RT_NORM)), RT_F64);
}

static int end_update(struct rt *rt, void *context, int micro) {
    rt_reset_gradients(rt);
    rt->internal->computed = false;
    return RT_OK;
}

/* Executes segments of some phases (bits of enum phase) of a training step. */
static int execute(struct rt *rt, unsigned phases, struct training_call *call) {
    static const struct rt_around around[PHASES] = {[PHASE_FORWARD] = {begin_forward, end_forward},
                                                    [PHASE_BACKWARD] = {begin_backward, NULL},
                                                    [PHASE_WEIGHT] = {begin_weight, NULL},
                                                    [PHASE_REDUCE] = {begin_reduce, end_reduce},
                                                    [PHASE_UPDATE] = {begin_update, end_update}};
    const struct rt_call rows = {phases, rt->internal->accumulate, around, call};
    return rt_execute(rt, &rows);
}

enum {
    GRADIENTS = 1 << PHASE_FORWARD | 1 << PHASE_BACKWARD | 1 << PHASE_WEIGHT,
    REDUCE = 1 << PHASE_REDUCE,
    UPDATE = 1 << PHASE_UPDATE
};

/* Forward and backward of all micro-batches from zero sums, and the phases after them. */
static int run_gradients(struct rt *rt, unsigned later, struct training_call *call) {
    RT_TRY(zero_gradients(rt));
    RT_TRY(count_real(rt, call->is_dummy));
    rt->internal->micro_batches += (int64_t)rt->internal->accumulate * rt->units->size;
    if (!rt->program->training->elements) return execute(rt, GRADIENTS | later, call);
    memset(rt->internal->weights, 0, (size_t)rt->internal->accumulate * sizeof *rt->internal->weights);
    RT_TRY(execute(rt, GRADIENTS, call));
    RT_TRY(count_weights(rt));
    return later ? execute(rt, later, call) : RT_OK;
}

/* Executes the phases, and the reduction unless that was done since the last backward segment. */
static int run_later(struct rt *rt, unsigned phases) {
    struct training_call call = {0};
    return execute(rt, phases | (rt->internal->reduced ? 0 : REDUCE), &call);
}

/* Converts the fetched losses to numbers, once the device has finished. */
static void read_losses(const struct rt *rt, const unsigned char *is_dummy, double *losses) {
    for (int j = 0; j < rt->internal->accumulate && losses; j++)
        losses[j] = is_dummy && is_dummy[j] ? 0 : fetched(losses[j], rt->program->outputs[0].dtype);
}

/* Repeats the step's gradients from zero sums, without counting its micro-batches twice. */
static int repeat_gradients(struct rt *rt, const struct rt_attempt *attempt) {
    struct training_call call = {.samples = attempt->samples, .is_dummy = attempt->is_dummy, .scale = attempt->scale};
    const int64_t micro_batches = rt->internal->micro_batches;
    RT_TRY(run_gradients(rt, REDUCE, &call));
    rt->internal->micro_batches = micro_batches;
    return RT_OK;
}

/* All ranks decide alike, because repeating gradients is collective. */
static int inspect(struct rt *rt, const struct training_call *call) {
    const struct rt_attempt attempt = {call->samples, call->is_dummy, call->scale, repeat_gradients};
    struct rt_private *private = rt->internal;
    RT_TRY(rt->program->device->finish(rt)); /* norm and losses have arrived */
    const double norm = rt_metric(rt, RT_NORM);
    int32_t mine = !isfinite(norm), any = 0;
    for (int j = 0; j < private->accumulate && call->losses; j++)
        mine = mine || !isfinite(fetched(call->losses[j], rt->program->outputs[0].dtype));
    RT_TRY(rt_end_collective(rt, rt->comm, rt->comm->driver->all_reduce(rt->comm, &any, &mine, 1, RT_I32, RT_MAX)));
    return any ? private->inspect(private->inspector, rt, &attempt) : RT_OK;
}

/* Checks the caller's arguments. */
static int check_call(struct rt *rt, const struct training_call *call) {
    RT_TRY(check_kind(rt, false));
    if (!call->samples && !call->batch) return rt_refuse_null(rt, "samples");
    for (int j = 0; call->samples && j < rt->internal->accumulate; j++)
        if (!call->samples[j]) return rt_refuse_null(rt, "an element of samples");
    if (call->scale && !call->scale->factor) return rt_refuse_null(rt, "scale->factor");
    return RT_OK;
}

/* A step of a program with a loss, up to the given phases. */
static int train(struct rt *rt, unsigned later, struct training_call *call) {
    RT_TRY(check_call(rt, call));
    const int threads = rt_begin_step(rt);
    RT_TRY(rt_end_step(rt, threads, run_gradients(rt, later, call)));
    read_losses(rt, call->is_dummy, call->losses);
    return share_losses(rt, call->losses, rt->internal->accumulate);
}

int rt_gradients(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                 const struct rt_scale *scale, double *losses) {
    struct training_call call = {.samples = samples, .is_dummy = is_dummy, .scale = scale, .losses = losses};
    return train(rt, 0, &call);
}

int rt_train_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                  const struct rt_scale *scale, double *losses) {
    struct training_call call = {.samples = samples, .is_dummy = is_dummy, .scale = scale, .losses = losses};
    return train(rt, REDUCE | UPDATE, &call);
}

int rt_find_train_result(struct rt *rt, const double *losses, struct rt_train_result *result) {
    const struct rt_private *private = rt->internal;
    double mine = 0, all;
    for (int j = 0; j < private->accumulate; j++) mine += losses[j];
    RT_TRY(rt_end_collective(rt, rt->units, rt->units->driver->all_reduce(rt->units, &all, &mine, 1, RT_F64, RT_SUM)));
    *result = (struct rt_train_result){
        .loss = rt->program->training->elements ? all * private->control[RT_SHARE]
                                                : all / ((double)private->accumulate * rt->units->size),
        .gradient_norm = rt_gradient_norm(rt),
        .learning_rate = rt_learning_rate(rt),
        .loss_scale = rt_metric(rt, RT_LOSS_SCALE),
        .skipped = rt_metric(rt, RT_SKIPPED) > 0,
        .step = private->trained,
        .micro_batches = private->micro_batches,
    };
    return RT_OK;
}

int rt_train_batch(struct rt *rt, const void *const *inputs, void *const *outputs, struct rt_train_result *result) {
    struct rt_train_result unread;
    RT_NEEDS(rt, rt);
    RT_NEEDS(rt, inputs);
    struct training_call call = {.batch = inputs, .outputs = outputs, .losses = rt->internal->losses};
    RT_TRY(train(rt, REDUCE | UPDATE, &call));
    return rt_find_train_result(rt, rt->internal->losses, result ? result : &unread);
}

static int begin_exchange(struct rt *rt, void *context, int micro) {
    rt->internal->control[RT_TRAINING] = 0;
    rt->internal->control[RT_STEP] = (double)rt->internal->trained;
    return RT_OK;
}

int rt_exchange_averages(struct rt *rt) {
    static const struct rt_around around[PHASES] = {[PHASE_UPDATE] = {begin_exchange, NULL}};
    const struct rt_call call = {UPDATE, 1, around, NULL};
    RT_TRY(check_trains(rt));
    if (!rt->program->training->averages) return RT_OK;
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, rt_execute(rt, &call));
}

/* The caller's tensors of a forward or backward call. */
struct module_call {
    const void *const *in;
    void *const *out;
};

static int begin_module_forward(struct rt *rt, void *context, int micro) {
    const struct module_call *call = context;
    rt->internal->control[RT_REAL] = rt->internal->control[RT_SHARE] = 1;
    set_controls(rt, rt->internal->passes++);
    return rt_take_inputs(rt, 0, rt->program->ninputs, call->in);
}

static int end_module_forward(struct rt *rt, void *context, int micro) {
    const struct module_call *call = context;
    return rt_give_outputs(rt, 0, rt->program->noutputs, call->out);
}

static int begin_module_backward(struct rt *rt, void *context, int micro) {
    const struct module_call *call = context;
    rt->internal->reduced = false;
    rt->internal->computed = true;
    rt_backward_begins(rt, true, false);
    return rt_take_inputs(rt, rt->program->ninputs, rt->program->training->seeds, call->in);
}

static int end_module_backward(struct rt *rt, void *context, int micro) {
    const struct module_call *call = context;
    const struct rt_training *training = rt->program->training;
    return call->out ? rt_give_outputs(rt, rt->program->noutputs, training->gradients, call->out) : RT_OK;
}

/* Executes the segment of one phase, for one micro-batch, which is the first one in the table. */
static int run_module(struct rt *rt, enum phase phase, const void *const *in, void *const *out) {
    static const struct rt_around around[PHASES] = {[PHASE_FORWARD] = {begin_module_forward, end_module_forward},
                                                    [PHASE_BACKWARD] = {begin_module_backward, end_module_backward}};
    struct module_call tensors = {in, out};
    const struct rt_call call = {1u << phase, 1, around, &tensors};
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, rt_execute(rt, &call));
}

int rt_forward(struct rt *rt, const void *const *inputs, void *const *outputs) {
    RT_TRY(check_kind(rt, true));
    RT_NEEDS(rt, inputs);
    RT_NEEDS(rt, outputs);
    return run_module(rt, PHASE_FORWARD, inputs, outputs);
}

int rt_backward(struct rt *rt, const void *const *output_gradients, void *const *input_gradients) {
    RT_TRY(check_kind(rt, true));
    RT_NEEDS(rt, output_gradients);
    if (rt->internal->summed)
        return rt_fail(rt, RT_ERROR_USAGE,
                       "the gradients were already reduced: set them to zero before the next backward");
    return run_module(rt, PHASE_BACKWARD, output_gradients, input_gradients);
}

int rt_zero_grad(struct rt *rt) {
    RT_TRY(check_trains(rt));
    return zero_gradients(rt);
}

int rt_sync_shard_grad(struct rt *rt) {
    RT_TRY(check_gradients(rt));
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, run_later(rt, 0));
}

int rt_scale_grads(struct rt *rt, double factor) {
    RT_TRY(check_trains(rt));
    if (!isfinite(factor)) return refuse_number(rt, "the factor of gradients", factor);
    RT_TRY(check_gradients(rt));
    rt->internal->control[RT_RESCALE] *= factor;
    return RT_OK;
}

int rt_clip_gnorm(struct rt *rt, double most, double *norm) {
    RT_TRY(check_trains(rt));
    if (!(most >= 0)) return refuse_number(rt, "the norm that gradients are clipped to", most);
    RT_TRY(rt_sync_shard_grad(rt));
    rt->internal->control[RT_MOST] = most;
    if (norm) *norm = rt_metric(rt, RT_NORM) * rt->internal->control[RT_RESCALE];
    return RT_OK;
}

int rt_optimizer_step(struct rt *rt) {
    RT_TRY(check_trains(rt));
    if (!rt->internal->computed)
        return rt_fail(rt, RT_ERROR_USAGE,
                       "there are no gradients: none were computed since they were set to zero or the parameters "
                       "updated");
    RT_TRY(check_gradients(rt));
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, run_later(rt, UPDATE));
}
