/* What elementwise nodes compute, as expressions: for the passes that make programs of several. */
#ifndef PASSES_REWRITE_CHAIN_H
#define PASSES_REWRITE_CHAIN_H

#include "ir/expr/expr.h"
#include "ir/ir.h"

/* The node is elementwise, in floats, and no partial sum. */
bool chain_takes(const struct graph *graph, const struct node *node);
/* The type a node computes in; comparisons in that of their operands, halves in f32. */
enum rt_dtype chain_computes_in(const struct graph *graph, const struct node *node);
/* Of one shape, and held alike by the ranks. */
bool chain_same_part(const struct tensor *a, const struct tensor *b);

/* The expression of a node's inputs, called x, or a b c; attributes are numbers. */
const struct expr *chain_expression(const struct graph *graph, const struct node *node);
/* The name of input k there. */
const char *chain_input(const struct node *node, int k);
/* How often the expression reads what is so called. */
int chain_reads(const struct expr *expr, const char *name);
/* A scalar constant as a number; NULL if it is none, or has no digits (infinities). */
const struct expr *chain_number(const struct graph *graph, int tensor);

/* Note [Rounding in chains]
 * A half is rounded where the graph has it, even if nothing is stored there: bits do not depend on where chains end, so
 * stages, recomputation and cuts stay exact. What is stored is rounded by that. */
const struct expr *chain_rounded(struct arena *arena, enum rt_dtype dtype, const struct expr *value);
/* The value as it is stored in a tensor of that type, which rounds it. */
const struct expr *chain_stored(enum rt_dtype dtype, const struct expr *value);

#endif
