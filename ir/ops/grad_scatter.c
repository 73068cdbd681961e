/* Derivatives of scatters. Formulas of those that combine: PyTorch's scatter_reduce. */
#include "ir/ops/grad.h"

/* The operators of a family of scatters: by elements, or by rows of indices (ND). */
struct family {
    enum op_id gather, scatter, add, mul;
};

static const struct family elements = {OP_GatherElements, OP_ScatterElements, OP_ScatterElementsAdd,
                                       OP_ScatterElementsMul};
static const struct family rows = {OP_GatherND, OP_ScatterND, OP_ScatterNDAdd, OP_ScatterNDMul};

static int zeros(struct gradient *gradient, int input) {
    const struct tensor like = *gradient_input(gradient, input);
    return build_expand(&gradient->builder, build_scalar(&gradient->builder, like.dtype, 0), like.ndim, like.dims);
}

/* The elements at the node's indices. */
static int gather(struct gradient *gradient, const struct family *family, int from) {
    if (from < 0) return -1;
    return build(&gradient->builder, family->gather, 2, (int[]){from, gradient->node.inputs[1]}, gradient->node.nattrs,
                 gradient->node.attrs);
}

/* A scatter to the node's indices. */
static int scatter(struct gradient *gradient, enum op_id op, int onto, int updates) {
    if (onto < 0 || updates < 0) return -1;
    return build(&gradient->builder, op, 3, (int[]){onto, gradient->node.inputs[1], updates}, gradient->node.nattrs,
                 gradient->node.attrs);
}

/* An expression of up to three tensors, named a, b and c. */
static int of(struct gradient *gradient, const char *text, int a, int b, int c) {
    static const char *const names[] = {"a", "b", "c"};
    return a < 0 || b < 0 || c < 0 ? -1 : gradient_expr(gradient, text, 3, names, (int[]){a, b, c});
}

/* The gradient of the updates is gathered from dy. The gradient of the data is dy, with zeros where the updates
 * replaced the data. */
static int grad_scatter(struct gradient *gradient, const struct family *family) {
    const bool replaces = gradient->node.op->id == family->scatter;
    if (gradient->wanted[0]) {
        gradient->dx[0] =
            replaces ? scatter(gradient, family->scatter, gradient->dy, zeros(gradient, 2)) : gradient->dy;
        if (gradient->dx[0] < 0) return -1;
    }
    if (gradient->wanted[2]) gradient->dx[2] = gather(gradient, family, gradient->dy);
    return gradient->wanted[2] ? gradient->dx[2] : 0;
}

GRAD(grad_scatter_elements) {
    return grad_scatter(gradient, &elements);
}

GRAD(grad_scatter_nd) {
    return grad_scatter(gradient, &rows);
}

/* Maxima and minima: the elements of data and updates that are equal to the result share its gradient equally. */
static int grad_extreme(struct gradient *gradient, const struct family *family) {
    const int y = gradient->node.outputs[0], x = gradient->node.inputs[0], updates = gradient->node.inputs[2];
    int kept = of(gradient, "a == b ? 1 : 0", x, y, y);
    int chosen = of(gradient, "a == b ? 1 : 0", updates, gather(gradient, family, y), updates);
    int share = of(gradient, "a / b", gradient->dy, scatter(gradient, family->add, kept, chosen), y);
    if (share < 0) return -1;
    if (gradient->wanted[0] && (gradient->dx[0] = of(gradient, "a * b", kept, share, y)) < 0) return -1;
    if (!gradient->wanted[2]) return 0;
    return gradient->dx[2] = of(gradient, "a * b", chosen, gather(gradient, family, share), updates);
}

GRAD(grad_scatter_elements_extreme) {
    return grad_extreme(gradient, &elements);
}

GRAD(grad_scatter_nd_extreme) {
    return grad_extreme(gradient, &rows);
}

/* The derivative by an element of a product is the product of all others. For an element of the data it is computed
 * with 1 in place of a zero. For an update it is the result divided by the update, and if the update is the only zero
 * among those of its index, the product with 1 in its place. */
static int grad_mul(struct gradient *gradient, const struct family *family) {
    const int y = gradient->node.outputs[0], x = gradient->node.inputs[0], updates = gradient->node.inputs[2];
    if (gradient->wanted[0]) {
        int full = of(gradient, "a == 0 ? 1 : a", x, x, x);
        gradient->dx[0] = of(gradient, "a * b / c", gradient->dy, scatter(gradient, family->mul, full, updates), full);
        if (gradient->dx[0] < 0) return -1;
    }
    if (!gradient->wanted[2]) return 0;
    int zero = of(gradient, "a == 0 ? 1 : 0", updates, updates, updates);
    int count = gather(gradient, family, scatter(gradient, family->add, zeros(gradient, 0), zero));
    int only = of(gradient, "a * (b == 1 ? 1 : 0)", zero, count, count);
    int others = scatter(gradient, family->mul, x, of(gradient, "a > 0 ? 1 : b", only, updates, updates));
    int rest = gather(gradient, family, of(gradient, "a * b", gradient->dy, others, y));
    int whole = gather(gradient, family, of(gradient, "a * b", gradient->dy, y, y));
    int quotient = of(gradient, "a / (b == 0 ? 1 : b)", whole, updates, updates);
    return gradient->dx[2] = of(gradient, "a > 0 ? b : c", only, rest, quotient);
}

GRAD(grad_scatter_elements_mul) {
    return grad_mul(gradient, &elements);
}

GRAD(grad_scatter_nd_mul) {
    return grad_mul(gradient, &rows);
}
