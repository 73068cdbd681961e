#include "safetensors.h"

#include "../number/checked.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX ((int64_t)100000000) /* limit of the reference implementation */

/* Type names: those of dtype.h in capitals, with these exceptions. Other types of quantised tensors have no name. */
static const struct {
    enum rt_dtype dtype;
    const char *text;
} exceptions[] = {{RT_F16, "F16"}, {RT_E4M3FN, "F8_E4M3"}, {RT_E5M2, "F8_E5M2"}, {RT_E8M0, "F8_E8M0"}};

struct dtype_text {
    char text[8];
};

/* "" if the format has no name for the type. */
static struct dtype_text text_of(enum rt_dtype dtype) {
    struct dtype_text out = {""};
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (exceptions[i].dtype == dtype) return snprintf(out.text, sizeof out.text, "%s", exceptions[i].text), out;
    const char *name = rt_dtypes[dtype].name;
    for (size_t i = 0; !rt_dtype_is_code(dtype) && i + 1 < sizeof out.text && name[i]; i++)
        out.text[i] = (char)toupper((unsigned char)name[i]);
    return out;
}

static enum rt_dtype dtype_of(const char *text) {
    for (int t = 0; t < RT_DTYPE_COUNT; t++)
        if (*text && strcmp(text_of((enum rt_dtype)t).text, text) == 0) return (enum rt_dtype)t;
    return RT_DTYPE_NONE;
}

static bool read_shape(struct rt_safetensor *tensor, const struct rt_json *shape, struct rt_reason *why) {
    const struct rt_quoted name = rt_quote_text(tensor->name);
    if (!shape || shape->kind != RT_JSON_ARRAY || shape->count > RT_MAX_NDIM)
        return rt_refuse(why, "tensor '%s' must have a shape of at most %d dimensions", name.text, RT_MAX_NDIM);
    for (const struct rt_json *dim = shape->first; dim; dim = dim->next)
        if (!rt_json_int(dim, &tensor->dims[tensor->ndim++]) || tensor->dims[tensor->ndim - 1] < 0)
            return rt_refuse(why, "tensor '%s' has an invalid dimension", name.text);
    return true;
}

/* The tensor's byte range [*begin, *end), relative to the end of the header. */
static bool read_offsets(const struct rt_safetensor *tensor, const struct rt_json *offsets, int64_t *begin,
                         int64_t *end, struct rt_reason *why) {
    int64_t count, bytes;
    const bool pair = offsets && offsets->kind == RT_JSON_ARRAY && offsets->count == 2 &&
                      rt_json_int(offsets->first, begin) && rt_json_int(offsets->first->next, end);
    if (pair && *begin >= 0 && rt_product(tensor->dims, tensor->ndim, &count) &&
        rt_mul(count, (int64_t)rt_dtype_bytes(tensor->dtype), &bytes) && *end >= *begin && *end - *begin == bytes)
        return true;
    return rt_refuse(why, "the number of bytes of tensor '%s' does not match its shape",
                     rt_quote_text(tensor->name).text);
}

struct place {
    int64_t begin, end;
};

static bool read_tensor(struct rt_safetensor *tensor, struct place *place, const struct rt_json *entry,
                        struct rt_reason *why) {
    const char *dtype = rt_json_text(rt_json_member(entry, "dtype"));
    *tensor = (struct rt_safetensor){.name = entry->key};
    if (strlen(entry->key) != entry->key_bytes) return rt_refuse(why, "the name of a tensor contains a NUL byte");
    tensor->dtype = dtype ? dtype_of(dtype) : RT_DTYPE_NONE;
    if (tensor->dtype == RT_DTYPE_NONE)
        return rt_refuse(why, "tensor '%s' has an unknown data type", rt_quote_text(tensor->name).text);
    return read_shape(tensor, rt_json_member(entry, "shape"), why) &&
           read_offsets(tensor, rt_json_member(entry, "data_offsets"), &place->begin, &place->end, why);
}

