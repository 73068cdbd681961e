/* Adds the nodes that update parameters from their gradients, and divides the step into phases.
 *
 * Note [Phases]
 * Forward and backward nodes run once per micro-batch. If a step has several micro-batches, each adds its gradients to
 * states; dummy micro-batches, which fill up the last step, add nothing. The reduce phase runs once: it sums gradients
 * of the scale units and computes the global norm of the means over all real micro-batches. The update phase multiplies
 * gradients by one factor, for mean and clipping, and applies the optimizer. All of these are ordinary nodes, so a plan
 * splits and reduces them like the forward graph: the norm of split parameters is a partial sum. The runtime calls the
 * phases one by one, and so may a user's program.
 *
 * Note [Exchange]
 * Evaluations with --ema need the averages where the parameters lie. If control `training` is 0, the update phase
 * exchanges the two and changes no other state; a second exchange restores both bit for bit. Plans divide and gather
 * the results as those of an update. Before the first update that is not skipped there are no averages, and it does
 * nothing. */
#include "passes/train/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/build.h"
#include "passes/pipeline.h"
#include "passes/train/roles.h"
#include "runtime/base/number/moments.h"

/* Parameters with the same optimizer and options. */
struct group {
    const struct optimizer_choice *optimizer;
    bool own_lr;
    struct build_scope numbers; /* options, controls and scalars of the step, f64; n 0: not made yet */
};

struct optimizing {
    struct graph *graph;
    const struct training *training;
    const struct decisions *decisions;
    struct build builder;
    struct build_known *known;
    VEC(struct group) groups;
    struct loss_scale scale;
    int tensors;   /* before this pass */
    int *readers;  /* per tensor of these: nodes, outputs and parameters that read it as a gradient */
    int mean;      /* the factor from sums of gradients to means, f64 */
    int clip;      /* the factor by which the update multiplies sums of gradients, f64 */
    int takes;     /* bool: states take their new values; -1: they always do */
    int exchanges; /* bool: parameters and averages take each other's values (Note [Exchange]) */
};

static int add_state(struct optimizing *o, const char *name, int like, bool gradient) {
    const struct tensor t = o->graph->tensors.at[like];
    int state = graph_add_tensor(o->graph, TENSOR_STATE, arena_printf(o->graph->arena, "%s.%s", t.name, name), t.dtype,
                                 t.ndim, t.dims);
    o->graph->tensors.at[state].gradient = gradient;
    return state;
}

/* Names a value that a node of the present name computes as the formulas do: OWNER.m. Generated code shows it. */
static void name_as(struct optimizing *o, int tensor, const char *owner, const char *name) {
    struct tensor *t = tensor < 0 ? NULL : &o->graph->tensors.at[tensor];
    if (t && t->producer >= 0 && strcmp(o->graph->nodes.at[t->producer].name, o->builder.node) == 0)
        t->name = arena_printf(o->graph->arena, "%s.%s", owner, name);
}

static int control_as(struct optimizing *o, enum rt_control control, enum rt_dtype dtype) {
    return build_cast(&o->builder, graph_control(o->graph, control), dtype);
}

bool training_gathers(const struct decisions *decisions, const struct graph *graph) {
    return decisions_sum_gradients(decisions, decisions->micro_batches) || graph_gradient_inputs(graph);
}

/* The node if it adds two contributions to a gradient, and `readers` nodes read the result; else NULL. */
static const struct node *adds_contributions(const struct optimizing *o, int tensor, int readers) {
    const struct node *node = made_by(o->graph, tensor, OP_Add);
    if (!node || node->phase != PHASE_BACKWARD || o->readers[tensor] != readers) return NULL;
    for (int k = 0; k < 2; k++) {
        const struct tensor *x = &o->graph->tensors.at[node->inputs[k]], *y = &o->graph->tensors.at[tensor];
        if (graph_phase_of(o->graph, node->inputs[k]) != PHASE_BACKWARD || tensor_elements(x) != tensor_elements(y))
            return NULL;
    }
    return node;
}

/* The gradient cast to `dtype`. If the parameter has several readers, the gradient is a sum of their contributions.
 * Then each contribution is cast, and they are added in that type. `readers`: the number of nodes that read the
 * gradient. */
