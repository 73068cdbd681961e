/* Asynchronous tensor parallelism: overlaps the sum of a product's partial results along a mesh axis with the product.
 * The rows of the product are computed in runs; while a run is computed, the results of the run before are summed. Each
 * element is summed in the same order as without runs. Source: S. Wang et al., "Overlap Communication with Dependent
 * Computation via Decomposition in Large Deep Learning Models", ASPLOS 2023, with all-reduces of runs in place of a
 * ring. */
#include <math.h>

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/plan/machine.h"

/* A product and the all-reduce that alone reads it. */
struct pair {
    int product, sum, axis;
    double rows, columns, summed; /* extents of the product on the rank with the largest part */
};
typedef VEC(struct pair) pairs;

/* Extents of the product's parts; false if it is none that can be computed in runs of rows. */
static bool measure(const struct graph *graph, const struct node *node, struct pair *pair) {
    struct dims dims;
    const char *why;
    if (node->op->id != OP_MatMul || node->noutputs != 1 || attr_find(node, "expr") || attr_int(node, "trans_a", 0) ||
        dims_bind(graph->arena, graph, node, &dims, &why) < 0 || dims.alternative)
        return false;
    pair->rows = pair->columns = pair->summed = 1;
    for (int f = 0; f < dims.nfactors; f++) {
        int64_t extent = dims.factor[f].extent;
        for (int axis = 0; axis < graph->mesh.naxes; axis++) {
            const struct node_split *split = &node->split[axis];
            const struct rt_cut cut = {extent, split->blocks, split->grain, graph->mesh.axis[axis].size};
            if (split->factor == f) extent = rt_cut_extent(&cut, 0);
        }
        const bool column = f == dims_find(&dims, "n"), sum = dims.factor[f].kind == FACTOR_SUM;
        *(column ? &pair->columns : sum ? &pair->summed : &pair->rows) *= (double)extent;
    }
    return pair->rows >= 2;
}

static void find_pairs(const struct graph *graph, pairs *found) {
    const int *readers = graph_readers(graph, graph->arena);
    for (int i = 0; i < graph->order.n; i++) {
        struct pair pair = {.sum = graph->order.at[i]};
        const struct node *sum = &graph->nodes.at[pair.sum];
        if (sum->op->id != OP_AllReduce || op_reduction(sum) != RT_SUM || attr_find(sum, "begun")) continue;
        pair.axis = (int)attr_int(sum, "mesh", 0);
        pair.product = graph->tensors.at[sum->inputs[0]].producer;
        if (pair.product < 0 || pair.axis >= graph->mesh.naxes || readers[sum->inputs[0]] != 1) continue;
        const struct node *product = &graph->nodes.at[pair.product];
        if (product->phase == sum->phase && product->stage == sum->stage && measure(graph, product, &pair))
            VEC_PUSH(graph->arena, found, pair);
    }
}

/* Seconds of the product and the part of its sum that the product does not hide. */
static double seconds_of(const struct graph *graph, const struct machine *machine, const struct pair *pair, int runs) {
    const struct tensor *result = &graph->tensors.at[graph->nodes.at[pair->product].outputs[0]];
    const double ways = graph->mesh.axis[pair->axis].size;
    const struct machine_level link = machine_link(machine, ways, mesh_stride(&graph->mesh, pair->axis));
    const double bytes = pair->rows * pair->columns * (double)rt_dtype_bytes(result->dtype);
    const double reached = machine_reached(machine, pair->rows / runs, pair->columns, pair->summed);
    const double product = runs * machine->launch + 2 * pair->rows * pair->columns * pair->summed /
                                                        (machine_rate(machine, result->dtype) * reached);
    const double sum = runs * link.latency +
                       2 * (ways - 1) / ways * bytes / machine_curve_at(&link.by_size, bytes / runs, link.bandwidth);
    return product + sum - fmin(sum, product * machine->overlap) * (runs - 1) / runs;
}

/* The number of runs with which all products take the least time; 1: none pays. */
static int best_runs(const struct graph *graph, const struct machine *machine, const pairs *all) {
    static const int tried[] = {1, 2, 4, 8};
    double least = INFINITY;
    int best = 1;
    for (size_t t = 0; t < sizeof tried / sizeof *tried; t++) {
        double seconds = 0;
        for (int i = 0; i < all->n; i++) seconds += seconds_of(graph, machine, &all->at[i], tried[t]);
        if (seconds < least) least = seconds, best = tried[t];
    }
    return best;
}

int pass_product_runs(struct graph *graph, const struct pass_context *context) {
    const struct machine *machine = context->machine ? context->machine : &machine_default;
    pairs all = {0};
    if (!context->product_runs) return 0;
    find_pairs(graph, &all);
    if (!all.n)
        diag_remark(context->diags, graph->name, "--async-tp: no product's partial results are summed over ranks");
    graph->product_runs = context->product_runs > 0 ? context->product_runs : best_runs(graph, machine, &all);
    for (int i = 0; i < all.n && graph->product_runs > 1; i++) {
        struct node *product = &graph->nodes.at[all.at[i].product];
        attr_set(graph, product, attr_of_int("runs", graph->product_runs));
        attr_set(graph, product, attr_of_int("sum_axis", all.at[i].axis));
        attr_set(graph, &graph->nodes.at[all.at[i].sum], attr_of_int("begun", 2));
    }
    return 0;
}
