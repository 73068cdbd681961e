/* Blocks: sequences of nodes that occur several times in a row in a graph, such as the layers of a transformer. A pass
 * that treats all repetitions of a block alike decides once per kind of block.
 *
 * Note [Blocks]
 * A block is `times` repetitions of `nodes` nodes. Nodes at the same place of two repetitions are alike, and each of
 * their inputs comes from the same place (enum input_source). A layer that differs in one node, in a shape or in where
 * a mask comes from is not part of the block. Layers of two kinds in turn are a block whose repetitions have two
 * layers.
 *
 * Blocks are those that cover the most nodes; repetitions within a repetition are not reported. Where a repetition may
 * begin at several nodes, the one is taken before which the fewest bytes are live, which is where layers meet. */
#ifndef IR_BLOCKS_H
#define IR_BLOCKS_H

#include "ir/ir.h"

/* When two nodes are alike.
 *
 *   ALIKE_IN_TYPES   equal operators, phases, and types of operands and results: they cost about the same
 *   ALIKE            also equal attributes, splits, stages, and layouts and stages of operands and results: what
 *                    verify.h checks of one holds for the other */
enum alike { ALIKE_IN_TYPES, ALIKE };

/* For each place of the order a number, equal for nodes that are alike and dense from 0 in order of first occurrence.
 * In `arena`, as all memory of this file. */
int *node_kinds(const struct graph *graph, struct arena *arena, enum alike alike);

/* Per tensor: the place in the order of the node that computes it; -1: none. */
int *node_places(const struct graph *graph, struct arena *arena);

/* A block: node j of repetition r is at place first + r * nodes + j of the order. */
struct block {
    int first, nodes, times;
    int kind; /* equal for blocks whose repetitions are alike node by node; dense from 0 */
};

struct blocks {
    VEC(struct block) all; /* in order; times is at least 2 */
    int kinds;
    int *places; /* node_places */
};

/* Finds the blocks among places [first, end) of the order; `kinds` is the result of node_kinds. */
void blocks_find(const struct graph *graph, struct arena *arena, const int *kinds, int first, int end,
                 struct blocks *out);

/* Where input k of node j of a block comes from, in each repetition:
 *
 *   INPUT_NONE      the input is left out
 *   INPUT_INSIDE    a node of the same repetition
 *   INPUT_CARRIED   a node of an earlier repetition, as many places back in each; the first repetitions, which have no
 *                    such node before them, read a value from outside
 *   INPUT_SHARED    the same tensor from outside the block
 *   INPUT_OWN       a tensor from outside the block that is not the same in all repetitions, such as a weight */
enum input_source { INPUT_NONE, INPUT_INSIDE, INPUT_CARRIED, INPUT_SHARED, INPUT_OWN, INPUT_SOURCES };
extern const char *const input_source_names[INPUT_SOURCES]; /* in text IR */
enum input_source block_input_source(const struct graph *graph, const struct blocks *blocks, const struct block *block,
                                     int j, int k);

#endif
