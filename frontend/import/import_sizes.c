#include "frontend/import/import_sizes.h"

#include <fnmatch.h>
#include <strings.h>

#include "ir/base/str.h"
#include "runtime/base/number/formula.h"

enum { MOST_SHOWN = 8, MOST_GUESSED = 1 << 16 };
#define OPERATORS " +-*/%(),"

const Onnx__TypeProto__Tensor *sizes_tensor_type(const Onnx__ValueInfoProto *info) {
    bool tensor = info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    return tensor ? info->type->tensor_type : NULL;
}

bool sizes_is_number(const Onnx__TensorShapeProto__Dimension *dim) {
    return dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
}

const char *sizes_declared(const Onnx__TypeProto__Tensor *type, struct arena *arena) {
    struct strbuf out = {.arena = arena};
    enum rt_dtype dtype = rt_dtype_by_onnx(type->elem_type);
    strbuf_puts(&out, dtype == RT_DTYPE_NONE ? "another type" : rt_dtypes[dtype].name);
    for (size_t d = 0; type->shape && d < type->shape->n_dim; d++) {
        strbuf_puts(&out, d ? "," : "[");
        if (sizes_is_number(type->shape->dim[d]))
            strbuf_printf(&out, "%lld", (long long)type->shape->dim[d]->dim_value);
        else
            strbuf_puts(&out, "?");
    }
    if (type->shape) strbuf_puts(&out, type->shape->n_dim ? "]" : "[]");
    return strbuf_text(&out);
}

/* True for names that exporters give to sizes that they do not know, as "?" or tf2onnx's "unk__12". */
static bool means_unknown(const char *name) {
    static const char *const words[] = {"?", "*", "-1", "none", "null", "dynamic"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(name, words[i]) == 0) return true;
    if (strncasecmp(name, "unk", 3) != 0) return false;
    name += strncasecmp(name, "unknown", 7) == 0 ? 7 : 3;
    return name[strspn(name, "_0123456789")] == '\0';
}

/* The name that the model gives dimension `at`; NULL: none. */
static const char *param_of(const Onnx__ValueInfoProto *info, size_t at) {
    const Onnx__TensorShapeProto__Dimension *dim = info->type->tensor_type->shape->dim[at];
    const bool named = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    return named && *onnx_text(dim->dim_param) ? dim->dim_param : NULL;
}

const char *sizes_dim_name(const Onnx__ValueInfoProto *info, size_t at, struct arena *arena) {
    const char *param = param_of(info, at);
    return param && !means_unknown(param) ? param : arena_printf(arena, "%s.%zu", onnx_text(info->name), at);
}

static const char *dim_name(const struct import *import, const Onnx__ValueInfoProto *info, size_t at) {
    return sizes_dim_name(info, at, import->arena);
}

static const struct size *find(const struct sizes *sizes, const char *name) {
    int at = map_find(&sizes->index, name);
    return at < 0 ? NULL : &sizes->all.at[at];
}

/* What options say of dimension `at`: --dim may also give the size of all that have the same name for an unknown
 * one. */
static const struct size *find_dim(const struct sizes *sizes, const Onnx__ValueInfoProto *info, size_t at) {
    const char *param = param_of(info, at);
    const struct size *known = find(sizes, dim_name(sizes->import, info, at));
    return known || !param ? known : find(sizes, param);
}

/* The value of a size in the graph: of an open one that of the specimen. */
static int64_t value_of(struct import *import, const char *name, const struct open_range *range) {
    if (!open_is_range(range)) return range->most;
    if (!import->graph->open) import->graph->open = open_new(import->arena, import->options->specimen);
    if (import->graph->open->all.n == OPEN_SIZES) {
        diag_error(import->diags, 439, EXIT_UNSUPPORTED, name, "at most %d sizes can be open", OPEN_SIZES);
        diag_help(import->diags, "--dim NAME=SIZE gives one size");
        return range->most;
    }
    return open_add(import->graph->open, name, range);
}

static void set(struct sizes *sizes, const char *name, int64_t size, const struct open_range *range,
                const char *option) {
    map_set(&sizes->index, name, sizes->all.n);
    VEC_PUSH(sizes->import->arena, &sizes->all, ((struct size){name, size, *range, option}));
}

