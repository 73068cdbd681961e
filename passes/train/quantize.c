/* Quantises the operands of marked products (Note [Marks] in fp8.c) if the plan allows it, and adds their scales as
 * states. Codes are the 8-bit values of a quantised tensor.
 *
 * Note [Rows of codes]
 * Libraries multiply 8-bit floats if both operands are contiguous along the summed dimension, in rows of a multiple
 * of 16 bytes. So an operand of the other orientation is transposed after quantisation, and the extents of each
 * rank's product must be multiples of 16. If the product of a layer or of one of its gradients is split otherwise,
 * the whole layer is not quantised. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "ir/base/map.h"
#include "ir/base/str.h"
#include "ir/build.h"
#include "ir/dims.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "passes/train/training.h"

/* The scale of a tensor, and the tensors that belong to it. */
struct scale {
    const char *name, *format;
    double first;        /* the scale before a magnitude is known */
    int state;           /* STATE f32: the scale; 0: no magnitude is known, `first` counts */
    int factor, unscale; /* the scale, and 1 / scale; -1: not made yet */
    int most;            /* the largest magnitude of the tensor in the micro-batch */
};

/* The codes of a tensor in one layout, and their transpose. */
struct codes {
    int straight, turned; /* tensors; turned -1: not made yet */
};

struct quantizing {
    struct rewrite rewrite;
    struct build builder;
    const struct training *training;
    const struct decisions *decisions;
    struct map scale_of, codes_of, layers; /* layers: name -> 0 if it is quantised, 1 if not */
    VEC(struct scale) scales;
    VEC(struct codes) codes;
};

static const char *layer_of(const struct node *node) {
    return attr_text(node, "fp8_layer", NULL);
}

/* What the plan permits -------------------------------------------------------------------------------------------- */

/* The cuts of a factor: along axes[i] for each i with a split of the factor, the outermost first. */
struct factor_cuts {
    const struct graph *graph;
    const struct node_split *splits;
    int factor, axes[RT_LAYOUT_AXES];
};

/* The extent of a part that is no multiple of FP8_MULTIPLE, when axes from number `i` on divide `extent`; -1: none. */
static int64_t misfit_within(const struct factor_cuts *cuts, int i, int64_t extent) {
    const struct mesh *mesh = &cuts->graph->mesh;
    while (i < mesh->naxes && cuts->splits[cuts->axes[i]].factor != cuts->factor) i++;
    if (i == mesh->naxes) return extent % FP8_MULTIPLE ? extent : -1;
    const struct node_split *split = &cuts->splits[cuts->axes[i]];
    const struct rt_cut cut = {extent, split->blocks, split->grain, mesh->axis[cuts->axes[i]].size};
    int64_t found = -1;
    for (int r = 0; r < cut.ways && found < 0; r++)
        if (!r || rt_cut_length(&cut, r) != rt_cut_length(&cut, r - 1))
            found = misfit_within(cuts, i + 1, rt_cut_extent(&cut, r));
    return found;
}

/* The extent of the factor on some rank that is no multiple of FP8_MULTIPLE; -1 if all are multiples. */
static int64_t misfit(const struct graph *graph, const struct dims *dims, const struct node *node, int factor) {
    struct factor_cuts cuts = {.graph = graph, .splits = node->split, .factor = factor};
    dims_outermost_first(node->split, graph->mesh.naxes, cuts.axes);
    return misfit_within(&cuts, 0, dims->factor[factor].extent);
}

/* True if the name of the layer matches an include rule. */
static bool includes(const struct fp8 *fp8, const char *layer) {
    for (int i = 0; i < fp8->rules.n; i++)
        if (!fp8->rules.at[i].exclude && fnmatch(fp8->rules.at[i].pattern, layer, 0) == 0) return true;
    return false;
}

static int refuse_layer(struct quantizing *q, const struct node *node, int64_t part) {
    const char *layer = layer_of(node);
    struct diags *diags = q->builder.diags;
    map_set(&q->layers, layer, 1);
    const char *why =
        arena_printf(diags->arena, "a rank's shard of %s has an extent of %lld, which is not a multiple of %d",
                     node->name, (long long)part, FP8_MULTIPLE);
    if (includes(&q->training->fp8, layer))
        return diag_error(diags, 425, EXIT_LIMIT, layer, "--fp8 includes this layer: %s", why);
    diag_remark(diags, layer, "fp8: this layer is not converted to 8-bit floats: %s", why);
    return 0;
}

