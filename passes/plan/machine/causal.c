#include "passes/plan/machine/causal.h"

#include "ir/op.h"

/* The rows of a causal attention. */
struct rows {
    int factor;
    int64_t offset, most; /* row r sees r + offset + 1 keys, at most `most` */
    const struct node_split *splits;
    const int *ways;
    int naxes, axes[RT_LAYOUT_AXES]; /* outermost cut first */
};

/* The part of a rank: in each of one or two blocks equally many rows from `start` on, `extent` in all. */
struct part {
    int64_t start[2], extent;
    int blocks;
};

/* Keys that the rows before `row` see together. */
static double seen_before(const struct rows *rows, int64_t row) {
    double sum = 0;
    const int64_t ends[] = {row + rows->offset, rows->offset};
    for (int i = 0; i < 2; i++) {
        const double end = (double)(ends[i] > 0 ? ends[i] : 0), most = (double)rows->most;
        const double seen = end <= most ? end * (end + 1) / 2 : most * (most + 1) / 2 + (end - most) * most;
        sum += i ? -seen : seen;
    }
    return sum;
}

static double seen_by(const struct rows *rows, const struct part *part) {
    const int64_t length = part->extent / part->blocks;
    double sum = 0;
    for (int b = 0; b < part->blocks; b++)
        sum += seen_before(rows, part->start[b] + length) - seen_before(rows, part->start[b]);
    return sum;
}

/* The most that a rank's part of `part` sees, divided along the axes from number `level` on. */
static double most_seen(const struct rows *rows, int level, const struct part *part) {
    while (level < rows->naxes && rows->splits[rows->axes[level]].factor != rows->factor) level++;
    if (level == rows->naxes) return seen_by(rows, part);
    const int axis = rows->axes[level];
    const struct node_split *split = &rows->splits[axis];
    const struct rt_cut cut = {part->extent, split->blocks, split->grain, rows->ways[axis]};
    double most = 0;
    for (int rank = 0; rank < cut.ways; rank++) {
        struct part inner = {.extent = rt_cut_extent(&cut, rank), .blocks = part->blocks};
        for (int b = 0; b < part->blocks; b++) inner.start[b] = part->start[b] + rt_cut_start_in(&cut, rank, b);
        const double seen = most_seen(rows, level + 1, &inner);
        most = seen > most ? seen : most;
    }
    return most;
}

double causal_excess(const struct node *node, const struct dims *dims, const struct node_split *splits, const int *ways,
                     int naxes) {
    if (!op_is_attention(node->op) || !attr_int(node, "causal", 0)) return 1;
    struct rows rows = {.factor = dims_find(dims, "t"), .splits = splits, .ways = ways, .naxes = naxes};
    struct part whole = {.blocks = 1};
    const int keys = dims_find(dims, "s");
    int64_t blocks = 1;
    double ranks = 1;
    for (int a = 0; a < naxes; a++) {
        if (splits[a].factor != rows.factor) continue;
        blocks = rt_blocks(splits[a].blocks);
        ranks *= ways[a];
    }
    if (rows.factor < 0 || keys < 0 || ranks <= 1 || blocks > 2) return 1;
    const int64_t window = attr_int(node, "window", 0);
    rows.offset = attr_int(node, "offset", 0);
    rows.most = dims->factor[keys].extent;
    if (window && window < rows.most) rows.most = window;
    whole.extent = dims->factor[rows.factor].extent;
    whole.blocks = (int)blocks;
    whole.start[1] = whole.extent / 2;
    dims_outermost_first(splits, naxes, rows.axes);
    const double mean = seen_by(&rows, &whole) / ranks;
    return mean > 0 ? most_seen(&rows, 0, &whole) / mean : 1;
}
