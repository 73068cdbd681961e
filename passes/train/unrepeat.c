/* Undoes the expansion of parameters by exporters.
 *
 * If the batch size is known, an exporter's constant folding expands parameters to the batch: a class token of
 * [1,1,d] is stored as [2,1,d], whose rows would be trained independently. A weight of equal slices which the
 * exporter computed from one parameter of the module becomes one slice, under the parameter's name, and an Expand. */
#include <string.h>

#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/roles.h"

/* The one name among `sources` that is a member of a module; NULL if there are none or several. */
static const char *only_member(struct arena *arena, const char *sources) {
    const char *member = NULL;
    for (const char *at = sources; *at; at += strspn(at, ", ")) {
        const size_t length = strcspn(at, ",");
        const char *name = arena_copy(arena, at, length);
        at += length;
        if (name_kind_of(name) != KIND_OTHER) continue;
        if (member) return NULL;
        member = name;
    }
    return member;
}

static bool is_taken(const struct graph *graph, const char *name) {
    for (int t = 0; t < graph->tensors.n; t++)
        if (strcmp(graph->tensors.at[t].name, name) == 0) return true;
    return false;
}

/* The outermost dimension of more than one index. */
static int outermost(const struct tensor *tensor) {
    int d = 0;
    while (d < tensor->ndim && tensor->dims[d] == 1) d++;
    return d;
}

/* True if all slices along the outermost dimension are equal. False for tensors with a single value, whose slices
 * are equal along every dimension. */
static bool repeats(const struct tensor *tensor) {
    const int d = outermost(tensor);
    const size_t size = rt_dtype_bytes(tensor->stored.dtype), bytes = (size_t)tensor_elements(tensor) * size;
    if (d == tensor->ndim || !bytes || !tensor->data) return false;
    const size_t slice = bytes / (size_t)tensor->dims[d];
    const unsigned char *data = tensor->data;
    const bool one_value = memcmp(data, data + size, bytes - size) == 0;
    return !one_value && memcmp(data, data + slice, bytes - slice) == 0;
}

/* Adds a weight called `member` with the first slice; returns an Expand of it, or -1. */
static int expanded(struct graph *graph, struct diags *diags, int weight, const char *member) {
    struct tensor whole = graph->tensors.at[weight], slice = whole;
    struct build builder = {graph, diags, whole.name};
    slice.dims[outermost(&whole)] = 1;
    const int id = graph_add_tensor(graph, TENSOR_WEIGHT, member, whole.dtype, whole.ndim, slice.dims);
    struct tensor *made = &graph->tensors.at[id];
    made->data = whole.data;
    made->stored = whole.stored;
    made->mark = MARK_PARAMETER;
    return build_expand(&builder, id, whole.ndim, whole.dims);
}

int pass_unrepeat(struct graph *graph, const struct pass_context *context) {
    const int tensors = graph->tensors.n;
    struct rewrite rewrite;
    if (!graph->train) return 0;
    rewrite_begin(&rewrite, graph);
    for (int t = 0; t < tensors; t++) {
        const struct tensor *tensor = &graph->tensors.at[t];
        if (tensor->kind != TENSOR_WEIGHT || tensor->mark != MARK_FOLDED || !repeats(tensor)) continue;
        const char *member = only_member(graph->arena, tensor->sources);
        if (!member || is_taken(graph, member)) continue;
        const int made = expanded(graph, context->diags, t, member);
        if (made >= 0) rewrite_replace(&rewrite, t, made);
    }
    for (int i = 0; i < rewrite.order_n; i++) rewrite_keep(&rewrite, rewrite_next(&rewrite, i));
    rewrite_end(&rewrite);
    return 0;
}
