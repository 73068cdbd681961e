#include "ir/verify.h"

#include "ir/blocks.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "ir/timeline.h"
#include "ir/verify/verifier.h"

/* Note [Equivalence]
 * A point of a node is one index of its iteration space: a value for each factor of its annotation. One device visits
 * each point once. The ranks together compute the same if
 *
 *   1. the ranks along each mesh axis partition the points: every value of the split factor has one owner;
 *   2. a rank that owns a point holds every input element that the point reads, at the place where the kernel looks for
 *      it: its part of each operand is exactly the elements with owned values of the split factor, in order;
 *   3. results to which several ranks contribute (the factor is reduced) are combined once, by the reduction of that
 *      factor, before any operator but a linear one reads them;
 *   4. redistributions move elements and do not change them, and their source and destination layouts are those of
 *      their input and output.
 *
 * The check does not rely on the arithmetic of dims.c: it computes the indices of a dimension that each rank owns once
 * from the factor and once from the tensor's layout, and compares the two sets (Note [Runs]). For a window it checks
 * that the window contains all indices that the rank's positions read, at the place where the rank's operator looks for
 * them: that operator counts its own positions from 0 and pads the window by the rank's own begin. */

static bool check_ids(struct verifier *v, const struct node *node) {
    EACH_VALUE(node->inputs, node->ninputs, k, int id) {
        if (id < -1 || id >= v->graph->tensors.n) return verify_fail(v, "input %d is not a tensor", k), false;
        if (id >= 0 && !v->written[id])
            return verify_fail(v, "reads '%s' before it is written", verify_tensor(v, id)->name), false;
    }
    EACH_VALUE(node->outputs, node->noutputs, k, int id) {
        if (id < 0 || id >= v->graph->tensors.n) return verify_fail(v, "output %d is not a tensor", k), false;
        if (v->written[id]) return verify_fail(v, "writes '%s' a second time", verify_tensor(v, id)->name), false;
        v->written[id] = true;
    }
    return true;
}

static bool check_shapes(struct verifier *v, const struct node *node, struct dims *dims) {
    const char *why;
    if (dims_bind(v->arena, v->graph, node, dims, &why) < 0) return verify_fail(v, "%s", why), false;
    for (int k = 0; k < node->noutputs; k++) {
        const struct tensor *out = verify_tensor(v, node->outputs[k]);
        if (!dims_fits(dims, dims->ninputs + k, out))
            return verify_fail(v, "'%s' is declared as %s, which is not what the node computes", out->name,
                               tensor_type(v->arena, out)),
                   false;
    }
    return true;
}

static bool crosses(const struct node *node) {
    return node->op->id == OP_Transfer || node->op->id == OP_Broadcast;
}

/* True if the inner cut divides the parts of the outer one: of the same dimension, in the same blocks, at places where
 * the outer one could divide too. */
static bool cuts_nest(const struct placement *outer, const struct placement *inner) {
    return outer->kind == PLACED_PART && inner->kind == PLACED_PART && outer->blocks == inner->blocks &&
           outer->grain % inner->grain == 0;
}

static void check_layouts(struct verifier *v, const struct node *node) {
    for (int k = 0; k < node->noutputs; k++) {
        const struct tensor *out = verify_tensor(v, node->outputs[k]);
        for (int c = 1; c < out->layout.ncuts; c++) {
            const struct placement *outer = &out->layout.cuts[c - 1].placement, *inner = &out->layout.cuts[c].placement;
            if (placement_divides(outer) && placement_divides(inner) && outer->dim == inner->dim &&
                !cuts_nest(outer, inner))
                verify_fail(v, "two mesh axes split dimension %d of '%s', but the cuts do not nest", inner->dim,
                            out->name);
        }
    }
}

/* What a node's attributes, splits, types and layouts say of it; all of it is part of its kind (ALIKE in blocks.h). */
static void check_node(struct verifier *v, const struct node *node) {
    struct dims dims;
    if (!check_shapes(v, node, &dims) || v->graph->level < PLACED) return;
    check_layouts(v, node);
    if (crosses(node)) return verify_crossing(v, node);
    if (v->graph->level >= STAGED) verify_stage(v, node);
    if (node->op->kind == OP_COMM) return verify_move(v, node);
    if (node->op->ring) verify_ring(v, &dims, node);
    for (int axis = 0; axis < mesh_layout_axes(&v->graph->mesh); axis++)
        if (node->split[axis].factor >= 0)
            verify_split(v, &dims, node, axis);
        else if (node->split[axis].factor == SPLIT_FLAT)
            verify_flat(v, &dims, node, axis);
        else if (axis >= v->graph->mesh.naxes && node->split[axis].factor == SPLIT_NONE)
            verify_replicas(v, node, axis);
        else
            verify_unsplit(v, node, axis);
}

