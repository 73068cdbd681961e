#include "frontend/read/onnx_data.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "ir/base/str.h"
#include "runtime/base/number/checked.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor data is little endian, and used where it lies"
#endif

enum { FIELD_FLOAT = 4, FIELD_INT32 = 5, FIELD_INT64 = 7, FIELD_RAW = 9, FIELD_DOUBLE = 10, FIELD_UINT64 = 11 };

/* By dtype: the data field of TensorProto that holds the elements if they are not in raw_data, and the range of a
 * varint in it. 16-bit floats and codes are bit patterns in int32_data; types of 4 and 2 bits are packed there as in
 * raw_data. Source: the comments of onnx.proto on int32_data and the
 * fields after it. */
static const struct typed {
    uint32_t field;
    int64_t low, high;
} typed[RT_DTYPE_COUNT] = {[RT_F32] = {FIELD_FLOAT, 0, 0},
                           [RT_F64] = {FIELD_DOUBLE, 0, 0},
                           [RT_F16] = {FIELD_INT32, INT16_MIN, UINT16_MAX},
                           [RT_BF16] = {FIELD_INT32, INT16_MIN, UINT16_MAX},
                           [RT_I64] = {FIELD_INT64, INT64_MIN, INT64_MAX},
                           [RT_I32] = {FIELD_INT32, INT32_MIN, UINT32_MAX},
                           [RT_I16] = {FIELD_INT32, INT16_MIN, UINT16_MAX},
                           [RT_I8] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_U64] = {FIELD_UINT64, INT64_MIN, INT64_MAX},
                           [RT_U32] = {FIELD_UINT64, 0, UINT32_MAX},
                           [RT_U16] = {FIELD_INT32, 0, UINT16_MAX},
                           [RT_U8] = {FIELD_INT32, 0, UINT8_MAX},
                           [RT_BOOL] = {FIELD_INT32, 0, 1},
                           [RT_E4M3FN] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_E4M3FNUZ] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_E5M2] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_E5M2FNUZ] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_E8M0] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_E3M2] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_E2M3] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_E2M1] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_I4] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_U4] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_I2] = {FIELD_INT32, INT8_MIN, UINT8_MAX},
                           [RT_U2] = {FIELD_INT32, INT8_MIN, UINT8_MAX}};

/* A TensorProto whose type, shape and place of data are being worked out into `out`. */
struct resolver {
    struct onnx_model *model;
    const Onnx__TensorProto *proto;
    const struct onnx_place *place;
    struct onnx_tensor *out;
    const struct onnx_span *spans;
    int nspans;
};

const char *onnx_type_name(int number) {
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&onnx__tensor_proto__data_type__descriptor, number);
    return value && number > 0 ? value->name : NULL;
}

const char *onnx_place_text(struct onnx_model *model, const struct onnx_place *place) {
    if (place->text) return place->text;
    const char *text =
        place->node ? onnx_where_node(model, place->node, place->index) : onnx_where(model, place->what, place->name);
    if (!place->inside) return text;
    const char *outer = onnx_where(model, place->inside, place->inner);
    return arena_printf(model->arena, "%s%s", outer, text + strlen(model->place));
}

static const char *where(const struct resolver *resolver) {
    return onnx_place_text(resolver->model, resolver->place);
}

static const char *quoted(const struct resolver *resolver) {
    return diag_quote(resolver->model->diags, onnx_text(resolver->proto->name));
}

#define FAIL(resolver, code, ...)                                                                                      \
    diag_error((resolver)->model->diags, code, EXIT_MALFORMED, where(resolver), __VA_ARGS__)

static const char *dims_text(struct arena *arena, const int64_t *dims, int ndim) {
    struct strbuf text = {.arena = arena};
    for (int i = 0; i < ndim; i++) strbuf_printf(&text, "%s%" PRId64, i ? "," : "[", dims[i]);
    strbuf_puts(&text, ndim ? "]" : "scalar");
    return strbuf_text(&text);
}

static int wrong_size(const struct resolver *resolver, uint64_t has) {
    const struct onnx_tensor *out = resolver->out;
    return FAIL(resolver, 353, "%s %s %s needs %" PRIu64 " bytes, but has %" PRIu64, quoted(resolver),
                onnx_type_name(resolver->proto->data_type), dims_text(resolver->model->arena, out->dims, out->ndim),
                out->bytes, has);
}

