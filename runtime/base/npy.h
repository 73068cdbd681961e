/* The .npy format of NumPy, versions 1 to 3, of untrusted files: one tensor, C order, little endian, of a type of
 * dtype.h (bf16, which NumPy lacks, is "|V2"). Source: numpy/lib/format.py. */
#ifndef RT_BASE_NPY_H
#define RT_BASE_NPY_H

#include "contract.h"
#include "dtype.h"
#include "io/file_reader.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A complete tensor in memory, row-major. */
struct rt_tensor {
    enum rt_dtype dtype;
    int ndim;
    int64_t dims[RT_MAX_NDIM];
    int64_t count; /* elements */
    void *data;    /* count * rt_dtype_bytes(dtype) bytes */
    void *owned;   /* what rt_tensor_free releases */
};

/* Parses the header of a file whose first `bytes` bytes are at `file`. The tensor's data is NULL; *data is the offset
 * of its first byte. The caller checks that the file has the data. */
bool rt_npy_header(struct rt_tensor *out, size_t *data, const void *file, size_t bytes, struct rt_reason *why);

/* Parses a complete file in memory; the tensor points into it, at any alignment, and owns nothing. */
bool rt_npy_parse(struct rt_tensor *out, const void *file, size_t bytes, struct rt_reason *why);

/* Parses the header of an open file and checks its length. The tensor's data is NULL; *data is the offset of its first
 * byte. */
bool rt_npy_find(struct rt_tensor *out, int64_t *data, const struct rt_reader *reader, struct rt_reason *why);

/* Reads a file; release the tensor with rt_tensor_free. */
bool rt_npy_read(struct rt_tensor *out, const char *path, struct rt_reason *why);
void rt_tensor_free(struct rt_tensor *tensor);
double rt_tensor_element(const struct rt_tensor *tensor, int64_t i);

#define RT_NPY_HEADER_BYTES 384

/* Writes the header of a version 1 file to `out`, which has RT_NPY_HEADER_BYTES; returns its length, a multiple of
 * 64. */
size_t rt_npy_format(char *out, enum rt_dtype dtype, int ndim, const int64_t *dims);

/* Writes a file atomically: under a temporary name, then renamed. */
bool rt_npy_write(const char *path, enum rt_dtype dtype, int ndim, const int64_t *dims, const void *data,
                  struct rt_reason *why);

#ifdef __cplusplus
}
#endif

#endif
