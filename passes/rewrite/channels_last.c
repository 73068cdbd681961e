/* Stores images with channels as the last dimension wherever convolutions read and write them.
 *
 * Note [Channels last]
 * A convolution of channels last is a product of its windows with weights in panels (runtime/kernels/c/conv_packed.c),
 * which is as fast as a matrix product; with channels before the spatial dimensions the windows would have to be turned
 * around first. The layout is that of the graph's own tensors, an image (n, c, i..) becomes a tensor (n, i.., c), so
 * that shapes, splits, memory and verification are those of any other tensor.
 *
 * A convolution becomes one of channels last between two moves, a Transpose of its input and one back of its result.
 * What reads the latter reads the former's input instead, if it works on dimensions in any order: it computes with
 * channels last, and the move back stands behind it. A row of `movers` says how its attributes change. In the end moves
 * are left where an operator needs the model's order, and at inputs and outputs; those that none reads are removed. A
 * convolution that would stand alone between its two moves is left as it is, unless Winograd's algorithm makes up for
 * them. */
#include <string.h>

#include "ir/build.h"
#include "ir/dims.h"
#include "ir/op.h"
#include "ir/packing.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"
#include "runtime/base/shape/conv_room.h"
#include "runtime/base/shape/panel.h"
#include "runtime/base/shape/winograd.h"

/* Multiply-adds of a result's element below which a convolution is not worth two moves. */
enum { LEAST_WORK = 64, ALL = 1 << 16 };

/* Output channels of a group below which convolutions with channels before are faster, measured with 8 and 16. */
enum { LEAST_GROUP = 16 };

struct walk {
    struct build builder;
    bool trains;
    const bool *excluded;
    const int *readers; /* before the walk */
    const bool *leads;  /* per tensor, before the walk: true if a reader may make its move back superfluous */
    int ntensors;
};

static const struct tensor *tensor_of(const struct walk *walk, int tensor) {
    return &walk->builder.graph->tensors.at[tensor];
}

/* Moving the dimensions of extent 1 alone leaves the order of the elements. */
static bool keeps_order(const struct tensor *image, int channels) {
    int64_t positions = 1;
    for (int d = 1; d < image->ndim; d++) positions *= d == channels ? 1 : image->dims[d];
    return image->dims[channels] == 1 || positions == 1;
}

/* The image with the dimension at place d being dimension order(d) of x. */
static int move(struct walk *walk, int x, int (*order)(int d, int ndim), int channels) {
    const struct tensor t = *tensor_of(walk, x);
    int64_t perm[RT_MAX_NDIM], shape[RT_MAX_NDIM];
    for (int d = 0; d < t.ndim; d++) perm[d] = order(d, t.ndim), shape[d] = t.dims[perm[d]];
    return keeps_order(&t, channels) ? build_reshape(&walk->builder, x, t.ndim, shape)
                                     : build_transpose(&walk->builder, x, perm);
}

/* Returns a tensor in the model's layout that replaces `as`: x, which has the elements of `as` with channels last,
 * moved back. x gets the name of `as`. */
static int move_back(struct walk *walk, int x, int as) {
    if (x < 0) return -1;
    struct tensor *image = &walk->builder.graph->tensors.at[x];
    image->name = tensor_of(walk, as)->name;
    image->channels_last = true;
    return move(walk, x, image_place, tensor_of(walk, x)->ndim - 1);
}

/* The tensor of channels last that is moved back to `image`; -1: there is none. */
static int before_move(const struct walk *walk, int image) {
    const struct tensor *y = tensor_of(walk, image);
    const struct node *node = graph_producer(walk->builder.graph, image);
    if (y->ndim < 3 || !node || (node->op->id != OP_Transpose && node->op->id != OP_Reshape)) return -1;
    const struct tensor *x = tensor_of(walk, node->inputs[0]);
    const int64_t *perm = node->op->id == OP_Transpose ? attr_ints(node, "perm", NULL) : NULL;
    if (x->ndim != y->ndim || (!perm && !keeps_order(y, 1))) return -1;
    for (int d = 0; d < y->ndim; d++)
        if (perm ? perm[d] != image_place(d, y->ndim) : y->dims[d] != x->dims[image_place(d, y->ndim)]) return -1;
    return node->inputs[0];
}

static int moved(struct walk *walk, int image) {
    const int before = before_move(walk, image);
    return before >= 0 ? before : move(walk, image, image_dim, 1);
}

