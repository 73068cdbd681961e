/* Training steps: the phases of a program, one after the other or as a program of the user's calls them. */
#include "private.h"

#include <math.h>
#include <string.h>

/* Numbers */

void rt_set_learning_rate(struct rt *rt, double lr) {
    rt->private->lr = lr;
}

double rt_learning_rate(const struct rt *rt) {
    return rt->private->control[RT_LR];
}

int rt_set_accumulate(struct rt *rt, int micro_batches) {
    const struct rt_training *training = rt->program->training;
    if (training && (micro_batches == training->accumulate || (training->accumulate > 1 && micro_batches > 0))) {
        rt->private->accumulate = micro_batches;
        return RT_OK;
    }
    return rt_fail_code(
        rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT,
        "the program was compiled for steps of one micro-batch: it has no memory for sums of gradients");
}

void rt_set_reduce_hooks(struct rt *rt, const struct rt_reduce_hooks *hooks) {
    rt->private->hooks = *hooks;
}

void rt_reset_gradients(struct rt *rt) {
    const double most = rt->program->training->clip_grad_norm;
    rt->private->reduced = false;
    rt->private->control[RT_RESCALE] = 1;
    rt->private->control[RT_MOST] = most > 0 ? most : INFINITY;
}

static double number_at(const struct rt *rt, int output, enum rt_dtype dtype) {
    const struct rt_place *place = &rt->class->outputs[output];
    double number = 0;
    if (place->offset != RT_ABSENT) rt_convert(&number, RT_F64, rt_output(rt, output), dtype, 1);
    return number;
}

double rt_loss(const struct rt *rt) {
    return number_at(rt, 0, rt->program->outputs[0].dtype);
}

double rt_gradient_norm(const struct rt *rt) {
    return rt->private->norm;
}

double rt_metric(const struct rt *rt, enum rt_metric metric) {
    const struct rt_training *training = rt->program->training;
    if ((int)metric >= training->metrics) return NAN;
    return number_at(rt, rt->program->noutputs + training->gradients + (int)metric, RT_F64);
}

/* Of the reduced gradients. */
static double norm_of(const struct rt *rt) {
    return rt_metric(rt, RT_NORM) * rt->private->control[RT_RESCALE];
}

/* Calls */

static int refuse(struct rt *rt, const char *what) {
    return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_USAGE, "%s", what);
}

/* RT_OK where the program trains, with a loss of its own or without as `module` says. */
static int check_kind(struct rt *rt, bool module) {
    const struct rt_training *training = rt->program->training;
    if (!training) return refuse(rt, "the program was not compiled to train");
    if ((training->seeds > 0) == module) return RT_OK;
    return refuse(rt, module ? "the program has a loss of its own: call its training step"
                             : "the program has no loss: call its forward and backward");
}

static int check_trains(struct rt *rt) {
    return rt->program->training ? RT_OK : refuse(rt, "the program was not compiled to train");
}

/* Phases */

/* Sums that have begun end, though nobody wants them. */
static int zero_gradients(struct rt *rt) {
    RT_TRY(rt_end_sums(rt));
    rt->private->overlaps = false;
    memset(rt->arena[RT_GRADIENTS], 0, rt->class->bytes[RT_GRADIENTS]);
    rt->private->passes = 0;
    rt_reset_gradients(rt);
    return RT_OK;
}

/* What the forward phase of the rank's next micro-batch in the step is told. */
static void begin_micro_batch(struct rt *rt) {
    struct rt_private *private = rt->private;
    private->control[RT_TRAINING] = 1;
    private->control[RT_STEP] = (double)(private->trained + 1);
    private->control[RT_MICRO] = (double)(private->passes++ * rt->program->training->units + rt->unit);
}

/* 1 / real micro-batches of all units; 0 if there are none. */
static int count_real(struct rt *rt, const unsigned char *is_dummy) {
    int64_t mine = 0, all = 0;
    for (int j = 0; j < rt->private->accumulate; j++) mine += !is_dummy || !is_dummy[j];
    int status = rt->units->driver->all_reduce(rt->units, &all, &mine, 1, RT_I64, RT_SUM);
    if (status) return rt_fail_comm(rt, rt->units, status);
    rt->private->control[RT_SHARE] = all ? 1.0 / (double)all : 0;
    return RT_OK;
}

