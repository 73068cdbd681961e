#include "frontend/read/onnx_check.h"

#include <string.h>

#include "ir/base/str.h"

/* The model's functions and the calls between them. */
struct functions {
    struct check *check;
    Onnx__FunctionProto **all;
    int n;
    struct map index;  /* domain NUL name NUL overload -> number */
    struct strbuf key; /* the latest key */
    VEC(struct check_call) calls;
    int *first;         /* by callee: its calls */
    int *waits;         /* calls of a function whose callee has no size yet */
    int *callee;        /* of a function without a size: one that it calls and that has none */
    int64_t *size;      /* nodes after expansion, at most ONNX_NODES + 1 */
    int64_t main_nodes; /* the same of the main graph */
};

static void add_nodes(int64_t *sum, int64_t more) {
    *sum += more;
    if (*sum > ONNX_NODES) *sum = ONNX_NODES + 1;
}

static void make_key(struct functions *functions, const char *domain, const char *name, const char *overload) {
    const char *parts[] = {onnx_domain(domain), onnx_text(name), onnx_text(overload)};
    functions->key.length = 0;
    for (int i = 0; i < 3; i++) strbuf_add(&functions->key, parts[i], strlen(parts[i]) + 1);
}

static const char *function_text(struct functions *functions, int function) {
    const Onnx__FunctionProto *proto = functions->all[function];
    const char *domain = onnx_domain(proto->domain);
    const char *name =
        arena_printf(functions->check->scratch, "%s%s%s", domain, *domain ? "::" : "", onnx_text(proto->name));
    return str_escape(functions->check->model->arena, name, strlen(name), 120);
}

static struct onnx_place function_place(struct functions *functions, int function) {
    return (struct onnx_place){.what = "function", .name = onnx_text(functions->all[function]->name)};
}

static void name_functions(struct functions *functions) {
    map_init(&functions->index, functions->check->scratch);
    strbuf_init(&functions->key, functions->check->scratch);
    for (int i = 0; i < functions->n; i++) {
        struct onnx_place place = function_place(functions, i);
        if (!*onnx_text(functions->all[i]->name))
            CHECK_FAIL(functions->check, 328, &place, "function #%d has no name", i);
        make_key(functions, functions->all[i]->domain, functions->all[i]->name, functions->all[i]->overload);
        if (map_get(&functions->index, functions->key.text, functions->key.length) < 0)
            map_put(&functions->index, functions->key.text, functions->key.length, i);
        else
            CHECK_FAIL(functions->check, 328, &place, "function %s is defined twice", function_text(functions, i));
        check_attributes(functions->check, functions->all[i]->attribute_proto, functions->all[i]->n_attribute_proto,
                         &place, true);
    }
}

/* Adds the nodes of a scope to the size of the enclosing function or main graph and records its calls of functions. */
static void collect_calls(struct functions *functions, const struct check_scope *scope) {
    add_nodes(scope->root < 0 ? &functions->main_nodes : &functions->size[scope->root], scope->nnodes);
    for (int i = 0; i < scope->nnodes; i++) {
        const Onnx__NodeProto *node = scope->nodes[i];
        make_key(functions, node->domain, node->op_type, node->overload);
        int callee = map_get(&functions->index, functions->key.text, functions->key.length);
        if (callee < 0) continue;
        VEC_PUSH(functions->check->scratch, &functions->calls,
                 (struct check_call){scope->root, callee, functions->first[callee]});
        functions->first[callee] = functions->calls.n - 1;
        if (scope->root >= 0) functions->waits[scope->root]++;
    }
}

/* Computes expanded sizes in topological order, callees first. Returns the number of functions that have a size: fewer
 * than all if functions are recursive. */
static int expand(struct functions *functions) {
    int *queue = ARENA_ARRAY(functions->check->scratch, int, functions->n), done = 0, n = 0;
    for (int i = 0; i < functions->n; i++)
        if (!functions->waits[i]) queue[n++] = i;
    for (; done < n; done++)
        for (int c = functions->first[queue[done]]; c >= 0; c = functions->calls.at[c].next) {
            int caller = functions->calls.at[c].caller;
            add_nodes(caller < 0 ? &functions->main_nodes : &functions->size[caller], functions->size[queue[done]]);
            if (caller >= 0 && !--functions->waits[caller]) queue[n++] = caller;
        }
    return n;
}

static void report_recursion(struct functions *functions) {
    for (int c = 0; c < functions->calls.n; c++) {
        const struct check_call *call = &functions->calls.at[c];
        if (call->caller >= 0 && functions->waits[call->caller] && functions->waits[call->callee])
            functions->callee[call->caller] = call->callee;
    }
    int at = 0;
    while (!functions->waits[at]) at++;
    for (; functions->waits[at] > 0; at = functions->callee[at]) functions->waits[at] = -1; /* visited */
    struct onnx_place place = function_place(functions, at);
    if (functions->callee[at] == at)
        CHECK_FAIL(functions->check, 327, &place, "function %s calls itself", function_text(functions, at));
    else
        CHECK_FAIL(functions->check, 327, &place, "function %s calls itself through %s", function_text(functions, at),
                   function_text(functions, functions->callee[at]));
}

void check_functions(struct check *check) {
    const Onnx__ModelProto *proto = check->model->proto;
    struct functions functions = {.check = check, .all = proto->functions, .n = (int)proto->n_functions};
    if (!functions.n) return;
    functions.first = ARENA_ARRAY(check->scratch, int, functions.n);
    functions.waits = ARENA_ARRAY(check->scratch, int, functions.n);
    functions.callee = ARENA_ARRAY(check->scratch, int, functions.n);
    functions.size = ARENA_ARRAY(check->scratch, int64_t, functions.n);
    for (int i = 0; i < functions.n; i++) functions.first[i] = -1;
    name_functions(&functions);
    for (int i = 0; i < check->scopes.n; i++) collect_calls(&functions, &check->scopes.at[i]);
    struct onnx_place place = {.text = check->model->place};
    if (expand(&functions) < functions.n)
        report_recursion(&functions);
    else if (functions.main_nodes > ONNX_NODES)
        CHECK_FAIL(check, 504, &place, "expansion of functions exceeds %d nodes", ONNX_NODES);
}
