/* Training steps: executes the phases forward, backward, reduce and update, as one step or under the caller's
 * control. */
#include "core/private.h"

#include <math.h>

/* Numbers */

void rt_set_learning_rate(struct rt *rt, double lr) {
    rt->internal->lr = lr;
}

double rt_learning_rate(const struct rt *rt) {
    return rt->internal->control[RT_LR];
}

int rt_set_accumulate(struct rt *rt, int micro_batches) {
    const struct rt_training *training = rt->program->training;
    if (training && (micro_batches == training->accumulate || (training->accumulate > 1 && micro_batches > 0))) {
        rt->internal->accumulate = micro_batches;
        return RT_OK;
    }
    return rt_fail_code(
        rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT,
        "the program was compiled for steps of one micro-batch: it has no memory to accumulate gradients");
}

void rt_set_reduce_hooks(struct rt *rt, const struct rt_reduce_hooks *hooks) {
    rt->internal->hooks = *hooks;
}

void rt_reset_gradients(struct rt *rt) {
    const double most = rt->program->training->clip_grad_norm;
    rt->internal->reduced = false;
    rt->internal->control[RT_RESCALE] = 1;
    rt->internal->control[RT_MOST] = most > 0 ? most : INFINITY;
}

/* Begins to copy a scalar output from the device: `to` has its bytes once the device has finished. */
static int fetch(struct rt *rt, double *to, int output, enum rt_dtype dtype) {
    *to = 0;
    if (rt->rank_class->outputs[output].offset == RT_ABSENT) return RT_OK;
    return rt->program->device->get(rt, to, rt_output(rt, output), rt_dtype_bytes(dtype));
}

/* Converts the bytes that fetch copied to a number. */
static double fetched(double bytes, enum rt_dtype dtype) {
    double number;
    rt_convert(&number, RT_F64, &bytes, dtype, 1);
    return number;
}

/* NaN if the device failed; the next call reports that. */
static double number_at(struct rt *rt, int output, enum rt_dtype dtype) {
    double bytes;
    if (fetch(rt, &bytes, output, dtype) || rt->program->device->finish(rt)) return NAN;
    return fetched(bytes, dtype);
}

double rt_loss(struct rt *rt) {
    return number_at(rt, 0, rt->program->outputs[0].dtype);
}

double rt_gradient_norm(const struct rt *rt) {
    return rt->internal->norm * rt->internal->norm_scale;
}

static int output_of_metric(const struct rt *rt, enum rt_metric metric) {
    return rt->program->noutputs + rt->program->training->gradients + (int)metric;
}

double rt_metric(struct rt *rt, enum rt_metric metric) {
    if ((int)metric >= rt->program->training->metrics) return NAN;
    return number_at(rt, output_of_metric(rt, metric), RT_F64);
}

/* Calls */

static int check_trains(struct rt *rt) {
    if (rt->program->training) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_USAGE, "the program was not compiled to train");
}

/* Also checks that the program has no loss of its own if `module`, else that it has one. */
static int check_kind(struct rt *rt, bool module) {
    RT_TRY(check_trains(rt));
    if ((rt->program->training->seeds > 0) == module) return RT_OK;
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_USAGE,
                        module ? "the program computes the loss itself: call its training step"
                               : "the program does not compute the loss: call its forward and backward functions");
}

/* Phases */

/* Also waits for sums that have begun, whose results are discarded. */
static int zero_gradients(struct rt *rt) {
    RT_TRY(rt_end_sums(rt));
    rt->internal->overlaps = rt->internal->known = false;
    rt->internal->passes = 0;
    rt->internal->summed = false;
    rt_reset_gradients(rt);
    return rt->program->device->zero(rt, rt->arena[RT_GRADIENTS], rt->rank_class->bytes[RT_GRADIENTS]);
}

/* Sets the controls of this scale unit's next micro-batch. */
static void begin_micro_batch(struct rt *rt) {
    struct rt_private *private = rt->internal;
    private->control[RT_TRAINING] = 1;
    private->control[RT_STEP] = (double)(private->trained + 1);
    private->control[RT_MICRO] = (double)(private->passes++ * rt->units->size + rt->unit);
}

