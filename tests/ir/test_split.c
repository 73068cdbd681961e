/* The proof of annotations by brute force: a node cut as its factors allow gives what the whole node gives.
 *
 * For each case of tests/dims/ and each elementwise row without an annotation, on small integers: each factor that may
 * be cut, in several blocks, units and numbers of ranks, and each pair of factors on a two-dimensional mesh. Every
 * rank's inputs are cut out with Note [Cuts] of part.h - windows by listing what the rank's positions read -, its node
 * is evaluated on its own by ir/eval, and the results are put together as the layouts say: parts side by side, partial
 * values reduced, whole values equal. That must be the unsplit result, bit for bit. So must the sum of the results of
 * partial inputs where a row is marked linear. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/str.h"
#include "ir/dims.h"
#include "ir/expr/eval.h"
#include "ir/op.h"
#include "runtime/base/number/checked.h"
#include "tests/ir/golden.h"
#include "tests/ir/random.h"
#include "tests/ir/reference.h"
#include "tests/test.h"

enum { AXES = 2, MAX_RANKS = 16, MAX_OPERANDS = 16 };

static struct golden golden;
static char current[512]; /* what is being tried, for the message of a failure */

/* The node under test, its inputs' bytes, and how it is cut. */
struct trial {
    struct arena *arena;
    struct graph *graph;
    int id; /* of the node */
    struct dims dims;
    const void *data[MAX_OPERANDS]; /* inputs, then the result of the whole node */
    int ways[AXES];
    struct node_split split[AXES];
};

/* What one rank holds of an operand: which global indices of each dimension, in its order. */
struct share {
    int64_t n[RT_MAX_NDIM], *index[RT_MAX_NDIM];
};

static const struct node *node_of(const struct trial *t) {
    return &t->graph->nodes.at[t->id];
}

static const struct tensor *tensor_of(const struct trial *t, int operand) {
    const struct node *node = node_of(t);
    if (operand == t->dims.ninputs) return &t->graph->tensors.at[node->outputs[0]];
    if (operand >= node->ninputs || node->inputs[operand] < 0) return NULL;
    return &t->graph->tensors.at[node->inputs[operand]];
}

/* Random inputs ------------------------------------------------------------------------------------------------ */

static void *random_data(struct arena *arena, const struct tensor *tensor, struct random *random) {
    int64_t n = tensor_elements(tensor);
    char *data = arena_alloc(arena, (size_t)tensor_bytes(tensor) + 1, 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t value = tensor->dtype == RT_BOOL ? random_below(random, 2) : random_below(random, 6) - 3;
        rt_convert(data + (size_t)i * rt_dtype_bytes(tensor->dtype), tensor->dtype, &value, RT_I64, 1);
    }
    return data;
}

/* Turns the node's inputs into constants of those bytes. */
static void set_inputs(struct trial *t) {
    for (int i = 0; i < t->dims.ninputs; i++) {
        if (!tensor_of(t, i)) continue;
        struct tensor *tensor = &t->graph->tensors.at[node_of(t)->inputs[i]];
        tensor->kind = TENSOR_CONST;
        tensor->data = t->data[i];
    }
}

/* Cutting ------------------------------------------------------------------------------------------------------ */

/* Keeps, of the indices held, those in the part of rank `rank`. */
static void cut_share(struct arena *arena, struct share *share, const struct placement *placement, int64_t extent,
                      int ways, int rank) {
    int d = placement->dim;
    struct rt_cut cut = {share->n[d], placement->blocks, placement->grain, ways};
    int64_t block = cut.extent / placement->blocks, n = 0, *kept = ARENA_ARRAY(arena, int64_t, extent + 1);
    for (int64_t b = 0; b < placement->blocks; b++)
        for (int64_t i = 0; i < rt_cut_length(&cut, rank); i++)
            kept[n++] = share->index[d][b * block + rt_cut_start(&cut, rank) + i];
    assert_int_equal(n, rt_cut_extent(&cut, rank));
    share->index[d] = kept;
    share->n[d] = n;
}

/* Keeps the indices from the first to the last that positions of the rank read. */
static void cut_window(struct arena *arena, struct share *share, const struct placement *placement, int64_t extent,
                       int ways, int rank) {
    const struct reach *reach = &placement->reach;
    struct rt_cut cut = {reach->positions, 1, placement->grain, ways};
    bool *read = ARENA_ARRAY(arena, bool, extent + 1);
    int64_t n = 0, last = -1, *kept = ARENA_ARRAY(arena, int64_t, extent + 1);
    assert_int_equal(placement->blocks, 1);
    assert_int_equal(share->n[placement->dim], extent);
    for (int64_t p = rt_cut_start(&cut, rank); p < rt_cut_start(&cut, rank + 1); p++)
        for (int64_t at = p * reach->stride - reach->before, k = 0; k < reach->span; k++, at++)
            if (at >= 0 && at < extent) read[at] = true, last = at > last ? at : last;
    for (int64_t at = 0; at <= last; at++)
        if (n || read[at]) kept[n++] = at;
    assert_true(n > 0);
    share->index[placement->dim] = kept;
    share->n[placement->dim] = n;
}

