#include "tests/import/onnx_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/diag.h"
#include "tests/frontend/wire.h"

enum { MAX_WORDS = 64, MAX_VALUES = 4096 };

/* Words ----------------------------------------------------------------------------------------------------------- */

struct words {
    int n;
    char *at[MAX_WORDS];
};

static struct words split(struct arena *arena, const char *line, const char *separators) {
    struct words words = {0};
    char *rest, *copy = arena_strdup(arena, line);
    for (char *word = strtok_r(copy, separators, &rest); word; word = strtok_r(NULL, separators, &rest)) {
        if (words.n == MAX_WORDS) BUG("too many words: %s", line);
        words.at[words.n++] = word;
    }
    return words;
}

static int find_word(const struct words *words, const char *word) {
    for (int i = 0; i < words->n; i++)
        if (strcmp(words->at[i], word) == 0) return i;
    return words->n;
}

static enum rt_dtype dtype_of(const char *name) {
    enum rt_dtype dtype = rt_dtype_by_name(name);
    if (dtype == RT_DTYPE_NONE) BUG("no type '%s'", name);
    return dtype;
}

/* A list of numbers as elements; `count` of them, zeros where the list ends. */
static void *parse_values(struct arena *arena, enum rt_dtype dtype, int64_t count, int n, char *const *words) {
    unsigned char *bytes = arena_alloc(arena, (size_t)count + 1, rt_dtype_bytes(dtype));
    for (int i = 0; i < n && i < count; i++) {
        double number = strtod(words[i], NULL);
        int64_t integer = strtoll(words[i], NULL, 10);
        void *to = bytes + (size_t)i * rt_dtype_bytes(dtype);
        if (rt_dtype_is_float(dtype))
            rt_convert(to, dtype, &number, RT_F64, 1);
        else
            rt_convert(to, dtype, &integer, RT_I64, 1);
    }
    return bytes;
}

struct rt_tensor onnx_text_tensor(struct arena *arena, const char *text) {
    struct words words = split(arena, text, " ");
    struct rt_tensor tensor = {.dtype = dtype_of(words.at[0]), .count = 1};
    int colon = find_word(&words, ":");
    for (int i = 1; i < colon; i++) {
        tensor.dims[tensor.ndim++] = strtoll(words.at[i], NULL, 10);
        tensor.count *= tensor.dims[tensor.ndim - 1];
    }
    int n = colon < words.n ? words.n - colon - 1 : 0;
    tensor.data = parse_values(arena, tensor.dtype, tensor.count, n, words.at + colon + 1);
    return tensor;
}

/* Parts of a graph ------------------------------------------------------------------------------------------------ */

static struct wire *tensor_proto(struct arena *arena, const char *name, const struct rt_tensor *tensor) {
    struct wire *w = wire_new(arena);
    for (int d = 0; d < tensor->ndim; d++) put_int(w, 1, tensor->dims[d]);
    put_int(w, 2, rt_dtypes[tensor->dtype].onnx);
    if (name) put_text(w, 8, name);
    put_data(w, 9, tensor->data, (size_t)tensor->count * rt_dtype_bytes(tensor->dtype));
    return w;
}

/* The type within "seq:" and "opt:": wraps the type of what follows. */
static struct wire *wrapped(struct arena *arena, const char *prefixes, struct wire *type) {
    struct wire *elem = wire_new(arena), *whole = wire_new(arena);
    if (strncmp(prefixes, "seq:", 4) != 0 && strncmp(prefixes, "opt:", 4) != 0) return type;
    put(elem, 1, wrapped(arena, prefixes + 4, type));
    put(whole, *prefixes == 's' ? 4 : 9, elem);
    return whole;
}

/* "x f32 2 n ?", "x opt:seq:f32 2", "x" */
static struct wire *value_info(struct arena *arena, const struct words *words) {
    struct wire *w = wire_new(arena), *type = wire_new(arena), *shape = wire_new(arena), *whole = wire_new(arena);
    put_text(w, 1, words->at[1]);
    if (words->n == 2) return w;
    for (int i = 3; i < words->n; i++) {
        struct wire *dim = wire_new(arena);
        const char *text = words->at[i];
        if (isdigit((unsigned char)*text) || *text == '-')
            put_int(dim, 1, strtoll(text, NULL, 10));
        else if (*text != '?')
            put_text(dim, 2, text);
        put(shape, 1, dim);
    }
    const char *last = strrchr(words->at[2], ':');
    put_int(type, 1, rt_dtypes[dtype_of(last ? last + 1 : words->at[2])].onnx);
    put(type, 2, shape);
    put(whole, 1, type);
    put(w, 2, wrapped(arena, words->at[2], whole));
    return w;
}

