/* Recomputation: copies forward nodes into the backward phase, so that their results need not be kept in between.
 *
 * Note [Recomputed layers]
 * Layers are recomputed as a whole. They are the repetitions of those blocks of the forward graph (ir/blocks.h)
 * through which a value is carried, if these make up half of the graph. Else the graph is divided into n stretches at
 * the places where only one value that depends on parameters is live, and these into about sqrt(n) layers of equal
 * size (Chen et al. 2016, "Training deep nets with sublinear memory cost"). The copies of a layer stand just before the
 * first backward node that reads one of them. They compute the same bits, dropout masks included. */
#include "passes/plan/recompute.h"

#include "passes/plan/constrain/constraints.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/blocks.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/plan/plan.h"
#include "passes/train/training.h"
#include "runtime/base/number/checked.h"

static const struct {
    const char *word;
    enum recompute_kind kind;
} kinds[] = {{"none", RECOMPUTE_NONE},    {"full", RECOMPUTE_FULL},    {"selective", RECOMPUTE_SELECTIVE},
             {"first:", RECOMPUTE_FIRST}, {"names:", RECOMPUTE_NAMES}, {"budget:", RECOMPUTE_BUDGET}};

/* Parses a count, of bytes also with K, M, G or T: "12", "3G". */
static bool read_count(const char *text, bool bytes, int64_t *count) {
    static const char units[] = "KMGT";
    char *end = "?";
    if (*text >= '0' && *text <= '9') *count = strtoll(text, &end, 10);
    const char *unit = bytes && *end ? strchr(units, *end) : NULL;
    if (unit) end++;
    return *end == 0 && *count < INT64_MAX && (!unit || rt_mul(*count, (int64_t)1 << 10 * (unit - units + 1), count));
}

int recompute_parse(struct recompute *recompute, const char *text, struct diags *diags) {
    *recompute = (struct recompute){.kind = RECOMPUTE_NONE};
    for (size_t i = 0; text && i < sizeof kinds / sizeof *kinds; i++) {
        const size_t length = strlen(kinds[i].word);
        const bool takes = kinds[i].word[length - 1] == ':';
        if (takes ? strncmp(text, kinds[i].word, length) != 0 : strcmp(text, kinds[i].word) != 0) continue;
        recompute->kind = kinds[i].kind;
        recompute->pattern = text + length;
        if (!takes || (kinds[i].kind == RECOMPUTE_NAMES && text[length])) return 0;
        if (kinds[i].kind != RECOMPUTE_NAMES &&
            read_count(text + length, kinds[i].kind == RECOMPUTE_BUDGET, &recompute->count))
            return 0;
        break;
    }
    if (!text) return 0;
    return diag_error(diags, 205, EXIT_USAGE, NULL,
                      "--recompute must be none, full, selective, first:N, names:GLOB or budget:BYTES, not %s",
                      diag_quote(diags, text));
}

struct recomputing {
    struct graph *graph;
    const struct recompute *choice;
    int forward;   /* nodes of the forward phase: the first of the order */
    int *last;     /* per tensor: place of its last reader in the forward phase, -1: none */
    bool *depends; /* per tensor: on a parameter */
    bool *dropped; /* per node: its results are not kept but recomputed */
    int *again;    /* per tensor: its recomputed copy; -1: none */
};

static int node_at(const struct recomputing *r, int place) {
    return r->graph->order.at[place];
}

static void look_at_forward(struct recomputing *r) {
    const struct graph *graph = r->graph;
    for (int t = 0; t < graph->tensors.n; t++) {
        r->last[t] = r->again[t] = -1;
        r->depends[t] = graph->tensors.at[t].kind == TENSOR_WEIGHT;
    }
    for (int i = 0; i < r->forward; i++) {
        const struct node *node = &graph->nodes.at[node_at(r, i)];
        bool depends = false;
        for (int k = 0; k < node->ninputs; k++) {
            if (node->inputs[k] < 0) continue;
            r->last[node->inputs[k]] = i;
            depends = depends || r->depends[node->inputs[k]];
        }
        for (int o = 0; o < node->noutputs; o++) r->depends[node->outputs[o]] = depends;
    }
}

/* Places [first, end) of the order. */
struct layer {
    int first, end;
};

struct layers {
    VEC(struct layer) all;
};

/* Drops the nodes of the layer whose results only the layer itself reads in the forward phase. */
static void drop_layer(struct recomputing *r, const struct layer *layer) {
    for (int i = layer->first; i < layer->end; i++) {
        const struct node *node = &r->graph->nodes.at[node_at(r, i)];
        bool inside = true;
        for (int o = 0; o < node->noutputs; o++) inside = inside && r->last[node->outputs[o]] < layer->end;
        r->dropped[node_at(r, i)] = inside && i + 1 < r->forward;
    }
}

