/* Writes with a decoder in random ways, which must not change what it writes: tests/fuzz/generation.py.
 *
 *     generation DIR CAPACITY BATCH_STEP WORK SEED FIRST COUNT [plain]
 *
 * Each of the draws FIRST .. FIRST + COUNT - 1 is determined by SEED and its number: prompts, how many tokens to write,
 * and the way. `plain`: each row alone, its prompt in one step, one token after the other; prints "draw row token gap",
 * where gap is the difference of the two greatest logits. Otherwise rows together, padded in front; steps of any number
 * of tokens; tokens that are taken back; states that are cut, saved in WORK, restored, and reset; calls that must be
 * refused. Prints "draw row token". Ranks are threads, which draw the same. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum {
    MOST_ROWS = 4,
    MOST_PROMPT = 24,
    MOST_NEW = 24,
    MOST = MOST_PROMPT + MOST_NEW,
    SEQUENCE = model_COUNT_input_ids / MOST_ROWS,
    VOCABULARY = model_COUNT_logits / model_COUNT_input_ids,
    FIRST_TOKEN = 4 /* those before have a meaning of their own */
};

struct options {
    const char *directory, *work;
    int64_t capacity, batch_step, seed, first, count;
    bool plain;
};

/* Columns are tokens of all rows. */
struct draw {
    uint64_t random;
    int64_t number, wanted, rows; /* rows: wanted, and as many more as the plan needs */
    int64_t new_tokens, stop;     /* stop: a token that ends a row; -1: none */
    int64_t width;                /* of the longest prompt */
    int64_t lengths[MOST_ROWS], prompts[MOST_ROWS][MOST_PROMPT];
    bool ended[MOST_ROWS];
    int64_t tokens[MOST_ROWS][MOST], mask[MOST_ROWS][MOST], positions[MOST_ROWS][MOST];
};

/* SplitMix64 (Steele, Lea and Flood 2014). */
static int64_t below(uint64_t *random, int64_t n) {
    uint64_t z = *random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ z >> 31) % (uint64_t)n);
}

static void make_draw(struct draw *draw, const struct options *options, int64_t number) {
    *draw = (struct draw){.number = number};
    draw->random = (uint64_t)options->seed << 32 ^ (uint64_t)number * 0x2545f4914f6cdd1du;
    draw->wanted = 1 + below(&draw->random, MOST_ROWS);
    draw->rows = (draw->wanted + options->batch_step - 1) / options->batch_step * options->batch_step;
    draw->new_tokens = 1 + below(&draw->random, MOST_NEW);
    draw->stop = below(&draw->random, 2) ? below(&draw->random, VOCABULARY) : -1;
    for (int64_t r = 0; r < MOST_ROWS; r++) {
        draw->lengths[r] = 1 + below(&draw->random, MOST_PROMPT);
        for (int64_t i = 0; i < draw->lengths[r]; i++)
            draw->prompts[r][i] = FIRST_TOKEN + below(&draw->random, VOCABULARY - FIRST_TOKEN);
    }
}

/* Sets the columns of the prompts of `rows` rows from `first` on, padded in front. */
static void lay_out(struct draw *draw, int64_t first, int64_t rows) {
    draw->width = 0;
    for (int64_t r = 0; r < rows; r++)
        if (draw->lengths[first + r] > draw->width) draw->width = draw->lengths[first + r];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t hidden = draw->width - draw->lengths[first + r];
        draw->ended[r] = false;
        for (int64_t i = 0; i < draw->width; i++) {
            draw->tokens[r][i] = i < hidden ? 0 : draw->prompts[first + r][i - hidden];
            draw->mask[r][i] = i >= hidden;
            draw->positions[r][i] = i > hidden ? i - hidden : 0;
        }
    }
}

/* Sets the column of the next token; a row that has ended goes on with hidden ones. */
static void append(struct draw *draw, int64_t row, int64_t column, int64_t token) {
    draw->tokens[row][column] = draw->ended[row] ? 0 : token;
    draw->mask[row][column] = !draw->ended[row];
    draw->positions[row][column] = draw->positions[row][column - 1] + !draw->ended[row];
}

