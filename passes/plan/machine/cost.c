#include "passes/plan/machine/cost.h"

#include <string.h>

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

/* The fraction of the tensor that the rank with the largest part holds. */
static double share_held(const struct tensor *tensor, const struct placement *placement, int ways) {
    int64_t most = 0;
    if (!placement_divides(placement) || !tensor->dims[placement->dim]) return 1;
    const struct rt_placement ranks = placement_among(tensor, placement, ways);
    for (int r = 0; r < ways; r++) {
        int64_t extent = rt_placement_extent(&ranks, r);
        if (extent > most) most = extent;
    }
    return (double)most / (double)tensor->dims[placement->dim];
}

/* Bytes of inputs, or of outputs, that the rank with the largest parts reads or writes, but for those that stay in
 * registers (`fused`, per tensor; NULL: none). */
static double operand_bytes(const struct graph *graph, const struct node *node, const struct dims *dims,
                            const struct node_split *split, int ways, bool inputs, const bool *fused) {
    double bytes = 0;
    for (int k = 0; k < (inputs ? node->ninputs : node->noutputs); k++) {
        int id = inputs ? node->inputs[k] : node->outputs[k];
        if (id < 0 || (fused && fused[id])) continue;
        struct placement placement = dims_placement(dims, inputs ? k : dims->ninputs + k, split);
        bytes += (double)tensor_bytes(&graph->tensors.at[id]) * share_held(&graph->tensors.at[id], &placement, ways);
    }
    return bytes;
}

/* What f32 reaches in rankc's kernels is not known, so it counts as a library's, and so does what is no flash
 * attention. */
static bool is_by_library(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k) {
    const struct tensor *t = &graph->tensors.at[node->inputs[op_query(node)]];
    if (node->op->id == OP_Attention || rt_dtypes[t->dtype].kind != RT_KIND_HALF) return true;
    return library_attention(graph, node, q, k, k);
}

double cost_attention(const struct graph *graph, const struct node *node, const int64_t *q, const int64_t *k,
                      const struct machine *machine, double flops, double share) {
    const struct tensor *t = &graph->tensors.at[node->inputs[op_query(node)]];
    const double reached = machine_attention(machine, (double)q[t->ndim - 1], is_by_library(graph, node, q, k));
    const double scores = library_attention_scores(graph, node, q, k, k) * share;
    return flops / (machine_rate(machine, t->dtype) * reached) + scores / (machine->bandwidth * machine->traffic);
}

/* Roofline: arithmetic and memory traffic overlap, so the slower of both counts. An embedding reads only the rows
 * that it looks up. */
static double cost_of(const struct graph *graph, const struct node *node, const struct dims *dims,
                      const struct node_split *split, int ways, const struct machine *machine, const bool *fused) {
    if (node->op->kind == OP_VIEW) return 0;
    double share = 1, flops = dims_flops(dims, node->op->flops),
           out = operand_bytes(graph, node, dims, split, ways, false, fused),
           in = operand_bytes(graph, node, dims, split, ways, true, fused);
    if (split->factor >= 0) {
        const struct rt_cut cut = {dims->factor[split->factor].extent, split->blocks, split->grain, ways};
        share = (double)rt_cut_extent(&cut, 0) / (double)cut.extent; /* the first rank has the largest part */
    }
    flops *= share;
    bool picks = node->op->id == OP_Gather;
    const enum rt_dtype dtype = graph->tensors.at[node->outputs[0]].dtype;
    double traffic = ((picks ? out : in) + out) / (machine->bandwidth * machine->traffic);
    const bool attention = op_is_attention(node->op);
    if (attention && attr_int(node, "causal", 0)) flops *= causal_excess(node, dims, split, &ways, 1) / 2;
    const int q = op_query(node);
    const double arithmetic = attention
                                  ? cost_attention(graph, node, graph->tensors.at[node->inputs[q]].dims,
                                                   graph->tensors.at[node->inputs[q + 1]].dims, machine, flops, share)
                                  : flops / machine_rate(machine, dtype);
    return arithmetic > traffic ? arithmetic : traffic;
}

