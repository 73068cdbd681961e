/* Nodes that become operators which the user declares (--ops, ir/user.h). A declaration is one more row of the table of
 * ONNX operators; it takes precedence over rows of the same name and over functions of the model. */
#include "frontend/import/import_state.h"

#include "ir/user.h"

/* Operators with a pattern are declared in the graph, for pass recognise, whether nodes have them or not. */
void import_index_user(struct import *import) {
    const struct graph *declared = import->options->operators;
    map_init(&import->user_index, import->arena);
    if (!declared) return;
    import->user_rows = ARENA_ARRAY(import->arena, struct onnx_op, declared->operators.n + 1);
    for (int i = 0; i < declared->operators.n; i++) {
        struct user_op *user = declared->operators.at[i];
        import->user_rows[i] = (struct onnx_op){.domain = "",
                                                .name = user->op.name,
                                                .since = 1,
                                                .in_min = user_required(user),
                                                .in_max = user_inputs(user),
                                                .out_max = user_outputs(user),
                                                .attrs = user->attrs,
                                                .lower = lower_user,
                                                .user = user};
        map_put(&import->user_index, user->model, strlen(user->model), i);
        if (user->pattern) graph_declare(import->graph, user, declared->operators.at, declared->operators.n);
    }
}

const struct onnx_op *import_find_user(const struct import *import, const char *domain, const char *type) {
    if (!import->user_index.n) return NULL;
    const char *name = arena_printf(import->arena, "%s::%s", domain, type);
    int at = map_get(&import->user_index, name, strlen(name));
    return at < 0 ? NULL : &import->user_rows[at];
}
