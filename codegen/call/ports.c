#include "codegen/call/ports.h"

#include <string.h>

#include "codegen/text/names.h"
#include "ir/base/str.h"

/* Ports of one kind. */
struct ports {
    const char *list, *count; /* names of bindings */
    const char *otherwise;    /* identifier of a port whose name says nothing */
    int n;
    const int *tensors;
    const char *const *names; /* NULL: those of the tensors */
};

const char *const dtype_ids[] = {
#define DTYPE(id, ...) "RT_" #id,
    RT_DTYPES(DTYPE)
#undef DTYPE
};

/* The extents as a list in which `say` writes one. */
static const char *list_of(struct arena *arena, struct extents *extents, const struct tensor *tensor,
                           const char *(*say)(struct extents *, struct arena *, int64_t), const char *separator) {
    struct strbuf out = {.arena = arena};
    for (int d = 0; d < tensor->ndim; d++)
        strbuf_printf(&out, "%s%s", d ? separator : "", say(extents, arena, tensor->dims[d]));
    return strbuf_text(&out);
}

/* The last fields of an output's struct rt_port: if it is counted, its dimension, and 1 + the number of the output that
 * has the count. */
static const char *counted_fields(const struct graph *graph, const struct ports *ports, int index) {
    const struct counted_output *counted = strcmp(ports->list, "outputs") == 0 ? graph_counted(graph, index) : NULL;
    return counted ? arena_printf(graph->arena, ", .dim = %d, .count = %d", counted->dim, counted->count + 1) : "";
}

/* The largest number of elements over all sizes, if the largest sizes do not have it. */
static const char *most_field(const struct graph *graph, const struct ports *ports, const struct tensor *tensor) {
    int64_t largest[OPEN_SIZES] = {0}, elements = 1;
    for (int s = 0; graph->open && s < graph->open->all.n; s++) largest[s] = graph->open->all.at[s].range.most;
    for (int d = 0; d < tensor->ndim; d++) elements *= open_at(graph->open, tensor->dims[d], largest);
    const int64_t most = open_most(graph->open, tensor_elements(tensor));
    if (strcmp(ports->list, "outputs") != 0 || elements >= most) return "";
    return arena_printf(graph->arena, ", .most = %lld", (long long)most);
}

static void bind_name(struct tmpl_env *port, struct names *names, const char *name, const char *otherwise) {
    const char *words = names_says_nothing(name) ? "" : names_words(names->arena, name, name);
    const char *made = names_take(names, words, otherwise);
    const bool shown = strcmp(name, made) != 0 && str_is_plain(name);
    tmpl_set(port, "name", made);
    tmpl_set(port, "remark", shown ? arena_printf(names->arena, " '%s'", name) : "");
}

/* The shape of a tensor that has the micro-batches of a training step along dimension 0. A scalar input is the same for
 * all micro-batches; a scalar output becomes an element for each. */
static const char *batch_shape(const struct graph *graph, struct extents *extents, const struct ports *ports, int i,
                               int accumulate) {
    const struct tensor *tensor = &graph->tensors.at[ports->tensors[i]];
    const bool shared = tensor->shared && strcmp(ports->list, "inputs") == 0;
    const char *each = list_of(graph->arena, extents, tensor, extents_said, ", ");
    if (accumulate == 1 || shared) return arena_printf(graph->arena, "(%s)", each);
    return arena_printf(graph->arena, "(%d%s%s)", accumulate, tensor->ndim ? " * " : "", each);
}

static void bind_port(struct tmpl_env *port, const struct graph *graph, struct extents *extents,
                      const struct ports *ports, int i, struct names *names) {
    const struct tensor *tensor = &graph->tensors.at[ports->tensors[i]];
    const int parts = graph->micro_batches > 1 ? graph->micro_batches : 1;
    tmpl_setf(port, "index", "%d", i);
    tmpl_setf(port, "type", "%s[%s]", rt_dtypes[tensor->dtype].name,
              list_of(graph->arena, extents, tensor, extents_said, ","));
    tmpl_setf(port, "shape", "(%s)", list_of(graph->arena, extents, tensor, extents_said, ", "));
    tmpl_setf(
        port, "elements", "%lld",
        (long long)(open_most(graph->open, tensor_elements(tensor)) * (tensor->ndim && !tensor->shared ? parts : 1)));
    tmpl_set(port, "c_type", rt_dtypes[tensor->dtype].c_type);
    tmpl_set(port, "dtype", dtype_ids[tensor->dtype]);
    tmpl_setf(port, "ndim", "%d", tensor->ndim);
    tmpl_set(port, "dims", tensor->ndim ? list_of(graph->arena, extents, tensor, extents_entry, ", ") : "0");
    tmpl_set(port, "shared", tensor->shared ? ", .shared = true" : "");
    tmpl_set(port, "counted", counted_fields(graph, ports, i));
    tmpl_set(port, "most", most_field(graph, ports, tensor));
    bind_name(port, names, ports->names ? ports->names[i] : tensor->name, ports->otherwise);
}

int ports_input_gradients(const struct graph *graph) {
    int n = 0;
    for (int i = 0; i < graph->inputs.n && graph_gradient_inputs(graph); i++) {
        const struct tensor *input = &graph->tensors.at[graph->inputs.at[i]];
        n += rt_dtype_is_float(input->dtype) && !input->gradient;
    }
    return n;
}

void ports_bind(struct tmpl_env *env, const struct graph *graph, struct extents *extents, int accumulate) {
    const int ninputs = graph->inputs.n - graph_gradient_inputs(graph), noutputs = graph->outputs.n - graph->nmetrics;
    const char *const *outputs = graph->output_names.at;
    const struct ports all[] = {
        {"inputs", "ninputs", "input", ninputs, graph->inputs.at, NULL},
        {"outputs", "noutputs", "output", noutputs, graph->outputs.at, outputs},
        {"seeds", "nseeds", "output_gradient", graph->inputs.n - ninputs, graph->inputs.at + ninputs, NULL},
        {"gradients", "ngradients", "input_gradient", ports_input_gradients(graph), graph->outputs.at + noutputs,
         outputs + noutputs},
    };
    struct names names;
    names_begin(&names, graph->arena);
    for (size_t p = 0; p < sizeof all / sizeof *all; p++) {
        tmpl_list(env, all[p].list);
        tmpl_setf(env, all[p].count, "%d", all[p].n);
        for (int i = 0; i < all[p].n; i++) {
            struct tmpl_env *port = tmpl_entry(env, all[p].list);
            bind_port(port, graph, extents, &all[p], i, &names);
            tmpl_set(port, "batch", batch_shape(graph, extents, &all[p], i, accumulate));
        }
    }
}
