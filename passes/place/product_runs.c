/* Asynchronous tensor parallelism: communication along a mesh axis beside the product before or behind it. The rows of
 * the product are computed in runs. While a run is computed,
 *
 *   all-reduce       the partial results of the run before are summed
 *   reduce-scatter   the same; each rank gets its part
 *   all-gather       the operand of the next run is gathered
 *
 * Each element is summed in the same order as without runs. Source: S. Wang et al., "Overlap Communication with
 * Dependent Computation via Decomposition in Large Deep Learning Models", ASPLOS 2023, with collectives of runs in
 * place of a ring of transfers. */
#include <math.h>

#include "ir/dims.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "passes/pipeline.h"
#include "passes/plan/machine/machine.h"

/* A product and its communication. */
struct pair {
    int product, move, axis;
    double rows, columns, summed; /* extents of the product on the rank with the largest part */
    double items;                 /* product of the extents before the dimension that ranks divide; 0: an all-reduce */
};
struct pairing {
    struct graph *graph;
    const struct graph *typical; /* of whose extents products are (graph_typical) */
    const int *readers;
    struct uses uses;
    int *place; /* per node: its position in the order */
    VEC(struct pair) pairs;
};

static const struct node *node_at(const struct pairing *p, int id) {
    return &p->graph->nodes.at[id];
}

/* The largest extent of dimension `dim` of a tensor on a rank, but for the cut along `except`; 0: an axis cuts it. */
static double extent_beside(const struct graph *graph, int tensor, int dim, int except, bool may_cut) {
    const struct tensor *t = &graph->tensors.at[tensor];
    double extent = (double)t->dims[dim];
    for (int axis = 0; axis < graph->mesh.naxes; axis++) {
        const struct placement held = layout_along(&t->layout, axis);
        if (axis == except || held.kind != PLACED_PART || held.dim != dim) continue;
        extent = may_cut ? ceil(extent / graph->mesh.axis[axis].size) : 0;
    }
    return extent;
}

/* Extents of the product's parts; false if it is none that can be computed in runs of rows. */
static bool measure(const struct graph *graph, const struct node *node, struct pair *pair) {
    struct dims dims;
    if (node->op->id != OP_MatMul || node->noutputs != 1 || attr_int(node, "trans_a", 0) || attr_find(node, "runs") ||
        dims_bind(graph->arena, graph, node, &dims, NULL) < 0 || dims.alternative)
        return false;
    pair->rows = pair->columns = pair->summed = 1;
    for (int f = 0; f < dims.nfactors; f++) {
        int64_t extent = dims.factor[f].extent;
        EACH(node->split, graph->mesh.naxes, axis, const struct node_split *split) {
            const struct rt_cut cut = {extent, split->blocks, split->grain, graph->mesh.axis[axis].size};
            if (split->factor == f) extent = rt_cut_extent(&cut, 0);
        }
        const bool column = f == dims_find(&dims, "n"), sum = dims.factor[f].kind == FACTOR_SUM;
        *(column ? &pair->columns : sum ? &pair->summed : &pair->rows) *= (double)extent;
    }
    return pair->rows >= 2;
}

/* Counts the items of the tensor whose parts along the axis the collective makes or joins; false if the parts differ in
 * size, or are no runs of rows. */
static bool count_items(const struct graph *graph, const struct node *move, int tensor, struct pair *pair) {
    const int dim = (int)attr_int(move, "dim", -1), ways = graph->mesh.axis[pair->axis].size;
    if (dim < 0 || dim > graph->tensors.at[tensor].ndim - 2 || attr_int(move, "blocks", 1) != 1) return false;
    const double extent = extent_beside(graph, tensor, dim, pair->axis, false);
    pair->items = 1;
    for (int d = 0; d < dim; d++) pair->items *= extent_beside(graph, tensor, d, pair->axis, true);
    return extent > 0 && fmod(extent, (double)ways * (double)attr_int(move, "grain", 1)) == 0 && pair->items > 0;
}

static bool are_together(const struct node *a, const struct node *b) {
    return a->phase == b->phase && a->stage == b->stage;
}

/* Reductions of partial results that nothing else reads. */
static void add_reduction(struct pairing *p, int id) {
    const struct graph *graph = p->graph;
    const struct node *move = node_at(p, id);
    const bool scatters = move->op->id == OP_ReduceScatter;
    struct pair pair = {.move = id, .axis = (int)attr_int(move, "mesh", 0)};
    if ((move->op->id != OP_AllReduce && !scatters) || op_reduction(move) != RT_SUM || attr_find(move, "begun")) return;
    pair.product = graph->tensors.at[move->inputs[0]].producer;
    if (pair.product < 0 || pair.axis >= graph->mesh.naxes || p->readers[move->inputs[0]] != 1 ||
        layout_flat_axes(&graph->tensors.at[move->outputs[0]].layout))
        return;
    const struct node *product = node_at(p, pair.product);
    if (!are_together(product, move) || attr_find(product, "expr") ||
        !measure(p->typical, &p->typical->nodes.at[pair.product], &pair))
        return;
    if (!scatters || count_items(graph, move, move->inputs[0], &pair)) VEC_PUSH(graph->arena, &p->pairs, pair);
}

/* True if nodes between the two communicate along the axis. */
static bool communicates_between(const struct pairing *p, int first, int last, int axis) {
    for (int i = p->place[first] + 1; i < p->place[last]; i++) {
        const struct node *node = node_at(p, p->graph->order.at[i]);
        if (node->op->kind == OP_COMM && attr_int(node, "mesh", -1) == axis) return true;
    }
    return false;
}

