#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "ir/text/reader.h"
#include "ir/dims.h"
#include "ir/number.h"
#include "ir/op.h"
#include "ir/user.h"
#include "runtime/base/number/moments.h"

enum { MAX_ATTRS = 64, MAX_STAGE = 1 << 20 };

/* A node as read. Its splits are resolved when its factors are known. */
struct call {
    const struct op *op;
    const char *at, *name, *splits;
    VEC(int) inputs;
    struct attr attrs[MAX_ATTRS];
    int nattrs;
    int64_t stage;
    enum phase phase;
    int origin; /* a tensor that the origin computes; -1: none */
};

static bool read_joined(struct reader *r, enum joined *joined) {
    for (int i = JOINED_SUM; i <= JOINED_MAX; i++)
        if (take(r, joined_names[i])) return *joined = (enum joined)i, true;
    return fail_at(r, r->at, "sum or max expected");
}

static bool read_results(struct reader *r) {
    do {
        if (take(r, "_")) {
            if (r->ndefined == MAX_OUTPUTS) return fail_at(r, r->at, "too many tensors in one statement");
            r->defined[r->ndefined++] = (struct definition){.tensor = -1, .left_out = true};
            continue;
        }
        struct definition *d = read_definition(r);
        if (!d) return false;
        skip_blanks(r);
        d->typed = peek(r) > 0 && isalpha(peek(r));
        if (d->typed && !read_type(r, &d->given)) return false;
        d->given.channels_last = take(r, "channels_last");
        if (take(r, "joined=") && !read_joined(r, &d->given.joined)) return false;
        if (take(r, "{") && !read_layout(r, &d->given.layout)) return false;
    } while (take(r, ","));
    return expect(r, "=");
}

static bool read_arguments(struct reader *r, struct call *call) {
    int tensor;
    if (!expect(r, "(")) return false;
    for (bool more = !take(r, ")"); more; more = !take(r, ")")) {
        if (call->inputs.n && !expect(r, ",")) return false;
        if (take(r, "_"))
            tensor = -1;
        else if (!read_use(r, &tensor))
            return false;
        VEC_PUSH(r->arena, &call->inputs, tensor);
    }
    return true;
}

/* Reads 7 or 0.5. A float has a point or an exponent, or is not finite. */
static bool read_scalar(struct reader *r, struct attr *attr) {
    char word[MAX_WORD];
    const char *start = place(r);
    if (starts_extent(r)) return attr->kind = ATTR_INT, read_factor(r, &attr->value);
    if (!read_number(r, word)) return false;
    attr->kind = strpbrk(word, ".enE") ? ATTR_FLOAT : ATTR_INT;
    bool good =
        attr->kind == ATTR_INT ? number_parse(word, RT_I64, &attr->value) : number_parse(word, RT_F64, &attr->number);
    return good || fail_at(r, start, "'%s' is not a number", word);
}

static bool read_value(struct reader *r, struct attr *attr) {
    skip_blanks(r);
    if (peek(r) == '"') return attr->kind = ATTR_TEXT, read_string(r, &attr->text);
    if (peek(r) == '[') return attr->kind = ATTR_INTS, read_ints(r, INT_MAX, INT64_MIN, &attr->n, &attr->ints);
    return read_scalar(r, attr);
}

/* Skips the splits, which read_splits reads later. */
static bool skip_splits(struct reader *r, struct call *call, const char *start) {
    if (call->splits) return fail_at(r, start, "the node already has a split");
    call->splits = r->at;
    while (peek(r) > 0 && peek(r) != '\n' && peek(r) != ')') r->at++;
    return expect(r, ")");
}

static bool read_origin(struct reader *r, int *tensor) {
    const char *start = place(r);
    if (!read_use(r, tensor)) return false;
    return r->graph->tensors.at[*tensor].producer >= 0 || fail_at(r, start, "no node computes this tensor");
}

/* Reads key=value, split(...), node="name", stage=2, phase=backward or origin=%3. */
static bool read_property(struct reader *r, struct call *call) {
    char key[MAX_WORD];
    const char *start = place(r);
    if (!read_name(r, "an attribute", key)) return false;
    if (strcmp(key, "split") == 0 && take(r, "(")) return skip_splits(r, call, start);
    if (!expect(r, "=")) return false;
    if (strcmp(key, "node") == 0) return read_string(r, &call->name);
    if (strcmp(key, "phase") == 0) return read_phase(r, &call->phase);
    if (strcmp(key, "origin") == 0) return read_origin(r, &call->origin);
    if (strcmp(key, "stage") == 0) return read_int(r, STAGE_ALL, MAX_STAGE, "the stage", &call->stage);
    for (int i = 0; i < call->nattrs; i++)
        if (strcmp(call->attrs[i].key, key) == 0) return fail_at(r, start, "attribute '%s' is given twice", key);
    if (call->nattrs == MAX_ATTRS) return fail_at(r, start, "more than %d attributes", MAX_ATTRS);
    struct attr *attr = &call->attrs[call->nattrs++];
    attr->key = arena_strdup(r->arena, key);
    return read_value(r, attr);
}

