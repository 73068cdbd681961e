/* Schedules that the user writes (--schedule FILE): a grid with a line for each pipeline coordinate, in order.
 *
 *   # two ranks, two micro-batches
 *   F0 F1 .  B0 B1
 *   .  F0 F1 B0 B1
 *
 * F2 is the forward segment of micro-batch 2, B2 its backward segment; F2@3 is that of stage 3. If the grid has cells
 * W, B2 computes the gradients that other stages wait for, and W2 those of weights (Note [Two parts of backward] in
 * passes/place/split_backward.c). Without @ the stage is the one that has the coordinate's number. A stage is on one
 * line alone. A dot stands for waiting and has no effect: ranks wait as long as they must. Cells are separated by
 * blanks; # begins a comment, and empty lines are left out. */
#ifndef PASSES_PLAN_SCHEDULE_GRID_H
#define PASSES_PLAN_SCHEDULE_GRID_H

#include "ir/ir.h"

/* A segment, for one micro-batch. */
struct cell {
    enum phase phase; /* PHASE_FORWARD, PHASE_BACKWARD or PHASE_WEIGHT */
    int micro;
    int chunk; /* of all chunks of the program */
};

struct grid {
    int coordinates, micro_batches;
    struct chunks chunks; /* n = 0 if stage c is on line c */
    bool splits;          /* it has cells W */
    struct grid_line {
        VEC(struct cell) cells;
    } * lines;
};

/* The phase that a letter of a cell stands for: F, B or W; PHASES for other letters. */
enum phase grid_phase(char letter);

/* Reads a grid. Every stage must have one forward and one backward cell of each micro-batch, in this order, and a
 * weight cell after them if any has. 0, or -1 after a diagnostic with the line: E0427. Memory is of the arena. */
int grid_parse(struct grid *grid, const char *text, size_t bytes, const char *file, struct arena *arena,
               struct diags *diags);

/* The grid as text without comments, dots and empty lines: equal for equal schedules. */
const char *grid_text(const struct grid *grid, struct arena *arena);

#endif
