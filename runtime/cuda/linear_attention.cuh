/* Linear attention; the manual is kernels/c/linear_attention.h. A thread per column of a state, which runs all steps:
 * columns do not depend on each other. The gradient: a block per head, whose threads share the columns, then the
 * rows. */
#ifndef RT_CUDA_LINEAR_ATTENTION_CUH
#define RT_CUDA_LINEAR_ATTENTION_CUH

#include "../base/shape/linear_attention.h"
#include "launch.cuh"

template <class T>
RT_FAMILY int rt_linear_attention_of(struct rt *rt, T *y, T *state, const T *q, const T *key, const T *value,
                                     const T *past, const T *decay, const T *rate, const rt_linear_attention &s) {
    return rt_points(rt, s.b * s.h * s.v, [=] __device__(int64_t p) {
        int64_t sequence = p;
        const int64_t j = rt_take(&sequence, s.v), head = rt_take(&sequence, s.h);
        const int64_t first = (sequence * s.h + head) * s.k * s.v + j;
        T *column = state + first; /* its elements are s.v apart */
        for (int64_t k = 0; k < s.k; k++) column[k * s.v] = past[first + k * s.v];
        for (int64_t t = 0; t < s.t; t++) {
            const int64_t at = (sequence * s.t + t) * s.h + head;
            const T *x = key + at * s.k;
            T u = 0, fade = decay ? exp(decay[at * s.decays]) : (T)1;
            for (int64_t k = 0; k < s.k && (decay || rate); k++) {
                if (decay && s.decays > 1) fade = exp(decay[at * s.decays + k]);
                const T element = column[k * s.v] * fade;
                column[k * s.v] = element;
                u += element * x[k];
            }
            u = rate ? rate[at] * (value[at * s.v + j] - u) : value[at * s.v + j];
            for (int64_t k = 0; k < s.k; k++) column[k * s.v] += x[k] * u;
            for (int64_t i = at * s.g; i < (at + 1) * s.g; i++) {
                T sum = 0;
                for (int64_t k = 0; k < s.k; k++) sum += q[i * s.k + k] * column[k * s.v];
                y[i * s.v + j] = (T)s.scale * sum;
            }
        }
    });
}

