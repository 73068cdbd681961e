#include "frontend/read/onnx_weights.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/read/onnx_data.h"
#include "ir/base/own.h"
#include "ir/base/str.h"
#include "runtime/base/io/file.h"
#include "runtime/base/io/safetensors.h"

enum { MAX_MAP = 64 << 20, MAX_RULES = 1 << 20, MAX_SHARDS = 4096, MOST_NAMED = 12 };

/* A tensor of the files. */
struct source {
    const struct rt_safetensor *tensor;
    int file; /* in model->files */
    bool used;
};

/* A line of the map file. */
struct rule {
    enum rule_kind { RULE_IS, RULE_PREFIX, RULE_KEEP, RULE_IGNORE } kind;
    const char *left, *right; /* initializer and tensor; prefixes; a pattern */
    bool transpose, used;
    int line;
};

/* What an initializer is. */
struct match {
    int source; /* -1: the model's own value */
    bool transpose, kept;
};

struct weights {
    struct onnx_model *model;
    struct arena *arena;
    struct diags *diags;
    const char *place, *map_place;
    VEC(struct source) sources;
    struct map index; /* tensor name -> source */
    VEC(struct rule) rules;
    struct map exact;    /* initializer name -> rule */
    struct map products; /* name of a value -> 1: only matrix products read it, as second operand; 0: others */
};

struct onnx_weights_from onnx_weights_from(struct arena *arena, const char *option) {
    const char *map = NULL;
    for (const char *at = option; (at = strstr(at, ":map=")); at++) map = at;
    if (!map) return (struct onnx_weights_from){option, NULL};
    return (struct onnx_weights_from){arena_copy(arena, option, (size_t)(map - option)), map + 5};
}

static int fail(const struct weights *w, const char *path, const struct rt_reason *why) {
    return diag_refusal(w->diags, 393, EXIT_MALFORMED, str_name(w->arena, path), why);
}

/* Adds the file to the model's. `links`: symbolic links are followed. Returns its index. */
static int add_file(const struct weights *w, const char *path, bool links) {
    const char *place = str_name(w->arena, path);
    struct stat status;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (links ? 0 : O_NOFOLLOW));
    if (fd < 0 && errno == ELOOP && !links) {
        diag_error(w->diags, 362, EXIT_MALFORMED, place, "the file is a symbolic link");
        return diag_help(w->diags, "--allow-links accepts links");
    }
    if (fd < 0) return diag_errno(w->diags, 601, place, "open", path);
    int file = -1;
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
        diag_error(w->diags, 602, EXIT_SYSTEM, place, "the file is not a regular file");
    else
        file = onnx_file_add(w->model, fd, path, NULL, place);
    close(fd);
    return file;
}

static void free_safetensors(void *file) {
    rt_safetensors_free(file);
}

/* Opens a safetensors file and parses its header. */
static const struct rt_safetensors *open_safetensors(struct weights *w, const char *path, bool links, int *file) {
    struct rt_safetensors *parsed = ARENA_NEW(w->arena, struct rt_safetensors);
    struct rt_reason why;
    if ((*file = add_file(w, path, links)) < 0) return NULL;
    const struct onnx_file *opened = &w->model->files.at[*file];
    if (!rt_safetensors_parse(parsed, opened->data, (size_t)opened->bytes, &why)) return fail(w, path, &why), NULL;
    arena_own(w->arena, parsed, free_safetensors);
    return parsed;
}

static void add_source(struct weights *w, const struct rt_safetensor *tensor, int file) {
    map_set(&w->index, tensor->name, w->sources.n);
    VEC_PUSH(w->arena, &w->sources, ((struct source){.tensor = tensor, .file = file}));
}

static int open_one(struct weights *w, const char *path) {
    int file;
    const struct rt_safetensors *parsed = open_safetensors(w, path, true, &file);
    for (int64_t i = 0; parsed && i < parsed->n; i++) add_source(w, &parsed->at[i], file);
    return parsed ? 0 : -1;
}

