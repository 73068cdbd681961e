#include "frontend/config/generation.h"

#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/base/own.h"
#include "ir/base/str.h"
#include "ir/build.h"
#include "runtime/base/io/file.h"
#include "runtime/base/roles.h"

/* Greatest token id, most ids of a list, most kinds of caches, largest file. */
enum { MOST_ID = INT32_MAX, MOST_IDS = 1 << 16, MOST_KINDS = 16, MOST_BYTES = 16 << 20 };

static const struct role_name {
    const char *pattern;
    enum rt_role role;
} role_names[] = {
#define NAME(pattern, ROLE) {pattern, RT_ROLE_##ROLE},
#include "frontend/config/role_names.def"
#undef NAME
};

struct reader {
    struct arena *arena;
    struct diags *diags;
    const char *directory; /* ends with '/' */
    const char *path;      /* of the file that is read, quoted */
    struct generation *out;
};

static int wrong(const struct reader *reader, const char *key, const char *must) {
    return diag_error(reader->diags, 395, EXIT_MALFORMED, reader->path, "%s must be %s", key, must);
}

/* Some configurations say -1 for none. */
static bool is_absent(const struct rt_json *value) {
    int64_t number = 0;
    return !value || value->kind == RT_JSON_NULL || (rt_json_int(value, &number) && number == -1);
}

static bool is_id(const struct rt_json *value, int64_t *out) {
    int64_t id;
    if (!rt_json_int(value, &id) || id < 0 || id > MOST_ID) return false;
    *out = id;
    return true;
}

/* A list, or a single id; what another file has said stays. */
static int read_ids(const struct reader *reader, const struct rt_json *from, const char *key, struct id_list *out) {
    const struct rt_json *value = rt_json_member(from, key);
    const bool one = value && value->kind == RT_JSON_INT;
    if (is_absent(value) || out->all.n) return 0;
    if (!one && (value->kind != RT_JSON_ARRAY || value->count > MOST_IDS))
        return wrong(reader, key, "a token id or a list of them");
    for (const struct rt_json *item = one ? value : value->first; item; item = one ? NULL : item->next) {
        int64_t id;
        if (!is_id(item, &id)) return wrong(reader, key, "a token id or a list of them");
        VEC_PUSH(reader->arena, &out->all, id);
    }
    return 0;
}

/* One id; -1 before: no file has said it. A list, as of eos_token_id, is read by its first. */
static int read_id(const struct reader *reader, const struct rt_json *from, const char *key, int64_t *out) {
    const struct rt_json *value = rt_json_member(from, key);
    if (is_absent(value) || *out >= 0) return 0;
    if (value->kind == RT_JSON_ARRAY) value = value->first;
    return is_id(value, out) ? 0 : wrong(reader, key, "a token id");
}

/* A number above 0 under the first of the keys that is there; what another file has said stays. */
static int read_number(const struct reader *reader, const struct rt_json *from, const char *const *keys, int64_t *out) {
    for (int i = 0; keys[i] && !*out; i++) {
        const struct rt_json *value = rt_json_member(from, keys[i]);
        int64_t number;
        if (is_absent(value)) continue;
        if (!rt_json_int(value, &number) || number < 1 || number > MOST_ID)
            return wrong(reader, keys[i], "a whole number from 1 to 2147483647");
        *out = number;
    }
    return 0;
}

/* Numbers have keys that differ between families. */
static int read_numbers(const struct reader *reader, const struct rt_json *from) {
    static const char *const contexts[] = {"max_position_embeddings", "n_positions", "max_target_positions", "n_ctx",
                                           "context_length",          NULL};
    static const char *const sizes[] = {"head_dim", "head_size", NULL};
    return read_number(reader, from, contexts, &reader->out->context) < 0 ||
                   read_number(reader, from, sizes, &reader->out->head_size) < 0
               ? -1
               : 0;
}

/* forced_decoder_ids: [[1, ID], [2, ID] ..] follow the start token; an entry without an id ends them. */
static int read_forced(const struct reader *reader, const struct rt_json *from) {
    const struct rt_json *list = rt_json_member(from, "forced_decoder_ids");
    struct generation *out = reader->out;
    if (is_absent(list) || out->start.all.n != 1) return 0;
    if (list->kind != RT_JSON_ARRAY || list->count > MOST_IDS)
        return wrong(reader, "forced_decoder_ids", "a list of [place, token id]");
    for (const struct rt_json *pair = list->first; pair; pair = pair->next) {
        int64_t place, id;
        if (pair->kind != RT_JSON_ARRAY || pair->count != 2 || !rt_json_int(pair->first, &place))
            return wrong(reader, "forced_decoder_ids", "a list of [place, token id]");
        if (place != out->start.all.n || is_absent(pair->first->next)) return 0;
        if (!is_id(pair->first->next, &id)) return wrong(reader, "forced_decoder_ids", "a list of [place, token id]");
        VEC_PUSH(reader->arena, &out->start.all, id);
    }
    return 0;
}

