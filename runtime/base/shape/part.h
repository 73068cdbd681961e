/* How one dimension of a tensor is divided among the ranks along one mesh axis.
 *
 * Note [Cuts]
 * A cut divides an extent into `blocks` equal blocks, and each block into grains of `grain` elements that are never
 * divided. Each rank receives a contiguous share of every block's grains; the shares differ by at most one grain,
 * larger ones first. A rank's part is the concatenation of its shares of all blocks, stored without gaps. blocks = 1,
 * grain = 1 is the plain cut; grain = head size keeps attention heads whole; blocks = 3 cuts a fused query-key-value
 * weight in each of its three parts (a strided cut).
 *
 *   extent 24, blocks 2, grain 3, ways 3:   block 0: grains 0 1 2 3     block 1: grains 0 1 2 3
 *                                           rank:           0 0 1 2               0 0 1 2
 *
 * Note [Nested cuts]
 * Several mesh axes may divide one dimension. The outermost cut divides the dimension, each further one the part that
 * those before it leave, as if that part was the dimension: its extent is rt_cut_extent() of the cut outside. All have
 * the same number of blocks, and the grain of an outer cut is a multiple of the grain of an inner one. So a rank has
 * one run of indices in each block, as under a single cut.
 *
 *   extent 10, grain 1, outer cut in 2 ways, inner cut in 3:    index       0 1 2 3 4 5 6 7 8 9
 *                                                               outer rank  0 0 0 0 0 1 1 1 1 1
 *                                                               inner rank  0 0 1 1 2 0 0 1 1 2
 *
 * Note [Mirrored cuts]
 * Negative `blocks` make a mirrored cut of -blocks blocks, an even number: in every second block the shares are given
 * out in reverse order, so that rank i of n has share i of blocks 0, 2, .. and share n - 1 - i of blocks 1, 3, .. All
 * shares are equal: n divides the grains of a block. With blocks = -2, rank i has the i-th and the i-th last of 2n
 * pieces. This balances causal attention, whose work grows with the position (Dubey et al., "The Llama 3 Herd of
 * Models", arXiv 2407.21783, section 3.3.2).
 *
 *   extent 8, blocks -2, grain 1, ways 2:   block 0: indices 0 1 2 3    block 1: indices 4 5 6 7
 *                                           rank:            0 0 1 1             1 1 0 0
 *
 * Only this header implements the rule; the compiler uses it to lay out tensors, generated programs to load weights and
 * to redistribute. */
#ifndef RT_BASE_PART_H
#define RT_BASE_PART_H

#include <stdint.h>

struct rt_cut {
    int64_t extent, blocks, grain; /* blocks * grain divides extent; blocks < 0: Note [Mirrored cuts] */
    int ways;
};

/* How many blocks a cut with the number `blocks` has. */
static inline int64_t rt_blocks(int64_t blocks) {
    return blocks < 0 ? -blocks : blocks;
}

/* True if an extent can be cut so: for mirrored cuts, with equal shares. */
static inline int rt_cut_is_sound(const struct rt_cut *cut) {
    const int64_t blocks = rt_blocks(cut->blocks);
    if (blocks < 1 || cut->grain < 1 || cut->ways < 1 || cut->extent % blocks || cut->extent / blocks % cut->grain)
        return 0;
    return cut->blocks > 0 || (blocks % 2 == 0 && cut->extent / blocks / cut->grain % cut->ways == 0);
}

/* First grain of rank `index` within each block; index = ways gives the grains per block. */
static inline int64_t rt_cut_first_grain(const struct rt_cut *cut, int index) {
    int64_t grains = cut->extent / (rt_blocks(cut->blocks) * cut->grain);
    int64_t share = grains / cut->ways, larger = grains % cut->ways;
    return index * share + (index < larger ? index : larger);
}

/* Offset of the share of rank `index` within each block (within block 0, 2, .. if the cut is mirrored), and its length,
 * in elements. */
static inline int64_t rt_cut_start(const struct rt_cut *cut, int index) {
    return rt_cut_first_grain(cut, index) * cut->grain;
}
static inline int64_t rt_cut_length(const struct rt_cut *cut, int index) {
    return rt_cut_start(cut, index + 1) - rt_cut_start(cut, index);
}

/* Offset of the share of rank `index` within block `run`. */
static inline int64_t rt_cut_start_in(const struct rt_cut *cut, int index, int64_t run) {
    return rt_cut_start(cut, cut->blocks < 0 && run % 2 ? cut->ways - 1 - index : index);
}

/* Extent of the part of rank `index`: its shares of all blocks. */
static inline int64_t rt_cut_extent(const struct rt_cut *cut, int index) {
    return rt_blocks(cut->blocks) * rt_cut_length(cut, index);
}