/* Takes a size that is not given for an open one. */
static int64_t guess(struct sizes *sizes, const char *name) {
    static const struct open_range any = {0, MOST_GUESSED, 1, MOST_GUESSED};
    struct import *import = sizes->import;
    if (!import->equalities->guess || (import->graph->open && import->graph->open->all.n == OPEN_SIZES)) return OPEN;
    set(sizes, name, value_of(import, name, &any), &any, NULL);
    import->equalities->guessed++;
    return sizes->all.at[sizes->all.n - 1].size;
}

static int64_t named_size(struct sizes *sizes, const char *name, size_t length, const char **unknown);

/* Note [Equal sizes]. */
static int64_t equal_size(struct sizes *sizes, const struct equality *equality, const char **unknown) {
    struct open_sizes *from = equality->from;
    int64_t values[OPEN_SIZES] = {0};
    for (int i = 0; i < from->all.n; i++) {
        const char *name = from->all.at[i].name;
        if (!open_reads(from, equality->value, i)) continue;
        values[i] = named_size(sizes, name, strlen(name), unknown);
        if (values[i] == OPEN) values[i] = guess(sizes, name);
        if (values[i] == OPEN) return *unknown = *unknown ? *unknown : name, OPEN;
    }
    return open_again(sizes->import->graph->open, from, equality->value, values);
}

/* The size of a name that is no expression; OPEN: it has none. *unknown: a name that it follows from and that has no
 * size; else unchanged. */
static int64_t named_size(struct sizes *sizes, const char *name, size_t length, const char **unknown) {
    const struct equality *equality = equality_of(sizes->import->equalities, name, length);
    if (equality) return equal_size(sizes, equality, unknown);
    const int at = map_get(&sizes->index, name, length);
    return at < 0 ? OPEN : sizes->all.at[at].size;
}

struct reader {
    struct sizes *sizes;
    const char *unknown; /* of named_size */
};

static bool value_of_name(void *context, const char *name, size_t length, int64_t *out) {
    struct reader *reader = context;
    return (*out = named_size(reader->sizes, name, length, &reader->unknown)) != OPEN;
}

/* The operators of formulas whose results other sizes of the specimen change. */
static const struct {
    char op;
    int64_t (*apply)(struct open_sizes *open, int64_t a, int64_t b);
} varying[] = {{'+', open_sum}, {'/', open_quotient}, {'%', open_rest}, {'<', open_lesser}, {'>', open_greater}};

static bool apply(void *context, char op, int64_t a, int64_t b, int64_t *out) {
    const struct reader *reader = context;
    if (!rt_formula_apply(op, a, b, out)) return false;
    for (size_t i = 0; i < sizeof varying / sizeof *varying; i++)
        if (varying[i].op == op) *out = varying[i].apply(reader->sizes->import->graph->open, a, b);
    return true;
}

/* The size of a name that is an expression; OPEN if a name in it has no size or if it is none. *unknown: that name. */
static int64_t expression_size(struct sizes *sizes, const char *name, const char **unknown) {
    struct reader reader = {sizes, NULL};
    const struct rt_formula formula = {value_of_name, apply, &reader};
    const char *missing;
    size_t length;
    int64_t value;
    *unknown = NULL;
    if (!strpbrk(name, "+-*/%(") && (*name < '0' || *name > '9')) return OPEN;
    const enum rt_formula_status status = rt_formula_read(&formula, name, &value, &missing, &length);
    if (status == RT_FORMULA_UNKNOWN)
        *unknown = reader.unknown ? reader.unknown : arena_copy(sizes->import->arena, missing, length);
    return status == RT_FORMULA_OK && value >= 0 ? value : OPEN;
}

/* The size of dimension `at` of an input, by name; OPEN: it has none, *missing is the name that needs one. */
static int64_t size_or_missing(struct sizes *sizes, const Onnx__ValueInfoProto *info, size_t at, const char **missing) {
    const char *name = dim_name(sizes->import, info, at), *param = param_of(info, at), *unknown = NULL;
    int64_t size = named_size(sizes, name, strlen(name), &unknown);
    if (size == OPEN && param) size = named_size(sizes, param, strlen(param), &unknown);
    if (size == OPEN && !unknown) size = expression_size(sizes, name, &unknown);
    *missing = unknown ? unknown : name;
    return size;
}