static struct share share_of(const struct trial *t, int operand, const int *coordinate) {
    const struct tensor *tensor = tensor_of(t, operand);
    struct share share = {0};
    int axes[RT_LAYOUT_AXES];
    for (int d = 0; d < tensor->ndim; d++) {
        share.n[d] = tensor->dims[d];
        share.index[d] = ARENA_ARRAY(t->arena, int64_t, tensor->dims[d] + 1);
        for (int64_t i = 0; i < tensor->dims[d]; i++) share.index[d][i] = i;
    }
    dims_outermost_first(t->split, AXES, axes);
    for (int i = 0; i < AXES; i++) {
        const int a = axes[i];
        struct placement placement = dims_placement(&t->dims, operand, &t->split[a]);
        if (!placement_divides(&placement)) continue;
        assert_in_range(placement.dim, 0, tensor->ndim - 1);
        (placement.kind == PLACED_WINDOW ? cut_window : cut_share)(
            t->arena, &share, &placement, tensor->dims[placement.dim], t->ways[a], coordinate[a]);
    }
    return share;
}

static const void *gather_share(const struct trial *t, int operand, const struct share *share) {
    const struct tensor *tensor = tensor_of(t, operand);
    size_t size = rt_dtype_bytes(tensor->dtype);
    int64_t at[RT_MAX_NDIM] = {0}, from[RT_MAX_NDIM], n = 0;
    assert_true(rt_product(share->n, tensor->ndim, &n));
    char *data = arena_alloc(t->arena, (size_t)n * size + 1, 1), *to = data;
    if (!n) return data;
    do {
        for (int d = 0; d < tensor->ndim; d++) from[d] = share->index[d][at[d]];
        memcpy(to, (const char *)t->data[operand] + (size_t)eval_offset(from, tensor->dims, tensor->ndim) * size, size);
        to += size;
    } while (eval_next(at, share->n, tensor->ndim));
    return data;
}

/* What kernels do with the offset of their part ---------------------------------------------------------------- */

/* Where the part of that factor starts: 0 if it is not cut. */
static int64_t start_of(const struct trial *t, const char *factor, const int *coordinate) {
    int axes[RT_LAYOUT_AXES];
    int64_t start = 0, extent = -1;
    dims_outermost_first(t->split, AXES, axes);
    for (int i = 0; i < AXES; i++) {
        const int a = axes[i];
        const struct node_split *split = &t->split[a];
        if (split->factor < 0 || strcmp(t->dims.factor[split->factor].name, factor) != 0) continue;
        if (extent < 0) extent = t->dims.factor[split->factor].extent;
        struct rt_cut cut = {extent, split->blocks, split->grain, t->ways[a]};
        assert_int_equal(split->blocks, 1);
        start += rt_cut_start(&cut, coordinate[a]);
        extent = rt_cut_extent(&cut, coordinate[a]);
    }
    return start;
}

/* Trilu compares global indices: the same as a diagonal moved by the offsets. */
static void offset_trilu(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    int64_t moved = start_of(t, "r", coordinate) - start_of(t, "c", coordinate);
    attr_set(part, node, attr_of_int("k", attr_int(node, "k", 0) + moved));
}

/* A causal mask compares global indices too. */
static void offset_attention(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    int64_t moved = start_of(t, "t", coordinate);
    attr_set(part, node, attr_of_int("offset", attr_int(node, "offset", 0) + moved));
}

/* Gather gives zeros for rows that are not in its part: a row of zeros at the end stands for all of them. */
static void offset_gather(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    struct tensor *x = &part->tensors.at[node->inputs[0]], *index = &part->tensors.at[node->inputs[1]];
    int axis = (int)attr_int(node, "axis", 0), v = dims_find(&t->dims, "v");
    int64_t start = start_of(t, "v", coordinate), all = t->dims.factor[v].extent, here = x->dims[axis], outer = 1;
    for (int d = 0; d < axis; d++) outer *= x->dims[d];
    size_t run = (size_t)(tensor_bytes(x) / outer), zeros = run / (size_t)here;
    char *data = arena_alloc(part->arena, (size_t)outer * (run + zeros) + 1, 1);
    for (int64_t o = 0; o < outer; o++)
        memcpy(data + (size_t)o * (run + zeros), (const char *)x->data + (size_t)o * run, run);
    char *moved = arena_copy(part->arena, index->data, (size_t)tensor_bytes(index));
    for (int64_t i = 0; i < tensor_elements(index); i++) {
        struct number at = eval_load(index->data, index->dtype, i);
        at.i += (at.i < 0 ? all : 0) - start;
        if (at.i < 0 || at.i >= here) at.i = here;
        eval_store(moved, index->dtype, i, at);
    }
    x->dims[axis]++;
    x->data = data;
    index->data = moved;
}