static int file_changed(const struct resolver *resolver) {
    return onnx_file_refuse(resolver->model, &resolver->model->files.at[resolver->out->file]);
}

int onnx_dims_check(struct onnx_model *model, const int64_t *dims, size_t ndim, const char *name,
                    const struct onnx_place *place, int64_t *count) {
    size_t bad = 0;
    while (bad < ndim && dims[bad] >= 0) bad++;
    if (ndim <= ONNX_DIMS && bad == ndim && rt_product(dims, (int)ndim, count)) return 0;
    const char *at = onnx_place_text(model, place), *tensor = diag_quote(model->diags, onnx_text(name));
    if (ndim > ONNX_DIMS)
        return diag_error(model->diags, 506, EXIT_LIMIT, at, "%s has %zu dimension(s), at most %d are supported",
                          tensor, ndim, ONNX_DIMS);
    if (bad < ndim)
        return diag_error(model->diags, 352, EXIT_MALFORMED, at, "%s: dimension %zu is %" PRId64, tensor, bad,
                          dims[bad]);
    return diag_error(model->diags, 351, EXIT_MALFORMED, at, "tensor %s: element count overflows", tensor);
}

static int resolve_shape(struct resolver *resolver) {
    const Onnx__TensorProto *proto = resolver->proto;
    struct onnx_tensor *out = resolver->out;
    if (proto->segment)
        return FAIL(resolver, 357, "%s is a segment of a tensor, which is not allowed here", quoted(resolver));
    if (!onnx_type_name(proto->data_type))
        return FAIL(resolver, 356, "%s: unknown element type %" PRId32, quoted(resolver), proto->data_type);
    if (onnx_dims_check(resolver->model, proto->dims, proto->n_dims, proto->name, resolver->place, &out->count))
        return -1;
    out->ndim = (int)proto->n_dims;
    if (out->ndim) memcpy(out->dims, proto->dims, proto->n_dims * sizeof *out->dims);
    out->dtype = rt_dtype_by_onnx(proto->data_type);
    int64_t bits = 0;
    if (out->dtype != RT_DTYPE_NONE && (!rt_mul(out->count, rt_dtype_bits(out->dtype), &bits) || bits > INT64_MAX - 7))
        return FAIL(resolver, 351, "tensor %s: element count overflows", quoted(resolver));
    out->bits = out->dtype == RT_DTYPE_NONE ? 0 : rt_dtype_bits(out->dtype);
    out->bytes = (uint64_t)(bits + 7) / 8;
    return 0;
}

enum key { KEY_LOCATION, KEY_OFFSET, KEY_LENGTH, KEY_CHECKSUM, KEYS };
static const char *const key_names[KEYS] = {"location", "offset", "length", "checksum"};

static int read_keys(const struct resolver *resolver, const char *values[KEYS]) {
    for (size_t i = 0; i < resolver->proto->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = resolver->proto->external_data[i];
        int key = 0;
        while (key < KEYS && strcmp(onnx_text(entry->key), key_names[key]) != 0) key++;
        if (key == KEYS)
            return FAIL(resolver, 367, "external data of %s has an unknown key %s", quoted(resolver),
                        diag_quote(resolver->model->diags, onnx_text(entry->key)));
        if (values[key])
            return FAIL(resolver, 367, "external data of %s gives %s twice", quoted(resolver), key_names[key]);
        values[key] = onnx_text(entry->value);
    }
    if (values[KEY_LOCATION]) return 0;
    return FAIL(resolver, 364, "external data of %s has no location", quoted(resolver));
}

/* Parses a decimal number: 0, -1 if the text is not a number, 1 if the number does not fit int64_t. */
static int parse_decimal(const char *text, uint64_t *value) {
    *value = 0;
    if (!*text) return -1;
    if (strspn(text, "0123456789") != strlen(text)) return -1;
    for (; *text; text++)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *text - '0', value) ||
            *value > INT64_MAX)
            return 1;
    return 0;
}