double cost_share(const struct graph *graph, const struct node *node, const struct dims *dims,
                  const struct node_split *split, int ways, const struct machine *machine) {
    return cost_of(graph, node, dims, split, ways, machine, NULL);
}

static double cost_whole(const struct graph *graph, const struct node *node, const struct machine *machine,
                         const bool *fused) {
    const struct node_split whole = {.factor = SPLIT_NONE, .blocks = 1, .grain = 1};
    struct dims dims;
    const char *why;
    if (dims_bind(graph->arena, graph, node, &dims, &why) < 0) return 0;
    return cost_of(graph, node, &dims, &whole, 1, machine, fused);
}

/* Per tensor: true if it is computed in the loop of its only reader. */
static bool *find_fused(const struct graph *graph, struct arena *arena) {
    bool *fused = ARENA_ARRAY(arena, bool, graph->tensors.n + 1);
    const int *readers = graph_readers(graph, arena);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (node->op->kind != OP_ELEMENTWISE) continue;
        for (int k = 0; k < node->ninputs; k++) {
            const int id = node->inputs[k], from = id < 0 ? -1 : graph->tensors.at[id].producer;
            const struct node *producer = from < 0 ? NULL : &graph->nodes.at[from];
            if (!producer || producer->op->kind != OP_ELEMENTWISE || producer->phase != node->phase) continue;
            fused[id] = readers[id] == 1 && tensor_elements(&graph->tensors.at[id]) ==
                                                tensor_elements(&graph->tensors.at[node->outputs[0]]);
        }
    }
    return fused;
}

double *cost_nodes(const struct graph *whole, const struct machine *machine, struct arena *arena) {
    const struct graph *graph = graph_typical(whole, arena);
    double *seconds = ARENA_ARRAY(arena, double, graph->nodes.n + 1);
    const bool *fused = find_fused(graph, arena);
    for (int i = 0; i < graph->order.n; i++) {
        const int id = graph->order.at[i];
        seconds[id] = cost_whole(graph, &graph->nodes.at[id], machine, fused);
    }
    return seconds;
}

/* The largest fraction of the tensor that a rank needs under `to` and does not hold under `from`. */
static double share_lacking(const struct tensor *tensor, const struct placement *from, const struct placement *to,
                            int ways) {
    double wanted = share_held(tensor, to, ways), most = 0;
    if (from->dim != to->dim) return wanted * (ways - 1) / ways;
    const struct rt_placement held = placement_among(tensor, from, ways), want = placement_among(tensor, to, ways);
    for (int r = 0; r < ways; r++) {
        double share = (double)rt_placement_lacks(&want, &held, r) / (double)tensor->dims[to->dim];
        if (share > most) most = share;
    }
    return most;
}

double cost_move(const struct tensor *tensor, const struct placement *from, const struct placement *to,
                 const struct machine_group *group) {
    const double bytes = (double)tensor_bytes(tensor);
    if (placement_equal(from, to) || from->kind == PLACED_WHOLE || !tensor_elements(tensor)) return 0;
    if (from->kind == PLACED_PARTIAL) {
        if (to->kind == PLACED_WHOLE) return machine_collective(group, COLLECTIVE_ALL_REDUCE, bytes, 1);
        const struct placement part = {.kind = PLACED_PART, .dim = to->dim, .blocks = 1, .grain = 1};
        const double scattered = machine_collective(group, COLLECTIVE_REDUCE_SCATTER, bytes, 1);
        return to->kind == PLACED_PART ? scattered : scattered + cost_move(tensor, &part, to, group);
    }
    if (to->kind == PLACED_WHOLE) return machine_collective(group, COLLECTIVE_ALL_GATHER, bytes, 1);
    const double lacking = share_lacking(tensor, from, to, (int)group->ranks);
    return lacking > 0 ? machine_exchange(group, COLLECTIVE_ALL_TO_ALL, lacking, bytes, 1) : 0;
}
