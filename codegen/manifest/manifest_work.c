/* "work" of manifest.json. A graph with open sizes is priced at the typical ones: each part of an amount is that at
 * these, divided by the extents that it is proportional to and depend on sizes, times their texts. */
#include "codegen/manifest/manifest_parts.h"

#include <math.h>
#include <string.h>

#include "passes/plan/machine/kernel_time.h"

/* An instruction on the ranks of a class: `plan` and `class` are those at the typical sizes, `whole` has open ones. */
struct work {
    const struct rankplan *plan, *whole;
    const struct rank_class *class;
    int64_t (*open)[RT_MAX_NDIM]; /* extents of parts, as numbers of the specimen */
    const struct node *node;
    struct kernel kernel;
};

/* The product of extents: of those that are fixed, the number, and of the others, their value and a text such as
 * " * (seq) * (past)". */
struct factors {
    double fixed, typical;
    const char *text;
};

/* A sum: what is fixed of it, and multiples of different texts of factors. */
struct amount {
    double fixed;
    int nparts;
    struct part {
        double times;
        const char *text;
    } * parts; /* as many as the node has operands */
};

static struct factors factors_of(const struct graph *graph, const int64_t *extents, int n) {
    struct factors factors = {1, 1, ""};
    for (int d = 0; d < n; d++) {
        const double extent = (double)open_typical(graph->open, extents[d]);
        *(open_is(graph->open, extents[d]) ? &factors.typical : &factors.fixed) *= extent;
        if (open_is(graph->open, extents[d]))
            factors.text = arena_printf(graph->arena, "%s * (%s)", factors.text,
                                        open_plain(graph->open, graph->arena, extents[d]));
    }
    return factors;
}

static struct amount no_amount(const struct work *work) {
    const size_t operands = (size_t)(work->node->ninputs + work->node->noutputs);
    return (struct amount){.parts = ARENA_ARRAY(work->whole->graph->arena, struct part, operands + 1)};
}

/* Adds what is `typical` at the typical sizes, and proportional to the factors. */
static void add_part(struct amount *sum, double typical, const struct factors *factors) {
    int p = 0;
    if (!*factors->text || !(factors->typical > 0)) {
        sum->fixed += typical;
        return;
    }
    while (p < sum->nparts && strcmp(sum->parts[p].text, factors->text) != 0) p++;
    if (p == sum->nparts) sum->parts[sum->nparts++] = (struct part){0, factors->text};
    sum->parts[p].times += typical / factors->typical;
}

static void put_amount(struct rt_json_writer *writer, struct arena *arena, const struct amount *sum) {
    const char *text = "";
    EACH(sum->parts, sum->nparts, p, const struct part *part)
        text = arena_printf(arena, "%s%.0f%s + ", text, part->times, part->text);
    if (sum->nparts)
        rt_json_put_text(writer, arena_printf(arena, "%s%.0f", text, sum->fixed));
    else
        rt_json_put_int(writer, (int64_t)sum->fixed);
}

/* True if the node writes its last operand into the first one, which stays where it is. */
static bool writes_rows(const struct work *work) {
    const enum op_id op = work->node->op->id;
    const int *root = work->plan->root;
    return (op == OP_Append || op == OP_ScatterElements || op == OP_ScatterND) &&
           root[work->node->inputs[0]] == root[work->node->outputs[0]];
}

/* How often an operand is touched: of a table in which rows are looked up, only these are; rows that are written into a
 * tensor are read and written. Of a collective, the larger of operand and result counts. */
static double times_touched(const struct work *work, int k) {
    const struct node *node = work->node;
    const bool read = k < node->ninputs;
    if (node->op->kind == OP_COMM) {
        const double from = kernel_bytes(&work->kernel, node->inputs[0]),
                     to = kernel_bytes(&work->kernel, node->outputs[0]);
        return read == (from >= to);
    }
    if (node->op->id == OP_Gather) return read ? 0 : 2;
    if (writes_rows(work)) return k == 0 || !read ? 0 : k == node->ninputs - 1 ? 2 : 1;
    return 1;
}

static bool is_of_experts(const struct node *node, int k) {
    return op_is_of_experts(node->op) && k > 0 && k < node->ninputs - 1;
}

