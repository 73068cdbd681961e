#include "ir/gradient.h"

#include <string.h>

const struct tensor *gradient_input(const struct gradient *gradient, int input) {
    return &gradient->builder.graph->tensors.at[gradient->node.inputs[input]];
}

const struct tensor *gradient_output(const struct gradient *gradient) {
    return &gradient->builder.graph->tensors.at[gradient->node.outputs[0]];
}

/* ReduceSum reduces adjacent dimensions only: adds one node per run of adjacent axes, the last run first, so that the
 * numbers of the earlier axes stay valid. */
int gradient_sum(struct gradient *gradient, int tensor, int count, const int64_t *axes, bool keep) {
    for (int end = count; end > 0 && tensor >= 0;) {
        int first = end - 1;
        while (first > 0 && axes[first - 1] == axes[first] - 1) first--;
        struct attr attrs[] = {attr_of_ints("axes", end - first, axes + first), attr_of_int("keepdims", keep)};
        tensor = build(&gradient->builder, OP_ReduceSum, 1, &tensor, 2, attrs);
        end = first;
    }
    return tensor;
}

int gradient_sum_to(struct gradient *gradient, int tensor, const struct tensor *like) {
    struct tensor from = gradient->builder.graph->tensors.at[tensor], to = *like;
    int64_t axes[RT_MAX_NDIM];
    int n = 0, more = from.ndim - to.ndim;
    for (int d = 0; d < from.ndim; d++)
        if (d < more || (to.dims[d - more] == 1 && from.dims[d] != 1)) axes[n++] = d;
    tensor = gradient_sum(gradient, tensor, n, axes, true);
    return tensor < 0 ? -1 : build_reshape(&gradient->builder, tensor, to.ndim, to.dims);
}

/* Expressions may read attributes of the forward node by name. */
static void add_attributes(struct gradient *gradient, struct build_scope *scope) {
    EACH(gradient->node.attrs, gradient->node.nattrs, i, const struct attr *attr) {
        if (attr->kind == ATTR_INT) build_scope_number(scope, attr->key, (double)attr->value);
        if (attr->kind == ATTR_FLOAT) build_scope_number(scope, attr->key, attr->number);
    }
}

static bool is_half(const struct gradient *gradient, int tensor) {
    return rt_dtypes[gradient->builder.graph->tensors.at[tensor].dtype].kind == RT_KIND_HALF;
}

/* 16-bit gradients are computed as kernels compute 16-bit results: in f32, rounded once at the end. */
int gradient_expr(struct gradient *gradient, const char *text, int n, const char *const *names, const int *tensors) {
    enum rt_dtype dtype = gradient->builder.graph->tensors.at[tensors[0]].dtype;
    bool half = is_half(gradient, tensors[0]);
    struct build_scope scope = {.dtype = half ? RT_F32 : dtype, .known = gradient->known};
    for (int i = 0; i < n; i++) {
        int tensor = is_half(gradient, tensors[i]) ? build_cast(&gradient->builder, tensors[i], RT_F32) : tensors[i];
        if (tensor < 0) return -1;
        build_scope_tensor(&scope, names[i], tensor);
    }
    add_attributes(gradient, &scope);
    int value = build_expr(&gradient->builder, &scope, text);
    return value < 0 || !half ? value : build_cast(&gradient->builder, value, dtype);
}

int gradient_of(struct gradient *gradient, const char *text, int a, int b, int c) {
    static const char *const names[] = {"a", "b", "c"};
    return a < 0 || b < 0 || c < 0 ? -1 : gradient_expr(gradient, text, 3, names, (int[]){a, b, c});
}

int gradient_like(struct gradient *gradient, enum op_id op, int n, const int *inputs, const struct attr *more) {
    int count = gradient->node.nattrs;
    struct attr *attrs = ARENA_ARRAY(gradient->builder.graph->arena, struct attr, count + 1);
    for (int i = 0; i < count; i++) attrs[i] = gradient->node.attrs[i];
    if (more) attrs[count++] = *more;
    for (int k = 0; k < n; k++)
        if (inputs[k] < 0) return -1;
    return build(&gradient->builder, op, n, inputs, count, attrs);
}

int gradient_zeros(struct gradient *gradient, int input) {
    const struct tensor like = *gradient_input(gradient, input);
    return build_expand(&gradient->builder, build_scalar(&gradient->builder, like.dtype, 0), like.ndim, like.dims);
}

/* The expression of input k in column `gradient`, where expressions are separated by "|". */
static const char *column_text(struct arena *arena, const char *column, int k) {
    for (; k > 0; k--) {
        const char *bar = strstr(column, " | ");
        if (!bar) BUG("gradient '%s' lacks an input", column);
        column = bar + 3;
    }
    const char *bar = strstr(column, " | ");
    return arena_copy(arena, column, bar ? (size_t)(bar - column) : strlen(column));
}

static int make_elementwise(struct gradient *gradient) {
    static const char *const one[] = {"dy", "y", "x"}, *const more[] = {"dy", "y", "a", "b", "c"};
    int tensors[5] = {gradient->dy, gradient->node.outputs[0]};
    for (int k = 0; k < gradient->node.ninputs; k++) tensors[2 + k] = gradient->node.inputs[k];
    for (int k = 0; k < gradient->node.ninputs; k++) {
        if (!gradient->wanted[k]) continue;
        const char *text = column_text(gradient->builder.graph->arena, gradient->node.op->gradient, k);
        if (strcmp(text, "0") == 0) continue;
        int full = gradient_expr(gradient, text, 2 + gradient->node.ninputs, gradient->node.ninputs == 1 ? one : more,
                                 tensors);
        gradient->dx[k] = full < 0 ? -1 : gradient_sum_to(gradient, full, gradient_input(gradient, k));
        if (gradient->dx[k] < 0) return -1;
    }
    return 0;
}

int gradient_make(struct gradient *gradient) {
    for (int k = 0; k < gradient->node.ninputs; k++) gradient->dx[k] = -1;
    if (gradient->node.op->gradient) return make_elementwise(gradient);
    if (gradient->node.op->grad) return gradient->node.op->grad(gradient) < 0 ? -1 : 0;
    return diag_error(gradient->builder.diags, 411, EXIT_UNSUPPORTED, gradient->place, "%s has no gradient",
                      gradient->node.op->name);
}
