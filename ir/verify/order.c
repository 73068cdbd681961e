#include "ir/verify/verifier.h"

#include "ir/op.h"
#include "ir/packing.h"
#include "ir/schedule.h"

/* Checks that a stage divides and moves tensors along axes that it has (Note [Unequal stages] in
 * runtime/base/shape/mesh.h). */
static void check_stage_has(struct verifier *v, const struct node *node, int stage, int tensor) {
    const struct mesh *mesh = &v->graph->mesh;
    const int home = schedule_home(v->graph, stage);
    for (int axis = 0; axis < mesh->naxes && stage != STAGE_ALL; axis++) {
        if (mesh_has(mesh, axis, home)) continue;
        if (node->op->kind == OP_COMM && attr_int(node, "mesh", -1) == axis)
            return verify_fail(v, "communicates along %s, which pipeline stage %d does not have", mesh->axis[axis].name,
                               home);
        if (verify_kind(v, tensor, axis) != PLACED_WHOLE)
            return verify_fail(v, "'%s' is divided along %s, which pipeline stage %d does not have",
                               verify_tensor(v, tensor)->name, mesh->axis[axis].name, home);
    }
}

void verify_unequal_stages(struct verifier *v) {
    const struct graph *graph = v->graph;
    const int before = v->diags->errors;
    for (int i = 0; i < graph->order.n && graph->level >= STAGED && v->diags->errors == before; i++) {
        const struct node *node = &graph->nodes.at[v->node = graph->order.at[i]];
        const int reads = node->op->id == OP_Transfer ? (int)attr_int(node, "from", 0) : node->stage;
        for (int k = 0; k < node->ninputs + node->noutputs; k++)
            if (node_tensor(node, k) >= 0)
                check_stage_has(v, node, k < node->ninputs ? reads : node->stage, node_tensor(node, k));
    }
}

static bool all_packed(const struct graph *graph, const struct uses *uses, int tensor) {
    for (int u = uses->first[tensor]; u < uses->first[tensor + 1]; u++)
        if (!attr_int(&graph->nodes.at[uses->users[u]], "packed", 0)) return false;
    return true;
}

/* Checks that the operands that a node reads packed can be packed, and that all of their readers read them packed. */
void verify_packing(struct verifier *v) {
    bool *seen = ARENA_ARRAY(v->arena, bool, v->graph->tensors.n + 1);
    const struct uses uses = graph_uses(v->graph, v->arena);
    const bool *excluded = packing_excluded(v->graph, v->arena);
    for (int i = 0; i < v->graph->order.n; i++) {
        const struct node *node = &v->graph->nodes.at[v->node = v->graph->order.at[i]];
        bool any = false;
        if (!attr_int(node, "packed", 0)) continue;
        if (v->graph->level < STAGED) verify_fail(v, "is packed before layouts are assigned");
        EACH_VALUE(node->inputs, node->ninputs, k, const int weight) {
            if (weight < 0 || packing_read(v->graph, node, k) == RT_PLAIN) continue;
            any = true;
            if (seen[weight]) continue; /* checked at its first reader */
            seen[weight] = true;
            if (packing_possible(v->graph, &uses, excluded, weight) == RT_PLAIN)
                verify_fail(v, "reads packed panels of an operand that has none");
            else if (!all_packed(v->graph, &uses, weight))
                verify_fail(v, "'%s' is read both packed and unpacked", verify_tensor(v, weight)->name);
        }
        if (!any) verify_fail(v, "reads packed panels of an operand that has none");
    }
}

bool verify_is_begun_gather(const struct node *node) {
    return node->op->id == OP_AllGatherStart || (node->op->id == OP_AllGather && attr_int(node, "begun", 0));
}

/* Checks that ranks of the stage wait for the gathers along each axis in the order in which these start, each in the
 * phase in which it starts. gathers[]: the n nodes that start gathers or wait for them, in order. */
