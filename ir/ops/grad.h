/* Derivatives of operators, by family: the functions of column `grad` of ops.def. They fill gradient->dx and return 0,
 * or -1 after a diagnostic (ir/gradient.h). Formulas: PyTorch, derivatives.yaml. */
#ifndef IR_OPS_GRAD_H
#define IR_OPS_GRAD_H

#include "ir/gradient.h"

#define GRAD(name) int name(struct gradient *gradient)

GRAD(grad_none); /* no gradient */
GRAD(grad_matmul);
GRAD(grad_dequant_matmul);
GRAD(grad_expert_matmul);
GRAD(grad_expert_dispatch);
GRAD(grad_expert_combine);
GRAD(grad_det);
GRAD(grad_conv);
GRAD(grad_conv_transpose);
GRAD(grad_max_pool);
GRAD(grad_average_pool);
GRAD(grad_softmax);
GRAD(grad_log_softmax);
GRAD(grad_cumsum);
GRAD(grad_cumprod);
GRAD(grad_class_terms);
GRAD(grad_norm); /* LayerNorm and RMSNorm */
GRAD(grad_rope);
GRAD(grad_recurrence);
GRAD(grad_sample);
GRAD(grad_roi_pool);
GRAD(grad_linear_attention);
GRAD(grad_flash_attention);
GRAD(grad_reduce_sum);
GRAD(grad_reduce_extreme); /* ReduceMax and ReduceMin */
GRAD(grad_reduce_prod);
GRAD(grad_reshape);
GRAD(grad_transpose);
GRAD(grad_expand);
GRAD(grad_slice);
GRAD(grad_concat);
GRAD(grad_pad);
GRAD(grad_trilu);
GRAD(grad_dropout);
GRAD(grad_cast);
GRAD(grad_gather);
GRAD(grad_gather_elements);
GRAD(grad_gather_nd);
GRAD(grad_scatter); /* ScatterElements, ScatterND and those that add */
GRAD(grad_scatter_mul);
GRAD(grad_scatter_extreme); /* those that keep the largest or the smallest */

#endif
