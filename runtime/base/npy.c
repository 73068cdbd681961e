#include "npy.h"

#include "number/checked.h"
#include "io/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC_BYTES  6
#define HEADER_LIMIT ((size_t)1 << 20)

/* The header is a Python dictionary literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } */
struct cursor {
    const char *at, *end;
    struct rt_reason *why;
};

static void skip_space(struct cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static bool next_is(struct cursor *c, char wanted) {
    skip_space(c);
    if (c->at == c->end || *c->at != wanted) return false;
    c->at++;
    return true;
}

static bool expect(struct cursor *c, char wanted) {
    return next_is(c, wanted) || rt_refuse(c->why, "malformed .npy header: '%c' expected", wanted);
}

/* A quoted string without escapes, at most 31 bytes. */
static bool read_string(struct cursor *c, char out[32]) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return rt_refuse(c->why, "malformed .npy header: string expected");
    char quote = *c->at++;
    const char *end = memchr(c->at, quote, (size_t)(c->end - c->at));
    if (!end || end - c->at > 31 || memchr(c->at, '\\', (size_t)(end - c->at)))
        return rt_refuse(c->why, "malformed .npy header: bad string");
    size_t length = (size_t)(end - c->at);
    memcpy(out, c->at, length);
    out[length] = 0;
    c->at = end + 1;
    return true;
}

