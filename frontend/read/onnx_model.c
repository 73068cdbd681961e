#include "frontend/read/onnx_model.h"

#include <inttypes.h>
#include <string.h>

#include "ir/base/str.h"

const char *onnx_domain(const char *domain) {
    if (!domain || strcmp(domain, "ai.onnx") == 0) return "";
    return domain;
}

const char *onnx_where(struct onnx_model *model, const char *what, const char *name) {
    return arena_printf(model->arena, "%s: %s %s", model->place, what, diag_quote(model->diags, onnx_text(name)));
}

int64_t onnx_node_index(const struct onnx_model *model, const Onnx__NodeProto *node, int64_t index) {
    const int moved = map_get(&model->moved, (const char *)&node, sizeof node);
    return moved < 0 ? index : moved;
}

const char *onnx_where_node(struct onnx_model *model, const Onnx__NodeProto *node, int64_t index) {
    struct strbuf text = {.arena = model->arena};
    strbuf_printf(&text, "%s: node %" PRId64, model->place, onnx_node_index(model, node, index));
    if (*onnx_text(node->name)) strbuf_printf(&text, " %s", diag_quote(model->diags, node->name));
    const char *op = onnx_text(node->op_type);
    strbuf_printf(&text, " (%s)", str_name(model->arena, op));
    return strbuf_text(&text);
}

const char *onnx_type_text(struct onnx_model *model, const Onnx__TypeProto *type) {
    static const char *const kinds[] = {[ONNX__TYPE_PROTO__VALUE__NOT_SET] = "none",
                                        [ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE] = "tensor",
                                        [ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE] = "sequence",
                                        [ONNX__TYPE_PROTO__VALUE_MAP_TYPE] = "map",
                                        [ONNX__TYPE_PROTO__VALUE_OPAQUE_TYPE] = "opaque",
                                        [ONNX__TYPE_PROTO__VALUE_SPARSE_TENSOR_TYPE] = "sparse_tensor",
                                        [ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE] = "optional"};
    if (!type) return kinds[ONNX__TYPE_PROTO__VALUE__NOT_SET];
    const char *outer = kinds[type->value_case];
    const Onnx__TypeProto *inner = NULL;
    if (type->value_case == ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE) inner = type->sequence_type->elem_type;
    if (type->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE) inner = type->optional_type->elem_type;
    return inner ? arena_printf(model->arena, "%s(%s)", outer, kinds[inner->value_case]) : outer;
}

const char *onnx_property(Onnx__StringStringEntryProto *const *all, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(onnx_text(all[i]->key), key) == 0) return onnx_text(all[i]->value);
    return "";
}

void onnx_count_names(const Onnx__GraphProto *graph, struct arena *arena, struct map *count) {
    map_init(count, arena);
    for (size_t i = 0; i < graph->n_node; i++) {
        const char *name = onnx_text(graph->node[i]->name);
        const int before = map_find(count, name);
        map_set(count, name, before < 0 ? 1 : before + 1);
    }
}

const char *onnx_node_name(const Onnx__NodeProto *node, const struct map *count) {
    const char *name = onnx_text(node->name);
    const bool usable = *name && (!count || map_find(count, name) == 1);
    return usable || !node->n_output ? name : onnx_text(node->output[0]);
}