static int read_start(const struct reader *reader, const struct rt_json *from) {
    int64_t start = -1;
    if (reader->out->start.all.n) return 0;
    if (read_id(reader, from, "decoder_start_token_id", &start) < 0) return -1;
    if (start >= 0) VEC_PUSH(reader->arena, &reader->out->start.all, start);
    return 0;
}

static int read_object(const struct reader *reader, const struct rt_json *from) {
    struct generation *out = reader->out;
    if (read_ids(reader, from, "eos_token_id", &out->end) < 0 || read_id(reader, from, "pad_token_id", &out->pad) < 0 ||
        read_ids(reader, from, "suppress_tokens", &out->suppress) < 0 ||
        read_ids(reader, from, "begin_suppress_tokens", &out->suppress_first) < 0 || read_start(reader, from) < 0 ||
        read_forced(reader, from) < 0)
        return -1;
    return read_numbers(reader, from);
}

/* A name of genai_config.json as a pattern: "past.%d.key" is "past.*.key". NULL: --state cannot have it. */
static const char *pattern_of(struct arena *arena, const char *name) {
    const char *number = name ? strstr(name, "%d") : NULL;
    if (!number || strpbrk(name, "*=,") || strchr(number + 1, '%')) return NULL;
    return arena_printf(arena, "%.*s*%s", (int)(number - name), name, number + 2);
}

/* inputs.past_KIND_names with outputs.present_KIND_names. */
static void read_state_names(const struct reader *reader, const struct rt_json *decoder) {
    static const char past[] = "past_", end[] = "_names";
    const struct rt_json *inputs = rt_json_member(decoder, "inputs"), *outputs = rt_json_member(decoder, "outputs");
    int kinds = 0;
    if (!inputs || inputs->kind != RT_JSON_OBJECT) return;
    for (const struct rt_json *value = inputs->first; value && kinds < MOST_KINDS; value = value->next) {
        const size_t length = strlen(value->key);
        if (length < sizeof past + sizeof end - 2 || strncmp(value->key, past, sizeof past - 1) ||
            strcmp(value->key + length - (sizeof end - 1), end))
            continue;
        const char *key = arena_printf(reader->arena, "present_%s", value->key + sizeof past - 1);
        const char *input = pattern_of(reader->arena, rt_json_text(value));
        const char *output = pattern_of(reader->arena, rt_json_text(rt_json_member(outputs, key)));
        const char *before = reader->out->state_names;
        if (!input || !output) continue;
        reader->out->state_names =
            arena_printf(reader->arena, "%s%s%s=%s", before ? before : "", before ? "," : "", input, output);
        kinds++;
    }
}

/* The members that say something: all of the file, its "text_config", or its "model" and what is in it. */
static int read_root(const struct reader *reader, const struct rt_json *root) {
    if (root->kind != RT_JSON_OBJECT)
        return diag_error(reader->diags, 395, EXIT_MALFORMED, reader->path, "the file is no JSON object");
    const struct rt_json *model = rt_json_member(root, "model");
    const struct rt_json *const inner[] = {root, rt_json_member(root, "text_config"), model,
                                           rt_json_member(model, "decoder")};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (read_object(reader, inner[i]) < 0) return -1;
    read_state_names(reader, rt_json_member(model, "decoder"));
    return 0;
}

static int read_file(struct reader *reader, const char *name) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    const char *path = arena_printf(reader->arena, "%s%s", reader->directory, name);
    if (access(path, F_OK)) return 0;
    reader->path = diag_quote(reader->diags, path);
    if (!own_file(reader->arena, path, MOST_BYTES, &bytes, &count, &why))
        return diag_refusal(reader->diags, 395, EXIT_MALFORMED, reader->path, &why);
    struct rt_json_document *document = rt_json_parse_python(bytes, count, &why);
    arena_release(reader->arena, bytes);
    if (!document) return diag_refusal(reader->diags, 395, EXIT_MALFORMED, reader->path, &why);
    const int status = read_root(reader, rt_json_root(document));
    rt_json_free(document);
    return status;
}

/* The directory may have links, and the file itself may be one. */
static int find_tokenizer(struct reader *reader) {
    char directory[PATH_MAX];
    if (access(arena_printf(reader->arena, "%stokenizer.json", reader->directory), F_OK)) return 0;
    if (!realpath(reader->directory, directory)) return diag_errno(reader->diags, 601, NULL, "open", reader->directory);
    reader->out->tokenizer = arena_printf(reader->arena, "%s/tokenizer.json", directory);
    return 0;
}

