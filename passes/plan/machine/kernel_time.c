#include "passes/plan/machine/kernel_time.h"

#include <math.h>

#include "ir/expr/expr.h"
#include "passes/plan/machine/attention_time.h"
#include "runtime/base/contract.h"
#include "runtime/base/number/checked.h"

/* A kernel, and what follows from its node. */
struct pricing {
    const struct kernel *kernel;
    const struct graph *graph;
    const struct node *node;
    const struct machine *machine;
    struct dims dims;
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
static double runs_of(const struct pricing *p) {
    return (double)attr_int(p->node, "runs", 1);
}

/* The part of the node's operations that the rank with the largest part has. */
static double share_of(const struct pricing *p) {
    const struct graph *graph = p->graph;
    double share = 1;
    EACH(p->kernel->split, graph->mesh.naxes, axis, const struct node_split *split) {
        const int ways = graph->mesh.axis[axis].size;
        if (split->factor == SPLIT_FLAT) share /= ways;
        if (split->factor < 0) continue;
        const double extent = (double)p->dims.factor[split->factor].extent;
        const struct rt_cut cut = {p->dims.factor[split->factor].extent, split->blocks, split->grain, ways};
        if (extent > 0) share *= (double)rt_cut_extent(&cut, 0) / extent;
    }
    return share;
}

/* Elements of the part before ZeRO cuts it. */
static double part_elements(const struct kernel *kernel, int tensor) {
    int64_t elements;
    if (!rt_product(kernel->extents[tensor], kernel->graph->tensors.at[tensor].ndim, &elements))
        BUG("a part is too large");
    return (double)elements;
}

/* The part of those that a rank has: less than 1 for what ZeRO cuts. */
static double slice_of(const struct kernel *kernel, int tensor) {
    const struct mesh *mesh = &kernel->graph->mesh;
    const unsigned axes = layout_flat_axes(&kernel->graph->tensors.at[tensor].layout);
    double ranks = 1;
    for (int axis = 0; axis <= mesh->naxes; axis++)
        if (axes >> axis & 1u) ranks *= axis < mesh->naxes ? mesh->axis[axis].size : kernel->units;
    return 1 / ranks;
}

static double elements_of(const struct kernel *kernel, int tensor) {
    return tensor < 0 ? 0 : part_elements(kernel, tensor) * slice_of(kernel, tensor);
}

double kernel_bytes(const struct kernel *kernel, int tensor) {
    if (tensor < 0) return 0;
    return elements_of(kernel, tensor) * (double)rt_dtype_bytes(kernel->graph->tensors.at[tensor].dtype);
}

/* How many times the bytes of an operand are touched, and moved: a written byte moves several, unless it replaces an
 * operand's. Weights that a kernel packs are read, and written and read in panels. An embedding reads only the rows
 * that it looks up, a cache to which rows are added is not read, and few rows read the matrices of as many experts. */
struct times {
    double touched, moved;
};

/* The part of a stack of experts' weights that the rows read, if each has another expert. */
static double chosen_part(const struct pricing *p) {
    const double experts = (double)p->graph->tensors.at[p->node->inputs[1]].dims[0];
    return fmin(1, elements_of(p->kernel, p->node->inputs[p->node->ninputs - 1]) / fmax(experts, 1));
}

/* Of a cache to which a node adds rows, the part that these are. */
static struct times added_to(const struct pricing *p, int k) {
    const double all = elements_of(p->kernel, p->node->outputs[0]);
    const double rows = elements_of(p->kernel, p->node->inputs[1]) / fmax(all, 1);
    return k == 0 ? (struct times){0} : k == 1 ? (struct times){1, 1} : (struct times){rows, rows * p->machine->writes};
}

/* A convolution with channels last, or its gradient for the input, that packs its weights when it is executed. */
static bool packs_in_step(const struct node *node) {
    return (node->op->id == OP_Conv || node->op->id == OP_ConvTranspose) && attr_int(node, "channels_last", 0) &&
           !attr_int(node, "packed", 0);
}

static struct times times_of(const struct pricing *p, int k) {
    const struct node *node = p->node;
    const double writes = p->machine->writes;
    const bool looks_up = node->op->id == OP_Gather;
    if (node->op->id == OP_Append) return added_to(p, k);
    if (op_is_of_experts(node->op) && k > 0 && k < node->ninputs - 1)
        return (struct times){chosen_part(p), chosen_part(p)};
    if (k == 1 && packs_in_step(node)) return (struct times){2, 2 + writes};
    if (k < node->ninputs) return looks_up ? (struct times){0} : (struct times){1, k ? runs_of(p) : 1};
    const struct kernel_memory *memory = p->kernel->memory;
    const bool in_place = writes > 1 && memory && memory->overwrites(p->kernel, k - node->ninputs);
    return in_place ? (struct times){0, 1} : (struct times){1 + looks_up, writes + looks_up};
}

static bool reuses(const struct kernel *kernel) {
    return kernel->memory && kernel->memory->reuse;
}

static double moving_seconds(const struct pricing *p) {
    const int operands = p->node->ninputs + p->node->noutputs;
    const struct kernel_memory *memory = p->kernel->memory;
    double all = 0, seconds = 0;
    for (int k = 0; k < operands; k++) all += times_of(p, k).touched * kernel_bytes(p->kernel, node_tensor(p->node, k));
    for (int k = 0; k < operands; k++) {
        const int tensor = node_tensor(p->node, k);
        const double bytes = times_of(p, k).moved * kernel_bytes(p->kernel, tensor);
        if (!(bytes > 0)) continue;
        if (p->graph->tensors.at[tensor].host) { /* what replaces it is written while the next elements are read */
            seconds += bytes / p->machine->host_bandwidth;
            continue;
        }
        seconds += bytes * (reuses(p->kernel) ? memory->byte_seconds(p->kernel, tensor, all, p->distant)
                                              : machine_byte_seconds(p->machine, all, p->kernel->alone, p->distant));
    }
    return seconds;
}

/* Operations of the expression for one element; a function counts as operators of ops.def count it. */
static double operations_of(const struct expr *expr) {
    double operations = expr->kind == EXPR_CALL ? 8 : expr->kind == EXPR_NUMBER || expr->kind == EXPR_NAME ? 0 : 1;
    for (int i = 0; i < expr->nargs; i++) operations += operations_of(expr->arg[i]);
    return operations;
}

/* Operations for an element of an elementwise node or a program over rows. */
static double operations_per_element(const struct pricing *p) {
    const struct node *node = p->node;
    const char *text = attr_text(node, "expr", NULL);
    if (!text || node->op->kind == OP_KERNEL) return node->op->kind == OP_ELEMENTWISE ? node->op->flops : 0;
    const struct expr_chain *chain = expr_texts_chain(p->graph->texts, text, node->ninputs, true);
    double operations = 0;
    if (!chain) return node->op->flops;
    for (int i = 0; i < chain->nnamed; i++) operations += operations_of(chain->named[i]);
    for (int i = 0; i < chain->nvalues; i++) operations += operations_of(chain->value[i]);
    return operations;
}

static double elementwise_seconds(const struct pricing *p) {
    double most = 0;
    if (!isfinite(p->machine->elementwise)) return 0;
    for (int k = 0; k < p->node->ninputs + p->node->noutputs; k++)
        most = fmax(most, elements_of(p->kernel, node_tensor(p->node, k)));
    return most * operations_per_element(p) / p->machine->elementwise;
}

/* A convolution's products on the rank, a pooling's windows, or a reduction; an extent of 0 does not matter. */
struct windows {
    enum machine_kernel kernel;            /* MACHINE_KERNELS: a product */
    double flops, extent[MACHINE_EXTENTS]; /* of a product: its rows, columns, and summed elements */
};

/* Elements of an image of one channel, of spatial dimensions from `first` on. */
static double image_of(const struct pricing *p, int tensor, int first) {
    const int spatial = p->graph->tensors.at[tensor].ndim - 2;
    double elements = 1;
    for (int d = first; d < first + spatial; d++) elements *= (double)p->kernel->extents[tensor][d];
    return elements;
}

static bool has_strides(const struct node *node) {
    int n;
    const int64_t *stride = attr_ints(node, "stride", &n);
    for (int d = 0; d < n; d++)
        if (stride[d] > 1) return true;
    return false;
}

/* A convolution with channels last, or a gradient: a kernel of its own, or a product of `rows` windows. */
static void set_channels_last(const struct node *node, enum machine_kernel base, double rows, struct windows *windows) {
    const double outputs = windows->extent[MACHINE_OUTPUTS], sums = windows->extent[MACHINE_SUMS];
    windows->kernel = attr_int(node, "algorithm", RT_CONV_PRODUCT) == RT_CONV_WINOGRAD ? MACHINE_WINOGRAD
                      : outputs == 0                                                   ? MACHINE_DEPTHWISE_LAST
                                                                                       : MACHINE_KERNELS;
    if (windows->kernel < MACHINE_KERNELS) return;
    const double products[][3] = {{rows, outputs, sums}, {rows, sums, outputs}, {outputs, sums, rows}};
    memcpy(windows->extent, products[base - MACHINE_CONVOLUTION], sizeof windows->extent);
}

/* The convolution that the node is, or of which it is a gradient: `weights`, and the tensor at the windows' side. */
static struct windows convolution_of(const struct pricing *p, int weights, int at, enum machine_kernel base) {
    const bool last = attr_int(p->node, "channels_last", 0) != 0;
    const int64_t *shape = p->kernel->extents[weights];
    const double window = image_of(p, weights, 2), inputs = (double)shape[1], positions = image_of(p, at, last ? 1 : 2);
    const double elements = part_elements(p->kernel, at);
    const double groups = fmax((double)attr_int(p->node, "group", 1), 1);
    const bool depthwise = inputs == 1 && p->graph->tensors.at[weights].dims[1] == 1 && window > 1;
    const enum machine_kernel kind = !depthwise             ? window == 1 ? MACHINE_POINTWISE : MACHINE_CONVOLUTION
                                     : has_strides(p->node) ? MACHINE_STRIDED
                                                            : MACHINE_DEPTHWISE;
    struct windows windows = {.kernel = (enum machine_kernel)(base + kind - MACHINE_CONVOLUTION),
                              .flops = 2 * elements * inputs * window,
                              .extent = {positions}};
    if (!depthwise) {
        windows.extent[MACHINE_POSITIONS] = fmax(positions, MACHINE_LEAST_POSITIONS);
        windows.extent[MACHINE_OUTPUTS] = (double)shape[0] / groups;
        windows.extent[MACHINE_SUMS] = inputs * window;
    }
    if (last) set_channels_last(p->node, base, elements / (double)shape[0], &windows);
    return windows;
}

/* A pooling: an operation for each element of a window. */
static bool find_pooling(const struct pricing *p, struct windows *windows) {
    const struct node *node = p->node;
    const bool forward = node->op->id == OP_MaxPool;
    int dims;
    if (!forward && node->op->id != OP_MaxPoolGrad) return false;
    const int64_t *window = attr_ints(node, "window", &dims);
    *windows = (struct windows){.kernel = forward ? MACHINE_POOLING : MACHINE_POOLING_GRADIENT};
    windows->flops = elements_of(p->kernel, forward ? node->outputs[0] : node->inputs[1]);
    for (int d = 0; d < dims; d++) windows->flops *= (double)window[d];
    return true;
}

/* A reduction over adjacent dimensions: an operation for each element. */
static bool find_reduction(const struct pricing *p, struct windows *windows) {
    static const enum op_id reductions[] = {OP_ReduceSum, OP_ReduceMax, OP_ReduceMin, OP_ReduceProd, OP_ReducePair};
    const struct node *node = p->node;
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
        if (reductions[i] != node->op->id) continue;
        int n;
        const int64_t *axes = attr_ints(node, "axes", &n), *dims = p->kernel->extents[node->inputs[0]];
        int64_t inner = 1;
        for (int d = n ? (int)axes[n - 1] + 1 : 0; d < p->graph->tensors.at[node->inputs[0]].ndim; d++)
            inner *= dims[d];
        const double elements = elements_of(p->kernel, node->inputs[0]);
        *windows = (struct windows){.kernel = inner == 1 ? MACHINE_REDUCTION_ROWS : MACHINE_REDUCTION_COLUMNS,
                                    .flops = elements,
                                    .extent = {elements / fmax(elements_of(p->kernel, node->outputs[0]), 1)}};
        return true;
    }
    return false;
}

