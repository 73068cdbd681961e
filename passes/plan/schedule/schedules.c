#include "passes/plan/schedule/schedules.h"

#include <string.h>

#include "ir/base/str.h"
#include "passes/plan/schedule/schedule_grid.h"
#include "passes/train/named_options.h"

const char *const schedule_default = "1f1b", *const schedule_of_inference = "inference";

/* The schedule of a pipeline with one chunk at each coordinate. */
static void put(struct column *column, enum phase phase, int micro) {
    VEC_PUSH(column->arena, &column->cells, (struct cell){phase, micro, column->coordinate});
}

/* The last forward segment is repeated for further micro-batches. Before it, a send of the micro-batch that had its
 * slot is waited for, so there must be more micro-batches than slots, of which there are two. */
static void fill_inference(struct column *column) {
    for (int m = 0; m < column->micro_batches; m++) put(column, PHASE_FORWARD, m);
    if (column->micro_batches < 2 * column->coordinates) return;
    column->repeat_end = column->cells.n;
    column->repeat_first = column->cells.n - 1;
}

static void fill_gpipe(struct column *column) {
    for (int m = 0; m < column->micro_batches; m++) put(column, PHASE_FORWARD, m);
    for (int m = 0; m < column->micro_batches; m++) put(column, PHASE_BACKWARD, m);
}

/* A stage begins with as many forward segments as there are stages after it. The last pair of a forward and a backward
 * segment is repeated for further micro-batches: with two micro-batches per stage, it refers to earlier ones, such as
 * those whose sends it waits for, by differences that are right for all further ones. */
static void fill_1f1b(struct column *column) {
    const int after = column->coordinates - 1 - column->coordinate, n = column->micro_batches;
    const int warm_up = after < n ? after : n;
    for (int m = 0; m < warm_up; m++) put(column, PHASE_FORWARD, m);
    for (int m = warm_up; m < n; m++) {
        column->repeat_first = column->cells.n;
        put(column, PHASE_FORWARD, m);
        put(column, PHASE_BACKWARD, m - warm_up);
        column->repeat_end = column->cells.n;
    }
    for (int m = n - warm_up; m < n; m++) put(column, PHASE_BACKWARD, m);
    if (n < 2 * column->coordinates) column->repeat_first = column->repeat_end = 0;
}

/* The interleaved schedule of Narayanan et al. ("Efficient Large-Scale Language Model Training on GPU Clusters Using
 * Megatron-LM", SC 2021). Micro-batches come in groups of as many as there are coordinates: a coordinate computes the
 * first chunk of a group, then its next chunk, and so on. In the backward phase the last chunk comes first. The last
 * group may be smaller. `i` counts the segments of a phase at the coordinate. */
static struct cell interleaved_cell(const struct column *column, enum phase phase, int i) {
    const int p = column->coordinates, v = column->chunks.n / p;
    const int group = i / (p * v), first = group * p, left = column->micro_batches - first;
    const int size = left < p ? left : p, within = i - first * v;
    const int turn = within / size, number = phase == PHASE_FORWARD ? turn : v - 1 - turn;
    return (struct cell){phase, first + within % size, number * p + column->coordinate};
}

static void fill_interleaved(struct column *column) {
    const int p = column->coordinates, v = column->chunks.n / p, total = column->micro_batches * v;
    const int before = 2 * (p - 1 - column->coordinate) + (v - 1) * p, warm_up = before < total ? before : total;
    for (int i = 0; i < total + warm_up; i++) {
        if (i < total) VEC_PUSH(column->arena, &column->cells, interleaved_cell(column, PHASE_FORWARD, i));
        if (i >= warm_up)
            VEC_PUSH(column->arena, &column->cells, interleaved_cell(column, PHASE_BACKWARD, i - warm_up));
    }
}

/* The schedules that Qi et al. wrote by hand ("Zero Bubble Pipeline Parallelism", ICLR 2024, figure 3): `ahead` forward
 * segments, then backward and forward segments in turn. The weight segment of a micro-batch comes `delay` backward
 * segments after its own. */
static void fill_zero_bubble(struct column *column, int ahead, int delay) {
    const int n = column->micro_batches, warm_up = ahead < n ? ahead : n;
    for (int m = 0; m < warm_up; m++) put(column, PHASE_FORWARD, m);
    for (int m = 0; m < n; m++) {
        put(column, PHASE_BACKWARD, m);
        if (m >= delay) put(column, PHASE_WEIGHT, m - delay);
        if (m + warm_up < n) put(column, PHASE_FORWARD, m + warm_up);
    }
    for (int m = n > delay ? n - delay : 0; m < n; m++) put(column, PHASE_WEIGHT, m);
}

/* Every coordinate holds as many micro-batches as the first one of 1F1B. */
static void fill_zb_h1(struct column *column) {
    fill_zero_bubble(column, column->coordinates - column->coordinate, column->coordinate);
}

