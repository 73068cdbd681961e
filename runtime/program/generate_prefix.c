/* The state behind a prompt, kept in a directory: --save-state and --load-state. Beside the files of the ranks
 * (rt_state_save) lies the file "prompts", as prompts_read takes it. */
#include "program/generate.h"

#include "base/io/file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_NAME "prompts"

/* A number has at most 19 digits. */
enum { NUMBER_BYTES = 20 };

static int fail_memory(struct rank *self) {
    return fail_with(self, EXIT_LIMIT, RT_CODE_MEMORY, "out of memory");
}

static bool name_file(char *path, const char *directory) {
    return snprintf(path, PATH_MAX, "%s/" FILE_NAME, directory) < PATH_MAX;
}

/* The column of the first token of a row's prompt. */
static int64_t first_column(const struct grid *grid, bool pads_right, int64_t row) {
    return pads_right ? 0 : grid->width - grid->lengths[row];
}

static int write_prompts(struct rank *self, const struct grid *grid, bool pads_right, const char *directory) {
    struct rt_reason why;
    char path[PATH_MAX];
    char *text = malloc((size_t)(grid->rows * (grid->width * NUMBER_BYTES + 1)) + 1);
    size_t bytes = 0;
    if (!text) return fail_memory(self);
    for (int64_t row = 0; row < grid->rows; row++) {
        const int64_t *ids = grid->ids + row * grid->room + first_column(grid, pads_right, row);
        for (int64_t i = 0; i < grid->lengths[row]; i++)
            bytes += (size_t)sprintf(text + bytes, "%s%" PRId64, i ? " " : "", ids[i]);
        text[bytes++] = '\n';
    }
    const bool ok = name_file(path, directory) && rt_file_write(path, &(struct rt_piece){text, bytes}, 1, &why);
    free(text);
    return ok ? RT_OK : fail_with(self, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write %s/" FILE_NAME, directory);
}

int prefix_save(struct rank *self, struct rt *rt, const struct grid *grid, bool pads_right, const char *directory) {
    const int exit = outputs_directory(directory, &self->failure);
    if (exit) return self->status = rt_status_of_exit(exit);
    if (self->first) RT_TRY(write_prompts(self, grid, pads_right, directory));
    return check_rank(self, rt, rt_state_save(rt, directory));
}

/* True if the saved prompts are the first columns of the grid. */
static bool begins_with(const struct grid *grid, bool pads_right, const struct grid *saved) {
    if (saved->rows != grid->rows || saved->width > grid->width) return false;
    for (int64_t row = 0; row < grid->rows; row++) {
        const int64_t from = first_column(grid, pads_right, row);
        if (from != first_column(saved, pads_right, row) || saved->lengths[row] > grid->lengths[row]) return false;
        if (pads_right && saved->lengths[row] < saved->width && saved->lengths[row] != grid->lengths[row]) return false;
        for (int64_t i = 0; i < saved->lengths[row]; i++)
            if (saved->ids[row * saved->room + i] != grid->ids[row * grid->room + from + i]) return false;
    }
    return true;
}

/* Rank 0: the columns that the state in the directory has. */
static int read_columns(struct rank *self, const struct grid *grid, bool pads_right, const char *directory,
                        int64_t *columns) {
    struct grid saved;
    char path[PATH_MAX];
    if (!name_file(path, directory)) return fail_with(self, EXIT_SYSTEM, RT_CODE_OPEN, "--load-state is too long");
    const int exit = prompts_read(&saved, path, &self->failure);
    const bool fits = !exit && begins_with(grid, pads_right, &saved);
    *columns = exit ? 0 : saved.width;
    free(saved.ids);
    free(saved.lengths);
    if (exit) return self->status = rt_status_of_exit(exit);
    if (fits) return RT_OK;
    fail_with(self, EXIT_MISMATCH, RT_CODE_FORMAT, "the prompts do not begin with those whose state is in %s",
              rt_quote_text(directory).text);
    failure_help(&self->failure, "it has as many rows, each with the same number of tokens behind its beginning");
    return self->status;
}

int prefix_load(struct rank *self, struct rt *rt, const struct grid *grid, bool pads_right, const char *directory,
                int64_t *columns) {
    if (self->first) RT_TRY(read_columns(self, grid, pads_right, directory, columns));
    RT_TRY(check_comm(self, rt, rt->comm, rt->comm->driver->broadcast(rt->comm, columns, sizeof *columns, 0)));
    int status = rt_state_restore(rt, directory);
    const int64_t kept = rt_state_length(rt); /* -1: only states that are replaced */
    if (!status && kept >= 0 && kept != *columns)
        return fail_with(self, EXIT_MISMATCH, RT_CODE_FORMAT, "the state in %s is not that of its prompts",
                         rt_quote_text(directory).text);
    if (!status && *columns == grid->width) status = rt_state_truncate(rt, --*columns);
    return check_rank(self, rt, status);
}
