#include "ir/gradient.h"

#include <string.h>

const struct tensor *gradient_input(const struct gradient *g, int input) {
    return &g->b.graph->tensors.at[g->node.inputs[input]];
}

const struct tensor *gradient_output(const struct gradient *g) {
    return &g->b.graph->tensors.at[g->node.outputs[0]];
}

/* Sums ------------------------------------------------------------------------------------------------------------ */

/* ReduceSum takes adjacent dimensions: one node for each run of them, the last first, so that earlier axes stay. */
int gradient_sum(struct gradient *g, int tensor, int count, const int64_t *axes, bool keep) {
    for (int end = count; end > 0 && tensor >= 0;) {
        int first = end - 1;
        while (first > 0 && axes[first - 1] == axes[first] - 1) first--;
        struct attr attrs[] = {attr_of_ints("axes", end - first, axes + first), attr_of_int("keepdims", keep)};
        tensor = build(&g->b, OP_ReduceSum, 1, &tensor, 2, attrs);
        end = first;
    }
    return tensor;
}

int gradient_sum_to(struct gradient *g, int tensor, const struct tensor *like) {
    struct tensor from = g->b.graph->tensors.at[tensor], to = *like;
    int64_t axes[RT_MAX_NDIM];
    int n = 0, more = from.ndim - to.ndim;
    for (int d = 0; d < from.ndim; d++)
        if (d < more || (to.dims[d - more] == 1 && from.dims[d] != 1)) axes[n++] = d;
    tensor = gradient_sum(g, tensor, n, axes, true);
    return tensor < 0 ? -1 : build_reshape(&g->b, tensor, to.ndim, to.dims);
}

/* Rows ------------------------------------------------------------------------------------------------------------ */

/* Attributes of the forward node are names too. */
static void add_attributes(struct gradient *g, struct build_scope *scope) {
    for (int i = 0; i < g->node.nattrs; i++) {
        const struct attr *attr = &g->node.attrs[i];
        if (attr->kind == ATTR_INT) build_scope_number(scope, attr->key, (double)attr->value);
        if (attr->kind == ATTR_FLOAT) build_scope_number(scope, attr->key, attr->number);
    }
}

static bool is_half(const struct gradient *g, int tensor) {
    return rt_dtypes[g->b.graph->tensors.at[tensor].dtype].kind == RT_KIND_HALF;
}

/* Of halves, what the operator's kernel does to its result is done to the formula's: computed in f32 and rounded
 * once. */
int gradient_expr(struct gradient *g, const char *text, int n, const char *const *names, const int *tensors) {
    enum rt_dtype dtype = g->b.graph->tensors.at[tensors[0]].dtype;
    bool half = is_half(g, tensors[0]);
    struct build_scope scope = {.dtype = half ? RT_F32 : dtype};
    for (int i = 0; i < n; i++) {
        int tensor = is_half(g, tensors[i]) ? build_cast(&g->b, tensors[i], RT_F32) : tensors[i];
        if (tensor < 0) return -1;
        build_scope_tensor(&scope, names[i], tensor);
    }
    add_attributes(g, &scope);
    int value = build_expr(&g->b, &scope, text);
    return value < 0 || !half ? value : build_cast(&g->b, value, dtype);
}

/* The expression of input k of a column "of the first | of the second". */
static const char *column_text(struct arena *arena, const char *column, int k) {
    for (; k > 0; k--) {
        const char *bar = strstr(column, " | ");
        if (!bar) BUG("gradient '%s' lacks an input", column);
        column = bar + 3;
    }
    const char *bar = strstr(column, " | ");
    return arena_copy(arena, column, bar ? (size_t)(bar - column) : strlen(column));
}

static int make_elementwise(struct gradient *g) {
    static const char *const one[] = {"dy", "y", "x"}, *const more[] = {"dy", "y", "a", "b", "c"};
    int tensors[5] = {g->dy, g->node.outputs[0]};
    for (int k = 0; k < g->node.ninputs; k++) tensors[2 + k] = g->node.inputs[k];
    for (int k = 0; k < g->node.ninputs; k++) {
        if (!g->wanted[k]) continue;
        const char *text = column_text(g->b.graph->arena, g->node.op->gradient, k);
        if (strcmp(text, "0") == 0) continue;
        int full = gradient_expr(g, text, 2 + g->node.ninputs, g->node.ninputs == 1 ? one : more, tensors);
        g->dx[k] = full < 0 ? -1 : gradient_sum_to(g, full, gradient_input(g, k));
        if (g->dx[k] < 0) return -1;
    }
    return 0;
}

int gradient_make(struct gradient *g) {
    for (int k = 0; k < g->node.ninputs; k++) g->dx[k] = -1;
    if (g->node.op->gradient) return make_elementwise(g);
    if (g->node.op->grad) return g->node.op->grad(g) < 0 ? -1 : 0;
    return diag_error(g->b.diags, 411, EXIT_UNSUPPORTED, g->place, "%s has no gradient", g->node.op->name);
}
