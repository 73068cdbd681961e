/* Verification that the ranks meet at every collective and transfer of the plan. */
#include <string.h>

#include "passes/plan/stages.h"
#include "passes/rank/memplan.h"

/* The class that has stage and coordinates of `class` on all axes but `axis`, and there the set number `set`. */
static const struct rank_class *member(const struct rankplan *plan, const struct rank_class *class, int axis, int set) {
    const struct mesh *mesh = &plan->graph->mesh;
    int coordinate[RT_MAX_AXES];
    mesh_coordinate(mesh, class->shard, coordinate);
    coordinate[axis] = plan->sets[axis].first[set];
    return &plan->classes[rankplan_class_of(plan, mesh_shard(mesh, coordinate))];
}

/* True if all members of the groups of the class' ranks execute the node, or, of a transfer, its sender and its
 * receiver. Groups of all ranks of a class consist of the same classes; along a replica axis, of the class alone. */
static bool all_meet(const struct rankplan *plan, const struct rank_class *class, const struct node *node) {
    const int axis = (int)attr_int(node, "mesh", 0);
    const bool transfer = node->op->id == OP_Transfer;
    int ends = 0;
    if (axis >= plan->graph->mesh.naxes) return true;
    for (int set = 0; set < plan->sets[axis].n; set++) {
        const int part = rankplan_part(member(plan, class, axis, set), node);
        if (!transfer && !part) return false;
        ends += part == STAGE_READS ? 1 : part == STAGE_WRITES ? 2 : 0;
    }
    return !transfer || ends == 3;
}

/* Every rank executes a part of one common order. If all members of a group execute each of its nodes, then the first
 * node in the order at which some rank waits is reached by all its members. So there is no deadlock, and all ranks meet
 * in the same order. */
static int verify_order(const struct rankplan *plan, struct diags *diags) {
    const struct graph *graph = plan->graph;
    for (int c = 0; c < plan->nclasses; c++)
        for (int i = 0; i < graph->order.n; i++) {
            const struct node *node = &graph->nodes.at[graph->order.at[i]];
            if (!op_communicates(node->op) || !rankplan_part(&plan->classes[c], node) ||
                all_meet(plan, &plan->classes[c], node))
                continue;
            return diag_error(diags, 1102, EXIT_MISMATCH, node_place(graph, graph->order.at[i]),
                              "deadlock: rank %d would wait for a rank that never takes part", plan->classes[c].shard);
        }
    return 0;
}

int rankplan_verify(const struct rankplan *plan, struct diags *diags) {
    return verify_order(plan, diags) < 0 || memplan_verify(plan, diags) < 0 ? -1 : 0;
}