static int run_gradients(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                         const struct rt_scale *scale, double *losses) {
    double *control = rt->private->control;
    RT_TRY(zero_gradients(rt));
    RT_TRY(count_real(rt, is_dummy));
    for (int j = 0; j < rt->private->accumulate; j++) {
        control[RT_REAL] = !is_dummy || !is_dummy[j];
        begin_micro_batch(rt);
        RT_TRY(rt_run_forward(rt, samples[j]));
        const double loss = control[RT_REAL] > 0 ? rt_loss(rt) : 0;
        control[RT_SEED] = scale ? scale->factor(scale->context, j, loss) : 1;
        rt_backward_begins(rt, j == rt->private->accumulate - 1, true);
        RT_TRY(rt->class->backward(rt));
        if (losses) losses[j] = loss;
    }
    rt->private->micro_batches += (int64_t)rt->private->accumulate * rt->program->training->units;
    return RT_OK;
}

static int run_reduce(struct rt *rt) {
    const struct rt_reduce_hooks *hooks = &rt->private->hooks;
    if (rt->private->reduced) return RT_OK;
    if (hooks->before) RT_TRY(hooks->before(hooks->context, rt));
    RT_TRY(rt->class->reduce(rt));
    rt->private->reduced = true;
    rt->private->overlaps = false;
    return hooks->after ? hooks->after(hooks->context, rt) : RT_OK;
}

static int run_update(struct rt *rt) {
    struct rt_private *private = rt->private;
    RT_TRY(run_reduce(rt));
    const double factor = rt_schedule_factor(&rt->program->training->schedule, ++private->trained);
    private->control[RT_STEP] = (double)private->trained;
    private->control[RT_FACTOR] = factor;
    private->control[RT_LR] = private->lr * factor;
    private->norm = norm_of(rt);
    RT_TRY(rt->class->update(rt));
    rt_reset_gradients(rt);
    return RT_OK;
}

/* Programs with a loss */

int rt_gradients(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                 const struct rt_scale *scale, double *losses) {
    RT_TRY(check_kind(rt, false));
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, run_gradients(rt, samples, is_dummy, scale, losses));
}

static int run_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                    const struct rt_scale *scale, double *losses) {
    RT_TRY(run_gradients(rt, samples, is_dummy, scale, losses));
    return run_update(rt);
}

int rt_train_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                  const struct rt_scale *scale, double *losses) {
    RT_TRY(check_kind(rt, false));
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, run_step(rt, samples, is_dummy, scale, losses));
}

/* Modules */

int rt_forward(struct rt *rt, const void *const *inputs, void *const *outputs) {
    RT_TRY(check_kind(rt, true));
    rt->private->control[RT_REAL] = rt->private->control[RT_SHARE] = 1;
    begin_micro_batch(rt);
    const int threads = rt_begin_step(rt);
    int status = rt_run_forward(rt, inputs);
    if (!status) rt_give_outputs(rt, 0, rt->program->noutputs, outputs);
    return rt_end_step(rt, threads, status);
}

int rt_backward(struct rt *rt, const void *const *output_gradients, void *const *input_gradients) {
    RT_TRY(check_kind(rt, true));
    const struct rt_training *training = rt->program->training;
    const int threads = rt_begin_step(rt);
    for (int i = 0; i < training->seeds; i++) rt->private->given[rt->program->ninputs + i] = output_gradients[i];
    rt->private->reduced = false;
    rt_backward_begins(rt, true, false);
    int status = rt->class->backward(rt);
    if (!status && input_gradients)
        rt_give_outputs(rt, rt->program->noutputs, training->gradients, input_gradients);
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
    rt->private->control[RT_RESCALE] *= factor;
    return RT_OK;
}

int rt_clip_gnorm(struct rt *rt, double most, double *norm) {
    RT_TRY(rt_sync_shard_grad(rt));
    rt->private->control[RT_MOST] = most;
    if (norm) *norm = norm_of(rt);
    return RT_OK;
}

int rt_optimizer_step(struct rt *rt) {
    RT_TRY(check_trains(rt));
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, run_update(rt));
}
