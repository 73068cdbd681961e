/* The parameters of the PyTorch module, and which of them are missing in its ONNX export.
 *
 * PyTorch's exporter (torch.onnx, dynamo=True) writes the signature of torch.export into the graph's metadata as text,
 * one line "p_fc_weight: PARAMETER target='fc.weight'" for each input of the program. onnxscript's optimizer lists in
 * the metadata of a folded value the names of the original values, "['fc.weight', 'val_1']". A parameter that is named
 * neither by an initializer nor by such a list was tied to another parameter, merged with one of equal values, or fused
 * into another weight. */
#include "frontend/import/import_state.h"
#include "ir/base/str.h"

static const char signature_key[] = "pkg.torch.export.ExportedProgram.graph_signature",
                  parameter[] = "PARAMETER target='";
enum { MOST_NAMED = 3 };

/* The text from *at to the next quote; moves *at behind the quote. NULL if there is no quote. */
static const char *quoted(struct arena *arena, const char **at) {
    const char *end = strchr(*at, '\''), *start = *at;
    if (!end) return NULL;
    *at = end + 1;
    return arena_copy(arena, start, (size_t)(end - start));
}

/* Adds every quoted name in `list` to `found`. */
static void add_sources(struct import *import, struct map *found, const char *list) {
    const char *name;
    while (quoted(import->arena, &list) && (name = quoted(import->arena, &list))) map_set(found, name, 1);
}

static void find_names(struct import *import, struct map *found) {
    const Onnx__GraphProto *graph = import->model->proto->graph;
    map_init(found, import->arena);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = onnx_text(graph->initializer[i]->name);
        map_set(found, name, 1);
    }
    for (size_t i = 0; i < graph->n_value_info; i++) {
        const Onnx__ValueInfoProto *info = graph->value_info[i];
        add_sources(import, found, onnx_property(info->metadata_props, info->n_metadata_props, ONNX_FOLDED_FROM));
    }
}

void import_signature(struct import *import) {
    const Onnx__GraphProto *graph = import->model->proto->graph;
    const char *at = onnx_property(graph->metadata_props, graph->n_metadata_props, signature_key), *name;
    map_init(&import->module, import->arena);
    while ((at = strstr(at, parameter))) {
        at += sizeof parameter - 1;
        if (!(name = quoted(import->arena, &at))) return;
        map_set(&import->module, name, 1);
    }
}

void import_compare_signature(struct import *import) {
    int missing = 0;
    struct map found;
    if (!import->module.n || !import->options->train) return;
    find_names(import, &found);
    struct strbuf names = {.arena = import->arena};
    for (int i = 0; i < import->module.n; i++) {
        const char *name = import->module.entries[i].key;
        if (map_find(&found, name) >= 0) continue;
        if (missing++ < MOST_NAMED)
            strbuf_printf(&names, "%s%s", missing > 1 ? ", " : "", diag_quote(import->diags, name));
    }
    if (!missing) return;
    if (missing > MOST_NAMED) strbuf_printf(&names, " and %d more", missing - MOST_NAMED);
    diag_remark(import->diags, import->model->place,
                "parameters of the PyTorch module are missing in the model by name (%d of %d): %s", missing,
                import->module.n, strbuf_text(&names));
    diag_note(import->diags,
              "PyTorch's exporter tied them to others, merged initializers of equal value, or fused them into others; "
              "with optimize=False it only ties them");
}