static int read_directory(struct reader *reader) {
    static const char *const files[] = {"generation_config.json", "genai_config.json", "config.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (read_file(reader, files[i]) < 0) return -1;
    return reader->out->tokenizer ? 0 : find_tokenizer(reader);
}

int generation_read(struct arena *arena, struct diags *diags, const char *model, struct generation *out) {
    const char *slash = strrchr(model, '/');
    const char *directory = slash ? arena_copy(arena, model, (size_t)(slash - model) + 1) : "./";
    const size_t length = strlen(directory);
    struct reader reader = {.arena = arena, .diags = diags, .directory = directory, .out = out};
    *out = GENERATION_NONE;
    if (read_directory(&reader) < 0) return -1;
    if (strcmp(directory, "onnx/") && (length < 6 || strcmp(directory + length - 6, "/onnx/"))) return 0;
    reader.directory = arena_printf(arena, "%s../", directory);
    return read_directory(&reader);
}

enum rt_role generation_role(const char *name, bool decoder_ids) {
    enum rt_role role = RT_ROLE_NONE;
    for (size_t i = 0; i < sizeof role_names / sizeof *role_names && !role; i++)
        if (fnmatch(role_names[i].pattern, name, 0) == 0) role = role_names[i].role;
    return role == RT_ROLE_MASK && decoder_ids && !strstr(name, "decoder_") ? RT_ROLE_ENCODER_MASK : role;
}

static bool continues(const char *name, const char *beginning, const char **rest) {
    *rest = name + strlen(beginning);
    return strncmp(name, beginning, strlen(beginning)) == 0;
}

bool generation_carries(const char *output, const char *input) {
    static const struct {
        const char *input, *output;
    } carried[] = {
#define CARRIED(input, output) {input, output},
#include "frontend/config/carried_names.def"
#undef CARRIED
    };
    const char *left, *right;
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
        if (continues(input, carried[i].input, &left) && continues(output, carried[i].output, &right) &&
            strcmp(left, right) == 0)
            return true;
    return false;
}

static void put_ids(struct rt_json_writer *writer, const char *key, const struct id_list *ids) {
    if (!ids->all.n) return;
    rt_json_key_open(writer, key, '[', RT_JSON_INLINE);
    for (int i = 0; i < ids->all.n; i++) rt_json_put_int(writer, ids->all.at[i]);
    rt_json_close(writer, ']');
}

/* The output of that name, else the first with floats; -1: none. */
static int logits_of(const struct graph *graph) {
    int found = -1;
    for (int i = graph->outputs.n - 1; i >= 0; i--) {
        if (fnmatch("*logits", graph->output_names.at[i], 0) == 0) return i;
        if (rt_dtype_is_float(graph->tensors.at[graph->outputs.at[i]].dtype)) found = i;
    }
    return found;
}

int generation_keep_last(struct graph *graph, struct diags *diags) {
    struct build builder = {graph, diags, NULL};
    const int output = logits_of(graph), logits = output < 0 ? -1 : graph->outputs.at[output];
    if (logits < 0 || graph->tensors.at[logits].ndim != 3 || graph->tensors.at[logits].dims[1] < 1) return 0;
    builder.node = graph->output_names.at[output];
    const int last =
        build_piece(&builder, logits, 1, open_sum(graph->open, graph->tensors.at[logits].dims[1], -1), 1, 1);
    if (last < 0) return -1;
    graph->outputs.at[output] = last;
    return 0;
}

void generation_put_roles(struct rt_json_writer *writer, const struct graph *graph) {
    const int logits = logits_of(graph);
    bool decoder_ids = false;
    for (int i = 0; i < graph->inputs.n; i++)
        decoder_ids = decoder_ids || !strcmp(graph->tensors.at[graph->inputs.at[i]].name, "decoder_input_ids");
    rt_json_key_open(writer, "roles", '{', RT_JSON_LINES);
    for (int i = 0; i < graph->inputs.n; i++) {
        const char *name = graph->tensors.at[graph->inputs.at[i]].name;
        const enum rt_role role = generation_role(name, decoder_ids);
        if (role) rt_json_key_text(writer, name, rt_role_row(role)->word);
    }
    rt_json_close(writer, '}');
    if (logits >= 0) rt_json_key_text(writer, "logits", graph->output_names.at[logits]);
}

void generation_put(struct rt_json_writer *writer, const struct generation *generation) {
    put_ids(writer, "start", &generation->start);
    put_ids(writer, "end", &generation->end);
    put_ids(writer, "suppress", &generation->suppress);
    put_ids(writer, "suppress_first", &generation->suppress_first);
    if (generation->pad >= 0) rt_json_key_int(writer, "pad", generation->pad);
    if (generation->context) rt_json_key_int(writer, "context", generation->context);
}
