#include "ir/verify/verifier.h"

#include <string.h>

#include "ir/op.h"
#include "ir/schedule.h"

static const struct {
    enum op_id op;
    enum placement_kind from, to;
} transitions[] = {{OP_Chunk, PLACED_WHOLE, PLACED_PART},
                   {OP_Chunk, PLACED_WHOLE, PLACED_WINDOW},
                   {OP_AllGather, PLACED_PART, PLACED_WHOLE},
                   {OP_AllToAll, PLACED_PART, PLACED_PART},
                   {OP_Crop, PLACED_PART, PLACED_WINDOW},
                   {OP_HaloExchange, PLACED_PART, PLACED_WINDOW},
                   {OP_Chunk, PLACED_WHOLE, PLACED_FLAT},
                   {OP_AllGather, PLACED_FLAT, PLACED_WHOLE},
                   {OP_AllGatherStart, PLACED_FLAT, PLACED_FLAT},
                   {OP_ReduceScatterOnto, PLACED_PARTIAL, PLACED_FLAT},
                   {OP_AllReduceOnto, PLACED_PARTIAL, PLACED_WHOLE},
                   {OP_ReduceScatter, PLACED_PARTIAL, PLACED_FLAT},
                   {OP_AllReduce, PLACED_PARTIAL, PLACED_WHOLE},
                   {OP_ReduceScatter, PLACED_PARTIAL, PLACED_PART},
                   {OP_AllReduceStart, PLACED_PARTIAL, PLACED_PARTIAL},
                   {OP_ReduceScatterStart, PLACED_PARTIAL, PLACED_PARTIAL}};

/* From pass replicas on, a partial value along a replica axis is the rank's own. */
static enum placement_kind kind_of(const struct verifier *v, const struct placement *placement) {
    return v->graph->level >= STAGED && placement->kind == PLACED_OWN ? PLACED_PARTIAL : placement->kind;
}

static bool moves_between(const struct verifier *v, const struct op *op, const struct placement *from,
                          const struct placement *to) {
    for (int i = 0; i < (int)(sizeof transitions / sizeof *transitions); i++)
        if (transitions[i].op == op->id && transitions[i].from == kind_of(v, from) &&
            transitions[i].to == kind_of(v, to))
            return true;
    return false;
}

/* True if the attributes of the collective name the part that it makes or resolves. An exchange between two parts, or
 * to windows, has no such attributes. */
static bool names_its_part(const struct node *node, const struct placement *from, const struct placement *to) {
    if (to->kind == PLACED_WINDOW || (from->kind == PLACED_PART) == (to->kind == PLACED_PART)) return true;
    const struct placement *part = from->kind == PLACED_PART ? from : to;
    return part->dim == attr_int(node, "dim", -1) && part->blocks == attr_int(node, "blocks", 0) &&
           part->grain == attr_int(node, "grain", 0);
}

/* The pipeline stage of a tensor's producer; STAGE_ALL if no node computes the tensor. A node reads tensors of
 * stages at its own coordinate only, and a transfer between stages keeps the layout. */
static int home_of(const struct verifier *v, int tensor) {
    const struct tensor *t = verify_tensor(v, tensor);
    return t->kind == TENSOR_VALUE ? v->graph->nodes.at[t->producer].stage : STAGE_ALL;
}

/* True if the stage has the tensor of stage `home`: in the phases of the whole step, whose nodes are on a coordinate's
 * first stage, also those of its other stages. */
static bool has_tensor(const struct verifier *v, const struct node *node, int64_t stage, int home) {
    if (stage < 0 || stage >= schedule_chunks(v->graph) || home == STAGE_ALL) return false;
    return stage == home ||
           (node->phase >= PHASE_REDUCE && schedule_home(v->graph, (int)stage) == schedule_home(v->graph, home));
}