/* A placement: which indices of one dimension each rank of an axis has in memory, as runs of consecutive indices, in
 * order, stored without gaps.
 *
 * Note [Windows in parts]
 * A placement is a part, cut as above, or a window (span > 0). A window is what a rank reads to compute its share of
 * the output positions of a convolution or pooling: position p reads `span` indices from p * stride - before on, as far
 * as the dimension has them. Windows of adjacent ranks overlap (halo), or skip indices that no position reads. The
 * rank's own operator sees the window alone and counts positions from 0; it reads the right indices if it pads the
 * window by rt_placement_before() elements in front and rt_placement_behind() elements at the end.
 *
 *   extent 8, 4 positions in 2 ways, stride 2, before 1, span 3:   position   reads            rank holds
 *                                                                  0 1        -1..1  1..3      0..3, before 1
 *                                                                  2 3         3..5  5..7      3..7, before 0 */
struct rt_placement {
    struct rt_cut cut; /* part: of the dimension. Window: of the output positions, in one block */
    int64_t extent;    /* of the dimension */
    int64_t stride, before, span;
};

static inline int64_t rt_clamp(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* Range [*first, *end) of indices that the positions of rank `index` read, including those outside the dimension. */
static inline void rt_placement_reach(const struct rt_placement *placement, int index, int64_t *first, int64_t *end) {
    *first = rt_cut_start(&placement->cut, index) * placement->stride - placement->before;
    *end = (rt_cut_start(&placement->cut, index + 1) - 1) * placement->stride - placement->before + placement->span;
}

/* Run `run` (0 .. number of blocks - 1) of the placement: sets its first index and returns its length, which is the
 * same for all runs of a rank. */
static inline int64_t rt_placement_run(const struct rt_placement *placement, int index, int64_t run, int64_t *start) {
    const struct rt_cut *cut = &placement->cut;
    int64_t end;
    if (!placement->span) {
        *start = run * (cut->extent / rt_blocks(cut->blocks)) + rt_cut_start_in(cut, index, run);
        return rt_cut_length(cut, index);
    }
    rt_placement_reach(placement, index, start, &end);
    *start = rt_clamp(*start, 0, placement->extent);
    return rt_cut_length(cut, index) ? rt_clamp(end, *start, placement->extent) - *start : 0;
}

/* Number of indices that rank `index` holds. */
static inline int64_t rt_placement_extent(const struct rt_placement *placement, int index) {
    int64_t start;
    return rt_blocks(placement->cut.blocks) * rt_placement_run(placement, index, 0, &start);
}

/* Padding in front of the window of rank `index`: indices between the start of its first position's reads and the
 * window's start. */
static inline int64_t rt_placement_before(const struct rt_placement *placement, int index) {
    int64_t first, end, start;
    rt_placement_reach(placement, index, &first, &end);
    rt_placement_run(placement, index, 0, &start);
    return start - first;
}

/* Padding behind the window; `behind` is the padding of the whole operator at the end of the dimension. */
static inline int64_t rt_placement_behind(const struct rt_placement *placement, int index, int64_t behind) {
    int64_t first, end, start, most = placement->extent + behind;
    rt_placement_reach(placement, index, &first, &end);
    int64_t length = rt_placement_run(placement, index, 0, &start);
    return (end < most ? end : most) - (start + length);
}

/* Iterates over the runs of indices that rank `a_index` of placement `a` and rank `b_index` of placement `b` of the
 * same dimension both have, in order. Start with zeros. */
struct rt_overlap {
    int64_t a_run, b_run;             /* next runs to compare */
    int64_t a_place, b_place, length; /* the common run: its place in each rank's memory, its length, in indices */
};

/* Compares the next two runs and goes on behind the one that ends first. True if they have indices in common. */
static inline int rt_overlap_step(struct rt_overlap *walk, int64_t a_start, int64_t a_length, int64_t b_start,
                                  int64_t b_length) {
    const int64_t a_end = a_start + a_length, b_end = b_start + b_length;
    const int64_t start = a_start > b_start ? a_start : b_start;
    walk->a_place = walk->a_run * a_length + start - a_start;
    walk->b_place = walk->b_run * b_length + start - b_start;
    walk->length = (a_end < b_end ? a_end : b_end) - start;
    if (a_end <= b_end)
        walk->a_run++;
    else
        walk->b_run++;
    return walk->length > 0;
}

static inline int rt_overlap_next(struct rt_overlap *walk, const struct rt_placement *a, int a_index,
                                  const struct rt_placement *b, int b_index) {
    while (walk->a_run < rt_blocks(a->cut.blocks) && walk->b_run < rt_blocks(b->cut.blocks)) {
        int64_t a_start, b_start, a_length = rt_placement_run(a, a_index, walk->a_run, &a_start),
                                  b_length = rt_placement_run(b, b_index, walk->b_run, &b_start);
        if (rt_overlap_step(walk, a_start, a_length, b_start, b_length)) return 1;
    }
    return 0;
}

/* Number of indices that rank `index` needs for `wanted` but does not have in `held`, a placement of the same
 * dimension. */
static inline int64_t rt_placement_lacks(const struct rt_placement *wanted, const struct rt_placement *held,
                                         int index) {
    struct rt_overlap overlap = {0, 0, 0, 0, 0};
    int64_t lacks = rt_placement_extent(wanted, index);
    while (rt_overlap_next(&overlap, held, index, wanted, index)) lacks -= overlap.length;
    return lacks;
}

#endif