static int gradient_as(struct optimizing *o, int gradient, enum rt_dtype dtype, int readers) {
    const struct node *sum = adds_contributions(o, gradient, readers);
    if (o->graph->tensors.at[gradient].dtype == dtype) return gradient;
    if (!sum) return build_cast(&o->builder, gradient, dtype);
    const int operands[] = {sum->inputs[0], sum->inputs[1]};
    const int a = gradient_as(o, operands[0], dtype, 1), b = a < 0 ? -1 : gradient_as(o, operands[1], dtype, 1);
    return b < 0 ? -1 : build2(&o->builder, OP_Add, a, b);
}

/* Declares the gradient, or a view of it if other nodes read it too, the scale unit's operand of a sum (Note [Replicas]
 * in ir.h). Other readers see the scale unit's own value. */
static int join_units(struct optimizing *o, int gradient) {
    const bool is_new = gradient >= o->tensors;
    if ((!is_new && o->readers[gradient]++) || o->graph->tensors.at[gradient].producer < 0)
        gradient = build1(&o->builder, OP_Detach, gradient);
    if (gradient >= 0) o->graph->tensors.at[gradient].joined = JOINED_SUM;
    return gradient;
}

/* Adds the gradient of each micro-batch to a state, unless it is a dummy. Gradients are summed, and parameters updated,
 * in f32 for 16-bit floats, since 0.999 is 1 in bf16, and 1 added to a sum of 256 is lost; sums are in bf16 if the user
 * asks for that, as .grad of a bf16 parameter is in PyTorch. */
static int accumulate(struct optimizing *o, struct parameter *p) {
    const bool gathers = training_gathers(o->decisions, o->graph);
    const enum rt_dtype own = o->graph->tensors.at[p->gradient].dtype, dtype = o->training->gradients_bf16 ? RT_BF16
                                                                               : gathers ? op_summed_in(own)
                                                                                         : own;
    if ((p->gradient = gradient_as(o, p->gradient, dtype, 0)) < 0) return -1;
    if ((p->gradient = join_units(o, p->gradient)) < 0) return -1;
    if (!gathers) return 0;
    int real = control_as(o, RT_REAL, dtype), sum = add_state(o, "gradient", p->weight, true);
    o->graph->tensors.at[sum].dtype = dtype;
    p->gradient = real < 0 ? -1 : build(&o->builder, OP_Accumulate, 3, (int[]){sum, p->gradient, real}, 0, NULL);
    if (p->gradient >= 0) graph_add_update(o->graph, sum, p->gradient);
    return p->gradient < 0 ? -1 : 0;
}

/* The nodes at the end of the order that move to where their operands are complete. */
struct early {
    struct graph *graph;
    struct uses uses;
    int *missing; /* per node: how many backward operands it waits for; 0: none, or it is in its place */
    bool *put;    /* per node: it is in its place */
};

/* Appends the node to the order, then each node that waited for this one alone, and so on. */
static void put_with_followers(struct early *e, int id) {
    const struct node node = e->graph->nodes.at[id];
    VEC_PUSH(e->graph->arena, &e->graph->order, id);
    e->put[id] = true;
    for (int o = 0; o < node.noutputs; o++) {
        const int tensor = node.outputs[o];
        for (int u = tensor < 0 ? 0 : e->uses.first[tensor]; tensor >= 0 && u < e->uses.first[tensor + 1]; u++) {
            const int user = e->uses.users[u];
            if (e->missing[user] && --e->missing[user] == 0) put_with_followers(e, user);
        }
    }
}

/* Moves each Accumulate, and casts and views of gradients, from the end of the order (from place `first` on) to just
 * after the node that computes its gradient, so that gradients are not kept and their reductions can start early. The
 * other nodes there, casts of controls, move before the backward phase. */
static void accumulate_early(struct graph *graph, int first) {
    struct early early = {.graph = graph,
                          .missing = ARENA_ARRAY(graph->arena, int, graph->nodes.n + 1),
                          .put = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1)};
    int begins = 0, n;
    early.uses = graph_uses(graph, graph->arena);
    const int *order = graph_take_order(graph, &n);
    for (int i = first; i < n; i++) {
        const struct node *node = &graph->nodes.at[order[i]];
        for (int k = 0; k < node->ninputs; k++)
            early.missing[order[i]] += graph_phase_of(graph, node->inputs[k]) == PHASE_BACKWARD;
    }
    while (begins < first && graph->nodes.at[order[begins]].phase != PHASE_BACKWARD) begins++;
    for (int i = 0; i <= first; i++) {
        for (int k = first; i == begins && k < n; k++)
            if (!early.missing[order[k]] && !early.put[order[k]]) put_with_followers(&early, order[k]);
        if (i < first) put_with_followers(&early, order[i]);
    }
}