static int read_offset(const struct resolver *resolver, const char *text, uint64_t *offset) {
    *offset = 0;
    if (!text || parse_decimal(text, offset) == 0) return 0;
    return FAIL(resolver, 365, "external data of %s: offset %s is not a valid number", quoted(resolver),
                diag_quote(resolver->model->diags, text));
}

/* A length that is negative or too large becomes UINT64_MAX, which the comparison with the file's size refuses. */
static int read_length(const struct resolver *resolver, const char *text, uint64_t *length) {
    *length = resolver->out->bytes;
    if (!text) return 0;
    int status = parse_decimal(text[0] == '-' ? text + 1 : text, length);
    if (status < 0)
        return FAIL(resolver, 365, "external data of %s: length %s is not a valid number", quoted(resolver),
                    diag_quote(resolver->model->diags, text));
    if (status > 0 || text[0] == '-') *length = UINT64_MAX;
    return 0;
}

static int check_checksum(const struct resolver *resolver, const char *checksum) {
    if (!checksum) return 0;
    const char *sha1 = onnx_file_sha1(resolver->model, resolver->out->file);
    if (!sha1) return file_changed(resolver);
    if (strcasecmp(checksum, sha1) == 0) return 0;
    return diag_error(resolver->model->diags, 368, EXIT_MISMATCH, where(resolver),
                      "checksum of the external data of %s is %s, not %s", quoted(resolver), sha1,
                      diag_quote(resolver->model->diags, checksum));
}

static int resolve_external(struct resolver *resolver) {
    const char *values[KEYS] = {0};
    struct onnx_tensor *out = resolver->out;
    uint64_t length;
    if (resolver->nspans)
        return FAIL(resolver, 354, "%s has both external data and data in the model", quoted(resolver));
    if (read_keys(resolver, values) || read_offset(resolver, values[KEY_OFFSET], &out->offset) ||
        read_length(resolver, values[KEY_LENGTH], &length))
        return -1;
    out->file = onnx_external_file(resolver->model, values[KEY_LOCATION], resolver->place);
    if (out->file < 0) return -1;
    uint64_t size = (uint64_t)resolver->model->files.at[out->file].bytes;
    if (out->offset > size || length > size - out->offset)
        return FAIL(resolver, 366, "external data of %s needs more bytes than the file has (%" PRIu64 ")",
                    quoted(resolver), size);
    out->in_file = true;
    return length == out->bytes ? check_checksum(resolver, values[KEY_CHECKSUM]) : wrong_size(resolver, length);
}

static int resolve_raw(struct resolver *resolver) {
    const struct onnx_span *raw = &resolver->spans[0];
    if (raw->bytes != resolver->out->bytes) return wrong_size(resolver, raw->bytes);
    resolver->out->in_file = true;
    resolver->out->offset = raw->offset;
    return 0;
}

static size_t fixed_bytes(uint32_t field) {
    return field == FIELD_FLOAT ? 4 : field == FIELD_DOUBLE ? 8 : 0;
}

/* The number of elements of a span, found without decoding them; -1: malformed. */
static int64_t span_count(const unsigned char *bytes, const struct onnx_span *span) {
    size_t fixed = fixed_bytes(span->field);
    if (fixed && !span->tagged) return span->bytes % fixed ? -1 : (int64_t)(span->bytes / fixed);
    int64_t count = 0;
    for (uint64_t i = 0; i < span->bytes;) {
        while (span->tagged && i < span->bytes && bytes[i] & 0x80) i++;
        i += span->tagged;
        if (fixed)
            i += fixed;
        else
            for (int run = 1; i < span->bytes && bytes[i] & 0x80; i++)
                if (++run > 10) return -1;
        i += !fixed;
        if (i > span->bytes) return -1;
        count++;
    }
    return count;
}

static const unsigned char *bytes_at(struct onnx_model *model, int file, uint64_t offset, uint64_t bytes);

/* True if the elements lie in the file as raw_data would: one packed field of fixed-size elements. */
static bool is_plain(const struct resolver *resolver) {
    return resolver->nspans == 1 && !resolver->spans[0].tagged && resolver->out->bytes == resolver->spans[0].bytes &&
           fixed_bytes(resolver->spans[0].field) == rt_dtype_bytes(resolver->out->dtype);
}

