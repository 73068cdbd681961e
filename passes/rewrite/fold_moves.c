/* Moves of stored tensors - Slice, Concat, Transpose, Reshape and the like - that would give the same result in every
 * step of an inference. Constant folding (ir/build.h) leaves alone what reads a large weight, which stays in the
 * model's file. Here the result becomes a weight at another place of the file, with another shape or a narrower type,
 * if its elements follow each other there; else it is computed now and becomes a constant, stored with the program.
 *
 * A weight that other nodes read, too, keeps what costs nothing in a step: a Reshape or contiguous Slice is a view of
 * it, and a second weight would be held twice. In training, the parameters stay as they are, and so do matrices of
 * adapters, of which a program may choose others. */

#include "ir/build.h"
#include "ir/expr/eval.h"
#include "passes/pipeline.h"
#include "passes/rewrite/rewrite.h"

/* limits for one result, and for all results together with their operands; larger ones are computed in each step */
#define MOST_BYTES ((int64_t)512 << 20)
#define MOST_TOTAL ((int64_t)2 << 30)

struct moves {
    struct graph *graph;
    bool *movable; /* per node */
    bool *fixed;   /* per tensor: an output, or it changes from step to step */
    struct uses uses;
    int ntensors;  /* before the walk */
    int64_t total; /* bytes that were read and written so far */
};

static int64_t begin_of_reshape(const struct tensor *in, const struct tensor *out, const struct node *node) {
    (void)in, (void)out, (void)node;
    return 0;
}

static int64_t begin_of_slice(const struct tensor *in, const struct tensor *out, const struct node *node) {
    int n, d = 0;
    const int64_t *start = attr_ints(node, "start", &n), *step = attr_ints(node, "step", &n);
    int64_t begin = 0;
    for (int i = 0; i < n; i++) begin = begin * in->dims[i] + start[i];
    while (d < n && out->dims[d] == 1) d++;
    if (d < n && step[d] != 1) return -1;
    for (d++; d < n; d++)
        if (out->dims[d] != in->dims[d] || step[d] != 1) return -1;
    return begin;
}

/* A Transpose that only moves dimensions of extent 1. */
static int64_t begin_of_transpose(const struct tensor *in, const struct tensor *out, const struct node *node) {
    int n, last = -1;
    const int64_t *perm = attr_ints(node, "perm", &n);
    (void)out;
    for (int d = 0; d < n; d++) {
        if (in->dims[perm[d]] == 1) continue;
        if (perm[d] < last) return -1;
        last = (int)perm[d];
    }
    return 0;
}

/* Weights are stored in another type than they have when they are loaded. */
static int64_t begin_of_cast(const struct tensor *in, const struct tensor *out, const struct node *node) {
    (void)node;
    return in->dtype == in->stored.dtype && rt_dtype_is_float(in->dtype) && rt_dtype_is_float(out->dtype) ? 0 : -1;
}

/* The operators that move elements. begin: the place in the first input where the result begins, if the elements of
 * the result are contiguous there; else -1. NULL: they never are. */
static const struct move {
    enum op_id op;
    int64_t (*begin)(const struct tensor *in, const struct tensor *out, const struct node *node);
} all_moves[] = {{OP_Reshape, begin_of_reshape}, {OP_Slice, begin_of_slice}, {OP_Transpose, begin_of_transpose},
                 {OP_Cast, begin_of_cast},       {OP_Concat, NULL},          {OP_Gather, NULL}};

static const struct move *move_of(const struct node *node) {
    for (size_t i = 0; i < sizeof all_moves / sizeof *all_moves; i++)
        if (all_moves[i].op == node->op->id) return &all_moves[i];
    return NULL;
}

/* The element of the weight at which the result begins; -1 if the result is not a contiguous part of a weight. Codes
 * and scales have another layout than their weight, so of them only the result of a Cast is. */
static int64_t view_begin(const struct graph *graph, const struct node *node) {
    const struct tensor *in = &graph->tensors.at[node->inputs[0]], *out = &graph->tensors.at[node->outputs[0]];
    const struct move *move = move_of(node);
    if (rt_coding_is_code(&in->stored.coding) && node->op->id != OP_Cast) return -1;
    return in->kind == TENSOR_WEIGHT && tensor_elements(out) && move->begin ? move->begin(in, out, node) : -1;
}

