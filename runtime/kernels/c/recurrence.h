/* Recurrent layers: part of kernels.h. */
#ifndef RT_KERNELS_C_RECURRENCE_H
#define RT_KERNELS_C_RECURRENCE_H

#include "../../base/shape/recurrence.h"
#include "lists.h"

struct rt;

/* ONNX LSTM-22, GRU-22 and RNN-22, one direction, after the product of the inputs and the input weights. g: the number
 * of gates, in ONNX's order (LSTM: i o f c, GRU: z r h); s: the number of states.
 *
 *   x        those products with all biases added, but for the candidate's recurrent bias if reset_after
 *   weights  the recurrent weights
 *   initial  the states before the first step: hidden, then cell state
 *   vector   LSTM: peepholes i, o, f (3,h), or NULL. GRU with reset_after: the candidate's recurrent bias (h), or NULL
 *   lengths  steps of every sequence, or NULL: all. A step beyond the length keeps the states; with `reverse` the
 *            first step of a sequence is its last
 *   scale    of an LSTM, or NULL: the weights are integers, and in every step the state is quantised to 8 bits as by
 *            ONNX DynamicQuantizeLinear-11, over all sequences but those that ended before; sums of products of
 *            levels are multiplied by the state's scale and that of their column
 *   y        the states after every step
 *
 * The gradient computes the gates again from the states. dx: gradient of x; dinitial: gradient of initial; mixed, of a
 * GRU only: the left operand of the product that gives the gradient of the candidate's recurrent weights, with
 * reset_after the gradient of the candidate's product, else the state times the reset gate.
 *
 * `workspace` has the elements of g + RT_RECURRENCE_STATES states (b,h), and without the gradient rt_recurrence_packed
 * more. Sums of products are those of rt_matmul_packed, in the gradient and of a single step those of rt_matmul.
 * Threads divide sequences, or if there are few of them the hidden units. */
#define RT_DECLARE_RECURRENCE(T, s)                                                                                    \
    int rt_recurrence_##s(struct rt *rt, T *y /* (s,t,b,h) */, const T *x /* (t,b,g h) */,                             \
                          const T *weights /* (g h,h) */, const T *initial /* (s,b,h) */, const T *vector,             \
                          const int64_t *lengths /* (b) */, const T *scale /* (g h) */, void *workspace,               \
                          const struct rt_recurrence *shape);                                                          \
    int rt_recurrence_grad_##s(struct rt *rt, T *dx /* (t,b,g h) */, T *dinitial /* (s,b,h) */,                        \
                               T *mixed /* (t,b,h) */, const T *dy /* (s,t,b,h) */, const T *y /* (s,t,b,h) */,        \
                               const T *x /* (t,b,g h) */, const T *weights /* (g h,h) */,                             \
                               const T *initial /* (s,b,h) */, const T *vector, const int64_t *lengths /* (b) */,      \
                               void *workspace, const struct rt_recurrence *shape);

RT_FLOATS(RT_DECLARE_RECURRENCE)

#endif
