/* ONNX Einsum-12: operands are contracted from left to right, each step a matrix product between transposes.
 *
 * A term names the dimensions of an operand by labels. The dimensions an ellipsis stands for get labels of their own,
 * counted from the right, so that they align as in broadcasting. */
#include "frontend/lower/onnx_lower.h"

#include <ctype.h>

enum { LETTERS = 52, LABELS = LETTERS + RT_MAX_NDIM, NO_ELLIPSIS = -1 };

struct term {
    int n, label[RT_MAX_NDIM];
    int ellipsis; /* position among the labels, or NO_ELLIPSIS */
};

/* An operand or intermediate product: a tensor and the labels of its dimensions. */
struct part {
    int id;
    struct term term;
};

static int malformed(struct lower *lower, const char *what) {
    return lower_error(lower, 386, "equation: %s", what);
}

static int letter_label(char c) {
    return isupper((unsigned char)c) ? c - 'A' : 26 + c - 'a';
}

static bool has_label(const struct term *term, int label) {
    for (int i = 0; i < term->n; i++)
        if (term->label[i] == label) return true;
    return false;
}

/* Parses a term, up to a comma, an arrow or the end. Returns the text behind it, NULL after a diagnostic. */
static const char *parse_term(struct lower *lower, const char *s, struct term *term) {
    *term = (struct term){.ellipsis = NO_ELLIPSIS};
    for (; *s && *s != ',' && *s != '-'; s++) {
        if (*s == ' ') continue;
        if (strncmp(s, "...", 3) == 0 && term->ellipsis == NO_ELLIPSIS) {
            term->ellipsis = term->n;
            s += 2;
            continue;
        }
        if (!isalpha((unsigned char)*s) || term->n == RT_MAX_NDIM) {
            malformed(lower, *s == '.'                ? "more than one ellipsis"
                             : term->n == RT_MAX_NDIM ? "too many dimensions"
                                                      : "a character that is not a letter");
            return NULL;
        }
        term->label[term->n++] = letter_label(*s);
    }
    return s;
}

/* Replaces the ellipsis by labels for its `count` dimensions, which are numbered from LETTERS for the last one. */
static int open_ellipsis(struct lower *lower, struct term *term, int count) {
    if (count < 0 || term->n + count > RT_MAX_NDIM || (count && term->ellipsis == NO_ELLIPSIS))
        return malformed(lower, "an operand has another number of dimensions than its term");
    if (term->ellipsis == NO_ELLIPSIS) return 0;
    memmove(&term->label[term->ellipsis + count], &term->label[term->ellipsis],
            sizeof(int) * (size_t)(term->n - term->ellipsis));
    for (int i = 0; i < count; i++) term->label[term->ellipsis + i] = LETTERS + count - 1 - i;
    term->n += count;
    return 0;
}

/* Without an arrow the result has the ellipsis, then the labels that occur once, in alphabetical order. */
static int implicit_result(struct lower *lower, const struct part *parts, int n, struct term *result) {
    int count[LABELS] = {0};
    *result = (struct term){.ellipsis = NO_ELLIPSIS};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < parts[i].term.n; k++) count[parts[i].term.label[k]]++;
    for (int label = LABELS - 1; label >= LETTERS; label--)
        if (count[label] && result->n < RT_MAX_NDIM) result->label[result->n++] = label;
    for (int label = 0; label < LETTERS; label++) {
        if (count[label] != 1) continue;
        if (result->n == RT_MAX_NDIM) return malformed(lower, "too many dimensions");
        result->label[result->n++] = label;
    }
    return 0;
}

static int check_result(struct lower *lower, const struct part *parts, int n, const struct term *result) {
    for (int i = 0; i < result->n; i++) {
        bool found = false;
        for (int k = 0; k < n; k++) found = found || has_label(&parts[k].term, result->label[i]);
        if (!found) return malformed(lower, "a label of the result is in no operand");
        for (int k = 0; k < i; k++)
            if (result->label[k] == result->label[i]) return malformed(lower, "a label occurs twice in the result");
    }
    return 0;
}

static int parse(struct lower *lower, struct part *parts, struct term *result) {
    const char *s = lower_text(lower, "equation");
    int dots = 0;
    for (int i = 0; i < lower->ninputs; i++) {
        struct term *term = &parts[i].term;
        parts[i].id = lower->inputs[i];
        if (i && *s++ != ',') return malformed(lower, "fewer terms than operands");
        if (!(s = parse_term(lower, s, term))) return -1;
        int open = lower_ndim(lower, parts[i].id) - term->n;
        if (term->ellipsis != NO_ELLIPSIS && open > dots) dots = open;
        if (open_ellipsis(lower, term, open) < 0) return -1;
    }
    if (*s == ',') return malformed(lower, "more terms than operands");
    if (!*s) return implicit_result(lower, parts, lower->ninputs, result);
    if (s[0] != '-' || s[1] != '>') return malformed(lower, "'->' expected");
    if (!(s = parse_term(lower, s + 2, result))) return -1;
    if (*s) return malformed(lower, "unexpected text after the result");
    if (result->ellipsis != NO_ELLIPSIS && open_ellipsis(lower, result, dots) < 0) return -1;
    return check_result(lower, parts, lower->ninputs, result);
}

