/* Chains of elementwise operators become one: one loop over the elements, no tensor between them.
 *
 * Runs last, on the nodes of every rank, so that policies and plans see the model's own operators. A node takes in the
 * producer of an operand if it is the only reader, both compute parts of one shape on one stage, and in one float type.
 * What a chain reads several times is named: "v0 = a + b; v0 * sigmoid(v0)". */
#include <stdio.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/chain.h"

/* MAX_HEIGHT: of what a node takes in; its own expression and the text's depth must have room above it. */
enum { MAX_INPUTS = EXPR_INPUTS, MAX_NAMED = 32, MAX_RESULTS = 4, MAX_HEIGHT = EXPR_DEPTH / 2 };

/* The expression of a node with all that it took in. Leaves are numbers, inputs "#<tensor>", and names "v<i>". */
struct chain {
    int ninputs, inputs[MAX_INPUTS];
    int nnamed;
    const struct expr *named[MAX_NAMED], *value;
    int nresults; /* values that are wanted beside its own: which tensors, and their names */
    struct {
        int tensor, name;
    } results[MAX_RESULTS - 1];
    int nodes;
};

struct fuser {
    struct graph *graph;
    struct uses uses;
    bool *kept;            /* per tensor: an output or an update */
    bool *updates;         /* per tensor: an update, and no output */
    struct chain **chains; /* per node, NULL: not elementwise in floats */
    int *root;             /* per node: the node whose chain it is in, itself if it heads one */
    int nnodes;            /* before any was fused */
};

static enum rt_dtype type_of(const struct fuser *f, int tensor) {
    return f->graph->tensors.at[tensor].dtype;
}

/* The producer of the tensor, if `reader` may take it in; else -1. */
static int takes(const struct fuser *f, int reader, int tensor) {
    const struct tensor *t = &f->graph->tensors.at[tensor];
    const struct node *node = &f->graph->nodes.at[reader];
    int p = t->producer;
    if (p < 0 || !f->chains[p] || f->kept[tensor] || f->graph->nodes.at[p].stage != node->stage ||
        f->graph->nodes.at[p].phase != node->phase)
        return -1;
    for (int u = f->uses.first[tensor]; u < f->uses.first[tensor + 1]; u++)
        if (f->uses.users[u] != reader) return -1;
    enum rt_dtype mine = chain_computes_in(f->graph, node), its = chain_computes_in(f->graph, &f->graph->nodes.at[p]);
    if (mine != its && its != RT_BOOL && mine != RT_BOOL) return -1;
    return chain_same_part(t, &f->graph->tensors.at[node->outputs[0]]) ? p : -1;
}

/* Building expressions --------------------------------------------------------------------------------------------- */

static const struct expr *leaf(const struct fuser *f, const char *name) {
    return expr_name(f->graph->arena, name);
}

static const struct expr *substitute(const struct fuser *f, const struct expr *e, const struct expr_renaming *r) {
    return expr_rename(f->graph->arena, e, r);
}

static bool add_input(struct chain *chain, int tensor) {
    for (int i = 0; i < chain->ninputs; i++)
        if (chain->inputs[i] == tensor) return true;
    if (chain->ninputs == MAX_INPUTS) return false;
    chain->inputs[chain->ninputs++] = tensor;
    return true;
}

static const char *input_name(const struct fuser *f, int tensor) {
    return arena_printf(f->graph->arena, "#%d", tensor);
}
static const char *value_name(const struct fuser *f, int i) {
    return arena_printf(f->graph->arena, "v%d", i);
}

/* Takes the producer's chain into `chain`, leaving room for `reserve` more inputs; its value becomes a name if it is
 * read `times` > 1. NULL: no room. */
