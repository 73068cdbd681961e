/* The safetensors format (https://github.com/huggingface/safetensors), of untrusted files: eight bytes with the length
 * of a JSON header, the header, and the bytes of the tensors, which cover the rest without gaps or overlaps. */
#ifndef RT_BASE_SAFETENSORS_H
#define RT_BASE_SAFETENSORS_H

#include "dtype.h"
#include "file_reader.h"
#include "json.h"
#include "reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RT_SAFETENSORS_MAX_NDIM 8

/* A tensor of a file. */
struct rt_safetensor {
    const char *name;
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_SAFETENSORS_MAX_NDIM];
    const void *data; /* in the file that is in memory, at any alignment; NULL: rt_safetensors_read */
    int64_t bytes;
    int64_t offset; /* of its first byte in a file that was read */
};

struct rt_safetensors {
    struct rt_json_document *header; /* owns the names */
    const struct rt_json *metadata;  /* "__metadata__": texts by name; NULL: there are none */
    struct rt_safetensor *at;        /* in the header's order */
    int64_t n;
};

/* A complete file in memory, which outlives what is read of it; release with rt_safetensors_free. */
bool rt_safetensors_parse(struct rt_safetensors *out, const void *file, size_t bytes, struct rt_reason *why);
/* The header alone, of an open file: the tensors have no data, and rt_reader_get reads them from their offsets. */
bool rt_safetensors_read(struct rt_safetensors *out, const struct rt_reader *file, struct rt_reason *why);
void rt_safetensors_free(struct rt_safetensors *file);

/* The tensor of that name, NULL if there is none. */
const struct rt_safetensor *rt_safetensors_find(const struct rt_safetensors *file, const char *name);

/* Writes the metadata of a header: any number of texts. NULL: none. */
struct rt_safetensors_metadata {
    void (*put)(struct rt_json_writer *w, const void *context);
    const void *context;
};

/* The beginning of a file of these tensors, whose bytes follow in this order without gaps: allocated, *bytes long, a
 * multiple of 8; NULL where memory is short. */
char *rt_safetensors_header(const struct rt_safetensor *tensors, int64_t n,
                            const struct rt_safetensors_metadata *metadata, size_t *bytes, struct rt_reason *why);

#endif
