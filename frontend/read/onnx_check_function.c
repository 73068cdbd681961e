#include "frontend/read/onnx_check.h"

#include <string.h>

#include "ir/base/str.h"

/* Functions by name, and who calls whom. */
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

static void make_key(struct functions *f, const char *domain, const char *name, const char *overload) {
    const char *parts[] = {onnx_domain(domain), onnx_text(name), onnx_text(overload)};
    f->key.length = 0;
    for (int i = 0; i < 3; i++) strbuf_add(&f->key, parts[i], strlen(parts[i]) + 1);
}

static const char *function_text(struct functions *f, int function) {
    const Onnx__FunctionProto *proto = f->all[function];
    const char *domain = onnx_domain(proto->domain);
    const char *name = arena_printf(f->check->scratch, "%s%s%s", domain, *domain ? "::" : "", onnx_text(proto->name));
    return str_escape(f->check->model->arena, name, strlen(name), 120);
}

static struct onnx_place function_place(struct functions *f, int function) {
    return (struct onnx_place){.what = "function", .name = onnx_text(f->all[function]->name)};
}

static void name_functions(struct functions *f) {
    map_init(&f->index, f->check->scratch);
    strbuf_init(&f->key, f->check->scratch);
    for (int i = 0; i < f->n; i++) {
        struct onnx_place place = function_place(f, i);
        if (!*onnx_text(f->all[i]->name))
            CHECK_FAIL(f->check, 328, EXIT_MALFORMED, &place, "function #%d has no name", i);
        make_key(f, f->all[i]->domain, f->all[i]->name, f->all[i]->overload);
        if (map_get(&f->index, f->key.text, f->key.length) < 0)
            map_put(&f->index, f->key.text, f->key.length, i);
        else
            CHECK_FAIL(f->check, 328, EXIT_MALFORMED, &place, "function %s is defined twice", function_text(f, i));
        check_attributes(f->check, f->all[i]->attribute_proto, f->all[i]->n_attribute_proto, &place, true);
    }
}

/* Counts the nodes of a scope to the function, or main graph, that it is part of, and notes what they call. */
static void collect_calls(struct functions *f, const struct check_scope *scope) {
    add_nodes(scope->root < 0 ? &f->main_nodes : &f->size[scope->root], scope->nnodes);
    for (int i = 0; i < scope->nnodes; i++) {
        const Onnx__NodeProto *node = scope->nodes[i];
        make_key(f, node->domain, node->op_type, node->overload);
        int callee = map_get(&f->index, f->key.text, f->key.length);
        if (callee < 0) continue;
        VEC_PUSH(f->check->scratch, &f->calls, (struct check_call){scope->root, callee, f->first[callee]});
        f->first[callee] = f->calls.n - 1;
        if (scope->root >= 0) f->waits[scope->root]++;
    }
}

/* Sizes of functions, those first that call none; returns how many have one. */
static int expand(struct functions *f) {
    int *queue = ARENA_ARRAY(f->check->scratch, int, f->n), done = 0, n = 0;
    for (int i = 0; i < f->n; i++)
        if (!f->waits[i]) queue[n++] = i;
    for (; done < n; done++)
        for (int c = f->first[queue[done]]; c >= 0; c = f->calls.at[c].next) {
            int caller = f->calls.at[c].caller;
            add_nodes(caller < 0 ? &f->main_nodes : &f->size[caller], f->size[queue[done]]);
            if (caller >= 0 && !--f->waits[caller]) queue[n++] = caller;
        }
    return n;
}

static void report_recursion(struct functions *f) {
    for (int c = 0; c < f->calls.n; c++) {
        const struct check_call *call = &f->calls.at[c];
        if (call->caller >= 0 && f->waits[call->caller] && f->waits[call->callee])
            f->callee[call->caller] = call->callee;
    }
    int at = 0;
    while (!f->waits[at]) at++;
    for (; f->waits[at] > 0; at = f->callee[at]) f->waits[at] = -1; /* been here */
    struct onnx_place place = function_place(f, at);
    if (f->callee[at] == at)
        CHECK_FAIL(f->check, 327, EXIT_MALFORMED, &place, "function %s calls itself", function_text(f, at));
    else
        CHECK_FAIL(f->check, 327, EXIT_MALFORMED, &place, "function %s calls itself through %s", function_text(f, at),
                   function_text(f, f->callee[at]));
}

void check_functions(struct check *check) {
    const Onnx__ModelProto *proto = check->model->proto;
    struct functions f = {.check = check, .all = proto->functions, .n = (int)proto->n_functions};
    if (!f.n) return;
    f.first = ARENA_ARRAY(check->scratch, int, f.n);
    f.waits = ARENA_ARRAY(check->scratch, int, f.n);
    f.callee = ARENA_ARRAY(check->scratch, int, f.n);
    f.size = ARENA_ARRAY(check->scratch, int64_t, f.n);
    for (int i = 0; i < f.n; i++) f.first[i] = -1;
    name_functions(&f);
    for (int i = 0; i < check->scopes.n; i++) collect_calls(&f, &check->scopes.at[i]);
    struct onnx_place place = {.text = check->model->place};
    if (expand(&f) < f.n)
        report_recursion(&f);
    else if (f.main_nodes > ONNX_NODES)
        CHECK_FAIL(check, 504, EXIT_LIMIT, &place, "expansion of functions exceeds %d nodes", ONNX_NODES);
}
