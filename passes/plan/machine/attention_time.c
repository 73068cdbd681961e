#include "passes/plan/machine/attention_time.h"

/* The rows of a causal attention. */
struct rows {
    int factor;
    int64_t offset, most; /* row r sees r + offset + 1 keys, at most `most` */
    const struct node_split *splits;
    const struct mesh *mesh;
    int axes[RT_LAYOUT_AXES]; /* outermost cut first */
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
    while (level < rows->mesh->naxes && rows->splits[rows->axes[level]].factor != rows->factor) level++;
    if (level == rows->mesh->naxes) return seen_by(rows, part);
    const int axis = rows->axes[level];
    const struct node_split *split = &rows->splits[axis];
    const struct rt_cut cut = {part->extent, split->blocks, split->grain, rows->mesh->axis[axis].size};
    double most = 0;
    for (int rank = 0; rank < cut.ways; rank++) {
        struct part inner = {.extent = rt_cut_extent(&cut, rank), .blocks = part->blocks};
        for (int b = 0; b < part->blocks; b++) inner.start[b] = part->start[b] + rt_cut_start_in(&cut, rank, b);
        const double seen = most_seen(rows, level + 1, &inner);
        most = seen > most ? seen : most;
    }
    return most;
}

double causal_excess(const struct node *node, const struct dims *dims, const struct node_split *splits,
                     const struct mesh *mesh) {
    if (!op_is_attention(node->op) || !attr_int(node, "causal", 0)) return 1;
    struct rows rows = {.factor = dims_find(dims, "t"), .splits = splits, .mesh = mesh};
    struct part whole = {.blocks = 1};
    const int keys = dims_find(dims, "s");
    int64_t blocks = 1;
    double ranks = 1;
    for (int a = 0; a < mesh->naxes; a++) {
        if (splits[a].factor != rows.factor) continue;
        blocks = rt_blocks(splits[a].blocks);
        ranks *= mesh->axis[a].size;
    }
    if (rows.factor < 0 || keys < 0 || ranks <= 1 || blocks > 2) return 1;
    const int64_t window = attr_int(node, "window", 0);
    rows.offset = attr_int(node, "offset", 0);
    rows.most = dims->factor[keys].extent;
    if (window && window < rows.most) rows.most = window;
    whole.extent = dims->factor[rows.factor].extent;
    whole.blocks = (int)blocks;
    whole.start[1] = whole.extent / 2;
    dims_outermost_first(splits, mesh->naxes, rows.axes);
    const double mean = seen_by(&rows, &whole) / ranks;
    return mean > 0 ? most_seen(&rows, 0, &whole) / mean : 1;
}

struct rt_attend_size library_attention_size(const struct graph *graph, const struct node *node, const int64_t *q,
                                             const int64_t *k, const int64_t *v) {
    const int ndim = graph->tensors.at[node->inputs[op_query(node)]].ndim;
    return (struct rt_attend_size){.group = k[ndim - 3] > 0 ? q[ndim - 3] / k[ndim - 3] : 1,
                                   .t = q[ndim - 2],
                                   .s = k[ndim - 2],
                                   .d = q[ndim - 1],
                                   .e = v[ndim - 1],
                                   .atomic = attr_int(node, "library", 0) == RT_LIBRARY_ATOMIC};
}

bool library_attention(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                       const int64_t *v) {
    enum { OPERANDS = 6 }; /* of the gradient without masks */
    const enum rt_dtype dtype = graph->tensors.at[node->inputs[op_query(node)]].dtype;
    if (!attr_int(node, "library", 0) || rt_dtypes[dtype].kind != RT_KIND_HALF) return false;
    if (node->op->id != OP_FlashAttentionGrad) return true;
    const struct rt_attend_size size = library_attention_size(graph, node, q, k, v);
    return node->ninputs <= OPERANDS && rt_attend_is_small(&size);
}

/* Bytes that the library's gradient writes and reads for the gradients of scores; 0 where it stores none. Where the
 * attention is causal it leaves out those of hidden keys. */
static double library_attention_scores(const struct graph *graph, const struct node *node, const int64_t *q,
                                       const int64_t *k, const int64_t *v) {
    enum { BYTES = 2, WRITTEN_AND_READ = 2 };
    const int ndim = graph->tensors.at[node->inputs[op_query(node)]].ndim;
    double scores = attr_int(node, "causal", 0) ? 0.5 : 1;
    if (node->op->id != OP_FlashAttentionGrad || attr_int(node, "library", 0) != RT_LIBRARY ||
        !library_attention(graph, node, q, k, v))
        return 0;
    for (int d = 0; d < ndim - 1; d++) scores *= (double)q[d];
    return scores * (double)k[ndim - 2] * BYTES * WRITTEN_AND_READ;
}

/* What f32 reaches in rankc's kernels is not known, so it counts as a library's, and so does what is no flash
 * attention. */
static bool is_by_library(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k) {
    const struct tensor *t = &graph->tensors.at[node->inputs[op_query(node)]];
    if (node->op->id == OP_Attention || rt_dtypes[t->dtype].kind != RT_KIND_HALF) return true;
    return library_attention(graph, node, q, k, k);
}

double attention_seconds(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                         const struct machine *machine, double flops) {
    const struct tensor *t = &graph->tensors.at[node->inputs[op_query(node)]];
    const double reached = machine_attention(machine, (double)q[t->ndim - 1], is_by_library(graph, node, q, k));
    const double scores = library_attention_scores(graph, node, q, k, k);
    return flops / (machine_rate(machine, t->dtype) * reached) + scores / (machine->bandwidth * machine->traffic);
}