int64_t sizes_of(struct sizes *sizes, const Onnx__ValueInfoProto *info, size_t at) {
    const Onnx__TensorShapeProto__Dimension *dim = info->type->tensor_type->shape->dim[at];
    const char *missing;
    int64_t size = OPEN;
    if (sizes_is_number(dim)) return dim->dim_value;
    while ((size = size_or_missing(sizes, info, at, &missing)) == OPEN && guess(sizes, missing) != OPEN) continue;
    return size;
}

int64_t sizes_undeclared(struct sizes *sizes, const Onnx__ValueInfoProto *info, const struct import_shape *given,
                         size_t at) {
    const char *name = arena_printf(sizes->import->arena, "%s.%zu", onnx_text(info->name), at), *unknown = NULL;
    const struct equality *equality = equality_of(sizes->import->equalities, name, strlen(name));
    if (equality) return equal_size(sizes, equality, &unknown);
    return value_of(sizes->import, name, &given->sizes[at]);
}

bool sizes_bind(struct sizes *sizes, const Onnx__ValueInfoProto *info, int ndim, const int64_t *dims) {
    struct import *import = sizes->import;
    const Onnx__TensorShapeProto *shape = info->type->tensor_type->shape;
    if (!shape) return true;
    if ((int)shape->n_dim != ndim) return false;
    for (int d = 0; d < ndim; d++) {
        int64_t size = sizes_of(sizes, info, (size_t)d);
        bool open = size == OPEN && !sizes_is_number(shape->dim[d]);
        if (!open && size != dims[d]) return false;
        if (open)
            set(sizes, dim_name(import, info, (size_t)d), dims[d], &(struct open_range){dims[d], dims[d], 1, dims[d]},
                arena_printf(import->arena, "--bind %s", onnx_text(info->name)));
    }
    return true;
}

/* Collects the names of symbolic dimensions, so that --dim with an unknown name is an error. */
static void note_names(struct sizes *sizes, Onnx__ValueInfoProto *const *infos, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const Onnx__TypeProto__Tensor *type = sizes_tensor_type(infos[i]);
        for (size_t d = 0; type && type->shape && d < type->shape->n_dim; d++) {
            if (sizes_is_number(type->shape->dim[d])) continue;
            const char *name = dim_name(sizes->import, infos[i], d), *param = param_of(infos[i], d);
            map_set(&sizes->used, name, 1);
            if (param) map_set(&sizes->used, param, 1);
            for (const char *word = name; *word; word += strspn(word, OPERATORS)) {
                const size_t length = strcspn(word, OPERATORS);
                map_put(&sizes->used, word, length, 1);
                word += length;
            }
        }
    }
}

static void take_dims(struct sizes *sizes) {
    struct import *import = sizes->import;
    EACH(import->options->dims, import->options->ndims, i, const struct import_dim *dim) {
        set(sizes, dim->name, OPEN, &dim->range,
            arena_printf(import->arena, "--dim %s=%s", dim->name, open_range_text(import->arena, &dim->range)));
        if (map_find(&sizes->used, dim->name) >= 0) continue;
        diag_error(import->diags, 201, EXIT_USAGE, import->model->place, "--dim: the model has no dimension %s",
                   diag_quote(import->diags, dim->name));
    }
}

static const char *shape_option(struct arena *arena, const struct import_shape *shape) {
    struct strbuf text = {.arena = arena};
    strbuf_printf(&text, "--shape %s=", shape->input);
    for (int d = 0; d < shape->ndim; d++)
        strbuf_printf(&text, "%s%s", d ? "," : "", open_range_text(arena, &shape->sizes[d]));
    return strbuf_text(&text);
}