static int prove(struct quantizing *q) {
    const struct graph *graph = q->builder.graph;
    int errors = q->builder.diags->errors;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        const char *layer = layer_of(node);
        struct dims dims;
        if (!layer || map_find(&q->layers, layer) == 1) continue;
        map_set(&q->layers, layer, 0);
        dims_bind_checked(graph->arena, graph, node, &dims);
        for (int f = 0; f < dims.nfactors; f++) {
            int64_t part = misfit(graph, &dims, node, f);
            if (part < 0) continue;
            refuse_layer(q, node, part);
            break;
        }
    }
    return q->builder.diags->errors > errors ? -1 : 0;
}

static bool is_quantised(const struct quantizing *q, const struct node *node) {
    const char *layer = layer_of(node);
    return layer && map_find(&q->layers, layer) == 0;
}

/* Codes ------------------------------------------------------------------------------------------------------------ */

/* The scale of a mark "FORMAT:NAME". */
static struct scale *scale_of(struct quantizing *q, const char *mark) {
    return &q->scales.at[map_find(&q->scale_of, mark)];
}

/* Adds the scale of a mark unless there is one. Scales met in the backward phase are those of gradients, which are
 * multiplied by the loss scale. */
static void meet_scale(struct quantizing *q, const char *mark, enum phase phase) {
    struct graph *graph = q->builder.graph;
    const double loss_scale = phase == PHASE_BACKWARD ? q->training->amp.loss_scale : 0;
    const char *name = strchr(mark, ':') + 1;
    struct scale scale = {.name = name,
                          .format = arena_copy(graph->arena, mark, (size_t)(name - mark - 1)),
                          .factor = -1,
                          .unscale = -1,
                          .most = -1};
    if (map_find(&q->scale_of, mark) >= 0) return;
    scale.first = loss_scale > 0 ? 1 / loss_scale : 1;
    scale.state =
        graph_add_tensor(graph, TENSOR_STATE, arena_printf(graph->arena, "%s.fp8.scale", name), RT_F32, 0, NULL);
    map_set(&q->scale_of, mark, q->scales.n);
    VEC_PUSH(graph->arena, &q->scales, scale);
}

static int factor_of(struct quantizing *q, struct scale *scale) {
    struct build_scope scope = {.dtype = RT_F32};
    build_scope_tensor(&scope, "scale", scale->state);
    build_scope_number(&scope, "first", scale->first);
    if (scale->factor < 0) scale->factor = build_expr(&q->builder, &scope, "scale > 0 ? scale : first");
    return scale->factor;
}

static int unscale_of(struct quantizing *q, const char *mark) {
    struct scale *scale = scale_of(q, mark);
    struct build_scope scope = {.dtype = RT_F32};
    int factor = factor_of(q, scale);
    if (factor < 0) return -1;
    build_scope_tensor(&scope, "factor", factor);
    if (scale->unscale < 0) scale->unscale = build_expr(&q->builder, &scope, "1 / factor");
    return scale->unscale;
}

/* Splits the producer of `tensor` so that its first operand has the layout `as`. */
static void cut_like(struct quantizing *q, int tensor, const struct layout *as) {
    struct graph *graph = q->builder.graph;
    struct node *node = &graph->nodes.at[graph->tensors.at[tensor].producer];
    struct dims dims;
    dims_bind_checked(graph->arena, graph, node, &dims);
    for (int c = 0; c < as->ncuts; c++) {
        const struct placement *held = &as->cuts[c].placement;
        struct cut_option options[RT_MAX_NDIM];
        if (held->kind != PLACED_PART) continue;
        int n = dims_cut_options(&dims, 0, held->dim, held->blocks, held->grain, options);
        if (n < 1 || options[0].more_blocks != 1 || options[0].more_grain != 1)
            BUG("%s: the 8-bit copy of a tensor cannot be split as the tensor is", node->name);
        dims_nest(node->split, graph->mesh.naxes, as->cuts[c].axis, &options[0].split);
    }
}

static const char *codes_key(const struct quantizing *q, int tensor, const char *mark, const struct layout *as) {
    struct strbuf key;
    strbuf_init(&key, q->builder.graph->arena);
    strbuf_printf(&key, "%d %s", tensor, mark);
    layout_put_key(&key, as);
    return strbuf_text(&key);
}

/* Quantises the tensor in a layout. A tensor that is quantised a second time, in another layout or recomputed, has
 * the same largest magnitude. */
static int quantise(struct quantizing *q, int tensor, const char *mark, const struct layout *as) {
    struct scale *scale = scale_of(q, mark);
    struct attr format = attr_of_text("format", scale->format);
    int factor = factor_of(q, scale), outputs[2];
    if (factor < 0 || build_many(&q->builder, OP_Quantize, 2, (int[]){tensor, factor}, 2, outputs, 1, &format) < 0)
        return -1;
    cut_like(q, outputs[0], as);
    if (scale->most < 0) scale->most = outputs[1];
    return outputs[0];
}