/* Gathers of a tensor that a product reads as its first operand, before anything else reads it. */
static void add_gather(struct pairing *p, int id) {
    const struct graph *graph = p->graph;
    const struct node *move = node_at(p, id);
    const int whole = move->outputs[0];
    struct pair pair = {.move = id, .axis = (int)attr_int(move, "mesh", 0), .product = -1};
    if (move->op->id != OP_AllGather || pair.axis >= graph->mesh.naxes || attr_find(move, "begun") ||
        layout_flat_axes(&graph->tensors.at[move->inputs[0]].layout))
        return;
    for (int u = p->uses.first[whole]; u < p->uses.first[whole + 1]; u++)
        if (pair.product < 0 || p->place[p->uses.users[u]] < p->place[pair.product]) pair.product = p->uses.users[u];
    const struct node *product = pair.product < 0 ? NULL : node_at(p, pair.product);
    if (product && product->inputs[0] == whole && are_together(product, move) &&
        measure(p->typical, &p->typical->nodes.at[pair.product], &pair) && product->inputs[1] != whole &&
        !attr_find(product, "expr") && count_items(graph, move, whole, &pair) &&
        !communicates_between(p, id, pair.product, pair.axis))
        VEC_PUSH(graph->arena, &p->pairs, pair);
}

/* Of a single item, a run has the parts of equally many ranks. */
static int runs_of(const struct graph *graph, const struct pair *pair, int asked) {
    const int ways = graph->mesh.axis[pair->axis].size;
    int runs = asked < ways ? asked : ways;
    if (!pair->items) return asked;
    while (ways % runs) runs++;
    return pair->items > 1 ? (int)pair->items : runs;
}

/* Seconds of the product and the part of its communication that it does not hide. */
static double seconds_of(const struct graph *graph, const struct machine *machine, const struct pair *pair, int runs) {
    const struct node *move = &graph->nodes.at[pair->move];
    const struct tensor *result = &graph->tensors.at[graph->nodes.at[pair->product].outputs[0]];
    const double ways = graph->mesh.axis[pair->axis].size;
    const int stage = schedule_home(graph, move->stage);
    const struct machine_group group = {machine, ways, mesh_stride(&graph->mesh, pair->axis, stage)};
    const double width = move->op->id == OP_AllGather ? pair->summed : pair->columns;
    const double bytes = pair->rows * width * (double)rt_dtype_bytes(result->dtype);
    const double reached = machine_reached(machine, pair->rows / runs, pair->columns, pair->summed);
    const double product = runs * machine->launch + 2 * pair->rows * pair->columns * pair->summed /
                                                        (machine_rate(machine, result->dtype) * reached);
    const double moved = machine_collective(&group, move->op->collective, bytes, runs);
    return product + moved - machine_hidden(machine, product, moved) * (runs - 1) / runs;
}

/* The number of runs of all-reduces with which all products take the least time; 1: runs do not pay. */
static int best_runs(const struct pairing *p, const struct machine *machine) {
    static const int tried[] = {1, 2, 4, 8};
    double least = INFINITY;
    int best = 1;
    for (size_t t = 0; t < sizeof tried / sizeof *tried; t++) {
        double seconds = 0;
        VEC_EACH(&p->pairs, i, const struct pair *pair) {
            const int runs = tried[t] > 1 ? runs_of(p->graph, pair, tried[t]) : 1;
            seconds += seconds_of(p->graph, machine, pair, (int)open_typical(p->graph->open, runs));
        }
        if (seconds < least) least = seconds, best = tried[t];
    }
    return best;
}

static void mark(struct graph *graph, const struct pair *pair) {
    struct node *product = &graph->nodes.at[pair->product], *move = &graph->nodes.at[pair->move];
    const bool gathers = move->op->id == OP_AllGather;
    if (attr_find(product, "runs")) return; /* of a product with both, one is beside it */
    const struct attr runs = attr_of_int("runs", runs_of(graph, pair, graph->product_runs));
    attr_set(graph, product, runs);
    attr_set(graph, move, runs);
    attr_set(graph, product, attr_of_int(gathers ? "gather_axis" : "sum_axis", pair->axis));
    if (pair->items) attr_set(graph, product, attr_of_int("run_dim", attr_int(move, "dim", 0)));
    if (!gathers) attr_set(graph, move, attr_of_int("begun", 2));
}

int pass_product_runs(struct graph *graph, const struct pass_context *context) {
    const struct machine *machine = context->machine ? context->machine : &machine_default;
    struct pairing p = {.graph = graph};
    if (!context->decisions.product_runs) return 0;
    p.typical = graph_typical(graph, graph->arena);
    p.readers = graph_readers(graph, graph->arena);
    p.uses = graph_uses(graph, graph->arena);
    p.place = graph_positions(graph, graph->arena);
    for (int i = 0; i < graph->order.n; i++) {
        add_reduction(&p, graph->order.at[i]);
        add_gather(&p, graph->order.at[i]);
    }
    if (!p.pairs.n)
        diag_remark(context->diags, graph->name, "--async-tp: no product has communication of its rows beside it");
    graph->product_runs =
        context->decisions.product_runs > 0 ? (int)context->decisions.product_runs : best_runs(&p, machine);
    for (int i = 0; i < p.pairs.n && graph->product_runs > 1; i++) mark(graph, &p.pairs.at[i]);
    return 0;
}
