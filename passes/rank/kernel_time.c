#include "passes/rank/kernel_time.h"

#include <math.h>
#include <string.h>

#include "ir/expr/expr.h"
#include "passes/plan/machine/cost.h"

/* What the time of a node depends on. */
struct kernel {
    const struct graph *graph;
    const struct rank_class *class;
    const struct node *node;
    const struct machine *machine;
    struct dims dims;
    int units; /* of a ZeRO group */
    const struct reuse *reuse;
    bool alone;
    double distant; /* that of struct machine_kernel_rate */
};

bool kernel_is_product(const struct node *node, const struct dims *dims) {
    if (op_is_attention(node->op) || node->op->id == OP_RecurrenceGrad) return true;
    if (node->op->kind != OP_KERNEL || node->op->flops != 2 || node->ninputs < 2) return false;
    for (int f = 0; f < dims->nfactors; f++)
        if (dims->factor[f].kind == FACTOR_SUM) return true;
    return false;
}

/* In how many runs of rows the product is computed. */
static double runs_of(const struct kernel *kernel) {
    return (double)attr_int(kernel->node, "runs", 1);
}

/* The part of the node's operations that the rank with the largest part has. */
static double share_of(const struct kernel *kernel) {
    const struct graph *graph = kernel->graph;
    double share = 1;
    for (int axis = 0; axis < graph->mesh.naxes; axis++) {
        const struct node_split *split = &kernel->node->split[axis];
        const int ways = graph->mesh.axis[axis].size;
        if (split->factor == SPLIT_FLAT) share /= ways;
        if (split->factor < 0) continue;
        const double extent = (double)kernel->dims.factor[split->factor].extent;
        const struct rt_cut cut = {kernel->dims.factor[split->factor].extent, split->blocks, split->grain, ways};
        if (extent > 0) share *= (double)rt_cut_extent(&cut, 0) / extent;
    }
    return share;
}

/* The work of the rank that has most of a causal attention, as a multiple of the mean. */
static double excess_of(const struct kernel *kernel) {
    const struct mesh *mesh = &kernel->graph->mesh;
    int ways[RT_MAX_AXES];
    for (int axis = 0; axis < mesh->naxes; axis++) ways[axis] = mesh->axis[axis].size;
    return causal_excess(kernel->node, &kernel->dims, kernel->node->split, ways, mesh->naxes);
}

/* Traffic ---------------------------------------------------------------------------------------------------------- */

static double bytes_of(const struct kernel *kernel, int tensor) {
    return rankplan_operand_bytes(kernel->class, kernel->graph, tensor, kernel->units);
}

static double elements_of(const struct kernel *kernel, int tensor) {
    if (tensor < 0) return 0;
    return (double)rankplan_elements(kernel->class, kernel->graph, tensor) *
           rankplan_slice(kernel->graph, tensor, kernel->units);
}

/* True if the output replaces an operand. */
static bool overwrites(const struct kernel *kernel, int output) {
    const struct node *node = kernel->node;
    if (node->op->kind == OP_ELEMENTWISE) return rankplan_in_place(kernel->class, kernel->graph, node, output) >= 0;
    if (node->op->kind != OP_COMM) return false;
    const struct plan_place *to = &kernel->class->place[node->outputs[output]];
    const struct plan_place *from = &kernel->class->place[op_moved_input(node)];
    return to->arena == from->arena && to->offset == from->offset;
}

/* How many times the bytes of an operand are touched, and moved: a written byte moves several, unless it replaces an
 * operand's. An embedding reads only the rows that it looks up. */
struct times {
    double touched, moved;
};

static struct times times_of(const struct kernel *kernel, int k) {
    const struct node *node = kernel->node;
    const double writes = kernel->machine->writes;
    const bool looks_up = node->op->id == OP_Gather;
    if (k < node->ninputs) return looks_up ? (struct times){0} : (struct times){1, k ? runs_of(kernel) : 1};
    const bool in_place = writes > 1 && overwrites(kernel, k - node->ninputs);
    return in_place ? (struct times){0, 1} : (struct times){1 + looks_up, writes + looks_up};
}

/* Seconds per byte of an operand at that reuse distance. */
static double byte_seconds(const struct kernel *kernel, double distance) {
    return machine_byte_seconds(kernel->machine, distance, kernel->alone, kernel->distant);
}

/* Seconds for a byte of the tensor, which comes from the cache, or the memory, that keeps as many bytes as were touched
 * since it was: by what was executed before, and at least by the kernel itself. */