static bool read_split(struct reader *r, const struct dims *dims, struct node *node) {
    int axis;
    char word[MAX_WORD];
    if (!read_axis(r, &axis)) return false;
    struct node_split split = node->split[axis];
    const char *start = r->at;
    if (split.factor != SPLIT_NONE) return fail_at(r, start, "this axis is given twice");
    if (take(r, "partial")) return node->split[axis].factor = SPLIT_PARTIAL, true;
    if (take(r, "flat")) return node->split[axis].factor = SPLIT_FLAT, true;
    if (take(r, "blocks")) {
        node->split[axis] = (struct node_split){.factor = SPLIT_FLAT, .blocks = 1, .grain = RT_MOMENT_BLOCK};
        return true;
    }
    if (!read_word(r, "_*", "a factor", word)) return false;
    int factor = dims_find(dims, word);
    if (factor < 0) return fail_at(r, start, "the factors are %s", dims_print(r->arena, dims));
    if (!read_cut(r, "/", &split.blocks, &split.grain)) return false;
    if (!cut_fits(dims->factor[factor].extent, split.blocks, split.grain))
        return fail_at(r, start, "blocks times grain does not divide '%s', which is %lld", word,
                       (long long)dims->factor[factor].extent);
    split.factor = (int16_t)factor;
    dims_nest(node->split, mesh_layout_axes(&r->graph->mesh), axis, &split);
    return true;
}

static bool read_splits(struct reader *r, const char *at, struct node *node) {
    struct dims dims;
    const char *why;
    if (dims_bind(r->arena, r->graph, node, &dims, &why) < 0) return fail_at(r, at, "%s", why);
    r->at = at;
    do {
        if (!read_split(r, &dims, node)) return false;
    } while (take(r, ","));
    return expect(r, ")");
}

/* Infers the types of the results and compares them with the types in the text. */
static bool infer(struct reader *r, int node) {
    if (op_infer(r->graph, node, r->diags) < 0) {
        diag_note(r->diags, "in %s:%lld", r->file, r->line);
        return false;
    }
    EACH(r->defined, r->ndefined, i, struct definition *const d) {
        if (d->left_out) continue;
        struct tensor *tensor = &r->graph->tensors.at[d->tensor];
        if (d->typed && !tensor_same_type(tensor, &d->given))
            return fail_at(r, d->at, "declared as %s, but it is %s", tensor_type(r->arena, &d->given),
                           tensor_type(r->arena, tensor));
        tensor->layout = d->given.layout;
        tensor->joined = d->given.joined;
        tensor->channels_last = d->given.channels_last;
        if (!check_layout(r, d, tensor)) return false;
    }
    return true;
}

static bool add_node(struct reader *r, const struct call *call) {
    int outputs[MAX_OUTPUTS];
    EACH(r->defined, r->ndefined, i, struct definition *const d) {
        if (!d->left_out) d->tensor = graph_add_tensor(r->graph, TENSOR_VALUE, d->given.name, RT_F32, 0, NULL);
        outputs[i] = d->tensor;
    }
    int node = graph_add_node(r->graph, call->op, call->name, call->inputs.n, call->inputs.at, r->ndefined, outputs,
                              call->nattrs, call->attrs);
    r->graph->nodes.at[node].stage = (int)call->stage;
    r->graph->nodes.at[node].phase = call->phase;
    if (call->origin >= 0) r->graph->nodes.at[node].origin = r->graph->tensors.at[call->origin].producer;
    const char *end = r->at;
    if (!infer(r, node)) return false;
    if (call->splits && !read_splits(r, call->splits, &r->graph->nodes.at[node])) return false;
    r->at = end;
    return true;
}

bool read_node(struct reader *r) {
    struct call call = {.name = "", .origin = -1};
    char word[MAX_WORD];
    if (!read_results(r)) return false;
    call.at = place(r);
    if (!read_word(r, "_.:", "an operator", word)) return false;
    if (!(call.op = graph_find_op(r->graph, word))) return fail_at(r, call.at, "unknown core operator '%s'", word);
    if (!read_arguments(r, &call)) return false;
    while (!at_line_end(r))
        if (!read_property(r, &call)) return false;
    return add_node(r, &call);
}