/* The first backward segment of the first coordinate finds forward segments to fill the time before it. */
static void fill_zb_h2(struct column *column) {
    fill_zero_bubble(column, 2 * (column->coordinates - column->coordinate) - 1, 2 * column->coordinate);
}

/* The cells of a coordinate whose two chunks are placed in the shape of a V. done: segments of each phase so far, of
 * the chunk on the way down [0] and on the way up [1]. */
struct v_column {
    struct column *column;
    int done[2][PHASE_WEIGHT + 1];
};

/* Lists the chunk's next segment of each phase in the text, which has a letter for each (grid_phase), `times` times.
 * Micro-batches that the step does not have are left out. */
static void put_v(struct v_column *v, int up, const char *phases, int times) {
    struct column *column = v->column;
    const int chunk = up ? 2 * column->coordinates - 1 - column->coordinate : column->coordinate;
    for (int i = 0; i < times; i++)
        for (const char *c = phases; *c; c++) {
            const enum phase phase = grid_phase(*c);
            const struct cell cell = {phase, v->done[up][phase]++, chunk};
            if (cell.micro < column->micro_batches) VEC_PUSH(column->arena, &column->cells, cell);
        }
}

/* ZB-V (Qi et al., section 6): as in ScheduleZBVZeroBubble of PyTorch. The pattern needs at least 2 p - 1
 * micro-batches; of smaller steps, it is that pattern without the micro-batches that they lack. */
static void fill_zb_v(struct column *column) {
    const int p = column->coordinates, r = column->coordinate, least = 2 * p - 1;
    const int n = column->micro_batches > least ? column->micro_batches : least;
    struct v_column v = {.column = column};
    put_v(&v, 0, "F", 2 * (p - r) - 1);
    for (int i = 0; i < r; i++) put_v(&v, 1, "F", 1), put_v(&v, 0, "F", 1);
    put_v(&v, 1, "FBW", p - r);
    while (v.done[1][PHASE_FORWARD] < n) {
        put_v(&v, 0, v.done[0][PHASE_FORWARD] < n ? "FBW" : "BW", 1);
        put_v(&v, 1, "FBW", 1);
    }
    for (int i = 0; i < r; i++) put_v(&v, 0, "B", 1), put_v(&v, 1, "B", 1);
    put_v(&v, 0, "BW", p - r);
    put_v(&v, 1, "W", n - v.done[1][PHASE_WEIGHT]);
    put_v(&v, 0, "W", n - v.done[0][PHASE_WEIGHT]);
}

/* Note [Order of Chimera]
 * Chimera (Li and Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines", SC
 * 2021) has two pipelines of p stages on p ranks. One goes from the first rank to the last, the other from the last to
 * the first, and each has half of the micro-batches. Ranks r and p - 1 - r have the same two stages, r and p - 1 - r,
 * and sum their gradients. At the time when rank p / 2 - 1 could send a micro-batch to rank p / 2, that one has a
 * micro-batch of the other pipeline for it, which is to go through the same stages. Here both keep theirs, as in Hanayo
 * (Liu et al., SC 2023): the ranks compute the same segments at the same times, without these transfers. So the two
 * pipelines are two scale units of p / 2 ranks, in each of which a micro-batch goes down and up again, in the shape of
 * a V: only gradients are exchanged between them.
 *
 * The order of segments is found by executing such a unit with forward and backward segments of one unit of time each,
 * as the paper draws it. Whenever a coordinate is free it takes a backward segment if it can, of the earliest
 * micro-batch, else a forward segment; of its two chunks, the later one comes first. With n micro-batches in both
 * pipelines, a multiple of p, ranks wait p - 2 units: the bubble is (p - 2) / (2 n + p - 2). This is the bubble ratio
 * of the paper, and so is the number of micro-batches that a rank keeps: p / 2 + 1 to p. */

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

static void fill_chimera(struct column *column) {
    struct execution e = {column->coordinates, column->micro_batches, 2 * column->coordinates, {0}};
    struct cell *cells = ARENA_ARRAY(column->arena, struct cell, e.coordinates);
    for (int phase = 0; phase <= PHASE_BACKWARD; phase++) e.done[phase] = ARENA_ARRAY(column->arena, int, e.chunks);
    while (e.done[PHASE_BACKWARD][0] < e.micro_batches) {
        advance(&e, cells);
        if (cells[column->coordinate].phase < PHASES)
            VEC_PUSH(column->arena, &column->cells, cells[column->coordinate]);
    }
}

