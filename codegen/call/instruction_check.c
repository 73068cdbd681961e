/* Which kernels a target has: E0407 for nodes that have none. */
#include "codegen/call/instruction.h"
#include "passes/pipeline.h"

/* The type that selects the kernel: that of an input, or of the result if there are no inputs. */
static enum rt_dtype kernel_type(const struct graph *graph, const struct node *node) {
    const int input = op_typed_input(node->op); /* which may be left out */
    return graph->tensors.at[input < node->ninputs ? node->inputs[input] : node->outputs[0]].dtype;
}

static bool has_kernel(const struct target *target, const struct node *node, enum rt_dtype dtype) {
    const struct op *op = node->op;
    const struct target_kernel kernel = target->kernels.of ? target->kernels.of[op->id] : (struct target_kernel){0};
    const bool takes_half = rt_dtypes[dtype].kind == RT_KIND_HALF && kernel.halves;
    return !kernel.missing && (!node->ninputs || op_has_kernel(op, dtype) || takes_half);
}

/* What the node has that only kernels of other targets compute, where the text was planned for one; NULL: nothing.
 * Products that are not packed nor of integers are fused with an expression or the sum of an operand by libraries. */
static const char *of_other_target(const struct target *target, const struct node *node) {
    const bool packed = attr_int(node, "packed", 0), integers = op_multiplies_integers(node->op);
    if (target->library_products && packed) return "a packed weight";
    if (!target->epilogue_template && integers && attr_find(node, "expr")) return "an epilogue";
    if (target->library_products || node->op->id != OP_MatMul) return NULL;
    return (attr_find(node, "expr") && !packed) || attr_find(node, "sums") ? "an epilogue unless its weight is packed"
                                                                           : NULL;
}

/* True for products of f32 with 16-bit weights. Only kernels for packed weights compute them. */
static bool mixes_types(const struct graph *graph, const struct node *node) {
    return node->op->id == OP_MatMul && !attr_int(node, "packed", 0) &&
           graph->tensors.at[node->inputs[0]].dtype != graph->tensors.at[node->inputs[1]].dtype;
}

/* Checks that an operator of the user has a kernel for the target, and that its file was read. */
static int check_user(const struct graph *graph, int id, const struct target *target, struct diags *diags) {
    const struct user_op *user = graph->nodes.at[id].op->user;
    if (!user || user->op.kind == OP_ELEMENTWISE) return 0;
    const struct user_kernel *kernel = &user->kernel[target->user_kernel];
    if (!kernel->file)
        return diag_error(diags, 407, EXIT_UNSUPPORTED, node_place(graph, id), "%s declares no kernel for target %s",
                          user->op.name, target->name);
    if (kernel->text) return 0;
    return diag_error(diags, 345, EXIT_MALFORMED, node_place(graph, id), "the kernel of %s is not beside the text: %s",
                      user->op.name, diag_quote(diags, kernel->file));
}

int instruction_check(const struct graph *graph, const struct target *target, struct diags *diags) {
    int before = diags->errors;
    GRAPH_EACH(graph, i, const struct node *node) {
        const enum rt_dtype dtype = kernel_type(graph, node);
        const char *other;
        if (check_user(graph, graph->order.at[i], target, diags) < 0) continue;
        if (!has_kernel(target, node, dtype))
            diag_error(diags, 407, EXIT_UNSUPPORTED, node_place(graph, graph->order.at[i]),
                       "there is no kernel of %s for %s", node->op->name, rt_dtypes[dtype].name);
        if (mixes_types(graph, node))
            diag_error(diags, 407, EXIT_UNSUPPORTED, node_place(graph, graph->order.at[i]),
                       "there is no kernel of MatMul for f32 and %s unless its weight is packed",
                       rt_dtypes[graph->tensors.at[node->inputs[1]].dtype].name);
        if (!(other = of_other_target(target, node))) continue;
        diag_error(diags, 407, EXIT_UNSUPPORTED, node_place(graph, graph->order.at[i]),
                   "target %s has no kernel of %s with %s", target->name, node->op->name, other);
        diag_help(diags, "the text was planned for another target: plan the model for this one");
    }
    return diags->errors == before ? 0 : -1;
}