/* Its gradient leaves out what falls on rows of other parts: zeros added to row 0 stand for that. */
/* Experts of other ranks are given zero weights. */
static void offset_experts(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    struct tensor *w = &part->tensors.at[node->inputs[1]], *index = &part->tensors.at[node->inputs[2]];
    const int64_t start = start_of(t, "e", coordinate), all = t->dims.factor[dims_find(&t->dims, "e")].extent;
    const int64_t here = w->dims[0];
    const size_t bytes = (size_t)tensor_bytes(w), zeros = here ? bytes / (size_t)here : 0;
    char *data = arena_alloc(part->arena, bytes + zeros + 1, 1);
    char *moved = arena_copy(part->arena, index->data, (size_t)tensor_bytes(index));
    memcpy(data, w->data, bytes);
    for (int64_t i = 0; i < tensor_elements(index); i++) {
        struct number at = eval_load(index->data, index->dtype, i);
        at.i += (at.i < 0 ? all : 0) - start;
        if (at.i < 0 || at.i >= here) at.i = here;
        eval_store(moved, index->dtype, i, at);
    }
    w->dims[0]++;
    w->data = data;
    index->data = moved;
}
/* Rows of experts of other ranks are given zeros, and some expert of this rank. */
static void offset_expert_grad(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    struct tensor *x = &part->tensors.at[node->inputs[0]], *index = &part->tensors.at[node->inputs[2]];
    const int64_t start = start_of(t, "e", coordinate), all = t->dims.factor[dims_find(&t->dims, "e")].extent;
    const int64_t here = attr_int(node, "experts", 0), count = tensor_elements(index);
    const size_t row = count ? (size_t)(tensor_bytes(x) / count) : 0;
    char *data = arena_copy(part->arena, x->data, (size_t)tensor_bytes(x));
    char *moved = arena_copy(part->arena, index->data, (size_t)tensor_bytes(index));
    for (int64_t i = 0; i < count; i++) {
        struct number at = eval_load(index->data, index->dtype, i);
        at.i += (at.i < 0 ? all : 0) - start;
        if (at.i < 0 || at.i >= here) memset(data + (size_t)i * row, 0, row), at.i = 0;
        eval_store(moved, index->dtype, i, at);
    }
    x->data = data;
    index->data = moved;
}
/* Rows of experts of other ranks are given a number that no expert has. */
static void offset_expert_buffers(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    struct tensor *index = &part->tensors.at[node->inputs[1]];
    const int64_t start = start_of(t, "e", coordinate), all = t->dims.factor[dims_find(&t->dims, "e")].extent;
    const int64_t here = attr_int(node, "experts", part->tensors.at[node->inputs[0]].dims[0]);
    char *moved = arena_copy(part->arena, index->data, (size_t)tensor_bytes(index));
    for (int64_t i = 0; i < tensor_elements(index); i++) {
        struct number at = eval_load(index->data, index->dtype, i);
        at.i += (at.i < 0 ? all : 0) - start;
        if (at.i < 0 || at.i >= here) at.i = all;
        eval_store(moved, index->dtype, i, at);
    }
    index->data = moved;
}
static void offset_gather_grad(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    struct tensor *dy = &part->tensors.at[node->inputs[0]], *index = &part->tensors.at[node->inputs[1]];
    int64_t start = start_of(t, "v", coordinate), all = t->dims.factor[dims_find(&t->dims, "v")].extent;
    int64_t here = attr_int(node, "size", 0), count = tensor_elements(index), outer = 1;
    for (int d = 0; d < attr_int(node, "axis", 0); d++) outer *= dy->dims[d];
    size_t row = (size_t)(tensor_bytes(dy) / (outer * count));
    char *data = arena_copy(part->arena, dy->data, (size_t)tensor_bytes(dy));
    char *moved = arena_copy(part->arena, index->data, (size_t)tensor_bytes(index));
    for (int64_t i = 0; i < count; i++) {
        struct number at = eval_load(index->data, index->dtype, i);
        at.i += (at.i < 0 ? all : 0) - start;
        bool elsewhere = at.i < 0 || at.i >= here;
        for (int64_t o = 0; o < outer && elsewhere; o++) memset(data + (size_t)(o * count + i) * row, 0, row);
        if (elsewhere) at.i = 0;
        eval_store(moved, index->dtype, i, at);
    }
    dy->data = data;
    index->data = moved;
}

