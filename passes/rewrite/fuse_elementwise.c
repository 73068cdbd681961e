/* Fuses elementwise operators that read each other's results into one node, Fused: one loop over the elements, and no
 * tensors in between.
 *
 * Runs after the plan is applied, so that policies and plans see the operators of the model. A node is fused with
 * the producer of an operand if it is the operand's only reader, and if both belong to the same pipeline stage and
 * phase, compute in the same float type, and have results of the same shape and layout. A value that the fused
 * expression reads several times is given a name: "v0 = a + b; v0 * sigmoid(v0)".
 *
 * Note [Repeated values]
 * A value with several readers is fused with each of them, if it can be with all, and if they do not read more then:
 * a cast to a wider type, and what follows from one tensor of no more bytes that is kept for as long anyway, such as
 * silu(gate), which the forward and the backward phase read. It is computed again for each reader, and neither written
 * nor kept. Where memory is not the limit (on CPUs) a value is not repeated if it takes a function to compute. */
#include <limits.h>

#include "ir/op.h"
#include "passes/pipeline.h"
#include "passes/rewrite/elementwise.h"
#include "passes/rewrite/epilogues.h"

/* MAX_HEIGHT: of the expression of an operand; the rest of EXPR_DEPTH is for the expression of the node that reads
 * it. */
enum { MAX_INPUTS = EXPR_INPUTS, MAX_NAMED = 32, MAX_RESULTS = 4, MAX_HEIGHT = EXPR_DEPTH / 2 };

/* A node with the producers that are fused into it, as an expression. Its leaves are numbers, inputs "#<tensor>" and
 * names "v<i>" of named values. */
struct fusion {
    int ninputs, inputs[MAX_INPUTS];
    struct expr_chain chain; /* named values, at most MAX_NAMED; one value */
    int nresults;            /* named values that are results too: the tensor and the number of the name */
    struct {
        int tensor, name;
    } results[MAX_RESULTS - 1];
    int nodes;
};

struct fuser {
    struct graph *graph;
    const struct pass_context *context;
    struct arena *arena; /* of what the pass alone needs */
    struct uses uses;
    bool *kept;              /* graph_kept */
    bool *updates;           /* per tensor: the new value of an update, and no output */
    struct fusion **fusions; /* per node; NULL: it cannot be fused */
    int *root;               /* per node: the node that it was fused into, itself if into none */
    int *last;               /* per tensor: the place in the order of its last reader; INT_MAX: it stays */
    bool *apart;             /* per tensor: Note [Apart] */
    int *within;             /* per tensor: the node in whose fusion alone it was found to be read; -1: none yet */
    int nnodes;              /* before any was fused */
};

static enum rt_dtype type_of(const struct fuser *f, int tensor) {
    return f->graph->tensors.at[tensor].dtype;
}

/* True if the producer of the tensor and its reader may be one node, whoever else reads the tensor, and whatever their
 * phases. */
static bool fit(const struct fuser *f, int reader, int tensor) {
    const struct tensor *t = &f->graph->tensors.at[tensor];
    const struct node *node = &f->graph->nodes.at[reader], *producer = &f->graph->nodes.at[t->producer];
    const enum rt_dtype mine = elementwise_compute_type(f->graph, node),
                        its = elementwise_compute_type(f->graph, producer);
    if (producer->stage != node->stage) return false;
    if (mine != its && its != RT_BOOL && mine != RT_BOOL) return false;
    return elementwise_same_shard(t, &f->graph->tensors.at[node->outputs[0]]);
}

static enum phase phase_of(const struct fuser *f, int node) {
    return f->graph->nodes.at[node].phase;
}

static bool calls_functions(const struct expr *e) {
    bool calls = e->kind == EXPR_CALL;
    for (int i = 0; i < e->nargs; i++) calls = calls || calls_functions(e->arg[i]);
    return calls;
}

static bool is_cheap(const struct fuser *f, const struct fusion *fusion) {
    bool calls = calls_functions(fusion->chain.value[0]);
    for (int i = 0; i < fusion->chain.nnamed; i++) calls = calls || calls_functions(fusion->chain.named[i]);
    return !calls || f->context->library_products; /* of the targets for GPUs */
}