/* Few rows read the matrices of as many experts. */
static struct factors chosen_experts(const struct work *work, double *bytes) {
    const struct graph *graph = work->whole->graph;
    const int index = work->node->inputs[work->node->ninputs - 1];
    const double experts = (double)work->plan->graph->tensors.at[work->node->inputs[1]].dims[0];
    const struct factors rows = factors_of(graph, work->open[index], graph->tensors.at[index].ndim);
    const double chosen = fmin(experts, rows.fixed * rows.typical);
    *bytes *= chosen / fmax(experts, 1);
    return (struct factors){
        1, chosen,
        *rows.text ? arena_printf(graph->arena, " * min(%.0f, %.0f%s)", experts, rows.fixed, rows.text) : ""};
}

static struct amount bytes_of(const struct work *work) {
    const struct graph *graph = work->whole->graph;
    const struct node *node = work->node;
    struct amount sum = no_amount(work);
    for (int k = 0; k < node->ninputs + node->noutputs; k++) {
        const int tensor = node_tensor(node, k);
        if (tensor < 0) continue;
        double bytes = times_touched(work, k) * kernel_bytes(&work->kernel, tensor);
        const struct factors factors = is_of_experts(node, k)
                                           ? chosen_experts(work, &bytes)
                                           : factors_of(graph, work->open[tensor], graph->tensors.at[tensor].ndim);
        if (bytes > 0) add_part(&sum, bytes, &factors);
    }
    return sum;
}

/* Operations are proportional to the iteration space, or where an operator has none, to the largest operand. */
static struct amount flops_of(const struct work *work) {
    const struct graph *graph = work->whole->graph;
    const struct node *node = work->node;
    const double typical = kernel_size(&work->kernel).flops;
    struct amount sum = no_amount(work);
    struct dims dims;
    int64_t extents[MAX_FACTORS];
    int n = 0, most = -1;
    if (dims_bind(graph->arena, graph, node, &dims, NULL) == 0)
        for (int f = 0; f < dims.nfactors; f++)
            if (dims.factor[f].kind != FACTOR_HALO) extents[n++] = dims.factor[f].extent;
    for (int k = 0; k < node->ninputs + node->noutputs && !n; k++) {
        const int tensor = node_tensor(node, k);
        if (most < 0 || kernel_bytes(&work->kernel, tensor) > kernel_bytes(&work->kernel, most)) most = tensor;
    }
    const struct factors factors =
        factors_of(graph, most < 0 ? extents : work->open[most], most < 0 ? n : graph->tensors.at[most].ndim);
    if (typical > 0) add_part(&sum, typical, &factors);
    return sum;
}

static void put_instruction(struct rt_json_writer *writer, const struct work *work, int64_t number, int i) {
    const struct amount flops = flops_of(work), bytes = bytes_of(work);
    struct arena *arena = work->whole->graph->arena;
    rt_json_open(writer, '[', RT_JSON_INLINE);
    rt_json_put_int(writer, number);
    rt_json_put_int(writer, work->node->phase);
    put_amount(writer, arena, &flops);
    put_amount(writer, arena, &bytes);
    for (int a = RT_ACTIVATIONS; a <= RT_SCRATCH; a++) rt_json_put_int(writer, work->class->live[a][i]);
    rt_json_close(writer, ']');
}

void manifest_put_work(struct rt_json_writer *writer, const struct rankplan *whole) {
    const struct rankplan *plan = rankplan_typical(whole, whole->graph->arena);
    const struct graph *graph = plan->graph;
    rt_json_key_open(writer, "work", '[', RT_JSON_LINES);
    for (int c = 0; c < plan->nclasses; c++) {
        const struct rank_class *class = &plan->classes[c];
        int64_t number = 0;
        rt_json_open(writer, '[', RT_JSON_INLINE);
        GRAPH_EACH(graph, i, const struct node *node) {
            if (plan->moves_nothing[graph->order.at[i]]) continue;
            const int64_t instruction = number++;
            if (!rankplan_part(class, node)) continue;
            const struct kernel kernel = {
                .graph = graph, .node = node, .split = node->split, .extents = class->dims, .units = 1};
            const struct work work = {plan, whole, class, whole->classes[c].dims, node, kernel};
            put_instruction(writer, &work, instruction, i);
        }
        rt_json_close(writer, ']');
    }
    rt_json_close(writer, ']');
}
