/* Weights of which training gives each scale unit a value of its own: running statistics. All units take unit 0's,
 * which checkpoints contain, before they evaluate; PyTorch's DistributedDataParallel broadcasts its buffers likewise.
 */
#include "state/load_part.h"

/* Unit 0 is the first along each replica axis. */
static int take_first(struct rt *rt, void *data, size_t bytes) {
    for (int axis = rt->program->mesh.naxes; axis < rt_layout_axes(rt); axis++) {
        struct rt_comm *comm = rt->axis[axis];
        RT_TRY(rt_end_collective(rt, comm, comm->size > 1 ? comm->driver->broadcast(comm, data, bytes, 0) : RT_OK));
    }
    return RT_OK;
}

int rt_take_first_unit(struct rt *rt) {
    const struct rt_program *program = rt->program;
    for (int w = 0; w < program->nweights && rt->internal->apart; w++) {
        const struct rt_weight *weight = &program->weights[w];
        const size_t place = rt->rank_class->weights[w];
        struct load_part part;
        int64_t elements;
        if (!weight->own || place == RT_ABSENT || !load_part_find(&part, rt, weight, &elements)) continue;
        RT_TRY(take_first(rt, rt->arena[RT_WEIGHTS] + place, (size_t)elements * rt_dtype_bytes(weight->dtype)));
    }
    rt->internal->apart = false;
    return RT_OK;
}