static double seconds_per_byte(const struct kernel *kernel, int tensor, double least) {
    const struct pieces *pieces = &kernel->reuse->pieces;
    double bytes = 0, seconds = 0;
    for (int p = pieces->first[tensor]; p < pieces->end[tensor]; p++) {
        const double distance = fmax(reuse_distance(kernel->reuse, p), least);
        bytes += pieces->bytes[p];
        seconds += pieces->bytes[p] * byte_seconds(kernel, distance);
    }
    return bytes > 0 ? seconds / bytes : 0;
}

static double moving_seconds(const struct kernel *kernel) {
    const int operands = kernel->node->ninputs + kernel->node->noutputs;
    double all = 0, seconds = 0;
    for (int k = 0; k < operands; k++)
        all += times_of(kernel, k).touched * bytes_of(kernel, node_tensor(kernel->node, k));
    for (int k = 0; k < operands; k++) {
        const int tensor = node_tensor(kernel->node, k);
        const double bytes = times_of(kernel, k).moved * bytes_of(kernel, tensor);
        if (!(bytes > 0)) continue;
        seconds += bytes * (kernel->reuse ? seconds_per_byte(kernel, tensor, all) : byte_seconds(kernel, all));
    }
    return seconds;
}

/* Elementwise expressions ------------------------------------------------------------------------------------------ */

/* Operations of the expression for one element; a function counts as operators of ops.def count it. */
static double operations_of(const struct expr *expr) {
    double operations = expr->kind == EXPR_CALL ? 8 : expr->kind == EXPR_NUMBER || expr->kind == EXPR_NAME ? 0 : 1;
    for (int i = 0; i < expr->nargs; i++) operations += operations_of(expr->arg[i]);
    return operations;
}

/* Operations for an element of an elementwise node or a program over rows. */
static double operations_per_element(const struct kernel *kernel) {
    const struct node *node = kernel->node;
    const char *text = attr_text(node, "expr", NULL);
    if (!text || node->op->kind == OP_KERNEL) return node->op->kind == OP_ELEMENTWISE ? node->op->flops : 0;
    const struct expr_chain *chain = expr_texts_chain(kernel->graph->texts, text, node->ninputs, true);
    double operations = 0;
    if (!chain) return node->op->flops;
    for (int i = 0; i < chain->nnamed; i++) operations += operations_of(chain->named[i]);
    for (int i = 0; i < chain->nvalues; i++) operations += operations_of(chain->value[i]);
    return operations;
}

static double elementwise_seconds(const struct kernel *kernel) {
    double most = 0;
    if (!isfinite(kernel->machine->elementwise)) return 0;
    for (int k = 0; k < kernel->node->ninputs + kernel->node->noutputs; k++)
        most = fmax(most, elements_of(kernel, node_tensor(kernel->node, k)));
    return most * operations_per_element(kernel) / kernel->machine->elementwise;
}

/* Kernels with rates of their own ---------------------------------------------------------------------------------- */

/* A convolution's products on the rank, a pooling's windows, or a reduction; an extent of 0 does not matter. */
struct windows {
    enum machine_kernel kernel;
    double flops, extent[MACHINE_EXTENTS];
};

/* Elements of an image of one channel. */
static double image_of(const struct kernel *kernel, int tensor) {
    double elements = 1;
    for (int d = 2; d < kernel->graph->tensors.at[tensor].ndim; d++) elements *= (double)kernel->class->dims[tensor][d];
    return elements;
}

static bool has_strides(const struct node *node) {
    int n;
    const int64_t *stride = attr_ints(node, "stride", &n);
    for (int d = 0; d < n; d++)
        if (stride[d] > 1) return true;
    return false;
}

