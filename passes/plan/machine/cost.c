#include "passes/plan/machine/cost.h"

#include <string.h>

#include "passes/plan/machine/causal.h"
#include "passes/plan/machine/library_attention.h"

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

double *cost_nodes(const struct graph *graph, const struct machine *machine, struct arena *arena) {
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
