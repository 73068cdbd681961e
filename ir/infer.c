#include "ir/op.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "ir/dims.h"

enum { OPEN_NOTED = 64 /* extents that a result's is compared with */ };

/* Number of inputs in column `types` of the operator's row. */
static void count_inputs(const struct op *op, int *least, int *most) {
    *least = *most = 0;
    for (const char *letter = op->types; *letter != '-'; letter++) {
        if (*letter == '?')
            --*least;
        else if (*letter == '*')
            *most = INT_MAX;
        else
            ++*least, ++*most;
    }
}

static int refuse_count(const struct graph *graph, int node, struct diags *diags, const char *takes, int count,
                        const char *what, int given) {
    return diag_error(diags, 331, EXIT_MALFORMED, node_place(graph, node), "%s %s %d %s(s), but %d given",
                      graph->nodes.at[node].op->name, takes, count, what, given);
}

/* Checks that the node has as many operands as the row declares. dims_fn hooks rely on that. */
static int check_operands(const struct graph *graph, int id, struct diags *diags) {
    const struct node *node = &graph->nodes.at[id];
    const char *letters = strchr(node->op->types, '>') + 1;
    int least, most, results = (int)strcspn(letters, "*");
    count_inputs(node->op, &least, &most);
    if (node->ninputs < least) return refuse_count(graph, id, diags, "takes at least", least, "input", node->ninputs);
    if (node->ninputs > most) return refuse_count(graph, id, diags, "takes at most", most, "input", node->ninputs);
    if (letters[results] ? node->noutputs < results : node->noutputs != results)
        return refuse_count(graph, id, diags, "has", results, "output", node->noutputs);
    for (int i = 0; i < node->ninputs; i++)
        if (node->inputs[i] < 0 && op_input_letter(node->op, i)[1] != '?')
            return diag_error(diags, 331, EXIT_MALFORMED, node_place(graph, id), "required input %d is omitted", i);
    return 0;
}

static bool is_number_attr(const struct node *node, const char *name) {
    const struct attr *attr = attr_find(node, name);
    return attr && (attr->kind == ATTR_INT || attr->kind == ATTR_FLOAT);
}

/* Copies a word of a text, cut to the room there is. Not by snprintf: operators are checked for every node. */
static void copy_word(char *to, size_t room, const char *word, size_t length) {
    const size_t n = length < room ? length : room - 1;
    memcpy(to, word, n);
    to[n] = 0;
}

/* Checks that every name in the row's expression is an input, a function or a numeric attribute of the node. */
static int check_names(const struct graph *graph, int id, struct diags *diags) {
    const struct node *node = &graph->nodes.at[id];
    char name[32];
    for (const char *at = node->op->expr; at && *at;) {
        size_t length = 0;
        while (isalnum((unsigned char)at[length]) || at[length] == '_') length++;
        copy_word(name, sizeof name, at, length);
        bool is_input = length == 1 && strchr("xabc", *name),
             is_name = isalpha((unsigned char)*name) && at[length] != '(';
        if (is_name && !is_input && !is_number_attr(node, name))
            return diag_error(diags, 331, EXIT_MALFORMED, node_place(graph, id), "needs attribute '%s', a number",
                              name);
        at += length ? length : 1;
    }
    return 0;
}

/* The letter of output `o` in column `types`; the last letter holds for all further outputs. */
static char result_letter(const struct op *op, int o) {
    const char *letters = strchr(op->types, '>') + 1;
    for (; o > 0 && letters[1] && letters[1] != '*'; o--) letters++;
    return *letters;
}

/* The type of output `o` according to attribute "to", which lists the types of the outputs; the last one holds for all
 * further outputs. Without the attribute it is `other`. */
static enum rt_dtype named_type(const struct node *node, int o, const char *other) {
    const char *word = attr_text(node, "to", other);
    char name[16];
    for (; o > 0 && strchr(word, ' '); o--) word = strchr(word, ' ') + 1;
    copy_word(name, sizeof name, word, strcspn(word, " "));
    return rt_dtype_by_name(name);
}

