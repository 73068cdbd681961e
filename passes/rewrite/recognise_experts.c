/* Layers of a mixture of experts, as exporters write them: the weights of its expert are copied for each row, and a
 * batch of products multiplies the copies with the rows. */
#include <string.h>

#include "passes/rewrite/recognise.h"

/* Replaces a product of rows "x" and matrices that "index" picks from "w", the right operand or the left one. */
bool fit_experts(struct recognition *recognition) {
    struct graph *graph = recognition->builder.graph;
    const struct node *root = &graph->nodes.at[recognition->root];
    const struct tensor y = *recognition_result(recognition);
    const int w = match_tensor(recognition->match, "w"), index = match_tensor(recognition->match, "index");
    const int x = match_tensor(recognition->match, "x"), rank = graph->tensors.at[index].ndim;
    const bool rows_first = x == root->inputs[0];
    const bool turned = attr_int(root, rows_first ? "trans_b" : "trans_a", 0);
    if (!rt_dtype_is_float(y.dtype) || graph->tensors.at[w].ndim != 3 || y.ndim != rank + 2 ||
        y.dims[rank + (rows_first ? 0 : 1)] != 1 ||
        (rank && memcmp(y.dims, graph->tensors.at[index].dims, (size_t)rank * sizeof *y.dims) != 0))
        return false;
    int64_t shape[RT_MAX_NDIM];
    memcpy(shape, y.dims, sizeof shape);
    shape[rank] = graph->tensors.at[w].dims[turned == rows_first ? 2 : 1];
    int64_t elements = 1;
    for (int d = 0; d <= rank; d++) elements *= shape[d];
    if (elements != tensor_elements(&graph->tensors.at[x])) return false; /* one row for several matrices */
    int rows = build_reshape(&recognition->builder, x, rank + 1, shape);
    struct attr trans = attr_of_int("trans_b", turned == rows_first);
    if (rows < 0) return false;
    int product = build(&recognition->builder, OP_ExpertMatMul, 3, (int[]){rows, w, index}, 1, &trans);
    if (product < 0) return false;
    recognition_reshape(recognition, product);
    return true;
}