/* Finds the factor for the mean over the real micro-batches of all scale units, without the loss scale. Control `share`
 * gives it; a module's gradients are summed unless its user sets share. */
static int find_mean(struct optimizing *o) {
    int share = graph_control(o->graph, RT_SHARE);
    struct build_scope scope = {.dtype = RT_F64};
    build_scope_tensor(&scope, "share", share);
    o->mean = share;
    if (o->scale.scale < 0) return 0;
    build_scope_tensor(&scope, "scale", o->scale.scale);
    o->mean = build_expr(&o->builder, &scope, "share / scale");
    return o->mean < 0 ? -1 : 0;
}

static const char *name_for(const struct optimizing *o, const struct parameter *p, const char *what) {
    return arena_printf(o->graph->arena, "%s.%s", o->graph->tensors.at[p->weight].name, what);
}

/* Norm of the mean gradients, in f64: the square root of the sum of squares of all summed gradients, times the mean's
 * factor. */
static int global_norm(struct optimizing *o) {
    struct attr to = attr_of_text("to", "f64");
    int total = -1;
    for (int i = 0; i < o->graph->parameters.n; i++) {
        o->builder.node = name_for(o, &o->graph->parameters.at[i], "norm");
        int squares = build(&o->builder, OP_SumSquares, 1, &o->graph->parameters.at[i].gradient, 1, &to);
        if (squares < 0) return -1;
        total = i ? build2(&o->builder, OP_Add, total, squares) : squares;
        if (total < 0) return -1;
    }
    o->builder.node = "optimizer";
    total = build1(&o->builder, OP_Sqrt, total);
    return total < 0 ? -1 : build2(&o->builder, OP_Mul, total, o->mean);
}

/* Adds the norm before clipping to the outputs, as a metric. */
static int give_norm(struct optimizing *o) {
    int norm = global_norm(o);
    if (norm < 0) return -1;
    name_as(o, norm, "optimizer", "norm");
    graph_add_metric(o->graph, norm, "gradient norm");
    return norm;
}

/* Finds the factor for summed gradients: torch.nn.utils.clip_grad_norm_ of their means. Without a bound the norm is not
 * used, because a NaN in one gradient would otherwise reach every parameter. */
static int clip(struct optimizing *o, int norm) {
    struct build_scope scope = {.dtype = RT_F64};
    build_scope_tensor(&scope, "norm", norm);
    build_scope_tensor(&scope, "most", graph_control(o->graph, RT_MOST));
    build_scope_tensor(&scope, "rescale", graph_control(o->graph, RT_RESCALE));
    build_scope_number(&scope, "unbounded", INFINITY);
    o->clip =
        build_expr(&o->builder, &scope, "rescale * (most < unbounded ? min(1, most / (norm * rescale + 1e-6)) : 1)");
    if (o->clip >= 0) o->clip = build2(&o->builder, OP_Mul, o->clip, o->mean);
    name_as(o, o->clip, "optimizer", "clip");
    return o->clip;
}

static struct group *group_of(struct optimizing *o, const struct parameter *p) {
    const struct tensor *weight = &o->graph->tensors.at[p->weight];
    const struct optimizer_choice *choice = optimizer_choice_of(o->training, weight);
    const struct parameter_rule *rule = parameter_rule_of(o->training, weight);
    int i = 0;
    while (i < o->groups.n && o->groups.at[i].optimizer != choice) i++;
    if (i == o->groups.n)
        VEC_PUSH(o->graph->arena, &o->groups, ((struct group){.optimizer = choice, .own_lr = rule && rule->own_lr}));
    return &o->groups.at[i];
}

/* The learning rate of the step. The control has the run's rate times the schedule's factor; a rule's own rate is
 * fixed at compile time and is multiplied by the same factor. */
static int learning_rate(struct optimizing *o, const struct group *group) {
    if (!group->own_lr) return graph_control(o->graph, RT_LR);
    int own = build_scalar(&o->builder, RT_F64, named_options_value(&group->optimizer->options, "lr", 0));
    return build2(&o->builder, OP_Mul, own, graph_control(o->graph, RT_FACTOR));
}