/* The operand x of a node, in the layout for channels last. x broadcasts with the node's images of ndim dimensions. */
static int moved_beside(struct walk *walk, int x, int ndim) {
    const struct tensor t = *tensor_of(walk, x);
    int64_t shape[RT_MAX_NDIM];
    if (tensor_elements(&t) == 1 && t.ndim <= 1) return x;
    for (int d = 0; d < ndim; d++) shape[d] = d < ndim - t.ndim ? 1 : t.dims[d - (ndim - t.ndim)];
    return moved(walk, t.ndim < ndim ? build_reshape(&walk->builder, x, ndim, shape) : x);
}

/* How an attribute changes: it is an axis, a list of axes, or has a number per dimension. */
enum attribute { AXIS, AXES, PER_DIMENSION };

/* Operators whose inputs are images, but those after the first `images`; attributes that name dimensions. Pools have
 * attribute channels_last. */
static const struct mover {
    enum op_id op;
    int images;
    bool windows;
    struct {
        const char *name;
        enum attribute kind;
    } attribute[3];
} movers[] = {{OP_MaxPool, 1, .windows = true},
              {OP_IntMaxPool, 1, .windows = true},
              {OP_AveragePool, 1, .windows = true},
              {OP_MaxPoolGrad, 2, .windows = true},
              {OP_Concat, ALL, .attribute = {{"axis", AXIS}}},
              {OP_Softmax, 1, .attribute = {{"axis", AXIS}}},
              {OP_LogSoftmax, 1, .attribute = {{"axis", AXIS}}},
              {OP_Gather, 1, .attribute = {{"axis", AXIS}}},
              {OP_Slice, 1, .attribute = {{"start", PER_DIMENSION}, {"step", PER_DIMENSION}, {"size", PER_DIMENSION}}},
              {OP_Pad, 1, .attribute = {{"begin", PER_DIMENSION}, {"end", PER_DIMENSION}}},
              {OP_ReduceSum, 1, .attribute = {{"axes", AXES}}},
              {OP_ReduceMax, 1, .attribute = {{"axes", AXES}}},
              {OP_ReduceMin, 1, .attribute = {{"axes", AXES}}}};

static const struct mover *mover_of(const struct walk *walk, const struct node *node) {
    static const struct mover elementwise = {.images = ALL};
    const struct tensor *y = tensor_of(walk, node->outputs[0]),
                        *x = node->ninputs ? tensor_of(walk, node->inputs[0]) : y;
    if (node->noutputs != 1 || attr_find(node, "channels_last") || y->joined) return NULL;
    if (node->op->kind == OP_ELEMENTWISE) return &elementwise;
    for (size_t i = 0; i < sizeof movers / sizeof *movers; i++)
        if (movers[i].op == node->op->id) return x->ndim == y->ndim ? &movers[i] : NULL;
    return NULL;
}

static struct attr moved_attr(struct walk *walk, const struct attr *attr, enum attribute kind, int ndim) {
    struct attr to = *attr;
    if (kind == AXIS) {
        to.value = image_place((int)attr->value, ndim);
        return to;
    }
    int64_t *numbers = ARENA_ARRAY(walk->builder.graph->arena, int64_t, attr->n + 1);
    for (int i = 0; i < attr->n; i++)
        numbers[i] = kind == AXES ? image_place((int)attr->ints[i], ndim) : attr->ints[image_dim(i, ndim)];
    for (int i = 1; i < attr->n && kind == AXES; i++) /* in order */
        for (int j = i; j > 0 && numbers[j - 1] > numbers[j]; j--) {
            const int64_t other = numbers[j];
            numbers[j] = numbers[j - 1], numbers[j - 1] = other;
        }
    to.ints = numbers;
    return to;
}

/* Reduced dimensions are neighbours there, too. */
static bool axes_fit(const struct attr *axes) {
    for (int i = 1; i < axes->n; i++)
        if (axes->ints[i] != axes->ints[i - 1] + 1) return false;
    return true;
}

/* Statistics of a batch are sums over the samples of a sum over the spatial dimensions. With channels last, these
 * dimensions are adjacent, and a single sum over all of them replaces the two. Ranks divide it as they divide the
 * second sum. Returns a negative number if the node is no such sum. */