static const struct schedule_kind kinds[] = {
#define SCHEDULE(...) {__VA_ARGS__},
#include "passes/plan/schedule/schedules.def"
#undef SCHEDULE
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct schedule_kind *find_kind(const char *name, size_t length) {
    for (int i = 0; i < KINDS; i++)
        if (strlen(kinds[i].name) == length && strncmp(kinds[i].name, name, length) == 0) return &kinds[i];
    return NULL;
}

const char *schedule_proposed(int i) {
    for (int k = 0; k < KINDS * SCHEDULE_PROPOSED; k++) {
        const char *text = kinds[k / SCHEDULE_PROPOSED].proposed[k % SCHEDULE_PROPOSED];
        if (text && i-- == 0) return text;
    }
    return NULL;
}

bool schedule_is_known(const char *text) {
    return strchr(text, '\n') || find_kind(text, strcspn(text, ":")) != NULL;
}

static int report_unknown(const char *text, struct diags *diags) {
    struct strbuf names = {.arena = diags->arena};
    for (int i = 0; i < KINDS; i++) strbuf_printf(&names, "%s%s", i ? ", " : "", kinds[i].name);
    return diag_error(diags, 202, EXIT_USAGE, "--schedule", "unknown schedule %s; the schedules are %s",
                      diag_quote(diags, text), strbuf_text(&names));
}

static int choose_grid(struct schedule_choice *choice, const char *text, struct diags *diags) {
    struct grid *grid = ARENA_NEW(diags->arena, struct grid);
    *choice = (struct schedule_choice){.grid = grid};
    return grid_parse(grid, text, strlen(text), "schedule", diags->arena, diags);
}

int schedule_choose(struct schedule_choice *choice, const char *text, struct diags *diags) {
    const char *name = text ? text : schedule_default;
    const size_t length = strcspn(name, ":");
    const struct schedule_kind *kind = find_kind(name, length);
    struct named_options options;
    if (strchr(name, '\n')) return choose_grid(choice, name, diags);
    if (!kind) return report_unknown(name, diags);
    *choice = (struct schedule_choice){.kind = kind};
    named_options_start(&options, "--schedule", kind->name, kind->options ? kind->options : "", diags->arena);
    enum { LEAST_STAGES = 2 }; /* with one on each rank, interleaved is 1f1b */
    if (named_options_set_all(&options, name[length] ? name + length + 1 : NULL, LEAST_STAGES, diags) < 0) return -1;
    const double chunks = named_options_value(&options, "v", kind->is_v ? 2 : 1);
    choice->chunks = (int)chunks;
    if (choice->chunks == chunks) return 0;
    return diag_error(diags, 205, EXIT_USAGE, "--schedule", "v is a number of stages: a whole number");
}

static int check_grid(const struct grid *grid, int coordinates, int micro_batches, struct diags *diags) {
    if (grid->coordinates != coordinates)
        return diag_error(diags, 205, EXIT_USAGE, "--schedule",
                          "the schedule has %d line(s), but the pipeline axis of the mesh has size %d",
                          grid->coordinates, coordinates);
    if (grid->micro_batches == micro_batches) return 0;
    return diag_error(diags, 205, EXIT_USAGE, "--accumulate", "%d, but the schedule has %d micro-batch(es)",
                      micro_batches, grid->micro_batches);
}

bool schedule_splits(const struct schedule_choice *choice) {
    return choice->grid ? choice->grid->splits : choice->kind->splits;
}

int schedule_check_sizes(const struct schedule_choice *choice, int coordinates, int micro_batches,
                         struct diags *diags) {
    if (choice->grid) return check_grid(choice->grid, coordinates, micro_batches, diags);
    if (choice->kind->fill != fill_interleaved || coordinates == 1 || micro_batches % coordinates == 0) return 0;
    return diag_error(diags, 205, EXIT_USAGE, "--accumulate",
                      "the interleaved schedule of %d rank(s) needs a multiple of %d micro-batch(es); there %s %d",
                      coordinates, coordinates, micro_batches == 1 ? "is" : "are", micro_batches);
}

int schedule_chunk(const struct schedule_choice *choice, int coordinates, int coordinate, int i) {
    return i * coordinates + (choice->kind->is_v && i % 2 ? coordinates - 1 - coordinate : coordinate);
}

struct chunks schedule_chunks_of(const struct schedule_choice *choice, int coordinates, struct arena *arena) {
    const int n = choice->chunks * coordinates;
    int *home = ARENA_ARRAY(arena, int, n + 1);
    if (choice->grid) return choice->grid->chunks;
    if (choice->chunks == 1 || coordinates == 1) return (struct chunks){0};
    for (int c = 0; c < coordinates; c++)
        for (int i = 0; i < choice->chunks; i++) home[schedule_chunk(choice, coordinates, c, i)] = c;
    return (struct chunks){n, home};
}

void schedule_fill(const struct schedule_choice *choice, struct column *column) {
    const struct grid_line *line = choice->grid ? &choice->grid->lines[column->coordinate] : NULL;
    if (choice->kind) choice->kind->fill(column);
    for (int i = 0; line && i < line->cells.n; i++) VEC_PUSH(column->arena, &column->cells, line->cells.at[i]);
}

double schedule_kept(const struct schedule_choice *choice) {
    return choice->kind && choice->kind->kept > 0 ? choice->kind->kept : 1.2;
}

int schedule_listed(const struct schedule_choice *choice, int coordinates, int micro_batches) {
    const bool repeats = choice->kind && (choice->kind->fill == fill_1f1b || choice->kind->infers);
    return repeats && micro_batches > 2 * coordinates ? 2 * coordinates : micro_batches;
}
