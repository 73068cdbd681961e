#include "passes/rewrite/row_program_build.h"

#include "ir/base/str.h"
#include "ir/op.h"
#include "passes/rewrite/elementwise.h"

enum { MAX_HEIGHT = EXPR_DEPTH / 2 }; /* of an expression without a name of its own */

/* Norms and softmax as row programs: a, b, c are the inputs, n is the extent of a row, e the attribute epsilon; `names`
 * counts the named values. */
static const struct norm {
    enum op_id op;
    const char *text;
    int ninputs, names;
} norms[] = {
    {OP_LayerNorm,
     "v0 = sum(a); v1 = v0 / n; v2 = a - v1; v3 = sum(v2 * v2); v4 = 1 / sqrt(v3 / n + e); v2 * v4 * b + c", 3, 5},
    {OP_LayerNorm, "v0 = sum(a); v1 = v0 / n; v2 = a - v1; v3 = sum(v2 * v2); v4 = 1 / sqrt(v3 / n + e); v2 * v4 * b",
     2, 5},
    {OP_RMSNorm, "v0 = sum(a * a); v1 = 1 / sqrt(v0 / n + e); a * v1 * b", 2, 2},
    {OP_Softmax, "v0 = max(a); v1 = exp(a - v0); v2 = sum(v1); v3 = 1 / v2; v1 * v3", 1, 4},
    {OP_LogSoftmax, "v0 = max(a); v1 = sum(exp(a - v0)); v2 = log(v1); a - v0 - v2", 1, 3},
};

static int given_inputs(const struct node *node) {
    int n = node->ninputs;
    while (n > 0 && node->inputs[n - 1] < 0) n--;
    return n;
}

static const struct norm *norm_of(const struct node *node) {
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        if (norms[i].op == node->op->id && norms[i].ninputs == given_inputs(node)) return &norms[i];
    return NULL;
}

bool row_is_norm(const struct node *node) {
    return norm_of(node) != NULL;
}

struct maker {
    struct graph *graph;
    const struct row_members *members;
    const struct expr *value[ROW_MEMBERS]; /* per member */
    int ninputs, inputs[EXPR_INPUTS];
    struct expr_chain chain;
};

static const struct node *member(const struct maker *m, int i) {
    return &m->graph->nodes.at[m->members->node[i]];
}

/* The index of the member that computes the tensor; -1 if none does. */
static int maker_of(const struct graph *graph, const struct row_members *members, int tensor) {
    for (int i = 0; i < members->n; i++)
        if (graph->tensors.at[tensor].producer == members->node[i]) return i;
    return -1;
}

int row_names(const struct graph *graph, const struct row_members *members) {
    int names = 0;
    for (int i = 0; i < members->n; i++) {
        const struct norm *norm = norm_of(&graph->nodes.at[members->node[i]]);
        names += 1 + (norm ? norm->names : 0);
    }
    return names;
}

/* Adds the tensor to the n inputs unless a member computes it, it is a number, or they contain it. Returns the new
 * number of inputs. */
static int add_input(const struct graph *graph, const struct row_members *members, int tensor, int *inputs, int n) {
    if (maker_of(graph, members, tensor) >= 0 || elementwise_number(graph, tensor)) return n;
    for (int at = 0; at < n && at < EXPR_INPUTS; at++)
        if (inputs[at] == tensor) return n;
    if (n < EXPR_INPUTS) inputs[n] = tensor;
    return n <= EXPR_INPUTS ? n + 1 : n;
}

int row_inputs(const struct graph *graph, const struct row_members *members, int inputs[EXPR_INPUTS]) {
    int n = 0;
    for (int i = 0; i < members->n; i++) {
        const struct node *node = &graph->nodes.at[members->node[i]];
        for (int k = 0; k < given_inputs(node); k++) n = add_input(graph, members, node->inputs[k], inputs, n);
    }
    for (int i = 0; i < members->nresults; i++) n = add_input(graph, members, members->result[i], inputs, n);
    return n;
}

static const struct expr *operand(const struct maker *m, int tensor) {
    const struct expr *constant = elementwise_number(m->graph, tensor);
    int maker = maker_of(m->graph, m->members, tensor);
    if (constant || maker >= 0) return constant ? constant : m->value[maker];
    for (int i = 0; i < m->ninputs; i++)
        if (m->inputs[i] == tensor) return expr_letter(m->graph->arena, i);
    BUG("a row program reads tensor %d, which is not among its inputs", tensor);
}

static const struct expr *name(struct maker *m, const struct expr *value) {
    if (value->kind == EXPR_NAME || value->kind == EXPR_NUMBER) return value;
    if (m->chain.nnamed == EXPR_NAMED) BUG("a row program of more than %d names", EXPR_NAMED);
    m->chain.named[m->chain.nnamed] = value;
    return expr_variable(m->graph->arena, m->chain.nnamed++);
}