/* Gives the dimensions of one input their sizes, until one contradicts what is known. */
static int take_shape(struct sizes *sizes, const Onnx__ValueInfoProto *info, const struct import_shape *given) {
    struct import *import = sizes->import;
    const Onnx__TypeProto__Tensor *type = sizes_tensor_type(info);
    const char *option = shape_option(import->arena, given), *where = onnx_where(import->model, "input", info->name);
    if (given->ndim < 0)
        return diag_error(import->diags, 201, EXIT_USAGE, where,
                          "--shape: a tensor of a sequence takes sizes or scalar");
    if (!type || !type->shape) return 0;
    if ((int)type->shape->n_dim != given->ndim)
        return diag_error(import->diags, 201, EXIT_USAGE, where, "%s: the input has %zu dimension(s), not %d", option,
                          type->shape->n_dim, given->ndim);
    EACH_VALUE(type->shape->dim, given->ndim, d, const Onnx__TensorShapeProto__Dimension *dim) {
        const char *size = open_range_text(import->arena, &given->sizes[d]);
        if (sizes_is_number(dim)) {
            if (dim->dim_value == given->sizes[d].most && !open_is_range(&given->sizes[d])) continue;
            return diag_error(import->diags, 201, EXIT_USAGE, where, "%s: dimension %d of the input is %lld, not %s",
                              option, d, (long long)dim->dim_value, size);
        }
        const char *name = dim_name(import, info, (size_t)d);
        const struct size *known = find_dim(sizes, info, (size_t)d);
        if (!known)
            set(sizes, name, OPEN, &given->sizes[d], option);
        else if (memcmp(&known->range, &given->sizes[d], sizeof known->range) != 0)
            return diag_error(import->diags, 201, EXIT_USAGE, where, "%s contradicts %s: dimension %s is %s or %s",
                              option, known->option, diag_quote(import->diags, name), size,
                              open_range_text(import->arena, &known->range));
    }
    return 0;
}

const struct import_shape *sizes_shape(const struct sizes *sizes, const char *input) {
    const struct import_options *options = sizes->import->options;
    for (int i = 0; i < options->nshapes; i++)
        if (options->shapes[i].ndim >= 0 && strcmp(options->shapes[i].input, input) == 0) return &options->shapes[i];
    return NULL;
}

void import_no_input(struct import *import, const char *option, const char *name) {
    const char **names = ARENA_ARRAY(import->arena, const char *, import->ports.n + 1), *listed = "";
    for (int i = 0; i < import->ports.n; i++) {
        names[i] = onnx_text(import->ports.at[i]->name);
        if (i < 8)
            listed = arena_printf(import->arena, "%s%s%s", listed, i ? ", " : "", diag_quote(import->diags, names[i]));
    }
    const char *near = str_nearest(name, names);
    diag_error(import->diags, 201, EXIT_USAGE, import->model->place, "%s: the model has no input %s", option,
               diag_quote(import->diags, name));
    if (near) diag_help(import->diags, "did you mean %s?", diag_quote(import->diags, near));
    if (!near && *listed) diag_help(import->diags, "its inputs are %s%s", listed, import->ports.n > 8 ? ", .." : "");
}

static void take_shapes(struct sizes *sizes) {
    struct import *import = sizes->import;
    EACH(import->options->shapes, import->options->nshapes, i, const struct import_shape *shape) {
        int k = 0, b = 0;
        while (k < import->ports.n && strcmp(onnx_text(import->ports.at[k]->name), shape->input) != 0) k++;
        while (b < import->boundaries.n && strcmp(import->boundaries.at[b].name, shape->input) != 0) b++;
        if (k < import->ports.n)
            take_shape(sizes, import->ports.at[k], shape);
        else if (b == import->boundaries.n)
            import_no_input(import, "--shape", shape->input);
    }
}

/* Both ranges: the sizes that are in each. False if there are none, or steps differ. */
static bool meet(struct open_range *range, const struct open_range *other) {
    const struct open_range coarse = range->step >= other->step ? *range : *other;
    const struct open_range fine = range->step >= other->step ? *other : *range;
    if (coarse.step % fine.step || (coarse.least - fine.least) % fine.step) return false;
    const int64_t least = coarse.least > fine.least ? coarse.least : fine.least;
    range->least = coarse.least + (least - coarse.least + coarse.step - 1) / coarse.step * coarse.step;
    range->most = coarse.most < fine.most ? coarse.most : fine.most;
    range->most = range->least + (range->most - range->least) / coarse.step * coarse.step;
    range->step = coarse.step;
    if (range->typical > range->most || range->typical < range->least) range->typical = range->most;
    return range->least <= range->most;
}

static int contradicts(struct import *import, const struct size *size, const char *other, const char *range) {
    return diag_error(import->diags, 201, EXIT_USAGE, import->model->place,
                      "%s contradicts %s, which is %s: they are equal", size->option, other, range);
}

