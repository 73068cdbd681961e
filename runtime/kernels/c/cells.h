/* The arithmetic of one unit of a recurrent cell: ONNX LSTM-22, GRU-22, RNN-22 and their derivatives. `k` has the
 * activation functions and attributes. A "pre" is a sum that an activation function is applied to. CUDA calls the cells
 * as they are; C only the activation functions, since it computes the same formulas in loops over a row of units, one
 * loop for each activation function (recurrence.inc). */
#ifndef RT_KERNELS_C_CELLS_H
#define RT_KERNELS_C_CELLS_H

#include "../../base/shape/recurrence.h"
#include "math.h"

/* Inlined everywhere: where the function is known no choice between functions remains. */
#ifdef __CUDACC__
#define RT_IN_CELL RT_INLINE
#else
#define RT_IN_CELL static inline __attribute__((always_inline))
#endif

#define RT_DEFINE_CELLS(T, s)                                                                                          \
    RT_IN_CELL T rt_gate_##s(const struct rt_gate *gate, T x) {                                                        \
        const T alpha = (T)gate->alpha, beta = (T)gate->beta;                                                          \
        switch (gate->function) {                                                                                      \
        case RT_GATE_SIGMOID: return rt_sigmoid_##s(x);                                                                \
        case RT_GATE_TANH: return rt_tanh_##s(x);                                                                      \
        case RT_GATE_RELU: return rt_max_##s(x, 0);                                                                    \
        case RT_GATE_AFFINE: return alpha * x + beta;                                                                  \
        case RT_GATE_LEAKYRELU: return x < 0 ? alpha * x : x;                                                          \
        case RT_GATE_THRESHOLDEDRELU: return x > alpha ? x : 0;                                                        \
        case RT_GATE_SCALEDTANH: return alpha * rt_tanh_##s(beta * x);                                                 \
        case RT_GATE_HARDSIGMOID: return rt_max_##s(rt_min_##s(alpha * x + beta, 1), 0);                               \
        case RT_GATE_ELU: return x < 0 ? alpha * (rt_exp_##s(x) - 1) : x;                                              \
        case RT_GATE_SOFTSIGN: return x / (1 + rt_abs_##s(x));                                                         \
        case RT_GATE_SOFTPLUS: return rt_softplus_##s(x);                                                              \
        default: return x;                                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    /* The derivative at x, of which y is the value. */                                                                \
    RT_IN_CELL T rt_gate_slope_##s(const struct rt_gate *gate, T x, T y) {                                             \
        const T alpha = (T)gate->alpha, beta = (T)gate->beta;                                                          \
        switch (gate->function) {                                                                                      \
        case RT_GATE_SIGMOID: return y * (1 - y);                                                                      \
        case RT_GATE_TANH: return 1 - y * y;                                                                           \
        case RT_GATE_RELU: return x > 0 ? 1 : 0;                                                                       \
        case RT_GATE_AFFINE: return alpha;                                                                             \
        case RT_GATE_LEAKYRELU: return x < 0 ? alpha : 1;                                                              \
        case RT_GATE_THRESHOLDEDRELU: return x > alpha ? 1 : 0;                                                        \
        case RT_GATE_SCALEDTANH: return beta * (alpha - y * y / alpha);                                                \
        case RT_GATE_HARDSIGMOID: return y > 0 && y < 1 ? alpha : 0;                                                   \
        case RT_GATE_ELU: return x < 0 ? y + alpha : 1;                                                                \
        case RT_GATE_SOFTSIGN: return 1 / ((1 + rt_abs_##s(x)) * (1 + rt_abs_##s(x)));                                 \
        case RT_GATE_SOFTPLUS: return rt_sigmoid_##s(x);                                                               \
        default: return 1;                                                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    RT_IN_CELL T rt_clipped_##s(const struct rt_recurrence *k, T x) {                                                  \
        const T clip = (T)k->clip;                                                                                     \
        return clip > 0 ? rt_max_##s(-clip, rt_min_##s(clip, x)) : x;                                                  \
    }                                                                                                                  \
    RT_INLINE T rt_squash_##s(const struct rt_recurrence *k, const struct rt_gate *gate, T pre) {                      \
        return rt_gate_##s(gate, rt_clipped_##s(k, pre));                                                              \
    }                                                                                                                  \
    RT_INLINE T rt_squash_slope_##s(const struct rt_recurrence *k, const struct rt_gate *gate, T pre, T y) {           \
        if (k->clip > 0 && rt_abs_##s(pre) > (T)k->clip) return 0;                                                     \
        return rt_gate_slope_##s(gate, pre, y);                                                                        \
    }                                                                                                                  \
    /* pre: sums of i o f c; peephole: weights of i o f. The states before the step become those after it. */          \
    RT_INLINE void rt_lstm_##s(const struct rt_recurrence *k, const T *pre, const T *peephole, T *hidden, T *cell) {   \
        const T i = rt_squash_##s(k, &k->gate, pre[0] + peephole[0] * *cell);                                          \
        const T f = k->coupled ? 1 - i : rt_squash_##s(k, &k->gate, pre[2] + peephole[2] * *cell);                     \
        const T next = f * *cell + i * rt_squash_##s(k, &k->candidate, pre[3]);                                        \
        const T o = rt_squash_##s(k, &k->gate, pre[1] + peephole[1] * next);                                           \
        *cell = next;                                                                                                  \
        *hidden = o * rt_gate_##s(&k->output, next);                                                                   \
    }                                                                                                                  \
    /* before, after: cell states. *dc: of that after, then of that before. d: gradients of i o f c. */                \
    RT_INLINE void rt_lstm_grad_##s(const struct rt_recurrence *k, const T *pre, const T *peephole, T before, T after, \
                                    T dh, T *dc, T *d) {                                                               \
        const T pre_i = pre[0] + peephole[0] * before, pre_f = pre[2] + peephole[2] * before;                          \
        const T pre_o = pre[1] + peephole[1] * after, i = rt_squash_##s(k, &k->gate, pre_i);                           \
        const T f = k->coupled ? 1 - i : rt_squash_##s(k, &k->gate, pre_f);                                            \
        const T c = rt_squash_##s(k, &k->candidate, pre[3]), o = rt_squash_##s(k, &k->gate, pre_o);                    \
        const T out = rt_gate_##s(&k->output, after);                                                                  \
        d[1] = dh * out * rt_squash_slope_##s(k, &k->gate, pre_o, o);                                                  \
        const T cell = *dc + dh * o * rt_gate_slope_##s(&k->output, after, out) + d[1] * peephole[1];                  \
        const T of_i = cell * (k->coupled ? c - before : c);                                                           \
        d[0] = of_i * rt_squash_slope_##s(k, &k->gate, pre_i, i);                                                      \
        d[2] = k->coupled ? 0 : cell * before * rt_squash_slope_##s(k, &k->gate, pre_f, f);                            \
        d[3] = cell * i * rt_squash_slope_##s(k, &k->candidate, pre[3], c);                                            \
        *dc = cell * f + d[0] * peephole[0] + d[2] * peephole[2];                                                      \
    }                                                                                                                  \
    /* The hidden state after a step of a GRU from the sums z and h and the state before. */                           \
    RT_INLINE T rt_gru_##s(const struct rt_recurrence *k, T pre_z, T pre_h, T before) {                                \
        const T z = rt_squash_##s(k, &k->gate, pre_z);                                                                 \
        return (1 - z) * rt_squash_##s(k, &k->candidate, pre_h) + z * before;                                          \
    }                                                                                                                  \
    /* The gradients of these sums; returns the part of the gradient of the state before that passes by both. */       \
    RT_INLINE T rt_gru_grad_##s(const struct rt_recurrence *k, T pre_z, T pre_h, T before, T dh, T *dz,                \
                                T *dcandidate) {                                                                       \
        const T z = rt_squash_##s(k, &k->gate, pre_z), c = rt_squash_##s(k, &k->candidate, pre_h);                     \
        *dz = dh * (before - c) * rt_squash_slope_##s(k, &k->gate, pre_z, z);                                          \
        *dcandidate = dh * (1 - z) * rt_squash_slope_##s(k, &k->candidate, pre_h, c);                                  \
        return dh * z;                                                                                                 \
    }

RT_FLOATS(RT_DEFINE_CELLS)

#endif
