/* Reading metrics files: a JSON object per line, as write_step and report_evaluation of runtime/program/main_train.c
 * write it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/plot/plot.h"
#include "runtime/base/io/file.h"

#define FILE_LIMIT ((size_t)4 << 30)

static const char *const keys[PLOT_QUANTITIES] = {"loss", "grad_norm", "lr", "samples_per_s"};

/* Adds a member's value; null stands for one that was not finite. */
static void add_value(struct plot_series *series, int64_t step, const struct rt_json *value, struct cli *cli) {
    struct plot_point point = {step, NAN};
    if (!value || (value->kind != RT_JSON_NULL && !rt_json_real(value, &point.value))) return;
    VEC_PUSH(cli->arena, &series->points, point);
}

static void add_line(struct plot_run *run, const struct rt_json *line, int64_t step, struct cli *cli) {
    const struct rt_json *tokens = rt_json_member(line, "tokens_per_s");
    for (int q = 0; q < PLOT_QUANTITIES; q++) add_value(&run->quantity[q], step, rt_json_member(line, keys[q]), cli);
    if (tokens) run->tokens = true;
    add_value(&run->quantity[PLOT_SPEED], step, tokens, cli);
    add_value(&run->evaluations, step, rt_json_member(line, "eval_loss"), cli);
}

static int refuse_line(const char *path, int number, const char *what, struct cli *cli) {
    return diag_error(cli->diags, 399, EXIT_MALFORMED, NULL, "%s, line %d: %s", diag_quote(cli->diags, path), number,
                      what);
}

static int read_line(struct plot_run *run, const char *path, int number, const char *text, size_t length,
                     struct cli *cli) {
    struct rt_reason why;
    int64_t step;
    struct rt_json_document *document = rt_json_parse(text, length, &why);
    if (!document) return refuse_line(path, number, why.text, cli);
    const struct rt_json *line = rt_json_root(document);
    const bool has_step = rt_json_int(rt_json_member(line, "step"), &step);
    if (has_step) add_line(run, line, step, cli);
    rt_json_free(document);
    return has_step ? 0 : refuse_line(path, number, "this is no line of metrics: it has no number \"step\"", cli);
}

static int read_lines(struct plot_run *run, const char *path, const char *text, size_t bytes, struct cli *cli) {
    const char *end = text + bytes;
    for (int number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        if (!newline) break;
        if (newline > text && read_line(run, path, number, text, (size_t)(newline - text), cli)) return -1;
        text = newline + 1;
    }
    int points = run->evaluations.points.n;
    for (int q = 0; q < PLOT_QUANTITIES; q++) points += run->quantity[q].points.n;
    if (points) return 0;
    return diag_error(cli->diags, 399, EXIT_MALFORMED, NULL, "%s has no metrics of any step",
                      diag_quote(cli->diags, path));
}

int plot_read(struct plot_run *run, const char *path, struct cli *cli) {
    struct rt_reason why;
    void *text;
    size_t bytes;
    run->name = path;
    if (!rt_file_read(path, FILE_LIMIT, &text, &bytes, &why))
        return diag_refusal(cli->diags, 601, EXIT_SYSTEM, NULL, &why);
    const int status = read_lines(run, path, text, bytes, cli);
    free(text);
    return status;
}
