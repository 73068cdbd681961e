/* Generates tokens: the loop of Note [Generation]. */
#include "program/generate.h"

#include "base/number/checked.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that are generated where nobody says how many. */
enum { TOKENS_BY_DEFAULT = 128 };

struct generator {
    struct rank *self;
    struct rt *rt;
    const struct main_options *options;
    struct generation generation;
    struct feeder *feeder;
    struct report *report; /* of rank 0; NULL: none */
    struct rt_sampling sampling;
    struct grid grid;
    int64_t column; /* the first that is not computed yet */
    int64_t most;   /* new tokens of a row */
    int64_t *next;  /* per row: of the step; INT64_MIN: none. It and `shared` have an element more, in front */
    int64_t *shared;
    int64_t *made; /* per row: new tokens so far */
    bool *ended;   /* per row */
    /* of rank 0: */
    int64_t vocabulary;
    float *scores, *scratch;
    unsigned char *row; /* logits as the program has them */
    unsigned char *all; /* the output, where it is not kept in the arena; else NULL */
    uint64_t *seen;     /* per row: rt_seen_words */
    bool *answers;
    void **outputs;
    struct spent spent;
    bool stopping;
    double longest; /* of a step, ms */
};

static int fail_memory(struct generator *g) {
    return fail_with(g->self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

static int broadcast(struct generator *g, void *data, size_t bytes) {
    return check_comm(g->self, g->rt, g->rt->comm, g->rt->comm->driver->broadcast(g->rt->comm, data, bytes, 0));
}

/* Gives all ranks the prompts that rank 0 has read. */
static int share_prompts(struct generator *g, struct grid *prompts) {
    int64_t sizes[] = {prompts->rows, prompts->width};
    RT_TRY(broadcast(g, sizes, sizeof sizes));
    if (!g->self->first) {
        *prompts = (struct grid){.rows = sizes[0], .given = sizes[0], .width = sizes[1], .room = sizes[1]};
        prompts->ids = calloc((size_t)(sizes[0] * sizes[1]), sizeof *prompts->ids);
        prompts->lengths = calloc((size_t)sizes[0], sizeof *prompts->lengths);
        if (!prompts->ids || !prompts->lengths) return fail_memory(g);
    }
    RT_TRY(broadcast(g, prompts->lengths, (size_t)prompts->rows * sizeof *prompts->lengths));
    return broadcast(g, prompts->ids, (size_t)(prompts->rows * prompts->room) * sizeof *prompts->ids);
}

/* The prompt of a row; rows that only fill the batch have that of the first. */
static void place_prompt(struct generator *g, const struct grid *prompts, int64_t row) {
    struct grid *grid = &g->grid;
    const int64_t from = row < prompts->rows ? row : 0, length = prompts->lengths[from];
    int64_t *ids = grid->ids + row * grid->room;
    for (int64_t c = 0; c < grid->room; c++) ids[c] = g->generation.pad;
    memcpy(ids + (g->generation.pads_right ? 0 : grid->width - length), prompts->ids + from * prompts->room,
           (size_t)length * sizeof *ids);
    grid->lengths[row] = length;
    g->ended[row] = row >= prompts->rows;
}

/* The tokens that a row may get, from --max-new-tokens and what the caches hold. */
static int find_most(struct generator *g, int64_t width) {
    const int64_t capacity = rt_state_capacity(g->rt);
    const int64_t room = capacity == INT64_MAX ? INT64_MAX : capacity - width + 1;
    g->most = g->options->max_new_tokens ? g->options->max_new_tokens : TOKENS_BY_DEFAULT;
    if (!g->options->max_new_tokens && room >= 1 && room < g->most) g->most = room;
    if (g->most <= room) return RT_OK;
    fail_with(g->self, EXIT_LIMIT, RT_CODE_FULL,
              "%" PRId64 " token(s) of the prompt and %" PRId64 " new ones need %" PRId64
              " places in the caches, which have %" PRId64,
              width, g->most, width + g->most - 1, capacity);
    failure_help(&g->self->failure, "compile the model with a larger bound, or take a smaller --max-new-tokens");
    return g->self->status;
}

static int make_grid(struct generator *g, const struct grid *prompts) {
    struct grid *grid = &g->grid;
    int64_t count;
    RT_TRY(find_most(g, prompts->width));
    *grid = (struct grid){.given = prompts->rows, .width = prompts->width, .room = prompts->width + g->most};
    grid->rows = feeder_rows(g->feeder, prompts->rows);
    if (grid->rows < 0) return g->self->status;
    if (!rt_mul(grid->rows, grid->room, &count)) return fail_memory(g);
    grid->ids = calloc((size_t)count, sizeof *grid->ids);
    grid->lengths = calloc((size_t)grid->rows, sizeof *grid->lengths);
    g->next = calloc((size_t)grid->rows + 1, sizeof *g->next);
    g->shared = calloc((size_t)grid->rows + 1, sizeof *g->shared);
    g->made = calloc((size_t)grid->rows, sizeof *g->made);
    g->ended = calloc((size_t)grid->rows, sizeof *g->ended);
    if (!grid->ids || !grid->lengths || !g->next || !g->shared || !g->made || !g->ended) return fail_memory(g);
    for (int64_t row = 0; row < grid->rows; row++) place_prompt(g, prompts, row);
    return RT_OK;
}

static int open_prompts(struct generator *g) {
    struct grid prompts = {0};
    int exit = g->self->first ? prompts_read(&prompts, g->options->generate, &g->self->failure) : EXIT_OK;
    int status = exit ? (g->self->status = rt_status_of_exit(exit)) : share_prompts(g, &prompts);
    if (!status) status = make_grid(g, &prompts);
    free(prompts.ids);
    free(prompts.lengths);
    return status;
}

static const struct rt_port *logits_port(const struct generator *g) {
    return &g->rt->program->outputs[g->generation.logits];
}

/* Rank 0 has room for the scores of a row. */
static int open_logits(struct generator *g) {
    const struct rt_port *port = logits_port(g);
    const struct rt_port whole = rt_port_at(port, g->rt->internal->most_extents);
    int64_t count, bytes;
    if (port->ndim < 2 || port->ndim > 3 || !rt_dtype_is_float(port->dtype))
        return fail_with(g->self, EXIT_UNSUPPORTED, RT_CODE_INPUT,
                         "output '%s' has no logits of shape [batch, tokens, vocabulary]",
                         rt_quote_text(g->self->job->manifest.outputs[g->generation.logits]).text);
    g->vocabulary = whole.dims[port->ndim - 1];
    if (!g->self->first) return RT_OK;
    if (!rt_product(whole.dims, whole.ndim, &count) || !rt_mul(count, (int64_t)rt_dtype_bytes(port->dtype), &bytes))
        return fail_memory(g);
    g->scores = calloc((size_t)g->vocabulary, sizeof *g->scores);
    g->scratch = calloc((size_t)g->vocabulary, sizeof *g->scratch);
    g->row = calloc((size_t)g->vocabulary, rt_dtype_bytes(port->dtype));
    g->seen = calloc((size_t)(rt_seen_words(g->vocabulary) * g->grid.rows), sizeof *g->seen);
    g->answers = calloc((size_t)g->grid.rows, sizeof *g->answers);
    if (!rt_keeps_outputs(g->rt)) g->outputs[g->generation.logits] = g->all = malloc((size_t)bytes + 1);
    const bool room = rt_keeps_outputs(g->rt) || g->all;
    return g->scores && g->scratch && g->row && g->seen && g->answers && room ? RT_OK : fail_memory(g);
}

/* Marks the tokens of the prompts, for the repetition penalty. */
static void see_prompts(struct generator *g) {
    const struct grid *grid = &g->grid;
    for (int64_t row = 0; g->self->first && row < grid->given; row++)
        for (int64_t c = 0; c < grid->width; c++) {
            const int64_t id = grid->ids[row * grid->room + c];
            if (grid_has(grid, g->generation.pads_right, row, c) && id < g->vocabulary)
                rt_seen_add(g->seen + row * rt_seen_words(g->vocabulary), id);
        }
}

/* Takes the scores of the step's column `column` of a row to g->scores. The output may have the last column alone. */
static int take_scores(struct generator *g, int64_t row, int64_t column, struct window window) {
    const struct rt_port *port = logits_port(g);
    int64_t dims[RT_MAX_NDIM];
    rt_port_extents(g->rt, port, dims);
    const int64_t columns = port->ndim == 3 ? dims[1] : 1;
    if (columns != window.count && column + 1 != window.count)
        return fail_with(g->self, EXIT_UNSUPPORTED, RT_CODE_INPUT,
                         "the model computes logits for the last token alone, but the prompts have different lengths: "
                         "give them one by one");
    const size_t bytes = (size_t)g->vocabulary * rt_dtype_bytes(port->dtype);
    const size_t at = (size_t)(row * columns + (columns == window.count ? column : columns - 1)) * bytes;
    if (g->all) {
        memcpy(g->row, g->all + at, bytes);
    } else {
        const unsigned char *output = rt_output(g->rt, g->generation.logits);
        int status = g->rt->program->device->get(g->rt, g->row, output + at, bytes);
        if (!status) status = g->rt->program->device->finish(g->rt);
        RT_TRY(check_rank(g->self, g->rt, status));
    }
    rt_convert(g->scores, RT_F32, g->row, port->dtype, (size_t)g->vocabulary);
    return RT_OK;
}

static void suppress(struct generator *g, const struct id_list *list) {
    for (int64_t i = 0; i < list->n; i++)
        if (list->at[i] >= 0 && list->at[i] < g->vocabulary) g->scores[list->at[i]] = -INFINITY;
}

static int fail_logits(struct generator *g, int64_t row) {
    return fail_with(g->self, EXIT_RANK, RT_CODE_LOGITS,
                     "logits of row %" PRId64 " for new token %" PRId64 " are NaN, or all are -inf", row,
                     g->made[row] + 1);
}

static int choose(struct generator *g, int64_t row, int64_t column, struct window window) {
    uint64_t *seen = g->seen + row * rt_seen_words(g->vocabulary);
    RT_TRY(take_scores(g, row, column, window));
    rt_sample_penalise(g->scores, g->vocabulary, seen, g->sampling.repetition_penalty);
    suppress(g, &g->generation.suppressed);
    if (!g->made[row]) suppress(g, &g->generation.suppressed_first);
    const int64_t id = rt_sample(&g->sampling, g->scores, g->scratch, g->vocabulary, (uint64_t)row,
                                 (uint64_t)(g->grid.lengths[row] + g->made[row]));
    if (id < 0) return fail_logits(g, row);
    rt_seen_add(seen, id);
    g->next[row + 1] = id;
    return RT_OK;
}

/* Chooses the tokens of rows whose last token is among the step's. */
static int choose_all(struct generator *g, struct window window) {
    const struct grid *grid = &g->grid;
    for (int64_t row = 0; row < grid->given && g->self->first; row++) {
        const int64_t last = g->generation.pads_right && window.first < grid->width ? grid->lengths[row] - 1
                                                                                    : window.first + window.count - 1;
        const bool behind = window.first + window.count < grid->width && !g->generation.pads_right;
        if (g->ended[row] || behind || last < window.first || last >= window.first + window.count) continue;
        RT_TRY(choose(g, row, last - window.first, window));
    }
    return RT_OK;
}

static bool is_end(const struct generator *g, int64_t id) {
    for (int64_t i = 0; i < g->generation.ends.n; i++)
        if (g->generation.ends.at[i] == id) return true;
    return false;
}

static int64_t tokens_of(const int64_t *next, int64_t rows) {
    int64_t n = 0;
    for (int64_t row = 0; row < rows; row++) n += next[row] >= 0;
    return n;
}

/* Rank 0 tells the tokens, as 2 * id, and 1 more where the row ends. */
static int tell(struct generator *g) {
    const int64_t rows = g->grid.given;
    int64_t *ids = g->next + 1;
    if (!g->self->first || !tokens_of(ids, rows)) return RT_OK;
    for (int64_t row = 0; row < rows; row++) g->answers[row] = false;
    if (g->report && report_step(g->report, rows, ids, g->options->ask, g->answers, &g->self->failure))
        return g->self->status = rt_status_of_exit(g->self->failure.exit);
    for (int64_t row = 0; row < rows; row++)
        if (ids[row] >= 0)
            ids[row] = 2 * ids[row] + (g->answers[row] || is_end(g, ids[row]) || g->made[row] + 1 == g->most);
    return RT_OK;
}

/* Gives all ranks the tokens of rank 0, and the request to stop that any rank has. */
static int agree(struct generator *g) {
    struct rt_comm *comm = g->rt->comm;
    g->next[0] = stop_requested();
    RT_TRY(tell(g));
    RT_TRY(check_comm(g->self, g->rt, comm,
                      comm->driver->all_reduce(comm, g->shared, g->next, (size_t)g->grid.given + 1, RT_I64, RT_MAX)));
    g->stopping = g->shared[0] > 0;
    return RT_OK;
}

/* Adds the tokens to the rows, in the first column that is free for all. */
static void add_tokens(struct generator *g) {
    struct grid *grid = &g->grid;
    for (int64_t row = 0; row < grid->given; row++) {
        const int64_t told = g->shared[row + 1];
        if (told < 0) continue;
        grid->ids[row * grid->room + grid->width + g->made[row]++] = told / 2;
        g->ended[row] = told & 1;
    }
}

static bool all_ended(const struct generator *g) {
    for (int64_t row = 0; row < g->grid.given; row++)
        if (!g->ended[row]) return false;
    return true;
}

static int count_step(struct generator *g, bool in_prompt, double ms) {
    if (ms > g->longest) g->longest = ms;
    *(in_prompt ? &g->spent.prompt_ms : &g->spent.ms) += ms;
    if (in_prompt) return RT_OK;
    g->spent.tokens += tokens_of(g->shared + 1, g->grid.given);
    return g->self->first ? record_step(g->self, ms, 0) : RT_OK;
}

/* Computes the columns of a window. */
static int compute(struct generator *g, struct window window, int64_t step) {
    const void *const *inputs;
    const double start = now_ms();
    stop_allow(g->self->job, 3 * g->longest);
    RT_TRY(feeder_fill(g->feeder, &g->grid, window, &inputs));
    trace_begin_step(g->self->trace, step);
    dump_begin_step(g->self->dump, step);
    RT_TRY(check_rank(g->self, g->rt, rt_infer_step(g->rt, inputs, g->outputs)));
    RT_TRY(trace_end_step(g->self->trace));
    RT_TRY(dump_end_step(g->self->dump));
    for (int64_t row = 0; row <= g->grid.rows; row++) g->next[row] = INT64_MIN;
    RT_TRY(choose_all(g, window));
    RT_TRY(agree(g));
    add_tokens(g);
    return count_step(g, window.first < g->grid.width, now_ms() - start);
}

/* True if the device can write the rest by itself: every row has its first token, no input comes from a file, and
 * nothing observes what a step computes. */
static bool decodes_alone(const struct generator *g, struct rt_fed *fed) {
    const struct rt_program *program = g->rt->program;
    return program->device->open_decoding && g->column == g->grid.width && rt_state_length(g->rt) == g->column &&
           !program->stages && program->micro_batches <= 1 && !program->training && rt_keeps_outputs(g->rt) &&
           rt_output(g->rt, g->generation.logits) && !rt_is_watched(g->rt) && feeder_describe(g->feeder, fed) &&
           feeder_count(g->feeder, 1) == 1;
}

/* Suppressed tokens of the vocabulary, their number, and the tokens that each row has. */
static int64_t keep_known(const struct generator *g, int64_t *suppressed, uint64_t *seen) {
    const struct grid *grid = &g->grid;
    const struct id_list *list = &g->generation.suppressed;
    int64_t n = 0;
    for (int64_t i = 0; i < list->n; i++)
        if (list->at[i] >= 0 && list->at[i] < g->vocabulary) suppressed[n++] = list->at[i];
    for (int64_t row = 0; row < grid->rows; row++)
        for (int64_t c = 0; c <= grid->width; c++) {
            const int64_t id = grid->ids[row * grid->room + c];
            if (grid_has(grid, g->generation.pads_right, row, c) && id >= 0 && id < g->vocabulary)
                rt_seen_add(seen + row * rt_seen_words(g->vocabulary), id);
        }
    return n;
}

static int open_decoding(struct generator *g, const struct rt_fed *fed) {
    const struct grid *grid = &g->grid;
    int64_t *suppressed = calloc((size_t)g->generation.suppressed.n + 1, sizeof *suppressed);
    uint64_t *seen = calloc((size_t)(rt_seen_words(g->vocabulary) * grid->rows), sizeof *seen);
    struct rt_decoding decoding = {.sampling = g->sampling,
                                   .rows = grid->rows,
                                   .vocabulary = g->vocabulary,
                                   .width = grid->width,
                                   .pads_right = g->generation.pads_right,
                                   .logits = g->generation.logits,
                                   .fed = fed,
                                   .lengths = grid->lengths,
                                   .next = g->next,
                                   .seen = seen,
                                   .suppressed = suppressed};
    int status = suppressed && seen ? RT_OK : fail_memory(g);
    for (int64_t row = 0; row < grid->rows; row++) g->next[row] = grid->ids[row * grid->room + grid->width];
    if (!status) {
        decoding.nsuppressed = keep_known(g, suppressed, seen);
        status = g->rt->program->device->open_decoding(g->rt, &decoding);
        check_rank(g->self, g->rt, status);
    }
    free(suppressed);
    free(seen);
    return status;
}

/* Begins the step of a column. */
static int step_ahead(struct generator *g, int64_t column) {
    RT_TRY(feeder_set_sizes(g->feeder, &g->grid, (struct window){column, 1}));
    return check_rank(g->self, g->rt, rt_infer_ahead(g->rt));
}

/* Takes the tokens of the oldest step that was begun, to which all ranks agree. */
static int take_step(struct generator *g) {
    int64_t *ids = g->next + 1;
    RT_TRY(check_rank(g->self, g->rt, g->rt->program->device->take_tokens(g->rt, ids)));
    for (int64_t row = 0; row < g->grid.rows; row++) {
        if (row >= g->grid.given || g->ended[row] || !g->self->first)
            ids[row] = INT64_MIN;
        else if (ids[row] < 0)
            return fail_logits(g, row);
    }
    RT_TRY(agree(g));
    add_tokens(g);
    return RT_OK;
}

/* Note [Ahead]
 * A device that fills a step's inputs from the tokens of the step before, and chooses the next ones, need not wait for
 * the host. The host begins a step before it takes the tokens of the one before. So it finds a step late that all rows
 * have ended, or that the run is to stop; the step that was begun meanwhile adds a row to the caches that nobody
 * reads. */
static int write_ahead(struct generator *g) {
    const int64_t end = g->grid.width + g->most - 1; /* the step before it chooses the last token */
    int64_t begun = g->column;
    int status = RT_OK;
    while (!status && !g->stopping && !all_ended(g)) {
        const double start = now_ms();
        stop_allow(g->self->job, 3 * g->longest);
        for (; !status && begun < end && begun < g->column + RT_AHEAD; begun++) status = step_ahead(g, begun);
        if (!status) status = take_step(g);
        if (!status) status = count_step(g, false, now_ms() - start);
        g->column++;
    }
    return status;
}

static int write_rest(struct generator *g, const struct rt_fed *fed) {
    RT_TRY(open_decoding(g, fed));
    const int status = write_ahead(g);
    g->rt->program->device->close_decoding(g->rt);
    return status;
}

static int write_steps(struct generator *g, struct rt_fed *fed) {
    for (int64_t step = 1; !g->stopping && !all_ended(g); step++) {
        if (decodes_alone(g, fed)) return write_rest(g, fed);
        const int64_t left = g->column < g->grid.width ? g->grid.width - g->column : 1;
        const int64_t count = feeder_count(g->feeder, left);
        if (count < 0) return g->self->status;
        if (count > left)
            return fail_with(g->self, EXIT_LIMIT, RT_CODE_INPUT,
                             "the program computes %" PRId64 " token(s) in each step, and none alone", count);
        RT_TRY(compute(g, (struct window){g->column, count}, step));
        g->column += count;
        if (g->column == g->grid.width && g->options->save_state)
            RT_TRY(prefix_save(g->self, g->rt, &g->grid, g->generation.pads_right, g->options->save_state));
    }
    return RT_OK;
}

static int generate(struct generator *g) {
    struct rt_fed *fed = calloc((size_t)g->rt->program->ninputs + 1, sizeof *fed);
    const int status = fed ? write_steps(g, fed) : fail_memory(g);
    free(fed);
    g->self->interrupted = !status && g->stopping && !all_ended(g);
    return status;
}

/* Gives the job the new tokens of all rows. */
static int keep_result(struct generator *g) {
    struct generated *result = &g->self->job->generated;
    const struct grid *grid = &g->grid;
    if (!g->self->first) return RT_OK;
    *result = (struct generated){.rows = grid->given, .spent = g->spent};
    result->made = calloc((size_t)grid->given, sizeof *result->made);
    result->ids = calloc((size_t)(grid->given * g->most), sizeof *result->ids);
    if (!result->made || !result->ids) return fail_memory(g);
    for (int64_t row = 0; row < grid->given; row++)
        if ((result->made[row] = g->made[row]) > result->width) result->width = g->made[row];
    for (int64_t row = 0; row < grid->given; row++)
        for (int64_t i = 0; i < result->width; i++)
            result->ids[row * result->width + i] =
                i < g->made[row] ? grid->ids[row * grid->room + grid->width + i] : g->generation.pad;
    return RT_OK;
}

static struct rt_sampling sampling_of(const struct main_options *options) {
    return (struct rt_sampling){.temperature = options->temperature,
                                .top_k = options->top_k,
                                .top_p = options->top_p,
                                .min_p = options->min_p,
                                .repetition_penalty = options->repetition_penalty,
                                .seed = (uint64_t)options->seed};
}

static int open_generator(struct generator *g) {
    int exit = generation_read(&g->generation, g->self->job, &g->self->failure);
    if (!exit && g->options->report && g->self->first)
        exit = report_open(&g->report, g->options->report, &g->self->failure);
    if (exit) return g->self->status = rt_status_of_exit(exit);
    RT_TRY(feeder_open(&g->feeder, g->self, g->rt, &g->generation));
    RT_TRY(open_prompts(g));
    g->outputs = calloc((size_t)g->rt->program->noutputs + 1, sizeof *g->outputs);
    if (!g->outputs) return fail_memory(g);
    RT_TRY(open_logits(g));
    see_prompts(g);
    for (int64_t row = 0; row < g->grid.given; row++) g->spent.prompt_tokens += g->grid.lengths[row];
    RT_TRY(check_rank(g->self, g->rt, rt_state_reset(g->rt)));
    if (!g->options->load_state) return RT_OK;
    return prefix_load(g->self, g->rt, &g->grid, g->generation.pads_right, g->options->load_state, &g->column);
}

static void close_generator(struct generator *g) {
    report_close(g->report, g->self->status ? NULL : &g->spent);
    feeder_free(g->feeder);
    generation_free(&g->generation);
    void *const memory[] = {g->grid.ids, g->grid.lengths, g->next, g->shared, g->made,    g->ended,  g->scores,
                            g->scratch,  g->row,          g->all,  g->seen,   g->answers, g->outputs};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

int generate_tokens(struct rank *self, struct rt *rt) {
    struct generator g = {.self = self, .rt = rt, .options = &self->job->options};
    g.sampling = sampling_of(g.options);
    stop_after_steps(self->job);
    int status = open_generator(&g);
    if (!status) status = generate(&g);
    if (!status) status = keep_result(&g);
    close_generator(&g);
    return status;
}