/* The number of the step, skipped steps not counted. */
static int count_step(struct optimizing *o) {
    int step = graph_control(o->graph, RT_STEP);
    return o->scale.skipped < 0 ? step : build2(&o->builder, OP_Sub, step, o->scale.skipped);
}

/* Finds when the update phase changes states, and when it exchanges parameters and averages. */
static int find_exchange(struct optimizing *o) {
    struct build_scope scope = {.dtype = RT_F64};
    const int step = o->training->ema > 0 ? count_step(o) : -1;
    o->takes = o->scale.good;
    if (o->training->ema <= 0) return 0;
    build_scope_tensor(&scope, "training", graph_control(o->graph, RT_TRAINING));
    build_scope_tensor(&scope, "step", step);
    if (step < 0 || (o->scale.updates = build_expr(&o->builder, &scope, "training > 0")) < 0) return -1;
    o->exchanges = build_expr(&o->builder, &scope, "training <= 0 && step >= 1");
    o->takes = o->scale.good < 0 ? o->scale.updates : build2(&o->builder, OP_And, o->scale.good, o->scale.updates);
    name_as(o, o->exchanges, "optimizer", "exchanges");
    return o->exchanges < 0 || o->takes < 0 ? -1 : 0;
}

/* A column of the optimizer's row, and what --ema adds to it: torch.optim.swa_utils.AveragedModel with
 * get_ema_multi_avg_fn, whose average begins as the parameter after the first step. */
static const char *with_average(const struct optimizing *o, const char *column, const char *added) {
    return o->training->ema > 0 ? arena_printf(o->graph->arena, "%s%s", column, added) : column;
}

/* Defines options, lr, step and the row's scalars by name, once per group. */
static int find_numbers(struct optimizing *o, struct group *group) {
    const struct named_options *options = &group->optimizer->options;
    const char *node = o->builder.node;
    if (group->numbers.n) return 0;
    o->builder.node = "optimizer";
    group->numbers.dtype = RT_F64;
    for (int i = 0; i < options->n; i++) build_scope_number(&group->numbers, options->at[i].name, options->at[i].value);
    int lr = learning_rate(o, group), step = count_step(o);
    if (lr < 0 || step < 0) return -1;
    build_scope_tensor(&group->numbers, "lr", lr);
    build_scope_tensor(&group->numbers, "step", step);
    build_scope_number(&group->numbers, "ema_decay", o->training->ema);
    const char *scalars = with_average(o, group->optimizer->row->scalars, " fade = step < 2 ? 1 : 1 - ema_decay;");
    const char *text = arena_printf(o->graph->arena, "%s lr", scalars);
    if (build_expr(&o->builder, &group->numbers, text) < 0) return -1;
    for (int i = 0; i < group->numbers.n; i++)
        name_as(o, group->numbers.names[i].tensor, "optimizer", group->numbers.names[i].name);
    o->builder.node = node;
    return 0;
}

/* Defines the same names, cast to the type in which a parameter is updated. */
static int names_for(struct optimizing *o, const struct build_scope *numbers, enum rt_dtype dtype,
                     struct build_scope *scope) {
    *scope = (struct build_scope){.dtype = dtype, .known = o->known};
    for (int i = 0; i < numbers->n; i++) {
        int tensor = numbers->names[i].tensor;
        if (tensor < 0) {
            build_scope_number(scope, numbers->names[i].name, numbers->names[i].number);
            continue;
        }
        if ((tensor = build_cast(&o->builder, tensor, dtype)) < 0) return -1;
        name_as(o, tensor, "optimizer", numbers->names[i].name);
        build_scope_tensor(scope, numbers->names[i].name, tensor);
    }
    return 0;
}

/* The index of the name; -1: there is none. */
static int name_of(const struct build_scope *scope, const char *name) {
    int i = scope->n - 1;
    while (i >= 0 && strcmp(scope->names[i].name, name) != 0) i--;
    return i;
}

static int value_of(const struct build_scope *scope, const char *name) {
    const int i = name_of(scope, name);
    if (i < 0) BUG("the update rule computes no '%s'", name);
    return scope->names[i].tensor;
}

static double scope_number(const struct build_scope *scope, const char *name) {
    const int i = name_of(scope, name);
    if (i < 0) BUG("the optimizer has no option '%s'", name);
    return scope->names[i].number;
}