static int bad_index(const struct weights *w, const struct rt_json *at, const char *what, const char *name) {
    const char *where = at ? diag_place(w->diags, w->place, at->line, at->column) : w->place;
    return diag_error(w->diags, 393, EXIT_MALFORMED, where, "%s%s%s", what, name ? " " : "",
                      name ? diag_quote(w->diags, name) : "");
}

/* A file that the index names. */
struct shard {
    const struct rt_safetensors *parsed;
    struct map index; /* of its tensors, by name */
    int file;
};

static int open_shard(struct weights *w, const char *path, const struct rt_json *entry, struct shard *shard) {
    const char *name = rt_json_text(entry);
    if (!name || !*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return bad_index(w, entry, "a weight is in no file of the same directory:", entry->key);
    const int prefix = (int)(strlen(path) - strlen(rt_path_name(path)));
    const char *full = arena_printf(w->arena, "%.*s%s", prefix, path, name);
    if (!(shard->parsed = open_safetensors(w, full, w->model->allow_links, &shard->file))) return -1;
    map_init(&shard->index, w->arena);
    for (int64_t i = 0; i < shard->parsed->n; i++) map_set(&shard->index, shard->parsed->at[i].name, (int)i);
    return 0;
}

static int open_index(struct weights *w, const char *path) {
    struct rt_reason why;
    struct rt_json_document *document = own_json(w->arena, path, &why);
    if (!document) return fail(w, path, &why);
    const struct rt_json *weight_map = rt_json_member(rt_json_root(document), "weight_map");
    struct map files; /* name -> index of shards */
    VEC(struct shard) shards = {0};
    map_init(&files, w->arena);
    if (!weight_map || weight_map->kind != RT_JSON_OBJECT)
        return bad_index(w, NULL, "the index has no weight_map", NULL);
    for (const struct rt_json *entry = weight_map->first; entry; entry = entry->next) {
        const char *name = rt_json_text(entry);
        int at = name ? map_find(&files, name) : -1;
        if (at < 0) {
            struct shard shard;
            if (shards.n == MAX_SHARDS) return bad_index(w, entry, "more than 4096 files", NULL);
            if (open_shard(w, path, entry, &shard) < 0) return -1;
            map_set(&files, name, at = shards.n);
            VEC_PUSH(w->arena, &shards, shard);
        }
        const struct shard *shard = &shards.at[at];
        const int tensor = map_get(&shard->index, entry->key, entry->key_bytes);
        if (tensor < 0) return bad_index(w, entry, "its file has no tensor", entry->key);
        add_source(w, &shard->parsed->at[tensor], shard->file);
    }
    return 0;
}

struct lines {
    struct weights *w;
    const char *at, *start;
    int line;
};

static int bad_line(const struct lines *lines, const char *what) {
    return diag_error(
        lines->w->diags, 394, EXIT_MALFORMED,
        diag_place(lines->w->diags, lines->w->map_place, lines->line, (int)(lines->at - lines->start) + 1), "%s", what);
}

static void skip_blanks(struct lines *lines) {
    lines->at += strspn(lines->at, " \t\r");
}

static bool take(struct lines *lines, const char *word) {
    skip_blanks(lines);
    const size_t length = strlen(word);
    if (strncmp(lines->at, word, length) != 0) return false;
    lines->at += length;
    return true;
}

static const char *take_quoted(struct lines *lines) {
    if (!take(lines, "\"")) return bad_line(lines, "a name in double quotes is expected"), NULL;
    const size_t length = strcspn(lines->at, "\"\n");
    if (lines->at[length] != '"') return bad_line(lines, "unclosed quotes"), NULL;
    const char *text = arena_copy(lines->w->arena, lines->at, length);
    lines->at += length + 1;
    return text;
}

static int read_rule(struct lines *lines) {
    static const struct {
        const char *word;
        enum rule_kind kind;
        bool pair;
    } forms[] = {
        {"prefix", RULE_PREFIX, true}, {"keep", RULE_KEEP, false}, {"ignore", RULE_IGNORE, false}, {"", RULE_IS, true}};
    struct weights *w = lines->w;
    size_t form = 0;
    while (!take(lines, forms[form].word)) form++;
    struct rule rule = {.kind = forms[form].kind, .line = lines->line};
    if (!(rule.left = take_quoted(lines))) return -1;
    if (forms[form].pair && !take(lines, "=")) return bad_line(lines, "'=' is expected");
    if (forms[form].pair && !(rule.right = take_quoted(lines))) return -1;
    rule.transpose = rule.kind == RULE_IS && take(lines, "transpose");
    skip_blanks(lines);
    if (*lines->at && *lines->at != '\n' && *lines->at != '#') return bad_line(lines, "unexpected text");
    if (w->rules.n == MAX_RULES) return bad_line(lines, "too many lines");
    if (rule.kind == RULE_IS) {
        if (map_find(&w->exact, rule.left) >= 0) return bad_line(lines, "this name is mapped twice");
        map_set(&w->exact, rule.left, w->rules.n);
    }
    VEC_PUSH(w->arena, &w->rules, rule);
    return 0;
}

static int read_map(struct weights *w, const char *path) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file(w->arena, path, MAX_MAP, &bytes, &count, &why))
        return diag_refusal(w->diags, 394, EXIT_MALFORMED, w->map_place, &why);
    struct lines lines = {w, bytes, bytes, 1};
    int status = memchr(bytes, 0, count) ? bad_line(&lines, "the file has a NUL byte") : 0;
    for (; *lines.at && !status; lines.at += *lines.at == '\n', lines.start = lines.at, lines.line++) {
        skip_blanks(&lines);
        if (*lines.at && *lines.at != '\n' && *lines.at != '#') status = read_rule(&lines);
        lines.at += strcspn(lines.at, "\n");
    }
    arena_release(w->arena, bytes);
    return status;
}