static void check_gathers_of(struct verifier *v, int stage, const int *gathers, int n) {
    const struct graph *graph = v->graph;
    VEC(int) started[RT_LAYOUT_AXES] = {{0}};
    int finished[RT_LAYOUT_AXES] = {0};
    for (int i = 0; i < n; i++) {
        const struct node *node = &graph->nodes.at[v->node = gathers[i]];
        const int axis = (int)attr_int(node, "mesh", 0);
        if (node->stage != stage && node->stage != STAGE_ALL) continue;
        if (node->op->id == OP_AllGatherStart) VEC_PUSH(v->arena, &started[axis], node->outputs[0]);
        if (node->op->id != OP_AllGather) continue;
        const int start = verify_tensor(v, node->inputs[0])->producer, next = finished[axis]++;
        if (next >= started[axis].n || started[axis].at[next] != node->inputs[0])
            verify_fail(v, "waits for a gather that is not the earliest that has started");
        else if (graph->nodes.at[start].phase != node->phase)
            verify_fail(v, "waits for a gather of another phase");
    }
    for (int axis = 0; axis < RT_LAYOUT_AXES; axis++)
        if (finished[axis] < started[axis].n) verify_fail(v, "a gather that starts is never waited for");
}

void verify_gathers(struct verifier *v) {
    const struct graph *graph = v->graph;
    const int before = v->diags->errors;
    VEC(int) gathers = {0};
    for (int i = 0; i < graph->order.n; i++)
        if (verify_is_begun_gather(&graph->nodes.at[graph->order.at[i]]))
            VEC_PUSH(v->arena, &gathers, graph->order.at[i]);
    for (int stage = 0; stage < schedule_chunks(graph) && v->diags->errors == before; stage++)
        check_gathers_of(v, stage, gathers.at, gathers.n);
}

/* The collective that is made beside a product in runs of rows; NULL: none that is. */
static const struct node *beside_runs(const struct verifier *v, const struct uses *uses, const int *readers,
                                      const struct node *product) {
    const struct graph *graph = v->graph;
    const bool sums = attr_find(product, "sum_axis") != NULL;
    const int result = product->outputs[0], from = verify_tensor(v, product->inputs[0])->producer;
    if (sums && (readers[result] != 1 || uses->first[result + 1] - uses->first[result] != 1)) return NULL;
    if (!sums && from < 0) return NULL;
    const struct node *move = &graph->nodes.at[sums ? uses->users[uses->first[result]] : from];
    const bool scatters = attr_find(product, "run_dim") != NULL;
    const enum op_id op = !sums ? OP_AllGather : scatters ? OP_ReduceScatter : OP_AllReduce;
    const bool begun = !sums || attr_int(move, "begun", 0) == 2;
    return move->op->id == op && begun && attr_int(move, "runs", 1) > 1 && move->phase == product->phase &&
                   move->stage == product->stage &&
                   attr_int(move, "mesh", -2) == attr_int(product, sums ? "sum_axis" : "gather_axis", -1)
               ? move
               : NULL;
}

/* Checks that each product in runs of rows has a collective beside it, and each of these a product; that nothing
 * reads what is gathered, and nothing communicates along its axis, before the product. */
void verify_runs(struct verifier *v) {
    const struct graph *graph = v->graph;
    const int *readers = graph_readers(graph, v->arena);
    int waits = 0, gathered[RT_LAYOUT_AXES];
    const struct uses uses = graph_uses(graph, v->arena);
    for (int axis = 0; axis < RT_LAYOUT_AXES; axis++) gathered[axis] = -1;
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[v->node = graph->order.at[i]];
        const bool moves = node->op->kind == OP_COMM, runs = attr_int(node, "runs", 1) > 1;
        const int axis = (int)attr_int(node, "mesh", 0);
        if (moves && gathered[axis] >= 0) verify_fail(v, "communicates beside a gather of a product's operand");
        waits -= moves && runs;
        for (int k = 0; k < node->ninputs; k++)
            for (int a = 0; a < graph->mesh.naxes; a++) {
                if (node->inputs[k] < 0 || gathered[a] != node->inputs[k]) continue;
                if (!runs || k || attr_int(node, "gather_axis", -1) != a)
                    verify_fail(v, "'%s' is read before it is gathered", verify_tensor(v, node->inputs[k])->name);
                gathered[a] = -1;
            }
        if (runs && node->op->id == OP_AllGather) gathered[axis] = node->outputs[0];
        if (moves || !runs) continue;
        if (!beside_runs(v, &uses, readers, node))
            verify_fail(v, "is computed in runs of rows, with no collective beside it");
        waits++;
    }
    if (waits) verify_fail(v, "a collective waits for runs of rows that no product computes");
}
