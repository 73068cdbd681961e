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

typedef DIMS_FN(dims_hook);
typedef SPLIT_ATTR(split_hook);
typedef EVAL(eval_hook);

/* dims_same: "* -> *" for any number of dimensions, without broadcasting */
dims_hook dims_matmul, dims_unpack, dims_blocks, dims_dequant_matmul, dims_int_matmul, dims_int_conv, dims_along,
    dims_class_terms, dims_reduce, dims_reduce_pair, dims_sum_all, dims_whole, dims_det, dims_suppress, dims_topk,
    dims_attention, dims_flash_attention, dims_flash_attention_grad, dims_ring_attention, dims_ring_attention_grad,
    dims_rope, dims_recurrence, dims_recurrence_grad, dims_sample_images, dims_sample_grad, dims_roi_pool,
    dims_roi_pool_grad, dims_reshape, dims_bit_cast, dims_sizes, dims_append, dims_transpose, dims_expand, dims_slice,
    dims_concat, dims_pad, dims_gather, dims_gather_grad, dims_gather_nd, dims_gather_elements, dims_scatter_elements,
    dims_scatter_nd, dims_expert_matmul, dims_expert_weight_grad, dims_expert_dispatch, dims_expert_combine, dims_conv,
    dims_conv_weight_grad, dims_pool, dims_max_pool_grad, dims_max_pool_places, dims_fused, dims_rows, dims_columns,
    dims_same;

/* Attributes that become those of the rank's part: shape (of the output), size (rows), experts, group. */
split_hook split_shape, split_slice, split_gather_grad, split_experts, split_conv;

/* eval_cumulate: CumSum and CumProd */
eval_hook eval_matmul, eval_reduce, eval_sum_squares, eval_cumulate, eval_cumprod_grad, eval_copy, eval_mapped,
    eval_concat, eval_gather, eval_divisor, eval_gather_grad, eval_gather_elements, eval_gather_nd,
    eval_scatter_elements, eval_scatter_nd, eval_expert_matmul, eval_expert_weight_grad, eval_expert_dispatch,
    eval_expert_combine, eval_topk, eval_conv, eval_conv_weight_grad, eval_pool, eval_max_pool_grad;

/* For dims_fn: formats the reason into *why and returns -1. */
int refuse(struct dims *dims, const char **why, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Checks that the index has the leading dimensions of the rows, an expert for each row: 0, or -1 with the reason. */
int check_expert_rows(struct dims *dims, const struct tensor *rows, const struct tensor *index, const char **why);

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