static bool matches(struct weights *w, enum rule_kind kind, const char *name) {
    VEC_EACH(&w->rules, i, struct rule *const rule)
        if (rule->kind == kind && fnmatch(rule->left, name, 0) == 0) return rule->used = true;
    return false;
}

/* The tensor of that name; -1 if the files have none, or a line says to ignore it. */
static int find_source(struct weights *w, const char *name) {
    const int source = map_find(&w->index, name);
    return source >= 0 && matches(w, RULE_IGNORE, name) ? -1 : source;
}

/* The source under the name itself, or with another prefix. */
static int find_named(struct weights *w, const char *name) {
    VEC_EACH(&w->rules, i, struct rule *const rule) {
        const size_t length = strlen(rule->left);
        if (rule->kind != RULE_PREFIX || strncmp(name, rule->left, length) != 0) continue;
        rule->used = true;
        return find_source(w, arena_printf(w->arena, "%s%s", rule->right, name + length));
    }
    return find_source(w, name);
}

static const Onnx__ValueInfoProto *find_info(const struct weights *w, const char *name) {
    const Onnx__GraphProto *graph = w->model->proto->graph;
    const int at = map_get(&w->products, arena_printf(w->arena, "i%s", name), strlen(name) + 1);
    return at < 0 ? NULL : graph->value_info[at];
}

static const char *property(const Onnx__ValueInfoProto *info, const char *key) {
    return info ? onnx_property(info->metadata_props, info->n_metadata_props, key) : "";
}

/* The one name in "['fc.weight']"; NULL if there are several. */
static const char *only_name(struct arena *arena, const char *list) {
    size_t length = strlen(list);
    if (length < 5 || list[0] != '[' || list[length - 1] != ']' || strchr(list, ',')) return NULL;
    return arena_copy(arena, list + 2, length - 4);
}