static const struct expr *take_in(const struct fuser *f, struct chain *chain, int producer, int times, int reserve) {
    const struct chain *from = f->chains[producer];
    struct chain grown = *chain;
    struct expr_renaming renaming = {.n = 0};
    if (grown.nnamed + from->nnamed + (times > 1) > MAX_NAMED || expr_height(from->value) > MAX_HEIGHT) return NULL;
    for (int i = 0; i < from->ninputs; i++)
        if (!add_input(&grown, from->inputs[i])) return NULL;
    if (grown.ninputs + reserve > MAX_INPUTS) return NULL;
    for (int i = 0; i < from->nnamed; i++) {
        grown.named[grown.nnamed] = substitute(f, from->named[i], &renaming);
        renaming.names[renaming.n] = value_name(f, i);
        renaming.by[renaming.n++] = leaf(f, value_name(f, grown.nnamed++));
    }
    enum rt_dtype dtype = type_of(f, f->graph->nodes.at[producer].outputs[0]);
    const struct expr *value = chain_rounded(f->graph->arena, dtype, substitute(f, from->value, &renaming));
    if (times > 1) {
        grown.named[grown.nnamed] = value;
        value = leaf(f, value_name(f, grown.nnamed++));
    }
    grown.nodes += from->nodes;
    *chain = grown;
    return value;
}

/* Some operand that is no number has as many dimensions as the node's result: the shape does not depend on the
 * numbers. */
static bool shape_is_kept(const struct fuser *f, int id) {
    const struct node *node = &f->graph->nodes.at[id];
    const int ndim = f->graph->tensors.at[node->outputs[0]].ndim;
    for (int k = 0; k < node->ninputs; k++)
        if (f->graph->tensors.at[node->inputs[k]].ndim == ndim && !chain_number(f->graph, node->inputs[k])) return true;
    return false;
}

/* One operand: a number, a producer taken in, or an input. NULL: the chain has no room. */
static const struct expr *operand_expression(struct fuser *f, int id, struct chain *chain, int tensor, int times,
                                             int reserve) {
    const struct expr *number = chain_number(f->graph, tensor);
    if (number && shape_is_kept(f, id)) return number;
    int producer = takes(f, id, tensor);
    bool named_bool = times > 1 && type_of(f, tensor) == RT_BOOL; /* names are of the chain's float type */
    if (producer >= 0 && !named_bool) {
        const struct expr *value = take_in(f, chain, producer, times, reserve);
        if (value) f->root[producer] = id;
        if (value) return value;
    }
    return add_input(chain, tensor) ? leaf(f, input_name(f, tensor)) : NULL;
}

static void make_chain(struct fuser *f, int id) {
    const struct node *node = &f->graph->nodes.at[id];
    struct chain *chain = ARENA_NEW(f->graph->arena, struct chain);
    const struct expr *own = chain_expression(f->graph, node);
    struct expr_renaming renaming = {.n = 0};
    chain->nodes = 1;
    for (int k = 0; k < node->ninputs; k++) {
        const char *name = chain_input(node, k);
        bool again = k > 0 && node->inputs[k] == node->inputs[k - 1];
        int times =
            chain_reads(own, name) + (again || (k + 1 < node->ninputs && node->inputs[k + 1] == node->inputs[k]));
        renaming.names[renaming.n] = name;
        renaming.by[renaming.n] = again
                                      ? renaming.by[renaming.n - 1]
                                      : operand_expression(f, id, chain, node->inputs[k], times, node->ninputs - 1 - k);
        if (!renaming.by[renaming.n++]) BUG("an elementwise node with more than %d inputs", MAX_INPUTS);
    }
    chain->value = substitute(f, own, &renaming);
    f->chains[id] = chain;
}

/* Values with several readers -------------------------------------------------------------------------------------- */

/* Note [One pass]
 * A value whose readers are all in one chain is computed there, under a name. If it is also what a state becomes, it is
 * a further result of the chain: so the moments of an optimizer and the parameter are updated in one loop. */

static int root_of(const struct fuser *f, int node) {
    while (f->root[node] != node) node = f->root[node];
    return node;
}

