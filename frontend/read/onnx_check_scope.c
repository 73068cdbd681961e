#include "frontend/read/onnx_check.h"

#include <string.h>

#include "ir/base/str.h"

/* Definitions in check_scope.defined are encoded as DEFINED_KINDS * index + kind, where index is that of the graph
 * input or node. BY_BOTH: an initializer that is also a graph input. */
enum { BY_INPUT, BY_INITIALIZER, BY_BOTH, BY_NODE, DEFINED_KINDS };

static int lookup(const struct check_scope *scope, const char *name) {
    return map_find(&scope->defined, name);
}

static void define(struct check_scope *scope, const char *name, int kind, int index) {
    map_set(&scope->defined, name, DEFINED_KINDS * index + kind);
}

int check_input_index(const struct check_scope *scope, const char *name) {
    int found = lookup(scope, name);
    return found >= 0 && found % DEFINED_KINDS != BY_NODE && found % DEFINED_KINDS != BY_INITIALIZER
               ? found / DEFINED_KINDS
               : -1;
}

/* "node #5 'name'" */
static const char *check_node_text(struct check *check, const struct check_scope *scope, int index) {
    const char *name = onnx_text(scope->nodes[index]->name);
    if (!*name) return arena_printf(check->model->arena, "node #%d", index);
    return arena_printf(check->model->arena, "node #%d %s", index, check_quote(check, name));
}

static void define_input(struct check *check, struct check_scope *scope, const char *name, int index) {
    struct onnx_place place = check_place(scope, -1);
    place.what = "input";
    place.name = name;
    if (!*name)
        CHECK_FAIL(check, 338, &place, "graph input %d has no name", index);
    else if (lookup(scope, name) >= 0)
        CHECK_FAIL(check, 321, &place, "graph input %s is given twice", check_quote(check, name));
    else
        define(scope, name, BY_INPUT, index);
}

static void define_initializer(struct check *check, struct check_scope *scope, const char *name) {
    struct onnx_place place = check_place(scope, -1);
    place.what = "initializer";
    place.name = name;
    int found = lookup(scope, name);
    if (!*name)
        CHECK_FAIL(check, 357, &place, "an initializer has no name");
    else if (found >= 0 && found % DEFINED_KINDS != BY_INPUT)
        CHECK_FAIL(check, 321, &place, "initializer %s is given twice", check_quote(check, name));
    else
        define(scope, name, found < 0 ? BY_INITIALIZER : BY_BOTH, found < 0 ? 0 : found / DEFINED_KINDS);
}

static void define_output(struct check *check, struct check_scope *scope, int node, const char *name) {
    struct onnx_place place = check_place(scope, node);
    int found = lookup(scope, name);
    if (found < 0)
        define(scope, name, BY_NODE, node);
    else if (found % DEFINED_KINDS == BY_NODE)
        CHECK_FAIL(check, 321, &place, "value %s is written by node #%d and node #%d", check_quote(check, name),
                   found / DEFINED_KINDS, node);
    else
        CHECK_FAIL(check, 321, &place, "value %s is %s and written by node #%d", check_quote(check, name),
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
        CHECK_FAIL(check, scope->root >= 0 ? 328 : 324, &place, "node #%d %s input %zu %s is not defined", index,
                   str_name(check->model->arena, onnx_text(node->op_type)), k, check_quote(check, node->input[k]));
    }
}

static void check_output(struct check *check, int at, const char *name) {
    const struct check_scope *scope = &check->scopes.at[at];
    struct onnx_place place = check_place(scope, -1);
    place.what = "output";
    place.name = name;
    /* A subgraph's outputs are read at its end. Outputs that outer scopes define were computed before its node runs. */
    bool known = lookup(scope, name) >= 0 || resolve(check, scope->parent, scope->parent_node, name);
    if (!*name && scope->graph)
        CHECK_FAIL(check, 338, &place, "a graph output has no name");
    else if (!known)
        CHECK_FAIL(check, scope->function ? 328 : 325, &place, "%s output %s is not produced",
                   scope->function ? "function" : "graph", check_quote(check, name));
}

