/* The table of ONNX operators, and what is checked by it. */
#include "frontend/import_state.h"

#define FORM(name_, since_, min_, max_, outputs_, attrs_)                                                          \
    .name = #name_, .since = since_, .in_min = min_, .in_max = max_, .out_max = outputs_, .attrs = attrs_

#define MAP(name, since, inputs, core_, attrs)                                                                     \
    {.domain = "", FORM(name, since, inputs, inputs, 1, attrs), .core = #core_},
#define OP(name, since, min, max, outputs, lower_, attrs)                                                          \
    {.domain = "", FORM(name, since, min, max, outputs, attrs), .lower = lower_},
#define SEQ(name, since, min, max, outputs, lower_, attrs)                                                         \
    {.domain = "", FORM(name, since, min, max, outputs, attrs), .lower = lower_, .sequences = true},
#define MS(name, min, max, outputs, lower_, attrs)                                                                 \
    {.domain = "com.microsoft", FORM(name, 1, min, max, outputs, attrs), .lower = lower_},
#define NOT(name, since, code) {.domain = "", FORM(name, since, 0, 0, 0, ""), .refused = code},

const struct onnx_op onnx_ops[] = {
#include "frontend/onnx_ops.def"
};
const int onnx_nops = sizeof onnx_ops / sizeof *onnx_ops;

/* Names within a domain; no operator's name has a colon. */
static const char *row_key(struct arena *arena, const char *domain, const char *name) {
    return *domain ? arena_printf(arena, "%s::%s", domain, name) : name;
}

void onnx_op_index(struct map *rows, struct arena *arena) {
    map_init(rows, arena);
    for (int i = 0; i < onnx_nops; i++) {
        const char *key = row_key(arena, onnx_ops[i].domain, onnx_ops[i].name);
        if (map_get(rows, key, strlen(key)) < 0) map_put(rows, key, strlen(key), i);
    }
}

const struct onnx_op *onnx_op_find(const struct map *rows, const char *domain, const char *name, int64_t version,
                                   const struct onnx_op **first) {
    const struct onnx_op *found = NULL;
    const char *key = row_key(rows->arena, domain, name);
    int at = map_get(rows, key, strlen(key));
    *first = at < 0 ? NULL : &onnx_ops[at];
    for (int i = at; i >= 0 && i < onnx_nops && strcmp(onnx_ops[i].name, name) == 0; i++)
        if (onnx_ops[i].since <= version) found = &onnx_ops[i];
    return found;
}

/* Attributes ------------------------------------------------------------------------------------------------------ */

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
    if (!right)
        return lower_error(l, 335, EXIT_MALFORMED, "attribute %s must be of type %s", quoted, kinds[row].name);
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