static bool read_word(struct cursor *c, const char *word) {
    skip_space(c);
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

static bool read_extent(struct cursor *c, int64_t *out) {
    int64_t value = 0;
    const char *first = c->at;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (!rt_mul(value, 10, &value) || !rt_add(value, *c->at - '0', &value))
            return rt_refuse(c->why, "malformed .npy header: extent does not fit in 64 bits");
    if (c->at == first) return rt_refuse(c->why, "malformed .npy header: extent expected");
    if (c->at < c->end && *c->at == 'L') c->at++; /* written by Python 2 */
    *out = value;
    return true;
}

static bool read_shape(struct cursor *c, struct rt_tensor *out) {
    if (!expect(c, '(')) return false;
    out->ndim = 0;
    while (!next_is(c, ')')) {
        if (out->ndim == RT_MAX_NDIM) return rt_refuse(c->why, "more than %d dimensions", RT_MAX_NDIM);
        skip_space(c);
        if (!read_extent(c, &out->dims[out->ndim++])) return false;
        if (next_is(c, ',')) continue;
        if (!expect(c, ')')) return false;
        break;
    }
    return true;
}

static bool read_descr(struct cursor *c, struct rt_tensor *out) {
    char descr[32];
    skip_space(c);
    if (c->at < c->end && *c->at == '[') return rt_refuse(c->why, "structured .npy types are not supported");
    if (!read_string(c, descr)) return false;
    out->dtype = rt_dtype_by_npy(descr);
    if (out->dtype != RT_DTYPE_NONE) return true;
    if (descr[0] == '>') return rt_refuse(c->why, "big-endian .npy files are not supported");
    return rt_refuse(c->why, ".npy type '%s' is not supported", rt_quote_text(descr).text);
}

static bool read_order(struct cursor *c) {
    if (read_word(c, "False")) return true;
    if (read_word(c, "True"))
        return rt_refuse(c->why, "the array is stored in Fortran order, but C order is needed: "
                                 "numpy.ascontiguousarray makes it");
    return rt_refuse(c->why, "malformed .npy header: fortran_order is neither True nor False");
}

enum header_key { KEY_DESCR, KEY_ORDER, KEY_SHAPE, KEYS };

static bool read_member(struct cursor *c, struct rt_tensor *out, bool seen[KEYS]) {
    static const char *const names[KEYS] = {"descr", "fortran_order", "shape"};
    char key[32];
    if (!read_string(c, key)) return false;
    int k = 0;
    while (k < KEYS && strcmp(names[k], key) != 0) k++;
    if (k == KEYS || seen[k])
        return rt_refuse(c->why, "malformed .npy header: unexpected key '%s'", rt_quote_text(key).text);
    seen[k] = true;
    if (!expect(c, ':')) return false;
    if (k == KEY_DESCR) return read_descr(c, out);
    return k == KEY_ORDER ? read_order(c) : read_shape(c, out);
}

static bool read_dict(struct cursor *c, struct rt_tensor *out) {
    bool seen[KEYS] = {false};
    if (!expect(c, '{')) return false;
    while (!next_is(c, '}')) {
        if (!read_member(c, out, seen)) return false;
        if (next_is(c, ',')) continue;
        if (!expect(c, '}')) return false;
        break;
    }
    skip_space(c);
    if (c->at != c->end) return rt_refuse(c->why, "malformed .npy header: bytes after the dictionary");
    for (int k = 0; k < KEYS; k++)
        if (!seen[k]) return rt_refuse(c->why, "malformed .npy header: descr, fortran_order or shape is missing");
    return true;
}

static bool count_elements(struct rt_tensor *out, struct rt_reason *why) {
    int64_t bytes;
    if (rt_product(out->dims, out->ndim, &out->count) &&
        rt_mul(out->count, (int64_t)rt_dtype_bytes(out->dtype), &bytes))
        return true;
    return rt_refuse(why, "the number of elements overflows");
}

bool rt_npy_header(struct rt_tensor *out, size_t *data, const void *file, size_t bytes, struct rt_reason *why) {
    const unsigned char *at = file;
    if (bytes < MAGIC_BYTES + 2 || memcmp(at, "\x93NUMPY", MAGIC_BYTES) != 0) return rt_refuse(why, "not a .npy file");
    int version = at[6];
    if (version < 1 || version > 3 || at[7] != 0)
        return rt_refuse(why, ".npy version %d.%d is not supported", version, at[7]);
    size_t prefix = version == 1 ? 10 : 12;
    if (bytes < prefix) return rt_refuse(why, "truncated .npy header");
    size_t length = at[8] | (size_t)at[9] << 8;
    if (version > 1) length |= (size_t)at[10] << 16 | (size_t)at[11] << 24;
    if (length > HEADER_LIMIT) return rt_refuse(why, ".npy header of %zu bytes is too long", length);
    if (length > bytes - prefix) return rt_refuse(why, "truncated .npy header");

    memset(out, 0, sizeof *out);
    const char *text = (const char *)at + prefix;
    struct cursor c = {text, text + length, why};
    *data = prefix + length;
    return read_dict(&c, out) && count_elements(out, why);
}

/* Checks that the array fills the rest of the file. */
static bool check_size(const struct rt_tensor *array, uint64_t there, struct rt_reason *why) {
    const uint64_t needed = (uint64_t)array->count * rt_dtype_bytes(array->dtype);
    if (needed == there) return true;
    return rt_refuse(why, "the array needs %" PRIu64 " bytes of data, but the file has %" PRIu64, needed, there);
}

bool rt_npy_find(struct rt_tensor *out, int64_t *data, const struct rt_reader *reader, struct rt_reason *why) {
    const int64_t most = HEADER_LIMIT + 12; /* maximum of all versions */
    const size_t bytes = (size_t)(reader->info.bytes < most ? reader->info.bytes : most);
    size_t first;
    void *start = malloc(bytes + 1);
    if (!start) return rt_refuse_memory(why, bytes + 1);
    const bool ok = rt_reader_get(reader, 0, start, bytes, why) && rt_npy_header(out, &first, start, bytes, why);
    free(start);
    if (!ok) return false;
    *data = (int64_t)first;
    return check_size(out, (uint64_t)(reader->info.bytes - *data), why);
}

bool rt_npy_parse(struct rt_tensor *out, const void *file, size_t bytes, struct rt_reason *why) {
    size_t data;
    if (!rt_npy_header(out, &data, file, bytes, why) || !check_size(out, bytes - data, why)) return false;
    out->data = (char *)(uintptr_t)file + data;
    return true;
}

bool rt_npy_read(struct rt_tensor *out, const char *path, struct rt_reason *why) {
    void *bytes;
    size_t count;
    if (!rt_file_read(path, SIZE_MAX / 2, &bytes, &count, why)) return false;
    if (!rt_npy_parse(out, bytes, count, why)) {
        free(bytes);
        return false;
    }
    out->owned = bytes;
    return true;
}

double rt_tensor_element(const struct rt_tensor *t, int64_t i) {
    double value;
    rt_convert(&value, RT_F64, (const char *)t->data + i * (int64_t)rt_dtype_bytes(t->dtype), t->dtype, 1);
    return value;
}

void rt_tensor_free(struct rt_tensor *tensor) {
    free(tensor->owned);
    tensor->owned = tensor->data = NULL;
}

size_t rt_npy_format(char *out, enum rt_dtype dtype, int ndim, const int64_t *dims) {
    const size_t room = RT_NPY_HEADER_BYTES;
    size_t used = 10;
    used += (size_t)snprintf(out + used, room - used, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                             rt_dtypes[dtype].npy);
    for (int i = 0; i < ndim; i++)
        used +=
            (size_t)snprintf(out + used, room - used, "%s%" PRId64 "%s", i ? ", " : "", dims[i], ndim == 1 ? "," : "");
    used += (size_t)snprintf(out + used, room - used, "), }");
    size_t total = (size_t)rt_align((int64_t)used + 1, 64);
    memset(out + used, ' ', total - used);
    out[total - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)((total - 10) & 0xff);
    out[9] = (char)((total - 10) >> 8);
    return total;
}

bool rt_npy_write(const char *path, enum rt_dtype dtype, int ndim, const int64_t *dims, const void *data,
                  struct rt_reason *why) {
    char header[RT_NPY_HEADER_BYTES];
    int64_t count;
    if (ndim < 0 || ndim > RT_MAX_NDIM || !rt_product(dims, ndim, &count))
        return rt_refuse(why, "cannot write '%s': invalid shape", rt_quote_text(path).text);
    struct rt_piece pieces[2] = {{header, rt_npy_format(header, dtype, ndim, dims)},
                                 {data, (size_t)count * rt_dtype_bytes(dtype)}};
    return rt_file_write(path, pieces, 2, why);
}
