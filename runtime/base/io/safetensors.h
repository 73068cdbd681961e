/* The safetensors format (https://github.com/huggingface/safetensors). Files are untrusted. Layout: eight bytes with
 * the length of a JSON header, the header, the bytes of the tensors, which cover the rest without gaps or overlaps. */
#ifndef RT_BASE_SAFETENSORS_H
#define RT_BASE_SAFETENSORS_H

#include "../contract.h"
#include "../dtype.h"
#include "file_reader.h"
#include "../number/hash.h"
#include "../text/json.h"
#include "../text/reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tensor in a file. */
struct rt_safetensor {
    const char *name;
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    const void *data; /* in memory, at any alignment; NULL after rt_safetensors_read */
    int64_t bytes;
    int64_t offset; /* of its first byte in the file */
};

struct rt_safetensors {
    struct rt_json_document *header; /* owns the names */
    const struct rt_json *metadata;  /* "__metadata__": strings by name; NULL: none */
    struct rt_safetensor *at;        /* in the header's order */
    int64_t n;
};

/* Parses a complete file in memory, which must stay valid; release with rt_safetensors_free. */
bool rt_safetensors_parse(struct rt_safetensors *out, const void *file, size_t bytes, struct rt_reason *why);
/* Parses the header of an open file: the tensors' data is NULL; read it with rt_reader_get at their offsets. */
bool rt_safetensors_read(struct rt_safetensors *out, const struct rt_reader *file, struct rt_reason *why);
/* The same, with the hash of the header that was parsed and its length. */
bool rt_safetensors_read_hashed(struct rt_safetensors *out, const struct rt_reader *file, char hex[RT_HASH_HEX],
                                struct rt_reason *why);
void rt_safetensors_free(struct rt_safetensors *file);

/* The tensor of that name, NULL if there is none. */
const struct rt_safetensor *rt_safetensors_find(const struct rt_safetensors *file, const char *name);

/* Callback that writes metadata into a header: any number of string members. NULL: none. */
struct rt_safetensors_metadata {
    void (*put)(struct rt_json_writer *writer, const void *context);
    const void *context;
};

/* Makes the header of a file with these tensors, whose bytes follow in this order without gaps. Returns allocated
 * memory of *bytes bytes, a multiple of 8; NULL: out of memory. */
char *rt_safetensors_header(const struct rt_safetensor *tensors, int64_t n,
                            const struct rt_safetensors_metadata *metadata, size_t *bytes, struct rt_reason *why);

#endif