/* The operands of the gradient and its results, of all heads. */
template <class T> struct rt_linear_grad {
    const T *dy, *q, *key, *value, *past, *decay, *rate;
    T *dq, *dkey, *dvalue, *dpast, *ddecay, *drate;
    rt_linear_attention shape;

    __device__ T fade(int64_t at, int64_t k) const {
        return decay ? exp(decay[at * shape.decays + (shape.decays > 1 ? k : 0)]) : (T)1;
    }
    /* Column j of the state after a step. */
    __device__ void advance(T *after, const T *before, int64_t at, int64_t j) const {
        T u = value[at * shape.v + j];
        for (int64_t k = 0; k < shape.k && rate; k++)
            u -= fade(at, k) * before[k * shape.v + j] * key[at * shape.k + k];
        if (rate) u *= rate[at];
        for (int64_t k = 0; k < shape.k; k++)
            after[k * shape.v + j] = fade(at, k) * before[k * shape.v + j] + key[at * shape.k + k] * u;
    }
    /* Column j of a step: what it adds for its key (u), the gradient of that (du), and value - S^T key (rest). */
    __device__ void column(T *next, const T *before, T *u, T *du, T *rest, int64_t at, int64_t j) const {
        T back = 0, left = value[at * shape.v + j];
        for (int64_t k = 0; k < shape.k; k++) {
            T gradient = next[k * shape.v + j];
            for (int64_t i = at * shape.g; i < (at + 1) * shape.g; i++)
                gradient += (T)shape.scale * q[i * shape.k + k] * dy[i * shape.v + j];
            next[k * shape.v + j] = gradient;
            back += gradient * key[at * shape.k + k];
            if (rate) left -= fade(at, k) * before[k * shape.v + j] * key[at * shape.k + k];
        }
        du[j] = back;
        rest[j] = left;
        u[j] = rate ? rate[at] * left : left;
        dvalue[at * shape.v + j] = rate ? rate[at] * back : back;
    }
    /* Row k of the gradients of q, key and decay, and of the state before the step. Returns that of the decay. */
    __device__ T row(T *next, const T *before, const T *after, const T *u, const T *du, int64_t at, int64_t k) const {
        const T factor = fade(at, k), back = rate ? rate[at] : (T)0, x = key[at * shape.k + k];
        T of_key = 0, of_decay = 0;
        for (int64_t i = at * shape.g; i < (at + 1) * shape.g; i++) {
            T sum = 0;
            for (int64_t j = 0; j < shape.v; j++) sum += after[k * shape.v + j] * dy[i * shape.v + j];
            dq[i * shape.k + k] = (T)shape.scale * sum;
        }
        for (int64_t j = 0; j < shape.v; j++) {
            const T faded = factor * before[k * shape.v + j], gradient = next[k * shape.v + j];
            const T earlier = gradient - back * x * du[j];
            of_key += gradient * u[j] - back * faded * du[j];
            of_decay += earlier * faded;
            next[k * shape.v + j] = factor * earlier;
        }
        dkey[at * shape.k + k] = of_key;
        return of_decay;
    }
    /* All steps of a head, backwards in runs; all threads of a block. */
    __device__ void head(int64_t head, T *states) const {
        const int64_t size = shape.k * shape.v, run = rt_linear_attention_run(shape.t);
        const int64_t runs = (shape.t + run - 1) / run, first_step = head / shape.h * shape.t;
        T *within = states + runs * size, *u = within + run * size, *du = u + shape.v, *rest = du + shape.v;
        T *next = dpast + head * size;
        RT_EACH(j, shape.v) {
            for (int64_t k = 0; k < shape.k; k++) {
                states[k * shape.v + j] = past[head * size + k * shape.v + j];
                next[k * shape.v + j] = 0;
            }
            for (int64_t t = 0; t < (runs - 1) * run; t++)
                advance(t % run + 1 == run ? states + (t / run + 1) * size : within + t % run * size,
                        t % run ? within + (t % run - 1) * size : states + t / run * size,
                        (first_step + t) * shape.h + head % shape.h, j);
        }
        for (int64_t i = runs - 1; i >= 0; i--) {
            const int64_t first = i * run, end = first + run < shape.t ? first + run : shape.t;
            RT_EACH(j, shape.v) {
                for (int64_t t = first; t < end; t++)
                    advance(within + (t - first) * size,
                            t > first ? within + (t - first - 1) * size : states + i * size,
                            (first_step + t) * shape.h + head % shape.h, j);
            }
            for (int64_t t = end - 1; t >= first; t--) {
                const int64_t at = (first_step + t) * shape.h + head % shape.h;
                const T *before = t > first ? within + (t - first - 1) * size : states + i * size;
                T of_decay = 0, of_rate = 0;
                __syncthreads();
                RT_EACH(j, shape.v) {
                    column(next, before, u, du, rest, at, j);
                    of_rate += du[j] * rest[j];
                }
                __syncthreads();
                RT_EACH(k, shape.k) {
                    const T own = row(next, before, within + (t - first) * size, u, du, at, k);
                    if (shape.decays > 1) ddecay[at * shape.decays + k] = own;
                    of_decay += own;
                }
                of_rate = rt_block_fold(of_rate, rt_sum_of());
                of_decay = rt_block_fold(of_decay, rt_sum_of());
                if (threadIdx.x == 0) {
                    drate[at] = of_rate;
                    if (shape.decays == 1) ddecay[at] = of_decay;
                }
            }
        }
    }
};

template <class T>
RT_FAMILY int rt_linear_attention_grad(struct rt *rt, T *dq, T *dkey, T *dvalue, T *dpast, T *ddecay, T *drate,
                                       const T *dy, const T *q, const T *key, const T *value, const T *past,
                                       const T *decay, const T *rate, void *workspace,
                                       const rt_linear_attention &shape) {
    const rt_linear_grad<T> grad = {dy, q,    key,    value, past,   decay, rate,
                                    dq, dkey, dvalue, dpast, ddecay, drate, shape};
    const int64_t heads = shape.b * shape.h, slots = RT_LINEAR_ATTENTION_SLOTS;
    const int64_t each = rt_linear_attention_workspace(shape.t, shape.k, shape.v);
    for (int64_t first = 0; first < heads; first += slots)
        rt_rows(rt, heads - first < slots ? heads - first : slots,
                [=] __device__(int64_t slot) { grad.head(first + slot, (T *)workspace + slot * each); });
    return RT_OK;
}

#define RT_CUDA_LINEAR_ATTENTION(T, s)                                                                                 \
    RT_NAME(rt_linear_attention_##s, rt_linear_attention_of<T>)                                                        \
    RT_NAME(rt_linear_attention_grad_##s, rt_linear_attention_grad<T>)
RT_FLOATS(RT_CUDA_LINEAR_ATTENTION)

#endif
