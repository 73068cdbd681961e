/* The part of a stored tensor that a rank holds: how it is cut out of the complete tensor, converted and packed.
 *
 * Rows are the indices of dimension 0 that the rank holds, in order (one row, if the tensor has no dimensions). Rows
 * are independent: threads may load different ones. */
#ifndef RT_LOAD_PART_H
#define RT_LOAD_PART_H

#include "core/private.h"

#include "base/file_reader.h"
#include "base/panel.h"

/* A dimension of the stored tensor and what the rank holds of it; uncut, it is one block of all of it. */
struct load_dim {
    int64_t extent, blocks, block, start, length;
};

struct load_part {
    const struct rt_weight *weight;
    const struct rt_reader *file;        /* which has the complete tensor; the caller sets it. NULL: values are made */
    unsigned char *dst;                  /* the part; the caller sets it */
    int64_t stored_bytes;                /* of the complete tensor */
    int64_t rows, row_bytes;             /* of the part: their number, bytes of one in memory */
    int depth;                           /* dimensions up to the last one that is cut; what is behind is contiguous */
    int64_t tail;                        /* elements behind */
    int64_t packed_rows, packed_columns; /* of a matrix that is packed */
    struct load_dim dim[RT_MAX_NDIM];
};

/* Describes the rank's part and sets *elements to its size in memory (with the padding of panels); false where the
 * program's table makes no sense. */
bool load_part_find(struct load_part *part, const struct rt *rt, const struct rt_weight *weight, int64_t *elements);

/* Loads rows [from, to), not empty; false: the file cannot be read, or has been cut. Threads that load a packed part
 * begin at multiples of RT_PANEL rows. */
bool load_part_copy(const struct load_part *part, int64_t from, int64_t to, struct rt_reason *why);

#endif
