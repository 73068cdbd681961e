#include "tensor_pb.h"

#include "../number/checked.h"
#include "file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers of TensorProto. */
enum field {
    FIELD_DIMS = 1,
    FIELD_DATA_TYPE = 2,
    FIELD_SEGMENT = 3,
    FIELD_FLOAT_DATA = 4,
    FIELD_INT32_DATA = 5,
    FIELD_STRING_DATA = 6,
    FIELD_INT64_DATA = 7,
    FIELD_RAW_DATA = 9,
    FIELD_DOUBLE_DATA = 10,
    FIELD_UINT64_DATA = 11,
    FIELD_EXTERNAL_DATA = 13,
    FIELD_DATA_LOCATION = 14,
    FIELDS = 15
};

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct bytes {
    const unsigned char *at, *end;
};

struct item {
    uint64_t number, value; /* value: of a varint or fixed item */
    enum wire wire;
    struct bytes content; /* of WIRE_BYTES */
};

static bool read_varint(struct bytes *from, uint64_t *out) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (from->at == from->end) return false;
        unsigned char byte = *from->at++;
        if (shift == 63 && byte > 1) return false;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(struct bytes *from, int count, uint64_t *out) {
    if (from->end - from->at < count) return false;
    uint64_t value = 0;
    for (int i = 0; i < count; i++) value |= (uint64_t)from->at[i] << (8 * i);
    from->at += count;
    *out = value;
    return true;
}

/* Reads the next item of a message; groups (wire types 3 and 4), which ONNX never had, are malformed. */
static bool read_item(struct bytes *from, struct item *item) {
    uint64_t tag, length;
    if (!read_varint(from, &tag) || tag >> 3 == 0 || tag > UINT32_MAX) return false;
    item->number = tag >> 3;
    item->wire = (enum wire)(tag & 7);
    switch (item->wire) {
    case WIRE_VARINT: return read_varint(from, &item->value);
    case WIRE_64: return read_fixed(from, 8, &item->value);
    case WIRE_32: return read_fixed(from, 4, &item->value);
    case WIRE_BYTES: break;
    default: return false;
    }
    if (!read_varint(from, &length) || length > (uint64_t)(from->end - from->at)) return false;
    item->content = (struct bytes){from->at, from->at + length};
    from->at += length;
    return true;
}

/* Takes the next element of a repeated numeric field, packed or not; false at its end, or if malformed (*malformed). */
static bool next_number(struct item *item, enum wire wire, uint64_t *out, bool *malformed) {
    if (item->wire == wire) { /* not packed: the item is one element */
        *out = item->value;
        item->wire = WIRE_BYTES;
        item->content.at = item->content.end = NULL;
        return true;
    }
    if (item->wire != WIRE_BYTES) *malformed = true;
    if (*malformed || item->content.at == item->content.end) return false;
    bool ok = wire == WIRE_VARINT ? read_varint(&item->content, out)
                                  : read_fixed(&item->content, wire == WIRE_64 ? 8 : 4, out);
    *malformed = !ok;
    return ok;
}

/* The typed field that may have a type's elements instead of raw_data, and its encoding. */
struct typed_field {
    enum field field;
    enum wire wire;
};

static struct typed_field typed_field_of(enum rt_dtype dtype) {
    switch (dtype) {
    case RT_F32: return (struct typed_field){FIELD_FLOAT_DATA, WIRE_32};
    case RT_F64: return (struct typed_field){FIELD_DOUBLE_DATA, WIRE_64};
    case RT_I64: return (struct typed_field){FIELD_INT64_DATA, WIRE_VARINT};
    case RT_U64:
    case RT_U32: return (struct typed_field){FIELD_UINT64_DATA, WIRE_VARINT};
    default: return (struct typed_field){FIELD_INT32_DATA, WIRE_VARINT};
    }
}

/* Result of one walk over the message. */
struct message {
    struct rt_tensor *tensor;
    int64_t data_type;
    bool seen[FIELDS];
    struct bytes raw;
    struct rt_reason *why;
};

