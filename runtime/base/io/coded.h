/* Makes codes and scales (base/number/coding.h) of weights that lie in memory or in a file, any part of them at a time:
 * each rank makes its own. */
#ifndef RT_BASE_CODED_H
#define RT_BASE_CODED_H

#include "../dtype.h"
#include "../number/coding.h"
#include "file_reader.h"

struct rt_coded {
    struct rt_coding coding;
    const struct rt_reader *file; /* NULL: the weights lie at `bytes` */
    const unsigned char *bytes;
    int64_t offset; /* in the file */
    enum rt_dtype stored;
    int64_t n, k; /* of each matrix */
};

/* Bytes of a row's codes, or of its scales, in `groups` groups; elements that one group has. */
int64_t rt_coded_bytes(const struct rt_coding *coding, int64_t groups);
int64_t rt_coded_columns(const struct rt_coding *coding);

/* Makes the codes or the scales (f32) of rows [row, row + rows) - row i * n + j is row j of matrix i - and groups
 * [group, group + groups), row after row. False: the file cannot be read, or memory is missing. */
bool rt_coded_make(const struct rt_coded *from, int64_t row, int64_t rows, int64_t group, int64_t groups, void *to,
                   struct rt_reason *why);

#endif
