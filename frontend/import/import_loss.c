/* --loss: a loss at the end of a model that has none, "cross_entropy:logits=NAME,labels=NAME,ignore_index=0". */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "frontend/import/import_state.h"
#include "frontend/lower/lower_loss.h"
#include "ir/base/str.h"

enum loss_of { LOGITS, LOG_PROBABILITIES, ELEMENTS };

static const struct loss_row {
    const char *name;
    enum loss_of of;
    const char *element, *options, *help;
} rows[] = {
#define LOSS(name, ...) {#name, __VA_ARGS__},
#include "frontend/import/import_losses.def"
#undef LOSS
};
enum { ROWS = sizeof rows / sizeof *rows, MAX_OPTIONS = 4 };

/* What the text says. */
struct choice {
    const struct loss_row *row;
    const char *input, *target, *weight, *axis, *reduction; /* NULL: not said */
    int n;
    struct {
        const char *name;
        double value;
    } option[MAX_OPTIONS];
};

struct reading {
    struct import *import;
    struct scope *scope;
    struct choice choice;
    struct build b;
};

/* The text -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *key;
    size_t field;
    bool of_classes;
} words[] = {{"logits", offsetof(struct choice, input), false},
             {"input", offsetof(struct choice, input), false},
             {"labels", offsetof(struct choice, target), false},
             {"target", offsetof(struct choice, target), false},
             {"reduction", offsetof(struct choice, reduction), false},
             {"weight", offsetof(struct choice, weight), true},
             {"axis", offsetof(struct choice, axis), true}};
enum { WORDS = sizeof words / sizeof *words };

static int unknown_loss(const struct reading *r, const char *name) {
    const char *names[ROWS + 1] = {NULL}, *all = "";
    for (int i = 0; i < ROWS; i++) {
        names[i] = rows[i].name;
        all = arena_printf(r->import->arena, "%s %s", all, names[i]);
    }
    const char *near = str_nearest(name, names);
    diag_error(r->import->diags, 202, EXIT_USAGE, "--loss", "no loss is called %s; there are%s",
               diag_quote(r->import->diags, name), all);
    if (near) diag_help(r->import->diags, "did you mean '%s'?", near);
    return -1;
}

static void add_defaults(struct choice *choice, struct arena *arena) {
    for (const char *at = choice->row->options; *at; at += strspn(at, " ")) {
        size_t name = strcspn(at, "=");
        char *end;
        choice->option[choice->n].name = arena_copy(arena, at, name);
        choice->option[choice->n++].value = strtod(at + name + 1, &end);
        at = end;
    }
}

static int bad_option(const struct reading *r, const char *text) {
    const struct loss_row *row = r->choice.row;
    const char *all = "";
    for (int i = 0; i < WORDS; i++)
        if (!words[i].of_classes || row->of != ELEMENTS)
            all = arena_printf(r->import->arena, "%s %s=", all, words[i].key);
    diag_error(r->import->diags, 205, EXIT_USAGE, "--loss", "%s does not take the option %s", row->name,
               diag_quote(r->import->diags, text));
    diag_note(r->import->diags, *row->options ? "it takes%s %s" : "it takes%s", all, row->options);
    return -1;
}

/* One "key=value". */
static int set_option(struct reading *r, const char *text) {
    const size_t length = strcspn(text, "=");
    const char *key = arena_copy(r->import->arena, text, length), *value = text + length + 1;
    char *end;
    if (!text[length] || !*value) return bad_option(r, text);
    for (int i = 0; i < WORDS; i++) {
        if (strcmp(words[i].key, key) != 0 || (words[i].of_classes && r->choice.row->of == ELEMENTS)) continue;
        *(const char **)((char *)&r->choice + words[i].field) = value;
        return 0;
    }
    for (int i = 0; i < r->choice.n; i++) {
        if (strcmp(r->choice.option[i].name, key) != 0) continue;
        double number = strtod(value, &end);
        if (*end || !isfinite(number)) break;
        r->choice.option[i].value = number;
        return 0;
    }
    return bad_option(r, text);
}

static double option(const struct choice *choice, const char *name) {
    for (int i = 0; i < choice->n; i++)
        if (strcmp(choice->option[i].name, name) == 0) return choice->option[i].value;
    return 0;
}

static bool is_whole(double number) {
    return fabs(number) <= 9007199254740992.0 && number == floor(number);
}

static int check_options(const struct reading *r) {
    const struct choice *c = &r->choice;
    const double smoothing = option(c, "label_smoothing");
    const char *wrong = NULL;
    if (!is_whole(option(c, "ignore_index"))) wrong = "ignore_index must be a whole number";
    if (!(smoothing >= 0 && smoothing <= 1)) wrong = "label_smoothing must be from 0 to 1";
    if (strcmp(c->row->name, "huber") == 0 && !(option(c, "delta") > 0)) wrong = "delta must be greater than 0";
    if (wrong) return diag_error(r->import->diags, 205, EXIT_USAGE, "--loss", "%s", wrong);
    if (c->reduction && loss_reduction(c->reduction) % LOSS_REDUCTIONS == LOSS_NONE)
        return diag_error(r->import->diags, 205, EXIT_USAGE, "--loss",
                          "a loss is a single number: its reduction must be mean or sum");
    return 0;
}