static bool take_dims(struct message *m, struct item *item) {
    uint64_t value;
    bool malformed = false;
    while (next_number(item, WIRE_VARINT, &value, &malformed)) {
        if (m->tensor->ndim == RT_MAX_NDIM) return rt_refuse(m->why, "more than %d dimensions", RT_MAX_NDIM);
        if (value > INT64_MAX) return rt_refuse(m->why, "negative dimension %" PRId64, (int64_t)value);
        m->tensor->dims[m->tensor->ndim++] = (int64_t)value;
    }
    return !malformed || rt_refuse(m->why, "not an ONNX tensor: malformed dims");
}

static bool take_item(struct message *m, struct item *item) {
    if (item->number >= FIELDS) return true;
    m->seen[item->number] = true;
    if (item->number == FIELD_DIMS) return take_dims(m, item);
    if (item->number == FIELD_DATA_TYPE || item->number == FIELD_DATA_LOCATION) {
        if (item->wire != WIRE_VARINT) return rt_refuse(m->why, "not an ONNX tensor: malformed field");
        if (item->number == FIELD_DATA_TYPE) m->data_type = (int64_t)item->value;
        if (item->number == FIELD_DATA_LOCATION && item->value != 0)
            return rt_refuse(m->why, "tensor with external data is not supported here");
    }
    if (item->number == FIELD_RAW_DATA) {
        if (item->wire != WIRE_BYTES) return rt_refuse(m->why, "not an ONNX tensor: malformed raw_data");
        m->raw = item->content;
    }
    return true;
}

static bool survey(struct message *m, const void *file, size_t bytes) {
    struct bytes from = {file, (const unsigned char *)file + bytes};
    while (from.at < from.end) {
        struct item item;
        if (!read_item(&from, &item))
            return rt_refuse(m->why, "not an ONNX tensor: malformed protobuf near byte %td",
                             from.at - (const unsigned char *)file);
        if (!take_item(m, &item)) return false;
    }
    if (m->seen[FIELD_SEGMENT]) return rt_refuse(m->why, "tensor in segments is not supported");
    if (m->seen[FIELD_EXTERNAL_DATA]) return rt_refuse(m->why, "tensor with external data is not supported here");
    if (!m->seen[FIELD_DATA_TYPE]) return rt_refuse(m->why, "not an ONNX tensor: no data_type");
    if (m->data_type >= 0 && m->data_type <= INT32_MAX)
        m->tensor->dtype = rt_dtype_by_onnx((int)m->data_type);
    else
        m->tensor->dtype = RT_DTYPE_NONE;
    return m->tensor->dtype != RT_DTYPE_NONE ||
           rt_refuse(m->why, "tensor data_type %" PRId64 " is not supported", m->data_type);
}

/* Types of fewer than 8 bits are packed in both raw_data and int32_data, but there those of 6 bits are not. */
static bool is_packed(const struct message *m) {
    const int bits = rt_dtype_bits(m->tensor->dtype);
    return bits < 8 && (bits < 6 || m->raw.at != m->raw.end);
}

/* Elements, or bytes of packed elements. */
static int64_t stored_count(const struct message *m) {
    const int bits = rt_dtype_bits(m->tensor->dtype);
    return is_packed(m) ? m->tensor->count / 8 * bits + (m->tensor->count % 8 * bits + 7) / 8 : m->tensor->count;
}

/* Stores one element of a typed field at `out`; false if it is out of the type's range. 16-bit floats and codes are
 * bit patterns. */
static bool store_number(unsigned char *out, enum rt_dtype dtype, uint64_t value) {
    int64_t number = (int64_t)value;
    switch (dtype) {
    case RT_I32:
        if (number != (int32_t)number) return false;
        break;
    case RT_I16:
        if (number != (int16_t)number) return false;
        break;
    case RT_I8:
        if (number != (int8_t)number) return false;
        break;
    case RT_U32:
        if (value > UINT32_MAX) return false;
        break;
    case RT_U16:
    case RT_F16:
    case RT_BF16:
        if (value > UINT16_MAX) return false;
        break;
    case RT_U8:
        if (value > UINT8_MAX) return false;
        break;
    case RT_BOOL: value = value != 0; break;
    case RT_E3M2:
    case RT_E2M3: value &= 0x3f; break;
    default: break;
    }
    for (size_t i = 0; i < rt_dtype_bytes(dtype); i++) out[i] = (unsigned char)(value >> (8 * i));
    return true;
}