static int build_whole_sum(struct walk *walk, const struct node *node) {
    const struct graph *graph = walk->builder.graph;
    const int before = before_move(walk, node->inputs[0]), ndim = tensor_of(walk, node->inputs[0])->ndim;
    const struct node *inner = before >= 0 ? made_by(graph, before, OP_ReduceSum) : NULL;
    int n, ninner;
    const int64_t *axes = attr_ints(node, "axes", &n);
    if (!inner || n != 1 || axes[0] || !attr_int(node, "keepdims", 1) || inner->phase != node->phase)
        return REWRITE_KEPT;
    const int64_t *summed = attr_ints(inner, "axes", &ninner);
    if (ninner != ndim - 2 || summed[0] != 1 || summed[ninner - 1] != ndim - 2) return REWRITE_KEPT;
    for (int a = 0; a < graph->mesh.naxes; a++)
        if (inner->split[a].factor >= 0 && node->split[a].factor < 0) return REWRITE_KEPT;
    int64_t all[RT_MAX_NDIM];
    for (int d = 0; d < ndim - 1; d++) all[d] = d;
    struct attr attrs[] = {attr_of_ints("axes", ndim - 1, all), attr_of_int("keepdims", 1)};
    return build(&walk->builder, OP_ReduceSum, 1, &inner->inputs[0], 2, attrs);
}

/* The node with channels last, or -2 if it cannot be. */
static int build_moved(struct walk *walk, const struct node *node, const struct mover *mover) {
    struct graph *graph = walk->builder.graph;
    const int ndim = tensor_of(walk, node->outputs[0])->ndim;
    int *inputs = ARENA_ARRAY(graph->arena, int, node->ninputs + 1);
    struct attr *attrs = ARENA_ARRAY(graph->arena, struct attr, node->nattrs + 1);
    int nattrs = node->nattrs;
    const int sum = node->op->id == OP_ReduceSum ? build_whole_sum(walk, node) : REWRITE_KEPT;
    if (sum != REWRITE_KEPT) return sum;
    for (int i = 0; i < nattrs; i++) {
        attrs[i] = node->attrs[i];
        for (int a = 0; a < 3; a++)
            if (mover->attribute[a].name && strcmp(attrs[i].key, mover->attribute[a].name) == 0) {
                attrs[i] = moved_attr(walk, &attrs[i], mover->attribute[a].kind, ndim);
                if (mover->attribute[a].kind == AXES && !axes_fit(&attrs[i])) return REWRITE_KEPT;
            }
    }
    if (mover->windows) attrs[nattrs++] = attr_of_int("channels_last", 1);
    for (int k = 0; k < node->ninputs; k++) {
        inputs[k] = k < mover->images ? moved_beside(walk, node->inputs[k], ndim) : node->inputs[k];
        if (inputs[k] < 0) return -1;
    }
    return build(&walk->builder, node->op->id, node->ninputs, inputs, nattrs, attrs);
}

/* True if one of the node's images has been moved back from channels last. */
static bool reads_moved(const struct walk *walk, const struct node *node, const struct mover *mover) {
    const int ndim = tensor_of(walk, node->outputs[0])->ndim;
    for (int k = 0; k < node->ninputs && k < mover->images; k++)
        if (node->inputs[k] >= 0 && tensor_of(walk, node->inputs[k])->ndim == ndim &&
            before_move(walk, node->inputs[k]) >= 0)
            return true;
    return false;
}

static bool is_convolution(const struct node *node) {
    return node->op->id == OP_Conv || node->op->id == OP_ConvTranspose || node->op->id == OP_ConvWeightGrad;
}

/* In training: true for a convolution that is worth moving, and for a convolution or its gradient if one of its images
 * has been moved. */
static bool is_trained_candidate(const struct walk *walk, const struct node *node) {
    const struct tensor *x = tensor_of(walk, node->inputs[0]), *w = tensor_of(walk, node->inputs[1]);
    int64_t depth = 1;
    if (attr_find(node, "channels_last") || x->dtype != RT_F32) return false;
    if (before_move(walk, node->inputs[0]) >= 0) return true;
    if (node->op->id != OP_Conv) return node->op->id == OP_ConvWeightGrad && before_move(walk, node->inputs[1]) >= 0;
    for (int d = 1; d < w->ndim; d++) depth *= w->dims[d];
    return depth >= LEAST_WORK;
}