static void note_features(struct verifier *v, const struct node *node) {
    v->any_packed = v->any_packed || attr_int(node, "packed", 0);
    v->any_runs = v->any_runs || attr_int(node, "runs", 1) > 1;
    v->any_gathers = v->any_gathers || verify_is_begun_gather(node);
}

/* Checks the nodes. A node that is alike to one without an error has none: layers that repeat are checked once. */
static void check_nodes(struct verifier *v) {
    const struct graph *graph = v->graph;
    const int *kinds = node_kinds(graph, v->arena, ALIKE);
    bool *sound = ARENA_ARRAY(v->arena, bool, graph->order.n + 1); /* per kind */
    for (int i = 0; i < graph->order.n; i++) {
        const int before = v->diags->errors;
        if (sound[kinds[i]]) continue;
        v->node = graph->order.at[i];
        check_node(v, &graph->nodes.at[v->node]);
        note_features(v, &graph->nodes.at[v->node]);
        sound[kinds[i]] = v->diags->errors == before;
    }
}

/* Note [Counted outputs] in ir.h. */
static void check_counted(struct verifier *v, const struct counted_output *counted) {
    const struct graph *graph = v->graph;
    const int n = graph->outputs.n - graph->nmetrics;
    if (counted->count < 0 || counted->count >= n || counted->output >= n || counted->count == counted->output ||
        graph_counted(graph, counted->count)) {
        verify_fail(v, "the count of output %d is not another output", counted->output);
        return;
    }
    const struct tensor *out = verify_tensor(v, graph->outputs.at[counted->output]),
                        *count = verify_tensor(v, graph->outputs.at[counted->count]);
    if (counted->dim >= out->ndim) verify_fail(v, "output '%s' has no dimension %d", out->name, counted->dim);
    if (count->dtype != RT_I64 || count->ndim)
        verify_fail(v, "count '%s' is not an i64 without dimensions", count->name);
}

/* What `loss_elements` says of the outputs (struct graph). */
static void check_loss(struct verifier *v) {
    const struct graph *graph = v->graph;
    if (!graph->loss_elements) return;
    for (int i = 0; i < 2 && i < graph->outputs.n - graph->nmetrics; i++)
        if (verify_tensor(v, graph->outputs.at[i])->ndim)
            verify_fail(v, "output %d of a mean over labels has dimensions", i);
    if (graph->outputs.n - graph->nmetrics < 2) verify_fail(v, "a mean over labels has no output with their weights");
}

static void check_ends(struct verifier *v) {
    v->node = -1;
    check_loss(v);
    for (int i = 0; i < v->graph->counted.n; i++) check_counted(v, &v->graph->counted.at[i]);
    for (int i = 0; i < v->graph->outputs.n; i++) {
        const struct tensor *out = verify_tensor(v, v->graph->outputs.at[i]);
        if (!v->written[v->graph->outputs.at[i]]) verify_fail(v, "output '%s' is never written", out->name);
        for (int axis = 0; axis < mesh_layout_axes(&v->graph->mesh) && v->graph->level >= COMMUNICATING; axis++)
            if (verify_kind(v, v->graph->outputs.at[i], axis) != PLACED_WHOLE &&
                verify_kind(v, v->graph->outputs.at[i], axis) != PLACED_OWN)
                verify_fail(v, "output '%s' is not complete", out->name);
    }
    for (int i = 0; i < v->graph->updates.n && v->graph->level >= COMMUNICATING; i++)
        if (!layout_equal(&verify_tensor(v, v->graph->updates.at[i].weight)->layout,
                          &verify_tensor(v, v->graph->updates.at[i].value)->layout))
            verify_fail(v, "the update of '%s' has another layout",
                        verify_tensor(v, v->graph->updates.at[i].weight)->name);
}

int verify_graph(struct graph *graph, struct diags *diags) {
    struct verifier v = {.graph = graph, .arena = arena_scratch(graph->arena), .diags = diags};
    int before = diags->errors;
    v.written = ARENA_ARRAY(v.arena, bool, graph->tensors.n + 1);
    for (int t = 0; t < graph->tensors.n; t++) v.written[t] = graph->tensors.at[t].kind != TENSOR_VALUE;
    bool sound = true;
    for (int i = 0; i < graph->order.n; i++) {
        v.node = graph->order.at[i];
        sound = check_ids(&v, &graph->nodes.at[v.node]) && sound;
    }
    if (sound) check_nodes(&v);
    check_ends(&v);
    if (diags->errors == before && !mesh_is_even(&graph->mesh)) verify_unequal_stages(&v);
    if (diags->errors == before && v.any_packed) verify_packing(&v);
    if (diags->errors == before && v.any_gathers && graph->level >= STAGED) verify_gathers(&v);
    if (diags->errors == before && v.any_runs && graph->level >= STAGED) verify_runs(&v);
    arena_release(graph->arena, v.arena);
    if (diags->errors == before && schedule_verify(graph, diags) == 0) timeline_verify(graph, diags);
    return diags->errors == before ? 0 : -1;
}
