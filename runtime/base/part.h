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
static inline int64_t rt_cut_start(const struct rt_cut *cut, int index) { return rt_cut_unit(cut, index) * cut->unit; }
static inline int64_t rt_cut_length(const struct rt_cut *cut, int index) {
    return rt_cut_start(cut, index + 1) - rt_cut_start(cut, index);
}

/* Elements of the whole part. */
static inline int64_t rt_cut_extent(const struct rt_cut *cut, int index) {
    return cut->blocks * rt_cut_length(cut, index);
}

#endif