/* The convolution that the node is, or of which it is a gradient: `weights`, and the tensor at the windows' side. */
static struct windows convolution_of(const struct kernel *kernel, int weights, int at, enum machine_kernel base) {
    const int64_t *shape = kernel->class->dims[weights];
    const double window = image_of(kernel, weights), inputs = (double)shape[1], positions = image_of(kernel, at);
    const double elements = (double)rankplan_elements(kernel->class, kernel->graph, at);
    const double groups = fmax((double)attr_int(kernel->node, "group", 1), 1);
    const bool depthwise = inputs == 1 && kernel->graph->tensors.at[weights].dims[1] == 1 && window > 1;
    const enum machine_kernel kind = !depthwise                  ? window == 1 ? MACHINE_POINTWISE : MACHINE_CONVOLUTION
                                     : has_strides(kernel->node) ? MACHINE_STRIDED
                                                                 : MACHINE_DEPTHWISE;
    struct windows windows = {.kernel = (enum machine_kernel)(base + kind - MACHINE_CONVOLUTION),
                              .flops = 2 * elements * inputs * window,
                              .extent = {positions}};
    if (depthwise) return windows;
    windows.extent[MACHINE_POSITIONS] = fmax(positions, MACHINE_LEAST_POSITIONS);
    windows.extent[MACHINE_OUTPUTS] = (double)shape[0] / groups;
    windows.extent[MACHINE_SUMS] = inputs * window;
    return windows;
}

/* A pooling: an operation for each element of a window. */
static bool find_pooling(const struct kernel *kernel, struct windows *windows) {
    const struct node *node = kernel->node;
    const bool forward = node->op->id == OP_MaxPool;
    int dims;
    if (!forward && node->op->id != OP_MaxPoolGrad) return false;
    const int64_t *window = attr_ints(node, "window", &dims);
    *windows = (struct windows){.kernel = forward ? MACHINE_POOLING : MACHINE_POOLING_GRADIENT};
    windows->flops = elements_of(kernel, forward ? node->outputs[0] : node->inputs[1]);
    for (int d = 0; d < dims; d++) windows->flops *= (double)window[d];
    return true;
}

/* A reduction over adjacent dimensions: an operation for each element. */
static bool find_reduction(const struct kernel *kernel, struct windows *windows) {
    static const enum op_id reductions[] = {OP_ReduceSum, OP_ReduceMax, OP_ReduceMin, OP_ReduceProd};
    const struct node *node = kernel->node;
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
        if (reductions[i] != node->op->id) continue;
        int n;
        const int64_t *axes = attr_ints(node, "axes", &n), *dims = kernel->class->dims[node->inputs[0]];
        int64_t inner = 1;
        for (int d = n ? (int)axes[n - 1] + 1 : 0; d < kernel->graph->tensors.at[node->inputs[0]].ndim; d++)
            inner *= dims[d];
        const double elements = elements_of(kernel, node->inputs[0]);
        *windows = (struct windows){.kernel = inner == 1 ? MACHINE_REDUCTION_ROWS : MACHINE_REDUCTION_COLUMNS,
                                    .flops = elements,
                                    .extent = {elements / fmax(elements_of(kernel, node->outputs[0]), 1)}};
        return true;
    }
    return false;
}

/* Convolutions: which operands (inputs, then outputs) are the weights, and the tensor at the windows' side. */
static const struct {
    enum op_id op;
    int weights, at;
    enum machine_kernel kernel;
} convolutions[] = {
    {OP_Conv, 1, 2, MACHINE_CONVOLUTION},
    {OP_ConvTranspose, 1, 0, MACHINE_CONVOLUTION_INPUT},
    {OP_ConvWeightGrad, 2, 1, MACHINE_CONVOLUTION_WEIGHT},
};

/* False: the node's kernel has no rate of its own. */
static bool find_windows(const struct kernel *kernel, struct windows *windows) {
    const struct node *node = kernel->node;
    for (size_t i = 0; i < sizeof convolutions / sizeof *convolutions; i++) {
        if (convolutions[i].op != node->op->id) continue;
        *windows = convolution_of(kernel, node_tensor(node, convolutions[i].weights),
                                  node_tensor(node, convolutions[i].at), convolutions[i].kernel);
        return true;
    }
    return find_pooling(kernel, windows) || find_reduction(kernel, windows);
}

/* Seconds of its arithmetic, where the machine says how fast that is; negative: it does not. */
static double windows_seconds(const struct kernel *kernel, const struct windows *windows) {
    const struct machine_kernel_rate *rate = &kernel->machine->kernel[windows->kernel];
    if (!(rate->rate > 0)) return -1;
    double reached = 1;
    for (int e = 0; e < MACHINE_EXTENTS; e++)
        if (windows->extent[e] > 0) reached *= windows->extent[e] / (windows->extent[e] + rate->half[e]);
    return windows->flops / (rate->rate * reached);
}

/* Products --------------------------------------------------------------------------------------------------------- */