/* A value that depends on parameters is carried from repetition to repetition: they are layers, and not branches side
 * by side nor the computation of masks. */
static bool is_chain(const struct recomputing *r, const struct blocks *blocks, const struct block *block) {
    for (int j = 0; j < block->nodes; j++) {
        const struct node *next = &r->graph->nodes.at[node_at(r, block->first + block->nodes + j)];
        for (int k = 0; k < next->ninputs; k++)
            if (block_input_source(r->graph, blocks, block, j, k) == INPUT_CARRIED && r->depends[next->inputs[k]])
                return true;
    }
    return false;
}

/* Adds the repetitions of the blocks that are chains, if these have at least half of the nodes that depend on
 * parameters. */
static void add_blocks(const struct recomputing *r, struct layers *layers) {
    const struct graph *graph = r->graph;
    struct arena *scratch = arena_scratch(graph->arena);
    struct blocks blocks;
    int total = 0, covered = 0;
    blocks_find(graph, scratch, node_kinds(graph, scratch, ALIKE_IN_TYPES), 0, r->forward, &blocks);
    for (int i = 0; i < r->forward; i++) total += r->depends[graph->nodes.at[node_at(r, i)].outputs[0]];
    VEC_EACH(&blocks.all, b, const struct block *block) {
        if (!is_chain(r, &blocks, block)) continue;
        covered += block->nodes * block->times;
        for (int t = 0, first = block->first; t < block->times; t++, first += block->nodes)
            VEC_PUSH(graph->arena, &layers->all, (struct layer){first, first + block->nodes});
    }
    if (2 * covered < total) layers->all.n = 0;
    arena_release(graph->arena, scratch);
}

/* Bytes of the results of the node at that place that depend on parameters. */
static double result_bytes(const struct recomputing *r, int place) {
    const struct node *node = &r->graph->nodes.at[node_at(r, place)];
    double bytes = 0;
    for (int o = 0; o < node->noutputs; o++)
        if (r->depends[node->outputs[o]]) bytes += (double)tensor_bytes(&r->graph->tensors.at[node->outputs[o]]);
    return bytes;
}

/* Adds about sqrt(n) layers of the n stretches between places where a single value is live. Each has about equally many
 * bytes of results. */
static void add_shares(const struct recomputing *r, struct layers *layers) {
    const struct graph *graph = r->graph;
    int *change = ARENA_ARRAY(graph->arena, int, r->forward + 2), live = 0, n = 0;
    bool *ends = ARENA_ARRAY(graph->arena, bool, r->forward + 1); /* per place: a stretch ends after it */
    double total = 0, bytes = 0;
    for (int i = 0; i < r->forward; i++) {
        int out = graph->nodes.at[node_at(r, i)].outputs[0];
        total += result_bytes(r, i);
        if (r->depends[out] && r->last[out] > i) change[i]++, change[r->last[out]]--;
    }
    for (int i = 0; i < r->forward; i++) {
        live += change[i];
        ends[i] = live == 1 || i + 1 == r->forward;
        n += ends[i];
    }
    const int stretches = (int)ceil(sqrt(n)); /* of a share */
    for (int i = 0, first = 0; i < r->forward; i++) {
        bytes += result_bytes(r, i);
        if (!ends[i] || (bytes * n < total * stretches && i + 1 < r->forward)) continue;
        VEC_PUSH(graph->arena, &layers->all, (struct layer){first, i + 1});
        first = i + 1, bytes = 0;
    }
}

/* Bytes of forward values that are kept for the backward phase. */
static int64_t kept_bytes(const struct recomputing *r) {
    const struct graph *graph = r->graph;
    struct arena *scratch = arena_scratch(graph->arena);
    bool *counted = ARENA_ARRAY(scratch, bool, graph->tensors.n + 1);
    int64_t bytes = 0;
    for (int i = r->forward; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++) {
            int t = node->inputs[k], p = t < 0 ? -1 : graph->tensors.at[t].producer;
            if (p < 0 || counted[t] || graph->nodes.at[p].phase != PHASE_FORWARD || r->dropped[p]) continue;
            counted[t] = true;
            bytes += tensor_bytes(&graph->tensors.at[t]);
        }
    }
    arena_release(graph->arena, scratch);
    return bytes;
}

/* Drops the first `count` layers, and no other node. */
static void drop_first(struct recomputing *r, const struct layers *layers, int count) {
    for (int i = 0; i < r->forward; i++) r->dropped[node_at(r, i)] = false;
    for (int layer = 0; layer < count; layer++) drop_layer(r, &layers->all.at[layer]);
}

