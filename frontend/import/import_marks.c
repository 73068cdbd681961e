/* Which weights are parameters, as far as the model declares it.
 *
 * PyTorch's exporter (torch.onnx, dynamo=True) writes into metadata_props of a value's declaration: the kind of the
 * input (parameter, buffer, ..) for an input of the exported program; the names of the original values, as a Python
 * list, for a weight that onnxscript's optimizer has folded. ONNX's TrainingInfoProto lists the initializers that
 * training updates. */
#include "frontend/import/import_state.h"
#include "ir/base/str.h"

/* torch.export.graph_signature.InputKind */
static const struct {
    const char *kind;
    enum mark mark;
} kinds[] = {{"PARAMETER", MARK_PARAMETER}, {"BUFFER", MARK_BUFFER}, {"CONSTANT_TENSOR", MARK_BUFFER}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *property(const Onnx__ValueInfoProto *info, const char *key) {
    return onnx_property(info->metadata_props, info->n_metadata_props, key);
}

/* "['a', 'b']" without brackets and quotes. */
static const char *plain_list(struct arena *arena, const char *text) {
    char *plain = arena_strdup(arena, text), *to = plain;
    for (const char *from = text; *from; from++)
        if (!strchr("[]'\"", *from)) *to++ = *from;
    *to = 0;
    return plain;
}

/* Whether a plain list names a parameter of the module. The list of a folded value has all that it was computed from,
 * through intermediate values too. */
static bool lists_parameter(const struct import *import, const char *list) {
    for (; *list; list += strspn(list, ", ")) {
        const size_t length = strcspn(list, ",");
        if (map_get(&import->module, list, length) >= 0) return true;
        list += length;
    }
    return false;
}

static void mark_by_metadata(struct import *import, struct tensor *weight, const Onnx__ValueInfoProto *info) {
    const char *kind = property(info, ONNX_INPUT_KIND), *sources = property(info, ONNX_FOLDED_FROM);
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].kind, kind) == 0) weight->mark = kinds[i].mark;
    if (weight->mark || !*sources) return;
    sources = plain_list(import->arena, sources);
    if (import->module.n && !lists_parameter(import, sources)) {
        weight->mark = MARK_DERIVED;
        return;
    }
    weight->mark = MARK_FOLDED;
    weight->sources = sources;
}

void import_mark(struct import *import, int id) {
    struct tensor *weight = &import->graph->tensors.at[id];
    const size_t length = strlen(weight->name);
    const int at = map_get(&import->declared, weight->name, length);
    if (at >= 0) mark_by_metadata(import, weight, import->infos.at[at]);
    if (import->trained.n)
        weight->mark = map_get(&import->trained, weight->name, length) >= 0 ? MARK_PARAMETER : MARK_FIXED;
}

/* PyTorch's older exporter (TorchScript) stores equal initializers once and writes an Identity node for each of the
 * other names: for tied parameters, but also for parameters of equal values, such as the scales of untrained norms. */
void import_alias(struct import *import, const char *name, int id) {
    const struct tensor *tensor = &import->graph->tensors.at[id];
    if (!import->options->train || tensor->kind != TENSOR_WEIGHT || !rt_dtype_is_float(tensor->dtype)) return;
    if (!strchr(name, '.') || strchr(name, '/') || strchr(name, ':')) return; /* not the name of a module's member */
    if (!import->aliases.arena) map_init(&import->aliases, import->arena);
    const char *text = arena_printf(import->arena, "%s is %s", diag_quote(import->diags, name),
                                    diag_quote(import->diags, tensor->name));
    map_set(&import->aliases, text, 1);
}

void import_report_aliases(struct import *import) {
    enum { MOST_NAMED = 3 };
    struct strbuf names = {.arena = import->arena};
    for (int i = 0; i < import->aliases.n && i < MOST_NAMED; i++)
        strbuf_printf(&names, "%s%s", i ? ", " : "", import->aliases.entries[i].key);
    if (import->aliases.n > MOST_NAMED) strbuf_printf(&names, " and %d more", import->aliases.n - MOST_NAMED);
    if (import->aliases.n)
        diag_remark(import->diags, import->model->place,
                    "trained as one parameter, because the exporter merged initializers of equal value: %s",
                    strbuf_text(&names));
}

void import_trained(struct import *import) {
    const Onnx__ModelProto *proto = import->model->proto;
    map_init(&import->trained, import->arena);
    for (size_t i = 0; i < proto->n_training_info; i++) {
        const Onnx__TrainingInfoProto *info = proto->training_info[i];
        for (size_t k = 0; k < info->n_update_binding; k++) {
            const char *name = onnx_text(info->update_binding[k]->key);
            map_set(&import->trained, name, 1);
        }
    }
}
