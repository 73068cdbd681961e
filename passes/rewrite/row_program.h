/* Makes one node, Rows or Columns (ir/expr/rows.h), of several: the expression of all of them together. */
#ifndef PASSES_REWRITE_ROW_PROGRAM_H
#define PASSES_REWRITE_ROW_PROGRAM_H

#include "ir/expr/expr.h"
#include "ir/op.h"

enum { ROW_MEMBERS = 48 };

/* Nodes in order, of which each is elementwise (passes/rewrite/chain.h), a reduction of the last dimension, or a norm
 * or softmax over it; and which of their results the program gives, as which tensors: those themselves, or the sums of
 * their columns. */
struct row_members {
    int n, node[ROW_MEMBERS];
    int nresults, result[EXPR_VALUES], output[EXPR_VALUES];
};

/* The node is a norm or softmax: it is several folds, and what is between them. */
bool row_is_norm(const struct node *node);

/* How many values a program with these members may have to name: it is made if they are at most EXPR_NAMED. */
int row_names(const struct graph *graph, const struct row_members *members);

/* What the members read that none of them makes, numbers left out: their number, EXPR_INPUTS + 1 if there are more. */
int row_inputs(const struct graph *graph, const struct row_members *members, int inputs[EXPR_INPUTS]);

/* Adds the node, called as `like` is and in its place and phase, at the end of the order. */
int row_program_add(struct graph *graph, enum op_id op, const struct row_members *members, const struct node *like);

#endif
