#include "frontend/read/onnx_check.h"

#include <string.h>

static bool check_is_utf8(const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        int more = *at < 0x80                  ? 0
                   : *at >= 0xc2 && *at < 0xe0 ? 1
                   : *at >= 0xe0 && *at < 0xf0 ? 2
                   : *at >= 0xf0 && *at < 0xf5 ? 3
                                               : -1;
        if (more < 0) return false;
        for (at++; more; more--, at++)
            if ((*at & 0xc0) != 0x80) return false;
    }
    return true;
}

void check_tensor(struct check *check, const Onnx__TensorProto *tensor, const struct onnx_place *place) {
    struct diags *diags = check->model->diags;
    if (check->recorded >= CHECK_ERRORS) return;
    int before = diags->all.n;
    if (onnx_tensor_check(check->model, tensor, place) == 0) return;
    check->malformed++; /* also if the error of the file was reported for an earlier tensor */
    check->recorded += diags->all.n - before;
}

void check_sparse(struct check *check, const Onnx__SparseTensorProto *sparse, const struct onnx_place *place) {
    if (sparse->values) check_tensor(check, sparse->values, place);
    if (sparse->indices) check_tensor(check, sparse->indices, place);
}

/* The value fields that an attribute has set: a bit for each AttributeType. */
static unsigned values_of(const Onnx__AttributeProto *a) {
    const bool has[] = {false,
                        a->has_f,
                        a->has_i,
                        a->has_s,
                        a->t != NULL,
                        a->g != NULL,
                        a->n_floats != 0,
                        a->n_ints != 0,
                        a->n_strings != 0,
                        a->n_tensors != 0,
                        a->n_graphs != 0,
                        a->sparse_tensor != NULL,
                        a->n_sparse_tensors != 0,
                        a->tp != NULL,
                        a->n_type_protos != 0};
    unsigned bits = 0;
    for (unsigned i = 0; i < sizeof has; i++) bits |= (unsigned)has[i] << i;
    return bits;
}

/* Types whose value field must be present. A missing number is 0, a missing string or list is empty (proto2). */
#define NEEDS_VALUE                                                                                                    \
    (1u << ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR | 1u << ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH |        \
     1u << ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR |                                                      \
     1u << ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO)

static const char *type_name(int type) {
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&onnx__attribute_proto__attribute_type__descriptor, type);
    return value ? value->name : NULL;
}

/* Why type and value of an attribute contradict each other; NULL if they do not. Sets a missing type. */
static const char *wrong_value(struct check *check, Onnx__AttributeProto *attribute) {
    unsigned values = values_of(attribute);
    int type = attribute->type;
    bool reference = *onnx_text(attribute->ref_attr_name) != 0;
    if (!type_name(type)) return arena_printf(check->model->arena, "unknown attribute type %d", type);
    if (reference) return values ? "it has both a value and a reference to a function's attribute" : NULL;
    if (values & (values - 1)) return "it has more than one value";
    if (!type && !values) return "it has neither type nor value";
    if (!type)
        attribute->has_type = true, attribute->type = (Onnx__AttributeProto__AttributeType)__builtin_ctz(values);
    else if (values & ~(1u << type))
        return arena_printf(check->model->arena, "its value does not have its declared type %s", type_name(type));
    else if (!values && NEEDS_VALUE >> type & 1)
        return arena_printf(check->model->arena, "it has no %s", type_name(type));
    return NULL;
}

static void check_attribute(struct check *check, Onnx__AttributeProto *attribute, const struct onnx_place *place,
                            bool in_function) {
    const char *name = onnx_text(attribute->name);
    const char *wrong = wrong_value(check, attribute);
    if (!*name) CHECK_FAIL(check, 334, place, "an attribute has no name");
    if (wrong) CHECK_FAIL(check, 335, place, "attribute %s: %s", check_quote(check, name), wrong);
    if (*onnx_text(attribute->ref_attr_name) && !in_function)
        CHECK_FAIL(check, 337, place, "attribute %s refers to %s, but is not in a function", check_quote(check, name),
                   check_quote(check, attribute->ref_attr_name));
    if (attribute->t) check_tensor(check, attribute->t, place);
    if (attribute->sparse_tensor) check_sparse(check, attribute->sparse_tensor, place);
    for (size_t i = 0; i < attribute->n_tensors; i++) check_tensor(check, attribute->tensors[i], place);
}

/* True if an attribute before `index` has the same name. Compares names while there are few, else uses the map
 * `seen`. */
static bool is_repeated(struct map *seen, Onnx__AttributeProto **attributes, size_t index, size_t count) {
    enum { FEW = 16 };
    const char *name = onnx_text(attributes[index]->name);
    if (count > FEW) return !map_set(seen, name, 0);
    for (size_t i = 0; i < index; i++)
        if (strcmp(onnx_text(attributes[i]->name), name) == 0) return true;
    return false;
}

void check_attributes(struct check *check, Onnx__AttributeProto **attributes, size_t count,
                      const struct onnx_place *place, bool in_function) {
    struct map seen = {.arena = check->scratch};
    for (size_t i = 0; i < count; i++) {
        check_attribute(check, attributes[i], place, in_function);
        if (is_repeated(&seen, attributes, i, count))
            CHECK_FAIL(check, 333, place, "attribute %s is given twice",
                       check_quote(check, onnx_text(attributes[i]->name)));
    }
}

void check_node(struct check *check, const struct check_scope *scope, int index) {
    const Onnx__NodeProto *node = scope->nodes[index];
    struct onnx_place place = check_place(scope, index);
    const char *op = onnx_text(node->op_type);
    if (!*op) CHECK_FAIL(check, 311, &place, "node #%d has no op_type", index);
    if (!check_is_utf8(op)) CHECK_FAIL(check, 313, &place, "op_type is not UTF-8");
    check_attributes(check, node->attribute, node->n_attribute, &place, scope->root >= 0);
}
