/* Nodes that become operators which the user declares (--ops, ir/user.h). */
#include "frontend/lower/lowering_state.h"
#include "ir/user.h"

/* Emits the operator with the node's inputs and attributes. */
int lower_user(struct lower *lower) {
    struct graph *graph = lower->builder.graph;
    const struct graph *declared = lower->shared->operators;
    struct user_op *user = lower->op->user;
    struct attr attrs[USER_ATTRS];
    struct user_attr attr;
    const char *why;
    int n = 0, outputs[USER_OUTPUTS];
    for (const char *rest = user->attrs; (rest = user_next_attr(rest, &attr, &why));) {
        const char *key = arena_strdup(graph->arena, attr.name);
        int length;
        if (!attr.fallback && !lower_given(lower, key)) continue;
        if (attr.kind == 'I') {
            const int64_t *ints = lower_ints(lower, key, &length);
            attrs[n++] = attr_of_ints(key, length, ints);
        } else {
            attrs[n++] = attr.kind == 'i' ? attr_of_int(key, lower_int(lower, key))
                                          : attr_of_float(key, lower_float(lower, key));
        }
    }
    graph_declare(graph, user, declared->operators.at, declared->operators.n);
    if (build_op(&lower->builder, &user->op, lower->ninputs, lower->inputs, user_outputs(user), outputs, n, attrs) < 0)
        return -1;
    for (int o = 0; o < lower->noutputs; o++) lower->outputs[o] = outputs[o];
    return 0;
}
