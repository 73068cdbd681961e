/* Ties again what an exporter has untied.
 *
 * Constant folding transposes the weights of linear layers. Where a module shares its weight, such as a token embedding
 * that makes the logits too, the model then has the matrix and a transposed copy of it, which would be trained apart. A
 * copy that the exporter named and that has the bytes of another weight, transposed, is replaced by a Transpose of
 * that. */
#include <string.h>

#include "ir/base/str.h"
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/roles.h"

enum { MOST_NAMED = 3 };

static bool is_matrix(const struct tensor *tensor) {
    return tensor->kind == TENSOR_WEIGHT && tensor->data && tensor->ndim == 2 && rt_dtype_is_float(tensor->dtype);
}

/* PyTorch calls no parameter so. */
static bool is_made_by_exporter(const struct tensor *tensor) {
    const enum name_kind kind = name_kind_of(tensor->name);
    return kind == KIND_OPERAND || kind == KIND_NUMBER || tensor->mark == MARK_FOLDED;
}

static bool equal_transposed(const unsigned char *a, const unsigned char *b, int64_t rows, int64_t columns,
                             size_t size) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            if (memcmp(a + (size_t)(r * columns + c) * size, b + (size_t)(c * rows + r) * size, size) != 0)
                return false;
    return true;
}

/* Matrices of one value, such as zeros, are alike without being the same. */
static bool has_two_values(const unsigned char *a, int64_t count, size_t size) {
    for (int64_t i = 1; i < count; i++)
        if (memcmp(a, a + (size_t)i * size, size) != 0) return true;
    return false;
}

static bool is_transposed(const struct tensor *copy, const struct tensor *of) {
    const size_t size = rt_dtype_bytes(of->stored.dtype);
    if (copy->stored.dtype != of->stored.dtype || copy->dims[0] != of->dims[1] || copy->dims[1] != of->dims[0])
        return false;
    return equal_transposed(of->data, copy->data, of->dims[0], of->dims[1], size) &&
           has_two_values(of->data, tensor_elements(of), size);
}

/* The weight that tensor `copy` is transposed; -1 if there is none. */
static int find_original(const struct graph *graph, int copy, int tensors) {
    const struct tensor *tensor = &graph->tensors.at[copy];
    if (!is_matrix(tensor) || !is_made_by_exporter(tensor)) return -1;
    for (int t = 0; t < tensors; t++) {
        const struct tensor *other = &graph->tensors.at[t];
        if (is_matrix(other) && !is_made_by_exporter(other) && is_transposed(tensor, other)) return t;
    }
    return -1;
}

int pass_tie(struct graph *graph, const struct pass_context *context) {
    static const int64_t exchanged[] = {1, 0};
    const int tensors = graph->tensors.n;
    struct rewrite rewrite;
    struct strbuf names;
    int count = 0;
    if (!graph->train) return 0;
    strbuf_init(&names, graph->arena);
    rewrite_begin(&rewrite, graph);
    for (int t = 0; t < tensors; t++) {
        const int original = find_original(graph, t, tensors);
        const char *name = graph->tensors.at[t].name;
        struct build b = {graph, context->diags, name};
        const struct attr perm = attr_of_ints("perm", 2, exchanged);
        const int tied = original < 0 ? -1 : build(&b, OP_Transpose, 1, &original, 1, &perm);
        if (tied < 0) continue;
        rewrite_replace(&rewrite, t, tied);
        if (count++ < MOST_NAMED || context->verbose)
            strbuf_printf(&names, "%s%s of %s", count > 1 ? ", " : "", diag_quote(context->diags, name),
                          diag_quote(context->diags, graph->tensors.at[original].name));
    }
    for (int i = 0; i < rewrite.order_n; i++) rewrite_keep(&rewrite, rewrite_next(&rewrite, i));
    rewrite_end(&rewrite);
    if (!count || !context->decisions) return 0;
    if (count > MOST_NAMED && !context->verbose) strbuf_printf(&names, " and %d more", count - MOST_NAMED);
    diag_remark(context->diags, graph->name,
                "trained as one parameter, because one is a transposed copy of the other: %s", strbuf_text(&names));
    return 0;
}
