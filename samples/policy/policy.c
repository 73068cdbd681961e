/* A policy plug-in: divides products that widen, such as the first of an MLP, by the columns of their weights. The
 * product that follows then sums over the rows that each rank has: rankc derives that.
 *
 *     cc -shared -fPIC -o policy.so policy.c
 *     rankc show model.onnx --pas plugin:./policy.so --plan-ngpus 2 */
#include <stdio.h>
#include <string.h>

#include <rankc/rankc_policy.h>

const int rankc_policy_version = RANKC_POLICY_VERSION;

/* True for a product with a stored matrix of at least twice as many columns as rows, which the ranks divide evenly. */
static int widens(const struct rankc_policy_graph *graph, const struct rankc_policy_node *node) {
    if (strcmp(node->op, "MatMul") != 0) return 0;
    const struct rankc_policy_tensor *weight = &graph->tensors[node->inputs[1]];
    if (weight->kind != RANKC_POLICY_WEIGHT || weight->ndim != 2) return 0;
    return weight->dims[1] >= 2 * weight->dims[0] && weight->dims[1] % graph->axes[0].size == 0;
}

int rankc_policy(const struct rankc_policy_graph *graph, void (*rule)(void *to, const char *text), void *to) {
    int rules = 0;
    for (int n = 0; n < graph->nnodes; n++) {
        const struct rankc_policy_node *node = &graph->nodes[n];
        char text[512];
        if (!widens(graph, node)) continue;
        snprintf(text, sizeof text, "match \"%s\" split in1.1 axis=%s", node->name, graph->axes[0].name);
        rule(to, text);
        rules++;
    }
    return rules == 0; /* there is nothing to divide */
}