/* The part of the rate that a product reaches: its rows, columns and summed extent follow from the result. */
static double reached_by(const struct kernel *kernel, double flops) {
    const struct tensor *result = &kernel->graph->tensors.at[kernel->node->outputs[0]];
    const double elements = (double)rankplan_elements(kernel->class, kernel->graph, kernel->node->outputs[0]);
    const int last = result->ndim - 1;
    if (last < 0 || elements <= 0) return 1;
    const double n = (double)kernel->class->dims[kernel->node->outputs[0]][last];
    return machine_reached(kernel->machine, elements / n / runs_of(kernel), n, flops / (2 * elements));
}

static double product_seconds(const struct kernel *kernel, struct kernel_work *work) {
    const struct node *node = kernel->node;
    const enum rt_dtype dtype = kernel->graph->tensors.at[node->inputs[0]].dtype;
    const bool fused = op_is_attention(node->op);
    const double flops = dims_flops(&kernel->dims, node->op->flops) * share_of(kernel);
    work->type = machine_type_of(kernel->machine, dtype);
    work->flops = work->causal_flops = flops;
    if (fused && attr_int(node, "causal", 0)) work->causal_flops /= 2;
    const int q = op_query(node);
    if (fused)
        return cost_attention(kernel->graph, node, kernel->class->dims[node->inputs[q]],
                              kernel->class->dims[node->inputs[q + 1]], kernel->machine,
                              work->causal_flops * excess_of(kernel), 1);
    return flops / (machine_rate(kernel->machine, dtype) * reached_by(kernel, flops));
}

struct kernel_work kernel_work(const struct graph *graph, const struct rank_class *class, const struct node *node,
                               const struct machine *machine, int units, const struct reuse *reuse, bool alone) {
    struct kernel kernel = {.graph = graph,
                            .class = class,
                            .node = node,
                            .machine = machine,
                            .units = units,
                            .reuse = reuse,
                            .alone = alone};
    struct kernel_work work = {0};
    struct windows windows;
    const char *why;
    if (dims_bind(graph->arena, graph, node, &kernel.dims, &why) < 0) return work;
    const bool product = kernel_is_product(node, &kernel.dims);
    double arithmetic = product ? product_seconds(&kernel, &work) : elementwise_seconds(&kernel);
    const bool own = find_windows(&kernel, &windows);
    if (own) {
        const double measured = windows_seconds(&kernel, &windows);
        if (product) work.flops = work.causal_flops = windows.flops;
        if (measured >= 0) arithmetic = measured;
    }
    if (alone) arithmetic /= machine->alone;
    if (own) kernel.distant = machine->kernel[windows.kernel].distant;
    const double moving = moving_seconds(&kernel);
    /* processors read ahead of arithmetic where operands are read in order; GPUs compute other tiles meanwhile */
    const bool hidden = !reuse || (!product && !own);
    work.seconds = hidden ? fmax(arithmetic, moving) : arithmetic + moving;
    work.seconds += runs_of(&kernel) * machine->launch;
    return work;
}

double collective_moving(const struct graph *graph, const struct rank_class *class, const struct node *node,
                         const struct machine *machine, int units, const struct reuse *reuse) {
    const struct kernel kernel = {
        .graph = graph, .class = class, .node = node, .machine = machine, .units = units, .reuse = reuse};
    return moving_seconds(&kernel);
}

struct kernel_size kernel_size(const struct graph *graph, const struct rank_class *class, const struct node *node) {
    struct kernel kernel = {.graph = graph, .class = class, .node = node, .units = 1};
    struct windows windows;
    double read = 0, written = 0, most = 0;
    const char *why;
    for (int k = 0; k < node->ninputs + node->noutputs; k++) {
        const int tensor = node_tensor(node, k);
        *(k < node->ninputs ? &read : &written) += bytes_of(&kernel, tensor);
        most = fmax(most, elements_of(&kernel, tensor));
    }
    if (node->op->kind == OP_COMM) return (struct kernel_size){.bytes = fmax(read, written)};
    struct kernel_size size = {.bytes = written + (node->op->id == OP_Gather ? written : read)};
    if (dims_bind(graph->arena, graph, node, &kernel.dims, &why) < 0) return size;
    if (find_windows(&kernel, &windows))
        size.flops = windows.flops;
    else if (kernel_is_product(node, &kernel.dims))
        size.flops = dims_flops(&kernel.dims, node->op->flops) * share_of(&kernel);
    else
        size.flops = most * operations_per_element(&kernel);
    return size;
}
