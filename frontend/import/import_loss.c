/* --loss: appends a loss to a model without one, as in "cross_entropy:logits=NAME,labels=NAME,ignore_index=0". */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "frontend/import/import_state.h"
#include "frontend/lower/lower_loss.h"
#include "ir/base/str.h"
#include "runtime/base/io/file.h"

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

/* The parsed text of --loss. */
struct choice {
    const struct loss_row *row;
    const char *input, *target, *weight, *axis, *reduction, *mean; /* NULL: not given */
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
    struct build builder;
};

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
             {"axis", offsetof(struct choice, axis), true},
             {"mean", offsetof(struct choice, mean), true}};
enum { WORDS = sizeof words / sizeof *words };

static int unknown_loss(const struct reading *reading, const char *name) {
    const char *names[ROWS + 1] = {NULL}, *all = "";
    for (int i = 0; i < ROWS; i++) {
        names[i] = rows[i].name;
        all = arena_printf(reading->import->arena, "%s %s", all, names[i]);
    }
    const char *near = str_nearest(name, names);
    diag_error(reading->import->diags, 202, EXIT_USAGE, "--loss", "unknown loss %s; the losses are%s",
               diag_quote(reading->import->diags, name), all);
    if (near) diag_help(reading->import->diags, "did you mean '%s'?", near);
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

static int bad_option(const struct reading *reading, const char *text) {
    const struct loss_row *row = reading->choice.row;
    const char *all = "";
    for (int i = 0; i < WORDS; i++)
        if (!words[i].of_classes || row->of != ELEMENTS)
            all = arena_printf(reading->import->arena, "%s %s=", all, words[i].key);
    diag_error(reading->import->diags, 205, EXIT_USAGE, "--loss", "%s has no option %s", row->name,
               diag_quote(reading->import->diags, text));
    return diag_note(reading->import->diags, *row->options ? "its options are%s %s" : "its options are%s", all,
                     row->options);
}

/* Parses one "key=value". */
static int set_option(struct reading *reading, const char *text) {
    const size_t length = strcspn(text, "=");
    const char *key = arena_copy(reading->import->arena, text, length), *value = text + length + 1;
    char *end;
    if (!text[length] || !*value) return bad_option(reading, text);
    for (int i = 0; i < WORDS; i++) {
        if (strcmp(words[i].key, key) != 0 || (words[i].of_classes && reading->choice.row->of == ELEMENTS)) continue;
        *(const char **)((char *)&reading->choice + words[i].field) = value;
        return 0;
    }
    for (int i = 0; i < reading->choice.n; i++) {
        if (strcmp(reading->choice.option[i].name, key) != 0) continue;
        double number = strtod(value, &end);
        if (*end || !isfinite(number)) break;
        reading->choice.option[i].value = number;
        return 0;
    }
    return bad_option(reading, text);
}

static double option(const struct choice *choice, const char *name) {
    for (int i = 0; i < choice->n; i++)
        if (strcmp(choice->option[i].name, name) == 0) return choice->option[i].value;
    return 0;
}

/* The mean is over all labels of a step that count, not over those of each micro-batch. */
static bool counts_tokens(const struct choice *choice) {
    return choice->mean && strcmp(choice->mean, "tokens") == 0;
}

static bool is_whole(double number) {
    return fabs(number) <= 9007199254740992.0 && number == floor(number);
}

static int check_options(const struct reading *reading) {
    const struct choice *choice = &reading->choice;
    const double smoothing = option(choice, "label_smoothing");
    const char *wrong = NULL;
    if (!is_whole(option(choice, "ignore_index"))) wrong = "ignore_index must be a whole number";
    if (!(smoothing >= 0 && smoothing <= 1)) wrong = "label_smoothing must be from 0 to 1";
    if (strcmp(choice->row->name, "huber") == 0 && !(option(choice, "delta") > 0))
        wrong = "delta must be greater than 0";
    if (choice->mean && strcmp(choice->mean, "tokens") != 0 && strcmp(choice->mean, "micro-batches") != 0)
        wrong = "mean must be micro-batches or tokens";
    if (counts_tokens(choice) && (choice->reduction || option(choice, "soft") != 0))
        wrong = "mean=tokens is a mean over labels that are class numbers: without reduction= and soft=1";
    if (wrong) return diag_error(reading->import->diags, 205, EXIT_USAGE, "--loss", "%s", wrong);
    if (choice->reduction && loss_reduction(choice->reduction) % LOSS_REDUCTIONS == LOSS_NONE)
        return diag_error(reading->import->diags, 205, EXIT_USAGE, "--loss",
                          "a loss is a single number: its reduction must be mean or sum");
    return 0;
}

static int read_choice(struct reading *reading, const char *text) {
    struct arena *arena = reading->import->arena;
    size_t length = strcspn(text, ":");
    const char *name = arena_copy(arena, text, length);
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) reading->choice.row = &rows[i];
    if (!reading->choice.row) return unknown_loss(reading, name);
    add_defaults(&reading->choice, arena);
    for (text += length; *text; text += length) {
        length = strcspn(++text, ",");
        if (set_option(reading, arena_copy(arena, text, length)) < 0) return -1;
    }
    return check_options(reading);
}

