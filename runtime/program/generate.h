/* Parts of the generation of tokens by a program with state (main_generate.c): what manifest.json says of its inputs,
 * the prompts, the inputs of a step, and the report of rank 0.
 *
 * Note [Generation]
 * All ranks execute the same steps. Rank 0 reads the prompts and sends them to the others, chooses the tokens from the
 * logits of a step, and decides which rows end; an all-reduce then gives tokens and decisions to all. So no rank can
 * come to another conclusion, and a signal that any rank received ends the run after the same step.
 *
 * The tokens of a batch are a grid of rows and columns. Column c is what the step computes in which the state's length
 * is c; prompts that are shorter than the longest are padded on the left or on the right (Note [Padding] in
 * generate_inputs.c). The prompt is computed in chunks of as many columns as the program has room for, then one column
 * at a time. */
#ifndef RT_GENERATE_H
#define RT_GENERATE_H

#include "program/main.h"

#include "base/roles.h"
#include "generate/decoding.h"

struct id_list {
    int64_t *at;
    int64_t n;
};

/* "generation" of manifest.json, with --role and --stop. */
struct generation {
    enum rt_role *roles; /* of each input of the program */
    int ids, logits;     /* the input with the role, and the output */
    bool pads_right;
    int64_t pad; /* behind a row that has ended, and beside prompts */
    struct id_list ends, suppressed, suppressed_first;
};

/* EXIT_OK, or a failure: no state in the program, an input without a role. */
int generation_read(struct generation *generation, const struct job *job, struct failure *failure);
void generation_free(struct generation *generation);

/* The tokens of all rows, prompts first. */
struct grid {
    int64_t rows, given; /* of the step; of them, those that were asked for: the others only fill the batch */
    int64_t width, room; /* columns of the longest prompt; and at most */
    int64_t *ids;        /* [rows, room] */
    int64_t *lengths;    /* of the prompts */
};

/* The token is one of its row's: no padding of a prompt. */
bool grid_has(const struct grid *grid, bool pads_right, int64_t row, int64_t column);

/* The prompts of a file, a line of ids for each, in rows of `grid` without padding: width is the longest. */
int prompts_read(struct grid *grid, const char *path, struct failure *failure);

/* The state behind the prompts, in a directory, with the prompts. Collective. RT_OK, or a recorded status.
 *
 * save: once the columns of the prompts are computed. load: before any is; *columns becomes the number of those that
 * are not to be computed again, less than grid->width: the last one is, where the prompts are the same, for its logits.
 * EXIT_MISMATCH: the prompts in the directory are not the first columns of the grid. */
int prefix_save(struct rank *self, struct rt *rt, const struct grid *grid, bool pads_right, const char *directory);
int prefix_load(struct rank *self, struct rt *rt, const struct grid *grid, bool pads_right, const char *directory,
                int64_t *columns);

/* What a step computes: columns [first, first + count). */
struct window {
    int64_t first, count;
};

/* The inputs of steps. */
struct feeder;
int feeder_open(struct feeder **out, struct rank *self, struct rt *rt, const struct generation *generation);
void feeder_free(struct feeder *feeder);
/* The rows of a batch that the program can have, and that are at least `rows`; -1 with a failure recorded in `self`. */
int64_t feeder_rows(struct feeder *feeder, int64_t rows);
/* The columns of the next step of `left`; -1 with a failure. */
int64_t feeder_count(struct feeder *feeder, int64_t left);
/* Describes the inputs to a device that fills them; false: some are tensors of --input. */
bool feeder_describe(const struct feeder *feeder, struct rt_fed *fed);
/* Sets the sizes of the step. RT_OK, or a recorded status. */
int feeder_set_sizes(struct feeder *feeder, const struct grid *grid, struct window window);
/* Sets the sizes of the step and fills its inputs; they are valid until the next call. RT_OK, or a recorded status. */
int feeder_fill(struct feeder *feeder, const struct grid *grid, struct window window, const void *const **inputs);

/* Rank 0's connection to `rankc generate`, a socket (--report). Lines of text: in each step a number for each row, the
 * token that was added or -1; if the run asks, the answer has a 0 or 1 for each row, 1: it ends. At the end "done"
 * with the numbers of struct spent. */
struct report;
int report_open(struct report **out, const char *path, struct failure *failure);
int report_step(struct report *report, int64_t rows, const int64_t *ids, bool asks, bool *ends,
                struct failure *failure);
void report_close(struct report *report, const struct spent *spent);

#endif