/* Convolutions: which inputs are the weights, and the tensor at the windows' side. */
enum { RESULT = -1 }; /* in place of an input */
static const struct {
    enum op_id op;
    int weights, at;
    enum machine_kernel kernel;
} convolutions[] = {
    {OP_Conv, 1, RESULT, MACHINE_CONVOLUTION},
    {OP_ConvTranspose, 1, 0, MACHINE_CONVOLUTION_INPUT},
    {OP_ConvWeightGrad, RESULT, 1, MACHINE_CONVOLUTION_WEIGHT},
};

static int operand_of(const struct node *node, int input) {
    return input == RESULT ? node->outputs[0] : node->inputs[input];
}

/* False: the node's kernel has no rate of its own. */
static bool find_windows(const struct pricing *p, struct windows *windows) {
    const struct node *node = p->node;
    for (size_t i = 0; i < sizeof convolutions / sizeof *convolutions; i++) {
        if (convolutions[i].op != node->op->id) continue;
        *windows = convolution_of(p, operand_of(node, convolutions[i].weights), operand_of(node, convolutions[i].at),
                                  convolutions[i].kernel);
        return true;
    }
    return find_pooling(p, windows) || find_reduction(p, windows);
}

/* Seconds of its arithmetic, where the machine says how fast that is; negative: it does not. */
static double windows_seconds(const struct pricing *p, const struct windows *windows) {
    if (windows->kernel == MACHINE_KERNELS)
        return windows->flops /
               (machine_rate(p->machine, RT_F32) *
                machine_reached(p->machine, windows->extent[0], windows->extent[1], windows->extent[2]));
    const struct machine_kernel_rate *rate = &p->machine->kernel[windows->kernel];
    if (!(rate->rate > 0)) return -1;
    double reached = 1;
    for (int e = 0; e < MACHINE_EXTENTS; e++)
        if (windows->extent[e] > 0) reached *= windows->extent[e] / (windows->extent[e] + rate->half[e]);
    return windows->flops / (rate->rate * reached);
}

