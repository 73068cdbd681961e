/* --state: inputs that become state, whose new value is an output (Note [State] in passes/rewrite/state.c). */
#include <string.h>

#include "frontend/import/import_equal.h"
#include "frontend/import/import_sizes.h"
#include "frontend/import/import_state.h"
#include "ir/base/str.h"

struct pattern {
    const char *input, *output; /* at most one "*" each */
};

static const struct pattern usual[] = {
#define PAIR(input, output) {input, output},
#include "frontend/import/import_pairs.def"
#undef PAIR
};
enum { USUAL = sizeof usual / sizeof *usual, MOST_SAID = 4 };

struct patterns {
    VEC(struct pattern) all;
};

/* IN=OUT,.. False if it is not. */
static bool read_patterns(struct arena *arena, const char *text, struct patterns *patterns) {
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, ","), equals = strcspn(at, "=");
        if (equals >= length || equals == 0 || equals + 1 == length) return false;
        const struct pattern pattern = {arena_printf(arena, "%.*s", (int)equals, at),
                                        arena_printf(arena, "%.*s", (int)(length - equals - 1), at + equals + 1)};
        VEC_PUSH(arena, &patterns->all, pattern);
        at += length + (at[length] == ',');
    }
    return true;
}

/* Those of --state auto: what the configuration beside the model names, then the usual ones. */
static struct patterns automatic_patterns(struct arena *arena, const struct import_options *options) {
    struct patterns patterns = {0};
    if (options->state_names && !read_patterns(arena, options->state_names, &patterns)) patterns.all.n = 0;
    for (int i = 0; i < USUAL; i++) VEC_PUSH(arena, &patterns.all, usual[i]);
    return patterns;
}

/* The text that "*" stands for if the name is of the pattern; NULL: it is not. "" where the pattern has no "*". */
static const char *matched(struct arena *arena, const char *pattern, const char *name) {
    const size_t before = strcspn(pattern, "*"), length = strlen(name);
    if (!pattern[before]) return strcmp(pattern, name) ? NULL : "";
    const char *behind = pattern + before + 1;
    if (length < before + strlen(behind) || strncmp(name, pattern, before) != 0) return NULL;
    if (strcmp(name + length - strlen(behind), behind) != 0) return NULL;
    return arena_printf(arena, "%.*s", (int)(length - before - strlen(behind)), name + before);
}

static const char *filled(struct arena *arena, const char *pattern, const char *with) {
    const int before = (int)strcspn(pattern, "*");
    return arena_printf(arena, "%.*s%s%s", before, pattern, pattern[before] ? with : "",
                        pattern + before + !!pattern[before]);
}

/* Inputs of the new tokens, and of all tokens so far. */
static const char *const ids[] = {"input_ids", "decoder_input_ids", NULL};
static const char *const masks[] = {"attention_mask", "decoder_attention_mask", NULL};

static const Onnx__ValueInfoProto *input_named(const struct onnx_model *model, const char *const *names) {
    const Onnx__GraphProto *graph = model->proto->graph;
    for (; *names; names++)
        for (size_t i = 0; i < graph->n_input; i++)
            if (strcmp(onnx_text(graph->input[i]->name), *names) == 0) return graph->input[i];
    return NULL;
}

/* The name of a dimension without a number; NULL: there is none. */
static const char *symbol_at(struct arena *arena, const Onnx__ValueInfoProto *info, size_t at) {
    const Onnx__TypeProto__Tensor *type = info ? sizes_tensor_type(info) : NULL;
    if (!type || !type->shape || at >= type->shape->n_dim || sizes_is_number(type->shape->dim[at])) return NULL;
    return sizes_dim_name(info, at, arena);
}

static const struct import_dim *dim_given(const struct import_options *options, const char *name) {
    for (int i = 0; i < options->ndims; i++)
        if (strcmp(options->dims[i].name, name) == 0) return &options->dims[i];
    return NULL;
}

