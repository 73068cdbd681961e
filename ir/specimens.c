#include "ir/specimens.h"

#include "ir/base/str.h"
#include "ir/build.h"
#include "ir/expr/eval.h"
#include "ir/op.h"
#include "ir/text.h"

int specimens_refuse(struct diags *diags, const struct open_sizes *open, const char *where, const char *what) {
    struct strbuf names = {.arena = diags->arena}, sizes = {.arena = diags->arena};
    VEC_EACH(&open->all, i, const struct open_size *size) {
        strbuf_printf(&names, "%s%s=%s", i ? ", " : "", diag_quote(diags, size->name),
                      open_range_text(diags->arena, &size->range));
        strbuf_printf(&sizes, " --dim %s=%lld", str_name(diags->arena, size->name), (long long)size->range.typical);
    }
    diag_error(diags, 439, EXIT_UNSUPPORTED, where, "%s does not follow from the open sizes in a way that is known",
               what);
    diag_note(diags, "open: %s", strbuf_text(&names));
    return diag_help(diags, "give sizes instead:%s", strbuf_text(&sizes));
}

/* True if the extents of the clash are equal with that size s, the others being typical; `every`: also if they are the
 * least, or the largest. */
static bool size_fits(struct open_sizes *open, int s, int64_t size, bool every) {
    enum { TYPICAL, LEAST, MOST, ALL };
    int64_t sizes[OPEN_SIZES];
    for (int others = TYPICAL; others < (every ? ALL : LEAST); others++) {
        for (int i = 0; i < open->all.n; i++) {
            const struct open_range *range = &open->all.at[i].range;
            sizes[i] = others == TYPICAL ? range->typical : others == LEAST ? range->least : range->most;
        }
        sizes[s] = size;
        if (open_at(open, open->clash.a, sizes) != open_at(open, open->clash.b, sizes)) return false;
    }
    return true;
}

/* The largest sizes s with which they are equal. False: there are none. */
static bool sizes_that_fit(struct open_sizes *open, int s, bool every, struct open_range *fit) {
    *fit = open->all.at[s].range;
    while (fit->most >= fit->least && !size_fits(open, s, fit->most, every)) fit->most -= fit->step;
    if (fit->most < fit->least) return false;
    int64_t least = fit->most;
    while (every && least > fit->least && size_fits(open, s, least - fit->step, every)) least -= fit->step;
    fit->least = least;
    if (fit->typical < least || fit->typical > fit->most) fit->typical = fit->most;
    return true;
}

struct diagnostic *specimens_misfit(const struct diags *diags) {
    int i = 0;
    while (i < diags->all.n && diags->all.at[i].severity != RT_SEVERITY_ERROR) i++;
    struct diagnostic *first = i < diags->all.n ? &diags->all.at[i] : NULL;
    return first && (first->code == 377 || first->code == 378) ? first : NULL;
}

void specimens_refuse_misfit(struct diagnostic *misfit, struct arena *arena, const char *option) {
    const char *help = arena_printf(arena, "help: they fit for%s", option);
    misfit->code = 439, misfit->exit = EXIT_UNSUPPORTED;
    if (*option) VEC_PUSH(arena, &misfit->notes, help);
}

