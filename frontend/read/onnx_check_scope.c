#include "frontend/read/onnx_check.h"

#include <string.h>

#include "ir/base/str.h"

/* Definitions in check_scope.defined are encoded as DEFINED_KINDS * index + kind, where index is that of the graph
 * input or node. BY_BOTH: an initializer that is also a graph input. */
enum { BY_INPUT, BY_INITIALIZER, BY_BOTH, BY_NODE, DEFINED_KINDS };

static int lookup(const struct check_scope *scope, const char *name) {
    return map_get(&scope->defined, name, strlen(name));
}

static void define(struct check_scope *scope, const char *name, int kind, int index) {
    map_put(&scope->defined, name, strlen(name), DEFINED_KINDS * index + kind);
}

int check_input_index(const struct check_scope *scope, const char *name) {
    int found = lookup(scope, name);
    return found >= 0 && found % DEFINED_KINDS != BY_NODE && found % DEFINED_KINDS != BY_INITIALIZER
               ? found / DEFINED_KINDS
               : -1;
}

const char *check_node_text(struct check *check, const struct check_scope *scope, int index) {
    const char *name = onnx_text(scope->nodes[index]->name);
    if (!*name) return arena_printf(check->model->arena, "node #%d", index);
    return arena_printf(check->model->arena, "node #%d %s", index, check_quote(check, name));
}

/* ---- definitions ---- */

static void define_input(struct check *check, struct check_scope *scope, const char *name, int index) {
    struct onnx_place place = check_place(scope, -1);
    place.what = "input";
    place.name = name;
    if (!*name)
        CHECK_FAIL(check, 338, EXIT_MALFORMED, &place, "graph input %d has no name", index);
    else if (lookup(scope, name) >= 0)
        CHECK_FAIL(check, 321, EXIT_MALFORMED, &place, "graph input %s is given twice", check_quote(check, name));
    else
        define(scope, name, BY_INPUT, index);
}

static void define_initializer(struct check *check, struct check_scope *scope, const char *name) {
    struct onnx_place place = check_place(scope, -1);
    place.what = "initializer";
    place.name = name;
    int found = lookup(scope, name);
    if (!*name)
        CHECK_FAIL(check, 357, EXIT_MALFORMED, &place, "an initializer has no name");
    else if (found >= 0 && found % DEFINED_KINDS != BY_INPUT)
        CHECK_FAIL(check, 321, EXIT_MALFORMED, &place, "initializer %s is given twice", check_quote(check, name));
    else
        define(scope, name, found < 0 ? BY_INITIALIZER : BY_BOTH, found < 0 ? 0 : found / DEFINED_KINDS);
}

static void define_output(struct check *check, struct check_scope *scope, int node, const char *name) {
    struct onnx_place place = check_place(scope, node);
    int found = lookup(scope, name);
    if (found < 0)
        define(scope, name, BY_NODE, node);
    else if (found % DEFINED_KINDS == BY_NODE)
        CHECK_FAIL(check, 321, EXIT_MALFORMED, &place, "value %s is written by node #%d and node #%d",
                   check_quote(check, name), found / DEFINED_KINDS, node);
    else
        CHECK_FAIL(check, 321, EXIT_MALFORMED, &place, "value %s is %s and written by node #%d",
                   check_quote(check, name),
                   found % DEFINED_KINDS == BY_INITIALIZER ? "an initializer" : "a graph input", node);
}

