/* Flat cuts: the elements of a rank's part of a tensor, in row-major order, divided among ranks (ZeRO).
 *
 * Note [Flat cuts]
 * A flat cut divides `elements` among the ranks along each axis of a set, from the lowest axis number to the highest:
 * the inner cut divides the slice of the outer one. Slices along an axis have equal capacity, the elements divided by
 * the ranks and rounded up to a multiple of RT_FLAT_GRAIN, so the last ranks may have less to hold, or nothing. The
 * number of ranks along a replica axis is known when a job starts: only then are slices known, and where stored slices
 * lie (rt_flat_place). The compiler calls the same functions to print memory.
 *
 * Slices with RT_FLAT_BLOCKS beside the bits of their axes are of whole blocks of RT_MOMENT_BLOCK elements, and those
 * with RT_FLAT_SCALES are the scales of these blocks: shares are rounded up to a block, or to one scale. RT_FLAT_HOST
 * beside them, or alone for all of the part: the slice is stored in the arena HOST. */
#ifndef RT_BASE_FLAT_H
#define RT_BASE_FLAT_H

#include <stdint.h>

#include "../contract.h"
#include "../dtype.h"
#include "../number/moments.h"

#define RT_FLAT_GRAIN  16 /* elements; vectors of them begin at aligned addresses */
#define RT_FLAT_BLOCKS 0x10000u
#define RT_FLAT_SCALES 0x20000u
#define RT_FLAT_HOST   0x40000u
#define RT_FLAT_KINDS  (RT_FLAT_BLOCKS | RT_FLAT_SCALES)

/* A stored tensor with a flat cut, or in the arena HOST. */
struct rt_flat {
    enum rt_arena arena; /* in which the slices lie */
    enum rt_dtype dtype;
    unsigned axes;    /* bit a: cut along axis a; RT_FLAT_BLOCKS, RT_FLAT_SCALES, RT_FLAT_HOST */
    int64_t elements; /* of the rank's part, which is divided */
};

/* The elements [start, start + count) of the part; capacity: the most that a rank of the cut has. */
struct rt_flat_slice {
    int64_t start, count, capacity;
};

static inline int64_t rt_flat_share(unsigned axes, int64_t elements, int ways) {
    const int64_t grain = axes & RT_FLAT_BLOCKS ? RT_MOMENT_BLOCK : axes & RT_FLAT_SCALES ? 1 : RT_FLAT_GRAIN;
    const int64_t share = (elements + ways - 1) / ways;
    return ways == 1 ? elements : (share + grain - 1) / grain * grain;
}

/* The slice of the rank at `coordinate`, with ways[a] ranks along axis a. */
static inline struct rt_flat_slice rt_flat_slice(unsigned axes, int64_t elements, const int *ways,
                                                 const int *coordinate) {
    struct rt_flat_slice slice = {0, elements, elements};
    for (int a = 0; a < RT_LAYOUT_AXES; a++) {
        if (!(axes >> a & 1u)) continue;
        const int64_t share = rt_flat_share(axes, slice.capacity, ways[a]), before = share * coordinate[a];
        const int64_t left = slice.count > before ? slice.count - before : 0;
        slice.start += before < slice.capacity ? before : slice.capacity;
        slice.count = left < share ? left : share;
        slice.capacity = share;
    }
    return slice;
}

/* Bytes that the slice occupies on every rank. */
static inline int64_t rt_flat_bytes(const struct rt_flat *flat, const int *ways) {
    const int none[RT_LAYOUT_AXES] = {0};
    const struct rt_flat_slice slice = rt_flat_slice(flat->axes, flat->elements, ways, none);
    const int64_t bytes = slice.capacity * (int64_t)rt_dtype_bytes(flat->dtype);
    return (bytes + RT_ALIGNMENT - 1) / RT_ALIGNMENT * RT_ALIGNMENT;
}

/* Places the n slices in their arenas behind bytes[arena] bytes, which it increases: at[i] is the offset of slice i. */
static inline void rt_flat_place(const struct rt_flat *flat, int n, const int *ways, int64_t *bytes, int64_t *at) {
    for (int i = 0; i < n; i++) {
        at[i] = bytes[flat[i].arena];
        bytes[flat[i].arena] += rt_flat_bytes(&flat[i], ways);
    }
}

#endif