/* The producer of an input of chain `id`, if all its readers are in that chain by now; else -1. */
static int encloses(const struct fuser *f, int id, int tensor) {
    const struct tensor *t = &f->graph->tensors.at[tensor];
    const struct node *node = &f->graph->nodes.at[id];
    int p = t->producer;
    if (p < 0 || !f->chains[p] || f->root[p] != p || t->dtype == RT_BOOL) return -1;
    if (f->kept[tensor] && (!f->updates[tensor] || t->dtype != type_of(f, node->outputs[0]))) return -1;
    for (int u = f->uses.first[tensor]; u < f->uses.first[tensor + 1]; u++)
        if (!f->chains[f->uses.users[u]] || root_of(f, f->uses.users[u]) != id) return -1;
    bool alike = f->graph->nodes.at[p].stage == node->stage && f->graph->nodes.at[p].phase == node->phase &&
                 chain_computes_in(f->graph, &f->graph->nodes.at[p]) == chain_computes_in(f->graph, node);
    return alike && chain_same_part(t, &f->graph->tensors.at[node->outputs[0]]) ? p : -1;
}

static void add_result(struct chain *chain, int tensor, int name) {
    chain->results[chain->nresults].tensor = tensor;
    chain->results[chain->nresults++].name = name;
}

/* Puts the producer's chain before the chain of `id`, its value under a name. False: no room. */
static bool put_before(struct fuser *f, int id, int producer, int tensor) {
    const struct chain *tail = f->chains[id], *head = f->chains[producer];
    struct chain *joined = ARENA_NEW(f->graph->arena, struct chain);
    struct expr_renaming renaming = {.n = 0};
    int nresults = head->nresults + f->updates[tensor] + tail->nresults;
    if (head->nnamed + 1 + tail->nnamed > MAX_NAMED || nresults >= MAX_RESULTS) return false;
    *joined = *head;
    joined->nodes += tail->nodes;
    if (f->updates[tensor]) add_result(joined, tensor, head->nnamed);
    for (int i = 0; i < tail->nresults; i++)
        add_result(joined, tail->results[i].tensor, tail->results[i].name + head->nnamed + 1);
    joined->named[joined->nnamed] = chain_rounded(f->graph->arena, type_of(f, tensor), head->value);
    renaming.names[renaming.n] = input_name(f, tensor);
    renaming.by[renaming.n++] = leaf(f, value_name(f, joined->nnamed++));
    for (int i = 0; i < tail->ninputs; i++)
        if (tail->inputs[i] != tensor && !add_input(joined, tail->inputs[i])) return false;
    for (int i = 0; i < tail->nnamed; i++) {
        joined->named[joined->nnamed] = substitute(f, tail->named[i], &renaming);
        renaming.names[renaming.n] = value_name(f, i);
        renaming.by[renaming.n++] = leaf(f, value_name(f, joined->nnamed++));
    }
    joined->value = substitute(f, tail->value, &renaming);
    f->chains[id] = joined;
    f->root[producer] = id;
    return true;
}

