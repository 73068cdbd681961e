#include "codegen/manifest_parameters.h"

#include <stdlib.h>
#include <string.h>

#include "passes/train/roles.h"

typedef struct rt_json_writer json;

static void put(json *w, const char *key, const char *text) {
    rt_json_key(w, key);
    rt_json_put_text(w, text);
}

static void put_partition(json *w, const struct graph *graph, const struct tensor *tensor) {
    int cuts = 0;
    rt_json_key(w, "partition");
    for (int axis = 0; axis < graph->mesh.naxes; axis++) {
        const struct holding *holding = &tensor->layout.axis[axis];
        if (holding->kind != HOLD_PART) continue;
        if (!cuts++) rt_json_open(w, '[', RT_JSON_INLINE);
        rt_json_open(w, '{', RT_JSON_INLINE);
        rt_json_key(w, "dim"), rt_json_put_int(w, holding->dim);
        rt_json_key(w, "ways"), rt_json_put_int(w, graph->mesh.axis[axis].size);
        put(w, "axis", graph->mesh.axis[axis].name);
        rt_json_close(w, '}');
    }
    if (cuts)
        rt_json_close(w, ']');
    else
        rt_json_put_text(w, "replicate");
}

/* What becomes of a weight. */
enum fate { STAYS, TRAINED, STATISTIC };

static enum fate fate_of(const struct graph *graph, int weight) {
    for (int i = 0; i < graph->updates.n; i++)
        if (graph->updates.at[i].weight == weight)
            return graph_phase_of(graph, graph->updates.at[i].value) == PHASE_UPDATE ? TRAINED : STATISTIC;
    return STAYS;
}

static void put_parameter(json *w, const struct rankplan *plan, const struct program_info *info,
                          const struct tensor *tensor, bool trained) {
    const struct training *training = info->training;
    const struct parameter_rule *rule = parameter_rule_of(training, tensor);
    const struct numbers *numbers = rule ? &rule->optimizer.numbers : &training->optimizer.numbers;
    const struct decision *decision = decision_of(info->decisions, tensor->name);
    rt_json_open(w, '{', RT_JSON_INLINE);
    put(w, "name", tensor->name);
    put(w, "dtype", rt_dtypes[tensor->dtype].name);
    rt_json_key(w, "shape"), rt_json_put_dims(w, tensor->dims, tensor->ndim);
    put_partition(w, plan->graph, tensor);
    rt_json_key(w, "trained"), rt_json_put_bool(w, trained);
    if (trained) {
        rt_json_key(w, "lr"), rt_json_put_real(w, numbers_value(numbers, "lr", 0));
        rt_json_key(w, "weight_decay"), rt_json_put_real(w, numbers_value(numbers, "weight_decay", 0));
    }
    if (tensor->sources) put(w, "computed_from", tensor->sources);
    if (decision && decision->role == ROLE_DOUBTFUL) put(w, "doubt", decision->rule->reason);
    rt_json_close(w, '}');
}

static int by_name(const void *a, const void *b) {
    const struct decision *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

/* In the order of their names: that of the tensors is another one after the graph was printed and parsed, as verify
 * does it. */
static void put_constants(json *w, const struct decisions *decisions, struct arena *arena) {
    const int most = decisions ? decisions->all.n : 0;
    const struct decision **constants = ARENA_ARRAY(arena, const struct decision *, most + 1);
    int n = 0;
    for (int i = 0; i < most; i++)
        if (decisions->all.at[i].role == ROLE_CONSTANT) constants[n++] = &decisions->all.at[i];
    qsort(constants, (size_t)n, sizeof *constants, by_name);
    rt_json_key(w, "constants");
    rt_json_open(w, '[', RT_JSON_LINES);
    for (int i = 0; i < n; i++) {
        rt_json_open(w, '{', RT_JSON_INLINE);
        put(w, "name", constants[i]->name);
        put(w, "type", constants[i]->type);
        put(w, "reason", constants[i]->rule->reason);
        rt_json_close(w, '}');
    }
    rt_json_close(w, ']');
}

void manifest_put_parameters(json *w, const struct rankplan *plan, const struct program_info *info) {
    const struct graph *graph = plan->graph;
    rt_json_key(w, "parameters");
    rt_json_open(w, '[', RT_JSON_LINES);
    for (int i = 0; i < plan->weights.n; i++) {
        const int weight = plan->weights.at[i];
        const struct tensor *tensor = &graph->tensors.at[weight];
        const enum fate fate = fate_of(graph, weight);
        if (tensor->kind != TENSOR_WEIGHT || tensor->constant || !rt_dtype_is_float(tensor->dtype) || fate == STATISTIC)
            continue;
        put_parameter(w, plan, info, tensor, fate == TRAINED);
    }
    rt_json_close(w, ']');
    put_constants(w, info->decisions, graph->arena);
}