/* Transposes the part to the order of `labels`, which are all its labels. */
static void reorder(struct lower *lower, struct part *part, const struct term *labels) {
    int64_t perm[RT_MAX_NDIM];
    for (int i = 0; i < labels->n; i++)
        for (int k = 0; k < part->term.n; k++)
            if (part->term.label[k] == labels->label[i]) perm[i] = k;
    if (labels->n) part->id = emit_transpose(lower, part->id, perm);
    part->term = *labels;
}

static void append(struct term *to, const struct term *from) {
    for (int i = 0; i < from->n; i++) to->label[to->n++] = from->label[i];
}

/* A label that occurs twice in a term selects the diagonal: both dimensions are moved to the end, merged into one of n
 * x n, and sliced with step n + 1. */
static int take_diagonals(struct lower *lower, struct part *part) {
    for (int i = 0; i < part->term.n; i++)
        for (int k = i + 1; k < part->term.n; k++) {
            if (part->term.label[i] != part->term.label[k]) continue;
            struct tensor tensor = lower_tensor(lower, part->id);
            int64_t n = tensor.dims[i], perm[RT_MAX_NDIM];
            int at = 0, last = part->term.n - 2;
            if (tensor.dims[k] != n) return malformed(lower, "a label has two extents in one operand");
            struct term rest = {.ellipsis = NO_ELLIPSIS};
            for (int d = 0; d < part->term.n; d++) {
                if (d == i || d == k) continue;
                rest.label[rest.n++] = part->term.label[d];
                perm[at++] = d;
            }
            rest.label[rest.n++] = part->term.label[i];
            perm[at++] = i;
            perm[at] = k;
            int x = emit_transpose(lower, part->id, perm);
            for (int d = 0; d < last; d++) tensor.dims[d] = lower_tensor(lower, part->id).dims[perm[d]];
            tensor.dims[last] = n * n;
            x = emit_reshape(lower, x, last + 1, tensor.dims);
            part->id = emit_piece(lower, x, last, 0, n + 1, n);
            part->term = rest;
            if (part->id < 0) return -1;
            k = i; /* the labels have moved: search again */
        }
    return 0;
}

/* Sums over the labels that neither the result nor another operand has. */
static void sum_unneeded(struct lower *lower, struct part *part, const bool *needed) {
    bool axes[RT_MAX_NDIM] = {false};
    struct term rest = {.ellipsis = NO_ELLIPSIS};
    for (int d = 0; d < part->term.n; d++) {
        axes[d] = !needed[part->term.label[d]];
        if (!axes[d]) rest.label[rest.n++] = part->term.label[d];
    }
    part->id = emit_reduce(lower, OP_ReduceSum, part->id, axes, false);
    part->term = rest;
}

/* The labels of two operands by their role in the product. */
struct roles {
    struct term batch, summed, only_a, only_b;
};

static struct roles find_roles(const struct part *a, const struct part *b, const bool *needed) {
    struct roles roles = {0};
    EACH_VALUE(a->term.label, a->term.n, i, int label) {
        struct term *to = !has_label(&b->term, label) ? &roles.only_a : needed[label] ? &roles.batch : &roles.summed;
        to->label[to->n++] = label;
    }
    for (int i = 0; i < b->term.n; i++)
        if (!has_label(&a->term, b->term.label[i])) roles.only_b.label[roles.only_b.n++] = b->term.label[i];
    return roles;
}

/* Appends the extents of the dimensions with these labels to `dims` and returns their product. */
static int64_t extents(const struct lower *lower, const struct part *part, const struct term *labels, int64_t *dims,
                       int *n) {
    struct tensor tensor = lower_tensor(lower, part->id);
    int64_t all = 1;
    for (int i = 0; i < labels->n; i++)
        for (int k = 0; k < part->term.n; k++) {
            if (part->term.label[k] != labels->label[i]) continue;
            if (dims) dims[(*n)++] = tensor.dims[k];
            all *= tensor.dims[k];
        }
    return all;
}

/* The product if there is no label to sum over: an elementwise product with broadcasting. Labels: batch, only a, only
 * b. */
static int multiply(struct lower *lower, struct part *a, struct part *b, const struct roles *roles) {
    int64_t da[2 * RT_MAX_NDIM], db[2 * RT_MAX_NDIM];
    int na = 0, nb = 0;
    struct term ta = roles->batch, tb = roles->batch;
    append(&ta, &roles->only_a);
    append(&tb, &roles->only_b);
    reorder(lower, a, &ta);
    reorder(lower, b, &tb);
    if (a->id < 0 || b->id < 0) return -1;
    extents(lower, a, &ta, da, &na);
    for (int i = 0; i < roles->only_b.n; i++) da[na++] = 1;
    extents(lower, b, &roles->batch, db, &nb);
    for (int i = 0; i < roles->only_a.n; i++) db[nb++] = 1;
    extents(lower, b, &roles->only_b, db, &nb);
    return emit2(lower, OP_Mul, emit_reshape(lower, a->id, na, da), emit_reshape(lower, b->id, nb, db));
}

