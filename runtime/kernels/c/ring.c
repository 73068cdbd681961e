/* Ring attention: flash attention in turns, each with the keys of one rank. */
#include "kernels.h"

#include "../../base/scratch.h"
#include "../../generated.h"

static struct rt_ring ring_of(struct rt *rt, int axis, int64_t blocks, int64_t grain, enum rt_dtype dtype,
                              const struct rt_attention *shape, const struct rt_strided *k,
                              const struct rt_strided *v) {
    const int ndim = shape->ndim;
    struct rt_ring ring = {.cut = {shape->s, blocks, grain, rt->ways[axis]},
                           .axis = axis,
                           .dtype = dtype,
                           .ndim = ndim,
                           .width = {shape->q[ndim - 1], shape->e},
                           .memory = rt->arena[RT_SCRATCH],
                           .own = {{k->at, k->step}, {v->at, v->step}}};
    for (int d = 0; d < ndim - 3; d++) ring.extent[d] = shape->q[d];
    ring.extent[ndim - 3] = shape->kv;
    return ring;
}

/* The scratch behind the largest part: that of the first rank. */
static unsigned char *behind_part(const struct rt_ring *ring) {
    const int64_t width = (ring->width[0] + ring->width[1]) * (int64_t)rt_dtype_bytes(ring->dtype);
    return ring->memory + rt_ring_part_bytes(ring->lines, rt_cut_extent(&ring->cut, 0), width);
}

/* k or v (`which`) of the current turn, or their gradients, in `memory`. */
static struct rt_strided in_turn(const struct rt_ring *ring, int which, unsigned char *memory) {
    return (struct rt_strided){memory + ring->at[which], ring->step[which]};
}

/* The call of the current turn. */
static struct rt_attention call_of(const struct rt_ring *ring, const struct rt_attention *shape, int turn) {
    struct rt_attention call = *shape;
    call.s = ring->keys;
    call.offset -= ring->first;
    call.more_before = turn > 0;
    call.more_behind = turn + 1 < ring->turns;
    return call;
}

/* Elements of a mask before key `key`. */
static int64_t mask_at(const int64_t *extents, int ndim, int64_t key) {
    return extents && extents[ndim - 1] > 1 ? key : 0;
}

#define DEFINE_RING(T, suffix, id)                                                                                     \
    int rt_ring_attention_##suffix(struct rt *rt, int axis, int64_t blocks, int64_t grain, const struct rt_strided *y, \
                                   float *stats, const struct rt_strided *q, const struct rt_strided *k,               \
                                   const struct rt_strided *v, const uint8_t *keep, const T *bias, const T *sink,      \
                                   const struct rt_attention *shape) {                                                 \
        struct rt_ring ring = ring_of(rt, axis, blocks, grain, id, shape, k, v);                                       \
        rt_ring_open(&ring);                                                                                           \
        for (int turn = 0; turn < ring.turns; turn++) {                                                                \
            RT_TRY(rt_ring_turn(rt, &ring, turn));                                                                     \
            const struct rt_strided key = in_turn(&ring, 0, ring.memory), value = in_turn(&ring, 1, ring.memory);      \
            struct rt_attention call = call_of(&ring, shape, turn);                                                    \
            call.sums = (float *)behind_part(&ring);                                                                   \
            RT_TRY(rt_flash_attention_##suffix(                                                                        \
                rt, y, stats, q, &key, &value, keep ? keep + mask_at(shape->keep, ring.ndim, ring.first) : NULL,       \
                bias ? bias + mask_at(shape->bias, ring.ndim, ring.first) : NULL, sink, &call));                       \
        }                                                                                                              \
        return RT_OK;                                                                                                  \
    }

DEFINE_RING(float, f32, RT_F32)
DEFINE_RING(uint16_t, bf16, RT_BF16)
DEFINE_RING(uint16_t, fp16, RT_F16)

int rt_ring_attention_grad_f32(struct rt *rt, int axis, int64_t blocks, int64_t grain, const struct rt_strided *dq,
                               const struct rt_strided *dk, const struct rt_strided *dv, const struct rt_strided *dy,
                               const struct rt_strided *q, const struct rt_strided *k, const struct rt_strided *v,
                               const struct rt_strided *y, const float *stats, const uint8_t *keep, const float *bias,
                               const struct rt_attention *shape) {
    const struct rt_ring_operand own[2] = {{dk->at, dk->step}, {dv->at, dv->step}};
    struct rt_ring ring = ring_of(rt, axis, blocks, grain, RT_F32, shape, k, v);
    rt_ring_open(&ring);
    unsigned char *const gradients = behind_part(&ring);
    for (int turn = 0; turn < ring.turns; turn++) {
        RT_TRY(rt_ring_turn(rt, &ring, turn));
        const struct rt_strided key = in_turn(&ring, 0, ring.memory), value = in_turn(&ring, 1, ring.memory);
        const struct rt_strided dkey = in_turn(&ring, 0, gradients), dvalue = in_turn(&ring, 1, gradients);
        const struct rt_attention call = call_of(&ring, shape, turn);
        RT_TRY(rt_flash_attention_grad_f32(rt, dq, &dkey, &dvalue, dy, q, &key, &value, y, stats,
                                           keep ? keep + mask_at(shape->keep, ring.ndim, ring.first) : NULL,
                                           bias ? bias + mask_at(shape->bias, ring.ndim, ring.first) : NULL, &call));
        if (ring.last) RT_TRY(rt_ring_give(rt, &ring, gradients, own));
    }
    return RT_OK;
}