/* True if the tensor may be computed for each of its readers (Note [Repeated values]). */
static bool repeats(const struct fuser *f, int tensor) {
    const int p = f->graph->tensors.at[tensor].producer;
    const struct fusion *fusion = f->fusions[p];
    if (fusion->ninputs != 1) return false;
    const size_t bytes = rt_dtype_bytes(type_of(f, tensor)), read = rt_dtype_bytes(type_of(f, fusion->inputs[0]));
    const bool widens = f->graph->nodes.at[p].op->id == OP_Cast && fusion->nodes == 1 && bytes > read;
    if (!widens && (bytes < read || f->last[fusion->inputs[0]] < f->last[tensor] || !is_cheap(f, fusion))) return false;
    for (int u = f->uses.first[tensor]; u < f->uses.first[tensor + 1]; u++) {
        const int reader = f->uses.users[u];
        if (!elementwise_joins_chain(f->graph, f->context, &f->graph->nodes.at[reader]) || !fit(f, reader, tensor) ||
            (widens && phase_of(f, reader) != phase_of(f, p)))
            return false;
    }
    return true;
}

/* True if the node may become a product that adds its other operand. */
static bool may_be_residual_sum(const struct fuser *f, const struct node *node) {
    if (!f->context->library_products || node->op->id != OP_Add) return false;
    EACH_VALUE(node->inputs, node->ninputs, k, const int tensor) {
        if (epilogue_product(f->graph, f->context, node, tensor) && !f->kept[tensor] &&
            f->uses.first[tensor + 1] - f->uses.first[tensor] == 1)
            return true;
    }
    return false;
}

/* True if the tensor may be the result of a product, which another product adds to its own. */
static bool is_between_products(const struct fuser *f, int tensor) {
    if (!may_be_residual_sum(f, &f->graph->nodes.at[f->graph->tensors.at[tensor].producer])) return false;
    for (int u = f->uses.first[tensor]; u < f->uses.first[tensor + 1]; u++)
        if (may_be_residual_sum(f, &f->graph->nodes.at[f->uses.users[u]])) return true;
    return false;
}

/* False for a tensor of 8-bit integers that its expression is converted to, other than exactly. */
static bool keeps_value(const struct fuser *f, int tensor) {
    const enum rt_dtype dtype = type_of(f, tensor);
    return (dtype != RT_I8 && dtype != RT_U8) ||
           expr_is_code(f->fusions[f->graph->tensors.at[tensor].producer]->chain.value[0], dtype, "");
}

/* The producer of the tensor if it can be fused into `reader`: the only node that reads the tensor, or one of several
 * that repeat it; else -1. */
static int takes(const struct fuser *f, int reader, int tensor) {
    const int p = f->graph->tensors.at[tensor].producer;
    if (p < 0 || !f->fusions[p] || f->kept[tensor] || f->apart[tensor] || !fit(f, reader, tensor) ||
        is_between_products(f, tensor) || !keeps_value(f, tensor))
        return -1;
    for (int u = f->uses.first[tensor]; u < f->uses.first[tensor + 1]; u++)
        if (f->uses.users[u] != reader) return repeats(f, tensor) ? p : -1;
    return phase_of(f, p) == phase_of(f, reader) ? p : -1;
}

/* Note [Apart]
 * A kernel finishes the sums of one product. Where an elementwise node joins two that are both rounded to 8 bits first,
 * as the sum of a residual connection does, the second product is finished by its own kernel: its sums of 32 bits are
 * not written. */
enum { MOST_STEPS = 16 /* elementwise nodes from a product to the node that joins it with another */ };

/* The producer of the tensor, if it may join a chain and the tensor has no other reader. */
static const struct node *sole_producer(const struct fuser *f, int tensor) {
    const struct node *node = graph_producer(f->graph, tensor);
    const bool sole = f->uses.first[tensor + 1] - f->uses.first[tensor] == 1;
    return node && sole && elementwise_joins_chain(f->graph, f->context, node) ? node : NULL;
}

