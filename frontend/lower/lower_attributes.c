/* The attributes column of onnx_ops.def, and the check of a node's attributes against it. */
#include <string.h>

#include "frontend/lower/onnx_lower.h"

const char *onnx_next_attr(const char *text, struct onnx_attr *attr) {
    if (!*text) return NULL;
    *attr = (struct onnx_attr){.name = text, .length = strcspn(text, ":")};
    const char *at = text + attr->length + 1;
    attr->kind = *at++;
    attr->required = *at == '!';
    if (*at == '=') {
        attr->fallback = at + 1;
        attr->fallback_length = strcspn(at + 1, " ");
    }
    at += strcspn(at, " ");
    return *at ? at + 1 : at;
}

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
             {'x', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR, "SPARSE_TENSOR"},
             {'y', ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO, "TYPE_PROTO"}};

const char *onnx_attr_kind(char kind) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind) return kinds[i].name;
    BUG("no attribute kind '%c'", kind);
}

/* True if the attribute has a value of that kind. Looks at the value, since models of old IR versions omit the type. */
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

static int check_attribute(struct lower *lower, const char *name, const Onnx__AttributeProto *attribute) {
    struct onnx_attr attr;
    const char *quoted = lower_quote(lower, name);
    if (!find_attr(lower->op, name, &attr))
        return lower_error(lower, 334, "%s has no attribute %s", lower->op->name, quoted);
    if (!attribute) return 0;
    size_t row = 0;
    while (kinds[row].kind != attr.kind) row++;
    bool right = attribute->has_type ? attribute->type == kinds[row].type : holds(attribute, attr.kind);
    if (right && (kinds[row].kind == 't' || kinds[row].kind == 'g')) right = holds(attribute, attr.kind);
    if (!right) return lower_error(lower, 335, "attribute %s must be of type %s", quoted, kinds[row].name);
    return 0;
}

int lower_check_attributes(struct lower *lower) {
    int status = 0;
    for (size_t i = 0; i < lower->node->n_attribute; i++) {
        const char *name = onnx_text(lower->node->attribute[i]->name);
        if (check_attribute(lower, name, lower_attribute(lower, name)) < 0) status = -1;
    }
    struct onnx_attr attr;
    for (const char *rest = lower->op->attrs; (rest = onnx_next_attr(rest, &attr));) {
        const char *name = arena_copy(lower->arena, attr.name, attr.length);
        if (attr.required && !lower_given(lower, name))
            status = lower_error(lower, 336, "%s needs attribute '%s'", lower->op->name, name);
    }
    return status;
}
