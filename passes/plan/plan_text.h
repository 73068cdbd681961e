/* A plan as a file (plan.json): how each node is split along the mesh axes, by ONNX node name.
 *
 *   {"format": 1, "mesh": [{"axis": "tensor", "size": 2}],
 *    "nodes": [{"name": "h.0/attn", "op": "MatMul",
 *               "partition": [{"tensor": "w", "dim": 1, "ways": 2, "axis": "tensor", "blocks": 3, "unit": 16}],
 *               "stage": 0}]}
 *
 * partition is "replicate" or a list with at most one entry per mesh axis, which splits dimension `dim` of `tensor` (an
 * input or output of the node). blocks and unit are those of Note [Cuts] in runtime/base/part.h, and 1 if left out. An
 * ONNX node may have become several nodes: entries with the same name and op belong to them in order. */
#ifndef PASSES_PLAN_PLAN_FILE_H
#define PASSES_PLAN_PLAN_FILE_H

#include "ir/ir.h"
#include "runtime/base/json.h"

/* Sets splits and stages of a TYPED graph from the plan. 0, or -1 after diagnostics: E0424 with line and column if a
 * node has no entry or an entry no node, E0420 with node and dimension if a split is not possible. */
int plan_apply(struct graph *graph, const char *file, const struct rt_json *plan, struct diags *diags);

#endif