/* True if all convolutions, and their gradients, have kernels of channels last that pack the weights in the step. */
static bool all_trainable(const struct graph *graph) {
    GRAPH_EACH(graph, i, const struct node *node) {
        if (!is_convolution(node)) continue;
        const bool weighs = node->op->id == OP_ConvWeightGrad;
        const struct tensor *w = &graph->tensors.at[weighs ? node->outputs[0] : node->inputs[1]];
        int64_t taps = 1;
        for (int d = 2; d < w->ndim; d++) taps *= w->dims[d];
        if (attr_int(node, "group", 1) != 1 || taps > RT_CONV_MOST_TAPS) return false;
    }
    return true;
}

static bool is_candidate(const struct walk *walk, const struct node *node) {
    if (walk->trains) return is_trained_candidate(walk, node);
    const int weight = node->inputs[1];
    const struct tensor *x = tensor_of(walk, node->inputs[0]), *w = tensor_of(walk, weight),
                        *y = tensor_of(walk, node->outputs[0]);
    const int64_t group = attr_int(node, "group", 1);
    int64_t depth = 1;
    for (int d = 1; d < w->ndim; d++) depth *= w->dims[d];
    const bool integers = node->op->id == OP_IntConv;
    if (attr_find(node, "channels_last") || (!integers && (x->dtype != RT_F32 || w->dtype != RT_F32)) ||
        !tensor_is_stored(w) || weight >= walk->ntensors || walk->excluded[weight] || walk->readers[weight] != 1)
        return false;
    const bool depthwise = w->dims[1] == 1 && w->dims[0] == group && !integers;
    const int64_t m = w->dims[0] / group;
    if (group != 1 && !depthwise && (integers ? m % RT_PANEL != 0 : m < LEAST_GROUP)) return false;
    return integers || depth >= LEAST_WORK || before_move(walk, node->inputs[0]) >= 0 || keeps_order(x, 1) ||
           2 * tensor_elements(x) <= tensor_elements(y);
}

/* Channels by channels of a window of 3 x 3 up to which transformed weights, four times as many, are worth reading, and
 * the tiles from which on. */
enum { MOST_TRANSFORMED = 512 * 512, LEAST_TILES = 8 };

/* Whether Winograd's algorithm is the faster one; the answer does not depend on how samples and channels are cut. Where
 * ranks cut rows their tiles would begin elsewhere. */
static bool suits_winograd(const struct walk *walk, const struct node *node) {
    const struct graph *graph = walk->builder.graph;
    const struct tensor *w = tensor_of(walk, node->inputs[1]), *y = tensor_of(walk, node->outputs[0]);
    int64_t tiles = open_typical(graph->open, y->dims[0]);
    int n;
    const int64_t *stride = attr_ints(node, "stride", &n), *dilation = attr_ints(node, "dilation", &n);
    if (w->dtype != RT_F32 || n != 2 || attr_int(node, "group", 1) != 1 || w->dims[0] < RT_PANEL ||
        w->dims[1] < RT_PANEL || w->dims[1] > RT_WINOGRAD_CHANNELS || w->dims[0] * w->dims[1] > MOST_TRANSFORMED)
        return false;
    for (int d = 0; d < 2; d++) {
        if (w->dims[2 + d] != 3 || stride[d] != 1 || dilation[d] != 1) return false;
        tiles *= (open_typical(graph->open, y->dims[2 + d]) + RT_WINOGRAD_TILE - 1) / RT_WINOGRAD_TILE;
    }
    if (tiles < LEAST_TILES) return false;
    struct dims dims;
    int64_t blocks, grain;
    dims_bind_checked(graph->arena, graph, node, &dims);
    for (int a = 0; a < graph->mesh.naxes; a++)
        if (node->split[a].factor >= 0 && dims_dim_cut(&dims, 2, &node->split[a], &blocks, &grain) >= 2) return false;
    return true;
}

/* It would be between two moves of its own. Integers are convolved faster with channels last all the same. */
static bool stands_alone(const struct walk *walk, const struct node *node) {
    return node->op->id == OP_Conv && before_move(walk, node->inputs[0]) < 0 &&
           !keeps_order(tensor_of(walk, node->inputs[0]), 1) && !walk->leads[node->outputs[0]] &&
           !keeps_order(tensor_of(walk, node->outputs[0]), 1) && !suits_winograd(walk, node);
}

