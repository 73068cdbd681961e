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

/* The caller's inputs; the controls are behind them. */
static void take_inputs(struct rt *rt, const void *const *inputs) {
    const int n = rt->program->ninputs;
    for (int i = 0; i < n; i++) {
        const size_t bytes = port_bytes(&rt->program->inputs[i]);
        rt->private->given[i] = inputs[i];
        if (bytes > 0 && rt->class->inputs[i].offset != RT_ABSENT)
            memcpy(place_address(rt, &rt->class->inputs[i]), inputs[i], bytes);
    }
}

int rt_run_forward(struct rt *rt, const void *const *inputs) {
    rt->inputs = rt->private->given;
    take_inputs(rt, inputs);
    return rt->class->infer_step(rt);
}

void rt_give_outputs(const struct rt *rt, int first, int n, void *const *outputs) {
    for (int i = 0; i < n; i++) {
        const size_t bytes = port_bytes(&rt->program->outputs[first + i]);
        const struct rt_place *place = &rt->class->outputs[first + i];
        if (!outputs[i] || bytes == 0 || place->offset == RT_ABSENT) continue;
        const void *at = place_address(rt, place);
        if (at != outputs[i]) memcpy(outputs[i], at, bytes);
    }
}

static int run_inference(struct rt *rt, const void *const *inputs, void *const *outputs) {
    rt->private->control[RT_REAL] = rt->private->control[RT_TRAINING] = 0; /* nothing that is kept changes */
    RT_TRY(rt_run_forward(rt, inputs));
    rt_give_outputs(rt, 0, rt->program->noutputs, outputs);
    return RT_OK;
}

void rt_at(struct rt *rt, int site) {
    rt->site = site;
    if (rt->comm->driver->report) rt->comm->driver->report(rt->comm, rt->step, site);
}

int rt_begin_step(struct rt *rt) {
    rt->step++;
    rt->private->error[0] = 0;
    rt_at(rt, -1);
    return rt_kernels_threads(rt->threads);
}

int rt_end_step(struct rt *rt, int threads, int status) {
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
    const int threads = rt_begin_step(rt);
    return rt_end_step(rt, threads, run_inference(rt, inputs, outputs));
}
