#include "passes/rank/slots.h"

static enum rt_arena arena_of(const struct rankplan *plan, int root) {
    return plan->shared[root] ? RT_COMMUNICATION : RT_ACTIVATIONS;
}

/* Lists the roots of the values that backward segments read and others compute. */
static void list_kept(const struct rankplan *plan, struct rank_class *class) {
    const struct graph *graph = plan->graph;
    bool *listed = ARENA_ARRAY(graph->arena, bool, graph->tensors.n + 1);
    for (int s = 0; s < class->nsegments; s++) {
        const struct segment *segment = &graph->segments.at[class->segments[s]];
        for (int i = 0; i < segment->in.n && segment->phase == PHASE_BACKWARD; i++) {
            const int root = plan->root[segment->in.at[i]];
            if (listed[root] || graph->tensors.at[root].kind != TENSOR_VALUE || class->place[root].offset >= 0)
                continue;
            listed[root] = true;
            VEC_PUSH(graph->arena, &class->kept, root);
        }
    }
}

void slots_find(const struct rankplan *plan, struct rank_class *class) {
    list_kept(plan, class);
    for (int i = 0; i < class->kept.n; i++) {
        const int root = class->kept.at[i];
        int64_t *bytes = &class->slot_bytes[arena_of(plan, root)];
        if (class->schedule->slots > 1) class->place[root] = (struct plan_place){arena_of(plan, root), *bytes, 0};
        *bytes += rankplan_memory(plan, class, root);
    }
}

void slots_place(struct rank_class *class) {
    if (class->schedule->slots == 1) return;
    for (int i = 0; i < class->kept.n; i++) {
        struct plan_place *place = &class->place[class->kept.at[i]];
        place->offset += class->bytes[place->arena];
        place->stride = class->slot_bytes[place->arena];
    }
    class->bytes[RT_ACTIVATIONS] += class->schedule->slots * class->slot_bytes[RT_ACTIVATIONS];
    class->bytes[RT_COMMUNICATION] += class->schedule->slots * class->slot_bytes[RT_COMMUNICATION];
}

int slots_verify(const struct rankplan *plan, const struct rank_class *class, struct diags *diags) {
    const struct graph *graph = plan->graph;
    int64_t first[RT_ARENAS], end[RT_ARENAS] = {0}; /* of the region of slots */
    if (class->schedule->slots == 1) return 0;
    for (int a = 0; a < RT_ARENAS; a++) first[a] = INT64_MAX;
    for (int i = 0; i < class->kept.n; i++) {
        const struct plan_place *place = &class->place[class->kept.at[i]];
        if (place->offset < first[place->arena]) first[place->arena] = place->offset;
        end[place->arena] = first[place->arena] + class->schedule->slots * place->stride;
    }
    for (int t = 0; t < graph->tensors.n; t++) {
        const struct plan_place *place = &class->place[t];
        if (place->offset < 0 || place->arena >= RT_ARENAS || end[place->arena] == 0) continue;
        const int64_t behind = place->offset + rankplan_bytes(class, graph, t);
        const bool good = place->stride ? behind <= first[place->arena] + place->stride
                                        : behind <= first[place->arena] || place->offset >= end[place->arena];
        if (!good)
            return diag_error(diags, 1103, EXIT_INTERNAL, graph->name, "memory plan: '%s' overlaps another slot",
                              graph->tensors.at[t].name);
    }
    return 0;
}
