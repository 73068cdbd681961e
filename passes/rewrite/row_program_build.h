/* Builds one node, Rows or Columns (ir/expr/row_program.h), whose program computes what several nodes do. */
#ifndef PASSES_REWRITE_ROW_PROGRAM_BUILD_H
#define PASSES_REWRITE_ROW_PROGRAM_BUILD_H

#include "ir/expr/expr.h"
#include "ir/op.h"

enum { ROW_MEMBERS = 48 };

/* The nodes that a program computes, and its results.
 * Each node is elementwise (passes/rewrite/elementwise.h), a reduction of the last dimension, or a norm or softmax
 * along it. Program result i is the value of tensor result[i], of Columns its sum over all other dimensions, and is
 * stored as tensor output[i]. */
struct row_members {
    int n, node[ROW_MEMBERS]; /* in the order of the graph */
    int nresults, result[EXPR_VALUES], output[EXPR_VALUES];
};

/* True if the node is a norm or softmax, which a program computes by several reductions. */
bool row_is_norm(const struct node *node);

/* An upper bound of the named values of the program; it can be built if the bound is at most EXPR_NAMED. */
int row_names(const struct graph *graph, const struct row_members *members);

/* The tensors that the program reads, numbers left out. Returns how many; EXPR_INPUTS + 1 if they are too many. */
int row_inputs(const struct graph *graph, const struct row_members *members, int inputs[EXPR_INPUTS]);

/* Adds the node at the end of the order, with the name, stage and phase of `like`, and returns its id. The members stay
 * in the graph: the caller removes them from the order. */
int row_program_add(struct graph *graph, enum op_id op, const struct row_members *members, const struct node *like);

#endif
