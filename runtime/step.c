/* One step: complete inputs in, the class's program, complete outputs out. */
#include "private.h"

#include "base/checked.h"
#include "kernels/c/kernels.h"

#include <string.h>

static size_t port_bytes(const struct rt_port *port) {
    int64_t count = 0;
    rt_product(port->dims, port->ndim, &count);
    return (size_t)count * rt_dtype_bytes(port->dtype);
}

static unsigned char *place_address(const struct rt *rt, const struct rt_place *place) {
    if (place->arena == RT_CALLER) return (unsigned char *)(uintptr_t)rt->inputs[place->offset];
    return rt->arena[place->arena] + place->offset;
}

const void *rt_output(const struct rt *rt, int index) {
    const struct rt_place *place = &rt->class->outputs[index];
    return place->offset == RT_ABSENT ? NULL : place_address(rt, place);
}

/* The caller's inputs, with the controls behind them. */
static void take_inputs(struct rt *rt, const void *const *inputs) {
    const int n = rt->program->ninputs;
    for (int i = 0; i < n; i++) {
        const size_t bytes = port_bytes(&rt->program->inputs[i]);
        rt->private->given[i] = inputs[i];
        if (bytes > 0 && rt->class->inputs[i].offset != RT_ABSENT)
            memcpy(place_address(rt, &rt->class->inputs[i]), inputs[i], bytes);
    }
}

static int run_micro_batch(struct rt *rt, const void *const *inputs) {
    rt->inputs = rt->private->given;
    take_inputs(rt, inputs);
    return rt->class->infer_step(rt);
}

static int run_inference(struct rt *rt, const void *const *inputs, void *const *outputs) {
    const struct rt_program *program = rt->program;
    rt->private->control[RT_REAL] = 0;
    rt->private->control[RT_TRAINING] = 0;
    RT_TRY(run_micro_batch(rt, inputs));
    for (int i = 0; i < program->noutputs; i++) {
        const size_t bytes = port_bytes(&program->outputs[i]);
        const struct rt_place *place = &rt->class->outputs[i];
        if (!outputs[i] || bytes == 0 || place->offset == RT_ABSENT) continue;
        const void *at = place_address(rt, place);
        if (at != outputs[i]) memcpy(outputs[i], at, bytes);
    }
    return RT_OK;
}

void rt_at(struct rt *rt, int site) {
    rt->site = site;
    if (rt->comm->driver->report) rt->comm->driver->report(rt->comm, rt->step, site);
}

static int begin_step(struct rt *rt) {
    rt->step++;
    rt->private->error[0] = 0;
    rt_at(rt, -1);
    return rt_kernels_threads(rt->threads);
}

static int end_step(struct rt *rt, int threads, int status) {
    rt_kernels_threads(threads);
    if (!status) {
        rt_at(rt, -1);
        return RT_OK;
    }
    if (!rt->private->error[0]) rt_fail(rt, status, "step %lld failed", (long long)rt->step);
    rt->comm->driver->abort(rt->comm); /* the others must not wait for this rank */
    return status;
}

int rt_infer_step(struct rt *rt, const void *const *inputs, void *const *outputs) {
    const int threads = begin_step(rt);
    return end_step(rt, threads, run_inference(rt, inputs, outputs));
}

/* Training */

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
    return rt_fail_code(rt, RT_ERROR_MISMATCH, RT_CODE_FORMAT,
                        "the program was compiled for steps of one micro-batch: it has no memory for sums of gradients");
}

static void schedule_step(struct rt *rt) {
    struct rt_private *private = rt->private;
    double factor = rt_schedule_factor(&rt->program->training->schedule, ++private->trained);
    private->control[RT_STEP] = (double)private->trained;
    private->control[RT_FACTOR] = factor;
    private->control[RT_LR] = private->lr * factor;
}

static double number_at(const struct rt *rt, const struct rt_place *place, enum rt_dtype dtype) {
    double number = 0;
    if (place->offset != RT_ABSENT) rt_convert(&number, RT_F64, place_address(rt, place), dtype, 1);
    return number;
}

double rt_gradient_norm(const struct rt *rt) {
    return number_at(rt, &rt->class->outputs[rt->program->noutputs], RT_F64);
}

double rt_loss(const struct rt *rt) {
    return number_at(rt, &rt->class->outputs[0], rt->program->outputs[0].dtype);
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

static int run_training(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy,
                        double *losses) {
    schedule_step(rt);
    RT_TRY(count_real(rt, is_dummy));
    rt->private->control[RT_TRAINING] = 1;
    memset(rt->arena[RT_GRADIENTS], 0, rt->class->bytes[RT_GRADIENTS]);
    for (int j = 0; j < rt->private->accumulate; j++) {
        rt->private->control[RT_REAL] = !is_dummy || !is_dummy[j];
        rt->private->control[RT_MICRO] = (double)(j * rt->program->training->units + rt->unit);
        RT_TRY(run_micro_batch(rt, samples[j]));
        if (losses) losses[j] = rt_loss(rt);
    }
    rt->private->micro_batches += (int64_t)rt->private->accumulate * rt->program->training->units;
    return rt->class->update(rt);
}

int rt_train_step(struct rt *rt, const void *const *const *samples, const unsigned char *is_dummy, double *losses) {
    if (!rt->program->training)
        return rt_fail_code(rt, RT_ERROR_USAGE, RT_CODE_USAGE, "the program was not compiled to train");
    const int threads = begin_step(rt);
    return end_step(rt, threads, run_training(rt, samples, is_dummy, losses));
}
