/* Recomputation: copies forward nodes into the backward phase, so that their results need not be kept in between.
 *
 * Note [Recomputed layers]
 * Layers are recomputed as a whole. The forward graph is divided into stretches at the places where only one value
 * that depends on parameters is live. A repeated sequence of stretches is a layer of the model. In a model without
 * repeats the n stretches are divided into about sqrt(n) equal layers (Chen et al. 2016, "Training deep nets with
 * sublinear memory cost"). The copies of a layer stand just before the first backward node that reads one of them.
 * They compute the same bits, dropout masks included. */
#include "passes/train/recompute.h"

#include <fnmatch.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/train/training.h"
#include "runtime/base/checked.h"

enum { MAX_PERIOD = 64 }; /* stretches of a layer */

/* Choosing -------------------------------------------------------------------------------------------------------- */

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
    *recompute = (struct recompute){.text = text};
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

/* The forward phase ----------------------------------------------------------------------------------------------- */

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

/* Layers ---------------------------------------------------------------------------------------------------------- */

/* Runs of nodes: the place of the first node of each run, and the end of the last run. */
struct runs {
    VEC(int) first;
};

/* Finds the stretches between places where a single value is live (Note [Recomputed layers]). */
static void find_stretches(const struct recomputing *r, struct runs *stretches) {
    const struct graph *graph = r->graph;
    int *change = ARENA_ARRAY(graph->arena, int, r->forward + 2), live = 0;
    for (int i = 0; i < r->forward; i++) {
        int out = graph->nodes.at[node_at(r, i)].outputs[0];
        if (r->depends[out] && r->last[out] > i) change[i]++, change[r->last[out]]--;
    }
    VEC_PUSH(graph->arena, &stretches->first, 0);
    for (int i = 0; i < r->forward; i++)
        if ((live += change[i]) == 1 && i + 1 < r->forward) VEC_PUSH(graph->arena, &stretches->first, i + 1);
    VEC_PUSH(graph->arena, &stretches->first, r->forward);
}

/* Numbers the stretches so that those with equal operators and shapes have equal numbers. */
static int *kinds_of(const struct recomputing *r, const struct runs *stretches) {
    const struct graph *graph = r->graph;
    int n = stretches->first.n - 1, *kind = ARENA_ARRAY(graph->arena, int, n + 1);
    struct map seen;
    struct strbuf key;
    map_init(&seen, graph->arena);
    strbuf_init(&key, graph->arena);
    for (int s = 0; s < n; s++) {
        key.length = 0;
        for (int i = stretches->first.at[s]; i < stretches->first.at[s + 1]; i++) {
            const struct node *node = &graph->nodes.at[node_at(r, i)];
            strbuf_printf(&key, "%s %s;", node->op->name,
                          tensor_type(graph->arena, &graph->tensors.at[node->outputs[0]]));
        }
        kind[s] = map_get(&seen, key.text, key.length);
        if (kind[s] < 0) map_put(&seen, key.text, key.length, kind[s] = seen.n);
    }
    return kind;
}

/* How often the sequence of `period` stretches from `first` on occurs in a row. */
static int repeats(const int *kind, int n, int first, int period) {
    int same = 0;
    while (first + period + same < n && kind[first + same] == kind[first + period + same]) same++;
    return 1 + same / period;
}

/* Finds the layers: the repeated sequence that covers the most stretches, else equal shares of all stretches. */
static void find_layers(const struct recomputing *r, struct runs *layers) {
    struct arena *arena = r->graph->arena;
    struct runs stretches = {0};
    find_stretches(r, &stretches);
    int n = stretches.first.n - 1, *kind = kinds_of(r, &stretches), most = 0, best = 0, step = 1;
    for (int first = 0; first < n; first++) {
        for (int period = 1; period <= MAX_PERIOD && first + 2 * period <= n; period++) {
            int covers = period * repeats(kind, n, first, period);
            if (covers >= 2 * period && covers > most) most = covers, best = first, step = period;
        }
    }
    if (!most) most = n, step = (int)ceil(sqrt(n));
    for (int s = 0; s <= most; s += step) VEC_PUSH(arena, &layers->first, stretches.first.at[best + s]);
    if (most % step) VEC_PUSH(arena, &layers->first, stretches.first.at[best + most]);
}

