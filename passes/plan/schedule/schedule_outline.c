#include "passes/plan/schedule/schedules.h"

#include <math.h>

/* A step that is executed: columns, and what of them is done. */
struct outline {
    int coordinates, micro_batches, chunks;
    bool splits;
    struct column *columns;
    int *at;      /* per coordinate: the next cell */
    double *time; /* per coordinate: the end of the last one */
    double *end;  /* per phase, chunk and micro-batch: of its segment; 0: not executed */
};

static double *end_of(const struct outline *o, enum phase phase, int chunk, int micro) {
    return &o->end[((int)phase * o->chunks + chunk) * o->micro_batches + micro];
}

/* When the cell's operands are there; 0 if they are not yet, or there are none. */
static bool is_ready(const struct outline *o, const struct cell *cell, double *from) {
    const int chunk = cell->chunk, micro = cell->micro;
    const double forward = cell->phase == PHASE_FORWARD ? chunk ? *end_of(o, PHASE_FORWARD, chunk - 1, micro) : -1
                                                        : *end_of(o, PHASE_FORWARD, chunk, micro);
    const double backward = cell->phase == PHASE_BACKWARD && chunk + 1 < o->chunks
                                ? *end_of(o, PHASE_BACKWARD, chunk + 1, micro)
                            : cell->phase == PHASE_WEIGHT ? *end_of(o, PHASE_BACKWARD, chunk, micro)
                                                          : -1;
    *from = fmax(forward, backward);
    return forward != 0 && backward != 0;
}

/* Advances the coordinate as far as possible; returns whether it did. */
static bool advance(const struct outline *o, int c) {
    bool any = false;
    for (; o->at[c] < o->columns[c].cells.n; o->at[c]++, any = true) {
        const struct cell *cell = &o->columns[c].cells.at[o->at[c]];
        double from;
        if (!is_ready(o, cell, &from)) break;
        o->time[c] = fmax(o->time[c], from) + (cell->phase == PHASE_BACKWARD && !o->splits ? 2 : 1);
        *end_of(o, cell->phase, cell->chunk, cell->micro) = o->time[c];
    }
    return any;
}

/* Micro-batches whose activations the coordinate keeps: of each of its chunks, as many as there are at once. */
static double slots_of(const struct outline *o, int c, struct arena *arena) {
    const struct column *column = &o->columns[c];
    int *held = ARENA_ARRAY(arena, int, 2 * o->chunks), all = 0;
    VEC_EACH(&column->cells, i, const struct cell *cell) {
        int *now = &held[2 * cell->chunk], *most = now + 1;
        *now += cell->phase == PHASE_FORWARD;
        if (*now > *most) *most = *now, all++;
        *now -= cell->phase == (o->splits ? PHASE_WEIGHT : PHASE_BACKWARD);
    }
    return (double)all * o->coordinates / o->chunks;
}

static struct schedule_outline execute(const struct schedule_choice *choice, int coordinates, int micro_batches,
                                       struct arena *arena) {
    struct arena *scratch = arena_scratch(arena);
    const int most = choice->grid ? micro_batches : 2 * coordinates, n = micro_batches < most ? micro_batches : most;
    const struct chunks chunks = schedule_chunks_of(choice, coordinates, scratch);
    struct outline o = {coordinates,
                        n,
                        chunks.n ? chunks.n : coordinates,
                        schedule_splits(choice),
                        arena_alloc(scratch, (size_t)coordinates, sizeof(struct column)),
                        ARENA_ARRAY(scratch, int, coordinates),
                        ARENA_ARRAY(scratch, double, coordinates),
                        NULL};
    struct schedule_outline outline = {0};
    o.end = ARENA_ARRAY(scratch, double, (PHASE_WEIGHT + 1) * o.chunks * n);
    for (int c = 0; c < coordinates; c++) {
        o.columns[c] = (struct column){
            .arena = scratch, .coordinate = c, .coordinates = coordinates, .micro_batches = n, .chunks = chunks};
        schedule_fill(choice, &o.columns[c]);
    }
    for (bool any = true; any;) {
        any = false;
        for (int c = 0; c < coordinates; c++) any = advance(&o, c) || any;
    }
    const double each = 3.0 * o.chunks / coordinates;
    for (int c = 0; c < coordinates; c++) {
        outline.waiting = fmax(outline.waiting, o.time[c] / each - n);
        outline.last = slots_of(&o, c, scratch);
        outline.slots = fmax(outline.slots, outline.last);
    }
    arena_release(arena, scratch);
    return outline;
}

struct schedule_outline schedule_outline(const struct schedule_choice *choice, int coordinates, int micro_batches,
                                         struct arena *arena) {
    enum { MOST = 8 }; /* coordinates that are executed: of more, waiting and slots grow with their number */
    const int some = choice->grid || coordinates < MOST ? coordinates : MOST;
    const int micro = (int)(((int64_t)micro_batches * some + coordinates - 1) / coordinates);
    struct schedule_outline outline = execute(choice, some, micro, arena);
    if (some > 1) outline.waiting *= (coordinates - 1.0) / (some - 1);
    outline.slots *= (double)coordinates / some, outline.last *= (double)coordinates / some;
    return outline;
}
