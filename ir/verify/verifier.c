#include "ir/verify/verifier.h"

void verify_fail(struct verifier *v, const char *format, ...) {
    const char *text;
    ARENA_PRINT_TO(text, v->graph->arena, format);
    const char *where = v->node < 0 ? v->graph->name : node_place(v->graph, v->node);
    diag_error(v->diags, 1101, EXIT_MISMATCH, where, "the plan is not equivalent to the model: %s", text);
}

const struct tensor *verify_tensor(const struct verifier *v, int id) {
    return &v->graph->tensors.at[id];
}

enum placement_kind verify_kind(const struct verifier *v, int tensor, int axis) {
    return tensor < 0 ? PLACED_WHOLE : layout_along(&verify_tensor(v, tensor)->layout, axis).kind;
}