static int64_t greatest(const float *logits, float *gap) {
    int64_t best = 0;
    float second = -__builtin_inff();
    for (int64_t v = 1; v < VOCABULARY; v++) {
        if (logits[v] > logits[best])
            second = logits[best], best = v;
        else if (logits[v] > second)
            second = logits[v];
    }
    *gap = logits[best] - second;
    return best;
}

/* Runs `n` columns of `rows` rows from column `from` on; logits (rows, n, VOCABULARY), the caller's to free. Memory is
 * as large as the step needs, so that a sanitizer sees whatever is read or written behind it. */
static int step(struct rt *rt, const struct draw *draw, int64_t rows, int64_t from, int64_t n, float **logits) {
    const size_t cells = (size_t)(rows * n);
    int64_t *ids = malloc(cells * 8), *positions = malloc(cells * 8), *mask = malloc((size_t)(rows * (from + n)) * 8);
    *logits = malloc(cells * VOCABULARY * sizeof(float));
    int status = ids && positions && mask && *logits ? RT_OK : RT_ERROR_SYSTEM;
    for (int64_t r = 0; r < rows && !status; r++) {
        memcpy(ids + r * n, &draw->tokens[r][from], (size_t)n * 8);
        memcpy(positions + r * n, &draw->positions[r][from], (size_t)n * 8);
        memcpy(mask + r * (from + n), draw->mask[r], (size_t)(from + n) * 8);
    }
    const struct model_tensors tensors = {{.batch = rows, .sequence = n}, ids, mask, positions, *logits};
    if (!status) status = model_infer(rt, &tensors);
    free(ids);
    free(positions);
    free(mask);
    return status;
}

static int write_row(struct rt *rt, struct draw *draw, int64_t row) {
    lay_out(draw, row, 1);
    RT_TRY(model_state_reset(rt));
    const int64_t end = draw->width + draw->new_tokens;
    for (int64_t known = draw->width, done = 0; known < end && !draw->ended[0]; known++) {
        float *logits, gap;
        const int64_t n = known - done;
        const int status = step(rt, draw, 1, done, n, &logits);
        if (!status) append(draw, 0, known, greatest(logits + (n - 1) * VOCABULARY, &gap));
        free(logits);
        if (status) return status;
        done = known;
        draw->ended[0] = draw->tokens[0][known] == draw->stop;
        printf("%" PRId64 " %" PRId64 " %" PRId64 " %.9g\n", draw->number, row, draw->tokens[0][known], (double)gap);
    }
    return RT_OK;
}

static int write_plain(struct rt *rt, struct draw *draw) {
    for (int64_t row = 0; row < draw->wanted; row++) RT_TRY(write_row(rt, draw, row));
    return RT_OK;
}

/* What may happen between two steps. Each leaves caches of first columns of the draw. */

static int cut(struct rt *rt, struct draw *draw, const struct options *options) {
    (void)options;
    return model_state_truncate(rt, below(&draw->random, model_state_length(rt) + 1));
}

static int reset(struct rt *rt, struct draw *draw, const struct options *options) {
    (void)draw;
    (void)options;
    return model_state_reset(rt);
}

/* Tokens that are taken back, as those that a draft guessed wrong. */
static int guess(struct rt *rt, struct draw *draw, const struct options *options) {
    const int64_t past = model_state_length(rt), n = 1 + below(&draw->random, SEQUENCE);
    struct draw other = *draw;
    float *logits;
    (void)options;
    if (n > MOST - past) return RT_OK;
    for (int64_t r = 0; r < draw->rows; r++)
        for (int64_t i = past; i < past + n; i++) {
            other.tokens[r][i] = below(&draw->random, VOCABULARY);
            other.mask[r][i] = 1;
            other.positions[r][i] = below(&draw->random, MOST);
        }
    const int status = step(rt, &other, draw->rows, past, n, &logits);
    free(logits);
    return status ? status : model_state_truncate(rt, past - below(&draw->random, past / 4 + 1));
}

/* Saves the state, writes over what is there or behind it, and restores it. */
static int save(struct rt *rt, struct draw *draw, const struct options *options) {
    const int64_t past = model_state_length(rt);
    RT_TRY(model_state_save(rt, options->work));
    if (below(&draw->random, 2)) RT_TRY(model_state_reset(rt));
    RT_TRY(guess(rt, draw, options));
    RT_TRY(model_state_restore(rt, options->work));
    return model_state_length(rt) == past ? RT_OK : RT_ERROR_MISMATCH;
}

