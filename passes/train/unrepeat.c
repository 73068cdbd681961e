/* Undoes the expansion of parameters by exporters.
 *
 * If the batch size is known, an exporter's constant folding expands parameters to the batch: a class token of
 * [1,1,d] is stored as [2,1,d], and the embedding of the one token type that is used as [2,t,d]. Their rows would be
 * trained independently. A weight of equal slices which the exporter computed from one parameter of the module becomes
 * one slice, under the parameter's name, and an Expand. */
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

/* Of how many of its outer dimensions all slices are equal. 0 for tensors with a single value, whose slices are equal
 * along every dimension. */
static int repeated_dimensions(const struct tensor *tensor) {
    const size_t size = rt_dtype_bytes(tensor->stored.dtype);
    const unsigned char *data = tensor->data;
    size_t bytes = (size_t)tensor_elements(tensor) * size;
    if (!bytes || !data || memcmp(data, data + size, bytes - size) == 0) return 0;
    int n = 0;
    for (int d = 0; d < tensor->ndim; d++) {
        const size_t slice = bytes / (size_t)tensor->dims[d];
        if (memcmp(data, data + slice, bytes - slice) != 0) break;
        if (tensor->dims[d] > 1) n = d + 1;
        bytes = slice;
    }
    return n;
}

/* Adds a weight called `member` with the first slice of the `n` outer dimensions; returns an Expand of it, or -1. */
static int expanded(struct graph *graph, struct diags *diags, int weight, int n, const char *member) {
    struct tensor whole = graph->tensors.at[weight], slice = whole;
    struct build builder = {graph, diags, whole.name};
    for (int d = 0; d < n; d++) slice.dims[d] = 1;
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
    EACH(graph->tensors.at, tensors, t, const struct tensor *tensor) {
        if (tensor->kind != TENSOR_WEIGHT || tensor->mark != MARK_FOLDED) continue;
        const int repeated = repeated_dimensions(tensor);
        if (!repeated) continue;
        const char *member = only_member(graph->arena, tensor->sources);
        if (!member || is_taken(graph, member)) continue;
        const int made = expanded(graph, context->diags, t, repeated, member);
        if (made >= 0) rewrite_replace(&rewrite, t, made);
    }
    for (int i = 0; i < rewrite.order_n; i++) rewrite_keep(&rewrite, rewrite_next(&rewrite, i));
    rewrite_end(&rewrite);
    return 0;
}