static void enclose(struct fuser *f, int id) {
    for (int i = 0; i < f->chains[id]->ninputs; i++) {
        int tensor = f->chains[id]->inputs[i], producer = encloses(f, id, tensor);
        if (producer >= 0 && put_before(f, id, producer, tensor)) i = -1; /* its inputs may be enclosed in turn */
    }
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

/* Inputs by letters in order: a, b, c ... */
static struct expr_renaming letters_of(const struct fuser *f, const struct chain *chain) {
    struct expr_renaming renaming = {.n = 0};
    for (int i = 0; i < chain->ninputs; i++) {
        renaming.names[renaming.n] = input_name(f, chain->inputs[i]);
        renaming.by[renaming.n++] = leaf(f, arena_printf(f->graph->arena, "%c", 'a' + i));
    }
    return renaming;
}

/* A new node: the old one stays as plans know it. Returns its id. */
static int fused_node(const struct fuser *f, int id, const struct chain *chain) {
    struct graph *graph = f->graph;
    const struct node node = graph->nodes.at[id];
    struct expr_renaming letters = letters_of(f, chain);
    struct strbuf text;
    strbuf_init(&text, graph->arena);
    for (int i = 0; i < chain->nnamed; i++)
        strbuf_printf(&text, "v%d = %s; ", i, expr_format(graph->arena, substitute(f, chain->named[i], &letters)));
    strbuf_puts(&text, expr_format(graph->arena,
                                   substitute(f, chain_stored(type_of(f, node.outputs[0]), chain->value), &letters)));
    int outputs[MAX_RESULTS] = {node.outputs[0]};
    for (int i = 0; i < chain->nresults; i++) {
        strbuf_printf(&text, ", v%d", chain->results[i].name);
        outputs[1 + i] = chain->results[i].tensor;
    }
    struct attr attrs[] = {attr_of_text("expr", strbuf_text(&text)),
                           attr_of_text("to", rt_dtypes[type_of(f, node.outputs[0])].name)};
    int fused = graph_add_node(graph, &ops[OP_Fused], node.name, chain->ninputs, chain->inputs, 1 + chain->nresults,
                               outputs, 2, attrs);
    memcpy(graph->nodes.at[fused].split, node.split, sizeof node.split);
    graph->nodes.at[fused].stage = node.stage;
    graph->nodes.at[fused].phase = node.phase;
    graph->order.n--; /* it takes the old one's place */
    return fused;
}

/* A single node becomes a chain where passes/rewrite/fuse_epilogue.c may take it into a product: one that makes an
 * operand, or an operand of an elementwise node that does. */
static bool follows_product(const struct fuser *f, const struct pass_context *context, int id, int most) {
    const struct node *node = &f->graph->nodes.at[id];
    for (int k = 0; k < node->ninputs; k++) {
        int p = f->graph->tensors.at[node->inputs[k]].producer;
        if (p < 0) continue;
        const struct node *before = &f->graph->nodes.at[p];
        bool finishes = attr_int(before, "packed", 0) ? context->block_epilogues : context->library_products;
        if (before->op->id == OP_MatMul && finishes) return true;
        if (most > 1 && f->chains[p] && follows_product(f, context, p, most - 1)) return true;
    }
    return false;
}

/* Nodes that became part of another one, by the node that their chain became. */
static void name_members(const struct fuser *f, const int *fused) {
    for (int id = 0; id < f->nnodes; id++) {
        const int head = f->root[id];
        if (!fused[head] || f->chains[head]->nodes < 2) continue;
        VEC_PUSH(f->graph->arena, &f->graph->members, (struct member){fused[head], f->graph->nodes.at[id].name});
    }
}

int pass_fuse_elementwise(struct graph *graph, const struct pass_context *context) {
    struct fuser f = {.graph = graph, .nnodes = graph->nodes.n};
    int live = 0, most = context->library_products ? 2 : 1;
    graph_uses(graph, graph->arena, &f.uses);
    f.kept = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    f.chains = ARENA_ARRAY(graph->arena, struct chain *, graph->nodes.n + 1);
    f.root = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1);
    int *fused = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1);   /* per head: the node it became */
    bool *heads = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1); /* of chains that become nodes */
    for (int id = 0; id < graph->nodes.n; id++) f.root[id] = id;
    f.updates = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->updates.n; i++) f.kept[graph->updates.at[i].value] = true;
    for (int i = 0; i < graph->updates.n; i++) f.updates[graph->updates.at[i].value] = true;
    for (int i = 0; i < graph->outputs.n; i++) {
        f.kept[graph->outputs.at[i]] = true;
        f.updates[graph->outputs.at[i]] = false;
    }
    for (int i = 0; i < graph->order.n; i++)
        if (chain_takes(graph, &graph->nodes.at[graph->order.at[i]])) make_chain(&f, graph->order.at[i]);
    for (int i = graph->order.n - 1; i >= 0; i--)
        if (f.chains[graph->order.at[i]] && f.root[graph->order.at[i]] == graph->order.at[i])
            enclose(&f, graph->order.at[i]);
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        heads[id] =
            f.root[id] == id && f.chains[id] && (f.chains[id]->nodes > 1 || follows_product(&f, context, id, most));
    }
    for (int i = 0; i < graph->order.n; i++) {
        int id = graph->order.at[i];
        if (f.root[id] != id) continue;
        if (heads[id]) fused[id] = fused_node(&f, id, f.chains[id]);
        graph->order.at[live++] = heads[id] ? fused[id] : id;
    }
    name_members(&f, fused);
    graph->order.n = live;
    return 0;
}
