/* Merges nodes with the same operator, inputs and attributes: masks and position tables that an exporter repeats in
 * every layer are computed once. */
#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

/* A key that nodes have in common exactly if they have the same operator, inputs and attributes, and their results are
 * operands of the same reduction over replicas. */
static void describe(struct strbuf *key, const struct graph *graph, const struct node *node) {
    key->length = 0;
    strbuf_puts(key, node->op->name), strbuf_putc(key, ' ');
    strbuf_puts(key, joined_names[graph->tensors.at[node->outputs[0]].joined]);
    for (int i = 0; i < node->ninputs; i++) strbuf_putc(key, ' '), strbuf_put_int(key, node->inputs[i]);
    EACH(node->attrs, node->nattrs, i, const struct attr *attr) {
        strbuf_putc(key, ' '), strbuf_puts(key, attr->key), strbuf_putc(key, '=');
        switch (attr->kind) {
        case ATTR_INT: strbuf_put_int(key, attr->value); break;
        case ATTR_INTS: strbuf_add(key, (const char *)attr->ints, (size_t)attr->n * sizeof(int64_t)); break;
        case ATTR_FLOAT: strbuf_add(key, (const char *)&attr->number, sizeof attr->number); break;
        case ATTR_TEXT: strbuf_puts(key, attr->text); break;
        }
    }
}

/* Replaces a constant by the first one met that has its type and bytes. */
static void merge_constant(struct rewrite *rewrite, struct map *seen, struct strbuf *key, int id) {
    const struct tensor *tensor = id < 0 ? NULL : &rewrite->graph->tensors.at[id];
    if (!tensor || tensor->kind != TENSOR_CONST) return;
    key->length = 0;
    strbuf_puts(key, tensor_type(rewrite->graph->arena, tensor));
    strbuf_add(key, tensor->data, (size_t)tensor_bytes(tensor));
    int same = map_get(seen, key->text, key->length);
    if (same >= 0)
        rewrite_replace(rewrite, id, same);
    else
        map_put(seen, key->text, key->length, id);
}

/* Visits constants in the order of the nodes that read them: a graph that was parsed from text has the same order. */
static void merge_constants(struct rewrite *rewrite) {
    const struct graph *graph = rewrite->graph;
    struct arena *scratch = arena_scratch(graph->arena);
    struct strbuf key = {.arena = scratch};
    struct map seen = {.arena = scratch};
    for (int i = 0; i < rewrite->order_n; i++) {
        const struct node *node = &graph->nodes.at[rewrite->order[i]];
        for (int k = 0; k < node->ninputs; k++) merge_constant(rewrite, &seen, &key, node->inputs[k]);
    }
    for (int i = 0; i < graph->outputs.n; i++) merge_constant(rewrite, &seen, &key, graph->outputs.at[i]);
    arena_release(graph->arena, scratch);
}

int pass_cse(struct graph *graph, const struct pass_context *context) {
    struct arena *scratch = arena_scratch(graph->arena);
    struct rewrite rewrite;
    (void)context;
    struct strbuf key = {.arena = scratch};
    struct map seen = {.arena = scratch};
    rewrite_begin(&rewrite, graph);
    merge_constants(&rewrite);
    for (int i = 0; i < rewrite.order_n; i++) {
        int id = rewrite_next(&rewrite, i);
        const struct node *node = &graph->nodes.at[id];
        describe(&key, graph, node);
        int same = node->noutputs == 1 ? map_get(&seen, key.text, key.length) : -1;
        if (same >= 0) {
            rewrite_replace(&rewrite, node->outputs[0], same);
            continue;
        }
        if (node->noutputs == 1) map_put(&seen, key.text, key.length, node->outputs[0]);
        rewrite_keep(&rewrite, id);
    }
    rewrite_end(&rewrite);
    arena_release(graph->arena, scratch);
    return 0;
}
