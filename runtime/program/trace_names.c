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

#include "base/number/formula.h"

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

/* The numbers of a list, at most `most` of them; returns how many. */
static int read_numbers(const struct rt_json *list, int64_t *numbers, int most) {
    int n = 0;
    for (const struct rt_json *f = list->kind == RT_JSON_ARRAY ? list->first : NULL; f && n < most; f = f->next, n++)
        rt_json_int(f, &numbers[n]);
    return n;
}

/* An entry of "work": [instruction, phase, operations, bytes, activations, communication, scratch]; older manifests
 * lack the last three. */
static void read_entry(struct trace_names *names, int class, const struct rt_json *entry) {
    int64_t field[7] = {-1};
    const struct rt_json *flops = entry->first && entry->first->next ? entry->first->next->next : NULL;
    if (read_numbers(entry, field, 7) < 4 || field[0] < 0 || field[0] >= names->ninstructions || field[1] < 0 ||
        field[1] >= PHASES)
        return;
    names->work[(int64_t) class * names->ninstructions + field[0]] =
        (struct trace_work){(int)field[1],
                            flops,
                            flops->next,
                            {[RT_ACTIVATIONS] = field[4], [RT_COMMUNICATION] = field[5], [RT_SCRATCH] = field[6]}};
}

struct naming {
    const struct trace_names *names;
    const int64_t *sizes;
};

static bool size_of_name(void *context, const char *name, size_t length, int64_t *out) {
    const struct naming *naming = context;
    for (int s = 0; s < naming->names->nsizes; s++) {
        if (strlen(naming->names->sizes[s]) != length || memcmp(naming->names->sizes[s], name, length) != 0) continue;
        *out = naming->sizes[s];
        return true;
    }
    return false;
}

int64_t trace_amount(const struct trace_names *names, const struct rt_json *amount, const int64_t *sizes) {
    struct naming naming = {names, sizes};
    const char *text = rt_json_text(amount);
    int64_t value = 0;
    if (!text)
        rt_json_int(amount, &value);
    else
        rt_formula_read(&(struct rt_formula){size_of_name, NULL, &naming}, text, &value, NULL, NULL);
    return value;
}

static bool read_work(struct trace_names *names, const struct rt_json *classes, int nclasses) {
    const size_t n = (size_t)nclasses * (size_t)names->ninstructions;
    names->nclasses = nclasses;
    names->work = calloc(n + 1, sizeof *names->work);
    for (size_t i = 0; names->work && i < n; i++) names->work[i].phase = -1;
    int class = 0;
    const struct rt_json *list = rt_json_first(classes);
    for (; names->work && list && class < nclasses; list = list->next, class ++)
        for (const struct rt_json *entry = list->kind == RT_JSON_ARRAY ? list->first : NULL; entry; entry = entry->next)
            read_entry(names, class, entry);
    return names->work != NULL;
}

/* "live" of a class: what is held beside that. */
static bool read_kept(struct trace_kept *kept, const struct rt_json *live) {
    const struct rt_json *slots = rt_json_member(live, "slots");
    rt_json_int(rt_json_member(live, "inputs"), &kept->inputs);
    if (!slots || slots->kind != RT_JSON_ARRAY) return true;
    if (!(kept->slots = calloc((size_t)slots->count + 1, sizeof *kept->slots))) return false;
    for (const struct rt_json *entry = slots->first; entry; entry = entry->next) {
        int64_t field[4] = {-1};
        if (read_numbers(entry, field, 4) < 4 || field[0] < 0 || field[0] >= RT_SLOT_KINDS) continue;
        kept->slots[kept->nslots++] = (struct trace_slot){
            (enum rt_slot_kind)field[0], (int)field[1], {[RT_ACTIVATIONS] = field[2], [RT_COMMUNICATION] = field[3]}};
    }
    return true;
}

static bool read_all_kept(struct trace_names *names, const struct rt_json *classes, int nclasses) {
    bool ok = (names->kept = calloc((size_t)nclasses + 1, sizeof *names->kept)) != NULL;
    const struct rt_json *class = rt_json_first(classes);
    for (int c = 0; ok && class && c < nclasses; class = class->next, c++)
        ok = read_kept(&names->kept[c], rt_json_member(class, "live"));
    return ok;
}

bool trace_names_read(struct trace_names *names, const struct manifest *manifest, int nclasses) {
    const struct rt_json *root = rt_json_root(manifest->document);
    *names = (struct trace_names){0};
    for (const struct rt_json *size = rt_json_first(rt_json_member(root, "sizes")); size; size = size->next)
        if (names->nsizes < RT_MAX_SIZES && rt_json_text(rt_json_member(size, "name")))
            names->sizes[names->nsizes++] = rt_json_text(rt_json_member(size, "name"));
    if (read_instructions(names, rt_json_member(root, "instructions")) &&
        read_work(names, rt_json_member(root, "work"), nclasses) &&
        read_all_kept(names, rt_json_member(root, "classes"), nclasses))
        return true;
    trace_names_free(names);
    return false;
}

void trace_names_free(struct trace_names *names) {
    for (int i = 0; i < names->ninstructions && names->instructions; i++) free(names->instructions[i].layer);
    free(names->instructions);
    free(names->work);
    for (int c = 0; c < names->nclasses && names->kept; c++) free(names->kept[c].slots);
    free(names->kept);
    *names = (struct trace_names){0};
}
