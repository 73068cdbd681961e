/* Attributes of nodes, checked by the rows of onnx_ops.def. */
#include <string.h>

#include "frontend/lower/onnx_lower.h"

static bool find_attr(const struct onnx_op *op, const char *name, struct onnx_attr *attr) {
    for (const char *rest = op->attrs; (rest = onnx_next_attr(rest, attr));)
        if (strlen(name) == attr->length && strncmp(name, attr->name, attr->length) == 0) return true;
    return false;
}

static const struct {
    char kind;
    Onnx__AttributeProto__AttributeType type;
    const char *name;
} kinds[] = {{'i', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, "INT"},
             {'f', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, "FLOAT"},
             {'s', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, "STRING"},
             {'t', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR, "TENSOR"},
             {'g', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH, "GRAPH"},
             {'I', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, "INTS"},
             {'F', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS, "FLOATS"},
             {'S', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS, "STRINGS"},
             {'x', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR, "SPARSE_TENSOR"}};

const char *onnx_attr_kind(char kind) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind) return kinds[i].name;
    BUG("no attribute kind '%c'", kind);
}

/* What the attribute holds, also where a model of an old IR version does not say. */
static bool holds(const Onnx__AttributeProto *attribute, char kind) {
    switch (kind) {
    case 'i': return attribute->has_i;
    case 'f': return attribute->has_f;
    case 's': return attribute->has_s;
    case 't': return attribute->t != NULL;
    case 'g': return attribute->g != NULL;
    default: return true;
    }
}

static int check_attribute(struct lower *l, const char *name, const Onnx__AttributeProto *attribute) {
    struct onnx_attr attr;
    const char *quoted = diag_quote(l->b.diags, name);
    if (!find_attr(l->op, name, &attr))
        return lower_error(l, 334, EXIT_MALFORMED, "%s has no attribute %s", l->op->name, quoted);
    if (!attribute) return 0;
    size_t row = 0;
    while (kinds[row].kind != attr.kind) row++;
    bool right = attribute->has_type ? attribute->type == kinds[row].type : holds(attribute, attr.kind);
    if (right && (kinds[row].kind == 't' || kinds[row].kind == 'g')) right = holds(attribute, attr.kind);
    if (!right) return lower_error(l, 335, EXIT_MALFORMED, "attribute %s must be of type %s", quoted, kinds[row].name);
    return 0;
}

int lower_check_attributes(struct lower *l) {
    int status = 0;
    for (size_t i = 0; i < l->node->n_attribute; i++) {
        const char *name = onnx_text(l->node->attribute[i]->name);
        if (check_attribute(l, name, lower_attribute(l, name)) < 0) status = -1;
    }
    struct onnx_attr attr;
    for (const char *rest = l->op->attrs; (rest = onnx_next_attr(rest, &attr));) {
        const char *name = arena_copy(l->b.graph->arena, attr.name, attr.length);
        if (attr.required && !lower_given(l, name))
            status = lower_error(l, 336, EXIT_MALFORMED, "%s needs attribute '%s'", l->op->name, name);
    }
    return status;
}