void verify_crossing(struct verifier *v, const struct node *node) {
    const struct tensor *from = verify_tensor(v, node->inputs[0]), *to = verify_tensor(v, node->outputs[0]);
    bool transfer = node->op->id == OP_Transfer;
    if (!transfer && !mesh_is_even(&v->graph->mesh) && from->layout.ncuts)
        verify_fail(v, "broadcasts a part of '%s' between unequal stages", from->name);
    if (!layout_equal(&from->layout, &to->layout)) verify_fail(v, "changes the layout of '%s'", from->name);
    if (!has_tensor(v, node, attr_int(node, "from", -1), home_of(v, node->inputs[0])))
        verify_fail(v, "'%s' is not on the pipeline stage that sends it", from->name);
    if (node->stage != (transfer ? attr_int(node, "to", -2) : STAGE_ALL)) verify_fail(v, "arrives on another stage");
    if (attr_int(node, "mesh", -1) != mesh_pipeline_axis(&v->graph->mesh))
        verify_fail(v, "is not along the pipeline axis");
}

void verify_stage(struct verifier *v, const struct node *node) {
    const int own = schedule_home(v->graph, node->stage);
    if (node->stage >= schedule_chunks(v->graph)) verify_fail(v, "there is no pipeline stage %d", node->stage);
    for (int k = 0; k < node->ninputs; k++) {
        int home = node->inputs[k] < 0 ? STAGE_ALL : home_of(v, node->inputs[k]);
        if (home != STAGE_ALL && schedule_home(v->graph, home) != own)
            verify_fail(v, "reads '%s' of another pipeline stage", verify_tensor(v, node->inputs[k])->name);
    }
}

void verify_move(struct verifier *v, const struct node *node) {
    const struct tensor *from = verify_tensor(v, op_moved_input(node)), *to = verify_tensor(v, node->outputs[0]);
    int mesh = (int)attr_int(node, "mesh", -1);
    if (mesh < 0 || mesh >= mesh_layout_axes(&v->graph->mesh))
        return verify_fail(v, "is not a collective along a mesh axis");
    const struct placement a = layout_along(&from->layout, mesh), b = layout_along(&to->layout, mesh);
    if (node->op->id == OP_Crop && moves_between(v, node->op, &a, &b)) verify_crop(v, from, to, mesh);
    if (!placement_equal(&a, &b) && (placement_divides(&a) || placement_divides(&b)) &&
        (layout_flat_axes(&from->layout) || layout_flat_axes(&to->layout)))
        verify_fail(v, "changes the part of '%s', of which the rank has a slice only", from->name);
    if (node->ninputs > 1 && !layout_equal(&verify_tensor(v, node->inputs[0])->layout, &to->layout))
        verify_fail(v, "adds to '%s', which is cut in another way", verify_tensor(v, node->inputs[0])->name);
    struct layout others[2] = {from->layout, to->layout};
    for (int i = 0; i < 2; i++) layout_place(v->arena, &others[i], mesh, (struct placement){PLACED_WHOLE});
    if (!layout_equal(&others[0], &others[1])) verify_fail(v, "changes the layout along another axis");
    if (layout_inner_axis(&from->layout, mesh) >= 0 || layout_inner_axis(&to->layout, mesh) >= 0)
        verify_fail(v, "moves '%s' along %s, although another axis divides the parts there", from->name,
                    v->graph->mesh.axis[mesh].name);
    if (!moves_between(v, node->op, &a, &b) || !names_its_part(node, &a, &b))
        verify_fail(v, "does not convert the layout of '%s' into that of '%s'", from->name, to->name);
    if ((a.kind == PLACED_FLAT || b.kind == PLACED_FLAT) && layout_flat_axes(&from->layout) >> mesh >> 1)
        verify_fail(v, "cuts or gathers '%s' flat along %s, although a later axis cuts what that leaves", from->name,
                    v->graph->mesh.axis[mesh].name);
    if (a.kind == PLACED_PARTIAL && strcmp(attr_text(node, "reduce", ""), reduce_names[a.reduce]) != 0)
        verify_fail(v, "reduces by another operation than the value needs");
}