/* Sets RT_SHARE to 1 / real micro-batches of all scale units; to 0 if there are none. */
static int count_real(struct rt *rt, const unsigned char *is_dummy) {
    int64_t mine = 0, all = 0;
    for (int j = 0; j < rt->internal->accumulate; j++) mine += !is_dummy || !is_dummy[j];
    int status = rt->units->driver->all_reduce(rt->units, &all, &mine, 1, RT_I64, RT_SUM);
    if (status) return rt_fail_comm(rt, rt->units, status);
    rt->internal->control[RT_SHARE] = all ? 1.0 / (double)all : 0;
    return RT_OK;
}

/* Losses are fetched asynchronously: losses[j] has the bytes of a loss, not a number, until read_losses. */
static int run_gradients(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                         const struct rt_scale *scale, double *losses) {
    double *control = rt->internal->control;
    RT_TRY(zero_gradients(rt));
    RT_TRY(count_real(rt, is_dummy));
    for (int j = 0; j < rt->internal->accumulate; j++) {
        control[RT_REAL] = !is_dummy || !is_dummy[j];
        begin_micro_batch(rt);
        RT_TRY(rt_run_forward(rt, samples[j]));
        if (losses) RT_TRY(fetch(rt, &losses[j], 0, rt->program->outputs[0].dtype));
        control[RT_SEED] = scale ? scale->factor(scale->context, j, control[RT_REAL] > 0 ? rt_loss(rt) : 0) : 1;
        rt_backward_begins(rt, j == rt->internal->accumulate - 1, !rt->internal->watch);
        RT_TRY(rt_run_phase(rt, rt->rank_class->backward));
    }
    rt->internal->micro_batches += (int64_t)rt->internal->accumulate * rt->units->size;
    return RT_OK;
}

static int run_reduce(struct rt *rt) {
    const struct rt_reduce_hooks *hooks = &rt->internal->hooks;
    if (rt->internal->reduced) return RT_OK;
    if (hooks->before) RT_TRY(hooks->before(hooks->context, rt));
    RT_TRY(rt_run_phase(rt, rt->rank_class->reduce));
    rt->internal->reduced = rt->internal->summed = true;
    rt->internal->overlaps = false;
    return hooks->after ? hooks->after(hooks->context, rt) : RT_OK;
}

static int run_update(struct rt *rt) {
    struct rt_private *private = rt->internal;
    RT_TRY(run_reduce(rt));
    const double factor = rt_lr_factor(&rt->program->training->schedule, ++private->trained);
    private->control[RT_STEP] = (double)private->trained;
    private->control[RT_FACTOR] = factor;
    private->control[RT_LR] = private->lr * factor;
    private->norm_scale = private->control[RT_RESCALE];
    RT_TRY(fetch(rt, &private->norm, output_of_metric(rt, RT_NORM), RT_F64));
    RT_TRY(rt_run_phase(rt, rt->rank_class->update));
    rt_reset_gradients(rt);
    return RT_OK;
}

/* Programs with a loss */

/* Converts the fetched losses to numbers, once the device has finished. */
static void read_losses(const struct rt *rt, const unsigned char *is_dummy, double *losses) {
    for (int j = 0; j < rt->internal->accumulate && losses; j++)
        losses[j] = is_dummy && is_dummy[j] ? 0 : fetched(losses[j], rt->program->outputs[0].dtype);
}

int rt_gradients(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                 const struct rt_scale *scale, double *losses) {
    RT_TRY(check_kind(rt, false));
    const int threads = rt_begin_step(rt);
    RT_TRY(rt_end_step(rt, threads, run_gradients(rt, samples, is_dummy, scale, losses)));
    read_losses(rt, is_dummy, losses);
    return RT_OK;
}

/* Repeats the step's gradients from zero sums, without counting its micro-batches twice. */
static int repeat_gradients(struct rt *rt, const struct rt_attempt *attempt) {
    const int64_t micro_batches = rt->internal->micro_batches;
    RT_TRY(run_gradients(rt, attempt->samples, attempt->is_dummy, attempt->scale, NULL));
    rt->internal->micro_batches = micro_batches;
    return run_reduce(rt);
}

