/* Linear attention: part of kernels.h. */
#ifndef RT_KERNELS_C_LINEAR_ATTENTION_H
#define RT_KERNELS_C_LINEAR_ATTENTION_H

#include "../../base/shape/linear_attention.h"
#include "lists.h"

/* linear_attention  ONNX LinearAttention-27: y(b,t,h g,v) and the state after the last step, state(b,h,k,v). For every
 *                   sequence and head, beginning with S = past, each step computes
 *                       S = e^decay S                       decay(b,t,h,decays); NULL: S does not fade
 *                       u = rate (value - S^T key)          rate(b,t,h); NULL: u = value
 *                       S = S + key u^T
 *                       y = scale S^T q                     for each of the head's g heads of q
 *                   The columns of S do not depend on each other. Sums over k are in order.
 * linear_attention_grad
 *                   the gradients of all operands for dy, the gradient of y. workspace: rt_linear_attention_workspace
 *                   elements for each of RT_LINEAR_ATTENTION_SLOTS heads, or of b h if that is less. */
#define RT_DECLARE_LINEAR_ATTENTION(T, s)                                                                              \
    void rt_linear_attention_##s(T *y /* (b,t,h g,v) */, T *state /* (b,h,k,v) */, const T *q /* (b,t,h g,k) */,       \
                                 const T *key /* (b,t,h,k) */, const T *value /* (b,t,h,v) */,                         \
                                 const T *past /* (b,h,k,v) */, const T *decay /* (b,t,h,decays), NULL: none */,       \
                                 const T *rate /* (b,t,h), NULL: none */, const struct rt_linear_attention *shape);    \
    void rt_linear_attention_grad_##s(T *dq, T *dkey, T *dvalue, T *dpast, T *ddecay, T *drate, const T *dy,           \
                                      const T *q, const T *key, const T *value, const T *past, const T *decay,         \
                                      const T *rate, void *workspace, const struct rt_linear_attention *shape);

RT_FLOATS(RT_DECLARE_LINEAR_ATTENTION)

#endif