static const struct expr *elementwise(const struct maker *m, const struct node *node) {
    struct expr_renaming renaming = {.n = 0};
    for (int k = 0; k < node->ninputs; k++)
        expr_replace(&renaming, elementwise_input_name(node, k), operand(m, node->inputs[k]));
    return expr_rename(m->graph->arena, elementwise_expression(m->graph, node), &renaming);
}

/* The expression of a norm's text, whose named values get the next names of the program. */
static const struct expr *normalised(struct maker *m, const struct node *node, const struct norm *norm) {
    struct arena *arena = m->graph->arena;
    const struct tensor *x = &m->graph->tensors.at[node->inputs[0]];
    const struct expr_chain *chain = expr_parse_folds(arena, norm->text, EXPR_INPUTS);
    struct expr_renaming renaming = {.n = 0};
    for (int k = 0; k < norm->ninputs; k++)
        expr_replace(&renaming, expr_letter(arena, k)->name, operand(m, node->inputs[k]));
    expr_replace(&renaming, "n", expr_number(arena, (double)x->dims[x->ndim - 1]));
    expr_replace(&renaming, "e", expr_number(arena, attr_float(node, "epsilon", 1e-5)));
    for (int i = 0; i < chain->nnamed; i++)
        expr_replace(&renaming, expr_variable(arena, i)->name, name(m, expr_rename(arena, chain->named[i], &renaming)));
    return expr_rename(arena, chain->value[0], &renaming);
}

static const struct expr *value_of(struct maker *m, const struct node *node) {
    const struct norm *norm = norm_of(node);
    if (norm) return normalised(m, node, norm);
    if (!node->op->fold) return elementwise(m, node);
    return name(m, expr_call(m->graph->arena, node->op->fold, operand(m, node->inputs[0])));
}

/* How often the member reads its input k. */
static int reads_of(const struct maker *m, const struct node *node, int k) {
    if (norm_of(node)) return k == 0 ? 2 : 1;
    return node->op->expr
               ? elementwise_count_reads(elementwise_expression(m->graph, node), elementwise_input_name(node, k))
               : 1;
}

/* How often members read the tensor, and whether it is a result. */
static int reads_in_all(const struct maker *m, int tensor) {
    int reads = 0;
    for (int i = 0; i < m->members->n; i++)
        for (int k = 0; k < given_inputs(member(m, i)); k++)
            if (member(m, i)->inputs[k] == tensor) reads += reads_of(m, member(m, i), k);
    for (int i = 0; i < m->members->nresults; i++) reads += m->members->result[i] == tensor;
    return reads;
}

static bool is_of_rows(const struct maker *m, int tensor) {
    const struct tensor *t = &m->graph->tensors.at[tensor];
    return t->ndim && t->dims[t->ndim - 1] == 1;
}

/* True if the tensor has one value per row, and members that compute every element of the row read it: it is computed
 * once per row, under a name. */
static bool is_for_elements(const struct maker *m, int tensor) {
    bool read = false;
    for (int i = 0; i < m->members->n && is_of_rows(m, tensor); i++)
        for (int k = 0; k < given_inputs(member(m, i)); k++)
            read = read || (member(m, i)->inputs[k] == tensor && !is_of_rows(m, member(m, i)->outputs[0]));
    return read;
}

static void make(struct maker *m, int i) {
    const int tensor = member(m, i)->outputs[0];
    const enum rt_dtype dtype = m->graph->tensors.at[tensor].dtype;
    const struct expr *value = elementwise_rounded(m->graph->arena, dtype, value_of(m, member(m, i)));
    bool named = reads_in_all(m, tensor) > 1 || is_for_elements(m, tensor) || expr_height(value) > MAX_HEIGHT;
    m->value[i] = named ? name(m, value) : value;
}

static const char *text_of(struct maker *m) {
    for (int i = 0; i < m->members->nresults; i++) {
        enum rt_dtype dtype = m->graph->tensors.at[m->members->output[i]].dtype;
        m->chain.value[m->chain.nvalues++] = elementwise_stored(dtype, operand(m, m->members->result[i]));
    }
    return expr_chain_format(m->graph->arena, &m->chain);
}

static const char *types_of(const struct maker *m) {
    struct strbuf text = {.arena = m->graph->arena};
    for (int i = 0; i < m->members->nresults; i++)
        strbuf_printf(&text, "%s%s", i ? " " : "", rt_dtypes[m->graph->tensors.at[m->members->output[i]].dtype].name);
    return strbuf_text(&text);
}

int row_program_add(struct graph *graph, enum op_id op, const struct row_members *members, const struct node *like) {
    struct maker m = {.graph = graph, .members = members};
    const struct node place = *like;
    m.ninputs = row_inputs(graph, members, m.inputs);
    for (int i = 0; i < members->n; i++) make(&m, i);
    struct attr attrs[] = {attr_of_text("expr", text_of(&m)), attr_of_text("to", types_of(&m))};
    int made =
        graph_add_node(graph, &ops[op], place.name, m.ninputs, m.inputs, members->nresults, members->output, 2, attrs);
    graph->nodes.at[made].stage = place.stage;
    graph->nodes.at[made].phase = place.phase;
    return made;
}
