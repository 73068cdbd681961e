#include "codegen/manifest/manifest_parts.h"

#include <stdlib.h>
#include <string.h>

#include "passes/train/roles.h"

typedef struct rt_json_writer json;

static void put_partition(json *writer, const struct graph *graph, const struct tensor *tensor) {
    int cuts = 0;
    rt_json_key(writer, "partition");
    for (int c = 0; c < tensor->layout.ncuts; c++) {
        const struct placement *placement = &tensor->layout.cuts[c].placement;
        const int axis = tensor->layout.cuts[c].axis;
        if (placement->kind != PLACED_PART) continue;
        if (!cuts++) rt_json_open(writer, '[', RT_JSON_INLINE);
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_int(writer, "dim", placement->dim);
        rt_json_key_int(writer, "ways", graph->mesh.axis[axis].size);
        rt_json_key_text(writer, "axis", graph->mesh.axis[axis].name);
        rt_json_close(writer, '}');
    }
    if (cuts)
        rt_json_close(writer, ']');
    else
        rt_json_put_text(writer, "replicate");
}

/* "slices": the axes along which ZeRO divides the elements of the rank's part. */
static void put_slices(json *writer, const struct graph *graph, const struct tensor *tensor) {
    const unsigned axes = layout_flat_axes(&tensor->layout);
    if (!axes) return;
    rt_json_key_open(writer, "slices", '[', RT_JSON_INLINE);
    for (int axis = 0; axis < mesh_layout_axes(&graph->mesh); axis++)
        if (axes >> axis & 1u) rt_json_put_text(writer, graph->mesh.axis[axis].name);
    rt_json_close(writer, ']');
}

/* What training does with a weight. */
enum fate { STAYS, TRAINED, STATISTIC };

/* Per tensor. */
static enum fate *find_fates(const struct graph *graph) {
    enum fate *fates = ARENA_ARRAY(graph->arena, enum fate, graph->tensors.n + 1); /* STAYS */
    for (int i = graph->updates.n - 1; i >= 0; i--)
        fates[graph->updates.at[i].weight] =
            graph_phase_of(graph, graph->updates.at[i].value) == PHASE_UPDATE ? TRAINED : STATISTIC;
    return fates;
}

static void put_parameter(json *writer, const struct rankplan *plan, const struct program_info *info,
                          const struct tensor *tensor, bool trained) {
    const struct training *training = info->training;
    const struct named_options *options = training ? &optimizer_choice_of(training, tensor)->options : NULL;
    const struct weight_role *decision = weight_role_of(info->roles, tensor->name);
    rt_json_open(writer, '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "name", tensor->name);
    rt_json_key_text(writer, "dtype", rt_dtypes[tensor->dtype].name);
    rt_json_key_dims(writer, "shape", tensor->dims, tensor->ndim);
    put_partition(writer, plan->graph, tensor);
    put_slices(writer, plan->graph, tensor);
    rt_json_key_bool(writer, "trained", trained);
    if (trained) {
        rt_json_key_real(writer, "lr", named_options_value(options, "lr", 0));
        rt_json_key_real(writer, "weight_decay", named_options_value(options, "weight_decay", 0));
    }
    if (tensor->sources) rt_json_key_text(writer, "computed_from", tensor->sources);
    if (decision && decision->role == ROLE_DOUBTFUL) rt_json_key_text(writer, "doubt", decision->rule->reason);
    rt_json_close(writer, '}');
}

static int by_name(const void *a, const void *b) {
    const struct weight_role *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

/* Sorted by name, since verify parses the graph again and then has the tensors in another order. */
static void put_constants(json *writer, const struct weight_roles *roles, struct arena *arena) {
    const int most = roles ? roles->all.n : 0;
    const struct weight_role **constants = ARENA_ARRAY(arena, const struct weight_role *, most + 1);
    int n = 0;
    for (int i = 0; i < most; i++)
        if (roles->all.at[i].role == ROLE_CONSTANT) constants[n++] = &roles->all.at[i];
    qsort(constants, (size_t)n, sizeof *constants, by_name);
    rt_json_key_open(writer, "constants", '[', RT_JSON_LINES);
    for (int i = 0; i < n; i++) {
        rt_json_open(writer, '{', RT_JSON_INLINE);
        rt_json_key_text(writer, "name", constants[i]->name);
        rt_json_key_text(writer, "type", constants[i]->type);
        rt_json_key_text(writer, "reason", constants[i]->rule->reason);
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, ']');
}

void manifest_put_parameters(json *writer, const struct rankplan *plan, const struct program_info *info) {
    const struct graph *graph = plan->graph;
    const enum fate *fates = find_fates(graph);
    rt_json_key_open(writer, "parameters", '[', RT_JSON_LINES);
    VEC_EACH_VALUE(&plan->weights, i, const int weight) {
        const struct tensor *tensor = &graph->tensors.at[weight];
        const enum fate fate = fates[weight];
        if (tensor->kind != TENSOR_WEIGHT || tensor->constant || !rt_dtype_is_float(tensor->dtype) || fate == STATISTIC)
            continue;
        put_parameter(writer, plan, info, tensor, fate == TRAINED);
    }
    rt_json_close(writer, ']');
    put_constants(writer, info->roles, graph->arena);
}
