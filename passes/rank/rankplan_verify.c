/* Verification that the ranks meet at every collective and transfer of the plan. */
#include <string.h>

#include "passes/plan/stages.h"
#include "passes/rank/memplan.h"

/* The next collective or transfer at or after position `i` of the order that a shard takes part in; the order's length
 * if there is none. */
static int next_meeting(const struct rankplan *plan, int shard, int i) {
    const struct graph *graph = plan->graph;
    for (; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (op_communicates(node->op) && rankplan_part(&plan->classes[plan->class_of[shard]], node)) break;
    }
    return i;
}

/* True if all members of the shard's group execute the node, or, of a transfer, its sender and its receiver. */
static bool all_meet(const struct rankplan *plan, int shard, int position, int *group) {
    const struct graph *graph = plan->graph;
    const struct node *node = &graph->nodes.at[graph->order.at[position]];
    int n = mesh_group(&graph->mesh, shard, (int)attr_int(node, "mesh", 0), group), ends = 0;
    bool transfer = node->op->id == OP_Transfer;
    for (int m = 0; m < n; m++) {
        int part = rankplan_part(&plan->classes[plan->class_of[group[m]]], node);
        if (!transfer && !part) return false;
        ends += part == STAGE_READS ? 1 : part == STAGE_WRITES ? 2 : 0;
    }
    return !transfer || ends == 3;
}

/* Every shard executes a part of one common order. If all members of a group execute each of its nodes, then the
 * first node in the order at which some shard waits is reached by all its members. So there is no deadlock, and all
 * shards meet in the same order. */
static int verify_order(const struct rankplan *plan, struct diags *diags) {
    const struct graph *graph = plan->graph;
    int shards = mesh_size(&graph->mesh), *group = ARENA_ARRAY(graph->arena, int, shards + 1);
    for (int s = 0; s < shards; s++)
        for (int i = next_meeting(plan, s, 0); i < graph->order.n; i = next_meeting(plan, s, i + 1))
            if (!all_meet(plan, s, i, group))
                return diag_error(diags, 1102, EXIT_MISMATCH, node_place(graph, graph->order.at[i]),
                                  "deadlock: rank %d would wait for a rank that never takes part", s);
    return 0;
}

int rankplan_verify(const struct rankplan *plan, struct diags *diags) {
    return verify_order(plan, diags) < 0 || memplan_verify(plan, diags) < 0 ? -1 : 0;
}