/* Notes of every value that nodes read whether only matrix products do, as second operand; and where its declaration
 * is. */
static void note_readers(struct weights *w) {
    const Onnx__GraphProto *graph = w->model->proto->graph;
    for (size_t n = 0; n < graph->n_node; n++) {
        const Onnx__NodeProto *node = graph->node[n];
        const char *type = onnx_text(node->op_type);
        const bool product = strcmp(type, "MatMul") == 0 || strcmp(type, "Gemm") == 0;
        for (size_t i = 0; i < node->n_input; i++) {
            const char *name = arena_printf(w->arena, "r%s", onnx_text(node->input[i]));
            const bool other = !product || i != 1;
            if (other || map_find(&w->products, name) < 0) map_set(&w->products, name, !other);
        }
    }
    for (size_t i = 0; i < graph->n_value_info; i++) {
        const char *name = arena_printf(w->arena, "i%s", onnx_text(graph->value_info[i]->name));
        map_set(&w->products, name, (int)i);
    }
}

static bool same_dims(const struct rt_safetensor *tensor, const int64_t *dims, size_t ndim, bool transpose) {
    if (tensor->ndim != (int)ndim || (transpose && ndim != 2)) return false;
    for (size_t d = 0; d < ndim; d++)
        if (tensor->dims[d] != dims[transpose ? 1 - d : d]) return false;
    return true;
}

/* A weight that the exporter stored transposed (the header comment). */
static int find_folded(struct weights *w, const Onnx__TensorProto *proto) {
    const char *name = onnx_text(proto->name), *list = property(find_info(w, name), ONNX_FOLDED_FROM),
               *of = only_name(w->arena, list), *reads = arena_printf(w->arena, "r%s", name);
    const int source = of ? find_named(w, of) : -1;
    if (source < 0 || map_find(&w->products, reads) != 1) return -1;
    return same_dims(w->sources.at[source].tensor, proto->dims, proto->n_dims, true) ? source : -1;
}

static const char *dims_text(struct arena *arena, const int64_t *dims, size_t ndim) {
    struct strbuf text = {.arena = arena};
    for (size_t d = 0; d < ndim; d++) strbuf_printf(&text, "%s%lld", d ? "," : "[", (long long)dims[d]);
    strbuf_puts(&text, ndim ? "]" : "[]");
    return strbuf_text(&text);
}

/* Why the tensor cannot be the initializer; NULL: it can. */
static const char *misfit(const struct weights *w, const Onnx__TensorProto *proto, const struct rt_safetensor *tensor,
                          bool transpose) {
    const enum rt_dtype dtype = rt_dtype_by_onnx(proto->data_type);
    if (!same_dims(tensor, proto->dims, proto->n_dims, transpose))
        return arena_printf(w->arena, "the tensor is %s%s, but the initializer %s",
                            dims_text(w->arena, tensor->dims, (size_t)tensor->ndim),
                            transpose ? " to be transposed" : "", dims_text(w->arena, proto->dims, proto->n_dims));
    if (transpose && !rt_dtype_is_float(dtype)) return "only floats can be transposed";
    if (dtype == tensor->dtype || (rt_dtype_is_float(dtype) && rt_dtype_is_float(tensor->dtype))) return NULL;
    return arena_printf(w->arena, "the tensor is of type %s, but the initializer of type %s",
                        rt_dtypes[tensor->dtype].name, dtype == RT_DTYPE_NONE ? "another" : rt_dtypes[dtype].name);
}

