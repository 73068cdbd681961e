#include "passes/plan/schedule/schedule_grid.h"

#include <string.h>

#include "ir/base/str.h"

enum { MOST_MICRO_BATCHES = 1 << 16, MOST_STAGES = 1 << 12, MOST_LINES = 1 << 12 };

struct reader {
    struct grid *grid;
    struct arena *arena;
    struct diags *diags;
    const char *file, *at, *end;
    int line;
    int chunks, cells; /* stages; cells so far */
    VEC(struct grid_line) lines;
    VEC(int) home;    /* per stage: its coordinate; -1: not seen yet */
    VEC(int) numbers; /* per line of the grid: its line in the file */
};

static int fail(const struct reader *r, int line, const char *what) {
    return diag_error(r->diags, 427, EXIT_MALFORMED, arena_printf(r->diags->arena, "%s:%d", r->file, line),
                      "schedule: %s", what);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool ends_cell(const struct reader *r) {
    return r->at == r->end || is_blank(*r->at) || *r->at == '\n' || *r->at == '#';
}

/* Takes a number less than `below`; -1 if there is none. */
static int take_number(struct reader *r, int below) {
    int64_t number = 0;
    const char *begin = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && number < below; r->at++)
        number = 10 * number + (*r->at - '0');
    return r->at == begin || number >= below ? -1 : (int)number;
}

/* Notes that the stage is at the coordinate; false if it is at another. */
static bool place_stage(struct reader *r, int stage, int coordinate) {
    while (r->home.n <= stage) VEC_PUSH(r->arena, &r->home, -1);
    if (r->home.at[stage] < 0) r->home.at[stage] = coordinate;
    return r->home.at[stage] == coordinate;
}

/* Letters of cells, by phase. */
static const char letters[] = {[PHASE_FORWARD] = 'F', [PHASE_BACKWARD] = 'B', [PHASE_WEIGHT] = 'W', 0};

enum phase grid_phase(char letter) {
    const char *at = letter ? strchr(letters, letter) : NULL;
    return at ? (enum phase)(at - letters) : PHASES;
}

/* F2, B2, W2 or F2@3 */
static int read_cell(struct reader *r, struct grid_line *line, int coordinate) {
    struct cell cell = {.phase = grid_phase(*r->at), .chunk = coordinate};
    if (cell.phase == PHASES) return fail(r, r->line, "a cell is F, B or W with a micro-batch, such as F0 or B2@1");
    r->at++;
    cell.micro = take_number(r, MOST_MICRO_BATCHES);
    if (cell.micro < 0) return fail(r, r->line, "F, B and W are followed by the number of a micro-batch");
    if (r->at < r->end && *r->at == '@') {
        r->at++;
        cell.chunk = take_number(r, MOST_STAGES);
        if (cell.chunk < 0) return fail(r, r->line, "@ is followed by the number of a stage");
    }
    if (!ends_cell(r)) return fail(r, r->line, "cells are separated by blanks");
    if (!place_stage(r, cell.chunk, coordinate))
        return fail(
            r, r->line,
            arena_printf(r->arena, "stage %d is on line %d, too", cell.chunk, r->numbers.at[r->home.at[cell.chunk]]));
    VEC_PUSH(r->arena, &line->cells, cell);
    r->grid->splits = r->grid->splits || cell.phase == PHASE_WEIGHT;
    r->cells++;
    return 0;
}

/* Reads a line of the file; one with cells is the next line of the grid. */
static int read_line(struct reader *r) {
    struct grid_line line = {0};
    bool any = false;
    for (; r->at < r->end && *r->at != '\n' && *r->at != '#';) {
        if (is_blank(*r->at) || *r->at == '.') {
            any = any || *r->at == '.';
            r->at++;
            continue;
        }
        any = true;
        if (read_cell(r, &line, r->lines.n) < 0) return -1;
    }
    while (r->at < r->end && *r->at != '\n') r->at++;
    if (any && !line.cells.n) return fail(r, r->line, "the line has no cell");
    if (!any) return 0;
    VEC_PUSH(r->arena, &r->numbers, r->line);
    VEC_PUSH(r->arena, &r->lines, line);
    return r->lines.n <= MOST_LINES ? 0 : fail(r, r->line, "too many lines");
}

/* A later stage on the line that has not computed the W cell of the micro-batch; -1: none. */
static int find_later_stage(const struct reader *r, int l, const struct cell *cell, const unsigned char *done) {
    for (int c = cell->chunk + 1; c < r->home.n; c++)
        if (r->home.at[c] == l && done[c * r->grid->micro_batches + cell->micro] <= PHASE_WEIGHT) return c;
    return -1;
}

