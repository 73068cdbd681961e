/* Fuses the sum over the rows of an operand of a matrix product into the product, as its second result: the gradient of
 * a bias with the gradient of the weight.
 *
 *   dw(m,n) = x(k,m)^T dy(k,n)      db(n) = sum over k of dy(k,n)
 *
 * Libraries can sum an operand while they read it (cuBLASLt: BGRADA, BGRADB), so that dy is read once less. The new
 * node takes the place of the product or of the sum, whichever is first in the order. Views that it reads are moved
 * before it, since they execute nothing. */
#include <string.h>

#include "ir/dims.h"
#include "ir/op.h"
#include "passes/pipeline.h"

struct joiner {
    struct graph *graph;
    struct uses uses;
    bool *kept;  /* graph_kept */
    int *viewed; /* per tensor: the tensor that it is a view of; itself if it is no view */
    int *reader; /* per tensor: a product that contracts the rows of a view of it; -1: none */
    int *other;  /* per node: the product that goes with a sum, the sum that goes with a product; -1: none */
    bool *done;  /* per node: it is in the new order, or was fused */
    VEC(int) order;
};

/* The sum as a vector. */
struct sum {
    int operand;      /* the operand of the product that is summed */
    int tensor, view; /* the vector, and the view that makes it from the sum's result; -1: the result is the vector */
};

static const struct tensor *tensor_at(const struct joiner *j, int tensor) {
    return &j->graph->tensors.at[tensor];
}

static bool is_view(const struct node *node) {
    return node && node->op->kind == OP_VIEW;
}

static void find_views(struct joiner *j) {
    for (int t = 0; t < j->graph->tensors.n; t++) j->viewed[t] = t;
    GRAPH_EACH(j->graph, i, const struct node *node)
        if (is_view(node)) j->viewed[node->outputs[0]] = j->viewed[node->inputs[0]];
}

static int64_t columns_of(const struct tensor *t) {
    return t->dims[t->ndim - 1];
}

/* True if the operand is a matrix whose rows are the dimension over which the product sums. */
static bool has_summed_rows(const struct joiner *j, const struct node *product, int operand) {
    bool rows = operand == 0 ? attr_int(product, "trans_a", 0) : !attr_int(product, "trans_b", 0);
    return rows && tensor_at(j, product->inputs[operand])->ndim == 2;
}

static bool is_plain_product(const struct node *node) {
    return node->op->id == OP_MatMul && node->ninputs == 2 && node->noutputs == 1 && !attr_find(node, "expr") &&
           !attr_int(node, "packed", 0);
}

/* All dimensions but the last are summed. */
static bool sums_rows(const struct joiner *j, const struct node *node) {
    int naxes;
    if (node->op->id != OP_ReduceSum) return false;
    const int64_t *axes = attr_ints(node, "axes", &naxes);
    return naxes > 0 && axes[0] == 0 && naxes == tensor_at(j, node->inputs[0])->ndim - 1;
}

/* Finds the sum as a vector: the node's result, or a view of it that is its only reader. */
static bool find_row(const struct joiner *j, const struct node *node, struct sum *out) {
    int result = node->outputs[0], first = j->uses.first[result];
    out->tensor = result, out->view = -1;
    if (tensor_at(j, result)->ndim == 1) return true;
    if (j->kept[result] || j->uses.first[result + 1] - first != 1) return false;
    out->view = j->uses.users[first];
    if (!is_view(&j->graph->nodes.at[out->view])) return false;
    out->tensor = j->graph->nodes.at[out->view].outputs[0];
    return tensor_at(j, out->tensor)->ndim == 1;
}

static void find_readers(struct joiner *j) {
    GRAPH_EACH(j->graph, i, const struct node *node) {
        for (int k = 0; is_plain_product(node) && k < 2; k++)
            if (has_summed_rows(j, node, k)) j->reader[j->viewed[node->inputs[k]]] = j->graph->order.at[i];
    }
}

static void find_pairs(struct joiner *j) {
    GRAPH_EACH_ID(j->graph, id, const struct node *node) {
        int product = sums_rows(j, node) ? j->reader[j->viewed[node->inputs[0]]] : -1;
        if (product < 0 || j->other[product] >= 0) continue;
        j->other[id] = product, j->other[product] = id;
    }
}

