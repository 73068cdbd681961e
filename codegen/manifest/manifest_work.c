#include "codegen/manifest/manifest_parts.h"

#include "passes/rank/kernel_time.h"

static void put_class(struct rt_json_writer *writer, const struct rankplan *plan, const struct rank_class *class) {
    const struct graph *graph = plan->graph;
    int64_t number = 0;
    rt_json_open(writer, '[', RT_JSON_INLINE);
    for (int i = 0; i < graph->order.n; i++) {
        const struct node *node = &graph->nodes.at[graph->order.at[i]];
        if (plan->moves_nothing[graph->order.at[i]]) continue;
        const int64_t instruction = number++;
        if (!rankplan_part(class, node)) continue;
        const struct kernel_size size = kernel_size(graph, class, node);
        const int64_t entry[] = {instruction,
                                 node->phase,
                                 (int64_t)size.flops,
                                 (int64_t)size.bytes,
                                 class->live[RT_ACTIVATIONS][i],
                                 class->live[RT_COMMUNICATION][i],
                                 class->live[RT_SCRATCH][i]};
        rt_json_put_dims(writer, entry, sizeof entry / sizeof *entry);
    }
    rt_json_close(writer, ']');
}

void manifest_put_work(struct rt_json_writer *writer, const struct rankplan *plan) {
    rt_json_key_open(writer, "work", '[', RT_JSON_LINES);
    for (int c = 0; c < plan->nclasses; c++) put_class(writer, plan, &plan->classes[c]);
    rt_json_close(writer, ']');
}