/* The fewest first layers with which at most `budget` bytes are kept, by bisection: more layers never keep more bytes.
 * All layers, if even these keep more. */
static int fewest_layers(struct recomputing *r, const struct layers *layers, int64_t budget) {
    int low = 0;
    BISECT(low, layers->all.n, middle, (drop_first(r, layers, middle), kept_bytes(r) > budget))
    return low;
}

static int drop_layers(struct recomputing *r, struct diags *diags) {
    const struct recompute *choice = r->choice;
    struct layers layers = {0};
    add_blocks(r, &layers);
    if (!layers.all.n) add_shares(r, &layers);
    const int n = layers.all.n;
    if (choice->kind == RECOMPUTE_FIRST && choice->count > n)
        return diag_error(diags, 506, EXIT_LIMIT, "--recompute", "first:%lld: the model has only %d layer(s)",
                          (long long)choice->count, n);
    drop_first(r, &layers,
               choice->kind == RECOMPUTE_FIRST    ? (int)choice->count
               : choice->kind == RECOMPUTE_BUDGET ? fewest_layers(r, &layers, choice->count)
                                                  : n);
    if (choice->kind != RECOMPUTE_BUDGET || kept_bytes(r) <= choice->count) return 0;
    return diag_error(diags, 506, EXIT_LIMIT, "--recompute",
                      "budget:%s: %lld bytes of activations are kept even if all %d layer(s) are recomputed",
                      choice->pattern, (long long)kept_bytes(r), n);
}

/* Drops nodes by name, or those that are cheap to recompute. */
static int drop_nodes(struct recomputing *r, struct diags *diags) {
    bool any = false;
    for (int i = 0; i < r->forward; i++) {
        const struct node *node = &r->graph->nodes.at[node_at(r, i)];
        bool cheap = !node->op->columns && node->op->id != OP_Attention,
             named = r->choice->kind == RECOMPUTE_NAMES && fnmatch(r->choice->pattern, node->name, 0) == 0;
        r->dropped[node_at(r, i)] = r->choice->kind == RECOMPUTE_NAMES ? named : cheap;
        any = any || r->dropped[node_at(r, i)];
    }
    if (any || r->choice->kind != RECOMPUTE_NAMES) return 0;
    return diag_error(diags, 206, EXIT_USAGE, "--recompute", "no node's name matches %s",
                      diag_quote(diags, r->choice->pattern));
}

/* The tensor that backward nodes read: the recomputed copy if there is one. */
static int read_again(const struct recomputing *r, int tensor) {
    return tensor >= 0 && r->again[tensor] >= 0 ? r->again[tensor] : tensor;
}

/* The dropped node that must be copied before the tensor can be read; -1: none. */
static int missing(const struct recomputing *r, int tensor) {
    int p = tensor < 0 || r->again[tensor] >= 0 ? -1 : r->graph->tensors.at[tensor].producer;
    return p >= 0 && r->dropped[p] ? p : -1;
}

static void copy_node(struct recomputing *r, int id, int *order, int *n) {
    struct graph *graph = r->graph;
    const struct node node = graph->nodes.at[id];
    int *inputs = ARENA_ARRAY(graph->arena, int, node.ninputs + 1),
        *outputs = ARENA_ARRAY(graph->arena, int, node.noutputs + 1);
    for (int k = 0; k < node.ninputs; k++) inputs[k] = read_again(r, node.inputs[k]);
    for (int o = 0; o < node.noutputs; o++) {
        const struct tensor t = graph->tensors.at[node.outputs[o]];
        outputs[o] = r->again[node.outputs[o]] = graph_add_tensor(
            graph, TENSOR_VALUE, arena_printf(graph->arena, "%s.again", t.name), t.dtype, t.ndim, t.dims);
        graph->tensors.at[outputs[o]].joined = t.joined;
    }
    int copy = graph_add_node(graph, node.op, arena_printf(graph->arena, "%s.again", node.name), node.ninputs, inputs,
                              node.noutputs, outputs, node.nattrs, node.attrs);
    graph->order.n--; /* it is put into `order` instead */
    graph->nodes.at[copy].phase = PHASE_BACKWARD;
    graph->nodes.at[copy].origin = id;
    attr_set(graph, &graph->nodes.at[copy], attr_of_int("again", 1)); /* marks it as a copy, also for cse */
    order[(*n)++] = copy;
}

