/* Loss scaling and skipped steps.
 *
 * Note [Loss scale]
 * Gradients in fp16 vanish below 2^-24. So the loss is multiplied by a scale, and the gradients of parameters are
 * divided by it once they are f32. If one of them overflows, the global norm is not finite. All ranks have the same
 * norm, so all skip the step: parameters and the states of the optimizer, its step count included, do not change.
 * The scale is the given one times a power of two. States are zero at first, so the states are the exponent, the
 * number of finite steps since it last changed, and the number of skipped steps. */
#include <math.h>
#include <string.h>

#include "ir/build.h"
#include "passes/train/training.h"

#define EXPONENT "loss_scale.exponent"

static int add_state(struct build *builder, const char *name) {
    return graph_add_tensor(builder->graph, TENSOR_STATE, name, RT_F64, 0, NULL);
}

static int find_state(const struct graph *graph, const char *name) {
    for (int t = 0; t < graph->tensors.n; t++)
        if (graph->tensors.at[t].kind == TENSOR_STATE && strcmp(graph->tensors.at[t].name, name) == 0) return t;
    return -1;
}

static bool changes(const struct amp *amp) {
    return amp->loss_scale != 0 && amp->growth_interval != 0;
}

/* PyTorch does not let a scale grow beyond f32. */
static double largest_exponent(const struct amp *amp) {
    return 127 - ceil(log2(amp->loss_scale));
}

static int scale_of(struct build *builder, const struct amp *amp, int exponent) {
    struct build_scope scope = {.dtype = RT_F64};
    build_scope_number(&scope, "first", amp->loss_scale);
    if (exponent < 0) return build_scalar(builder, RT_F64, amp->loss_scale);
    build_scope_tensor(&scope, "exponent", exponent);
    return build_expr(builder, &scope, "first * pow(2, exponent)");
}

int loss_scale_begin(struct build *builder, const struct amp *amp) {
    if (amp->loss_scale == 0) return -1;
    return scale_of(builder, amp, changes(amp) ? add_state(builder, EXPONENT) : -1);
}

struct loss_scale loss_scale_find(struct build *builder, const struct amp *amp) {
    struct loss_scale found = {-1, -1, -1, -1, -1};
    /* a module's user scales what he gives */
    if (amp->loss_scale == 0 || graph_gradient_inputs(builder->graph)) return found;
    found.exponent = find_state(builder->graph, EXPONENT);
    found.scale = scale_of(builder, amp, found.exponent);
    return found;
}

int loss_scale_judge(struct build *builder, const struct amp *amp, struct loss_scale *scale, int norm) {
    struct build_scope scope = {.dtype = RT_F64};
    if (!amp->skip) return 0;
    build_scope_tensor(&scope, "norm", norm);
    scale->good = build_expr(builder, &scope, "norm - norm == 0");
    scale->skipped = add_state(builder, "loss_scale.skipped");
    if (scale->good < 0) return -1;
    build_scope_tensor(&scope, "good", scale->good);
    int skips = build_expr(builder, &scope, "good ? 0 : 1");
    if (skips < 0) return -1;
    graph_add_metric(builder->graph, skips, "skipped");
    if (scale->scale >= 0) graph_add_metric(builder->graph, scale->scale, "loss scale");
    return 0;
}

static int change(struct build *builder, const struct loss_scale *scale, struct build_scope *scope, int state,
                  const char *text) {
    int value = build_expr(builder, scope, text);
    if (value >= 0 && scale->updates >= 0)
        value = build(builder, OP_Where, 3, (int[]){scale->updates, value, state}, 0, NULL);
    if (value >= 0) graph_add_update(builder->graph, state, value);
    return value < 0 ? -1 : 0;
}

int loss_scale_end(struct build *builder, const struct amp *amp, const struct loss_scale *scale) {
    struct build_scope scope = {.dtype = RT_F64};
    if (!amp->skip) return 0;
    build_scope_tensor(&scope, "good", scale->good);
    build_scope_tensor(&scope, "skipped", scale->skipped);
    if (change(builder, scale, &scope, scale->skipped, "good ? skipped : skipped + 1") < 0) return -1;
    if (scale->exponent < 0) return 0;
    int streak = add_state(builder, "loss_scale.streak");
    build_scope_tensor(&scope, "streak", streak);
    build_scope_tensor(&scope, "exponent", scale->exponent);
    build_scope_number(&scope, "interval", amp->growth_interval);
    build_scope_number(&scope, "most", largest_exponent(amp));
    if (change(builder, scale, &scope, streak, "good && streak + 1 < interval ? streak + 1 : 0") < 0) return -1;
    return change(builder, scale, &scope, scale->exponent,
                  "grown = min(exponent + 1, max(exponent, most)); "
                  "good ? (streak + 1 < interval ? exponent : grown) : exponent - 1");
}