/* The part of the rate that a product reaches: its rows, columns and summed extent follow from the result. The extents
 * at which GPUs reach half of it were fitted to training. Fewer rows of inference share out columns and summed elements
 * among the multiprocessors: 512 rows were measured to reach the rate (docs/measured/gpu-results.md). */
static double reached_by(const struct pricing *p, double flops) {
    enum { FEW_ROWS = 512 };
    const struct tensor *result = &p->graph->tensors.at[p->node->outputs[0]];
    const double elements = part_elements(p->kernel, p->node->outputs[0]);
    const int last = result->ndim - 1;
    if (last < 0 || elements <= 0) return 1;
    const double n = (double)p->kernel->extents[p->node->outputs[0]][last], m = elements / n / runs_of(p);
    const double rows = p->machine->multiprocessors > 0 && !graph_trains(p->graph) ? fmax(m, FEW_ROWS) : m;
    return machine_reached(p->machine, rows, n, flops / (2 * elements));
}

static double product_seconds(const struct pricing *p, struct kernel_work *work) {
    const struct node *node = p->node;
    const enum rt_dtype dtype = p->graph->tensors.at[node->inputs[0]].dtype;
    const bool fused = op_is_attention(node->op);
    const double flops = dims_flops(&p->dims, node->op->flops) * share_of(p);
    work->type = machine_type_of(p->machine, dtype);
    work->flops = work->causal_flops = flops;
    if (fused && attr_int(node, "causal", 0)) work->causal_flops /= 2;
    const int q = op_query(node);
    if (fused)
        return attention_seconds(p->graph, node, p->kernel->extents[node->inputs[q]],
                                 p->kernel->extents[node->inputs[q + 1]], p->machine,
                                 work->causal_flops * causal_excess(node, &p->dims, p->kernel->split, &p->graph->mesh));
    return flops / (machine_rate(p->machine, dtype) * reached_by(p, flops));
}

