/* Ring attention: flash attention in turns, each with the keys of one rank (kernels/c/kernels.h). */
#ifndef RT_CUDA_RING_CUH
#define RT_CUDA_RING_CUH

#include "flash_grad.cuh"

/* Begins with k and v of the rank. `scratch`: behind what the kernels of flash attention use. */
template <class T>
static inline rt_ring rt_ring_of(struct rt *rt, int axis, int64_t blocks, int64_t grain, rt_dtype dtype,
                                 const rt_attention &shape, const rt_strided<const T> &k, const rt_strided<const T> &v,
                                 int64_t scratch) {
    const int ndim = shape.ndim;
    rt_ring ring = {};
    ring.axis = axis;
    ring.cut = {shape.s, blocks, grain, rt->ways[axis]};
    ring.dtype = dtype;
    ring.ndim = ndim;
    for (int d = 0; d < ndim - 3; d++) ring.extent[d] = shape.q[d];
    ring.extent[ndim - 3] = shape.kv;
    ring.width[0] = shape.q[ndim - 1];
    ring.width[1] = shape.e;
    ring.own[0] = {(void *)k.at, k.step.at};
    ring.own[1] = {(void *)v.at, v.step.at};
    ring.memory = rt->arena[RT_SCRATCH] + scratch;
    rt_ring_open(&ring);
    return ring;
}

/* Bytes of the largest part, that of the first rank. */
static inline int64_t rt_ring_bytes(const rt_ring &ring) {
    return rt_ring_part_bytes(ring.lines, rt_cut_extent(&ring.cut, 0),
                              (ring.width[0] + ring.width[1]) * (int64_t)rt_dtype_bytes(ring.dtype));
}

/* k or v (`which`) of the current turn, or their gradients, in `memory`. */
template <class T> static inline rt_strided<T> rt_ring_in_turn(const rt_ring &ring, int which, unsigned char *memory) {
    rt_strided<T> x = {(T *)(memory + ring.at[which]), {}};
    for (int d = 0; d < ring.ndim; d++) x.step[d] = ring.step[which][d];
    return x;
}

static inline rt_attention rt_ring_call(const rt_ring &ring, const rt_attention &shape, int turn, void *sums) {
    rt_attention call = shape;
    call.s = ring.keys;
    call.offset -= ring.first;
    call.more_before = turn > 0;
    call.more_behind = turn + 1 < ring.turns;
    call.sums = (float *)sums;
    return call;
}

/* A mask from the turn's first key on. */
template <class T> static inline const T *rt_ring_mask(const rt_ring &ring, const rt_dims &extents, const T *mask) {
    return mask && extents[ring.ndim - 1] > 1 ? mask + ring.first : mask;
}

/* Calls `attend(key, value, keep, bias, call)` for each turn. */
template <class T, class F>
static inline int rt_ring_forward(struct rt *rt, rt_ring ring, const rt_attention &shape, const uint8_t *keep,
                                  const T *bias, F attend) {
    unsigned char *const sums = ring.memory + rt_ring_bytes(ring);
    for (int turn = 0; turn < ring.turns; turn++) {
        RT_TRY(rt_ring_turn(rt, &ring, turn));
        RT_TRY(attend(rt_ring_in_turn<const T>(ring, 0, ring.memory), rt_ring_in_turn<const T>(ring, 1, ring.memory),
                      rt_ring_mask(ring, shape.keep, keep), rt_ring_mask(ring, shape.bias, bias),
                      rt_ring_call(ring, shape, turn, sums)));
    }
    return RT_OK;
}

/* Calls `attend(dkey, dvalue, key, value, keep, bias, call)` for each turn. */
template <class T, class F>
static inline int rt_ring_backward(struct rt *rt, rt_ring ring, const rt_attention &shape, const rt_strided<T> &dk,
                                   const rt_strided<T> &dv, const uint8_t *keep, const T *bias, F attend) {
    const rt_ring_operand own[2] = {{dk.at, dk.step.at}, {dv.at, dv.step.at}};
    unsigned char *const gradients = ring.memory + rt_ring_bytes(ring), *const sums = gradients + rt_ring_bytes(ring);
    for (int turn = 0; turn < ring.turns; turn++) {
        RT_TRY(rt_ring_turn(rt, &ring, turn));
        RT_TRY(attend(rt_ring_in_turn<T>(ring, 0, gradients), rt_ring_in_turn<T>(ring, 1, gradients),
                      rt_ring_in_turn<const T>(ring, 0, ring.memory), rt_ring_in_turn<const T>(ring, 1, ring.memory),
                      rt_ring_mask(ring, shape.keep, keep), rt_ring_mask(ring, shape.bias, bias),
                      rt_ring_call(ring, shape, turn, sums)));
        if (ring.last) RT_TRY(rt_ring_give(rt, &ring, gradients, own));
    }
    return RT_OK;
}

/* f32 of each row, which the gradient's kernels keep in SCRATCH. */
static inline int64_t rt_ring_behind_deltas(const rt_attention &shape) {
    return rt_behind_scores(rt_count(shape.q, 0, shape.ndim - 1) * (int64_t)sizeof(float));
}

template <class E, int D, class T = typename E::type>
RT_FAMILY int rt_ring_attention(struct rt *rt, int axis, int64_t blocks, int64_t grain, const rt_strided<T> &y,
                                float *stats, const rt_strided<const T> &q, const rt_strided<const T> &k,
                                const rt_strided<const T> &v, const uint8_t *keep, const T *bias, const T *sink,
                                const rt_attention &shape) {
    const rt_ring ring = rt_ring_of<T>(rt, axis, blocks, grain, E::dtype, shape, k, v, 0);
    return rt_ring_forward<T>(
        rt, ring, shape, keep, bias, [&](auto key, auto value, auto keeps, auto biases, auto call) {
            return rt_flash_attention<E, D>(rt, y, stats, q, key, value, keeps, biases, sink, call);
        });
}

template <class E, int D, class T = typename E::type>
RT_FAMILY int rt_ring_attention_grad(struct rt *rt, int axis, int64_t blocks, int64_t grain, const rt_strided<T> &dq,
                                     const rt_strided<T> &dk, const rt_strided<T> &dv, const rt_strided<const T> &dy,
                                     const rt_strided<const T> &q, const rt_strided<const T> &k,
                                     const rt_strided<const T> &v, const rt_strided<const T> &y, const float *stats,
                                     const uint8_t *keep, const T *bias, const rt_attention &shape) {
    const rt_ring ring = rt_ring_of<T>(rt, axis, blocks, grain, E::dtype, shape, k, v, rt_ring_behind_deltas(shape));
    return rt_ring_backward<T>(rt, ring, shape, dk, dv, keep, bias,
                               [&](auto dkey, auto dvalue, auto key, auto value, auto keeps, auto biases, auto call) {
                                   return rt_flash_attention_grad<E, D>(rt, dq, dkey, dvalue, dy, q, key, value, y,
                                                                        stats, keeps, biases, call);
                               });
}

#define RT_CUDA_RING(T, s)                                                                                             \
    RT_NAME(rt_ring_attention_##s##_64, rt_ring_attention<rt_##s, 64>)                                                 \
    RT_NAME(rt_ring_attention_##s##_128, rt_ring_attention<rt_##s, 128>)                                               \
    RT_NAME(rt_ring_attention_grad_##s##_64, rt_ring_attention_grad<rt_##s, 64>)                                       \
    RT_NAME(rt_ring_attention_grad_##s##_128, rt_ring_attention_grad<rt_##s, 128>)
RT_CUDA_RING(float, f32)
RT_HALVES(RT_CUDA_RING)

#endif