/* The size of a cache that is empty at first, by its bounds and by the name of the input; NULL: there is none. */
static const char *cache_size(struct arena *arena, const struct onnx_model *model,
                              const struct import_options *options) {
    const Onnx__GraphProto *graph = model->proto->graph;
    const struct patterns patterns = automatic_patterns(arena, options);
    for (size_t i = 0; i < graph->n_input; i++)
        for (int p = 0; p < patterns.all.n; p++) {
            const Onnx__ValueInfoProto *info = graph->input[i];
            if (!matched(arena, patterns.all.at[p].input, onnx_text(info->name))) continue;
            for (size_t d = 1; d < RT_MAX_NDIM; d++) {
                const char *name = symbol_at(arena, info, d);
                const struct import_dim *given = name ? dim_given(options, name) : NULL;
                if (given && open_is_range(&given->range) && !given->range.least) return name;
            }
        }
    return NULL;
}

bool import_mask_size(struct arena *arena, const struct onnx_model *model, const struct import_options *options,
                      struct equalities *equalities) {
    static const struct open_range any = {1, INT32_MAX, 1, INT32_MAX};
    if (!options->state || strcmp(options->state, "none") == 0) return false;
    const char *all = symbol_at(arena, input_named(model, masks), 1);
    const char *new = symbol_at(arena, input_named(model, ids), 1), *past = cache_size(arena, model, options);
    if (!all || !new || !past || equality_of(equalities, all, strlen(all))) return false;
    if (strcmp(all, new) == 0 || strcmp(all, past) == 0 || strpbrk(all, "+-*/")) return false;
    struct open_sizes *from = open_new(arena, options->specimen);
    const int64_t a = open_add(from, past, &any), b = open_add(from, new, &any);
    VEC_PUSH(arena, &equalities->all, ((struct equality){all, from, open_sum(from, a, b)}));
    return true;
}

/* The rows of a cache, by the name of the input, or its last dimension, of a head. */
static enum part { NO_PART, ROWS, WIDTH } part_of(const struct import *import, const char *size) {
    const struct patterns patterns = automatic_patterns(import->arena, import->options);
    for (int i = 0; i < import->ports.n; i++)
        for (int p = 0; p < patterns.all.n; p++) {
            if (!matched(import->arena, patterns.all.at[p].input, onnx_text(import->ports.at[i]->name))) continue;
            for (size_t d = 1; d < RT_MAX_NDIM; d++) {
                const char *name = symbol_at(import->arena, import->ports.at[i], d);
                if (name && strcmp(name, size) == 0)
                    return d + 1 < sizes_tensor_type(import->ports.at[i])->shape->n_dim ? ROWS : WIDTH;
            }
        }
    return NO_PART;
}

const char *import_decoder_options(const struct import *import, const struct map *missing) {
    const char *all = symbol_at(import->arena, input_named(import->model, masks), 1);
    const char *new = symbol_at(import->arena, input_named(import->model, ids), 1);
    bool any = false, width = false;
    if (import->options->train || (import->options->state && strcmp(import->options->state, "none") == 0)) return NULL;
    struct strbuf text = {.arena = import->arena};
    if (!import->options->state) strbuf_puts(&text, " --state auto");
    for (int i = 0; i < missing->n; i++) {
        const char *name = missing->entries[i].key;
        const enum part part = part_of(import, name);
        any = any || part;
        width = width || part == WIDTH;
        if (all && new &&strcmp(name, all) == 0 && strcmp(all, new) != 0) continue; /* follows from the others */
        strbuf_printf(&text, " --dim %s=%s", str_name(import->arena, name),
                      part == ROWS    ? "0..1024"
                      : part == WIDTH ? "N"
                                      : "1..16");
    }
    if (width) strbuf_puts(&text, ", N being the size of a head");
    return any ? strbuf_text(&text) : NULL;
}

static int output_named(const struct graph *graph, const char *name) {
    for (int o = 0; o < graph->outputs.n; o++)
        if (strcmp(graph->output_names.at[o], name) == 0) return o;
    return -1;
}