/* done: by stage and micro-batch, the next phase. The stages of a line have values in common, which are kept until the
 * micro-batch's W of the first of them. */
static int check_line(const struct reader *r, int l, unsigned char *done) {
    const struct grid *grid = r->grid;
    VEC_EACH(&r->lines.at[l].cells, i, const struct cell *cell) {
        unsigned char *next = &done[cell->chunk * grid->micro_batches + cell->micro];
        const int later = cell->phase == PHASE_WEIGHT ? find_later_stage(r, l, cell, done) : -1;
        const char *what = arena_printf(r->arena, "%c%d of stage %d", letters[cell->phase], cell->micro, cell->chunk);
        if (*next != cell->phase)
            return fail(r, r->numbers.at[l],
                        *next > (int)cell->phase
                            ? arena_printf(r->arena, "%s occurs twice", what)
                            : arena_printf(r->arena, "%s comes before its %c", what, letters[*next]));
        if (later >= 0)
            return fail(r, r->numbers.at[l], arena_printf(r->arena, "%s comes before that of stage %d", what, later));
        ++*next;
    }
    return 0;
}

/* Every stage has all cells of every micro-batch. The numbers of cells are compared first, so that the table of
 * cells is not larger than the file. */
static int check_cells(const struct reader *r) {
    const struct grid *grid = r->grid;
    const int64_t each = (int64_t)grid->micro_batches * (grid->splits ? 3 : 2);
    for (int c = 0; c < r->home.n; c++)
        if (r->home.at[c] < 0)
            return fail(r, r->line, arena_printf(r->arena, "no line has stage %d of %d", c, r->home.n));
    if (r->home.n * each != r->cells)
        return fail(r, r->line,
                    arena_printf(r->arena, "%d cell(s), but %d stage(s) with %d micro-batch(es) have %lld", r->cells,
                                 r->home.n, grid->micro_batches, (long long)(r->home.n * each)));
    unsigned char *done = ARENA_ARRAY(r->arena, unsigned char, r->cells);
    for (int l = 0; l < r->lines.n; l++)
        if (check_line(r, l, done) < 0) return -1;
    return 0;
}

/* Sets grid->chunks; stage c on line c needs none. */
static int find_chunks(const struct reader *r) {
    bool straight = r->home.n == r->lines.n;
    int *count = ARENA_ARRAY(r->arena, int, r->lines.n + 1);
    for (int c = 0; c < r->home.n; c++) {
        straight = straight && r->home.at[c] == c;
        if (++count[r->home.at[c]] > RT_MAX_CHUNKS)
            return fail(r, r->numbers.at[r->home.at[c]],
                        arena_printf(r->arena, "the line has more than %d stages", RT_MAX_CHUNKS));
    }
    r->grid->chunks = straight ? (struct chunks){0} : (struct chunks){r->home.n, r->home.at};
    return 0;
}

int grid_parse(struct grid *grid, const char *text, size_t bytes, const char *file, struct arena *arena,
               struct diags *diags) {
    struct reader r = {.grid = grid, .arena = arena, .diags = diags, .file = file, .at = text, .end = text + bytes};
    *grid = (struct grid){0};
    while (r.at < r.end) {
        r.line++;
        if (read_line(&r) < 0) return -1;
        if (r.at < r.end) r.at++;
    }
    if (!r.lines.n) return fail(&r, r.line, "the file has no cell");
    grid->coordinates = r.lines.n;
    grid->lines = r.lines.at;
    for (int l = 0; l < r.lines.n; l++)
        for (int i = 0; i < r.lines.at[l].cells.n; i++)
            if (r.lines.at[l].cells.at[i].micro >= grid->micro_batches)
                grid->micro_batches = r.lines.at[l].cells.at[i].micro + 1;
    return check_cells(&r) < 0 ? -1 : find_chunks(&r);
}

const char *grid_text(const struct grid *grid, struct arena *arena) {
    struct strbuf out = {.arena = arena};
    for (int l = 0; l < grid->coordinates; l++) {
        VEC_EACH(&grid->lines[l].cells, i, const struct cell *cell) {
            strbuf_printf(&out, "%s%c%d", i ? " " : "", letters[cell->phase], cell->micro);
            if (cell->chunk != l) strbuf_printf(&out, "@%d", cell->chunk);
        }
        strbuf_putc(&out, '\n');
    }
    return strbuf_text(&out);
}
