/* Subgraphs that become operators of the user, by property `pattern` of their declarations (ir/user.h). */
#include <string.h>

#include "ir/dims.h"
#include "ir/user.h"
#include "passes/rewrite/recognise.h"

/* Attributes: numbers of the match, else the declaration's defaults. */
static void take_attributes(struct recognition *recognition, const struct user_op *user) {
    const struct match *match = recognition->match;
    struct attr given[MATCH_NAMES];
    struct node numbers = {.attrs = given};
    int n;
    for (int i = 0; i < match->nnames; i++)
        if (match->name[i].tensor < 0)
            given[numbers.nattrs++] = attr_of_float(match->name[i].name, match->name[i].number);
    const struct attr *attrs = user_attrs(user, &numbers, recognition->builder.graph->arena, &n);
    for (int i = 0; i < n; i++) recognition_attr(recognition, attrs[i]);
}

/* False if an input that is needed is not part of the alternative that matched. */
static bool take_inputs(struct recognition *recognition, const struct user_op *user) {
    const struct match *match = recognition->match;
    for (int i = 0; i < user_inputs(user); i++) recognition->inputs[i] = -1;
    for (int i = 0; i < match->nnames; i++) {
        const int input = user_pattern_input(user, match->name[i].name);
        if (input >= 0) recognition->inputs[input] = match->name[i].tensor;
    }
    recognition->ninputs = user_inputs(user);
    while (recognition->ninputs > 0 && recognition->inputs[recognition->ninputs - 1] < 0) recognition->ninputs--;
    for (int i = 0; i < user_required(user); i++)
        if (recognition->inputs[i] < 0) return false;
    return true;
}

/* The operator takes the types of the operands, and gives the type of the result. */
static bool fits_types(const struct recognition *recognition, const struct op *op) {
    const struct tensor *all = recognition->builder.graph->tensors.at;
    enum rt_dtype bound = RT_DTYPE_NONE;
    for (int i = 0; i < recognition->ninputs; i++)
        if (recognition->inputs[i] >= 0 &&
            !op_type_fits(*op_input_letter(op, i), all[recognition->inputs[i]].dtype, &bound))
            return false;
    if (!op_type_fits(strchr(op->types, '>')[1], recognition_result(recognition)->dtype, &bound)) return false;
    const enum rt_dtype typed = all[recognition->inputs[op_typed_input(op)]].dtype;
    return op_has_kernel(op, rt_dtypes[typed].kind == RT_KIND_HALF && !op->halves ? RT_F32 : typed);
}

/* The result has the shape of the root's. */
static bool fits_shape(const struct recognition *recognition, const struct op *op) {
    const struct graph *graph = recognition->builder.graph;
    struct node node = graph->nodes.at[recognition->root];
    struct dims dims;
    const char *why;
    node.op = op;
    node.ninputs = recognition->ninputs;
    node.inputs = (int *)recognition->inputs;
    node.nattrs = recognition->nattrs;
    node.attrs = (struct attr *)recognition->attrs;
    return dims_bind(graph->arena, graph, &node, &dims, &why) == 0 &&
           dims_fits(&dims, dims.ninputs, recognition_result(recognition));
}

bool fit_user(struct recognition *recognition, const struct user_op *user) {
    if (!take_inputs(recognition, user)) return false;
    take_attributes(recognition, user);
    return fits_types(recognition, &user->op) && fits_shape(recognition, &user->op);
}