static bool add_name(struct optimizing *o, struct build_scope *scope, const char *name, int tensor) {
    int cast = tensor < 0 ? -1 : build_cast(&o->builder, tensor, scope->dtype);
    build_scope_tensor(scope, name, cast);
    return cast >= 0;
}

/* A parameter or a state that the update changes. */
struct kept {
    const char *name; /* in the row's formulas */
    int tensor;
    int scales; /* of a state in blocks of 8 bits: the tensor of their scales, else -1 */
    struct attr has_sign;
};

struct all_kept {
    VEC(struct kept) all;
};

/* True if moments of the parameter may be in blocks of 8 bits. Small parameters keep theirs as they are, as those of
 * bitsandbytes do. */
static bool has_blocks(const struct optimizing *o, int weight) {
    const struct tensor *tensor = &o->graph->tensors.at[weight];
    const struct parameter_rule *rule = parameter_rule_of(o->training, tensor);
    return o->training->moments_int8 && !(rule && rule->moments_f32) && tensor_elements(tensor) >= MOMENTS_THRESHOLD &&
           tensor_elements(tensor) % RT_MOMENT_BLOCK == 0;
}

/* Adds a state as column `states` describes it. */
static struct kept add_kept(struct optimizing *o, const char *described, int weight) {
    struct arena *arena = o->graph->arena;
    struct kept kept = {.name = arena_copy(arena, described, strcspn(described, "/")), .scales = -1};
    const char kind = described[strlen(kept.name)] ? described[strlen(kept.name) + 1] : 0;
    kept.tensor = add_state(o, kept.name, weight, false);
    struct tensor *t = &o->graph->tensors.at[kept.tensor];
    if (kind == '1' || kind == '2') t->dims[t->ndim - (kind - '0')] = 1;
    if ((kind != 's' && kind != 'u') || !has_blocks(o, weight)) return kept;
    int64_t dims[RT_MAX_NDIM];
    const int ndim = op_block_scales(t, dims);
    t->dtype = RT_U8;
    kept.has_sign = attr_of_int("has_sign", kind == 's');
    kept.scales =
        graph_add_tensor(o->graph, TENSOR_STATE, arena_printf(arena, "%s.scale", t->name), RT_F32, ndim, dims);
    return kept;
}

/* Lists the parameter, "p", and its states, by the names of the row. */
static void list_kept(struct optimizing *o, const struct parameter *p, const char *states, struct all_kept *kept) {
    struct arena *arena = o->graph->arena;
    for (const char *at = states; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        VEC_PUSH(arena, &kept->all, add_kept(o, arena_copy(arena, at, length), p->weight));
        at += length;
    }
    VEC_PUSH(arena, &kept->all, ((struct kept){.name = "p", .tensor = p->weight, .scales = -1}));
}

/* The old value, in the type in which the parameter is updated. */
static int old_value(struct optimizing *o, const struct kept *kept, enum rt_dtype dtype) {
    if (kept->scales < 0) return build_cast(&o->builder, kept->tensor, dtype);
    const struct attr attrs[] = {attr_of_text("to", rt_dtypes[dtype].name), kept->has_sign};
    return build(&o->builder, OP_DequantizeBlocks, 2, (int[]){kept->tensor, kept->scales}, 2, attrs);
}

/* Stores the new value at the end of the phase. */
static int store(struct optimizing *o, const struct kept *kept, int value, const char *owner) {
    int results[2] = {-1, -1};
    if (kept->scales < 0)
        results[0] = build_cast(&o->builder, value, o->graph->tensors.at[kept->tensor].dtype);
    else if (build_many(&o->builder, OP_QuantizeBlocks, 4, (int[]){kept->tensor, kept->scales, value, o->takes}, 2,
                        results, 1, &kept->has_sign) < 0)
        return -1;
    if (results[0] < 0) return -1;
    name_as(o, results[0], owner, kept->name);
    graph_add_update(o->graph, kept->tensor, results[0]);
    if (kept->scales >= 0) graph_add_update(o->graph, kept->scales, results[1]);
    return 0;
}

/* The product of two matrices, each transposed if that is said. */
static int product(struct optimizing *o, int a, bool trans_a, int b, bool trans_b) {
    const struct attr attrs[] = {attr_of_int("trans_a", trans_a), attr_of_int("trans_b", trans_b)};
    return build(&o->builder, OP_MatMul, 2, (int[]){a, b}, 2, attrs);
}

