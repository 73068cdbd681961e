/* Derivatives of scatters. Formulas of those that combine: PyTorch's scatter_reduce. */
#include "ir/ops/grad.h"

/* The operators of a family of scatters: by elements, or by rows of indices (ND). */
struct family {
    enum op_id gather, scatter, add, mul;
};

static const struct family *family_of(const struct gradient *gradient) {
    static const struct family elements = {OP_GatherElements, OP_ScatterElements, OP_ScatterElementsAdd,
                                           OP_ScatterElementsMul},
                               rows = {OP_GatherND, OP_ScatterND, OP_ScatterNDAdd, OP_ScatterNDMul};
    const bool by_row = attr_find(&gradient->node, "depth") != NULL;
    return by_row ? &rows : &elements;
}

/* The elements at the node's indices. */
static int gather(struct gradient *gradient, const struct family *family, int from) {
    return gradient_like(gradient, family->gather, 2, (int[]){from, gradient->node.inputs[1]}, NULL);
}

/* A scatter to the node's indices. */
static int scatter(struct gradient *gradient, enum op_id op, int onto, int updates) {
    return gradient_like(gradient, op, 3, (int[]){onto, gradient->node.inputs[1], updates}, NULL);
}

/* The gradient of the updates is gathered from dy. The gradient of the data is dy, with zeros where the updates
 * replaced the data. */
GRAD(grad_scatter) {
    const struct family *family = family_of(gradient);
    const bool replaces = gradient->node.op->id == family->scatter;
    if (gradient->wanted[0]) {
        gradient->dx[0] =
            replaces ? scatter(gradient, family->scatter, gradient->dy, gradient_zeros(gradient, 2)) : gradient->dy;
        if (gradient->dx[0] < 0) return -1;
    }
    if (gradient->wanted[2]) gradient->dx[2] = gather(gradient, family, gradient->dy);
    return gradient->wanted[2] ? gradient->dx[2] : 0;
}

/* Maxima and minima: the elements of data and updates that are equal to the result share its gradient equally. */
GRAD(grad_scatter_extreme) {
    const struct family *family = family_of(gradient);
    const int y = gradient->node.outputs[0], x = gradient->node.inputs[0], updates = gradient->node.inputs[2];
    int kept = gradient_of(gradient, "a == b ? 1 : 0", x, y, y);
    int chosen = gradient_of(gradient, "a == b ? 1 : 0", updates, gather(gradient, family, y), updates);
    int share = gradient_of(gradient, "a / b", gradient->dy, scatter(gradient, family->add, kept, chosen), y);
    if (share < 0) return -1;
    if (gradient->wanted[0] && (gradient->dx[0] = gradient_of(gradient, "a * b", kept, share, y)) < 0) return -1;
    if (!gradient->wanted[2]) return 0;
    return gradient->dx[2] = gradient_of(gradient, "a * b", chosen, gather(gradient, family, share), updates);
}

/* The derivative by an element of a product is the product of all others. For an element of the data it is computed
 * with 1 in place of a zero. For an update it is the result divided by the update, and if the update is the only zero
 * among those of its index, the product with 1 in its place. */
GRAD(grad_scatter_mul) {
    const struct family *family = family_of(gradient);
    const int y = gradient->node.outputs[0], x = gradient->node.inputs[0], updates = gradient->node.inputs[2];
    if (gradient->wanted[0]) {
        int full = gradient_of(gradient, "a == 0 ? 1 : a", x, x, x);
        gradient->dx[0] =
            gradient_of(gradient, "a * b / c", gradient->dy, scatter(gradient, family->mul, full, updates), full);
        if (gradient->dx[0] < 0) return -1;
    }
    if (!gradient->wanted[2]) return 0;
    int zero = gradient_of(gradient, "a == 0 ? 1 : 0", updates, updates, updates);
    int count = gather(gradient, family, scatter(gradient, family->add, gradient_zeros(gradient, 0), zero));
    int only = gradient_of(gradient, "a * (b == 1 ? 1 : 0)", zero, count, count);
    int others = scatter(gradient, family->mul, x, gradient_of(gradient, "a > 0 ? 1 : b", only, updates, updates));
    int rest = gather(gradient, family, gradient_of(gradient, "a * b", gradient->dy, others, y));
    int whole = gather(gradient, family, gradient_of(gradient, "a * b", gradient->dy, y, y));
    int quotient = gradient_of(gradient, "a / (b == 0 ? 1 : b)", whole, updates, updates);
    return gradient->dx[2] = gradient_of(gradient, "a > 0 ? b : c", only, rest, quotient);
}
