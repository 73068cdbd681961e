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

static int run_class(struct rt *rt, const void *const *inputs, void *const *outputs) {
    const struct rt_program *program = rt->program;
    rt->inputs = inputs;
    for (int i = 0; i < program->ninputs; i++) {
        const size_t bytes = port_bytes(&program->inputs[i]);
        if (bytes > 0 && rt->class->inputs[i].offset != RT_ABSENT)
            memcpy(place_address(rt, &rt->class->inputs[i]), inputs[i], bytes);
    }
    RT_TRY(rt->class->infer_step(rt));
    for (int i = 0; i < program->noutputs; i++) {
        const size_t bytes = port_bytes(&program->outputs[i]);
        const struct rt_place *place = &rt->class->outputs[i];
        if (!outputs[i] || bytes == 0 || place->offset == RT_ABSENT) continue;
        const void *at = place_address(rt, place);
        if (at != outputs[i]) memcpy(outputs[i], at, bytes);
    }
    return RT_OK;
}

int rt_infer_step(struct rt *rt, const void *const *inputs, void *const *outputs) {
    const int threads = rt_kernels_threads(rt->threads);
    rt->step++;
    rt->site = -1;
    rt->private->error[0] = 0;
    if (rt->comm->driver->report) rt->comm->driver->report(rt->comm, rt->step, rt->site);
    int status = run_class(rt, inputs, outputs);
    rt_kernels_threads(threads);
    if (!status) return RT_OK;
    if (!rt->private->error[0]) rt_fail(rt, status, "step %lld failed", (long long)rt->step);
    rt->comm->driver->abort(rt->comm); /* the others must not wait for this rank */
    return status;
}