static int read_choice(struct reading *r, const char *text) {
    struct arena *arena = r->import->arena;
    size_t length = strcspn(text, ":");
    const char *name = arena_copy(arena, text, length);
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) r->choice.row = &rows[i];
    if (!r->choice.row) return unknown_loss(r, name);
    add_defaults(&r->choice, arena);
    for (text += length; *text; text += length) {
        length = strcspn(++text, ",");
        if (set_option(r, arena_copy(arena, text, length)) < 0) return -1;
    }
    return check_options(r);
}

/* Values of the model --------------------------------------------------------------------------------------------- */

/* The tensor that the model's value of that name is. */
static int find_value(const struct reading *r, const char *name) {
    struct diags *diags = r->import->diags;
    const struct map *ids = &r->scope->ids;
    int id = scope_find(r->scope, name);
    if (id >= 0 && !lower_is_sequence(id)) return id;
    if (id >= 0) return diag_error(diags, 404, EXIT_UNSUPPORTED, "--loss", "%s is a sequence", diag_quote(diags, name));
    const char **names = ARENA_ARRAY(r->import->arena, const char *, ids->n + 1);
    for (int i = 0; i < ids->n; i++) names[i] = ids->entries[i].key;
    const char *near = str_nearest(name, names);
    diag_error(diags, 201, EXIT_USAGE, "--loss", "the model has no value %s", diag_quote(diags, name));
    if (near) diag_help(diags, "did you mean %s?", diag_quote(diags, near));
    return -1;
}

static struct tensor tensor_at(const struct reading *r, int id) {
    return r->b.graph->tensors.at[id];
}

static int misfit(const struct reading *r, int input, int target) {
    struct tensor x = tensor_at(r, input), t = tensor_at(r, target);
    struct diags *diags = r->import->diags;
    return diag_error(diags, 378, EXIT_MALFORMED, "--loss", "shapes do not fit: %s is %s, %s is %s",
                      diag_quote(diags, x.name), tensor_type(diags->arena, &x), diag_quote(diags, t.name),
                      tensor_type(diags->arena, &t));
}

static int wrong_type(const struct reading *r, int tensor, const char *wanted) {
    struct tensor t = tensor_at(r, tensor);
    return diag_error(r->import->diags, 379, EXIT_MALFORMED, "--loss", "%s has type %s, not %s",
                      diag_quote(r->import->diags, t.name), rt_dtypes[t.dtype].name, wanted);
}

/* What the loss is of: a value by name, or output 0. */
static int find_input(const struct reading *r) {
    const struct graph *graph = r->b.graph;
    if (!r->choice.input && !graph->outputs.n)
        return diag_error(r->import->diags, 201, EXIT_USAGE, "--loss", "the model has no output");
    int id = r->choice.input ? find_value(r, r->choice.input) : graph->outputs.at[0];
    if (id < 0) return -1;
    return rt_dtype_is_float(graph->tensors.at[id].dtype) ? id : wrong_type(r, id, "a float type");
}

/* The value that is called so; where there is none it becomes an input of the graph. */
static int find_target(const struct reading *r, const char *name, enum rt_dtype dtype, int ndim, const int64_t *dims) {
    struct graph *graph = r->b.graph;
    if (scope_find(r->scope, name) != UNDEFINED) return find_value(r, name);
    int id = graph_add_tensor(graph, TENSOR_INPUT, arena_strdup(graph->arena, name), dtype, ndim, dims);
    VEC_PUSH(graph->arena, &graph->inputs, id);
    diag_remark(r->import->diags, "--loss", "%s %s becomes an input of the model", diag_quote(r->import->diags, name),
                tensor_type(graph->arena, &graph->tensors.at[id]));
    return id;
}

/* Composing ------------------------------------------------------------------------------------------------------- */

static enum loss_reduction reduction_of(const struct choice *choice) {
    return choice->reduction ? loss_reduction(choice->reduction) : LOSS_MEAN;
}

/* Dimension 1 holds the classes, as PyTorch has it, except in (batch, time, classes), which is what language models
 * give: there the last one does. Labels that are there may say otherwise. */
static int usual_axis(const struct tensor *x) {
    return x->ndim == 3 ? 2 : x->ndim > 1;
}

static int said_axis(const struct reading *r, const struct tensor *x, int *axis) {
    char *end;
    long said = strtol(r->choice.axis, &end, 10);
    if (*end || said < -x->ndim || said >= x->ndim)
        return bad_option(r, arena_printf(r->import->arena, "axis=%s", r->choice.axis));
    return *axis = (int)(said < 0 ? said + x->ndim : said), 0;
}