/* The tensor of the model's value with that name; -1 after a diagnostic. */
static int find_value(const struct reading *reading, const char *name) {
    struct diags *diags = reading->import->diags;
    const struct map *ids = &reading->scope->ids;
    int id = scope_find(reading->scope, name);
    if (id >= 0 && !lower_is_sequence(id)) return id;
    if (id >= 0) return diag_error(diags, 404, EXIT_UNSUPPORTED, "--loss", "%s is a sequence", diag_quote(diags, name));
    const char **names = ARENA_ARRAY(reading->import->arena, const char *, ids->n + 1);
    for (int i = 0; i < ids->n; i++) names[i] = ids->entries[i].key;
    const char *near = str_nearest(name, names);
    diag_error(diags, 201, EXIT_USAGE, "--loss", "the model has no value %s", diag_quote(diags, name));
    if (near) diag_help(diags, "did you mean %s?", diag_quote(diags, near));
    return -1;
}

static struct tensor tensor_at(const struct reading *reading, int id) {
    return reading->builder.graph->tensors.at[id];
}

static int misfit(const struct reading *reading, int input, int target) {
    struct tensor x = tensor_at(reading, input), t = tensor_at(reading, target);
    struct diags *diags = reading->import->diags;
    return diag_error(diags, 378, EXIT_MALFORMED, "--loss", "shapes do not fit: %s is %s, %s is %s",
                      diag_quote(diags, x.name), tensor_type(diags->arena, &x), diag_quote(diags, t.name),
                      tensor_type(diags->arena, &t));
}

static int wrong_type(const struct reading *reading, int tensor, const char *wanted) {
    struct tensor t = tensor_at(reading, tensor);
    return diag_error(reading->import->diags, 379, EXIT_MALFORMED, "--loss", "%s has type %s, not %s",
                      diag_quote(reading->import->diags, t.name), rt_dtypes[t.dtype].name, wanted);
}

/* The input of the loss: the value named in the text, else output 0. */
static int find_input(const struct reading *reading) {
    const struct graph *graph = reading->builder.graph;
    if (!reading->choice.input && !graph->outputs.n)
        return diag_error(reading->import->diags, 201, EXIT_USAGE, "--loss", "the model has no output");
    int id = reading->choice.input ? find_value(reading, reading->choice.input) : graph->outputs.at[0];
    if (id < 0) return -1;
    return rt_dtype_is_float(graph->tensors.at[id].dtype) ? id : wrong_type(reading, id, "a float type");
}

/* The value with that name. If there is none, a new graph input of the given type and shape. */
static int find_target(const struct reading *reading, const char *name, enum rt_dtype dtype, int ndim,
                       const int64_t *dims) {
    struct graph *graph = reading->builder.graph;
    if (scope_find(reading->scope, name) != UNDEFINED) return find_value(reading, name);
    int id = graph_add_tensor(graph, TENSOR_INPUT, arena_strdup(graph->arena, name), dtype, ndim, dims);
    VEC_PUSH(graph->arena, &graph->inputs, id);
    diag_remark(reading->import->diags, "--loss", "%s %s is added as an input of the model",
                diag_quote(reading->import->diags, name), tensor_type(graph->arena, &graph->tensors.at[id]));
    return id;
}