/* Finds the operand of the product that the sum reads too, possibly as another view. */
static bool find_operand(const struct joiner *j, const struct node *product, const struct node *node, struct sum *out) {
    const int of = node->inputs[0];
    for (out->operand = 0; out->operand < 2; out->operand++) {
        int operand = product->inputs[out->operand];
        if (has_summed_rows(j, product, out->operand) && j->viewed[operand] == j->viewed[of] &&
            columns_of(tensor_at(j, operand)) == columns_of(tensor_at(j, of)))
            return true;
    }
    return false;
}

/* True if the sum has the same layout as a result of the product as before. */
static bool keeps_layout(const struct joiner *j, const struct node *joined) {
    struct dims dims;
    if (dims_bind(j->graph->arena, j->graph, joined, &dims, NULL) < 0) return false;
    const struct layout *has = &tensor_at(j, joined->outputs[1])->layout;
    struct layout given = dims_layout_given(j->graph, &dims, joined, 1);
    for (int axis = j->graph->mesh.naxes; axis < mesh_layout_axes(&j->graph->mesh); axis++)
        layout_place(j->graph->arena, &given, axis, layout_along(has, axis));
    return layout_equal(&given, has);
}

static bool is_made(const struct joiner *j, int tensor) {
    return !graph_producer(j->graph, tensor) || j->done[tensor_at(j, tensor)->producer];
}

/* True if the tensor is computed by now, or is a view of one that is. */
static bool can_be_read(const struct joiner *j, int tensor) {
    const struct node *producer = graph_producer(j->graph, tensor);
    return is_made(j, tensor) || (is_view(producer) && is_made(j, producer->inputs[0]));
}

static void place(struct joiner *j, int id) {
    VEC_PUSH(j->graph->arena, &j->order, id);
    j->done[id] = true;
}

/* Fuses the product and the sum at this place of the order; false if that is not possible. */
static bool join(struct joiner *j, int product_id, int sum_id) {
    struct graph *graph = j->graph;
    const struct node product = graph->nodes.at[product_id], *node = &graph->nodes.at[sum_id];
    struct sum sum;
    bool together = product.stage == node->stage && product.phase == node->phase && can_be_read(j, product.inputs[0]) &&
                    can_be_read(j, product.inputs[1]);
    if (!together || !find_operand(j, &product, node, &sum) || !find_row(j, node, &sum)) return false;
    struct node joined = product;
    joined.outputs = (int[]){product.outputs[0], sum.tensor}, joined.noutputs = 2;
    attr_set(graph, &joined, attr_of_int("sums", sum.operand));
    if (!keeps_layout(j, &joined)) return false;
    for (int k = 0; k < 2; k++)
        if (!is_made(j, product.inputs[k])) place(j, tensor_at(j, product.inputs[k])->producer);
    j->done[product_id] = j->done[sum_id] = true;
    if (sum.view >= 0) j->done[sum.view] = true;
    place(j, graph_add_copy(graph, &joined));
    graph->order.n--; /* j->order has it */
    return true;
}

/* Makes the new order: nodes as they were, and each fused pair where its first node was. */
static void join_all(struct joiner *j) {
    for (int i = 0; i < j->graph->order.n; i++) {
        int id = j->graph->order.at[i], other = j->other[id];
        if (j->done[id]) continue;
        bool sums = sums_rows(j, &j->graph->nodes.at[id]);
        if (other < 0 || j->done[other] || !join(j, sums ? other : id, sums ? id : other)) place(j, id);
    }
}

int pass_fuse_sums(struct graph *graph, const struct pass_context *context) {
    struct joiner j = {.graph = graph};
    int tensors = graph->tensors.n + 1, nodes = graph->nodes.n + 1;
    if (!context->library_products) return 0;
    j.uses = graph_uses(graph, graph->arena);
    j.kept = graph_kept(graph, graph->arena);
    j.viewed = ARENA_ARRAY(graph->arena, int, tensors);
    j.reader = ARENA_ARRAY(graph->arena, int, tensors);
    j.other = ARENA_ARRAY(graph->arena, int, nodes);
    j.done = ARENA_ARRAY(graph->arena, bool, 2 * nodes); /* room for the fused nodes */
    for (int t = 0; t < tensors; t++) j.reader[t] = -1;
    for (int i = 0; i < nodes; i++) j.other[i] = -1;
    find_views(&j);
    find_readers(&j);
    find_pairs(&j);
    join_all(&j);
    if (j.order.n) memcpy(graph->order.at, j.order.at, (size_t)j.order.n * sizeof *j.order.at);
    graph->order.n = j.order.n;
    return 0;
}