static bool is_of_product(const struct fuser *f, const struct node *node, int steps) {
    for (int k = 0; k < node->ninputs; k++) {
        const struct node *before = sole_producer(f, node->inputs[k]);
        if (epilogue_product(f->graph, f->context, node, node->inputs[k])) return true;
        if (before && steps && is_of_product(f, before, steps - 1)) return true;
    }
    return false;
}

/* The rounded sums of a product from which `tensor` is computed; -1: none. */
static int rounded_product(const struct fuser *f, int tensor, int steps) {
    const struct node *node = sole_producer(f, tensor);
    int found = -1;
    if (!node || !steps) return -1;
    if (rt_dtype_bytes(type_of(f, tensor)) == 1) return is_of_product(f, node, steps) ? tensor : -1;
    for (int k = 0; k < node->ninputs && found < 0; k++) found = rounded_product(f, node->inputs[k], steps - 1);
    return found;
}

static void find_apart(struct fuser *f) {
    GRAPH_EACH(f->graph, i, const struct node *node) {
        bool others = false;
        if (!f->context->block_epilogues || node->ninputs < 2 || !elementwise_joins_chain(f->graph, f->context, node))
            continue;
        for (int k = 0; k < node->ninputs; k++) {
            const int rounded = rounded_product(f, node->inputs[k], MOST_STEPS);
            if (rounded >= 0 && others) f->apart[rounded] = true;
            others = others || rounded >= 0;
        }
    }
}

static bool reads(const struct fusion *fusion, int tensor) {
    for (int i = 0; i < fusion->ninputs; i++)
        if (fusion->inputs[i] == tensor) return true;
    return false;
}

static bool add_input(struct fusion *fusion, int tensor) {
    if (reads(fusion, tensor)) return true;
    if (fusion->ninputs == MAX_INPUTS) return false;
    fusion->inputs[fusion->ninputs++] = tensor;
    return true;
}

static const char *input_name(const struct fuser *f, int tensor) {
    return arena_printf(f->arena, "#%d", tensor);
}
/* Adds the inputs and named values of the producer's fusion to `fusion` and returns its value: a name if it is read
 * `times` > 1. NULL, and nothing is changed, if not enough room is left, `reserve` further inputs included. */
static const struct expr *take_in(const struct fuser *f, struct fusion *fusion, int producer, int times, int reserve) {
    const struct fusion *from = f->fusions[producer];
    struct fusion grown = *fusion;
    struct expr_renaming renaming = {.n = 0};
    if (grown.chain.nnamed + from->chain.nnamed + (times > 1) > MAX_NAMED ||
        expr_height(from->chain.value[0]) > MAX_HEIGHT)
        return NULL;
    for (int i = 0; i < from->ninputs; i++)
        if (!add_input(&grown, from->inputs[i])) return NULL;
    if (grown.ninputs + reserve > MAX_INPUTS) return NULL;
    expr_chain_append(f->arena, &grown.chain, &from->chain, &renaming);
    enum rt_dtype dtype = type_of(f, f->graph->nodes.at[producer].outputs[0]);
    const struct expr *value =
        elementwise_rounded(f->arena, dtype, expr_rename(f->arena, from->chain.value[0], &renaming));
    if (times > 1) {
        grown.chain.named[grown.chain.nnamed] = value;
        value = expr_variable(f->arena, grown.chain.nnamed++);
    }
    grown.nodes += from->nodes;
    *fusion = grown;
    return value;
}

/* True if the operands that are no scalar constants have as many dimensions as the node's result. Only then do
 * constants not take part in the broadcast, and may become numbers in the expression. */
static bool shape_is_kept(const struct fuser *f, int id) {
    const struct node *node = &f->graph->nodes.at[id];
    const int ndim = f->graph->tensors.at[node->outputs[0]].ndim;
    for (int k = 0; k < node->ninputs; k++)
        if (f->graph->tensors.at[node->inputs[k]].ndim == ndim && !elementwise_number(f->graph, node->inputs[k]))
            return true;
    return false;
}

/* The expression of one operand: a number, the value of a producer that is fused, or an input. NULL: no room for
 * one. */