/* Copies the dropped nodes that the tensor depends on, in topological order. `stack` has room for all nodes. */
static void make_again(struct recomputing *r, int tensor, int *stack, int *order, int *n) {
    int depth = 0;
    if (missing(r, tensor) >= 0) stack[depth++] = missing(r, tensor);
    while (depth > 0) {
        const struct node *node = &r->graph->nodes.at[stack[depth - 1]];
        int first = -1;
        for (int k = 0; k < node->ninputs && first < 0; k++) first = missing(r, node->inputs[k]);
        if (first >= 0)
            stack[depth++] = first;
        else if (r->again[node->outputs[0]] < 0)
            copy_node(r, stack[--depth], order, n);
        else
            depth--;
    }
}

static void copy_dropped(struct recomputing *r) {
    struct graph *graph = r->graph;
    int total = graph->order.n, *order = ARENA_ARRAY(graph->arena, int, 2 * total + 1), n = 0;
    int *stack = ARENA_ARRAY(graph->arena, int, total + 1);
    memcpy(order, graph->order.at, (size_t)r->forward * sizeof *order);
    n = r->forward;
    for (int i = r->forward; i < total; i++) {
        int id = graph->order.at[i];
        for (int k = 0; k < graph->nodes.at[id].ninputs && graph->nodes.at[id].phase == PHASE_BACKWARD; k++) {
            make_again(r, graph->nodes.at[id].inputs[k], stack, order, &n);
            graph->nodes.at[id].inputs[k] = read_again(r, graph->nodes.at[id].inputs[k]);
        }
        order[n++] = id;
    }
    graph->order.n = 0;
    for (int i = 0; i < n; i++) VEC_PUSH(graph->arena, &graph->order, order[i]);
}

/* True if the graph has copies already, because it was parsed from text that was dumped after this pass. */
static bool has_copies(const struct graph *graph) {
    for (int i = 0; i < graph->order.n; i++)
        if (attr_int(&graph->nodes.at[graph->order.at[i]], "again", 0)) return true;
    return false;
}

/* Chooses the nodes of a plan, or those of --recompute. */
static int choose(struct recomputing *r, const struct plan *plan, struct diags *diags) {
    if (plan) {
        plan_recomputed(plan, r->graph, r->dropped);
        return 0;
    }
    if (r->choice->kind == RECOMPUTE_NONE) return 0;
    const bool by_node = r->choice->kind == RECOMPUTE_SELECTIVE || r->choice->kind == RECOMPUTE_NAMES;
    return (by_node ? drop_nodes : drop_layers)(r, diags);
}

/* Keeps the results of nodes that read a stored tensor of which the forward phase computes the new value, such as
 * running statistics: with a copy in the backward phase, the next micro-batch could not find the new value before. */
static void keep_updated(struct recomputing *r) {
    const struct graph *graph = r->graph;
    bool *updated = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1); /* per tensor; and views of it */
    for (int i = 0; i < graph->updates.n; i++)
        updated[graph->updates.at[i].weight] = graph_phase_of(graph, graph->updates.at[i].value) == PHASE_FORWARD;
    for (int i = 0; i < r->forward; i++) {
        const struct node *node = &graph->nodes.at[node_at(r, i)];
        bool reads = false;
        for (int k = 0; k < node->ninputs; k++) reads = reads || (node->inputs[k] >= 0 && updated[node->inputs[k]]);
        if (reads) r->dropped[node_at(r, i)] = false;
        if (reads && node->op->kind == OP_VIEW) updated[node->outputs[0]] = true;
    }
}

int pass_recompute(struct graph *graph, const struct pass_context *context) {
    struct recompute choice;
    struct recomputing r = {.graph = graph, .choice = &choice};
    if (!context->training || has_copies(graph)) return 0;
    if (recompute_parse(&choice, context->decisions.recompute, context->diags) < 0) return -1;
    while (r.forward < graph->order.n && graph->nodes.at[graph->order.at[r.forward]].phase == PHASE_FORWARD)
        r.forward++;
    int room = 2 * graph->tensors.n + 1; /* a copy of each at most */
    r.last = ARENA_ARRAY(graph->arena, int, room);
    r.again = ARENA_ARRAY(graph->arena, int, room);
    r.depends = ARENA_ARRAY(graph->arena, bool, room);
    r.dropped = ARENA_ARRAY(graph->arena, bool, 2 * graph->nodes.n + 1);
    for (int t = 0; t < room; t++) r.again[t] = -1;
    look_at_forward(&r);
    if (choose(&r, context->given, context->diags) < 0) return -1;
    if (context->constraints && context->constraints->refine)
        plan_recomputed(context->constraints->refine, graph, r.dropped);
    keep_updated(&r);
    for (int i = 0; i < r.forward; i++)
        if (r.dropped[node_at(&r, i)]) VEC_PUSH(graph->arena, &graph->recomputed, node_at(&r, i));
    if (graph->recomputed.n) copy_dropped(&r);
    return 0;
}
