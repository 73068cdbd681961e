/* Instructions: the calls that a rank executes, one for each node that is not just a view of its input. */
#ifndef CODEGEN_INSTRUCTION_H
#define CODEGEN_INSTRUCTION_H

#include "codegen/kernel/kernels.h"
#include "passes/rank/rankplan.h"

/* A call with placeholders: in `text`, byte 1 stands for the next of `tensors`, byte 2 for the instruction's number,
 * byte 7 for the next of `keys`, which say what random numbers it draws. Calls of equal text differ in addresses and
 * keys only. */
struct instruction {
    int node, number; /* number: Note [Instruction numbers] in rank.c */
    const char *text;
    VEC(int) tensors;
    VEC(int64_t) keys;
};

/* Writes the instruction of `node` for ranks of `class`; false for views. instruction_check must have accepted the
 * graph. */
bool instruction_write(const struct rankplan *plan, const struct rank_class *class, struct kernels *kernels, int node,
                       struct instruction *out);

/* E0407 for each node for which the target has no kernel. 0 or -1. */
int instruction_check(const struct graph *graph, const struct target *target, struct diags *diags);

#endif