static const struct expr *operand_expression(struct fuser *f, int id, struct fusion *fusion, int tensor, int times,
                                             int reserve) {
    const struct expr *number = elementwise_number(f->graph, tensor);
    if (number && shape_is_kept(f, id)) return number;
    int producer = takes(f, id, tensor);
    bool named_bool = times > 1 && type_of(f, tensor) == RT_BOOL; /* names have the float type of the fusion */
    if (producer >= 0 && !named_bool) {
        const struct expr *value = take_in(f, fusion, producer, times, reserve);
        if (value) f->root[producer] = id;
        if (value) return value;
    }
    return add_input(fusion, tensor) ? expr_name(f->arena, input_name(f, tensor)) : NULL;
}

/* A node that only some of its readers had room for remains. */
static void keep_read(struct fuser *f, int id) {
    if (f->root[id] == id) return;
    EACH_VALUE(f->graph->nodes.at[id].outputs, f->graph->nodes.at[id].noutputs, k, const int tensor) {
        for (int u = f->uses.first[tensor]; u < f->uses.first[tensor + 1]; u++)
            if (reads(f->fusions[f->uses.users[u]], tensor)) f->root[id] = id;
    }
}

static void make_fusion(struct fuser *f, int id) {
    const struct node *node = &f->graph->nodes.at[id];
    struct fusion *fusion = ARENA_NEW(f->arena, struct fusion);
    const struct expr *own = elementwise_expression(f->graph, node);
    struct expr_renaming renaming = {.n = 0};
    fusion->nodes = 1;
    for (int k = 0; k < node->ninputs; k++) {
        const char *name = elementwise_input_name(node, k);
        bool again = k > 0 && node->inputs[k] == node->inputs[k - 1];
        int times = elementwise_count_reads(own, name) +
                    (again || (k + 1 < node->ninputs && node->inputs[k + 1] == node->inputs[k]));
        renaming.names[renaming.n] = name;
        renaming.by[renaming.n] =
            again ? renaming.by[renaming.n - 1]
                  : operand_expression(f, id, fusion, node->inputs[k], times, node->ninputs - 1 - k);
        if (!renaming.by[renaming.n++]) BUG("an elementwise node with more than %d inputs", MAX_INPUTS);
    }
    fusion->chain.value[0] = expr_rename(f->arena, own, &renaming);
    fusion->chain.nvalues = 1;
    f->fusions[id] = fusion;
}

/* Note [One pass]
 * A value with several readers that are all in one fusion is computed in it too, as a named value. If it is also the
 * new value of a state, it becomes a further result of the fused node: so one loop updates the moments of an
 * optimizer and the parameter. */

static int root_of(const struct fuser *f, int node) {
    while (f->root[node] != node) node = f->root[node];
    return node;
}

/* True if the tensor is read in the fusion of node `id` alone: a reader that is repeated is in several. */
static bool is_read_within(const struct fuser *f, int id, int tensor) {
    if (f->within[tensor] == id) return true;
    for (int u = f->uses.first[tensor]; u < f->uses.first[tensor + 1]; u++) {
        const int reader = f->uses.users[u];
        if (!f->fusions[reader] || root_of(f, reader) != id) return false;
        if (reader != id && !is_read_within(f, id, f->graph->nodes.at[reader].outputs[0])) return false;
    }
    f->within[tensor] = id;
    return true;
}

/* The producer of the tensor, an input of the fusion of node `id`, if it can be fused because all readers of the tensor
 * are in that fusion; else -1. */
static int encloses(const struct fuser *f, int id, int tensor) {
    const struct tensor *t = &f->graph->tensors.at[tensor];
    const struct node *node = &f->graph->nodes.at[id];
    int p = t->producer;
    if (p < 0 || !f->fusions[p] || f->root[p] != p || t->dtype == RT_BOOL) return -1;
    if (f->kept[tensor] && (!f->updates[tensor] || t->dtype != type_of(f, node->outputs[0]))) return -1;
    if (f->apart[tensor] || is_between_products(f, tensor) || !is_read_within(f, id, tensor) || !keeps_value(f, tensor))
        return -1;
    bool alike = f->graph->nodes.at[p].stage == node->stage && f->graph->nodes.at[p].phase == node->phase &&
                 elementwise_compute_type(f->graph, &f->graph->nodes.at[p]) == elementwise_compute_type(f->graph, node);
    return alike && elementwise_same_shard(t, &f->graph->tensors.at[node->outputs[0]]) ? p : -1;
}