/* The range that options give the size, and those that are the same. */
static struct open_range whole_range(const struct sizes *sizes, const struct size *size) {
    struct import *import = sizes->import;
    struct open_range range = size->range;
    VEC_EACH(&import->equalities->all, i, const struct equality *equality) {
        const char *other = equality_other(equality);
        const struct size *same = other && strcmp(other, size->name) == 0 ? find(sizes, equality->name) : NULL;
        if (!same) continue;
        const struct open_range of = whole_range(sizes, same);
        if (!meet(&range, &of))
            contradicts(import, same, diag_quote(import->diags, size->name),
                        open_range_text(import->arena, &size->range));
    }
    return range;
}

/* Checks the bounds that are given for a size that follows from others. */
static void take_bounds(struct sizes *sizes, const struct size *size) {
    struct import *import = sizes->import;
    struct open_sizes *open = import->graph->open;
    const int64_t least = open_least(open, size->size), most = open_most(open, size->size);
    if (size->range.least > most || size->range.most < least)
        contradicts(import, size, open_text(open, import->arena, size->size, NULL, false),
                    open_range_text(import->arena, &(struct open_range){least, most, 1, most}));
}

/* The value of a size that follows from others, by Note [Equal sizes] or by its name; OPEN: it is one of its own. */
static int64_t value_that_follows(struct sizes *sizes, const struct size *size) {
    const char *unknown = NULL;
    if (!equality_of(sizes->import->equalities, size->name, strlen(size->name)))
        return expression_size(sizes, size->name, &unknown);
    return named_size(sizes, size->name, strlen(size->name), &unknown);
}

/* Gives what has bounds its value in the graph: first sizes of their own, in the order in which they are given. */
static void take_values(struct sizes *sizes) {
    struct import *import = sizes->import;
    for (int follows = 0; follows < 2; follows++)
        VEC_EACH(&sizes->all, i, struct size *const size) {
            const bool equal = equality_of(import->equalities, size->name, strlen(size->name));
            if (follows != (equal || strpbrk(size->name, OPERATORS))) continue;
            if (follows && (size->size = value_that_follows(sizes, size)) != OPEN) {
                take_bounds(sizes, size);
            } else if (!equal) {
                const struct open_range range = whole_range(sizes, size);
                size->size = value_of(import, size->name, &range);
            }
        }
}

void sizes_init(struct sizes *sizes, struct import *import) {
    const Onnx__GraphProto *graph = import->model->proto->graph;
    *sizes = (struct sizes){.import = import};
    map_init(&sizes->index, import->arena);
    map_init(&sizes->used, import->arena);
    map_init(&sizes->open, import->arena);
    note_names(sizes, import->ports.at, (size_t)import->ports.n);
    note_names(sizes, graph->output, graph->n_output);
    note_names(sizes, graph->value_info, graph->n_value_info);
    take_dims(sizes);
    take_shapes(sizes);
    take_values(sizes);
}

void sizes_limit(struct sizes *sizes) {
    const struct equalities *equalities = sizes->import->equalities;
    VEC_EACH(&equalities->limits, i, const struct limited *limited) {
        const struct equality same = {NULL, limited->from, limited->limit.value};
        const char *unknown = NULL;
        const int64_t value = equal_size(sizes, &same, &unknown);
        if (open_is(sizes->import->graph->open, value))
            open_limit(sizes->import->graph->open, value, limited->limit.most);
    }
}

void sizes_miss(struct sizes *sizes, int at) {
    const Onnx__ValueInfoProto *info = sizes->import->ports.at[at];
    const Onnx__TensorShapeProto *shape = info->type->tensor_type->shape;
    int before = sizes->open.n;
    if (sizes_shape(sizes, onnx_text(info->name))) return; /* it was refused */
    for (size_t d = 0; d < shape->n_dim; d++) {
        if (sizes_is_number(shape->dim[d]) || sizes_of(sizes, info, d) != OPEN) continue;
        const char *name;
        size_or_missing(sizes, info, d, &name);
        if (map_find(&sizes->open, name) < 0) map_set(&sizes->open, name, 1);
    }
    if (sizes->open.n > before) VEC_PUSH(sizes->import->arena, &sizes->open_inputs, at);
}

/* The dimensions of an input, as "[batch, seq, 16]". */
static const char *dims_text(const struct sizes *sizes, const Onnx__ValueInfoProto *info) {
    const Onnx__TensorShapeProto *shape = info->type->tensor_type->shape;
    struct strbuf text = {.arena = sizes->import->arena};
    for (size_t d = 0; d < shape->n_dim; d++) {
        strbuf_puts(&text, d ? ", " : "[");
        if (sizes_is_number(shape->dim[d]))
            strbuf_printf(&text, "%lld", (long long)shape->dim[d]->dim_value);
        else
            strbuf_puts(&text, dim_name(sizes->import, info, d));
    }
    strbuf_puts(&text, "]");
    return strbuf_text(&text);
}

