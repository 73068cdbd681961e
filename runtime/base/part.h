/* How one dimension of a tensor is cut among the ranks of one mesh axis.
 *
 * Note [Cuts]
 * A cut divides an extent into `blocks` equal blocks, and each block into units of `unit` elements, which the `ways`
 * ranks share: the larger shares come first and differ by at most one unit. A rank's part is its share of every
 * block, in order, stored without gaps. blocks = 1, unit = 1 is the plain cut; unit = head size keeps attention heads
 * whole; blocks = 3 cuts a fused query-key-value weight in three places at once (a strided cut).
 *
 *   extent 24, blocks 2, unit 3, ways 3:   block 0: units 0 1 2 3     block 1: units 0 1 2 3
 *                                          rank:          0 0 1 2              0 0 1 2
 *
 * This header is the only place that knows the rule: the compiler lays tensors out with it, generated programs load
 * weights and redistribute with it. */
#ifndef RT_BASE_PART_H
#define RT_BASE_PART_H

#include <stdint.h>

struct rt_cut {
    int64_t extent, blocks, unit; /* blocks * unit divides extent */
    int ways;
};

/* First unit of rank `index` within a block; index = ways gives the number of units of a block. */
static inline int64_t rt_cut_unit(const struct rt_cut *cut, int index) {
    int64_t units = cut->extent / (cut->blocks * cut->unit);
    int64_t share = units / cut->ways, larger = units % cut->ways;
    return index * share + (index < larger ? index : larger);
}

/* Offset, within each block, of the part of rank `index`, and the part's length there, in elements. */
static inline int64_t rt_cut_start(const struct rt_cut *cut, int index) {
    return rt_cut_unit(cut, index) * cut->unit;
}
static inline int64_t rt_cut_length(const struct rt_cut *cut, int index) {
    return rt_cut_start(cut, index + 1) - rt_cut_start(cut, index);
}

/* Elements of the whole part. */
static inline int64_t rt_cut_extent(const struct rt_cut *cut, int index) {
    return cut->blocks * rt_cut_length(cut, index);
}

/* What each rank of an axis holds of one dimension: runs of indices, in order, stored without gaps.
 *
 * Note [Windows in parts]
 * A part is cut as above. A window (span > 0) is what a rank reads that computes a part of an operator's positions:
 * position p reads the indices [p * stride - before, p * stride - before + span), as far as the dimension has them.
 * Windows of neighbours overlap, and may leave out indices that no position reads. The rank's own operator, over the
 * window alone, counts its positions from 0; it reads what it should if the window begins rt_holding_before() elements
 * after that of its first position does.
 *
 *   extent 8, 4 positions in 2 ways, stride 2, before 1, span 3:   position   reads            rank holds
 *                                                                  0 1        -1..1  1..3      0..3, before 1
 *                                                                  2 3         3..5  5..7      3..7, before 0 */
struct rt_holding {
    struct rt_cut cut; /* of the dimension; of a window: of the positions, in one block */
    int64_t extent;    /* of the dimension */
    int64_t stride, before, span;
};

static inline int64_t rt_clamp(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* Indices that the positions of rank `index` reach, the dimension's or not: [*first, *end). */
static inline void rt_holding_reach(const struct rt_holding *holding, int index, int64_t *first, int64_t *end) {
    *first = rt_cut_start(&holding->cut, index) * holding->stride - holding->before;
    *end = (rt_cut_start(&holding->cut, index + 1) - 1) * holding->stride - holding->before + holding->span;
}

/* Run `run` of the holding's cut.blocks: its first index and its length, which is that of all runs of the rank. */
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

/* Indices that rank `index` holds. */
static inline int64_t rt_holding_extent(const struct rt_holding *holding, int index) {
    int64_t start;
    return holding->cut.blocks * rt_holding_run(holding, index, 0, &start);
}

/* Indices from where the rank's first position begins to read to where its window begins. */
static inline int64_t rt_holding_before(const struct rt_holding *holding, int index) {
    int64_t first, end, start;
    rt_holding_reach(holding, index, &first, &end);
    rt_holding_run(holding, index, 0, &start);
    return start - first;
}

/* The same behind the window's end, of an operator that may reach `behind` elements beyond the dimension. */
static inline int64_t rt_holding_behind(const struct rt_holding *holding, int index, int64_t behind) {
    int64_t first, end, start, most = holding->extent + behind;
    rt_holding_reach(holding, index, &first, &end);
    int64_t length = rt_holding_run(holding, index, 0, &start);
    return (end < most ? end : most) - (start + length);
}

/* Two holdings of one dimension: walks the runs of indices that rank `a_index` of `a` and rank `b_index` of `b` both
 * hold, in order. A walk starts as zeros. */
struct rt_overlap {
    int64_t a_run, b_run;             /* the next to compare */
    int64_t a_place, b_place, length; /* what both hold: where it is in either's runs */
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

/* Indices of `wanted` that rank `index` does not have in `held`, of the same dimension. */
static inline int64_t rt_holding_lacks(const struct rt_holding *wanted, const struct rt_holding *held, int index) {
    struct rt_overlap overlap = {0, 0, 0, 0, 0};
    int64_t lacks = rt_holding_extent(wanted, index);
    while (rt_overlap_next(&overlap, held, index, wanted, index)) lacks -= overlap.length;
    return lacks;
}

#endif
