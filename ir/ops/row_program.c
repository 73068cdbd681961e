/* Dimension annotations of row programs, operators Rows and Columns (ir/expr/row_program.h). */
#include "ir/expr/row_program.h"
#include "ir/ops/ops.h"

/* Factors of the shape that the inputs are broadcast to, in the order of its dimensions; the inputs' dimensions.
 * Returns how many dimensions it has, -1 where there is none. */
static int bind_shape(struct dims *dims, const struct graph *graph, const struct node *node, enum factor_kind leading,
                      enum factor_kind last, const char **why) {
    int64_t shape[RT_MAX_NDIM];
    int ndim[EXPR_INPUTS];
    const int64_t *extents[EXPR_INPUTS];
    for (int k = 0; k < node->ninputs; k++) {
        ndim[k] = graph->tensors.at[node->inputs[k]].ndim;
        extents[k] = graph->tensors.at[node->inputs[k]].dims;
    }
    const int n = rows_shape(node->ninputs, ndim, extents, shape);
    if (n < 1) return refuse(dims, why, "the inputs do not have rows of the same shape");
    for (int d = 0; d < n; d++) dims_factor(dims, "d", d, shape[d], d < n - 1 ? leading : last);
    for (int k = 0; k < node->ninputs; k++) {
        dims->operand[k].ndim = ndim[k];
        for (int d = 0; d < ndim[k]; d++)
            if (extents[k][d] == shape[d + n - ndim[k]]) dims_set(&dims->operand[k], d, d + n - ndim[k]);
    }
    return n;
}

DIMS_FN(dims_rows) {
    struct row_program program;
    if (!rows_read(graph, node, &program))
        return refuse(dims, why, "expr is not a program of the inputs with a value for each output");
    const int n = bind_shape(dims, graph, node, FACTOR_PASS, FACTOR_WHOLE, why);
    for (int o = 0; o < node->noutputs && n > 0; o++) {
        struct operand *out = &dims->operand[node->ninputs + o];
        out->ndim = n;
        for (int d = 0; d < n - !program.value[o].varies; d++) dims_set(out, d, d);
    }
    return n < 0 ? -1 : 0;
}

DIMS_FN(dims_columns) {
    struct row_program program;
    if (!rows_read(graph, node, &program))
        return refuse(dims, why, "expr is not an expression of the inputs for each output");
    const int n = bind_shape(dims, graph, node, FACTOR_SUM, FACTOR_PASS, why);
    for (int o = 0; o < node->noutputs && n > 0; o++) {
        struct operand *out = &dims->operand[node->ninputs + o];
        out->ndim = attr_int(node, "keepdims", 0) ? n : 1;
        dims_set(out, out->ndim - 1, n - 1);
    }
    return n < 0 ? -1 : 0;
}
