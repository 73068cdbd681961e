/* How one dimension of a tensor is divided among the ranks along one mesh axis.
 *
 * Note [Cuts]
 * A cut divides an extent into `blocks` equal blocks, and each block into units of `unit` elements, which are
 * distributed over the `ways` ranks: contiguous shares that differ by at most one unit, larger ones first. A rank's
 * part is the concatenation of its shares of all blocks, stored without gaps. blocks = 1, unit = 1 is the plain cut;
 * unit = head size keeps attention heads whole; blocks = 3 cuts a fused query-key-value weight in each of its three
 * parts (a strided cut).
 *
 *   extent 24, blocks 2, unit 3, ways 3:   block 0: units 0 1 2 3     block 1: units 0 1 2 3
 *                                          rank:          0 0 1 2              0 0 1 2
 *
 * Only this header implements the rule; the compiler uses it to lay out tensors, generated programs to load weights and
 * to redistribute. */
#ifndef RT_BASE_PART_H
#define RT_BASE_PART_H

#include <stdint.h>

struct rt_cut {
    int64_t extent, blocks, unit; /* blocks * unit divides extent */
    int ways;
};

/* First unit of rank `index` within each block; index = ways gives the units per block. */
static inline int64_t rt_cut_unit(const struct rt_cut *cut, int index) {
    int64_t units = cut->extent / (cut->blocks * cut->unit);
    int64_t share = units / cut->ways, larger = units % cut->ways;
    return index * share + (index < larger ? index : larger);
}

/* Offset of the share of rank `index` within each block, and its length, in elements. */
static inline int64_t rt_cut_start(const struct rt_cut *cut, int index) {
    return rt_cut_unit(cut, index) * cut->unit;
}
static inline int64_t rt_cut_length(const struct rt_cut *cut, int index) {
    return rt_cut_start(cut, index + 1) - rt_cut_start(cut, index);
}

/* Extent of the part of rank `index`: its shares of all blocks. */
static inline int64_t rt_cut_extent(const struct rt_cut *cut, int index) {
    return cut->blocks * rt_cut_length(cut, index);
}

/* A holding: which indices of one dimension each rank of an axis has in memory, as runs of consecutive indices, in
 * order, stored without gaps.
 *
 * Note [Windows in parts]
 * A holding is a part, cut as above, or a window (span > 0). A window is what a rank reads to compute its share of the
 * output positions of a convolution or pooling: position p reads indices [p * stride - before, p * stride - before +
 * span), as far as the dimension has them. Windows of adjacent ranks overlap (halo), or skip indices that no position
 * reads. The rank's own operator sees the window alone and counts positions from 0; it reads the right indices if it
 * pads the window by rt_holding_before() elements in front and rt_holding_behind() elements at the end.
 *
 *   extent 8, 4 positions in 2 ways, stride 2, before 1, span 3:   position   reads            rank holds
 *                                                                  0 1        -1..1  1..3      0..3, before 1
 *                                                                  2 3         3..5  5..7      3..7, before 0 */
struct rt_holding {
    struct rt_cut cut; /* part: of the dimension. Window: of the output positions, in one block */
    int64_t extent;    /* of the dimension */
    int64_t stride, before, span;
};

static inline int64_t rt_clamp(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* Range [*first, *end) of indices that the positions of rank `index` read, including those outside the dimension. */
static inline void rt_holding_reach(const struct rt_holding *holding, int index, int64_t *first, int64_t *end) {
    *first = rt_cut_start(&holding->cut, index) * holding->stride - holding->before;
    *end = (rt_cut_start(&holding->cut, index + 1) - 1) * holding->stride - holding->before + holding->span;
}

/* Run `run` (0 .. cut.blocks - 1) of the holding: sets its first index and returns its length, which is the same for
 * all runs of a rank. */
static inline int64_t rt_holding_run(const struct rt_holding *holding, int index, int64_t run, int64_t *start) {
    const struct rt_cut *cut = &holding->cut;
    int64_t end;
    if (!holding->span) {
        *start = run * (cut->extent / cut->blocks) + rt_cut_start(cut, index);
        return rt_cut_length(cut, index);
    }
    rt_holding_reach(holding, index, start, &end);
    *start = rt_clamp(*start, 0, holding->extent);
    return rt_cut_length(cut, index) ? rt_clamp(end, *start, holding->extent) - *start : 0;
}

/* Number of indices that rank `index` holds. */
static inline int64_t rt_holding_extent(const struct rt_holding *holding, int index) {
    int64_t start;
    return holding->cut.blocks * rt_holding_run(holding, index, 0, &start);
}

/* Padding in front of the window of rank `index`: indices between the start of its first position's reads and the
 * window's start. */
static inline int64_t rt_holding_before(const struct rt_holding *holding, int index) {
    int64_t first, end, start;
    rt_holding_reach(holding, index, &first, &end);
    rt_holding_run(holding, index, 0, &start);
    return start - first;
}

/* Padding behind the window; `behind` is the padding of the whole operator at the end of the dimension. */
static inline int64_t rt_holding_behind(const struct rt_holding *holding, int index, int64_t behind) {
    int64_t first, end, start, most = holding->extent + behind;
    rt_holding_reach(holding, index, &first, &end);
    int64_t length = rt_holding_run(holding, index, 0, &start);
    return (end < most ? end : most) - (start + length);
}

/* Iterates over the runs of indices that rank `a_index` of holding `a` and rank `b_index` of holding `b` of the same
 * dimension both have, in order. Start with zeros. */
struct rt_overlap {
    int64_t a_run, b_run;             /* next runs to compare */
    int64_t a_place, b_place, length; /* the common run: its place in each rank's memory, its length, in indices */
};

static inline int rt_overlap_next(struct rt_overlap *walk, const struct rt_holding *a, int a_index,
                                  const struct rt_holding *b, int b_index) {
    while (walk->a_run < a->cut.blocks && walk->b_run < b->cut.blocks) {
        int64_t a_start, b_start, a_length = rt_holding_run(a, a_index, walk->a_run, &a_start),
                                  b_length = rt_holding_run(b, b_index, walk->b_run, &b_start);
        const int64_t a_end = a_start + a_length, b_end = b_start + b_length;
        const int64_t start = a_start > b_start ? a_start : b_start;
        walk->a_place = walk->a_run * a_length + start - a_start;
        walk->b_place = walk->b_run * b_length + start - b_start;
        walk->length = (a_end < b_end ? a_end : b_end) - start;
        if (a_end <= b_end)
            walk->a_run++;
        else
            walk->b_run++;
        if (walk->length > 0) return 1;
    }
    return 0;
}

/* Number of indices that rank `index` needs for `wanted` but does not have in `held`, a holding of the same
 * dimension. */
static inline int64_t rt_holding_lacks(const struct rt_holding *wanted, const struct rt_holding *held, int index) {
    struct rt_overlap overlap = {0, 0, 0, 0, 0};
    int64_t lacks = rt_holding_extent(wanted, index);
    while (rt_overlap_next(&overlap, held, index, wanted, index)) lacks -= overlap.length;
    return lacks;
}

#endif