/* One more step of Newton and Schulz: a polynomial of x x^T, or of x^T x if that is smaller, times x. */
static int newton_schulz(struct optimizing *o, struct build_scope scope, int x, bool tall) {
    const int gram = product(o, x, tall, x, !tall), square = gram < 0 ? -1 : product(o, gram, false, gram, false);
    if (square < 0) return -1;
    build_scope_tensor(&scope, "x", x);
    build_scope_tensor(&scope, "gram", gram);
    build_scope_tensor(&scope, "square", square);
    const int by = build_expr(&o->builder, &scope, "ns_b * gram + ns_c * square");
    const int step = by < 0 ? -1 : tall ? product(o, x, false, by, false) : product(o, by, false, x, false);
    if (step < 0) return -1;
    build_scope_tensor(&scope, "step", step);
    return build_expr(&o->builder, &scope, "ns_a * x + step");
}

/* The nearest matrix with orthogonal rows or columns, nearly: torch.optim._muon._zeropower_via_newtonschulz (PyTorch
 * 2.9), in the parameter's precision where PyTorch computes in bf16. Every rank computes it of the whole matrix. */
static int orthogonal(struct optimizing *o, const struct build_scope *numbers, int x) {
    const struct attr to = attr_of_text("to", "f64");
    const int64_t *dims = o->graph->tensors.at[x].dims;
    const bool tall = dims[0] > dims[1];
    struct build_scope scope = *numbers;
    if ((x = build1(&o->builder, OP_Whole, x)) < 0) return -1;
    const int squares = build(&o->builder, OP_SumSquares, 1, &x, 1, &to);
    if (squares < 0 || !add_name(o, &scope, "squares", squares)) return -1;
    build_scope_tensor(&scope, "x", x);
    x = build_expr(&o->builder, &scope, "x / max(sqrt(squares), eps)");
    for (int i = 0; i < scope_number(numbers, "ns_steps") && x >= 0; i++) x = newton_schulz(o, *numbers, x, tall);
    return x < 0 ? -1 : build1(&o->builder, OP_Whole, x);
}

static int whole(struct optimizing *o, const struct build_scope *numbers, int x) {
    (void)numbers;
    return build1(&o->builder, OP_Whole, x);
}

/* Means over a dimension, counted from the end, which keeps extent 1. */
static int mean_along(struct optimizing *o, const struct build_scope *numbers, int x, int from_end) {
    const int64_t axis = o->graph->tensors.at[x].ndim - from_end;
    const struct attr attrs[] = {attr_of_ints("axes", 1, &axis), attr_of_int("keepdims", 1)};
    struct build_scope scope = *numbers;
    build_scope_number(&scope, "extent", (double)o->graph->tensors.at[x].dims[axis]);
    const int sum = build(&o->builder, OP_ReduceSum, 1, &x, 2, attrs);
    if (sum < 0) return -1;
    build_scope_tensor(&scope, "sum", sum);
    return build_expr(&o->builder, &scope, "sum / extent");
}

static int row_means(struct optimizing *o, const struct build_scope *numbers, int x) {
    return mean_along(o, numbers, x, 1);
}

static int column_means(struct optimizing *o, const struct build_scope *numbers, int x) {
    return mean_along(o, numbers, x, 2);
}

/* The root of the mean of squares. */
static int rms(struct optimizing *o, const struct build_scope *numbers, int x) {
    const struct attr to = attr_of_text("to", "f64");
    struct build_scope scope = {.dtype = RT_F64};
    const int squares = build(&o->builder, OP_SumSquares, 1, &x, 1, &to);
    if (squares < 0) return -1;
    build_scope_tensor(&scope, "squares", squares);
    build_scope_number(&scope, "count", (double)tensor_elements(&o->graph->tensors.at[x]));
    x = build_expr(&o->builder, &scope, "sqrt(squares / count)");
    return x < 0 ? -1 : build_cast(&o->builder, x, numbers->dtype);
}

/* What updates compute of whole tensors, by name: u = orthogonal(expression). */
static const struct {
    const char *name;
    int (*build)(struct optimizing *o, const struct build_scope *numbers, int x);
} functions[] = {{"orthogonal", orthogonal},
                 {"whole", whole},
                 {"row_means", row_means},
                 {"column_means", column_means},
                 {"rms", rms}};

