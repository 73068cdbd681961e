#include "frontend/read/onnx_data.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "ir/base/str.h"
#include "runtime/base/checked.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor data is little endian, and used where it lies"
#endif

enum { FIELD_FLOAT = 4, FIELD_INT32 = 5, FIELD_INT64 = 7, FIELD_RAW = 9, FIELD_DOUBLE = 10, FIELD_UINT64 = 11 };

/* The data field that holds elements of a type when they are not raw, and the values a varint may have there:
 * 16-bit floats are bit patterns in int32_data. Source: the comments of onnx.proto on int32_data and its
 * neighbours. */
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
                           [RT_BOOL] = {FIELD_INT32, 0, 1}};

/* A tensor while it is looked at. */
struct look {
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

static const char *where(const struct look *look) {
    return onnx_place_text(look->model, look->place);
}

static const char *quoted(const struct look *look) {
    return diag_quote(look->model->diags, onnx_text(look->proto->name));
}

#define FAIL(look, code, ...) diag_error((look)->model->diags, code, EXIT_MALFORMED, where(look), __VA_ARGS__)

static const char *dims_text(struct arena *arena, const int64_t *dims, int ndim) {
    struct strbuf text;
    strbuf_init(&text, arena);
    for (int i = 0; i < ndim; i++) strbuf_printf(&text, "%s%" PRId64, i ? "," : "[", dims[i]);
    strbuf_puts(&text, ndim ? "]" : "scalar");
    return strbuf_text(&text);
}

static int wrong_size(const struct look *look, uint64_t has) {
    const struct onnx_tensor *out = look->out;
    return FAIL(look, 353, "%s %s %s needs %" PRIu64 " bytes, has %" PRIu64, quoted(look),
                onnx_type_name(look->proto->data_type), dims_text(look->model->arena, out->dims, out->ndim), out->bytes,
                has);
}

static int file_changed(const struct look *look) {
    return onnx_file_refuse(look->model, &look->model->files.at[look->out->file]);
}

/* ---- shape and type ---- */

int onnx_dims_check(struct onnx_model *model, const int64_t *dims, size_t ndim, const char *name,
                    const struct onnx_place *place, int64_t *count) {
    size_t bad = 0;
    while (bad < ndim && dims[bad] >= 0) bad++;
    if (ndim <= ONNX_DIMS && bad == ndim && rt_product(dims, (int)ndim, count)) return 0;
    const char *at = onnx_place_text(model, place), *tensor = diag_quote(model->diags, onnx_text(name));
    if (ndim > ONNX_DIMS)
        return diag_error(model->diags, 506, EXIT_LIMIT, at, "%s has %zu dimensions, at most %d are supported", tensor,
                          ndim, ONNX_DIMS);
    if (bad < ndim)
        return diag_error(model->diags, 352, EXIT_MALFORMED, at, "%s: dimension %zu is %" PRId64, tensor, bad,
                          dims[bad]);
    return diag_error(model->diags, 351, EXIT_MALFORMED, at, "tensor %s: element count overflows", tensor);
}

static int look_at_shape(struct look *look) {
    const Onnx__TensorProto *proto = look->proto;
    struct onnx_tensor *out = look->out;
    if (proto->segment) return FAIL(look, 357, "%s is a segment of a tensor", quoted(look));
    if (!onnx_type_name(proto->data_type))
        return FAIL(look, 356, "%s: there is no element type %" PRId32, quoted(look), proto->data_type);
    if (onnx_dims_check(look->model, proto->dims, proto->n_dims, proto->name, look->place, &out->count)) return -1;
    out->ndim = (int)proto->n_dims;
    if (out->ndim) memcpy(out->dims, proto->dims, proto->n_dims * sizeof *out->dims);
    out->dtype = rt_dtype_by_onnx(proto->data_type);
    int64_t bytes = 0;
    if (out->dtype != RT_DTYPE_NONE && !rt_mul(out->count, (int64_t)rt_dtype_bytes(out->dtype), &bytes))
        return FAIL(look, 351, "tensor %s: element count overflows", quoted(look));
    out->bytes = (uint64_t)bytes;
    return 0;
}

/* ---- external data ---- */

enum key { KEY_LOCATION, KEY_OFFSET, KEY_LENGTH, KEY_CHECKSUM, KEYS };
static const char *const key_names[KEYS] = {"location", "offset", "length", "checksum"};

static int read_keys(const struct look *look, const char *values[KEYS]) {
    for (size_t i = 0; i < look->proto->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = look->proto->external_data[i];
        int key = 0;
        while (key < KEYS && strcmp(onnx_text(entry->key), key_names[key]) != 0) key++;
        if (key == KEYS)
            return FAIL(look, 367, "external data of %s has an unknown key %s", quoted(look),
                        diag_quote(look->model->diags, onnx_text(entry->key)));
        if (values[key]) return FAIL(look, 367, "external data of %s gives %s twice", quoted(look), key_names[key]);
        values[key] = onnx_text(entry->value);
    }
    if (values[KEY_LOCATION]) return 0;
    return FAIL(look, 364, "external data of %s has no location", quoted(look));
}

/* A decimal number: 0, or -1 if the text is no number, or 1 if it is one that an int64_t cannot hold. */
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

static int read_offset(const struct look *look, const char *text, uint64_t *offset) {
    *offset = 0;
    if (!text || parse_decimal(text, offset) == 0) return 0;
    return FAIL(look, 365, "external data of %s: offset %s is not a valid number", quoted(look),
                diag_quote(look->model->diags, text));
}

/* A length that is too large or negative is left to the comparison with the file: UINT64_MAX. */
static int read_length(const struct look *look, const char *text, uint64_t *length) {
    *length = look->out->bytes;
    if (!text) return 0;
    int status = parse_decimal(text[0] == '-' ? text + 1 : text, length);
    if (status < 0)
        return FAIL(look, 365, "external data of %s: length %s is not a valid number", quoted(look),
                    diag_quote(look->model->diags, text));
    if (status > 0 || text[0] == '-') *length = UINT64_MAX;
    return 0;
}

static int check_checksum(const struct look *look, const char *checksum) {
    if (!checksum) return 0;
    const char *sha1 = onnx_file_sha1(look->model, look->out->file);
    if (!sha1) return file_changed(look);
    if (strcasecmp(checksum, sha1) == 0) return 0;
    return diag_error(look->model->diags, 368, EXIT_MISMATCH, where(look),
                      "checksum of the external data of %s is %s, not %s", quoted(look), sha1,
                      diag_quote(look->model->diags, checksum));
}

static int look_at_external(struct look *look) {
    const char *values[KEYS] = {0};
    struct onnx_tensor *out = look->out;
    uint64_t length;
    if (look->nspans) return FAIL(look, 354, "%s has both external data and data in the model", quoted(look));
    if (read_keys(look, values) || read_offset(look, values[KEY_OFFSET], &out->offset) ||
        read_length(look, values[KEY_LENGTH], &length))
        return -1;
    out->file = onnx_external_file(look->model, values[KEY_LOCATION], look->place);
    if (out->file < 0) return -1;
    uint64_t size = (uint64_t)look->model->files.at[out->file].bytes;
    if (out->offset > size || length > size - out->offset)
        return FAIL(look, 366, "external data of %s needs more bytes than the file has (%" PRIu64 ")", quoted(look),
                    size);
    out->in_file = true;
    return length == out->bytes ? check_checksum(look, values[KEY_CHECKSUM]) : wrong_size(look, length);
}

/* ---- data in the model ---- */

static int look_at_raw(struct look *look) {
    const struct onnx_span *raw = &look->spans[0];
    if (raw->bytes != look->out->bytes) return wrong_size(look, raw->bytes);
    look->out->in_file = true;
    look->out->offset = raw->offset;
    return 0;
}

static size_t fixed_bytes(uint32_t field) {
    return field == FIELD_FLOAT ? 4 : field == FIELD_DOUBLE ? 8 : 0;
}

/* The number of elements of a span, without reading their values. */
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

/* Packed floats lie in the file as raw data would. */
static bool is_plain(const struct look *look) {
    return look->nspans == 1 && !look->spans[0].tagged && look->out->bytes == look->spans[0].bytes &&
           fixed_bytes(look->spans[0].field) == rt_dtype_bytes(look->out->dtype);
}

static int look_at_typed(struct look *look) {
    const struct typed *row = &typed[look->out->dtype];
    int64_t count = 0;
    for (int i = 0; i < look->nspans; i++) {
        const struct onnx_span *span = &look->spans[i];
        if (span->field != row->field)
            return FAIL(look, 354, "%s has data in a field that is not for %s", quoted(look),
                        onnx_type_name(look->proto->data_type));
        const unsigned char *bytes = bytes_at(look->model, 0, span->offset, span->bytes);
        if (!bytes) return file_changed(look);
        int64_t more = span_count(bytes, span);
        if (more < 0) return FAIL(look, 302, "%s: bad packed field", quoted(look));
        count += more;
    }
    if (count != look->out->count) return wrong_size(look, (uint64_t)count * rt_dtype_bytes(look->out->dtype));
    look->out->in_file = is_plain(look);
    if (look->out->in_file) look->out->offset = look->spans[0].offset;
    return 0;
}

static int look_at_spans(struct look *look) {
    bool raw = false, other = false;
    for (int i = 0; i < look->nspans; i++) *(look->spans[i].field == FIELD_RAW ? &raw : &other) = true;
    if (raw && other) return FAIL(look, 354, "%s has both raw_data and typed data", quoted(look));
    if (raw && look->nspans > 1) return FAIL(look, 354, "%s has raw_data twice", quoted(look));
    return raw ? look_at_raw(look) : look_at_typed(look);
}

/* Fills `out` but for its data. An element type that is valid but not supported leaves RT_DTYPE_NONE. */
static int look_at(struct look *look) {
    const Onnx__TensorProto *proto = look->proto;
    *look->out = (struct onnx_tensor){.dtype = RT_DTYPE_NONE, .name = onnx_text(proto->name)};
    look->nspans = (int)proto->span_count;
    look->spans = look->nspans ? &look->model->spans.all.at[proto->first_span] : NULL;
    if (look_at_shape(look)) return -1;
    if (look->out->dtype == RT_DTYPE_NONE) return 0;
    if ((int)proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) return look_at_external(look);
    if ((int)proto->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT)
        return FAIL(look, 364, "%s: there is no data location %d", quoted(look), (int)proto->data_location);
    return look_at_spans(look);
}

int onnx_tensor_check(struct onnx_model *model, const Onnx__TensorProto *proto, const struct onnx_place *place) {
    struct onnx_tensor unused;
    return look_at(&(struct look){.model = model, .proto = proto, .place = place, .out = &unused});
}

/* ---- elements ---- */

/* Bytes of a file for as long as the model is open; small pieces of mapped files are copied, once per place. NULL:
 * the file was cut off. */
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

static int bad_value(const struct look *look, int64_t value) {
    if (look->out->dtype == RT_BOOL) return FAIL(look, 358, "%s: a BOOL is 0 or 1, not %" PRId64, quoted(look), value);
    return FAIL(look, 355, "%s: value %" PRId64 " does not fit %s", quoted(look), value,
                onnx_type_name(look->proto->data_type));
}

/* Decodes one span to out->data + *done. The elements were counted before, but in a mapping they may have changed.
 */
static int decode_span(const struct look *look, const struct onnx_span *span, unsigned char *to, uint64_t *done) {
    const struct typed *row = &typed[look->out->dtype];
    size_t fixed = fixed_bytes(span->field), size = rt_dtype_bytes(look->out->dtype);
    const unsigned char *at = bytes_at(look->model, 0, span->offset, span->bytes);
    if (!at) return file_changed(look);
    for (const unsigned char *end = at + span->bytes; at < end; *done += size) {
        uint64_t value;
        bool room = *done + size <= look->out->bytes && (!span->tagged || read_varint(&at, end, &value));
        if (!room || (fixed ? (size_t)(end - at) < fixed : !read_varint(&at, end, &value))) return file_changed(look);
        if (!fixed && ((int64_t)value < row->low || (int64_t)value > row->high)) return bad_value(look, (int64_t)value);
        memcpy(to + *done, fixed ? (const void *)at : &value, size);
        at += fixed;
    }
    return 0;
}

static int decode(const struct look *look) {
    unsigned char *to = arena_alloc(look->model->arena, look->out->bytes, 1);
    uint64_t done = 0;
    for (int i = 0; i < look->nspans; i++)
        if (decode_span(look, &look->spans[i], to, &done)) return -1;
    look->out->data = to;
    return 0;
}

static int check_bools(const struct look *look) {
    const unsigned char *bytes = look->out->data;
    for (uint64_t i = 0; i < look->out->bytes; i++)
        if (bytes[i] > 1) return bad_value(look, bytes[i]);
    return 0;
}

static int unsupported(const struct look *look) {
    return diag_error(look->model->diags, 407, EXIT_UNSUPPORTED, where(look), "dtype %s not supported: %s",
                      onnx_type_name(look->proto->data_type), quoted(look));
}

int onnx_tensor(struct onnx_model *model, const Onnx__TensorProto *proto, const char *at, struct onnx_tensor *out) {
    struct onnx_place place = {.text = at, .what = "tensor", .name = onnx_text(proto->name)};
    struct look look = {.model = model, .proto = proto, .place = &place, .out = out};
    if (look_at(&look)) return -1;
    if (out->dtype == RT_DTYPE_NONE) return unsupported(&look);
    if (!out->bytes) return 0;
    if (!out->in_file) return decode(&look);
    out->data = bytes_at(model, out->file, out->offset, out->bytes);
    if (!out->data) return file_changed(&look);
    return out->dtype == RT_BOOL ? check_bools(&look) : 0;
}