static int convolve(struct walk *walk, const struct node *node) {
    struct attr *attrs = ARENA_ARRAY(walk->builder.graph->arena, struct attr, node->nattrs + 2);
    int nattrs = node->nattrs, *inputs = ARENA_ARRAY(walk->builder.graph->arena, int, node->ninputs);
    memcpy(inputs, node->inputs, (size_t)node->ninputs * sizeof *inputs);
    if ((inputs[0] = moved(walk, node->inputs[0])) < 0) return -1;
    if (node->op->id == OP_ConvWeightGrad && (inputs[1] = moved(walk, node->inputs[1])) < 0) return -1;
    memcpy(attrs, node->attrs, (size_t)node->nattrs * sizeof *attrs);
    attrs[nattrs++] = attr_of_int("channels_last", 1);
    if (!walk->trains && suits_winograd(walk, node)) attrs[nattrs++] = attr_of_int("algorithm", RT_CONV_WINOGRAD);
    return build(&walk->builder, node->op->id, node->ninputs, inputs, nattrs, attrs);
}

/* A Transpose to channels last of what is moved back is the tensor before. */
static int undone(const struct walk *walk, const struct node *node) {
    const int before = before_move(walk, node->inputs[0]), ndim = tensor_of(walk, node->inputs[0])->ndim;
    const int64_t *perm = attr_ints(node, "perm", NULL);
    for (int d = 0; d < ndim && before >= 0; d++)
        if (perm[d] != image_dim(d, ndim)) return REWRITE_KEPT;
    return before >= 0 ? before : REWRITE_KEPT;
}

/* A Reshape (n, c, i..) to (n, c, positions) is one of (n, i.., c) to (n, positions, c). */
static int flattened(struct walk *walk, const struct node *node) {
    const int before = before_move(walk, node->inputs[0]);
    const struct tensor x = *tensor_of(walk, node->inputs[0]), y = *tensor_of(walk, node->outputs[0]);
    if (before < 0 || y.ndim != 3 || y.dims[0] != x.dims[0] || y.dims[1] != x.dims[1] || y.dims[1] == 1)
        return REWRITE_KEPT;
    const int flat = build_reshape(&walk->builder, before, 3, (int64_t[]){y.dims[0], y.dims[2], y.dims[1]});
    return move_back(walk, flat, node->outputs[0]);
}

/* A node that this pass has made for node `from`, whose dimensions are `dims`. */
struct made {
    struct graph *graph;
    int id;
    const struct node *from;
    const struct dims *dims;
};

/* Splits operand `own` of the new node as node `from` splits its operand `k`. `last`: `own` has channels last and may
 * have further dimensions in front. */
static void split_like(const struct made *made, int own, int k, bool last) {
    struct node *node = &made->graph->nodes.at[made->id];
    const int naxes = made->graph->mesh.naxes;
    struct dims dims;
    int axes[RT_LAYOUT_AXES];
    dims_bind_checked(made->graph->arena, made->graph, node, &dims);
    dims_outermost_first(made->from->split, naxes, axes);
    for (int i = 0; i < naxes; i++) {
        const struct node_split *split = &made->from->split[axes[i]];
        struct cut_option options[RT_MAX_NDIM];
        int64_t blocks, grain;
        if (split->factor < 0 || node->split[axes[i]].factor >= 0) continue;
        const int d = dims_dim_cut(made->dims, k, split, &blocks, &grain), ndim = dims.operand[own].ndim,
                  to = d < 0 || !last ? d : image_place(d + ndim - made->dims->operand[k].ndim, ndim);
        if (to >= 0 && dims_cut_options(&dims, own, to, blocks, grain, options))
            dims_nest(node->split, naxes, axes[i], &options[0].split);
    }
}

/* The node in place of the other. Convolutions and pools have the same factors with channels last. */
static void split_moved(const struct made *made) {
    struct node *node = &made->graph->nodes.at[made->id];
    if (attr_find(node, "channels_last")) {
        memcpy(node->split, made->from->split, sizeof node->split);
        return;
    }
    split_like(made, made->dims->ninputs, made->dims->ninputs, true);
    for (int k = 0; k < made->dims->ninputs; k++)
        if (made->dims->operand[k].ndim == made->dims->operand[made->dims->ninputs].ndim) split_like(made, k, k, true);
}

/* True if the node is the move of tensor x, a Reshape, and that Reshape in one (build). */
static bool is_one_with(const struct graph *graph, const struct node *node, int x) {
    const struct node *before = x < 0 ? NULL : graph_producer(graph, x);
    return node->op->id == OP_Reshape && before && before->op->id == OP_Reshape && before->inputs[0] == node->inputs[0];
}