/* The codes of an operand; `turned`: transposed, because the operand is not contiguous along the summed dimension. */
static int codes_of(struct quantizing *q, const struct dims *dims, const struct node *node, int operand, bool turned) {
    static const int64_t perm[] = {1, 0};
    const char *mark = attr_text(node, operand ? "fp8_b" : "fp8_a", "");
    const struct layout as = dims_layout_wanted(q->builder.graph, dims, node, operand);
    const char *key = codes_key(q, node->inputs[operand], mark, &as);
    int known = map_find(&q->codes_of, key);
    if (known < 0) {
        struct codes codes = {quantise(q, node->inputs[operand], mark, &as), -1};
        if (codes.straight < 0) return -1;
        map_set(&q->codes_of, key, known = q->codes.n);
        VEC_PUSH(q->builder.graph->arena, &q->codes, codes);
    }
    struct codes *codes = &q->codes.at[known];
    if (!turned) return codes->straight;
    if (codes->turned < 0) {
        codes->turned = build_transpose(&q->builder, codes->straight, perm);
        if (codes->turned >= 0) cut_like(q, codes->turned, &as);
    }
    return codes->turned;
}

/* Splits the producer of `tensor` like the product `like`, by the names of its factors. */
static void cut_product(struct quantizing *q, int tensor, const struct dims *from, const struct node *like) {
    struct graph *graph = q->builder.graph;
    struct node *node = &graph->nodes.at[graph->tensors.at[tensor].producer];
    struct dims dims;
    dims_bind_checked(graph->arena, graph, node, &dims);
    for (int axis = 0; axis < graph->mesh.naxes; axis++) {
        node->split[axis] = like->split[axis];
        if (like->split[axis].factor >= 0)
            node->split[axis].factor = (int16_t)dims_find(&dims, from->factor[like->split[axis].factor].name);
    }
}

static int multiply(struct quantizing *q, int id) {
    struct graph *graph = q->builder.graph;
    const struct node node = graph->nodes.at[id];
    struct dims dims;
    dims_bind_checked(graph->arena, graph, &node, &dims);
    q->builder.node = node.name;
    const char *mark_a = attr_text(&node, "fp8_a", ""), *mark_b = attr_text(&node, "fp8_b", "");
    meet_scale(q, mark_a, node.phase);
    meet_scale(q, mark_b, node.phase);
    int a = codes_of(q, &dims, &node, 0, attr_int(&node, "trans_a", 0));
    int b = codes_of(q, &dims, &node, 1, !attr_int(&node, "trans_b", 0));
    int unscale_a = unscale_of(q, mark_a), unscale_b = unscale_of(q, mark_b);
    if (a < 0 || b < 0 || unscale_a < 0 || unscale_b < 0) return -1;
    const struct attr attrs[] = {attr_of_text("to", rt_dtypes[graph->tensors.at[node.outputs[0]].dtype].name),
                                 attr_of_text("a", scale_of(q, mark_a)->format),
                                 attr_of_text("b", scale_of(q, mark_b)->format),
                                 attr_of_int("fast", attr_find(&node, "fp8_dy") != NULL)};
    int y = build(&q->builder, OP_ScaledMatMul, 4, (int[]){a, b, unscale_a, unscale_b}, sizeof attrs / sizeof *attrs,
                  attrs);
    if (y < 0) return -1;
    cut_product(q, y, &dims, &node);
    graph->tensors.at[y].name = graph->tensors.at[node.outputs[0]].name; /* plans identify operands by name */
    rewrite_replace(&q->rewrite, node.outputs[0], y);
    return 0;
}

/* Keeps the node, without its marks. */
static void keep(struct quantizing *q, int id) {
    struct node *node = &q->builder.graph->nodes.at[id];
    int n = 0;
    for (int i = 0; i < node->nattrs; i++)
        if (strncmp(node->attrs[i].key, "fp8_", 4) != 0) node->attrs[n++] = node->attrs[i];
    node->nattrs = n;
    rewrite_keep(&q->rewrite, id);
}

static int visit(struct quantizing *q, int id) {
    struct graph *graph = q->builder.graph;
    int first = graph->order.n;
    if (!is_quantised(q, &graph->nodes.at[id])) return keep(q, id), 0;
    if (multiply(q, id) < 0) return -1;
    graph_set_phase(graph, first, graph->nodes.at[id].phase);
    return 0;
}