static struct pricing pricing_of(const struct kernel *kernel) {
    return (struct pricing){.kernel = kernel, .graph = kernel->graph, .node = kernel->node, .machine = kernel->machine};
}

/* True for OP_Accumulate, alone or fused with the cast before it: no other node of a micro-batch's backward phase reads
 * a state. */
static bool adds_gradient(const struct graph *graph, const struct node *node) {
    bool reads = false;
    for (int k = 0; k < node->ninputs; k++)
        reads = reads || (node->inputs[k] >= 0 && graph->tensors.at[node->inputs[k]].kind == TENSOR_STATE);
    return reads && node->phase > PHASE_FORWARD && node->phase < PHASE_REDUCE;
}

struct kernel_work kernel_work(const struct kernel *kernel) {
    const struct machine *machine = kernel->machine;
    const struct node *node = kernel->node;
    struct pricing p = pricing_of(kernel);
    struct kernel_work work = {0};
    struct windows windows;
    if (dims_bind(kernel->graph->arena, kernel->graph, node, &p.dims, NULL) < 0) return work;
    const bool product = kernel_is_product(node, &p.dims);
    double arithmetic = product ? product_seconds(&p, &work) : elementwise_seconds(&p);
    const bool own = find_windows(&p, &windows);
    if (own) {
        const double measured = windows_seconds(&p, &windows);
        if (product) work.flops = work.causal_flops = windows.flops;
        if (measured >= 0) arithmetic = measured;
    }
    if (kernel->alone) arithmetic /= machine->alone;
    if (own && windows.kernel < MACHINE_KERNELS) p.distant = machine->kernel[windows.kernel].distant;
    const double moving = moving_seconds(&p);
    /* processors read ahead of arithmetic where operands are read in order; GPUs compute other tiles meanwhile */
    const bool hidden = !reuses(kernel) || (!product && !own);
    work.seconds = hidden ? fmax(arithmetic, moving) : arithmetic + moving;
    work.launching = runs_of(&p) * machine->launch;
    work.seconds += work.launching;
    work.part = op_is_attention(node->op)            ? KERNEL_ATTENTION
                : product                            ? KERNEL_PRODUCT
                : adds_gradient(kernel->graph, node) ? KERNEL_ADD
                                                     : KERNEL_OTHER;
    return work;
}

double collective_moving(const struct kernel *kernel) {
    const struct pricing p = pricing_of(kernel);
    return moving_seconds(&p);
}

struct kernel_size kernel_size(const struct kernel *kernel) {
    const struct node *node = kernel->node;
    struct pricing p = pricing_of(kernel);
    struct windows windows;
    double read = 0, written = 0, most = 0;
    for (int k = 0; k < node->ninputs + node->noutputs; k++) {
        const int tensor = node_tensor(node, k);
        *(k < node->ninputs ? &read : &written) += kernel_bytes(kernel, tensor);
        most = fmax(most, elements_of(kernel, tensor));
    }
    if (node->op->kind == OP_COMM) return (struct kernel_size){.bytes = fmax(read, written)};
    struct kernel_size size = {.bytes = written + (node->op->id == OP_Gather ? written : read)};
    if (dims_bind(kernel->graph->arena, kernel->graph, node, &p.dims, NULL) < 0) return size;
    if (find_windows(&p, &windows))
        size.flops = windows.flops;
    else if (kernel_is_product(node, &p.dims))
        size.flops = dims_flops(&p.dims, node->op->flops) * share_of(&p);
    else
        size.flops = most * operations_per_element(&p);
    return size;
}