/* All ranks decide alike, because repeating gradients is collective. */
static int inspect(struct rt *rt, const struct rt_attempt *attempt, const double *losses) {
    struct rt_private *private = rt->internal;
    RT_TRY(rt->program->device->finish(rt)); /* norm and losses have arrived */
    const double norm = rt_metric(rt, RT_NORM);
    int32_t mine = !isfinite(norm), any = 0;
    for (int j = 0; j < private->accumulate && losses; j++)
        mine = mine || !isfinite(fetched(losses[j], rt->program->outputs[0].dtype));
    int status = rt->comm->driver->all_reduce(rt->comm, &any, &mine, 1, RT_I32, RT_MAX);
    if (status) return rt_fail_comm(rt, rt->comm, status);
    return any ? private->inspect(private->inspector, rt, attempt) : RT_OK;
}

static int run_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                    const struct rt_scale *scale, double *losses) {
    const struct rt_attempt attempt = {samples, is_dummy, scale, repeat_gradients};
    RT_TRY(run_gradients(rt, samples, is_dummy, scale, losses));
    if (rt->internal->inspect) {
        RT_TRY(run_reduce(rt));
        RT_TRY(inspect(rt, &attempt, losses));
    }
    return run_update(rt);
}

int rt_train_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                  const struct rt_scale *scale, double *losses) {
    RT_TRY(check_kind(rt, false));
    const int threads = rt_begin_step(rt);
    RT_TRY(rt_end_step(rt, threads, run_step(rt, samples, is_dummy, scale, losses)));
    read_losses(rt, is_dummy, losses);
    return RT_OK;
}

/* Modules */

int rt_forward(struct rt *rt, const void *const *inputs, void *const *outputs) {
    RT_TRY(check_kind(rt, true));
    rt->internal->control[RT_REAL] = rt->internal->control[RT_SHARE] = 1;
    begin_micro_batch(rt);
    const int threads = rt_begin_step(rt);
    int status = rt_run_forward(rt, inputs);
    if (!status) status = rt_give_outputs(rt, 0, rt->program->noutputs, outputs);
    return rt_end_step(rt, threads, status);
}

int rt_backward(struct rt *rt, const void *const *output_gradients, void *const *input_gradients) {
    RT_TRY(check_kind(rt, true));
    const struct rt_training *training = rt->program->training;
    if (rt->internal->summed)
        return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_USAGE,
                            "the gradients were already reduced: set them to zero before the next backward");
    const int threads = rt_begin_step(rt);
    int status = RT_OK;
    for (int i = 0; i < training->seeds && !status; i++)
        status = rt_take_input(rt, rt->program->ninputs + i, output_gradients[i]);
    rt->internal->reduced = false;
    rt_backward_begins(rt, true, false);
    if (!status) status = rt_run_phase(rt, rt->rank_class->backward);
    if (!status && input_gradients)
        status = rt_give_outputs(rt, rt->program->noutputs, training->gradients, input_gradients);
    return rt_end_step(rt, threads, status);
}

/* Gradients */

int rt_zero_grad(struct rt *rt) {
    RT_TRY(check_trains(rt));
    return zero_gradients(rt);
}

int rt_sync_shard_grad(struct rt *rt) {
    RT_TRY(check_trains(rt));
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, run_reduce(rt));
}

int rt_scale_grads(struct rt *rt, double factor) {
    RT_TRY(check_trains(rt));
    rt->internal->control[RT_RESCALE] *= factor;
    return RT_OK;
}

int rt_clip_gnorm(struct rt *rt, double most, double *norm) {
    RT_TRY(rt_sync_shard_grad(rt));
    rt->internal->control[RT_MOST] = most;
    if (norm) *norm = rt_metric(rt, RT_NORM) * rt->internal->control[RT_RESCALE];
    return RT_OK;
}

int rt_optimizer_step(struct rt *rt) {
    RT_TRY(check_trains(rt));
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, run_update(rt));
}
