/* Communication of ring attention (generated.h). The parts of k and v are broadcast one after the other, in the order
 * of the ranks, so every rank adds keys in the same order, and needs memory for one part. After Liu, Zaharia and
 * Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023, with broadcasts in place of
 * transfers between neighbours. */
#include "core/private.h"

#include <string.h>

static size_t part_elements(const struct rt_ring *ring, int64_t keys) {
    return (size_t)(ring->lines * keys * (ring->width[0] + ring->width[1]));
}

/* Copies k or v (`which`) of the rank's part between its place among the ranks' operands and the block of memory. */
enum direction { TO_BLOCK, FROM_BLOCK };
static int copy_operand(struct rt *rt, const struct rt_ring *ring, int which, unsigned char *block,
                        const struct rt_ring_operand *operand, enum direction direction) {
    const int64_t bytes = (int64_t)rt_dtype_bytes(ring->dtype), line = ring->width[which] * bytes;
    const int heads = ring->ndim - 3; /* the dimension that counts heads */
    const int64_t inner = ring->extent[heads];
    int64_t index[RT_MAX_NDIM] = {0};
    for (int64_t done = 0; done < ring->lines; done += inner) {
        int64_t place = 0;
        for (int d = 0; d < heads; d++) place += index[d] * operand->step[d] * bytes;
        unsigned char *const at = (unsigned char *)operand->at + place;
        const int64_t strided[3] = {0, operand->step[heads] * bytes, operand->step[heads + 1] * bytes},
                      dense[3] = {0, ring->part * line, line};
        struct rt_copies rows = {.bytes = (size_t)line, .count = {1, inner, ring->part}};
        rows.to = direction == TO_BLOCK ? block : at;
        rows.from = direction == TO_BLOCK ? at : block;
        memcpy(rows.to_stride, direction == TO_BLOCK ? dense : strided, sizeof dense);
        memcpy(rows.from_stride, direction == TO_BLOCK ? strided : dense, sizeof dense);
        if (line && ring->part) RT_TRY(rt->program->device->copy(rt, &rows));
        block += inner * ring->part * line;
        for (int d = heads - 1; d >= 0 && ++index[d] == ring->extent[d]; d--) index[d] = 0;
    }
    return RT_OK;
}

static int copy_part(struct rt *rt, const struct rt_ring *ring, void *block, const struct rt_ring_operand *operands,
                     enum direction direction) {
    const int64_t keys = ring->lines * ring->part * ring->width[0] * (int64_t)rt_dtype_bytes(ring->dtype);
    RT_TRY(copy_operand(rt, ring, 0, block, &operands[0], direction));
    return copy_operand(rt, ring, 1, (unsigned char *)block + keys, &operands[1], direction);
}

void rt_ring_open(struct rt_ring *ring) {
    ring->turns = ring->cut.ways * (int)rt_blocks(ring->cut.blocks);
    ring->lines = 1;
    for (int d = 0; d < ring->ndim - 2; d++) ring->lines *= ring->extent[d];
}

/* Where k or v (`which`) of the turn's keys lie: without gaps, those of a head `part` lines from those of the next. */
static void place_turn(struct rt_ring *ring, int which, int run) {
    const int64_t before = run * ring->keys * ring->width[which] + which * ring->lines * ring->part * ring->width[0];
    int64_t step = ring->part * ring->width[which];
    ring->at[which] = before * (int64_t)rt_dtype_bytes(ring->dtype);
    ring->step[which][ring->ndim - 1] = 1;
    ring->step[which][ring->ndim - 2] = ring->width[which];
    for (int d = ring->ndim - 3; d >= 0; d--) {
        ring->step[which][d] = step;
        step *= ring->extent[d];
    }
}

int rt_ring_turn(struct rt *rt, struct rt_ring *ring, int turn) {
    struct rt_comm *comm = rt->axis[ring->axis];
    const struct rt_placement part = {.cut = ring->cut, .extent = ring->cut.extent};
    const int runs = (int)rt_blocks(ring->cut.blocks), run = turn % runs;
    ring->rank = turn / runs;
    ring->last = run == runs - 1;
    ring->keys = rt_placement_run(&part, ring->rank, run, &ring->first);
    ring->part = runs * ring->keys;
    for (int which = 0; which < 2; which++) place_turn(ring, which, run);
    if (run) return RT_OK;
    if (ring->rank == comm->rank) RT_TRY(copy_part(rt, ring, ring->memory, ring->own, TO_BLOCK));
    return rt_end_collective(rt, comm,
                             comm->driver->broadcast(comm, ring->memory,
                                                     part_elements(ring, ring->part) * rt_dtype_bytes(ring->dtype),
                                                     ring->rank));
}

int rt_ring_give(struct rt *rt, const struct rt_ring *ring, void *gradients, const struct rt_ring_operand *to) {
    struct rt_comm *comm = rt->axis[ring->axis];
    size_t *counts = rt->internal->counts;
    for (int r = 0; r < comm->size; r++) counts[r] = r == ring->rank ? part_elements(ring, ring->part) : 0;
    RT_TRY(rt_end_collective(
        rt, comm, comm->driver->reduce_scatter(comm, gradients, gradients, counts, ring->dtype, RT_SUM, false)));
    return ring->rank == comm->rank ? copy_part(rt, ring, gradients, to, FROM_BLOCK) : RT_OK;
}
