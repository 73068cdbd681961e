/* Loads the part of a stored tensor that a rank holds: cuts it out of the complete tensor, converts and packs it.
 *
 * The rows of a part are the indices of dimension 0 that the rank holds, in order; one row if the tensor is a scalar.
 * Rows are independent: several threads may load different rows. */
#ifndef RT_LOAD_PART_H
#define RT_LOAD_PART_H

#include "core/private.h"

#include "base/io/coded.h"
#include "base/shape/panel.h"

/* Initial values of weights that are generated instead of read from the model.
 *
 * An element's value depends only on the weight's key and the element's index in the complete tensor: it is the same on
 * every rank and under every plan.
 *
 * Generates elements [first, first + count) of the complete tensor, row-major, as `dtype`. */
void rt_init_fill(const struct rt_init *init, int64_t first, int64_t count, void *dst, enum rt_dtype dtype);

/* A dimension of the stored tensor and the rank's share of each of its blocks, in elements; one block if it is not
 * cut. In every second block the share begins at `turned` in place of start (Note [Mirrored cuts] of
 * base/shape/part.h). */
struct load_dim {
    int64_t extent, blocks, block, start, turned, length;
};

struct load_part {
    const struct rt_weight *weight;
    const struct rt_reader *file; /* with the complete tensor, set by the caller; NULL: values are generated */
    unsigned char *dst;           /* memory for the part from row `first` on, set by the caller */
    int64_t stored_bytes;         /* of the complete tensor, as it is stored */
    int64_t rows, row_bytes;      /* of the part: number of rows, bytes of a row in memory */
    int64_t first;                /* row of the part at `dst`: 0, unless the caller sets it */
    /* number of dimensions up to the last one that is cut; the others are contiguous */
    int depth;
    int64_t tail;            /* elements of the contiguous dimensions */
    struct rt_coded coded;   /* of codes and scales: what they are made of */
    struct rt_packed panels; /* of a packed tensor */
    int64_t panel_columns;   /* elements of a row of the part */
    struct load_dim dim[RT_MAX_NDIM];
};

/* Describes the rank's part; *elements is its size in memory, with the padding of panels. False if the program's table
 * is invalid. */
bool load_part_find(struct load_part *part, const struct rt *rt, const struct rt_weight *weight, int64_t *elements);

/* Loads rows [from, to), at least one, of which none is before `first`. False: the file cannot be read or was
 * truncated. In a packed part, threads must begin at multiples of RT_PANEL rows. */
bool load_part_copy(const struct load_part *part, int64_t from, int64_t to, struct rt_reason *why);

/* Writes the sums that panels of 8-bit integers end with (Note [Panels] of base/shape/panel.h), after all rows are
 * loaded; nothing for other parts. */
void load_part_sum(const struct load_part *part, int threads);

#endif