static void add_result(struct fusion *fusion, int tensor, int name) {
    fusion->results[fusion->nresults].tensor = tensor;
    fusion->results[fusion->nresults++].name = name;
}

/* Fuses the producer into node `id`: its named values and its value, under a name, come before those of node `id`.
 * False if there is no room for both. */
static bool put_before(struct fuser *f, int id, int producer, int tensor) {
    const struct fusion *tail = f->fusions[id], *head = f->fusions[producer];
    struct fusion *joined = ARENA_NEW(f->arena, struct fusion);
    struct expr_renaming renaming = {.n = 0};
    int nresults = head->nresults + f->updates[tensor] + tail->nresults;
    if (head->chain.nnamed + 1 + tail->chain.nnamed > MAX_NAMED || nresults >= MAX_RESULTS) return false;
    *joined = *head;
    joined->nodes += tail->nodes;
    if (f->updates[tensor]) add_result(joined, tensor, head->chain.nnamed);
    for (int i = 0; i < tail->nresults; i++)
        add_result(joined, tail->results[i].tensor, tail->results[i].name + head->chain.nnamed + 1);
    joined->chain.named[joined->chain.nnamed] = elementwise_rounded(f->arena, type_of(f, tensor), head->chain.value[0]);
    expr_replace(&renaming, input_name(f, tensor), expr_variable(f->arena, joined->chain.nnamed++));
    for (int i = 0; i < tail->ninputs; i++)
        if (tail->inputs[i] != tensor && !add_input(joined, tail->inputs[i])) return false;
    expr_chain_append(f->arena, &joined->chain, &tail->chain, &renaming);
    joined->chain.value[0] = expr_rename(f->arena, tail->chain.value[0], &renaming);
    f->fusions[id] = joined;
    f->root[producer] = id;
    return true;
}

static void enclose(struct fuser *f, int id) {
    for (int i = 0; i < f->fusions[id]->ninputs; i++) {
        int tensor = f->fusions[id]->inputs[i], producer = encloses(f, id, tensor);
        if (producer >= 0 && put_before(f, id, producer, tensor)) i = -1; /* the new inputs are candidates in turn */
    }
}

/* Renames the inputs to a, b, c .. in order. */
static struct expr_renaming letters_of(const struct fuser *f, const struct fusion *fusion) {
    struct expr_renaming renaming = {.n = 0};
    for (int i = 0; i < fusion->ninputs; i++)
        expr_replace(&renaming, input_name(f, fusion->inputs[i]), expr_letter(f->arena, i));
    return renaming;
}

/* Adds the Fused node that replaces node `id` in the order; the old node stays, because plans refer to it. Returns the
 * new node's id. */
static int fused_node(const struct fuser *f, int id, const struct fusion *fusion) {
    struct graph *graph = f->graph;
    struct node fused = graph->nodes.at[id];
    const char *type = rt_dtypes[type_of(f, fused.outputs[0])].name;
    const struct expr *value = elementwise_stored(type_of(f, fused.outputs[0]), fusion->chain.value[0]);
    struct expr_renaming letters = letters_of(f, fusion);
    struct expr_chain chain = {.nvalues = 1, .value = {expr_rename(f->arena, value, &letters)}};
    int outputs[MAX_RESULTS] = {fused.outputs[0]};
    for (int i = 0; i < fusion->chain.nnamed; i++)
        chain.named[chain.nnamed++] = expr_rename(f->arena, fusion->chain.named[i], &letters);
    for (int i = 0; i < fusion->nresults; i++) {
        outputs[chain.nvalues] = fusion->results[i].tensor;
        chain.value[chain.nvalues++] = expr_variable(f->arena, fusion->results[i].name);
    }
    const char *text = arena_strdup(graph->arena, expr_chain_format(f->arena, &chain));
    struct attr attrs[] = {attr_of_text("expr", text), attr_of_text("to", type)};
    fused.op = &ops[OP_Fused], fused.attrs = attrs, fused.nattrs = 2, fused.origin = -1;
    fused.inputs = (int *)fusion->inputs, fused.ninputs = fusion->ninputs;
    fused.outputs = outputs, fused.noutputs = chain.nvalues;
    const int added = graph_add_copy(graph, &fused);
    graph->order.n--; /* it takes the old one's place */
    return added;
}

