#include "ir/expr/row_program.h"

#include <stdlib.h>

#include "ir/op.h"

int rows_shape(int operands, const int *ndim, const int64_t *const *dims, int64_t shape[RT_MAX_NDIM]) {
    int most = 0;
    for (int k = 0; k < operands; k++)
        if (ndim[k] > most) most = ndim[k];
    for (int d = 0; d < most; d++) shape[d] = 1;
    for (int k = 0; k < operands; k++)
        for (int d = 0; d < ndim[k]; d++) {
            int64_t *extent = &shape[d + most - ndim[k]];
            if (dims[k][d] != 1 && *extent != 1 && dims[k][d] != *extent) return -1;
            if (dims[k][d] != 1) *extent = dims[k][d];
        }
    return most;
}

struct reader {
    const struct graph *graph;
    const struct node *node;
    struct row_program *program;
};

static bool input_varies(const struct reader *r, int k) {
    const struct tensor *t = &r->graph->tensors.at[r->node->inputs[k]];
    return t->ndim && t->dims[t->ndim - 1] != 1;
}

/* Sets `varies`, and `phase` to the first phase in which all values that the expression reads are known. */
static void classify(const struct reader *r, const struct expr *e, struct row_value *value) {
    for (int i = 0; i < e->nargs; i++) classify(r, e->arg[i], value);
    if (e->kind != EXPR_NAME) return;
    const struct row_value *named = e->name[1] ? &r->program->named[atoi(e->name + 1)] : NULL;
    const int known = !named ? 0 : named->fold ? named->phase + 1 : named->phase;
    value->varies = value->varies || (named ? named->varies : input_varies(r, *e->name - 'a'));
    if (known > value->phase) value->phase = known;
}

static struct row_value value_of(const struct reader *r, const struct expr *e) {
    struct row_value value = {.expr = e};
    if (expr_is_fold(e)) value.fold = e->name, value.expr = e->arg[0];
    classify(r, value.expr, &value);
    if (value.fold) value.varies = false;
    if ((value.fold || value.varies) && value.phase >= r->program->passes) r->program->passes = value.phase + 1;
    return value;
}

bool rows_read(const struct graph *graph, const struct node *node, struct row_program *out) {
    const struct reader r = {graph, node, out};
    if (node->ninputs < 1 || node->ninputs > EXPR_INPUTS) return false;
    const bool rows = node->op->id == OP_Rows;
    const char *text = attr_text(node, "expr", "");
    const struct expr_chain *chain = expr_texts_chain(graph->texts, text, node->ninputs, rows);
    *out = (struct row_program){.passes = 0};
    if (!chain || chain->nvalues != node->noutputs) return false;
    for (; out->nnamed < chain->nnamed; out->nnamed++)
        out->named[out->nnamed] = value_of(&r, chain->named[out->nnamed]);
    for (; out->nvalues < chain->nvalues; out->nvalues++)
        out->value[out->nvalues] = value_of(&r, chain->value[out->nvalues]);
    return true;
}
