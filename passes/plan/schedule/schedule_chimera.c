#include "passes/plan/schedule/schedule_chimera.h"

#include "passes/plan/schedule/column.h"

/* Note [Order of Chimera]
 * The order of segments is found by executing the pipeline with forward and backward segments of one unit of time each,
 * as the paper draws it (Li and Hoefler, SC 2021). Whenever a coordinate is free it takes a backward segment
 * if it can, of the earliest micro-batch, else a forward segment; of its two chunks, the later one comes first. With p
 * stages and n micro-batches in all, a multiple of p, ranks wait p - 2 units: the bubble is (p - 2) / (2 n + p - 2).
 * This is the bubble ratio of the paper, and so is the number of micro-batches that a rank keeps: p / 2 + 1 to p. */

/* A pipeline that is executed. done: by chunk, the micro-batches whose segments of the phase were executed before the
 * current unit of time. */
struct execution {
    int coordinates, micro_batches, chunks;
    int *done[PHASE_BACKWARD + 1];
};

/* True if the chunk can execute the segment of its next micro-batch. */
static bool is_ready(const struct execution *e, enum phase phase, int chunk) {
    const int micro = e->done[phase][chunk], *forward = e->done[PHASE_FORWARD], *backward = e->done[PHASE_BACKWARD];
    if (micro == e->micro_batches) return false;
    if (phase == PHASE_BACKWARD) return (chunk + 1 == e->chunks ? forward[chunk] : backward[chunk + 1]) > micro;
    return chunk ? forward[chunk - 1] > micro : micro < backward[0] + e->coordinates;
}

/* What the coordinate executes now; the phase is PHASES if it waits. */
static struct cell choose_cell(const struct execution *e, int coordinate) {
    const int chunks[] = {e->chunks - 1 - coordinate, coordinate};
    struct cell best = {PHASES, 0, 0};
    for (int phase = PHASE_BACKWARD; phase >= PHASE_FORWARD && best.phase == PHASES; phase--)
        for (int i = 0; i < 2; i++) {
            const struct cell cell = {(enum phase)phase, e->done[phase][chunks[i]], chunks[i]};
            const bool earlier = best.phase == PHASES || (phase == PHASE_BACKWARD && cell.micro < best.micro);
            if (earlier && is_ready(e, cell.phase, cell.chunk)) best = cell;
        }
    return best;
}

/* Executes a unit of time on all coordinates, whose cells are put into `cells`. */
static void advance(struct execution *e, struct cell *cells) {
    for (int c = 0; c < e->coordinates; c++) cells[c] = choose_cell(e, c);
    for (int c = 0; c < e->coordinates; c++)
        if (cells[c].phase < PHASES) e->done[cells[c].phase][cells[c].chunk]++;
}

void fill_chimera(struct column *column) {
    struct execution e = {column->coordinates, column->micro_batches, 2 * column->coordinates, {0}};
    struct cell *cells = ARENA_ARRAY(column->arena, struct cell, e.coordinates);
    for (int phase = 0; phase <= PHASE_BACKWARD; phase++) e.done[phase] = ARENA_ARRAY(column->arena, int, e.chunks);
    while (e.done[PHASE_BACKWARD][0] < e.micro_batches) {
        advance(&e, cells);
        if (cells[column->coordinate].phase < PHASES)
            VEC_PUSH(column->arena, &column->cells, cells[column->coordinate]);
    }
}
