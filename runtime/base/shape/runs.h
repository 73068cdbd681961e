/* Which elements of a tensor a rank holds: in each dimension the indices that cuts leave it (part.h).
 *
 * Nested cuts have the same number of blocks, so a rank always holds one run of consecutive indices in each of `blocks`
 * equal blocks. A region is the product of the runs of all dimensions, stored in row-major order without gaps. */
#ifndef RT_BASE_RUNS_H
#define RT_BASE_RUNS_H

#include "../contract.h"
#include "../text/reason.h"

#include <stdbool.h>
#include <stdint.h>

/* The indices b * block + start + i, for even b < blocks and i < length, and for odd b those with `turned` in place of
 * start. Both are equal unless a cut is mirrored (Note [Mirrored cuts] of part.h). */
struct rt_runs {
    int64_t blocks, block, start, turned, length;
};

struct rt_region {
    int ndim;
    struct rt_runs dim[RT_MAX_NDIM];
};

/* The complete tensor. */
struct rt_region rt_region_whole(const int64_t *dims, int ndim);

/* Divides what the region holds of dimension `dim` into `parts` parts and keeps one of them. Cuts of one dimension are
 * applied from the outermost to the innermost. False, and the region is unchanged, if the numbers do not describe a cut
 * (Note [Cuts], Note [Nested cuts] of part.h); they may come from a file. */
struct rt_region_cut {
    int64_t dim, blocks, grain, part, parts;
};
bool rt_region_cut(struct rt_region *region, const struct rt_region_cut *cut);

/* Extent of the region in a dimension. */
int64_t rt_region_extent(const struct rt_region *region, int dim);

/* Calls `visit` for each run of elements that both regions of one tensor hold and store consecutively: `count` elements
 * from element `from` of region a and from element `to` of region b on, with `from` ascending. Ends, with false, when
 * `visit` returns false. */
struct rt_region_visitor {
    bool (*visit)(void *context, int64_t from, int64_t to, int64_t count, struct rt_reason *why);
    void *context;
};
bool rt_region_common(const struct rt_region *a, const struct rt_region *b, const struct rt_region_visitor *visitor,
                      struct rt_reason *why);

#endif