/* The output that the pattern gives the input; -1: none. *wanted: its name, where the input is of the pattern. */
static int output_of(const struct import *import, const struct pattern *pattern, int input, const char **wanted) {
    const struct graph *graph = import->graph;
    const char *with = matched(import->arena, pattern->input, graph->tensors.at[input].name);
    if (!with) return -1;
    *wanted = filled(import->arena, pattern->output, with);
    return output_named(graph, *wanted);
}

/* A pair as it is found. */
struct pair {
    int input, output; /* tensor; index of the output */
    const struct pattern *of;
};

struct pairs {
    struct import *import;
    struct patterns patterns;
    VEC(struct pair) all;
    VEC(struct pair) passed; /* the output is the input */
    VEC(const char *) alone; /* inputs that are of a pattern and have no output, or none of their own */
};

/* An output without elements is no new value: merged decoders have such for caches of the encoder. */
static bool fits(const struct graph *graph, int input, int output) {
    const struct tensor *past = &graph->tensors.at[input], *present = &graph->tensors.at[graph->outputs.at[output]];
    for (int d = 0; d < present->ndim; d++)
        if (present->dims[d] == 0) return false;
    return past->ndim == present->ndim && past->dtype == present->dtype;
}

static bool is_read(const struct graph *graph, int tensor) {
    for (int n = 0; n < graph->nodes.n; n++)
        for (int i = 0; i < graph->nodes.at[n].ninputs; i++)
            if (graph->nodes.at[n].inputs[i] == tensor) return true;
    return false;
}

static void find(struct pairs *pairs) {
    const struct graph *graph = pairs->import->graph;
    const struct pattern *of = pairs->patterns.all.at;
    for (int i = 0; i < graph->inputs.n; i++) {
        const char *wanted = NULL;
        int output = -1, p = 0;
        for (; p < pairs->patterns.all.n && output < 0; p++) {
            output = output_of(pairs->import, &of[p], graph->inputs.at[i], &wanted);
            if (output >= 0 && !fits(graph, graph->inputs.at[i], output)) output = -1;
        }
        const bool own = output >= 0 && graph->outputs.at[output] != graph->inputs.at[i];
        const struct pair pair = {graph->inputs.at[i], output, own ? &of[p - 1] : NULL};
        if (own)
            VEC_PUSH(pairs->import->arena, &pairs->all, pair);
        else if (output >= 0)
            VEC_PUSH(pairs->import->arena, &pairs->passed, pair);
        if (wanted && !own && (output < 0 || is_read(graph, pair.input)))
            VEC_PUSH(pairs->import->arena, &pairs->alone, graph->tensors.at[graph->inputs.at[i]].name);
    }
}

/* The names of the patterns that were met: "'past_key_values.*' and 'present.*'". */
static const char *said(const struct pairs *pairs) {
    int n = 0;
    struct strbuf out = {.arena = pairs->import->arena};
    for (int i = 0; i < pairs->all.n; i++) {
        bool before = false;
        for (int k = 0; k < i; k++) before = before || pairs->all.at[k].of == pairs->all.at[i].of;
        if (before) continue;
        strbuf_printf(&out, "%s%s to %s", n++ ? ", " : "", diag_quote(pairs->import->diags, pairs->all.at[i].of->input),
                      diag_quote(pairs->import->diags, pairs->all.at[i].of->output));
    }
    return strbuf_text(&out);
}

/* Every given pattern must name something. */
static int check_given(const struct pairs *pairs) {
    for (int p = 0; p < pairs->patterns.all.n; p++) {
        bool met = false;
        for (int i = 0; i < pairs->all.n; i++) met = met || pairs->all.at[i].of == &pairs->patterns.all.at[p];
        if (met) continue;
        return diag_error(pairs->import->diags, 441, EXIT_UNSUPPORTED, pairs->import->model->place,
                          "--state %s=%s names no input and output of one type", pairs->patterns.all.at[p].input,
                          pairs->patterns.all.at[p].output);
    }
    return 0;
}

static void remove_input(struct graph *graph, int tensor) {
    int n = 0;
    for (int i = 0; i < graph->inputs.n; i++)
        if (graph->inputs.at[i] != tensor) graph->inputs.at[n++] = graph->inputs.at[i];
    graph->inputs.n = n;
}