/* Calls that fail, and change nothing. */
static int refuse(struct rt *rt, struct draw *draw, const struct options *options) {
    const int64_t past = model_state_length(rt), n = options->capacity - past + 1;
    const size_t cells = (size_t)(draw->rows * (past + n));
    int64_t *zeros = calloc(cells, sizeof *zeros);
    float *logits = calloc(cells, VOCABULARY * sizeof *logits);
    const struct model_tensors full = {{.batch = draw->rows, .sequence = n}, zeros, zeros, zeros, logits};
    const bool all = zeros && logits && model_state_truncate(rt, past + 1) == RT_ERROR_USAGE &&
                     model_state_truncate(rt, -1) == RT_ERROR_USAGE && model_state_restore(rt, "/dev/null") != RT_OK &&
                     model_state_save(rt, "/dev/null") != RT_OK && model_infer(rt, &full) == RT_ERROR_INPUT &&
                     model_state_length(rt) == past;
    free(zeros);
    free(logits);
    return all ? RT_OK : RT_ERROR_MISMATCH;
}

static int (*const ways[])(struct rt *, struct draw *, const struct options *) = {cut, reset, guess, save, refuse};
enum { WAYS = sizeof ways / sizeof *ways };

/* Prints the new tokens of each row, up to its end. */
static void print_draw(const struct draw *draw) {
    for (int64_t r = 0; r < draw->wanted; r++)
        for (int64_t i = draw->width; i < draw->width + draw->new_tokens; i++) {
            printf("%" PRId64 " %" PRId64 " %" PRId64 "\n", draw->number, r, draw->tokens[r][i]);
            if (draw->tokens[r][i] == draw->stop) break;
        }
}

/* The tokens behind a step of `n` columns, the last of which is column - 1. */
static void take_tokens(struct draw *draw, int64_t column, int64_t n, const float *logits) {
    for (int64_t r = 0; r < draw->rows; r++) {
        float gap;
        append(draw, r, column, greatest(logits + (r * n + n - 1) * VOCABULARY, &gap));
        draw->ended[r] = draw->ended[r] || draw->tokens[r][column] == draw->stop;
    }
}

static int write_anyhow(struct rt *rt, struct draw *draw, const struct options *options) {
    lay_out(draw, 0, draw->rows);
    RT_TRY(model_state_reset(rt));
    for (int64_t known = draw->width; known < draw->width + draw->new_tokens;) {
        if (!below(&draw->random, 3)) RT_TRY(ways[below(&draw->random, WAYS)](rt, draw, options));
        const int64_t done = model_state_length(rt), left = known - done;
        const int64_t n = 1 + below(&draw->random, left < SEQUENCE ? left : SEQUENCE);
        float *logits;
        const int status = step(rt, draw, draw->rows, done, n, &logits);
        if (!status && n == left) take_tokens(draw, known++, n, logits);
        free(logits);
        if (status) return status;
    }
    if (rt_rank(rt) == 0) print_draw(draw);
    return RT_OK;
}

static int run_rank(struct rt *rt, void *context) {
    const struct options *options = context;
    for (int64_t d = options->first; d < options->first + options->count; d++) {
        struct draw draw;
        make_draw(&draw, options, d);
        const int status = options->plain ? write_plain(rt, &draw) : write_anyhow(rt, &draw, options);
        if (status) return fprintf(stderr, "draw %" PRId64 ": status %d, %s\n", d, status, rt_error(rt)), status;
    }
    return RT_OK;
}

int main(int argc, char **argv) {
    if (argc < 8) return 2;
    struct options options = {argv[1],        argv[4],        atoll(argv[2]), atoll(argv[3]),
                              atoll(argv[5]), atoll(argv[6]), atoll(argv[7]), argc > 8};
    const int failed = model_run_threads(options.directory, 0, run_rank, &options);
    if (failed) fprintf(stderr, "generation: %s\n", rt_error(NULL));
    return failed != 0;
}