static int resolve_typed(struct resolver *resolver) {
    const struct typed *row = &typed[resolver->out->dtype];
    int64_t count = 0;
    EACH(resolver->spans, resolver->nspans, i, const struct onnx_span *span) {
        if (span->field != row->field)
            return FAIL(resolver, 354, "%s has data in a field that does not store %s", quoted(resolver),
                        onnx_type_name(resolver->proto->data_type));
        const unsigned char *bytes = bytes_at(resolver->model, 0, span->offset, span->bytes);
        if (!bytes) return file_changed(resolver);
        int64_t more = span_count(bytes, span);
        if (more < 0) return FAIL(resolver, 302, "%s: bad packed field", quoted(resolver));
        count += more;
    }
    if (resolver->out->bits == 6) { /* in int32_data, elements of 6 bits are not packed */
        resolver->out->bits = 8;
        resolver->out->bytes = (uint64_t)resolver->out->count;
    }
    const uint64_t bytes = (uint64_t)count * rt_dtype_bytes(resolver->out->dtype);
    if (bytes != resolver->out->bytes) return wrong_size(resolver, bytes);
    resolver->out->in_file = is_plain(resolver);
    if (resolver->out->in_file) resolver->out->offset = resolver->spans[0].offset;
    return 0;
}

static int resolve_spans(struct resolver *resolver) {
    bool raw = false, other = false;
    for (int i = 0; i < resolver->nspans; i++) *(resolver->spans[i].field == FIELD_RAW ? &raw : &other) = true;
    if (raw && other) return FAIL(resolver, 354, "%s has both raw_data and typed data", quoted(resolver));
    if (raw && resolver->nspans > 1) return FAIL(resolver, 354, "%s has raw_data twice", quoted(resolver));
    return raw ? resolve_raw(resolver) : resolve_typed(resolver);
}

/* Fills `out` for an initializer whose value comes from another file (--weights-from): false if it does not. */
static bool find_elsewhere(const struct onnx_model *model, const Onnx__TensorProto *proto, struct onnx_tensor *out) {
    if (!model->elsewhere.n) return false;
    const int at = map_get(&model->elsewhere_index, (const char *)&proto, sizeof proto);
    if (at < 0) return false;
    const struct onnx_elsewhere *elsewhere = &model->elsewhere.at[at];
    out->declared = out->dtype;
    out->dtype = elsewhere->dtype;
    out->bits = (int)rt_dtype_bytes(out->dtype) * 8;
    out->bytes = (uint64_t)out->count * rt_dtype_bytes(out->dtype);
    out->in_file = true;
    out->file = elsewhere->file;
    out->offset = elsewhere->offset;
    out->transposed = elsewhere->transposed;
    return true;
}

/* Fills all of `out` but `data`. A valid element type that rankc does not support leaves out->dtype RT_DTYPE_NONE. */
static int resolve(struct resolver *resolver) {
    const Onnx__TensorProto *proto = resolver->proto;
    *resolver->out = (struct onnx_tensor){.dtype = RT_DTYPE_NONE, .name = onnx_text(proto->name)};
    resolver->nspans = (int)proto->span_count;
    resolver->spans = resolver->nspans ? &resolver->model->spans.all.at[proto->first_span] : NULL;
    if (resolve_shape(resolver)) return -1;
    if (resolver->out->dtype == RT_DTYPE_NONE || find_elsewhere(resolver->model, proto, resolver->out)) return 0;
    resolver->out->declared = resolver->out->dtype;
    if ((int)proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) return resolve_external(resolver);
    if ((int)proto->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT)
        return FAIL(resolver, 364, "%s: unknown data_location %d", quoted(resolver), (int)proto->data_location);
    return resolve_spans(resolver);
}

int onnx_tensor_check(struct onnx_model *model, const Onnx__TensorProto *proto, const struct onnx_place *place) {
    struct onnx_tensor unused;
    return resolve(&(struct resolver){.model = model, .proto = proto, .place = place, .out = &unused});
}

/* A pointer to bytes of a file, valid until onnx_close. Up to ONNX_COPIED bytes of a mapped file are copied, each range
 * once. NULL: the file was truncated. */