/* Lists in graph->members the nodes of which each Fused node was made, in the order of execution. */
static void name_members(const struct fuser *f, const int *fused, const int *order, int n) {
    for (int i = 0; i < n; i++) {
        const int head = f->root[order[i]];
        if (!fused[head] || f->fusions[head]->nodes < 2) continue;
        VEC_PUSH(f->graph->arena, &f->graph->members, (struct member){fused[head], f->graph->nodes.at[order[i]].name});
    }
}

/* Places of the last readers, by the order of execution. */
static int *find_last(const struct fuser *f) {
    const struct graph *graph = f->graph;
    int *last = ARENA_ARRAY(f->arena, int, graph->tensors.n + 1);
    GRAPH_EACH(graph, i, const struct node *node) {
        for (int k = 0; k < node->ninputs; k++)
            if (node->inputs[k] >= 0) last[node->inputs[k]] = i;
    }
    for (int t = 0; t < graph->tensors.n; t++)
        if (f->kept[t] || graph->tensors.at[t].producer < 0) last[t] = INT_MAX;
    return last;
}

int pass_fuse_elementwise(struct graph *graph, const struct pass_context *context) {
    struct fuser f = {
        .graph = graph, .context = context, .arena = arena_scratch(graph->arena), .nnodes = graph->nodes.n};
    int n, most = context->library_products ? 2 : 1;
    f.uses = graph_uses(graph, f.arena);
    f.kept = graph_kept(graph, f.arena);
    f.last = find_last(&f);
    f.apart = ARENA_ARRAY(f.arena, bool, graph->tensors.n + 1);
    find_apart(&f);
    f.within = ARENA_ARRAY(f.arena, int, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) f.within[t] = -1;
    f.fusions = ARENA_ARRAY(f.arena, struct fusion *, graph->nodes.n + 1);
    f.root = ARENA_ARRAY(f.arena, int, graph->nodes.n + 1);
    int *fused = ARENA_ARRAY(f.arena, int, graph->nodes.n + 1);   /* per head: the node it became */
    bool *heads = ARENA_ARRAY(f.arena, bool, graph->nodes.n + 1); /* of chains that become nodes */
    for (int id = 0; id < graph->nodes.n; id++) f.root[id] = id;
    f.updates = ARENA_ARRAY(f.arena, bool, graph->tensors.n + 1);
    for (int i = 0; i < graph->updates.n; i++) f.updates[graph->updates.at[i].value] = true;
    for (int i = 0; i < graph->outputs.n; i++) f.updates[graph->outputs.at[i]] = false;
    for (int i = 0; i < graph->order.n; i++)
        if (elementwise_joins_chain(graph, context, &graph->nodes.at[graph->order.at[i]]))
            make_fusion(&f, graph->order.at[i]);
    for (int i = 0; i < graph->order.n; i++) keep_read(&f, graph->order.at[i]);
    for (int i = graph->order.n - 1; i >= 0; i--)
        if (f.fusions[graph->order.at[i]] && f.root[graph->order.at[i]] == graph->order.at[i])
            enclose(&f, graph->order.at[i]);
    VEC_EACH_VALUE(&graph->order, i, int id) {
        /* a node alone becomes Fused where fuse_epilogue, which takes only these, may want it */
        heads[id] = f.root[id] == id && f.fusions[id] &&
                    (f.fusions[id]->nodes > 1 || epilogue_follows(graph, context, &graph->nodes.at[id], most));
    }
    const int *order = graph_take_order(graph, &n);
    EACH_VALUE(order, n, i, const int id) {
        if (f.root[id] != id) continue;
        if (heads[id]) fused[id] = fused_node(&f, id, f.fusions[id]);
        VEC_PUSH(graph->arena, &graph->order, heads[id] ? fused[id] : id);
    }
    name_members(&f, fused, order, n);
    arena_release(graph->arena, f.arena);
    return 0;
}