/* Scales of the next step ------------------------------------------------------------------------------------------ */

static int add_state(struct quantizing *q, const struct scale *scale, const char *what, int ndim, const int64_t *dims) {
    struct graph *graph = q->builder.graph;
    return graph_add_tensor(graph, TENSOR_STATE, arena_printf(graph->arena, "%s.fp8.%s", scale->name, what), RT_F32,
                            ndim, dims);
}

static void name_scale(struct quantizing *q, const struct scale *scale) {
    q->builder.node = arena_printf(q->builder.graph->arena, "%s.fp8", scale->name);
}

/* Accumulates the largest magnitude of the step so far, dummy micro-batches left out. */
static int gather(struct quantizing *q, struct scale *scale) {
    struct build_scope scope = {.dtype = RT_F32};
    name_scale(q, scale);
    int real = build_cast(&q->builder, graph_control(q->builder.graph, RT_REAL), RT_F32);
    build_scope_tensor(&scope, "most", scale->most);
    build_scope_tensor(&scope, "real", real);
    if (!training_gathers(q->decisions, q->builder.graph))
        return scale->most = build_expr(&q->builder, &scope, "real > 0 ? most : 0");
    int seen = add_state(q, scale, "seen", 0, NULL);
    q->builder.graph->tensors.at[seen].gradient = true;
    build_scope_tensor(&scope, "seen", seen);
    scale->most = build_expr(&q->builder, &scope, "real > 0 ? max(seen, most) : seen");
    if (scale->most >= 0) graph_add_update(q->builder.graph, seen, scale->most);
    return scale->most;
}

static int over_units(struct quantizing *q, struct scale *scale) {
    name_scale(q, scale);
    scale->most = build1(&q->builder, OP_Detach, scale->most); /* the scale unit's own stays the state's new value */
    if (scale->most >= 0) q->builder.graph->tensors.at[scale->most].joined = JOINED_MAX;
    return scale->most;
}

/* The history is a ring buffer: the position of a step is its number modulo the length. */
struct ring {
    int places, at; /* f32: the positions 0, 1, 2 ..; the position of the step */
};

static int make_ring(struct quantizing *q, struct ring *ring) {
    const int64_t length = (int64_t)q->training->fp8.history;
    float *places = ARENA_ARRAY(q->builder.graph->arena, float, length);
    for (int64_t i = 0; i < length; i++) places[i] = (float)i;
    q->builder.node = "fp8";
    ring->places = graph_add_const(q->builder.graph, "fp8.places", RT_F32, 1, &length, places);
    struct build_scope scope = {.dtype = RT_F64};
    build_scope_tensor(&scope, "step", graph_control(q->builder.graph, RT_STEP));
    build_scope_number(&scope, "length", (double)length);
    /* at no position in an exchange (Note [Exchange] in optimizer.c) */
    const bool exchanges = q->training->ema > 0;
    build_scope_tensor(&scope, "training", graph_control(q->builder.graph, RT_TRAINING));
    int at =
        build_expr(&q->builder, &scope, exchanges ? "training > 0 ? fmod(step, length) : -1" : "fmod(step, length)");
    return ring->at = at < 0 ? -1 : build_cast(&q->builder, at, RT_F32);
}

static int remember(struct quantizing *q, const struct scale *scale, const struct ring *ring) {
    const int64_t length = (int64_t)q->training->fp8.history;
    struct build_scope scope = {.dtype = RT_F32};
    int history = add_state(q, scale, "history", 1, &length);
    build_scope_tensor(&scope, "history", history);
    build_scope_tensor(&scope, "places", ring->places);
    build_scope_tensor(&scope, "at", ring->at);
    build_scope_tensor(&scope, "most", scale->most);
    int next = build_expr(&q->builder, &scope, "finite = most - most == 0 ? most : 0; places == at ? finite : history");
    if (next >= 0) graph_add_update(q->builder.graph, history, next);
    return next;
}

/* Updates history and scale. The scale is at most 2^126, whose reciprocal is not subnormal. */
static int rescale(struct quantizing *q, const struct scale *scale, const struct ring *ring) {
    const double largest = strcmp(scale->format, "e5m2") == 0 ? 57344 : 448;
    const int64_t axis = 0;
    const struct attr attrs[] = {attr_of_ints("axes", 1, &axis), attr_of_int("keepdims", 0)};
    struct build_scope scope = {.dtype = RT_F32};
    name_scale(q, scale);
    int history = remember(q, scale, ring),
        most = history < 0 ? -1 : build(&q->builder, OP_ReduceMax, 1, &history, 2, attrs);
    if (most < 0) return -1;
    build_scope_tensor(&scope, "most", most);
    build_scope_tensor(&scope, "scale", scale->state);
    build_scope_number(&scope, "largest", ldexp(largest, -(int)q->training->fp8.margin));
    build_scope_number(&scope, "bound", 0x1p126);
    int next = build_expr(&q->builder, &scope, "most > 0 ? min(largest / most, bound) : scale");
    if (next >= 0) graph_add_update(q->builder.graph, scale->state, next);
    return next;
}

