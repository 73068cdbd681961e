/* Elementwise nodes as expressions (ir/expr/expr.h), for the passes that fuse several into one node. */
#ifndef PASSES_REWRITE_ELEMENTWISE_H
#define PASSES_REWRITE_ELEMENTWISE_H

#include "ir/expr/expr.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

/* True if the node may be fused: an elementwise operator with an expression, computed in f32, f64 or bool, whose result
 * is no partial sum. A Cast only between types that are computed in f32. */
bool elementwise_is_fusible(const struct graph *graph, const struct node *node);
/* The same in elementwise chains of the target: also Casts from i8, u8 and i32 to f32, and from f32 to i8 and u8, where
 * kernels convert elements as they load and store them. */
bool elementwise_joins_chain(const struct graph *graph, const struct pass_context *context, const struct node *node);
/* The type in which the node computes: its result's; of a comparison, its operands'; f32 in place of 16-bit floats,
 * and of 8-bit integers that f32 is cast to. */
enum rt_dtype elementwise_compute_type(const struct graph *graph, const struct node *node);
/* True if both tensors have the same shape and the same layout, so that every rank has equal shards of them. */
bool elementwise_same_shard(const struct tensor *a, const struct tensor *b);

/* The node's result as an expression of its inputs; numeric attributes are put in as numbers. In graph->arena. */
const struct expr *elementwise_expression(const struct graph *graph, const struct node *node);
/* The name of input k in that expression: "x" of a node with one input, else "a", "b" or "c". */
const char *elementwise_input_name(const struct node *node, int k);
/* How many times the expression reads the name. */
int elementwise_count_reads(const struct expr *expr, const char *name);
/* A float constant of one element as a number; NULL if the tensor is none, or its value is infinite or NaN. */
const struct expr *elementwise_number(const struct graph *graph, int tensor);

/* Note [Rounding in fused expressions]
 * Where the graph has a 16-bit value, a fused expression rounds to 16 bits too, even if the value is not stored. So
 * results do not depend on which nodes were fused, and recomputation, pipeline stages and splits give the same bits. A
 * store to a 16-bit tensor rounds by itself. A value of 8 bits is computed in f32 within an expression only if the
 * conversion changes nothing (expr_is_code). */
/* The value, rounded if dtype is a 16-bit float; the value of a tensor of type dtype that is not stored. */
const struct expr *elementwise_rounded(struct arena *arena, enum rt_dtype dtype, const struct expr *value);
/* The value to store to a tensor of type dtype: without its last rounding to dtype, which the store does. */
const struct expr *elementwise_stored(enum rt_dtype dtype, const struct expr *value);

#endif