/* The value of "name = expression", or of "name = function(expression)" with a function of the table. */
static int value_of_statement(struct optimizing *o, struct build_scope *scope, const char *name,
                              const char *statement) {
    const char *expression = strstr(statement, "= ") + 2, *node = o->builder.node;
    const size_t length = strcspn(expression, "(");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strlen(functions[i].name) != length || strncmp(expression, functions[i].name, length) != 0) continue;
        int value = build_expr(&o->builder, scope, expression + length);
        o->builder.node = arena_printf(o->graph->arena, "%s.%s", node, functions[i].name);
        value = value < 0 ? -1 : functions[i].build(o, scope, value);
        o->builder.node = node;
        build_scope_tensor(scope, name, value);
        return value;
    }
    return build_expr(&o->builder, scope, arena_printf(o->graph->arena, "%s; %s", statement, name));
}

/* "name = expression": the new value of a state or of the parameter; the old one if the step is skipped, which
 * QuantizeBlocks does by itself; or another
 * value, which later statements read. They read new values, so that the whole update can be fused (Note [One pass] in
 * fuse_elementwise.c). */
static int assign(struct optimizing *o, struct build_scope *scope, const struct all_kept *kept, const char *statement) {
    const char *name = arena_copy(o->graph->arena, statement, strcspn(statement, " "));
    int value = value_of_statement(o, scope, name, statement), i = kept->all.n - 1;
    while (i >= 0 && strcmp(kept->all.at[i].name, name) != 0) i--;
    if (value < 0 || o->takes < 0 || i < 0 || kept->all.at[i].scales >= 0) return value;
    int old = old_value(o, &kept->all.at[i], scope->dtype);
    value = old < 0 ? -1 : build(&o->builder, OP_Where, 3, (int[]){o->takes, value, old}, 0, NULL);
    build_scope_tensor(scope, name, value);
    return value;
}

static int assign_all(struct optimizing *o, struct build_scope *scope, const struct all_kept *kept, const char *text) {
    for (const char *at = text; *at; at += strspn(at, "; ")) {
        size_t length = strcspn(at, ";");
        if (assign(o, scope, kept, arena_copy(o->graph->arena, at, length)) < 0) return -1;
        at += length;
    }
    return 0;
}

/* Defines "rows" and "columns" of a matrix, as the PyTorch module has it: exporters transpose the weights of linear
 * layers. */
static void name_extents(const struct optimizing *o, const struct parameter *p, struct build_scope *scope) {
    const struct tensor *weight = &o->graph->tensors.at[p->weight];
    const bool turned = weight->mark == MARK_MOVED || name_kind_of(weight->name) == KIND_OPERAND;
    if (weight->ndim != 2) return;
    build_scope_number(scope, "rows", (double)weight->dims[turned]);
    build_scope_number(scope, "columns", (double)weight->dims[!turned]);
}

/* New values of the parameter, "p", and of its average, from its own new value and its old one. The average is computed
 * from p, which Note [One pass] in fuse_elementwise.c needs. */
static int average(struct optimizing *o, struct build_scope *scope) {
    build_scope_tensor(scope, "exchanges", o->exchanges);
    build_scope_tensor(scope, "takes", o->takes);
    return build_expr(&o->builder, scope,
                      "p = exchanges ? ema : p; "
                      "ema = exchanges ? old_p : (takes ? ema + fade * (p - ema) : ema); ema");
}

/* New values of the parameter and its states. */
static int update(struct optimizing *o, struct parameter *p) {
    struct group *group = group_of(o, p);
    const struct optimizer *row = group->optimizer->row;
    struct all_kept kept = {0};
    struct build_scope scope;
    enum rt_dtype dtype = op_summed_in(o->graph->tensors.at[p->weight].dtype);
    o->builder.node = name_for(o, p, arena_printf(o->graph->arena, "%s_update", row->name));
    if (find_numbers(o, group) < 0 || names_for(o, &group->numbers, dtype, &scope) < 0) return -1;
    int gradient = build_cast(&o->builder, p->gradient, dtype), factor = build_cast(&o->builder, o->clip, dtype);
    name_as(o, factor, "optimizer", "clip");
    if (gradient >= 0) gradient = build2(&o->builder, OP_Mul, gradient, factor);
    if (!add_name(o, &scope, "g", gradient)) return -1;
    name_extents(o, p, &scope);
    list_kept(o, p, with_average(o, row->states, *row->states ? " ema" : "ema"), &kept);
    for (int i = 0; i < kept.all.n; i++) {
        const int value = old_value(o, &kept.all.at[i], dtype);
        if (value < 0) return -1;
        build_scope_tensor(&scope, kept.all.at[i].name, value);
    }
    build_scope_tensor(&scope, "old_p", value_of(&scope, "p"));
    bool decays = named_options_value(&group->optimizer->options, "weight_decay", 0) != 0;
    if (decays && build_expr(&o->builder, &scope, arena_printf(o->graph->arena, "%s p", row->decay)) < 0) return -1;
    if (assign_all(o, &scope, &kept, row->update) < 0) return -1;
    if (o->training->ema > 0 && average(o, &scope) < 0) return -1;
    const char *owner = o->graph->tensors.at[p->weight].name;
    int status = 0;
    for (int i = 0; i < kept.all.n && !status; i++)
        status = store(o, &kept.all.at[i], value_of(&scope, kept.all.at[i].name), owner);
    return status;
}

