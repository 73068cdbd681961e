#include "passes/plan/policy_plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "passes/plan/rankc_policy.h"

typedef const char *(*mesh_fn)(int plan_ngpus);
typedef int (*decide_fn)(const struct rankc_policy_graph *graph, void (*rule)(void *to, const char *text), void *to);

struct policy_plugin {
    const char *path;
    decide_fn decide;
};

static void close_library(void *library) {
    dlclose(library);
}

/* A function of the library; NULL: it has none of that name. ISO C does not convert objects to functions. */
static void find_function(void *library, const char *name, void *function, size_t size) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, size);
}

static int refuse(struct diags *diags, const char *path, const char *why) {
    return diag_error(diags, 428, EXIT_MALFORMED, diag_quote(diags, path), "%s", why);
}

static int read_mesh(struct arena *arena, struct diags *diags, const char *path, const char *mesh,
                     struct rules **rules) {
    const char *text = mesh ? arena_printf(arena, "mesh %s\n", mesh) : "";
    return rules_parse(arena, diags, path, text, strlen(text), rules);
}

int policy_plugin_open(struct arena *arena, struct diags *diags, const char *path, int plan_ngpus,
                       struct policy_plugin **out, struct rules **mesh) {
    struct policy_plugin *plugin = *out = ARENA_NEW(arena, struct policy_plugin);
    char *real = realpath(path, NULL); /* a name without a slash would be searched for elsewhere */
    void *library = real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    mesh_fn mesh_of;
    free(real);
    if (!real) return diag_errno(diags, 601, NULL, "open", path);
    if (!library) return refuse(diags, path, dlerror());
    arena_own(arena, library, close_library);
    plugin->path = arena_strdup(arena, path);
    find_function(library, "rankc_policy", &plugin->decide, sizeof plugin->decide);
    find_function(library, "rankc_policy_mesh", &mesh_of, sizeof mesh_of);
    const int *version = dlsym(library, "rankc_policy_version");
    if (!plugin->decide || !version)
        return refuse(diags, path, "no plug-in: it defines no rankc_policy and rankc_policy_version");
    if (*version != RANKC_POLICY_VERSION)
        return diag_error(diags, 429, EXIT_MISMATCH, diag_quote(diags, path),
                          "a plug-in for version %d of rankc_policy.h, and this is version %d: compile it anew",
                          *version, RANKC_POLICY_VERSION);
    return read_mesh(arena, diags, path, mesh_of ? mesh_of(plan_ngpus) : NULL, mesh);
}

/* The graph as a plug-in sees it ----------------------------------------------------------------------------------- */

static enum rankc_policy_kind kind_of(const struct tensor *tensor) {
    switch (tensor->kind) {
    case TENSOR_INPUT: return RANKC_POLICY_INPUT;
    case TENSOR_WEIGHT: return RANKC_POLICY_WEIGHT;
    case TENSOR_CONST: return RANKC_POLICY_CONSTANT;
    default: return RANKC_POLICY_VALUE;
    }
}

static const struct rankc_policy_tensor *tensors_of(const struct graph *graph) {
    struct rankc_policy_tensor *tensors = ARENA_ARRAY(graph->arena, struct rankc_policy_tensor, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) {
        const struct tensor *tensor = &graph->tensors.at[t];
        tensors[t] = (struct rankc_policy_tensor){.name = tensor->name,
                                                  .dtype = rt_dtypes[tensor->dtype].name,
                                                  .kind = kind_of(tensor),
                                                  .ndim = tensor->ndim,
                                                  .dims = tensor->dims};
    }
    return tensors;
}

static double flops_of(const struct graph *graph, const struct node *node) {
    struct dims dims;
    const char *why;
    return dims_bind(graph->arena, graph, node, &dims, &why) < 0 ? 0 : dims_flops(&dims, node->op->flops);
}

static const struct rankc_policy_node *nodes_of(const struct graph *graph, int *n) {
    struct rankc_policy_node *nodes = ARENA_ARRAY(graph->arena, struct rankc_policy_node, graph->order.n + 1);
    for (*n = 0; *n < graph->order.n; ++*n) {
        const struct node *node = &graph->nodes.at[graph->order.at[*n]];
        if (node->phase != PHASE_FORWARD) break; /* the first of the order; what follows them is divided likewise */
        nodes[*n] = (struct rankc_policy_node){.name = node->name,
                                               .op = node->op->name,
                                               .flops = flops_of(graph, node),
                                               .ninputs = node->ninputs,
                                               .noutputs = node->noutputs,
                                               .inputs = node->inputs,
                                               .outputs = node->outputs};
    }
    return nodes;
}

static void add_rule(void *to, const char *text) {
    strbuf_printf(to, "%s\n", text);
}

int policy_plugin_rules(const struct policy_plugin *plugin, const struct graph *graph, struct diags *diags,
                        struct rules **out) {
    struct rankc_policy_axis *axes = ARENA_ARRAY(graph->arena, struct rankc_policy_axis, RT_MAX_AXES);
    struct rankc_policy_graph shown = {.ntensors = graph->tensors.n,
                                       .tensors = tensors_of(graph),
                                       .trains = graph->train,
                                       .naxes = graph->mesh.naxes,
                                       .axes = axes};
    struct strbuf text;
    strbuf_init(&text, graph->arena);
    shown.nodes = nodes_of(graph, &shown.nnodes);
    for (int a = 0; a < graph->mesh.naxes; a++)
        axes[a] = (struct rankc_policy_axis){graph->mesh.axis[a].name, graph->mesh.axis[a].size};
    if (plugin->decide(&shown, add_rule, &text)) return refuse(diags, plugin->path, "the policy refuses this model");
    const char *rules = strbuf_text(&text);
    return rules_parse(graph->arena, diags, plugin->path, rules, strlen(rules), out);
}