void check_definitions(struct check *check, struct check_scope *scope) {
    const Onnx__GraphProto *graph = scope->graph;
    map_init(&scope->defined, check->scratch);
    for (size_t i = 0; !graph && i < scope->function->n_input; i++)
        define_input(check, scope, scope->function->input[i], (int)i);
    for (size_t i = 0; graph && i < graph->n_input; i++)
        define_input(check, scope, onnx_text(graph->input[i]->name), (int)i);
    for (size_t i = 0; graph && i < graph->n_initializer; i++)
        define_initializer(check, scope, onnx_text(graph->initializer[i]->name));
    for (size_t i = 0; graph && i < graph->n_sparse_initializer; i++) {
        const Onnx__TensorProto *values = graph->sparse_initializer[i]->values;
        define_initializer(check, scope, values ? onnx_text(values->name) : "");
    }
    for (int i = 0; i < scope->nnodes; i++)
        for (size_t k = 0; k < scope->nodes[i]->n_output; k++)
            if (*scope->nodes[i]->output[k]) define_output(check, scope, i, scope->nodes[i]->output[k]);
}

/* ---- reads ---- */

/* Adds the edge from node `writer` to node `reader` of `scope` and notes the first that is not in order. */
static void add_edge(struct check *check, struct check_scope *scope, int reader, int writer, const char *name) {
    if (reader == scope->nnodes) return; /* a graph of training_info, which runs after all nodes */
    VEC_PUSH(check->scratch, &check->edges, (struct check_edge){reader, writer, scope->first_edge, -1});
    scope->first_edge = check->edges.n - 1;
    if (writer < reader || scope->late_value) return;
    scope->late_value = name;
    scope->late_reader = reader;
    scope->late_writer = writer;
}

/* Looks `name`, which node `reader` of scope `at` reads, up in the scope and those around it; adds an edge in the scope
 * where a node defines it. False: undefined. */
static bool resolve(struct check *check, int at, int reader, const char *name) {
    while (at >= 0) {
        struct check_scope *scope = &check->scopes.at[at];
        int found = lookup(scope, name);
        if (found >= 0 && found % DEFINED_KINDS == BY_NODE) add_edge(check, scope, reader, found / DEFINED_KINDS, name);
        if (found >= 0) return true;
        reader = scope->parent_node;
        at = scope->parent;
    }
    return false;
}

static void check_node_reads(struct check *check, int at, int index) {
    const struct check_scope *scope = &check->scopes.at[at];
    const Onnx__NodeProto *node = scope->nodes[index];
    for (size_t k = 0; k < node->n_input; k++) {
        if (!*node->input[k] || resolve(check, at, index, node->input[k])) continue;
        struct onnx_place place = check_place(scope, index);
        CHECK_FAIL(check, scope->root >= 0 ? 328 : 324, EXIT_MALFORMED, &place,
                   "node #%d %s input %zu %s is not defined", index,
                   str_escape(check->model->arena, onnx_text(node->op_type), strlen(onnx_text(node->op_type)), 120), k,
                   check_quote(check, node->input[k]));
    }
}

static void check_output(struct check *check, int at, const char *name, struct map *seen) {
    const struct check_scope *scope = &check->scopes.at[at];
    struct onnx_place place = check_place(scope, -1);
    place.what = "output";
    place.name = name;
    /* A subgraph's outputs are read at its end. Outputs that outer scopes define were computed before its node runs. */
    bool repeated = scope->graph && scope->parent < 0 && !map_put(seen, name, strlen(name), 0);
    bool known = lookup(scope, name) >= 0 || resolve(check, scope->parent, scope->parent_node, name);
    if (!*name && scope->graph)
        CHECK_FAIL(check, 338, EXIT_MALFORMED, &place, "a graph output has no name");
    else if (repeated)
        CHECK_FAIL(check, 321, EXIT_MALFORMED, &place, "graph output %s is given twice", check_quote(check, name));
    else if (!known)
        CHECK_FAIL(check, scope->function ? 328 : 325, EXIT_MALFORMED, &place, "%s output %s is not produced",
                   scope->function ? "function" : "graph", check_quote(check, name));
}

