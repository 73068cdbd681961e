/* plan.json: a plan as text (passes/plan/plan.h).
 *
 *   {"format": 1, "pas": "tp:tensor=2", "mesh": [{"axis": "tensor", "size": 2}],
 *    "nodes": [{"name": "h.0/attn", "op": "MatMul",
 *               "partition": [{"tensor": "w", "dim": 1, "ways": 2, "axis": "tensor", "blocks": 3, "unit": 16}],
 *               "stage": 0}]}
 *
 * `pas` is a title and is not read. An axis that some pipeline stages alone have says which: "stages": [0, 1], the
 * first and the last (Note [Unequal stages] in runtime/base/shape/mesh.h). `partition` is "replicate" or the list of
 * splits; `ways` is the size of the mesh axis. blocks and unit are 1, and stage is 0, if left out. Written only if the
 * plan has them: "recompute": true of a node; "stages", the coordinate on the pipeline axis of each stage, if ranks
 * have several; the decisions that have a key in ir/decisions.def. */
#ifndef PASSES_PLAN_PLAN_TEXT_H
#define PASSES_PLAN_PLAN_TEXT_H

#include "passes/plan/plan.h"
#include "runtime/base/text/json.h"

enum { PLAN_FORMAT = 1 };

/* The text of the plan, in the arena; NULL when memory ran out. */
const char *plan_print(struct arena *arena, const struct plan *plan, const char *pas);

/* Reads a plan from the JSON value `text` of the file `file`. The plan lies in the arena and does not refer to the
 * JSON. partial: an entry may leave out `partition` and `stage`, which it then does not decide. 0, or -1 after
 * diagnostics: E0424 with line and column, or with the file alone for format and mesh. */
int plan_parse(struct plan *plan, bool partial, struct arena *arena, struct diags *diags, const char *file,
               const struct rt_json *text);

/* The list of a node's splits as `partition` above. `cuts`: with blocks and unit. */
void plan_put_partition(struct rt_json_writer *writer, const struct plan *plan, const struct plan_node *node,
                        bool cuts);

/* The list of axes as `mesh` above. */
void plan_put_mesh(struct rt_json_writer *writer, const struct mesh *mesh);
/* Reads such a list. False: it is none, or the mesh would be too large. The caller checks mesh_refused. */
bool plan_get_mesh(const struct rt_json *list, struct mesh *mesh, struct arena *arena);
/* Reads size and stages of an entry of such a list, or of that of a checkpoint, which may be the size alone. False: it
 * is none. */
bool plan_get_axis(const struct rt_json *entry, struct rt_mesh_axis *axis);
/* Writes the key "stages" and the coordinate of each, unless every coordinate has one stage. */
void plan_put_chunks(struct rt_json_writer *writer, const struct chunks *chunks);

#endif
