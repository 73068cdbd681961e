/* What the integers of an input index: for inputs that are made up (runtime/base/number/random_fill.h). */
#ifndef CODEGEN_INDEX_BOUND_H
#define CODEGEN_INDEX_BOUND_H

#include "ir/ir.h"

/* The least number of rows of the tables that the elements of `tensor` index, such as the vocabulary that token ids
 * index; 0 if they index none. Followed are nodes that only move or convert elements. `scratch` is used for tables. */
int64_t index_bound(const struct graph *graph, const struct uses *uses, int tensor, struct arena *scratch);

#endif
