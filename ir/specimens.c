#include "ir/specimens.h"

#include "ir/base/str.h"
#include "ir/build.h"
#include "ir/op.h"

int specimens_refuse(struct diags *diags, const struct open_sizes *open, const char *where, const char *what) {
    struct strbuf names, sizes;
    strbuf_init(&names, diags->arena);
    strbuf_init(&sizes, diags->arena);
    for (int i = 0; i < open->all.n; i++) {
        const struct open_size *size = &open->all.at[i];
        strbuf_printf(&names, "%s%s=%s", i ? ", " : "", diag_quote(diags, size->name),
                      open_range_text(diags->arena, &size->range));
        strbuf_printf(&sizes, " --dim %s=%lld", str_escape(diags->arena, size->name, strlen(size->name), 120),
                      (long long)size->range.typical);
    }
    diag_error(diags, 439, EXIT_UNSUPPORTED, where, "%s does not follow from the open sizes in a way that is known",
               what);
    diag_note(diags, "open: %s", strbuf_text(&names));
    diag_help(diags, "give sizes instead:%s", strbuf_text(&sizes));
    return -1;
}

/* True if the numbers are one expression of sizes. */
static bool alike(struct graph *a, struct graph *b, int64_t x, int64_t y) {
    if (x == y) return !open_is(a->open, x) && !open_is(b->open, y);
    if (!open_is(a->open, x) || !open_is(b->open, y)) return false;
    const char *left = open_text(a->open, a->arena, x, NULL, false),
               *right = open_text(b->open, b->arena, y, NULL, false);
    return strcmp(left, right) == 0;
}

/* What differs between the tensors; NULL: nothing. */
static const char *tensor_difference(struct graph *a, struct graph *b, int t) {
    const struct tensor *x = &a->tensors.at[t], *y = &b->tensors.at[t];
    if (x->ndim != y->ndim || x->dtype != y->dtype || x->kind != y->kind)
        return arena_printf(a->arena, "tensor '%s'", x->name);
    for (int d = 0; d < x->ndim; d++)
        if (!alike(a, b, x->dims[d], y->dims[d]))
            return arena_printf(a->arena, "dimension %d of '%s', %lld or %lld,", d, x->name, (long long)x->dims[d],
                                (long long)y->dims[d]);
    return NULL;
}

static const char *attr_difference(struct graph *a, struct graph *b, const struct attr *x, const struct attr *y) {
    const char *what = arena_printf(a->arena, "attribute '%s'", x->key);
    if (strcmp(x->key, y->key) != 0 || x->kind != y->kind || x->n != y->n) return what;
    for (int i = 0; x->kind == ATTR_INTS && i < x->n; i++)
        if (!alike(a, b, x->ints[i], y->ints[i])) return what;
    if (x->kind == ATTR_INT && !alike(a, b, x->value, y->value)) return what;
    if (x->kind == ATTR_FLOAT && memcmp(&x->number, &y->number, sizeof x->number) != 0) return what;
    return x->kind == ATTR_TEXT && strcmp(x->text, y->text) != 0 ? what : NULL;
}

/* Constants that no size enters have the same bytes. */
static const char *constant_difference(struct graph *a, struct graph *b, int t) {
    const struct tensor *x = &a->tensors.at[t], *y = &b->tensors.at[t];
    if (x->kind != TENSOR_CONST || build_is_open(a, t) || build_is_open(b, t)) return NULL;
    return memcmp(x->data, y->data, (size_t)tensor_bytes(x)) != 0
               ? arena_printf(a->arena, "the values of '%s'", x->name)
               : NULL;
}

static const char *node_difference(struct graph *a, struct graph *b, const struct node *x, const struct node *y) {
    const char *what = NULL;
    if (x->op != y->op || x->ninputs != y->ninputs || x->noutputs != y->noutputs || x->nattrs != y->nattrs)
        return arena_printf(a->arena, "operator %s", x->op->name);
    for (int i = 0; i < x->nattrs && !what; i++) what = attr_difference(a, b, &x->attrs[i], &y->attrs[i]);
    for (int k = 0; k < x->ninputs + x->noutputs && !what; k++) {
        const int t = node_tensor(x, k);
        if (t != node_tensor(y, k)) return arena_printf(a->arena, "an operand of %s", x->op->name);
        if (t >= 0) what = tensor_difference(a, b, t);
        if (t >= 0 && !what) what = constant_difference(a, b, t);
    }
    return what;
}

bool specimens_agree(struct graph *a, struct graph *b, struct diags *diags) {
    if (a->open->spoiled || b->open->spoiled)
        return specimens_refuse(diags, a->open, a->name, "a small number or remainder made of sizes"), false;
    for (int i = 0; i < a->order.n && i < b->order.n; i++) {
        const int id = a->order.at[i];
        const char *what = node_difference(a, b, &a->nodes.at[id], &b->nodes.at[b->order.at[i]]);
        if (what) return specimens_refuse(diags, a->open, node_place(a, id), what), false;
    }
    if (a->order.n == b->order.n) return true;
    return specimens_refuse(diags, a->open, a->name, "the number of nodes"), false;
}
