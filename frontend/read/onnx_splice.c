#include "frontend/read/onnx_splice.h"

#include <string.h>

#include "runtime/base/io/file.h"

/* Field numbers of onnx.proto. */
enum {
    MODEL_IR_VERSION = 1,
    MODEL_GRAPH = 7,
    MODEL_CONFIGURATION = 26,
    GRAPH_NODE = 1,
    NODE_METADATA = 9,
    NODE_DEVICE_CONFIGURATIONS = 10,
    /* of DeviceConfigurationProto; configuration_id of NodeDeviceConfigurationProto; key of StringStringEntryProto */
    NAME = 1
};

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5, VARINT_MOST = 10 };

/* A field with its tag: [start, end), of which [value, end) is the value without tag and length. */
struct field {
    uint64_t number;
    const unsigned char *start, *value, *end;
};

struct pieces {
    VEC(struct rt_piece) all;
    size_t bytes;
};

static bool take_varint(const unsigned char **at, const unsigned char *end, uint64_t *value) {
    *value = 0;
    for (int i = 0; i < VARINT_MOST && *at < end; i++) {
        const unsigned char byte = *(*at)++;
        *value |= (uint64_t)(byte & 127) << 7 * i;
        if (byte < 128) return true;
    }
    return false;
}

/* The field at *at, behind which *at is set. False: there is none; onnx_scan has found the file to be well-formed. */
static bool take_field(const unsigned char **at, const unsigned char *end, struct field *field) {
    uint64_t tag, length;
    field->start = *at;
    if (*at >= end || !take_varint(at, end, &tag)) return false;
    field->number = tag >> 3;
    field->value = *at;
    switch (tag & 7) {
    case WIRE_VARINT:
        if (!take_varint(at, end, &length)) return false;
        field->end = *at;
        return true;
    case WIRE_64: length = 8; break;
    case WIRE_32: length = 4; break;
    case WIRE_LENGTH:
        if (!take_varint(at, end, &length)) return false;
        field->value = *at;
        break;
    default: return false;
    }
    if (length > (uint64_t)(end - *at)) return false;
    *at += length;
    field->end = *at;
    return true;
}

/* Adds bytes that stay where they are. */
static void add(struct arena *arena, struct pieces *pieces, const void *bytes, size_t count) {
    struct rt_piece *last = pieces->all.n ? &pieces->all.at[pieces->all.n - 1] : NULL;
    if (!count) return;
    pieces->bytes += count;
    if (last && (const char *)last->bytes + last->count == (const char *)bytes)
        last->count += count;
    else
        VEC_PUSH(arena, &pieces->all, ((struct rt_piece){bytes, count}));
}

static unsigned char *put_varint(unsigned char *to, uint64_t value) {
    for (; value >= 128; value >>= 7) *to++ = (unsigned char)(value | 128);
    *to++ = (unsigned char)value;
    return to;
}

/* A tag and a varint: the length of a message, or a value. */
static void add_head(struct arena *arena, struct pieces *pieces, unsigned number, unsigned wire, uint64_t value) {
    unsigned char *bytes = ARENA_ARRAY(arena, unsigned char, 2 * VARINT_MOST);
    const unsigned char *end = put_varint(put_varint(bytes, (uint64_t)number << 3 | wire), value);
    add(arena, pieces, bytes, (size_t)(end - bytes));
}

static void add_message(struct arena *arena, struct pieces *pieces, unsigned number,
                        const struct onnx_message *message) {
    if (!message->count) return;
    add_head(arena, pieces, number, WIRE_LENGTH, message->count);
    add(arena, pieces, message->bytes, message->count);
}

static void add_pieces(struct arena *arena, struct pieces *pieces, unsigned number, const struct pieces *inner) {
    add_head(arena, pieces, number, WIRE_LENGTH, inner->bytes);
    for (int i = 0; i < inner->all.n; i++) add(arena, pieces, inner->all.at[i].bytes, inner->all.at[i].count);
}

/* True if the message's field NAME has that text. */
static bool is_named(const struct field *message, const char *name) {
    const unsigned char *at = message->value;
    struct field field;
    while (take_field(&at, message->end, &field))
        if (field.number == NAME && (size_t)(field.end - field.value) == strlen(name) &&
            memcmp(field.value, name, strlen(name)) == 0)
            return true;
    return false;
}

static void splice_node(struct arena *arena, struct pieces *pieces, const struct onnx_splice *splice,
                        const struct field *node, int64_t index) {
    const unsigned char *at = node->value;
    struct pieces inner = {0};
    struct field field;
    while (take_field(&at, node->end, &field))
        if ((field.number != NODE_DEVICE_CONFIGURATIONS && field.number != NODE_METADATA) ||
            !is_named(&field, splice->configuration))
            add(arena, &inner, field.start, (size_t)(field.end - field.start));
    add_message(arena, &inner, NODE_METADATA, &splice->notes[index]);
    add_message(arena, &inner, NODE_DEVICE_CONFIGURATIONS, &splice->nodes[index]);
    add_pieces(arena, pieces, GRAPH_NODE, &inner);
}

static void splice_graph(struct arena *arena, struct pieces *pieces, const struct onnx_splice *splice,
                         const struct field *graph) {
    const unsigned char *at = graph->value;
    struct pieces inner = {0};
    struct field field;
    int64_t node = 0;
    while (take_field(&at, graph->end, &field))
        if (field.number == GRAPH_NODE)
            splice_node(arena, &inner, splice, &field, node++);
        else
            add(arena, &inner, field.start, (size_t)(field.end - field.start));
    add_pieces(arena, pieces, MODEL_GRAPH, &inner);
}

static void splice_model(struct onnx_model *model, struct pieces *pieces, const struct onnx_splice *splice) {
    const unsigned char *at = model->files.at[0].data, *end = at + model->files.at[0].bytes;
    const int64_t version = model->proto->ir_version;
    struct arena *arena = model->arena;
    struct field field;
    while (take_field(&at, end, &field)) {
        if (field.number == MODEL_IR_VERSION)
            add_head(arena, pieces, MODEL_IR_VERSION, WIRE_VARINT,
                     (uint64_t)(version > splice->ir_version ? version : splice->ir_version));
        else if (field.number == MODEL_GRAPH)
            splice_graph(arena, pieces, splice, &field);
        else if (field.number != MODEL_CONFIGURATION || !is_named(&field, splice->configuration))
            add(arena, pieces, field.start, (size_t)(field.end - field.start));
    }
    add_message(arena, pieces, MODEL_CONFIGURATION, &splice->added);
}

int onnx_splice(struct onnx_model *model, const struct onnx_splice *splice, const char *path) {
    struct pieces pieces = {0};
    struct rt_reason why;
    splice_model(model, &pieces, splice);
    if (onnx_check_files(model) < 0) return -1;
    if (rt_file_write(path, pieces.all.at, pieces.all.n, &why)) return 0;
    return diag_refusal(model->diags, 611, EXIT_SYSTEM, NULL, &why);
}