static int find_match(struct weights *w, const Onnx__TensorProto *proto, struct match *match) {
    const char *name = onnx_text(proto->name);
    const int exact = map_find(&w->exact, name);
    *match = (struct match){.source = -1};
    if (exact >= 0) {
        struct rule *rule = &w->rules.at[exact];
        rule->used = true;
        match->transpose = rule->transpose;
        match->source = find_source(w, rule->right);
        if (match->source < 0)
            return diag_error(w->diags, 394, EXIT_MALFORMED, arena_printf(w->arena, "%s:%d", w->map_place, rule->line),
                              "the file has no tensor %s", diag_quote(w->diags, rule->right));
    } else if ((match->source = find_named(w, name)) < 0) {
        match->source = find_folded(w, proto);
        match->transpose = match->source >= 0;
        match->kept = match->source < 0 && matches(w, RULE_KEEP, name);
    }
    if (match->source < 0) return 0;
    const struct rt_safetensor *tensor = w->sources.at[match->source].tensor;
    const char *why = misfit(w, proto, tensor, match->transpose);
    w->sources.at[match->source].used = true;
    if (!why) return 0;
    diag_error(w->diags, 395, EXIT_MALFORMED, onnx_where(w->model, "initializer", name), "tensor %s: %s",
               diag_quote(w->diags, tensor->name), why);
    if (!match->transpose && same_dims(tensor, proto->dims, proto->n_dims, true))
        diag_help(w->diags, "in the map file: \"%s\" = \"%s\" transpose", str_escape(w->arena, name, strlen(name), 80),
                  str_escape(w->arena, tensor->name, strlen(tensor->name), 80));
    return -1;
}

static bool is_buffer(const struct weights *w, const char *name) {
    const char *kind = property(find_info(w, name), ONNX_INPUT_KIND);
    return strcmp(kind, "BUFFER") == 0 || strcmp(kind, "CONSTANT_TENSOR") == 0;
}

/* True if the initializer must be replaced. */
static bool is_required(const struct weights *w, const Onnx__TensorProto *proto) {
    bool many = false;
    for (size_t d = 0; d < proto->n_dims; d++) many |= proto->dims[d] > 1;
    for (size_t d = 0; d < proto->n_dims; d++) many &= proto->dims[d] != 0;
    const enum rt_dtype dtype = rt_dtype_by_onnx(proto->data_type);
    return many && dtype != RT_DTYPE_NONE && rt_dtype_is_float(dtype) && !is_buffer(w, onnx_text(proto->name));
}

/* Names, to be listed in one error. */
struct names {
    struct strbuf text;
    int n;
};

static void add_name(struct weights *w, struct names *names, const char *name) {
    if (names->n++ < MOST_NAMED)
        strbuf_printf(&names->text, "%s%s", names->n > 1 ? ", " : "", diag_quote(w->diags, name));
}

static int report_names(struct weights *w, struct names *names, const char *what, const char *help) {
    if (!names->n) return 0;
    if (names->n > MOST_NAMED) strbuf_printf(&names->text, " and %d more", names->n - MOST_NAMED);
    diag_error(w->diags, 395, EXIT_MALFORMED, w->place, "%s: %s", what, strbuf_text(&names->text));
    return diag_help(w->diags, "%s", help);
}

/* Records where the initializer's value lies. */
static void set_elsewhere(struct weights *w, const Onnx__TensorProto *proto, const struct match *match) {
    struct onnx_model *model = w->model;
    const struct source *source = &w->sources.at[match->source];
    const struct onnx_elsewhere elsewhere = {source->file, (uint64_t)source->tensor->offset, source->tensor->dtype,
                                             match->transpose};
    map_put(&model->elsewhere_index, (const char *)&proto, sizeof proto, model->elsewhere.n);
    VEC_PUSH(w->arena, &model->elsewhere, elsewhere);
}