static bool take_typed(struct message *m, struct item *item, enum wire wire, int64_t *done) {
    struct rt_tensor *t = m->tensor;
    unsigned char *out = (unsigned char *)t->owned + (is_packed(m) ? t->count : 0);
    uint64_t value;
    bool malformed = false;
    while (next_number(item, wire, &value, &malformed)) {
        if (*done == stored_count(m))
            return rt_refuse(m->why, "more elements than the %" PRId64 " of its shape", t->count);
        if (!store_number(out + (size_t)*done * rt_dtype_bytes(t->dtype), t->dtype, value))
            return rt_refuse(m->why, "element %" PRId64 " does not fit its type", *done);
        (*done)++;
    }
    return !malformed || rt_refuse(m->why, "not an ONNX tensor: malformed elements");
}

static bool fill_typed(struct message *m, const void *file, size_t bytes) {
    struct typed_field typed = typed_field_of(m->tensor->dtype);
    struct bytes from = {file, (const unsigned char *)file + bytes};
    struct item item;
    int64_t done = 0;
    while (from.at < from.end && read_item(&from, &item))
        if (item.number == typed.field && !take_typed(m, &item, typed.wire, &done)) return false;
    return done == stored_count(m) ||
           rt_refuse(m->why, "the shape has %" PRId64 " element(s), but the data has %" PRId64, m->tensor->count, done);
}

static bool fill_raw(struct message *m) {
    struct rt_tensor *t = m->tensor;
    uint64_t needed = (uint64_t)stored_count(m) * rt_dtype_bytes(t->dtype), there = (uint64_t)(m->raw.end - m->raw.at);
    if (needed != there)
        return rt_refuse(m->why, "the tensor needs %" PRIu64 " bytes, but raw_data has %" PRIu64, needed, there);
    if (there > 0) memcpy((unsigned char *)t->owned + (is_packed(m) ? t->count : 0), m->raw.at, there);
    unsigned char *truth = t->owned;
    for (uint64_t i = 0; t->dtype == RT_BOOL && i < there; i++) truth[i] = truth[i] != 0;
    return true;
}

/* Each element takes at least 2 bits of the file, so the file's size bounds the shape before memory is allocated.
 * Packed elements lie behind the room for the tensor's bytes until they are unpacked. */
static bool allocate(struct message *m, size_t file_bytes) {
    struct rt_tensor *t = m->tensor;
    if (!rt_product(t->dims, t->ndim, &t->count)) return rt_refuse(m->why, "the number of elements overflows");
    if ((uint64_t)stored_count(m) > file_bytes)
        return rt_refuse(m->why, "the shape has %" PRId64 " element(s), but the file only %zu bytes", t->count,
                         file_bytes);
    size_t bytes = (size_t)t->count * rt_dtype_bytes(t->dtype) + (is_packed(m) ? (size_t)stored_count(m) : 0);
    t->data = t->owned = calloc(bytes > 0 ? bytes : 1, 1);
    return t->owned || rt_refuse_memory(m->why, bytes);
}

bool rt_tensor_pb_parse(struct rt_tensor *out, const void *file, size_t bytes, struct rt_reason *why) {
    memset(out, 0, sizeof *out);
    struct message m = {.tensor = out, .why = why};
    if (!survey(&m, file, bytes)) return false;
    bool typed = m.seen[typed_field_of(out->dtype).field], raw = m.raw.at != m.raw.end;
    if (typed && raw) return rt_refuse(why, "the tensor has its data twice: raw_data and a typed field");
    if (!allocate(&m, bytes)) return false;
    bool filled = typed ? fill_typed(&m, file, bytes) : fill_raw(&m);
    if (!filled) rt_tensor_free(out);
    if (filled && is_packed(&m))
        rt_unpack(out->owned, (unsigned char *)out->owned + out->count, out->dtype, 0, (size_t)out->count);
    return filled;
}

bool rt_tensor_pb_read(struct rt_tensor *out, const char *path, struct rt_reason *why) {
    void *file;
    size_t bytes;
    if (!rt_file_read(path, SIZE_MAX / 2, &file, &bytes, why)) return false;
    bool ok = rt_tensor_pb_parse(out, file, bytes, why);
    free(file);
    return ok;
}