struct named {
    const char *name;
    const struct wire *graph;
};

struct text {
    struct arena *arena;
    char *rest;
    VEC(struct named) graphs;
};

enum { TYPE_FLOAT = 1, TYPE_INT, TYPE_STRING, TYPE_TENSOR, TYPE_GRAPH, TYPE_FLOATS, TYPE_INTS };

static bool is_float(const char *text) {
    return strpbrk(text, ".ni") != NULL;
}

/* "[1,2]" */
static int put_list(struct text *text, struct wire *w, const char *list) {
    struct words items = split(text->arena, list, "[],");
    bool floats = is_float(list);
    for (int i = 0; i < items.n; i++) {
        if (floats)
            put_float(w, 7, strtof(items.at[i], NULL));
        else
            put_int(w, 8, strtoll(items.at[i], NULL, 10));
    }
    return floats ? TYPE_FLOATS : TYPE_INTS;
}

/* "f32[2]:1,2" */
static void put_tensor(struct text *text, struct wire *w, const char *value) {
    char *copy = arena_strdup(text->arena, value);
    for (char *c = copy; *c; c++)
        if (strchr("[],", *c)) *c = ' ';
    char *colon = strchr(copy, ':');
    const char *spaced = !colon ? copy : arena_printf(text->arena, "%.*s : %s", (int)(colon - copy), copy, colon + 1);
    struct rt_tensor tensor = onnx_text_tensor(text->arena, spaced);
    put(w, 5, tensor_proto(text->arena, NULL, &tensor));
}

static void put_graph(struct text *text, struct wire *w, const char *name) {
    for (int i = 0; i < text->graphs.n; i++)
        if (strcmp(text->graphs.at[i].name, name) == 0) {
            put(w, 6, text->graphs.at[i].graph);
            return;
        }
    BUG("no graph '%s'", name);
}

static struct wire *attribute(struct text *text, const char *key, const char *value) {
    struct wire *w = wire_new(text->arena);
    int type = TYPE_INT;
    put_text(w, 1, key);
    if (*value == '"') {
        put_data(w, 4, value + 1, strlen(value) - 2);
        type = TYPE_STRING;
    } else if (*value == '[') {
        type = put_list(text, w, value);
    } else if (*value == '@') {
        put_graph(text, w, value + 1);
        type = TYPE_GRAPH;
    } else if (*value == '$') {
        put_text(w, 21, value + 1);
    } else if (strchr(value, '[')) {
        put_tensor(text, w, value);
        type = TYPE_TENSOR;
    } else if (is_float(value)) {
        put_float(w, 2, strtof(value, NULL));
        type = TYPE_FLOAT;
    } else {
        put_int(w, 3, strtoll(value, NULL, 10));
    }
    put_int(w, 20, type);
    return w;
}

static struct wire *node(struct text *text, const struct words *words) {
    struct wire *w = wire_new(text->arena);
    int equal = find_word(words, "=");
    if (equal + 1 >= words->n) BUG("no statement: %s", words->at[0]);
    for (int i = 0; i < equal; i++) put_text(w, 2, strcmp(words->at[i], "_") == 0 ? "" : words->at[i]);
    char *op = words->at[equal + 1], *colons = strstr(op, "::");
    put_text(w, 4, colons ? colons + 2 : op);
    if (colons) put_data(w, 7, op, (size_t)(colons - op));
    for (int i = equal + 2; i < words->n; i++) {
        char *value = strchr(words->at[i], '=');
        if (!value) {
            put_text(w, 1, strcmp(words->at[i], "_") == 0 ? "" : words->at[i]);
            continue;
        }
        *value++ = 0;
        if (strcmp(words->at[i], "name") == 0)
            put_data(w, 3, value + 1, strlen(value) - 2);
        else
            put(w, 5, attribute(text, words->at[i], value));
    }
    return w;
}