static void remove_outputs(struct graph *graph, const struct pairs *pairs) {
    int n = 0;
    for (int o = 0; o < graph->outputs.n; o++) {
        bool state = false;
        for (int i = 0; i < pairs->all.n; i++) state = state || pairs->all.at[i].output == o;
        for (int i = 0; i < pairs->passed.n; i++) state = state || pairs->passed.at[i].output == o;
        if (state) continue;
        graph->outputs.at[n] = graph->outputs.at[o];
        graph->output_names.at[n++] = graph->output_names.at[o];
    }
    graph->outputs.n = graph->output_names.n = n;
}

/* An output that passes a state on says nothing, nor does an input that nothing else reads. */
static int apply(struct pairs *pairs) {
    struct graph *graph = pairs->import->graph;
    if (pairs->import->options->train)
        return diag_error(pairs->import->diags, 441, EXIT_UNSUPPORTED, pairs->import->model->place,
                          "programs that train keep no state of the model's (--state)");
    if (graph->counted.n)
        return diag_error(pairs->import->diags, 441, EXIT_UNSUPPORTED, pairs->import->model->place,
                          "a model whose outputs have sizes that depend on data keeps no state");
    VEC_EACH(&pairs->all, i, const struct pair *pair) {
        graph->tensors.at[pair->input].kind = TENSOR_STATE;
        graph_add_update(graph, pair->input, graph->outputs.at[pair->output]);
        remove_input(graph, pair->input);
    }
    for (int i = 0; i < pairs->passed.n; i++)
        if (!is_read(graph, pairs->passed.at[i].input)) remove_input(graph, pairs->passed.at[i].input);
    remove_outputs(graph, pairs);
    return 0;
}

/* A merged decoder whose branch without caches was chosen (--bind use_cache_branch=false) takes none. */
static void drop_unread(struct pairs *pairs) {
    struct import *import = pairs->import;
    bool chosen = false;
    int n = 0;
    for (int i = 0; i < import->options->nbinds; i++)
        chosen = chosen || strcmp(import->options->binds[i].input, IMPORT_BRANCH) == 0;
    for (int i = 0; chosen && i < pairs->all.n; i++) {
        if (is_read(import->graph, pairs->all.at[i].input))
            pairs->all.at[n++] = pairs->all.at[i];
        else
            remove_input(import->graph, pairs->all.at[i].input);
    }
    if (chosen) pairs->all.n = n;
}

int import_pairs(struct import *import) {
    const char *text = import->options->state;
    const bool none = !text || strcmp(text, "none") == 0, automatic = none || strcmp(text, "auto") == 0;
    struct pairs pairs = {.import = import};
    if (none && (text || import->options->train)) return 0;
    if (automatic)
        pairs.patterns = automatic_patterns(import->arena, import->options);
    else if (!read_patterns(import->arena, text, &pairs.patterns))
        return diag_error(import->diags, 201, EXIT_USAGE, NULL, "--state takes auto, none or IN=OUT,.., not '%s'",
                          str_name(import->arena, text));
    find(&pairs);
    if (!automatic && check_given(&pairs) < 0) return -1;
    if (none) {
        drop_unread(&pairs);
        if (pairs.all.n)
            diag_remark(import->diags, import->model->place,
                        "%d input(s) and outputs look like state that steps keep (%s): "
                        "--state auto keeps it in memory",
                        pairs.all.n, said(&pairs));
        return 0;
    }
    if (!pairs.all.n)
        return diag_error(import->diags, 441, EXIT_UNSUPPORTED, import->model->place,
                          "no input and output have names of state; --state IN=OUT,.. names them");
    diag_remark(import->diags, import->model->place, "%d input(s) are state: %s", pairs.all.n, said(&pairs));
    for (int i = 0; i < pairs.alone.n && i < MOST_SAID; i++)
        diag_remark(import->diags, import->model->place, "input %s looks like state, but no output has its new value",
                    diag_quote(import->diags, pairs.alone.at[i]));
    return apply(&pairs);
}