/* Adds " --shape INPUT=.." with the sizes that are known, and 8 for those that are not. */
static void add_shape(struct strbuf *text, struct sizes *sizes, const Onnx__ValueInfoProto *info) {
    const Onnx__TensorShapeProto *shape = info->type->tensor_type->shape;
    struct strbuf word = {.arena = sizes->import->arena};
    for (size_t d = 0; d < shape->n_dim; d++) {
        const bool number = sizes_is_number(shape->dim[d]);
        const struct size *known = number ? NULL : find_dim(sizes, info, d);
        const int64_t size = open_typical(sizes->import->graph->open, sizes_of(sizes, info, d));
        const struct open_range range = known ? known->range : open_fixed(size == OPEN ? 8 : size);
        strbuf_printf(&word, "%s%s", d ? "," : arena_printf(sizes->import->arena, "%s=", onnx_text(info->name)),
                      open_range_text(sizes->import->arena, &range));
    }
    strbuf_puts(text, " --shape ");
    strbuf_shell(text, strbuf_text(&word));
}

/* True for names that say nothing to the user: torch's "s77" and "input_ids_dynamic_axes_1", and "INPUT.0" of this file
 * for dimensions without a name. */
static bool is_machine_made(const char *name) {
    static const char *const patterns[] = {"s[0-9]*", "*_dynamic_axes_[0-9]*", "*.[0-9]*"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (fnmatch(patterns[i], name, 0) == 0) return true;
    return false;
}

/* Options that give the sizes, each with a blank in front. decoder: those of one with caches; NULL: it is none. Names
 * that only a machine knows (`by_input`) come last. */
static void suggest(struct import *import, const char *dims, const char *shapes, bool by_input, const char *decoder) {
    const bool ready = import->options->command && import->diags->errors == 1; /* the command has no other error */
    if (decoder) diag_help(import->diags, "keep a decoder's caches from step to step:%s", decoder);
    if (decoder && import->options->state) return;
    if (!by_input) diag_help(import->diags, "%sgive sizes, such as%s", decoder ? "or " : "", dims);
    diag_help(import->diags, "%s by input%s %s%s", by_input && !decoder ? "give sizes" : "or",
              by_input ? ", such as" : ":", ready ? import->options->command : "", shapes + (ready ? 0 : 1));
    if (by_input) diag_help(import->diags, "or by name:%s", dims);
}

void sizes_report(struct sizes *sizes, const char *decoder) {
    struct import *import = sizes->import;
    bool by_input = false;
    if (!sizes->open.n) return;
    struct strbuf names = {.arena = import->arena}, dims = {.arena = import->arena}, shapes = {.arena = import->arena};
    EACH(sizes->open.entries, sizes->open.n, i, const struct map_entry *entry) {
        strbuf_printf(&names, "%s%s", i ? ", " : "", diag_quote(import->diags, entry->key));
        const char *name = str_escape(import->arena, entry->key, entry->length, 120);
        strbuf_printf(&dims, " --dim %s=8", name);
        by_input = by_input || is_machine_made(name);
    }
    bool one = sizes->open.n == 1;
    diag_error(import->diags, 343, EXIT_USAGE, import->model->place, "the size%s of dimension%s %s %s not given",
               one ? "" : "s", one ? "" : "s", strbuf_text(&names), one ? "is" : "are");
    for (int i = 0; i < sizes->open_inputs.n; i++) {
        const Onnx__ValueInfoProto *info = import->ports.at[sizes->open_inputs.at[i]];
        add_shape(&shapes, sizes, info);
        if (i < MOST_SHOWN)
            diag_note(import->diags, "input %s is %s", diag_quote(import->diags, info->name), dims_text(sizes, info));
    }
    if (sizes->open_inputs.n > MOST_SHOWN)
        diag_note(import->diags, "%d more input(s) have such dimensions", sizes->open_inputs.n - MOST_SHOWN);
    suggest(import, strbuf_text(&dims), strbuf_text(&shapes), by_input, decoder);
}