static int each(struct optimizing *o, const char *what, int (*make)(struct optimizing *o, struct parameter *p)) {
    for (int i = 0; i < o->graph->parameters.n; i++) {
        o->builder.node = name_for(o, &o->graph->parameters.at[i], what);
        if (make(o, &o->graph->parameters.at[i]) < 0) return -1;
    }
    return 0;
}

/* Appends a number to the tensor's name if another has it. */
static void name_value(struct graph *graph, int tensor, struct map *seen, struct map *numbers) {
    const char *own = graph->tensors.at[tensor].name, *name = own;
    int i = map_find(numbers, own);
    for (i = i < 0 ? 1 : i; map_find(seen, name) >= 0;) name = arena_printf(graph->arena, "%s.%d", own, ++i);
    if (i > 1) map_set(numbers, own, i);
    map_set(seen, name, tensor);
    graph->tensors.at[tensor].name = name;
}

/* Makes the names of values unique, because plans identify the operands of a node by name. In the order of the nodes,
 * of the live ones alone: a graph that was written as text and read again gets the same names. */
static void name_apart(struct graph *graph) {
    struct map seen, numbers; /* numbers: name -> the last number appended to it */
    map_init(&seen, graph->arena);
    map_init(&numbers, graph->arena);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int k = 0; k < node->ninputs; k++) {
            const struct tensor *x = node->inputs[k] < 0 ? NULL : &graph->tensors.at[node->inputs[k]];
            if (x && x->kind != TENSOR_VALUE) map_set(&seen, x->name, node->inputs[k]);
        }
    }
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        for (int o = 0; o < node->noutputs; o++)
            if (node->outputs[o] >= 0) name_value(graph, node->outputs[o], &seen, &numbers);
    }
}

int pass_optimizer(struct graph *graph, const struct pass_context *context) {
    struct optimizing o = {.graph = graph,
                           .training = context->training,
                           .decisions = &context->decisions,
                           .builder = {graph, context->diags, "optimizer"}};
    o.tensors = graph->tensors.n;
    if (!graph->parameters.n || !context->training) return 0;
    int micro = graph->order.n;
    o.known = build_know(graph->arena);
    o.readers = graph_readers(graph, graph->arena);
    if (each(&o, "accumulate", accumulate) < 0) return -1;
    graph_set_phase(graph, micro, PHASE_BACKWARD);
    accumulate_early(graph, micro);
    int reduce = graph->order.n, norm;
    o.scale = loss_scale_find(&o.builder, &context->training->amp);
    if (find_mean(&o) < 0) return -1;
    o.builder.node = "optimizer";
    if ((norm = give_norm(&o)) < 0) return -1;
    graph_set_phase(graph, reduce, PHASE_REDUCE);
    int update_first = graph->order.n;
    if (loss_scale_judge(&o.builder, &context->training->amp, &o.scale, norm) < 0 || clip(&o, norm) < 0 ||
        find_exchange(&o) < 0)
        return -1;
    name_as(&o, o.takes, "optimizer", "good");
    if (each(&o, "update", update) < 0) return -1;
    o.builder.node = "loss_scale";
    if (loss_scale_end(&o.builder, &context->training->amp, &o.scale) < 0) return -1;
    graph_set_phase(graph, update_first, PHASE_UPDATE);
    graph->parameters.n = 0;
    name_apart(graph);
    return 0;
}