/* Bytes that a step would read. */
static int64_t bytes_read(const struct graph *graph, const struct node *node) {
    int64_t bytes = 0;
    for (int k = 0; k < node->ninputs; k++)
        if (node->inputs[k] >= 0) bytes += tensor_bytes(&graph->tensors.at[node->inputs[k]]);
    return bytes;
}

static bool is_move(const struct graph *graph, const struct node *node) {
    if (!move_of(node) || node->noutputs != 1) return false;
    const int64_t bytes = tensor_bytes(&graph->tensors.at[node->outputs[0]]);
    return bytes <= MOST_BYTES && bytes <= bytes_read(graph, node);
}

/* Finds the nodes that move stored tensors, or results of such nodes. */
static void find_moves(struct moves *moves) {
    struct graph *graph = moves->graph;
    bool *stored = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    VEC_EACH(&graph->tensors, t, const struct tensor *tensor)
        stored[t] = (tensor->kind == TENSOR_CONST || tensor->kind == TENSOR_WEIGHT) && tensor->mark != MARK_ADAPTER &&
                    !moves->fixed[t];
    GRAPH_EACH(graph, i, const struct node *node) {
        bool movable = is_move(graph, node);
        for (int k = 0; movable && k < node->ninputs; k++) movable = node->inputs[k] >= 0 && stored[node->inputs[k]];
        moves->movable[graph->order.at[i]] = movable;
        if (movable) stored[node->outputs[0]] = true;
    }
}

/* True if a node that is computed in each step reads the tensor. */
static bool is_read(const struct moves *moves, int tensor) {
    for (int u = moves->uses.first[tensor]; u < moves->uses.first[tensor + 1]; u++)
        if (!moves->movable[moves->uses.users[u]]) return true;
    return false;
}

/* A weight that is `out`, `begin` elements behind the beginning of weight `of`. */
static int add_view(struct graph *graph, int of, const struct tensor *out, int64_t begin) {
    const int id = graph_add_tensor(graph, TENSOR_WEIGHT, out->name, out->dtype, out->ndim, out->dims);
    const struct tensor *whole = &graph->tensors.at[of];
    struct tensor *view = &graph->tensors.at[id];
    const size_t offset = (size_t)begin * rt_dtype_bytes(whole->stored.dtype);
    view->stored = whole->stored;
    view->stored.offset += offset;
    if (whole->data) view->data = (const char *)whole->data + offset;
    return id;
}

/* The stored tensor that the node's result is, as rewrite_each wants it. */
static int moved(void *env, int id) {
    struct moves *moves = env;
    struct graph *graph = moves->graph;
    const struct node *node = &graph->nodes.at[id];
    if (!moves->movable[id]) return REWRITE_KEPT;
    const struct tensor out = graph->tensors.at[node->outputs[0]];
    const int64_t begin = view_begin(graph, node);
    const bool held = node->inputs[0] < moves->ntensors && is_read(moves, node->inputs[0]);
    if (begin >= 0 && held && is_read(moves, node->outputs[0])) return REWRITE_KEPT;
    if (begin >= 0) return add_view(graph, node->inputs[0], &out, begin);
    const int64_t bytes = bytes_read(graph, node) + tensor_bytes(&out);
    const void *data = bytes <= MOST_TOTAL - moves->total ? eval_node(graph, id) : NULL;
    if (!data) return REWRITE_KEPT;
    moves->total += bytes;
    const int made = graph_add_tensor(graph, TENSOR_CONST, out.name, out.dtype, out.ndim, out.dims);
    graph->tensors.at[made].data = data;
    return made;
}

int pass_fold_moves(struct graph *graph, const struct pass_context *context) {
    struct moves moves = {.graph = graph, .ntensors = graph->tensors.n};
    (void)context;
    if (graph->train) return 0;
    moves.movable = ARENA_ARRAY(graph->arena, bool, graph->nodes.n + 1);
    moves.fixed = graph_kept(graph, graph->arena);
    for (int i = 0; i < graph->updates.n; i++) moves.fixed[graph->updates.at[i].weight] = true;
    moves.uses = graph_uses(graph, graph->arena);
    find_moves(&moves);
    return rewrite_each(graph, moved, &moves);
}
