/* What a generation gives: OUT/ids.npy, and the new tokens and times as text or JSON. */
#include "program/generate.h"

#include "base/io/file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static int write_ids(const struct generated *generated, const char *directory, struct failure *failure) {
    const int64_t dims[] = {generated->rows, generated->width};
    struct rt_reason why;
    char path[PATH_MAX];
    const int exit = outputs_directory(directory, failure);
    if (exit) return exit;
    if (snprintf(path, sizeof path, "%s/ids.npy", directory) >= (int)sizeof path)
        return failure_set(failure, EXIT_SYSTEM, RT_CODE_WRITE, "--output-dir is too long");
    if (rt_npy_write(path, RT_I64, 2, dims, generated->ids, &why)) return EXIT_OK;
    const struct rt_report report = rt_reason_report(&why, (struct rt_report){RT_CODE_WRITE, EXIT_SYSTEM});
    return failure_set(failure, report.exit, report.code, "%s", why.text);
}

static const int64_t *row_of(const struct generated *generated, int64_t row) {
    return generated->ids + row * generated->width;
}

static void print_rows(const struct generated *generated) {
    for (int64_t row = 0; row < generated->rows; row++) {
        for (int64_t i = 0; i < generated->made[row]; i++)
            printf("%s%" PRId64, i ? " " : "", row_of(generated, row)[i]);
        putchar('\n');
    }
}

static double per_second(int64_t tokens, double ms) {
    return ms > 0 ? (double)(int64_t)((double)tokens / ms * 1e6 + 0.5) / 1e3 : 0;
}

static bool print_json(const struct job *job) {
    const struct generated *generated = &job->generated;
    struct rt_json_writer w;
    rt_json_start(&w);
    rt_json_open(&w, '{', RT_JSON_INLINE);
    rt_json_key_int(&w, "format", 1);
    rt_json_key_open(&w, "ids", '[', RT_JSON_INLINE);
    for (int64_t row = 0; row < generated->rows; row++) {
        rt_json_open(&w, '[', RT_JSON_INLINE);
        for (int64_t i = 0; i < generated->made[row]; i++) rt_json_put_int(&w, row_of(generated, row)[i]);
        rt_json_close(&w, ']');
    }
    rt_json_close(&w, ']');
    const struct spent *spent = &generated->spent;
    rt_json_key_real(&w, "prompt_tokens_per_s", per_second(spent->prompt_tokens, spent->prompt_ms));
    rt_json_key_real(&w, "tokens_per_s", per_second(spent->tokens, spent->ms));
    if (!put_step_times(&w, job)) return rt_json_discard(&w), false;
    rt_json_close(&w, '}');
    return rt_json_end_to(&w, stdout);
}

static void print_summary(const struct spent *spent) {
    fprintf(stderr, "rankc: prompt: %" PRId64 " tokens, %.1f per second; then %" PRId64 " tokens, %.1f per second\n",
            spent->prompt_tokens, per_second(spent->prompt_tokens, spent->prompt_ms), spent->tokens,
            per_second(spent->tokens, spent->ms));
}

int generated_give(const struct job *job, struct failure *failure) {
    const struct main_options *options = &job->options;
    bool ok = true;
    const int exit = options->output_dir ? write_ids(&job->generated, options->output_dir, failure) : EXIT_OK;
    if (exit) return exit;
    if (options->json) ok = print_json(job);
    if (!options->json && !options->report) {
        print_rows(&job->generated);
        if (!options->quiet) print_summary(&job->generated.spent);
    }
    if (job->profile && !options->json) profile_print(job->profile, stdout);
    if (ok && rt_printed()) return EXIT_OK;
    return failure_set(failure, EXIT_SYSTEM, RT_CODE_WRITE, "cannot write the results to standard output");
}

void generated_free(struct generated *generated) {
    free(generated->ids);
    free(generated->made);
}