/* Places the nodes from `first` on, which were made for node `id`: on the stage and in the phase of that node, and
 * divided among ranks like it. Moves are divided like the tensors that they move. */
static void place_made(struct walk *walk, int id, int first) {
    struct graph *graph = walk->builder.graph;
    const struct node from = graph->nodes.at[id];
    struct dims dims;
    if (first == graph->nodes.n) return;
    dims_bind_checked(graph->arena, graph, &from, &dims);
    for (int i = first; i < graph->nodes.n; i++) {
        struct node *node = &graph->nodes.at[i];
        const struct made made = {graph, i, &from, &dims};
        node->stage = from.stage, node->phase = from.phase;
        if (node->op == from.op && i + 2 >= graph->nodes.n && before_move(walk, node->outputs[0]) < 0) {
            split_moved(&made);
            continue;
        }
        if (i + 1 == graph->nodes.n) split_like(&made, 1, from.ninputs, false);
        for (int k = 0; k < from.ninputs; k++)
            if (node->inputs[0] == from.inputs[k])
                split_like(&made, 0, k, false);
            else if (is_one_with(graph, node, from.inputs[k]))
                split_like(&made, 1, k, true);
    }
}

/* What replaces the node's result. */
static int replacement(struct walk *walk, const struct node *node) {
    const struct mover *mover = mover_of(walk, node);
    if (node->op->id == OP_Transpose) return undone(walk, node);
    if (node->op->id == OP_Reshape) return flattened(walk, node);
    const bool convolves =
        node->op->id == OP_Conv || node->op->id == OP_IntConv || (walk->trains && is_convolution(node));
    if (convolves ? !is_candidate(walk, node) || (!walk->trains && stands_alone(walk, node))
                  : !mover || !reads_moved(walk, node, mover))
        return REWRITE_KEPT;
    const int made = convolves ? convolve(walk, node) : build_moved(walk, node, mover);
    if (made < 0) return made;
    if (node->op->id == OP_ConvWeightGrad) { /* of the model's order */
        walk->builder.graph->tensors.at[made].name = tensor_of(walk, node->outputs[0])->name;
        return made;
    }
    return move_back(walk, made, node->outputs[0]);
}

/* The tensor that replaces the node's result, as rewrite_each wants it. */
static int replaced(void *env, int id) {
    struct walk *walk = env;
    const int first = walk->builder.graph->nodes.n;
    const struct node node = walk->builder.graph->nodes.at[id];
    walk->builder.node = node.name;
    const int tensor = replacement(walk, &node);
    if (tensor >= 0) place_made(walk, id, first);
    return tensor;
}

/* A convolution may read an image of channels last, a Transpose may be undone and a Reshape flattened; other operators
 * save the move back if what they compute needs none, or is read by one of these. */
static const bool *find_leads(const struct walk *walk) {
    const struct graph *graph = walk->builder.graph;
    bool *leads = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    GRAPH_EACH_BACK(graph, i, const struct node *node) {
        const enum op_id id = node->op->id;
        const bool ends = id == OP_Conv || id == OP_IntConv || id == OP_Transpose || id == OP_Reshape;
        const struct mover *mover = ends ? NULL : mover_of(walk, node);
        const int y = node->noutputs ? node->outputs[0] : -1;
        const bool saves = mover && (leads[y] || (tensor_of(walk, y)->ndim > 2 && keeps_order(tensor_of(walk, y), 1)));
        const int images = ends ? 1 : saves ? mover->images : 0;
        for (int k = 0; k < node->ninputs && k < images; k++)
            if (node->inputs[k] >= 0) leads[node->inputs[k]] = true;
    }
    return leads;
}

int pass_channels_last(struct graph *graph, const struct pass_context *context) {
    struct walk walk = {.builder = {graph, context->diags, NULL}, .ntensors = graph->tensors.n};
    if (context->library_products || !context->block_epilogues || (graph->train && !all_trainable(graph))) return 0;
    walk.trains = graph->train;
    walk.excluded = packing_excluded(graph, graph->arena);
    walk.readers = graph_readers(graph, graph->arena);
    walk.leads = find_leads(&walk);
    if (rewrite_each(graph, replaced, &walk) < 0) return -1;
    return pass_dce(graph, context);
}