const char *specimens_option(struct arena *arena, struct open_sizes *open) {
    for (int k = 0; k < 2 * open->all.n; k++) {
        const int s = k % open->all.n;
        const char *name = open->all.at[s].name;
        struct open_range fit;
        if (!open_reads(open, open->clash.a, s) && !open_reads(open, open->clash.b, s)) continue;
        if (sizes_that_fit(open, s, k < open->all.n, &fit))
            return arena_printf(arena, " --dim %s=%s", str_name(arena, name), open_range_text(arena, &fit));
    }
    return NULL;
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

/* The graph's sizes and atoms as text IR. */
static const char *sizes_text(const struct graph *graph) {
    struct graph bare;
    graph_init(&bare, graph->arena, "");
    bare.open = graph->open;
    return text_print(graph->arena, &bare);
}

/* Numbers of `from` that are read again as numbers of `to`. */
struct reading {
    const struct graph *from;
    struct graph *to; /* has the sizes and atoms alone */
    struct map known; /* number -> index of what it became */
    VEC(int64_t) became;
    bool failed;
};

static int64_t read_again(struct reading *reading, int64_t value) {
    struct arena *arena = reading->from->arena;
    int64_t became = value;
    if (!open_is(reading->from->open, value)) return value;
    const int known = map_get(&reading->known, (const char *)&value, sizeof value);
    if (known >= 0) return reading->became.at[known];
    const char *text = open_text(reading->from->open, arena, value, NULL, false);
    if (!text_parse_number(reading->to, text, &became)) reading->failed = true;
    map_put(&reading->known, (const char *)&value, sizeof value, reading->became.n);
    VEC_PUSH(arena, &reading->became, became);
    return became;
}

static void read_tensor(struct reading *reading, int id, struct tensor *to) {
    const struct tensor *from = &reading->from->tensors.at[id];
    const int64_t n = build_is_open(reading->from, id) ? tensor_elements(from) : 0;
    void *data = n ? arena_copy(reading->from->arena, from->data, (size_t)tensor_bytes(from)) : NULL;
    for (int64_t i = 0; i < n; i++) {
        struct number number = eval_load(from->data, from->dtype, i);
        number.i = read_again(reading, number.i);
        eval_store(data, from->dtype, i, number);
    }
    if (n) to->data = data;
    for (int d = 0; d < from->ndim; d++) to->dims[d] = read_again(reading, from->dims[d]);
}

static void read_attr(struct reading *reading, const struct attr *from, struct attr *to) {
    if (from->kind == ATTR_INT) to->value = read_again(reading, from->value);
    if (from->kind != ATTR_INTS) return;
    int64_t *ints = ARENA_ARRAY(reading->from->arena, int64_t, from->n + 1);
    for (int i = 0; i < from->n; i++) ints[i] = read_again(reading, from->ints[i]);
    to->ints = ints;
}

/* Gives `graph` the numbers of `from`, which may be the same graph, as a reader of its text has them. False: they do
 * not fit. */
static bool settle(struct graph *graph, const struct graph *from, const char *text) {
    struct reading reading = {.from = from};
    struct diags diags = {.arena = graph->arena};
    int (*const parse)(struct arena *, struct diags *, const char *, const char *, size_t, struct graph **) =
        graph->open->specimen % 2 ? text_parse_twin : text_parse;
    if (parse(graph->arena, &diags, "", text, strlen(text), &reading.to) < 0) return false;
    map_init(&reading.known, graph->arena);
    for (int t = 0; t < graph->tensors.n; t++) read_tensor(&reading, t, &graph->tensors.at[t]);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &from->nodes.at[from->order.at[i]];
        struct node *to = &graph->nodes.at[graph->order.at[i]];
        for (int a = 0; a < node->nattrs; a++) read_attr(&reading, &node->attrs[a], &to->attrs[a]);
    }
    graph->open = reading.to->open;
    for (int i = 0; i < graph->order.n && !reading.failed; i++)
        reading.failed = op_infer(graph, graph->order.at[i], &diags) < 0;
    for (int i = 0; i < graph->inputs.n && !reading.failed; i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        reading.failed = !graph_shape_fits(graph, input->ndim, input->dims);
    }
    return !reading.failed && !graph->open->spoiled;
}

int specimens_settle(struct graph *graph, struct graph *twin, struct diags *diags) {
    enum { ROUNDS = 4 };
    const char *text = "", *read = sizes_text(graph);
    bool good = graph->tensors.n == twin->tensors.n;
    for (int i = 0; i < ROUNDS && good && strcmp(text, read) != 0; i++) {
        text = read;
        good = settle(graph, graph, text);
        read = sizes_text(graph);
    }
    if (good && strcmp(text, read) == 0 && settle(twin, graph, text)) return 0;
    return specimens_refuse(diags, graph->open, graph->name, "a number of its text");
}