/* An input without initializer that the files have a tensor for becomes an initializer. */
static Onnx__TensorProto *initializer_of_input(struct weights *w, const Onnx__ValueInfoProto *info) {
    const bool tensor = info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    const char *name = onnx_text(info->name);
    const int exact = map_find(&w->exact, name),
              source = exact >= 0 ? find_source(w, w->rules.at[exact].right) : find_named(w, name);
    if (!tensor || source < 0) return NULL;
    const struct rt_safetensor *found = w->sources.at[source].tensor;
    const bool transpose = exact >= 0 && w->rules.at[exact].transpose && found->ndim == 2;
    Onnx__TensorProto *proto = ARENA_NEW(w->arena, Onnx__TensorProto);
    onnx__tensor_proto__init(proto);
    proto->name = arena_strdup(w->arena, name);
    proto->has_data_type = true;
    proto->data_type = info->type->tensor_type->elem_type;
    proto->n_dims = (size_t)found->ndim;
    proto->dims = ARENA_ARRAY(w->arena, int64_t, found->ndim + 1);
    for (int d = 0; d < found->ndim; d++) proto->dims[d] = found->dims[transpose ? 1 - d : d];
    return proto;
}

static void add_inputs(struct weights *w) {
    Onnx__GraphProto *graph = w->model->proto->graph;
    struct map known = {.arena = w->arena};
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = onnx_text(graph->initializer[i]->name);
        map_set(&known, name, 1);
    }
    Onnx__TensorProto **all = ARENA_ARRAY(w->arena, Onnx__TensorProto *, graph->n_initializer + graph->n_input + 1);
    if (graph->n_initializer) memcpy(all, graph->initializer, graph->n_initializer * sizeof *all);
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = onnx_text(graph->input[i]->name);
        if (map_find(&known, name) >= 0) continue;
        if ((all[graph->n_initializer] = initializer_of_input(w, graph->input[i]))) graph->n_initializer++;
    }
    graph->initializer = all;
}

static int match_all(struct weights *w) {
    const Onnx__GraphProto *graph = w->model->proto->graph;
    struct names missing = {0}, unexpected = {0}, unread = {0};
    int status = 0;
    strbuf_init(&missing.text, w->arena);
    strbuf_init(&unexpected.text, w->arena);
    strbuf_init(&unread.text, w->arena);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *proto = graph->initializer[i];
        struct match match;
        if (find_match(w, proto, &match) < 0)
            status = -1;
        else if (match.source >= 0)
            set_elsewhere(w, proto, &match);
        else if (!match.kept && is_required(w, proto))
            add_name(w, &missing, onnx_text(proto->name));
    }
    for (int i = 0; i < w->sources.n; i++) {
        const char *name = w->sources.at[i].tensor->name;
        if (!w->sources.at[i].used && !matches(w, RULE_IGNORE, name)) add_name(w, &unexpected, name);
    }
    for (int i = 0; i < w->rules.n; i++)
        if (!w->rules.at[i].used) add_name(w, &unread, w->rules.at[i].left);
    if (report_names(w, &missing, "initializers of the model are not in the file",
                     "map them, or keep the model's values, in a map file: keep \"GLOB\"") < 0 ||
        report_names(w, &unexpected, "tensors of the file are not in the model",
                     "map them, or ignore them, in a map file: ignore \"GLOB\"") < 0 ||
        report_names(w, &unread, "lines of the map file match nothing", "remove them, or correct the names") < 0)
        status = -1;
    return status;
}

int onnx_weights_open(struct onnx_model *model, const struct onnx_weights_from *from) {
    struct weights w = {.model = model, .arena = model->arena, .diags = model->diags};
    w.place = str_name(model->arena, from->path);
    if (from->map) w.map_place = str_name(model->arena, from->map);
    map_init(&w.index, model->arena);
    map_init(&w.exact, model->arena);
    map_init(&w.products, model->arena);
    map_init(&model->elsewhere_index, model->arena);
    if (!model->proto->graph) return 0; /* an error of the model's checks */
    const bool index = rt_has_suffix(from->path, ".json");
    if ((index ? open_index(&w, from->path) : open_one(&w, from->path)) < 0) return -1;
    if (from->map && read_map(&w, from->map) < 0) return -1;
    note_readers(&w);
    add_inputs(&w);
    return match_all(&w);
}
