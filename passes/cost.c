#include "passes/cost.h"

#include <string.h>

const struct machine machine_default = {.flops = 1e11, .bytes = 1e10, .link_bytes = 5e9};

static double operand_bytes(const struct graph *graph, int n, const int *tensors) {
    double bytes = 0;
    for (int i = 0; i < n; i++)
        if (tensors[i] >= 0) bytes += (double)tensor_bytes(&graph->tensors.at[tensors[i]]);
    return bytes;
}

/* Arithmetic and traffic overlap: the slower of the two counts. An embedding reads the rows it picks, not the table. */
double cost_node(const struct graph *graph, const struct node *node, const struct machine *machine) {
    struct dims dims;
    const char *why;
    if (node->op->class == OP_VIEW || dims_bind(graph->arena, graph, node, &dims, &why) < 0) return 0;
    double out = operand_bytes(graph, node->noutputs, node->outputs),
           in = operand_bytes(graph, node->ninputs, node->inputs);
    bool picks = strcmp(node->op->name, "Gather") == 0;
    double flops = dims_flops(&dims, node->op->flops) / machine->flops,
           traffic = ((picks ? out : in) + out) / machine->bytes;
    return flops > traffic ? flops : traffic;
}