/* Drops the nodes of the layer whose results only the layer itself reads in the forward phase. */
static void drop_layer(struct recomputing *r, const struct runs *layers, int layer) {
    const int end = layers->first.at[layer + 1];
    for (int i = layers->first.at[layer]; i < end; i++) {
        const struct node *node = &r->graph->nodes.at[node_at(r, i)];
        bool inside = true;
        for (int o = 0; o < node->noutputs; o++) inside = inside && r->last[node->outputs[o]] < end;
        r->dropped[node_at(r, i)] = inside && i + 1 < r->forward;
    }
}

/* Bytes of forward values that are kept for the backward phase. */
static int64_t kept_bytes(const struct recomputing *r) {
    const struct graph *graph = r->graph;
    bool *counted = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
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
    return bytes;
}

static int drop_layers(struct recomputing *r, struct diags *diags) {
    const bool budget = r->choice->kind == RECOMPUTE_BUDGET;
    struct runs layers = {0};
    find_layers(r, &layers);
    int n = layers.first.n - 1,
        most = r->choice->kind == RECOMPUTE_FIRST && r->choice->count < n ? (int)r->choice->count : n;
    for (int layer = 0; layer < most && !(budget && kept_bytes(r) <= r->choice->count); layer++)
        drop_layer(r, &layers, layer);
    if (r->choice->kind == RECOMPUTE_FIRST && r->choice->count > n)
        return diag_error(diags, 506, EXIT_LIMIT, "--recompute", "first:%lld: the model has only %d layers",
                          (long long)r->choice->count, n);
    if (!budget || kept_bytes(r) <= r->choice->count) return 0;
    return diag_error(diags, 506, EXIT_LIMIT, "--recompute",
                      "%s: %lld bytes of activations are kept even if all %d layers are recomputed", r->choice->text,
                      (long long)kept_bytes(r), n);
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

/* Copying --------------------------------------------------------------------------------------------------------- */

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
    }
    int copy = graph_add_node(graph, node.op, arena_printf(graph->arena, "%s.again", node.name), node.ninputs, inputs,
                              node.noutputs, outputs, node.nattrs, node.attrs);
    graph->order.n--; /* it is put into `order` instead */
    graph->nodes.at[copy].phase = PHASE_BACKWARD;
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

int pass_recompute(struct graph *graph, const struct pass_context *context) {
    struct recomputing r = {.graph = graph, .choice = context->training ? &context->training->recompute : NULL};
    if (!r.choice || r.choice->kind == RECOMPUTE_NONE || has_copies(graph)) return 0;
    while (r.forward < graph->order.n && graph->nodes.at[graph->order.at[r.forward]].phase == PHASE_FORWARD)
        r.forward++;
    int room = 2 * graph->tensors.n + 1; /* a copy of each at most */
    r.last = ARENA_ARRAY(graph->arena, int, room);
    r.again = ARENA_ARRAY(graph->arena, int, room);
    r.depends = ARENA_ARRAY(graph->arena, bool, room);
    r.dropped = ARENA_ARRAY(graph->arena, bool, 2 * graph->nodes.n + 1);
    for (int t = 0; t < room; t++) r.again[t] = -1;
    look_at_forward(&r);
    bool by_node = r.choice->kind == RECOMPUTE_SELECTIVE || r.choice->kind == RECOMPUTE_NAMES;
    if ((by_node ? drop_nodes : drop_layers)(&r, context->diags) < 0) return -1;
    copy_dropped(&r);
    return 0;
}