static int update_scales(struct quantizing *q) {
    struct graph *graph = q->builder.graph;
    struct ring ring;
    int first = graph->order.n;
    for (int i = 0; i < q->scales.n; i++)
        if (gather(q, &q->scales.at[i]) < 0) return -1;
    graph_set_phase(graph, first, PHASE_BACKWARD);
    first = graph->order.n;
    for (int i = 0; i < q->scales.n; i++)
        if (over_units(q, &q->scales.at[i]) < 0) return -1;
    graph_set_phase(graph, first, PHASE_REDUCE);
    first = graph->order.n;
    if (make_ring(q, &ring) < 0) return -1;
    for (int i = 0; i < q->scales.n; i++)
        if (rescale(q, &q->scales.at[i], &ring) < 0) return -1;
    graph_set_phase(graph, first, PHASE_UPDATE);
    graph_sort_phases(graph);
    return 0;
}

static int report(const struct quantizing *q) {
    int n = 0;
    for (int i = 0; i < q->layers.n; i++) n += q->layers.entries[i].value == 0;
    if (q->layers.n && !n)
        return diag_error(q->builder.diags, 426, EXIT_UNSUPPORTED, q->builder.graph->name,
                          "--fp8: under this plan none of the %d linear layers can compute in 8-bit floats",
                          q->layers.n);
    if (n)
        diag_remark(q->builder.diags, q->builder.graph->name,
                    "fp8: 8-bit floats for %d linear layer(s), with %d scale(s)", n, q->scales.n);
    return 0;
}

/* Puts the nodes that were added, those from number `added` on, on the pipeline stage of their first reader; of the
 * forward phase on the first stage of all readers, since its values go to later stages alone. */
static void follow_readers(struct graph *graph, int added) {
    int *reader = ARENA_ARRAY(graph->arena, int, graph->tensors.n + 1); /* per tensor: 1 + the stage, 0: no reader */
    for (int i = graph->order.n - 1; i >= 0; i--) {
        struct node *node = &graph->nodes.at[graph->order.at[i]];
        const int stage = graph->order.at[i] < added ? node->stage + 1 : reader[node->outputs[0]];
        node->stage = stage > 0 ? stage - 1 : STAGE_ALL;
        for (int k = 0; k < node->ninputs && stage > 0; k++) {
            int *of = node->inputs[k] < 0 ? NULL : &reader[node->inputs[k]];
            const bool earlier = of && *of && *of < stage && graph_phase_of(graph, node->inputs[k]) == PHASE_FORWARD;
            if (of && !earlier) *of = stage;
        }
    }
}

/* Puts nodes that only updates read, such as the largest magnitude of a step, on the last stage of their operands. */
static void follow_operands(struct graph *graph) {
    for (int i = 0; i < graph->order.n; i++) {
        struct node *node = &graph->nodes.at[graph->order.at[i]];
        int stage = 0;
        for (int k = 0; k < node->ninputs && node->stage == STAGE_ALL; k++) {
            const struct node *producer = graph_producer(graph, node->inputs[k]);
            if (producer && producer->stage > stage) stage = producer->stage;
        }
        if (node->stage == STAGE_ALL) node->stage = stage;
    }
}

int pass_quantize(struct graph *graph, const struct pass_context *context) {
    if (!context->training || !context->training->fp8.text) return 0;
    const int added = graph->nodes.n;
    struct quantizing q = {
        .builder = {graph, context->diags, NULL}, .training = context->training, .decisions = &context->decisions};
    map_init(&q.scale_of, graph->arena);
    map_init(&q.codes_of, graph->arena);
    map_init(&q.layers, graph->arena);
    if (prove(&q) < 0) return -1;
    rewrite_begin(&q.rewrite, graph);
    for (int i = 0; i < q.rewrite.order_n; i++)
        if (visit(&q, rewrite_next(&q.rewrite, i)) < 0) return -1;
    rewrite_end(&q.rewrite);
    if (report(&q) < 0) return -1;
    if (q.scales.n && update_scales(&q) < 0) return -1;
    follow_readers(graph, added);
    follow_operands(graph);
    return 0;
}