static int by_begin(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Checks that the tensors cover all bytes behind the header exactly once. */
static bool check_cover(struct place *places, int64_t n, int64_t bytes, struct rt_reason *why) {
    int64_t at = 0;
    qsort(places, (size_t)n, sizeof *places, by_begin);
    for (int64_t i = 0; i < n; at = places[i++].end)
        if (places[i].begin != at) return rt_refuse(why, "the tensors overlap or have gaps between them");
    if (at == bytes) return true;
    return rt_refuse(why, "the tensors have %lld bytes, but the file has %lld", (long long)at, (long long)bytes);
}

/* Parses the tensor entries. The data has `bytes` bytes, at offset `end` of the file, and is at `data`; NULL: not in
 * memory. */
static bool read_tensors(struct rt_safetensors *out, const unsigned char *data, int64_t end, int64_t bytes,
                         struct rt_reason *why) {
    const struct rt_json *root = rt_json_root(out->header);
    const size_t room = (size_t)root->count + 1;
    struct place *places = malloc(room * sizeof *places);
    bool ok = places != NULL && (out->at = calloc(room, sizeof *out->at)) != NULL;
    if (!ok) rt_refuse_memory(why, room * sizeof *out->at);
    for (const struct rt_json *entry = root->first; entry && ok; entry = entry->next) {
        if (strcmp(entry->key, "__metadata__") == 0) {
            out->metadata = entry;
            continue;
        }
        struct rt_safetensor *tensor = &out->at[out->n];
        ok = read_tensor(tensor, &places[out->n], entry, why);
        if (!ok) break;
        const int64_t begin = places[out->n].begin <= bytes ? places[out->n].begin : bytes;
        tensor->data = data ? data + begin : NULL;
        tensor->offset = end + begin;
        tensor->bytes = places[out->n].end - places[out->n].begin;
        out->n++;
    }
    ok = ok && check_cover(places, out->n, bytes, why);
    free(places);
    return ok;
}

/* Length of the header, from the first eight bytes of a file of `bytes` bytes. */
static bool read_length(const unsigned char *first, int64_t bytes, int64_t *length, struct rt_reason *why) {
    uint64_t value = 0;
    for (int i = 7; i >= 0 && bytes >= 8; i--) value = value << 8 | first[i];
    *length = (int64_t)value;
    if (bytes >= 8 && value <= (uint64_t)HEADER_MAX && value <= (uint64_t)bytes - 8) return true;
    return rt_refuse(why, "the header of the safetensors file exceeds the file or the size limit");
}

/* Parses a header of `length` bytes of a file of `bytes` bytes; the data is at `data`, or NULL. */
static bool read_header(struct rt_safetensors *out, const char *header, int64_t length, const unsigned char *data,
                        int64_t bytes, struct rt_reason *why) {
    out->header = rt_json_parse(header, (size_t)length, why);
    if (!out->header) return false;
    bool ok = rt_json_root(out->header)->kind == RT_JSON_OBJECT;
    if (!ok) rt_refuse(why, "the header of the safetensors file is not a JSON object");
    ok = ok && read_tensors(out, data, 8 + length, bytes - 8 - length, why);
    if (!ok) rt_safetensors_free(out);
    return ok;
}

bool rt_safetensors_parse(struct rt_safetensors *out, const void *file, size_t bytes, struct rt_reason *why) {
    const unsigned char *at = file;
    int64_t length;
    *out = (struct rt_safetensors){0};
    return read_length(at, (int64_t)bytes, &length, why) &&
           read_header(out, (const char *)at + 8, length, at + 8 + length, (int64_t)bytes, why);
}

bool rt_safetensors_read_hashed(struct rt_safetensors *out, const struct rt_reader *file, char hex[RT_HASH_HEX],
                                struct rt_reason *why) {
    const int64_t bytes = file->info.bytes;
    unsigned char first[8];
    int64_t length;
    *out = (struct rt_safetensors){0};
    if (!rt_reader_get(file, 0, first, bytes < 8 ? (size_t)bytes : sizeof first, why) ||
        !read_length(first, bytes, &length, why))
        return false;
    char *header = malloc((size_t)length + 8);
    if (!header) return rt_refuse_memory(why, (size_t)length + 8);
    bool ok = rt_reader_get(file, 8, header + 8, (size_t)length, why);
    memcpy(header, first, sizeof first);
    if (ok) rt_hash_bytes(header, (size_t)length + 8, hex);
    ok = ok && read_header(out, header + 8, length, NULL, bytes, why);
    free(header);
    return ok;
}

bool rt_safetensors_read(struct rt_safetensors *out, const struct rt_reader *file, struct rt_reason *why) {
    char hex[RT_HASH_HEX];
    return rt_safetensors_read_hashed(out, file, hex, why);
}

void rt_safetensors_free(struct rt_safetensors *file) {
    rt_json_free(file->header);
    free(file->at);
    *file = (struct rt_safetensors){0};
}

const struct rt_safetensor *rt_safetensors_find(const struct rt_safetensors *file, const char *name) {
    for (int64_t i = 0; i < file->n; i++)
        if (strcmp(file->at[i].name, name) == 0) return &file->at[i];
    return NULL;
}

static void put_tensor(struct rt_json_writer *writer, const struct rt_safetensor *tensor, int64_t begin) {
    rt_json_key_open(writer, tensor->name, '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "dtype", text_of(tensor->dtype).text);
    rt_json_key_dims(writer, "shape", tensor->dims, tensor->ndim);
    rt_json_key_dims(writer, "data_offsets", (int64_t[]){begin, begin + tensor->bytes}, 2);
    rt_json_close(writer, '}');
}

/* Prefixes the text with its length and pads it with blanks, so that the data is aligned. */
static char *frame(const struct rt_json_writer *writer, size_t *bytes, struct rt_reason *why) {
    const size_t length = (size_t)rt_align((int64_t)writer->bytes, 8);
    char *header = malloc(8 + length);
    if (!header) return rt_refuse_memory(why, 8 + length), NULL;
    for (int i = 0; i < 8; i++) header[i] = (char)(length >> 8 * i & 0xff);
    memcpy(header + 8, writer->text, writer->bytes);
    memset(header + 8 + writer->bytes, ' ', length - writer->bytes);
    *bytes = 8 + length;
    return header;
}

char *rt_safetensors_header(const struct rt_safetensor *tensors, int64_t n,
                            const struct rt_safetensors_metadata *metadata, size_t *bytes, struct rt_reason *why) {
    struct rt_json_writer writer;
    int64_t at = 0;
    rt_json_start(&writer);
    rt_json_open(&writer, '{', RT_JSON_INLINE);
    if (metadata) {
        rt_json_key_open(&writer, "__metadata__", '{', RT_JSON_INLINE);
        metadata->put(&writer, metadata->context);
        rt_json_close(&writer, '}');
    }
    for (int64_t i = 0; i < n; at += tensors[i++].bytes) put_tensor(&writer, &tensors[i], at);
    rt_json_close(&writer, '}');
    char *header = rt_json_end(&writer, why) ? frame(&writer, bytes, why) : NULL;
    rt_json_discard(&writer);
    return header;
}
