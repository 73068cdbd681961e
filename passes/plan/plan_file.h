/* A plan as a file (plan.json): which part of each node is cut along which mesh axis, by ONNX node name.
 *
 *   {"format": 1, "mesh": [{"axis": "tensor", "size": 2}],
 *    "nodes": [{"name": "h.0/attn", "op": "MatMul",
 *               "partition": [{"tensor": "w", "dim": 1, "ways": 2, "axis": "tensor", "blocks": 3, "unit": 16}],
 *               "stage": 0}]}
 *
 * partition is "replicate" or a list with at most one entry per mesh axis: cutting dimension `dim` of `tensor` (an
 * input or output of the node) in (blocks, unit), Note [Cuts] in runtime/base/part.h; both are 1 if left out. Several
 * nodes may come from one ONNX node: entries of equal name and op are taken in order. */
#ifndef PASSES_PLAN_PLAN_FILE_H
#define PASSES_PLAN_PLAN_FILE_H

#include "ir/ir.h"
#include "runtime/base/json.h"

/* Sets the splits of a TYPED graph from the plan. Every node must have an entry and every entry a node (E0424, with
 * line and column); splits that cannot be are E0420 with node and dimension. */
int plan_apply(struct graph *graph, const char *file, const struct rt_json *plan, struct diags *diags);

#endif