/* Checks the types of the inputs against the row's letters and returns the type of output `o`; RT_DTYPE_NONE, and the
 * input in *bad, if one does not match. */
static enum rt_dtype result_type(const struct graph *graph, const struct node *node, int o, int *bad) {
    enum rt_dtype bound = RT_DTYPE_NONE;
    for (int i = 0; i < node->ninputs; i++) {
        const char letter = *op_input_letter(node->op, i);
        if (node->inputs[i] < 0 || op_type_fits(letter, graph->tensors.at[node->inputs[i]].dtype, &bound)) continue;
        *bad = i;
        return RT_DTYPE_NONE;
    }
    char result = result_letter(node->op, o);
    const enum rt_dtype only = op_letter_type(result);
    if (only != RT_DTYPE_NONE) return only;
    if (result == 'w') return op_summed_in(bound);
    if (result == 'e') return named_type(node, o, "i32");
    return result == '@' ? named_type(node, o, "f32") : bound;
}

/* Finds out how the extents of a result follow from those of the operands (ir/open.h). */
static void note_extents(const struct graph *graph, const struct node *node, const struct tensor *result) {
    int64_t from[OPEN_NOTED];
    for (int d = 0; d < result->ndim; d++) {
        int n = 0;
        for (int k = 0; k < node->ninputs; k++) {
            const struct tensor *in = node->inputs[k] < 0 ? NULL : &graph->tensors.at[node->inputs[k]];
            const int from_dim = in ? d + in->ndim - result->ndim : -1;
            if (from_dim >= 0 && n < OPEN_NOTED) from[n++] = in->dims[from_dim];
        }
        open_note(graph->open, result->dims[d], n, from);
    }
}

static int set_output(const struct graph *graph, const struct dims *dims, int operand, struct tensor *tensor) {
    tensor->ndim = dims->operand[operand].ndim;
    for (int d = 0; d < tensor->ndim; d++) tensor->dims[d] = dims_extent(dims, operand, d);
    return graph_shape_fits(graph, tensor->ndim, tensor->dims) ? 0 : -1;
}

int op_infer(struct graph *graph, int id, struct diags *diags) {
    struct node *node = &graph->nodes.at[id];
    struct dims dims;
    const char *why;
    int bad = -1;
    if (check_operands(graph, id, diags) < 0 || check_names(graph, id, diags) < 0) return -1;
    if (dims_bind(graph->arena, graph, node, &dims, &why) < 0)
        return diag_error(diags, 378, EXIT_MALFORMED, node_place(graph, id), "shapes do not fit: %s", why);
    enum rt_dtype dtype = result_type(graph, node, 0, &bad);
    if (bad >= 0)
        return diag_error(diags, 379, EXIT_MALFORMED, node_place(graph, id), "input %d has type %s", bad,
                          rt_dtypes[graph->tensors.at[node->inputs[bad]].dtype].name);
    if (dtype == RT_DTYPE_NONE)
        return diag_error(diags, 379, EXIT_MALFORMED, node_place(graph, id), "'to' is not a data type");
    for (int i = 0; i < node->noutputs; i++) {
        if (node->outputs[i] < 0) continue;
        struct tensor *tensor = &graph->tensors.at[node->outputs[i]];
        tensor->dtype = result_type(graph, node, i, &bad);
        if (tensor->dtype == RT_DTYPE_NONE)
            return diag_error(diags, 379, EXIT_MALFORMED, node_place(graph, id), "'to' is not a data type");
        if (set_output(graph, &dims, dims.ninputs + i, tensor) < 0)
            return diag_error(diags, 505, EXIT_LIMIT, node_place(graph, id), "the result is too large");
        if (graph->open) note_extents(graph, node, tensor);
    }
    return 0;
}
