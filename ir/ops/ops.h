/* Functions of the operator rows (ops.def), by family. ir/op.h says what each kind does: dims_fn binds a dimension
 * annotation, split_attr rewrites attributes to one rank's part, eval evaluates the node on constants. Documentation is
 * at the operator's row or at the definition. */
#ifndef IR_OPS_OPS_H
#define IR_OPS_OPS_H

#include "ir/dims.h"
#include "ir/expr/eval.h"
#include "ir/op.h"

#define DIMS_FN(name) int name(struct dims *dims, const struct graph *graph, const struct node *node, const char **why)
#define SPLIT_ATTR(name)                                                                                               \
    void name(struct graph *graph, const struct dims *dims, const int64_t(*local)[RT_MAX_NDIM], struct node *node)
#define EVAL(name) int name(struct eval *eval)

DIMS_FN(dims_matmul);
DIMS_FN(dims_unpack);
DIMS_FN(dims_dequant_matmul);
DIMS_FN(dims_int_matmul);
DIMS_FN(dims_int_conv);
DIMS_FN(dims_along);
DIMS_FN(dims_class_terms);
DIMS_FN(dims_reduce);
DIMS_FN(dims_reduce_pair);
DIMS_FN(dims_sum_all);
DIMS_FN(dims_whole);
DIMS_FN(dims_det);
DIMS_FN(dims_suppress);
DIMS_FN(dims_topk);
DIMS_FN(dims_attention);
DIMS_FN(dims_flash_attention);
DIMS_FN(dims_flash_attention_grad);
DIMS_FN(dims_ring_attention);
DIMS_FN(dims_ring_attention_grad);
DIMS_FN(dims_rope);
DIMS_FN(dims_recurrence);
DIMS_FN(dims_recurrence_grad);
DIMS_FN(dims_sample_images);
DIMS_FN(dims_sample_grad);
DIMS_FN(dims_roi_pool);
DIMS_FN(dims_roi_pool_grad);
DIMS_FN(dims_reshape);
DIMS_FN(dims_bit_cast);
DIMS_FN(dims_sizes);
DIMS_FN(dims_append);
DIMS_FN(dims_transpose);
DIMS_FN(dims_expand);
DIMS_FN(dims_slice);
DIMS_FN(dims_concat);
DIMS_FN(dims_pad);
DIMS_FN(dims_gather);
DIMS_FN(dims_gather_grad);
DIMS_FN(dims_gather_nd);
DIMS_FN(dims_gather_elements);
DIMS_FN(dims_scatter_elements);
DIMS_FN(dims_scatter_nd);
DIMS_FN(dims_expert_matmul);
DIMS_FN(dims_dequant_expert_matmul);
DIMS_FN(dims_expert_weight_grad);
DIMS_FN(dims_expert_dispatch);
DIMS_FN(dims_expert_combine);
DIMS_FN(dims_conv);
DIMS_FN(dims_conv_weight_grad);
DIMS_FN(dims_pool);
DIMS_FN(dims_max_pool_grad);
DIMS_FN(dims_max_pool_places);
DIMS_FN(dims_fused);
DIMS_FN(dims_rows);
DIMS_FN(dims_columns);
DIMS_FN(dims_same); /* "* -> *" for any number of dimensions, without broadcasting */

SPLIT_ATTR(split_shape); /* shape := shape of the rank's part of the output */
SPLIT_ATTR(split_slice);
SPLIT_ATTR(split_gather_grad); /* size := rows of the rank's part */
SPLIT_ATTR(split_experts);     /* experts := those of the rank's part */
SPLIT_ATTR(split_conv);        /* group := groups of the rank's part */

EVAL(eval_matmul);
EVAL(eval_reduce);
EVAL(eval_sum_squares);
EVAL(eval_cumulate); /* CumSum and CumProd */
EVAL(eval_cumprod_grad);
EVAL(eval_copy);
EVAL(eval_mapped);
EVAL(eval_concat);
EVAL(eval_gather);
EVAL(eval_divisor);
EVAL(eval_gather_grad);
EVAL(eval_gather_elements);
EVAL(eval_gather_nd);
EVAL(eval_scatter_elements);
EVAL(eval_scatter_nd);
EVAL(eval_expert_matmul);
EVAL(eval_expert_weight_grad);
EVAL(eval_expert_dispatch);
EVAL(eval_expert_combine);
EVAL(eval_topk);
EVAL(eval_conv);
EVAL(eval_conv_weight_grad);
EVAL(eval_pool);
EVAL(eval_max_pool_grad);

/* For dims_fn: formats the reason into *why and returns -1. */
int refuse(struct dims *dims, const char **why, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Binds the operands of an epilogue (ops.def, MatMul): the node's inputs from op_epilogue_first on. `dims` has the bare
 * product so far. contract.c */
int bind_epilogue(struct dims *dims, const struct graph *graph, const struct node *node, const char **why);

/* Input i of the node; NULL if i is negative, or if the node has none. */
static inline const struct tensor *input(const struct graph *graph, const struct node *node, int i) {
    return i >= 0 && i < node->ninputs && node->inputs[i] >= 0 ? &graph->tensors.at[node->inputs[i]] : NULL;
}

/* For eval: copies `count` elements of an input, which has the result's type, to the result. */
void copy_elements(struct eval *eval, int64_t to, int from_input, int64_t from, int64_t count);

/* For eval: the value of name a or b of an expression of two elements. */
struct pair {
    struct number a, b;
};
struct number pair_look_up(const void *env, const char *name);

#endif