/* Classes are counted from the first of the part. */
static void offset_classes(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    struct tensor *class = &part->tensors.at[node->inputs[2]];
    char *moved = arena_copy(part->arena, class->data, (size_t)tensor_bytes(class));
    for (int64_t i = 0; i < tensor_elements(class); i++) {
        struct number at = eval_load(class->data, class->dtype, i);
        at.i -= start_of(t, "c", coordinate);
        eval_store(moved, class->dtype, i, at);
    }
    class->data = moved;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* An operator over a window begins where its first position does, and ends where the last one or the padding does. */
static void offset_window(const struct trial *t, struct graph *part, struct node *node, const int *coordinate) {
    const int positions = node->op->id == OP_ConvWeightGrad ? 1 : t->dims.ninputs;
    struct share x = share_of(t, 0, coordinate), y = share_of(t, positions, coordinate);
    const struct tensor *whole = tensor_of(t, 0);
    int n, taps;
    const int64_t *stride = attr_ints(node, "stride", &n), *dilation = attr_ints(node, "dilation", &n),
                  *pad[] = {attr_ints(node, "begin", &n), attr_ints(node, "end", &n)};
    const int64_t *window = attr_ints(node, "window", &taps);
    int64_t begin[RT_MAX_NDIM], end[RT_MAX_NDIM];
    for (int d = 0; d < n; d++) {
        const int64_t *in = x.index[2 + d], *out = y.index[2 + d], held = x.n[2 + d], made = y.n[2 + d];
        const int64_t span = ((window ? window[d] : tensor_of(t, 1)->dims[2 + d]) - 1) * dilation[d] + 1;
        begin[d] = pad[0][d], end[d] = pad[1][d];
        if (made == tensor_of(t, positions)->dims[2 + d] || stride[d] + span == 2) continue;
        begin[d] = in[0] - (out[0] * stride[d] - pad[0][d]);
        end[d] = least(out[made - 1] * stride[d] - pad[0][d] + span, whole->dims[2 + d] + pad[1][d]) - in[held - 1] - 1;
    }
    attr_set(part, node, attr_of_ints("begin", n, begin));
    attr_set(part, node, attr_of_ints("end", n, end));
}

static const struct {
    enum op_id op;
    void (*apply)(const struct trial *t, struct graph *part, struct node *node, const int *coordinate);
} offsets[] = {{OP_Trilu, offset_trilu},
               {OP_Gather, offset_gather},
               {OP_GatherGrad, offset_gather_grad},
               {OP_ExpertMatMul, offset_experts},
               {OP_ExpertWeightGrad, offset_expert_grad},
               {OP_ExpertDispatch, offset_expert_buffers},
               {OP_ExpertCombine, offset_expert_buffers},
               {OP_Attention, offset_attention},
               {OP_Conv, offset_window},
               {OP_MaxPool, offset_window},
               {OP_ClassTerms, offset_classes},
               {OP_ClassTermsGrad, offset_classes},
               {OP_AveragePool, offset_window},
               {OP_ConvWeightGrad, offset_window}};

/* Evaluation --------------------------------------------------------------------------------------------------- */

/* By ir/eval, or by the reference of this test for rows that do not fold. */
static const void *evaluate(struct graph *graph, int id) {
    const struct node *node = &graph->nodes.at[id];
    return eval_can(node->op) ? eval_node(graph, id) : reference_eval(graph, node);
}

static bool can_evaluate(const struct op *op) {
    return eval_can(op) || reference_can(op);
}

/* The node as one rank has it, with its inputs cut out, in a graph of its own; the node's id. */
static int make_part(const struct trial *t, struct graph *part, const int *coordinate) {
    const struct node *node = node_of(t);
    int64_t local[MAX_OPERANDS + 1][RT_MAX_NDIM] = {{0}};
    int inputs[MAX_OPERANDS], output;
    graph_init(part, t->arena, "part");
    for (int i = 0; i <= t->dims.ninputs; i++) {
        const struct tensor *tensor = tensor_of(t, i);
        if (i < node->ninputs) inputs[i] = -1;
        if (!tensor) continue;
        struct share share = share_of(t, i, coordinate);
        memcpy(local[i], share.n, sizeof share.n);
        if (i < t->dims.ninputs)
            inputs[i] = graph_add_const(part, "x", tensor->dtype, tensor->ndim, share.n, gather_share(t, i, &share));
    }
    output = graph_add_tensor(part, TENSOR_VALUE, "y", RT_F32, 0, NULL);
    int id = graph_add_node(part, node->op, "part", node->ninputs, inputs, 1, &output, node->nattrs, node->attrs);
    struct node *own = &part->nodes.at[id];
    if (node->op->split_attr) node->op->split_attr(part, &t->dims, (const int64_t(*)[RT_MAX_NDIM])local, own);
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        if (offsets[i].op == node->op->id) offsets[i].apply(t, part, own, coordinate);
    return id;
}

/* The result of one rank; its shape, inferred from its own inputs, must be that of the layout. */
static const void *evaluate_part(const struct trial *t, const int *coordinate) {
    struct graph part;
    struct diags diags;
    int id = make_part(t, &part, coordinate);
    diags_init(&diags, t->arena);
    if (op_infer(&part, id, &diags) < 0) fail_msg("%s", golden_diags(t->arena, &diags));
    const struct tensor *y = &part.tensors.at[part.nodes.at[id].outputs[0]];
    struct share share = share_of(t, t->dims.ninputs, coordinate);
    assert_int_equal(y->ndim, tensor_of(t, t->dims.ninputs)->ndim);
    for (int d = 0; d < y->ndim; d++) assert_int_equal(y->dims[d], share.n[d]);
    const void *result = evaluate(&part, id);
    assert_non_null(result);
    return result;
}

/* Putting together --------------------------------------------------------------------------------------------- */

/* A value that some ranks hold. */
struct held {
    bool present;
    struct number value;
};

static bool find_local(const struct share *share, int ndim, const int64_t *at, int64_t *local) {
    for (int d = 0; d < ndim; d++) {
        for (local[d] = 0; local[d] < share->n[d] && share->index[d][local[d]] != at[d];) local[d]++;
        if (local[d] == share->n[d]) return false;
    }
    return true;
}

static bool same_value(struct number a, struct number b) {
    return a.is_float ? a.f == b.f || (isnan(a.f) && isnan(b.f)) : a.i == b.i;
}

static struct number reduced(enum rt_reduce reduce, struct number a, struct number b) {
    if (reduce == RT_SUM) return (struct number){a.is_float, a.f + b.f, (int64_t)((uint64_t)a.i + (uint64_t)b.i)};
    bool first = a.is_float ? a.f > b.f : a.i > b.i;
    return first == (reduce == RT_MAX) ? a : b;
}

/* What the ranks along one axis hold together. */
static struct held together(const struct held *held, int n, const struct placement *placement) {
    struct held all = {0};
    for (int i = 0; i < n; i++) {
        if (!held[i].present) continue;
        if (all.present && placement->kind == PLACED_PART) fail_msg("an element lies in two parts");
        if (all.present && placement->kind == PLACED_WHOLE) assert_true(same_value(all.value, held[i].value));
        if (all.present && placement->kind == PLACED_PARTIAL)
            all.value = reduced(placement->reduce, all.value, held[i].value);
        else
            all = held[i];
    }
    return all;
}

struct result {
    const void *data;
    struct share share;
};

static struct number assembled(const struct trial *t, const struct result (*results)[MAX_RANKS], const int64_t *at) {
    int y = t->dims.ninputs;
    const struct tensor *tensor = tensor_of(t, y);
    struct placement placement[AXES];
    struct held outer[MAX_RANKS], inner[MAX_RANKS];
    for (int a = 0; a < AXES; a++) placement[a] = dims_placement(&t->dims, y, &t->split[a]);
    for (int c1 = 0; c1 < t->ways[1]; c1++) {
        for (int c0 = 0; c0 < t->ways[0]; c0++) {
            const struct result *r = &results[c1][c0];
            int64_t local[RT_MAX_NDIM] = {0};
            inner[c0] = (struct held){.present = find_local(&r->share, tensor->ndim, at, local)};
            if (inner[c0].present)
                inner[c0].value = eval_load(r->data, tensor->dtype, eval_offset(local, r->share.n, tensor->ndim));
        }
        outer[c1] = together(inner, t->ways[0], &placement[0]);
    }
    struct held all = together(outer, t->ways[1], &placement[1]);
    assert_true(all.present);
    return all.value;
}

/* Values of integers are exact; sums of powers of e are rounded, at each of a few additions. */
static bool is_expected(const struct trial *t, struct number value, struct number expected) {
    bool rounds = node_of(t)->op->id == OP_ClassTerms;
    return same_value(value, expected) || (rounds && fabs(value.f - expected.f) <= 1e-14 * fabs(expected.f));
}

/* Evaluates all ranks and compares. */
static void check_trial(const struct trial *t) {
    struct result results[MAX_RANKS][MAX_RANKS];
    int y = t->dims.ninputs;
    const struct tensor *tensor = tensor_of(t, y);
    for (int c1 = 0; c1 < t->ways[1]; c1++)
        for (int c0 = 0; c0 < t->ways[0]; c0++) {
            const int coordinate[] = {c0, c1};
            results[c1][c0] = (struct result){evaluate_part(t, coordinate), share_of(t, y, coordinate)};
        }
    int64_t at[RT_MAX_NDIM] = {0}, i = 0;
    if (!tensor_elements(tensor)) return;
    do {
        struct number expected = eval_load(t->data[y], tensor->dtype, i++);
        assert_true(is_expected(t, assembled(t, (const struct result(*)[MAX_RANKS])results, at), expected));
    } while (eval_next(at, tensor->dims, tensor->ndim));
}

/* The cuts to try ---------------------------------------------------------------------------------------------- */

static long trials, nests;

static const char *cut_text(const struct trial *t, const struct node_split *split, int ways) {
    if (split->factor < 0) return "whole";
    return arena_printf(t->arena, "%s/%lld/%lld %d ways", t->dims.factor[split->factor].name, (long long)split->blocks,
                        (long long)split->grain, ways);
}

static void try(struct trial *t, struct node_split first, int ways0, struct node_split second, int ways1) {
    struct arena arena, *outer = t->arena;
    arena_init(&arena, 0, NULL);
    t->arena = &arena;
    t->split[0] = first;
    t->split[1] = second;
    t->ways[0] = ways0;
    t->ways[1] = ways1;
    trials++;
    char *end = strchr(current, '\n');
    snprintf(end, sizeof current - (size_t)(end - current), "\n%s: %s, %s\n", dims_print(&arena, &t->dims),
             cut_text(t, &first, ways0), cut_text(t, &second, ways1));
    check_trial(t);
    t->arena = outer;
    arena_free(&arena);
}

static const struct node_split whole = {.factor = SPLIT_NONE, .blocks = 1, .grain = 1};

static bool can_split(const struct trial *t, const struct node_split *split, int ways) {
    return dims_can_split(&t->dims, split, ways) && op_can_split(node_of(t)->op, &t->dims, split);
}

static void try_factor(struct trial *t, int factor) {
    const int64_t extent = t->dims.factor[factor].extent;
    for (int64_t blocks = 1; blocks <= 4; blocks++)
        for (int64_t grain = 1; grain <= 3; grain++)
            for (int ways = 2; ways <= 5; ways++) {
                struct node_split split = {.factor = (int16_t)factor, .blocks = blocks, .grain = grain};
                if (extent % (blocks * grain) || !can_split(t, &split, ways)) continue;
                try(t, split, ways, whole, 1);
            }
}

/* Two axes divide the factor, the one or the other inside. */
static void try_nest(struct trial *t, const struct node_split *outer, int outer_ways, const struct node_split *inner,
                     int inner_ways) {
    const struct mesh mesh = {.naxes = AXES, .axis = {{"a", outer_ways}, {"b", inner_ways}}};
    struct node_split splits[RT_MAX_AXES] = {*outer, whole};
    if (!can_split(t, outer, outer_ways) || !op_can_split(node_of(t)->op, &t->dims, inner) ||
        !dims_can_nest(&t->dims, &mesh, splits, 1, inner))
        return;
    dims_nest(splits, AXES, 1, inner);
    assert_int_equal(splits[1].depth, 1);
    try(t, splits[0], outer_ways, splits[1], inner_ways);
    try(t, splits[1], inner_ways, splits[0], outer_ways);
    nests += 2;
}

static void try_nests(struct trial *t, int factor) {
    for (int64_t blocks = 1; blocks <= 3; blocks++)
        for (int64_t grain = 1; grain <= 2; grain++)
            for (int ways = 0; ways < 4; ways++) {
                const struct node_split inner = {.factor = (int16_t)factor, .blocks = blocks, .grain = 1};
                struct node_split outer = inner;
                outer.grain = grain;
                if (t->dims.factor[factor].extent % (blocks * grain)) continue;
                try_nest(t, &outer, 2 + ways / 2, &inner, 2 + ways % 2);
            }
}

static void try_pair(struct trial *t, int f, int g) {
    struct node_split a = {.factor = (int16_t)f, .blocks = 1, .grain = 1},
                      b = {.factor = (int16_t)g, .blocks = 1, .grain = 1};
    if (!dims_can_split(&t->dims, &a, 2) || !dims_can_split(&t->dims, &b, 2) || dims_splits_meet(&t->dims, &a, &b))
        return;
    try(t, a, 2, b, 2);
    if (dims_can_split(&t->dims, &a, 3)) try(t, a, 3, b, 2);
}

static void try_splits(struct trial *t) {
    for (int f = 0; f < t->dims.nfactors; f++) try_factor(t, f);
    for (int f = 0; f < t->dims.nfactors; f++)
        for (int g = 0; g < t->dims.nfactors; g++)
            if (f != g) try_pair(t, f, g);
    for (int f = 0; f < t->dims.nfactors; f++) try_nests(t, f);
}

/* Partial values through linear inputs ------------------------------------------------------------------------- */

/* The result with other bytes for one input, or for all: `chosen` < 0. */
static const void *result_with(struct trial *t, const void *const *data, int chosen) {
    struct trial other = *t;
    for (int i = 0; i < t->dims.ninputs; i++)
        if (chosen < 0 || i == chosen) other.data[i] = data[i];
    set_inputs(&other);
    const void *result = evaluate(t->graph, t->id);
    set_inputs(t);
    return result;
}

static void check_linear(struct trial *t, int chosen, struct random *random) {
    const void *parts[2][MAX_OPERANDS] = {{NULL}}, *results[2];
    int y = t->dims.ninputs;
    for (int i = 0; i < y; i++) {
        const struct tensor *x = tensor_of(t, i);
        if (!x) continue;
        parts[0][i] = parts[1][i] = t->data[i];
        if (chosen < 0 && !node_sums_input(node_of(t), i)) continue;
        parts[0][i] = random_data(t->arena, x, random);
        char *rest = arena_copy(t->arena, t->data[i], (size_t)tensor_bytes(x));
        for (int64_t k = 0; k < tensor_elements(x); k++) {
            struct number a = eval_load(rest, x->dtype, k), b = eval_load(parts[0][i], x->dtype, k);
            eval_store(rest, x->dtype, k, (struct number){a.is_float, a.f - b.f, a.i - b.i});
        }
        parts[1][i] = rest;
    }
    for (int k = 0; k < 2; k++) results[k] = result_with(t, parts[k], chosen);
    const struct tensor *tensor = tensor_of(t, y);
    for (int64_t i = 0; i < tensor_elements(tensor); i++) {
        struct number a = eval_load(results[0], tensor->dtype, i), b = eval_load(results[1], tensor->dtype, i);
        assert_true(same_value(reduced(RT_SUM, a, b), eval_load(t->data[y], tensor->dtype, i)));
    }
}

static void try_linear(struct trial *t, struct random *random) {
    const struct node *node = node_of(t);
    for (int i = 0; i < node->ninputs; i++)
        if (tensor_of(t, i) && tensor_of(t, i)->dtype == RT_BOOL) return; /* has no sums */
    if (node->op->linear == LINEAR_ALL) check_linear(t, -1, random);
    for (int i = 0; node->op->linear == LINEAR_EACH && i < node->ninputs; i++) check_linear(t, i, random);
}

/* Cases -------------------------------------------------------------------------------------------------------- */

/* Another path to what dims_placement says: the factor's digit of each index, from the dimension's factors alone. */
static void check_places(const struct dims *dims, int operand, int dim) {
    const struct dim_factors *d = &dims->operand[operand].dim[dim];
    int64_t extent = dims_extent(dims, operand, dim), after = extent;
    for (int i = 0; i < d->n; i++) {
        struct node_split split = {.factor = d->factor[i], .blocks = 1, .grain = 1};
        int64_t own = dims->factor[d->factor[i]].extent;
        after = own ? after / own : 0;
        if (!dims_can_split(dims, &split, 2)) continue;
        struct placement placement = dims_placement(dims, operand, &split);
        struct rt_cut cut = {extent, placement.blocks, placement.grain, 2}, digits = {own, 1, 1, 2};
        assert_int_equal(placement.dim, dim);
        for (int64_t at = 0; at < extent; at++) {
            int64_t digit = at / after % own, offset = at % (extent / placement.blocks);
            assert_int_equal(digit >= rt_cut_start(&digits, 1), offset >= rt_cut_start(&cut, 1));
        }
    }
}

static bool same_split(const struct node_split *a, const struct node_split *b) {
    return a->factor == b->factor && a->blocks == b->blocks && a->grain == b->grain;
}

/* Every cut of a factor is found again from the cut of the dimension, as one that needs no change. */
static void check_options(const struct dims *dims, int operand, int dim) {
    const struct dim_factors *d = &dims->operand[operand].dim[dim];
    for (int i = 0; i < d->n; i++)
        for (int64_t blocks = 1; blocks <= 3; blocks++)
            for (int64_t grain = 1; grain <= 3; grain++) {
                struct node_split split = {.factor = d->factor[i], .blocks = blocks, .grain = grain};
                struct cut_option options[RT_MAX_NDIM];
                if (dims->factor[d->factor[i]].extent % (blocks * grain) || !dims_can_split(dims, &split, 2)) continue;
                struct placement placement = dims_placement(dims, operand, &split);
                int n = dims_cut_options(dims, operand, dim, placement.blocks, placement.grain, options), found = 0;
                for (int k = 0; k < n; k++)
                    found += options[k].more_blocks == 1 && options[k].more_grain == 1 &&
                             same_split(&options[k].split, &split);
                assert_int_equal(found, 1);
            }
}

/* Each option is a cut of the dimension refined as it says. */
static void check_refinements(const struct dims *dims, int operand, int dim, int64_t blocks, int64_t grain) {
    struct cut_option options[RT_MAX_NDIM];
    int n = dims_cut_options(dims, operand, dim, blocks, grain, options);
    for (int k = 0; k < n; k++) {
        struct placement placement = dims_placement(dims, operand, &options[k].split);
        assert_int_equal(placement.dim, dim);
        if (placement.kind == PLACED_WINDOW) continue;
        assert_int_equal(placement.blocks, blocks * options[k].more_blocks);
        assert_int_equal(placement.grain, grain * options[k].more_grain);
    }
}

static void check_dims(const struct dims *dims) {
    for (int o = 0; o < dims->ninputs + dims->noutputs; o++)
        for (int d = 0; d < dims->operand[o].ndim; d++) {
            int64_t extent = dims_extent(dims, o, d);
            check_places(dims, o, d);
            check_options(dims, o, d);
            for (int64_t blocks = 1; blocks <= 4; blocks++)
                for (int64_t grain = 1; grain <= 4; grain++)
                    if (extent && extent % (blocks * grain) == 0) check_refinements(dims, o, d, blocks, grain);
        }
}

/* A factor that nothing holds cannot be cut: there would be nothing to share. */
static void check_factors_are_held(const struct dims *dims) {
    for (int f = 0; f < dims->nfactors; f++) {
        int64_t blocks, grain;
        bool held = false;
        struct node_split split = {.factor = (int16_t)f, .blocks = 1, .grain = 1};
        for (int o = 0; o < dims->ninputs + dims->noutputs; o++)
            held = held || dims_dim_cut(dims, o, &split, &blocks, &grain) >= 0;
        if (!held && dims_can_split(dims, &split, 2)) fail_msg("no operand has factor '%s'", dims->factor[f].name);
    }
}

static void check_graph(struct arena *arena, struct graph *graph, uint64_t seed) {
    struct trial t = {.arena = arena, .graph = graph, .id = graph->nodes.n - 1};
    struct random random = {seed};
    const char *why;
    assert_int_equal(dims_bind(arena, graph, node_of(&t), &t.dims, &why), 0);
    assert_in_range(t.dims.ninputs + t.dims.noutputs, 1, MAX_OPERANDS);
    check_dims(&t.dims);
    check_factors_are_held(&t.dims);
    if (!can_evaluate(node_of(&t)->op)) return;
    for (int tries = 0; tries < 100 && !t.data[t.dims.ninputs];
         tries++) { /* a row may refuse some values: 0 as divisor */
        for (int i = 0; i < t.dims.ninputs; i++)
            if (tensor_of(&t, i)) t.data[i] = random_data(arena, tensor_of(&t, i), &random);
        set_inputs(&t);
        t.data[t.dims.ninputs] = evaluate(graph, t.id);
    }
    assert_non_null(t.data[t.dims.ninputs]);
    try_splits(&t);
    try_linear(&t, &random);
}

static void check_case(const char *name, const char *statements) {
    struct arena arena;
    snprintf(current, sizeof current, "%s\n", name);
    for (uint64_t seed = 0; seed < 2; seed++) {
        arena_init(&arena, 0, NULL);
        struct graph *graph = golden_graph(&arena, statements);
        if (!graph) fail_msg("%s", name);
        check_graph(&arena, graph, seed);
        arena_free(&arena);
    }
    *current = 0;
}

static int say_where(void **state) {
    if (*current) print_error("in case %s", current);
    *current = 0;
    return 0;
}

#define SPLIT_TEST(name) TEST_BETWEEN(name, NULL, say_where)

SPLIT_TEST(test_products_and_reductions) {
    golden_each(&golden, "tests/dims/contract.txt", check_case);
}

SPLIT_TEST(test_windows) {
    golden_each(&golden, "tests/dims/conv.txt", check_case);
}

SPLIT_TEST(test_movement) {
    golden_each(&golden, "tests/dims/move.txt", check_case);
}

SPLIT_TEST(test_attention) {
    golden_each(&golden, "tests/dims/attention.txt", check_case);
}

SPLIT_TEST(test_broadcasting) {
    golden_each(&golden, "tests/dims/elementwise.txt", check_case);
}

/* What an expression names that is neither input nor function: an attribute, here 0.5. */
static void print_attributes(struct strbuf *out, const char *expr) {
    static const char inputs[] = "xabc";
    for (const char *at = expr; *at;) {
        size_t length = 0;
        while (isalnum((unsigned char)at[length]) || at[length] == '_') length++;
        bool name = isalpha((unsigned char)*at) && at[length] != '(' && !(length == 1 && strchr(inputs, *at));
        if (name && !strstr(strbuf_text(out), arena_printf(out->arena, " %.*s=", (int)length, at)))
            strbuf_printf(out, " %.*s=0.5", (int)length, at);
        at += length ? length : 1;
    }
}

/* Statements for an elementwise row: operands that broadcast. */
static const char *elementwise_case(struct arena *arena, const struct op *op, const char *dtype) {
    static const char *const shapes[] = {"[2,3,4]", "[3,1]", "[4]"};
    struct strbuf out;
    strbuf_init(&out, arena);
    int n = op_arity(op);
    for (int i = 0; i < n; i++)
        strbuf_printf(&out, "input %%%d \"x\" %s%s\n", i, op->types[i] == 'b' ? "bool" : dtype, shapes[i]);
    strbuf_printf(&out, "%%9 \"y\" = %s(", op->name);
    for (int i = 0; i < n; i++) strbuf_printf(&out, "%s%%%d", i ? ", " : "", i);
    strbuf_puts(&out, ") to=\"i32\"");
    print_attributes(&out, op->expr);
    strbuf_putc(&out, '\n');
    return strbuf_text(&out);
}

SPLIT_TEST(test_every_elementwise_row) {
    static const enum rt_dtype dtypes[] = {RT_F64, RT_I64, RT_F32};
    for (int i = 0; i < NOPS; i++) {
        if (ops[i].kind != OP_ELEMENTWISE || !ops[i].expr || ops[i].dims) continue;
        for (int k = 0; k < 3; k++) {
            struct arena arena;
            bool only_bool = op_takes(&ops[i], RT_BOOL) && !op_takes(&ops[i], RT_F32);
            if (!only_bool && !op_takes(&ops[i], dtypes[k])) continue;
            arena_init(&arena, 0, NULL);
            check_case(ops[i].name, elementwise_case(&arena, &ops[i], rt_dtypes[dtypes[k]].name));
            arena_free(&arena);
        }
    }
}

SPLIT_TEST(test_fused_chains) {
    check_case("Fused",
               "input %0 \"x\" f64[2,3,4]\ninput %1 \"x\" f64[3,1]\ninput %2 \"x\" bool[4]\n"
               "%9 \"y\" = Fused(%0, %1, %2) expr=\"v0 = a + b; v1 = c ? v0 : 2 * a; v0 * v1 + b\" to=\"f64\"\n");
}

/* Random reshapes of a fixed product: the factoring of every pair of shapes must be right. */
static int random_shape(struct random *random, int64_t product, int64_t *shape) {
    static const int64_t steps[] = {1, 2, 3, 4, 6, 12};
    int n = 0;
    for (; product > 1 && n < RT_MAX_NDIM - 1;) {
        int64_t step = steps[random_below(random, 6)];
        if (product % step) continue;
        shape[n++] = step;
        product /= step;
    }
    if (product > 1) shape[n++] = product;
    return n;
}

static void print_shape(struct strbuf *out, const int64_t *shape, int n) {
    strbuf_putc(out, '[');
    for (int i = 0; i < n; i++) strbuf_printf(out, "%s%lld", i ? "," : "", (long long)shape[i]);
    strbuf_puts(out, "]");
}

SPLIT_TEST(test_random_reshapes) {
    struct random random = {5};
    for (int i = 0; i < 300; i++) {
        struct arena arena;
        struct strbuf text;
        int64_t from[RT_MAX_NDIM], to[RT_MAX_NDIM];
        arena_init(&arena, 0, NULL);
        strbuf_init(&text, &arena);
        strbuf_puts(&text, "input %0 \"x\" i64");
        print_shape(&text, from, random_shape(&random, 72, from));
        strbuf_puts(&text, "\n%1 \"y\" = Reshape(%0) shape=");
        print_shape(&text, to, random_shape(&random, 72, to));
        check_case(strchr(strbuf_text(&text), '=') + 2, strbuf_text(&text));
        arena_free(&arena);
    }
}

SPLIT_TEST(test_enough_was_tried) {
    print_message("%ld cuts, %ld of them nested\n", trials, nests);
    assert_true(trials > 5000 && nests > 2000);
}

int main(int argc, char **argv) {
    golden = golden_options(argc, argv);
    return run_all_tests("split", NULL, NULL);
}
