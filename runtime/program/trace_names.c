/* Names and sizes of instructions for traces, from manifest.json.
 *
 * Note [Layers of names]
 * The layer of an instruction is the beginning of its node's name up to the first component that is a number or ends
 * with one: transformer.h.0 of "/transformer/h.0/attn/c_attn/Gemm" and of "transformer.h.0.ln_1.weight.update". Without
 * one, it is at most two components of the scope, which is what stands before the last slash, or before the last two
 * components of a parameter's update: transformer.wte of "/transformer/wte/Gather" and of
 * "transformer.wte.weight.update". Where the exporter has recorded the node's module, that is the scope, and the name
 * that counts. */
#include "program/trace.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *const trace_phases[] = {"forward", "backward", "weight gradient", "reduce", "update"};

static size_t component_length(const char *text) {
    return strcspn(text, "/.");
}

/* A number, or a word with one behind it, such as layer12, which is not the name of a node. */
static bool ends_layer(const char *component, size_t length) {
    size_t digits = 0;
    while (digits < length && isdigit((unsigned char)component[length - 1 - digits])) digits++;
    return digits > 0 && (digits == length || component[length]) && !memchr(component, '_', length);
}

static size_t scope_length(const char *name) {
    const char *slash = strrchr(name, '/');
    if (slash) return (size_t)(slash - name);
    size_t end = strlen(name);
    for (int n = 0; n < 2; n++)
        while (end > 0 && name[--end] != '.') continue;
    return end;
}

/* The bytes of the name that are its layer; scope: those that are its scope. */
static size_t layer_length(const char *name, size_t scope) {
    size_t end = 0;
    int n = 0;
    for (const char *c = name; *c;) {
        const size_t length = component_length(c), until = (size_t)(c - name) + length;
        if (length && ends_layer(c, length)) return until;
        if (length && until <= scope && ++n <= 2) end = until;
        c += length + (c[length] != 0);
    }
    return end;
}

static char *layer_of(const char *node, const char *module) {
    const char *name = module ? module : node + (*node == '/');
    char *layer = strndup(name, layer_length(name, module ? strlen(module) : scope_length(name)));
    for (char *c = layer; c && *c; c++)
        if (*c == '/') *c = '.';
    return layer;
}

static bool read_instructions(struct trace_names *names, const struct rt_json *list) {
    names->ninstructions = list && list->kind == RT_JSON_ARRAY ? (int)list->count : 0;
    names->instructions = calloc((size_t)names->ninstructions + 1, sizeof *names->instructions);
    if (!names->instructions) return false;
    int i = 0;
    for (const struct rt_json *entry = names->ninstructions ? list->first : NULL; entry; entry = entry->next, i++) {
        struct trace_instruction *to = &names->instructions[i];
        to->node = rt_json_text(rt_json_member(entry, "node"));
        to->op = rt_json_text(rt_json_member(entry, "op"));
        if (!to->node) to->node = "";
        if (!to->op) to->op = "";
        to->module = rt_json_text(rt_json_member(entry, "module"));
        to->from = rt_json_text(rt_json_member(entry, "from"));
        if (!(to->layer = layer_of(to->node, to->module))) return false;
    }
    return true;
}

/* An entry of "work": [instruction, phase, operations, bytes]. */
static void read_entry(struct trace_names *names, int class, const struct rt_json *entry) {
    int64_t field[4] = {-1, 0, 0, 0};
    int n = 0;
    for (const struct rt_json *f = entry->first; f && n < 4; f = f->next, n++) rt_json_int(f, &field[n]);
    if (n < 4 || field[0] < 0 || field[0] >= names->ninstructions || field[1] < 0 || field[1] >= PHASES) return;
    names->work[(int64_t) class * names->ninstructions + field[0]] =
        (struct trace_work){(int)field[1], field[2], field[3]};
}

static bool read_work(struct trace_names *names, const struct rt_json *classes, int nclasses) {
    const size_t n = (size_t)nclasses * (size_t)names->ninstructions;
    names->nclasses = nclasses;
    names->work = calloc(n + 1, sizeof *names->work);
    for (size_t i = 0; names->work && i < n; i++) names->work[i].phase = -1;
    int class = 0;
    const struct rt_json *list = classes && classes->kind == RT_JSON_ARRAY ? classes->first : NULL;
    for (; names->work && list && class < nclasses; list = list->next, class ++)
        for (const struct rt_json *entry = list->kind == RT_JSON_ARRAY ? list->first : NULL; entry; entry = entry->next)
            read_entry(names, class, entry);
    return names->work != NULL;
}

bool trace_names_read(struct trace_names *names, const struct manifest *manifest, int nclasses) {
    const struct rt_json *root = rt_json_root(manifest->document);
    *names = (struct trace_names){0};
    if (read_instructions(names, rt_json_member(root, "instructions")) &&
        read_work(names, rt_json_member(root, "work"), nclasses))
        return true;
    trace_names_free(names);
    return false;
}

void trace_names_free(struct trace_names *names) {
    for (int i = 0; i < names->ninstructions && names->instructions; i++) free(names->instructions[i].layer);
    free(names->instructions);
    free(names->work);
    *names = (struct trace_names){0};
}