static bool next_line(struct text *text, struct words *words) {
    while (text->rest && *text->rest) {
        char *line = text->rest, *end = strchr(line, '\n');
        text->rest = end ? end + 1 : NULL;
        if (end) *end = 0;
        *words = split(text->arena, line, " ");
        if (words->n) return true;
    }
    return false;
}

/* Graphs and functions, whose nodes end with "end"; the fields differ. */
static struct wire *inner(struct text *text, const struct words *head, unsigned node_field, bool named_values) {
    struct wire *w = wire_new(text->arena);
    struct words words;
    int arrow = find_word(head, ">");
    for (int i = 2; i < head->n; i++) {
        if (i == arrow) continue;
        struct words one = {2, {head->at[0], head->at[i]}};
        unsigned field = named_values ? (i < arrow ? 4 : 5) : i < arrow ? 11 : 12;
        if (named_values)
            put_text(w, field, head->at[i]);
        else
            put(w, field, value_info(text->arena, &one));
    }
    while (next_line(text, &words) && strcmp(words.at[0], "end") != 0) {
        if (named_values && strcmp(words.at[0], "attribute") == 0)
            put_text(w, 6, words.at[1]);
        else
            put(w, node_field, node(text, &words));
    }
    return w;
}

static struct wire *function(struct text *text, const struct words *head) {
    struct wire *w = inner(text, head, 7, true), *opset = wire_new(text->arena);
    char *colons = strstr(head->at[1], "::");
    put_text(w, 1, colons + 2);
    put_data(w, 10, head->at[1], (size_t)(colons - head->at[1]));
    put_int(opset, 2, 17);
    put(w, 9, opset);
    return w;
}

static struct wire *opset_import(struct arena *arena, const struct words *words) {
    struct wire *w = wire_new(arena);
    if (words->n > 2) put_text(w, 1, words->at[1]);
    put_int(w, 2, strtoll(words->at[words->n - 1], NULL, 10));
    return w;
}

/* Adds the statement to the model or its graph; false if the first word is none of this language's. */
static bool statement(struct text *text, struct words *words, struct wire *model, struct wire *graph) {
    static const struct {
        const char *word;
        unsigned field;
    } values[] = {{"input", 11}, {"output", 12}, {"value", 13}};
    const char *first = words->at[0];
    if (find_word(words, "=") < words->n) return put(graph, 1, node(text, words)), true;
    for (int i = 0; i < 3; i++)
        if (strcmp(first, values[i].word) == 0)
            return put(graph, values[i].field, value_info(text->arena, words)), true;
    if (strcmp(first, "opset") == 0) return put(model, 8, opset_import(text->arena, words)), true;
    if (strcmp(first, "function") == 0) return put(model, 25, function(text, words)), true;
    if (strcmp(first, "graph") != 0) return false;
    struct named named = {words->at[1], inner(text, words, 1, false)};
    VEC_PUSH(text->arena, &text->graphs, named);
    return true;
}

const void *onnx_text_model(struct arena *arena, const char *source, size_t *bytes) {
    struct text text = {.arena = arena, .rest = arena_strdup(arena, source)};
    struct wire *model = wire_new(arena), *graph = wire_new(arena);
    struct words words;
    put_int(model, 1, 8);
    if (!onnx_text_option(arena, source, "opset", 0)) {
        struct words usual = {2, {"opset", "17"}};
        put(model, 8, opset_import(arena, &usual));
    }
    while (next_line(&text, &words)) {
        if (strcmp(words.at[0], "init") != 0) {
            statement(&text, &words, model, graph);
            continue;
        }
        char line[512] = "";
        for (int i = 2; i < words.n; i++) snprintf(line + strlen(line), sizeof line - strlen(line), " %s", words.at[i]);
        struct rt_tensor tensor = onnx_text_tensor(arena, line);
        put(graph, 5, tensor_proto(arena, words.at[1], &tensor));
    }
    put(model, 7, graph);
    *bytes = (size_t)model->data.n;
    return model->data.at;
}

const char *onnx_text_option(struct arena *arena, const char *text, const char *word, int n) {
    size_t length = strlen(word);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, word, length) != 0 || line[length] != ' ' || n-- > 0) continue;
        return arena_copy(arena, line + length + 1, strcspn(line + length + 1, "\n"));
    }
    return NULL;
}