void check_reads(struct check *check, int at) {
    struct check_scope scope = check->scopes.at[at];
    for (int i = 0; i < scope.nnodes; i++) check_node_reads(check, at, i);
    for (size_t i = 0; scope.graph && i < scope.graph->n_output; i++)
        check_output(check, at, onnx_text(scope.graph->output[i]->name));
    for (size_t i = 0; scope.function && i < scope.function->n_output; i++)
        check_output(check, at, scope.function->output[i]);
}

enum { NEW, OPEN, DONE };

/* The nodes of a scope, sorted depth first: a node keeps its place among the others, and nodes whose outputs it reads
 * go before it. An OPEN node waits on the stack for them, each for the node above it. */
struct order {
    int *next; /* by node: head of the list of edges to writers that it has not waited for */
    unsigned char *state;
    int *stack, depth;
    Onnx__NodeProto **sorted;
    int *from, n; /* by place in `sorted`: the node's index in the file */
};

static void order_init(struct check *check, const struct check_scope *scope, struct order *order) {
    const int n = scope->nnodes;
    *order = (struct order){.next = ARENA_ARRAY(check->scratch, int, n),
                            .state = ARENA_ARRAY(check->scratch, unsigned char, n),
                            .stack = ARENA_ARRAY(check->scratch, int, n),
                            .sorted = ARENA_ARRAY(check->scratch, Onnx__NodeProto *, n),
                            .from = ARENA_ARRAY(check->scratch, int, n)};
    for (int i = 0; i < n; i++) order->next[i] = -1;
    for (int e = scope->first_edge; e >= 0; e = check->edges.at[e].next) {
        struct check_edge *edge = &check->edges.at[e];
        edge->next_writer = order->next[edge->reader];
        order->next[edge->reader] = e;
    }
}

/* The nodes on the stack from `start` on are a cycle: each reads an output of the next, and the last one of `start`. */
static void report_cycle(struct check *check, const struct check_scope *scope, const struct order *order, int start) {
    enum { LISTED = 8 };
    struct strbuf text = {.arena = check->model->arena};
    int first = order->depth - 1, n = 0;
    while (order->stack[first] != start) first--;
    for (int i = first; i < order->depth && n < LISTED; i++, n++)
        strbuf_printf(&text, "%s, which reads ", check_node_text(check, scope, order->stack[i]));
    if (order->depth - first > LISTED) strbuf_printf(&text, "... (%d nodes), which reads ", order->depth - first);
    struct onnx_place place = check_place(scope, start);
    CHECK_FAIL(check, 322, &place, "cycle: %s%s", strbuf_text(&text), check_node_text(check, scope, start));
}

static void open_node(struct order *order, int node) {
    order->state[node] = OPEN;
    order->stack[order->depth++] = node;
}

/* Sorts `node` and all that it reads. -1 after a diagnostic if there is a cycle. */
static int order_node(struct check *check, const struct check_scope *scope, struct order *order, int node) {
    if (order->state[node] == DONE) return 0;
    open_node(order, node);
    while (order->depth) {
        const int top = order->stack[order->depth - 1], e = order->next[top];
        if (e < 0) {
            order->state[top] = DONE;
            order->from[order->n] = top;
            order->sorted[order->n++] = scope->nodes[top];
            order->depth--;
            continue;
        }
        const int writer = check->edges.at[e].writer;
        order->next[top] = check->edges.at[e].next_writer;
        if (order->state[writer] == OPEN) return report_cycle(check, scope, order, writer), -1;
        if (order->state[writer] == NEW) open_node(order, writer);
    }
    return 0;
}

void check_order(struct check *check, struct check_scope *scope) {
    struct onnx_model *model = check->model;
    struct order order;
    if (!scope->late_value) return;
    order_init(check, scope, &order);
    for (int i = 0; i < scope->nnodes; i++)
        if (order_node(check, scope, &order, i) < 0) return;
    const struct onnx_place place = check_place(scope, scope->late_reader);
    if (!model->moved.n)
        diag_remark(model->diags, onnx_place_text(model, &place),
                    "nodes are not in topological order, and were sorted: node #%d reads %s before node #%d writes it",
                    scope->late_reader, check_quote(check, scope->late_value), scope->late_writer);
    for (int i = 0; i < scope->nnodes; i++)
        map_put(&model->moved, (const char *)&order.sorted[i], sizeof order.sorted[i], order.from[i]);
    memcpy(scope->nodes, order.sorted, (size_t)scope->nnodes * sizeof *scope->nodes);
}