static enum loss_reduction reduction_of(const struct choice *choice) {
    return choice->reduction ? loss_reduction(choice->reduction) : LOSS_MEAN;
}

/* The default dimension of the classes: 1, as in PyTorch, but the last of 3 dimensions, since language models return
 * (batch, time, classes). The shape of existing labels overrides it (fitting_axis). */
static int usual_axis(const struct tensor *x) {
    return x->ndim == 3 ? 2 : x->ndim > 1;
}

static int said_axis(const struct reading *reading, const struct tensor *x, int *axis) {
    char *end;
    long said = strtol(reading->choice.axis, &end, 10);
    if (*end || said < -x->ndim || said >= x->ndim)
        return bad_option(reading, arena_printf(reading->import->arena, "axis=%s", reading->choice.axis));
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

const char *import_loss_file(const char *loss, struct arena *arena) {
    static const char key[] = "weight=";
    for (const char *at = loss ? strchr(loss, ':') : NULL; at; at = strchr(at + 1, ',')) {
        const char *word = arena_copy(arena, at + 1, strcspn(at + 1, ","));
        if (strncmp(word, key, sizeof key - 1) == 0 && rt_has_suffix(word, ".npy")) return word + sizeof key - 1;
    }
    return NULL;
}

/* The weights of classes: the model's value, or those of the file in the type of the scores. */
static int read_weights(struct reading *reading, enum rt_dtype dtype) {
    const struct rt_tensor *given = reading->import->options->loss_weights;
    struct graph *graph = reading->builder.graph;
    if (!given) return find_value(reading, reading->choice.weight);
    if (!rt_dtype_is_float(given->dtype))
        return diag_error(reading->import->diags, 379, EXIT_MALFORMED, "--loss", "%s has type %s, not a float type",
                          diag_quote(reading->import->diags, reading->choice.weight), rt_dtypes[given->dtype].name);
    void *values = arena_alloc(graph->arena, (size_t)given->count + 1, rt_dtype_bytes(dtype));
    rt_convert(values, dtype, given->data, given->dtype, (size_t)given->count);
    return graph_add_const(graph, "loss.weights", dtype, given->ndim, given->dims, values);
}

static int find_weights(struct reading *reading, const struct tensor *x, int axis) {
    int weights = read_weights(reading, x->dtype);
    if (weights < 0) return -1;
    struct tensor w = tensor_at(reading, weights);
    if (w.dtype != x->dtype) return wrong_type(reading, weights, rt_dtypes[x->dtype].name);
    if (w.ndim == 1 && w.dims[0] == x->dims[axis]) return weights;
    return diag_error(reading->import->diags, 378, EXIT_MALFORMED, "--loss", "%s is %s, but there are %lld classes",
                      diag_quote(reading->import->diags, w.name), tensor_type(reading->import->arena, &w),
                      (long long)x->dims[axis]);
}

/* Finds the labels, the dimension of the classes and whether the labels are probabilities (*soft). Returns the labels'
 * tensor, -1 after a diagnostic. */
static int find_labels(const struct reading *reading, int input, int *axis, bool *soft) {
    struct tensor x = tensor_at(reading, input), given = x;
    const char *name = reading->choice.target ? reading->choice.target : "labels";
    if (!x.ndim)
        return diag_error(reading->import->diags, 378, EXIT_MALFORMED, "--loss", "a scalar has no class dimension");
    *axis = usual_axis(&x);
    if (reading->choice.axis && said_axis(reading, &x, axis) < 0) return -1;
    *soft = option(&reading->choice, "soft") != 0;
    for (int d = *axis; d < x.ndim - 1 && !*soft; d++) given.dims[d] = x.dims[d + 1];
    int target = find_target(reading, name, *soft ? x.dtype : RT_I64, x.ndim - !*soft, given.dims);
    if (target < 0) return -1;
    given = tensor_at(reading, target);
    *soft = reading->choice.row->of == LOGITS && rt_dtype_is_float(given.dtype) && same_shape(&x, &given);
    if (*soft) return target;
    if (rt_dtype_is_float(given.dtype) || given.dtype == RT_BOOL) return wrong_type(reading, target, "an integer type");
    if (!reading->choice.axis) *axis = fitting_axis(&x, &given);
    return *axis >= 0 && loss_target_fits(&x, *axis, &given) ? target : misfit(reading, input, target);
}

/* A loss over classes. *counted: with mean=tokens, the sum of the weights of its elements. */
static int of_classes(struct reading *reading, int input, int *counted) {
    const struct choice *choice = &reading->choice;
    struct class_loss loss = {.scores = input,
                              .logits = choice->row->of == LOGITS,
                              .weights = -1,
                              .ignores = true,
                              .ignored = (int64_t)option(choice, "ignore_index"),
                              .smoothing = option(choice, "label_smoothing"),
                              .reduction = reduction_of(choice),
                              .counted = counts_tokens(choice) ? counted : NULL};
    bool soft;
    if ((loss.target = find_labels(reading, input, &loss.axis, &soft)) < 0) return -1;
    struct tensor x = tensor_at(reading, input);
    if (x.dims[loss.axis] > LOSS_CLASSES)
        return diag_error(reading->import->diags, 505, EXIT_LIMIT, "--loss", "too many classes");
    if (choice->weight && (loss.weights = find_weights(reading, &x, loss.axis)) < 0) return -1;
    if (soft && loss.counted)
        return diag_error(reading->import->diags, 205, EXIT_USAGE, "--loss",
                          "mean=tokens needs labels that are class numbers");
    if (!soft) {
        struct graph *graph = reading->builder.graph;
        if (loss.counted) graph->loss_elements = tensor_elements(&graph->tensors.at[loss.target]);
        if (open_is(graph->open, graph->loss_elements))
            return diag_error(reading->import->diags, 404, EXIT_UNSUPPORTED, "--loss",
                              "mean=tokens needs labels of a fixed size");
        return loss_of_classes(&reading->builder, &loss);
    }
    loss.target = build_cast(&reading->builder, loss.target, x.dtype);
    return loss.target < 0 ? -1 : loss_of_probabilities(&reading->builder, &loss);
}

static int of_elements(struct reading *reading, int input) {
    const struct choice *choice = &reading->choice;
    struct tensor x = tensor_at(reading, input);
    struct build_scope scope = {.dtype = x.dtype};
    int target = find_target(reading, choice->target ? choice->target : "target", x.dtype, x.ndim, x.dims);
    if (target < 0) return -1;
    struct tensor t = tensor_at(reading, target);
    if (!same_shape(&x, &t)) return misfit(reading, input, target);
    if ((target = build_cast(&reading->builder, target, x.dtype)) < 0) return -1;
    build_scope_tensor(&scope, "x", input);
    build_scope_tensor(&scope, "t", target);
    for (int i = 0; i < choice->n; i++) build_scope_number(&scope, choice->option[i].name, choice->option[i].value);
    return loss_of_elements(&reading->builder, &scope, choice->row->element, reduction_of(choice));
}

int import_loss(struct import *import, struct scope *scope) {
    struct graph *graph = import->graph;
    struct reading reading = {.import = import, .scope = scope, .builder = {graph, import->diags, "loss"}};
    if (!import->options->loss) return 0;
    int counted = -1, input = read_choice(&reading, import->options->loss) < 0 ? -1 : find_input(&reading);
    int loss = input < 0                            ? -1
               : reading.choice.row->of == ELEMENTS ? of_elements(&reading, input)
                                                    : of_classes(&reading, input, &counted);
    if (loss < 0) return -1;
    graph->outputs.n = graph->output_names.n = graph->counted.n = 0;
    VEC_PUSH(graph->arena, &graph->outputs, loss);
    VEC_PUSH(graph->arena, &graph->output_names, "loss");
    if (counted < 0) return 0;
    VEC_PUSH(graph->arena, &graph->outputs, counted);
    VEC_PUSH(graph->arena, &graph->output_names, "loss.weight");
    return 0;
}