static const unsigned char *bytes_at(struct onnx_model *model, int file, uint64_t offset, uint64_t bytes) {
    const struct onnx_file *source = &model->files.at[file];
    if (!bytes) return (const unsigned char *)"";
    if (!source->mapped || bytes > ONNX_COPIED) return source->data + offset;
    uint64_t key[3] = {(uint64_t)file, offset, bytes};
    int known = map_get(&model->copies, (const char *)key, sizeof key);
    if (known >= 0) return model->copied.at[known];
    unsigned char *copy = arena_alloc(model->arena, bytes, 1);
    if (!onnx_copy(model, file, offset, copy, bytes)) return NULL;
    map_put(&model->copies, (const char *)key, sizeof key, model->copied.n);
    VEC_PUSH(model->arena, &model->copied, copy);
    return copy;
}

static bool read_varint(const unsigned char **at, const unsigned char *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; *at < end; shift += 7) {
        unsigned char byte = *(*at)++;
        if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return true;
    }
    return false;
}

static int bad_value(const struct resolver *resolver, int64_t value) {
    if (resolver->out->dtype == RT_BOOL)
        return FAIL(resolver, 358, "%s: a BOOL is 0 or 1, not %" PRId64, quoted(resolver), value);
    return FAIL(resolver, 355, "%s: value %" PRId64 " does not fit %s", quoted(resolver), value,
                onnx_type_name(resolver->proto->data_type));
}

/* Decodes one span to `to` + *done. Elements were counted before; the bounds are checked again, since the bytes of a
 * mapped file may have changed since. */
static int decode_span(const struct resolver *resolver, const struct onnx_span *span, unsigned char *to,
                       uint64_t *done) {
    const struct typed *row = &typed[resolver->out->dtype];
    size_t fixed = fixed_bytes(span->field), size = rt_dtype_bytes(resolver->out->dtype);
    const unsigned char *at = bytes_at(resolver->model, 0, span->offset, span->bytes);
    if (!at) return file_changed(resolver);
    for (const unsigned char *end = at + span->bytes; at < end; *done += size) {
        uint64_t value;
        bool room = *done + size <= resolver->out->bytes && (!span->tagged || read_varint(&at, end, &value));
        if (!room || (fixed ? (size_t)(end - at) < fixed : !read_varint(&at, end, &value)))
            return file_changed(resolver);
        if (!fixed && ((int64_t)value < row->low || (int64_t)value > row->high))
            return bad_value(resolver, (int64_t)value);
        memcpy(to + *done, fixed ? (const void *)at : &value, size);
        at += fixed;
    }
    return 0;
}

static int decode(const struct resolver *resolver) {
    unsigned char *to = arena_alloc(resolver->model->arena, resolver->out->bytes, 1);
    uint64_t done = 0;
    for (int i = 0; i < resolver->nspans; i++)
        if (decode_span(resolver, &resolver->spans[i], to, &done)) return -1;
    resolver->out->data = to;
    return 0;
}

static int check_bools(const struct resolver *resolver) {
    const unsigned char *bytes = resolver->out->data;
    for (uint64_t i = 0; i < resolver->out->bytes; i++)
        if (bytes[i] > 1) return bad_value(resolver, bytes[i]);
    return 0;
}

int onnx_tensor(struct onnx_model *model, const Onnx__TensorProto *proto, const char *at, struct onnx_tensor *out) {
    struct onnx_place place = {.text = at, .what = "tensor", .name = onnx_text(proto->name)};
    struct resolver resolver = {.model = model, .proto = proto, .place = &place, .out = out};
    if (resolve(&resolver)) return -1;
    if (out->dtype == RT_DTYPE_NONE)
        return diag_error(model->diags, 407, EXIT_UNSUPPORTED, where(&resolver), "dtype %s not supported: %s",
                          onnx_type_name(proto->data_type), quoted(&resolver));
    if (!out->bytes) return 0;
    if (!out->in_file) return decode(&resolver);
    out->data = bytes_at(model, out->file, out->offset, out->bytes);
    if (!out->data) return file_changed(&resolver);
    return out->dtype == RT_BOOL ? check_bools(&resolver) : 0;
}