void check_reads(struct check *check, int at) {
    struct check_scope scope = check->scopes.at[at];
    struct map seen;
    map_init(&seen, check->scratch);
    for (int i = 0; i < scope.nnodes; i++) check_node_reads(check, at, i);
    for (size_t i = 0; scope.graph && i < scope.graph->n_output; i++)
        check_output(check, at, onnx_text(scope.graph->output[i]->name), &seen);
    for (size_t i = 0; scope.function && i < scope.function->n_output; i++)
        check_output(check, at, scope.function->output[i], &seen);
}

/* ---- order ---- */

/* The edges of a scope by writer, for Kahn's algorithm. All arrays are indexed by node. */
struct order {
    int *waits;  /* writers that are not yet in order; 0: the node is in order */
    int *first;  /* head of the list of edges to the node's readers */
    int *writer; /* of a node that is not in order: one of its writers that is not */
};

static void order_init(struct check *check, const struct check_scope *scope, struct order *order) {
    order->waits = ARENA_ARRAY(check->scratch, int, scope->nnodes);
    order->first = ARENA_ARRAY(check->scratch, int, scope->nnodes);
    order->writer = ARENA_ARRAY(check->scratch, int, scope->nnodes);
    for (int i = 0; i < scope->nnodes; i++) order->first[i] = -1;
    for (int e = scope->first_edge; e >= 0; e = check->edges.at[e].next) {
        struct check_edge *edge = &check->edges.at[e];
        order->waits[edge->reader]++;
        edge->next_reader = order->first[edge->writer];
        order->first[edge->writer] = e;
    }
}

/* Kahn's algorithm: the number of nodes that can be put in topological order. */
static int order_run(struct check *check, const struct check_scope *scope, struct order *order) {
    int *queue = ARENA_ARRAY(check->scratch, int, scope->nnodes), done = 0, n = 0;
    for (int i = 0; i < scope->nnodes; i++)
        if (!order->waits[i]) queue[n++] = i;
    while (done < n)
        for (int e = order->first[queue[done++]]; e >= 0; e = check->edges.at[e].next_reader)
            if (!--order->waits[check->edges.at[e].reader]) queue[n++] = check->edges.at[e].reader;
    return n;
}

/* Walks from a node that is not in order to its writers until a node repeats: the nodes from there on are a cycle. */
static void report_cycle(struct check *check, const struct check_scope *scope, struct order *order) {
    enum { LISTED = 8 };
    for (int e = scope->first_edge; e >= 0; e = check->edges.at[e].next) {
        const struct check_edge *edge = &check->edges.at[e];
        if (order->waits[edge->reader] && order->waits[edge->writer]) order->writer[edge->reader] = edge->writer;
    }
    int at = 0;
    while (!order->waits[at]) at++;
    for (; order->waits[at] > 0; at = order->writer[at]) order->waits[at] = -1; /* visited */
    struct strbuf text;
    strbuf_init(&text, check->model->arena);
    int start = at, n = 0;
    do {
        if (n++ < LISTED) strbuf_printf(&text, "%s, which reads ", check_node_text(check, scope, at));
        at = order->writer[at];
    } while (at != start);
    if (n > LISTED) strbuf_printf(&text, "... (%d nodes), which reads ", n);
    struct onnx_place place = check_place(scope, start);
    CHECK_FAIL(check, 322, EXIT_MALFORMED, &place, "cycle: %s%s", strbuf_text(&text),
               check_node_text(check, scope, start));
}

void check_order(struct check *check, struct check_scope *scope) {
    struct order order;
    if (!scope->late_value) return;
    order_init(check, scope, &order);
    if (order_run(check, scope, &order) < scope->nnodes) {
        report_cycle(check, scope, &order);
        return;
    }
    struct onnx_place place = check_place(scope, scope->late_reader);
    bool admitted = check->recorded < CHECK_ERRORS;
    CHECK_FAIL(check, 323, EXIT_MALFORMED, &place, "node #%d reads %s before node #%d writes it", scope->late_reader,
               check_quote(check, scope->late_value), scope->late_writer);
    if (admitted) diag_help(check->model->diags, "the nodes of an ONNX graph must be in topological order");
}