static bool is_order(const struct term *term, const struct term *wanted) {
    return term->n == wanted->n && memcmp(term->label, wanted->label, sizeof(int) * (size_t)term->n) == 0;
}

/* The product as MatMul: (batch, only a, summed) (batch, summed, only b) -> (batch, only a, only b). Without batch
 * labels the dimensions of a are not merged, since MatMul takes any number of leading dimensions. */
static int contract(struct lower *lower, struct part *a, struct part *b, const struct roles *roles) {
    int64_t da[2 * RT_MAX_NDIM], db[2 * RT_MAX_NDIM], shape[2 * RT_MAX_NDIM];
    int na = 0, nb = 0, n = 0;
    struct term ta = roles->batch, tb = roles->batch, exchanged = roles->batch;
    append(&ta, &roles->only_a);
    append(&ta, &roles->summed);
    append(&tb, &roles->summed);
    append(&tb, &roles->only_b);
    append(&exchanged, &roles->only_b);
    append(&exchanged, &roles->summed);
    bool trans_b = is_order(&b->term, &exchanged);
    if (roles->batch.n + 2 > RT_MAX_NDIM) return lower_unsupported(lower, "this many batch dimensions");
    reorder(lower, a, &ta);
    if (!trans_b) reorder(lower, b, &tb);
    if (a->id < 0 || b->id < 0) return -1;
    int64_t k = extents(lower, a, &roles->summed, NULL, NULL), columns = extents(lower, b, &roles->only_b, NULL, NULL);
    if (k != extents(lower, b, &roles->summed, NULL, NULL)) return lower_misfit(lower, a->id, b->id);
    extents(lower, a, &roles->batch, da, &na);
    if (roles->batch.n || !roles->only_a.n)
        da[na++] = extents(lower, a, &roles->only_a, NULL, NULL);
    else
        extents(lower, a, &roles->only_a, da, &na);
    da[na++] = k;
    extents(lower, b, &roles->batch, db, &nb);
    db[nb++] = trans_b ? columns : k;
    db[nb++] = trans_b ? k : columns;
    int64_t wide[RT_MAX_NDIM];
    if (!broadcast_dims(lower->builder.graph->open, roles->batch.n, da, roles->batch.n, db, &n, wide))
        return lower_misfit(lower, a->id, b->id);
    for (int d = 0; d < n; d++) shape[d] = wide[d];
    extents(lower, a, &roles->only_a, shape, &n);
    extents(lower, b, &roles->only_b, shape, &n);
    int y = emit_matmul(lower, emit_reshape(lower, a->id, na, da), emit_reshape(lower, b->id, nb, db), false, trans_b);
    return emit_reshape(lower, y, n, shape);
}

/* Replaces *a by the product of both. `needed`: labels of the result and of further operands. */
static int combine(struct lower *lower, struct part *a, struct part *b, const bool *needed) {
    bool also_a[LABELS], also_b[LABELS];
    memcpy(also_a, needed, sizeof also_a);
    memcpy(also_b, needed, sizeof also_b);
    for (int i = 0; i < b->term.n; i++) also_a[b->term.label[i]] = true;
    for (int i = 0; i < a->term.n; i++) also_b[a->term.label[i]] = true;
    sum_unneeded(lower, a, also_a);
    sum_unneeded(lower, b, also_b);
    struct roles roles = find_roles(a, b, needed);
    if (a->id < 0 || b->id < 0) return -1;
    if (roles.batch.n + roles.only_a.n + roles.only_b.n > RT_MAX_NDIM)
        return lower_unsupported(lower, "this many dimensions");
    int y = roles.summed.n ? contract(lower, a, b, &roles) : multiply(lower, a, b, &roles);
    a->id = y;
    a->term = roles.batch;
    append(&a->term, &roles.only_a);
    append(&a->term, &roles.only_b);
    return y < 0 ? -1 : 0;
}

int lower_einsum(struct lower *lower) {
    struct part *parts = ARENA_ARRAY(lower->arena, struct part, lower->ninputs);
    struct term result;
    if (parse(lower, parts, &result) < 0) return -1;
    int uses[LABELS] = {0};
    for (int i = 0; i < result.n; i++) uses[result.label[i]]++;
    for (int i = 0; i < lower->ninputs; i++) {
        if (take_diagonals(lower, &parts[i]) < 0) return -1;
        for (int k = 0; k < parts[i].term.n; k++) uses[parts[i].term.label[k]]++;
    }
    bool needed[LABELS] = {false};
    for (int i = 0; i < lower->ninputs; i++) {
        for (int k = 0; k < parts[i].term.n; k++) uses[parts[i].term.label[k]]--;
        for (int label = 0; label < LABELS; label++) needed[label] = uses[label] > 0;
        if (i && combine(lower, &parts[0], &parts[i], needed) < 0) return -1;
    }
    sum_unneeded(lower, &parts[0], needed);
    if (parts[0].id < 0) return -1;
    reorder(lower, &parts[0], &result);
    return lower_result(lower, parts[0].id);
}