static int fitting_axis(const struct tensor *x, const struct tensor *target) {
    const int tries[] = {usual_axis(x), 1, x->ndim - 1};
    for (int i = 0; i < 3; i++)
        if (tries[i] < x->ndim && loss_target_fits(x, tries[i], target)) return tries[i];
    return -1;
}

static bool same_shape(const struct tensor *a, const struct tensor *b) {
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++) same = a->dims[d] == b->dims[d];
    return same;
}

static int find_weights(const struct reading *r, const struct tensor *x, int axis) {
    int weights = find_value(r, r->choice.weight);
    if (weights < 0) return -1;
    struct tensor w = tensor_at(r, weights);
    if (w.dtype != x->dtype) return wrong_type(r, weights, rt_dtypes[x->dtype].name);
    if (w.ndim == 1 && w.dims[0] == x->dims[axis]) return weights;
    return diag_error(r->import->diags, 378, EXIT_MALFORMED, "--loss", "%s is %s, there are %lld classes",
                      diag_quote(r->import->diags, w.name), tensor_type(r->import->arena, &w),
                      (long long)x->dims[axis]);
}

/* Labels and, where they say so, the dimension of the classes; *soft: the labels are probabilities. */
static int find_labels(const struct reading *r, int input, int *axis, bool *soft) {
    struct tensor x = tensor_at(r, input), given = x;
    const char *name = r->choice.target ? r->choice.target : "labels";
    if (!x.ndim) return diag_error(r->import->diags, 378, EXIT_MALFORMED, "--loss", "one number has no classes");
    *axis = usual_axis(&x);
    if (r->choice.axis && said_axis(r, &x, axis) < 0) return -1;
    *soft = option(&r->choice, "soft") != 0;
    for (int d = *axis; d < x.ndim - 1 && !*soft; d++) given.dims[d] = x.dims[d + 1];
    int target = find_target(r, name, *soft ? x.dtype : RT_I64, x.ndim - !*soft, given.dims);
    if (target < 0) return -1;
    given = tensor_at(r, target);
    *soft = r->choice.row->of == LOGITS && rt_dtype_is_float(given.dtype) && same_shape(&x, &given);
    if (*soft) return target;
    if (rt_dtype_is_float(given.dtype) || given.dtype == RT_BOOL) return wrong_type(r, target, "an integer type");
    if (!r->choice.axis) *axis = fitting_axis(&x, &given);
    return *axis >= 0 && loss_target_fits(&x, *axis, &given) ? target : misfit(r, input, target);
}

static int of_classes(struct reading *r, int input) {
    const struct choice *c = &r->choice;
    struct class_loss loss = {.scores = input,
                              .logits = c->row->of == LOGITS,
                              .weights = -1,
                              .ignores = true,
                              .ignored = (int64_t)option(c, "ignore_index"),
                              .smoothing = option(c, "label_smoothing"),
                              .reduction = reduction_of(c)};
    bool soft;
    if ((loss.target = find_labels(r, input, &loss.axis, &soft)) < 0) return -1;
    struct tensor x = tensor_at(r, input);
    if (x.dims[loss.axis] > LOSS_CLASSES)
        return diag_error(r->import->diags, 505, EXIT_LIMIT, "--loss", "too many classes");
    if (c->weight && (loss.weights = find_weights(r, &x, loss.axis)) < 0) return -1;
    if (!soft) return loss_of_classes(&r->b, &loss);
    loss.target = build_cast(&r->b, loss.target, x.dtype);
    return loss.target < 0 ? -1 : loss_of_probabilities(&r->b, &loss);
}

static int of_elements(struct reading *r, int input) {
    const struct choice *c = &r->choice;
    struct tensor x = tensor_at(r, input);
    struct build_scope scope = {.dtype = x.dtype};
    int target = find_target(r, c->target ? c->target : "target", x.dtype, x.ndim, x.dims);
    if (target < 0) return -1;
    struct tensor t = tensor_at(r, target);
    if (!same_shape(&x, &t)) return misfit(r, input, target);
    if ((target = build_cast(&r->b, target, x.dtype)) < 0) return -1;
    build_scope_tensor(&scope, "x", input);
    build_scope_tensor(&scope, "t", target);
    for (int i = 0; i < c->n; i++) build_scope_number(&scope, c->option[i].name, c->option[i].value);
    return loss_of_elements(&r->b, &scope, c->row->element, reduction_of(c));
}

int import_loss(struct import *import, struct scope *scope) {
    struct graph *graph = import->graph;
    struct reading r = {.import = import, .scope = scope, .b = {graph, import->diags, "loss"}};
    if (!import->options->loss) return 0;
    int input = read_choice(&r, import->options->loss) < 0 ? -1 : find_input(&r);
    int loss = input < 0 ? -1 : r.choice.row->of == ELEMENTS ? of_elements(&r, input) : of_classes(&r, input);
    if (loss < 0) return -1;
    graph->outputs.n = graph->output_names.n = 0;
    VEC_PUSH(graph->arena, &graph->outputs, loss);
    VEC_PUSH(graph->arena, &graph->output_names, "loss");
    return 0;
}
