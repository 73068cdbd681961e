/* The tiny program as a command (rt_main), started alone, as threads, and by the launcher. */
#define _GNU_SOURCE 1

#include "launched.h"

#include "launch.h"

#include <stdlib.h>
#include <string.h>

/* Results */

TEST(one_rank_prints_a_summary) {
    struct result result = RUN(ALONE, 1, INPUTS);
    assert_ok(&result);
    assert_non_null(strstr(result.out, "y f32 [2, 5]: 6.56313 -0.562625 "));
    assert_non_null(strstr(result.out, "a/z f32 [2, 4]: "));
    assert_non_null(strstr(result.out, "a.z i64 []: 7 (mean 7)"));
}

TEST(threads_and_processes_print_the_same) {
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct result threads = RUN(ALONE, ranks, INPUTS, "--comm", "loopback");
        struct result processes = RUN(LAUNCHED, ranks, INPUTS);
        assert_ok(&threads);
        assert_ok(&processes);
        assert_string_equal(threads.out, processes.out);
    }
}

TEST(outputs_are_written_under_safe_names) {
    char out[64], text[2048];
    in_directory(out, sizeof out, "new/outputs");
    struct result result = RUN(LAUNCHED, 2, INPUTS, "--output-dir", out);
    assert_ok(&result);
    assert_string_equal(result.out, "");
    read_text("new/outputs/outputs.json", text, sizeof text);
    assert_non_null(strstr(text, "{\"name\": \"a/z\", \"file\": \"a_z.npy\", \"dtype\": \"f32\", \"shape\": [2, 4]}"));
    read_text("new/outputs/a.z.npy", text, sizeof text);
    assert_non_null(strstr(text + 10, "'descr': '<i8'"));
}

TEST(json_reports_times_and_memory) {
    struct result result = RUN(LAUNCHED, 2, INPUTS, "--json", "--repeat", "3", "--warmup=1", "--threads", "1");
    assert_ok(&result);
    assert_non_null(strstr(result.out, "{\"format\": 1, \"ranks\": 2, \"threads\": 1, \"step_ms\": {\"min\": "));
    assert_non_null(strstr(result.out, "\"peak_rss\": ["));
}

/* Usage and data */

TEST(options_are_checked) {
    struct result result = RUN(ALONE, 1, "--help");
    assert_ok(&result);
    assert_non_null(strstr(result.out, "--output-dir"));
    for (int ranks = 1; ranks <= 2; ranks++) {
        const enum start how = ranks == 1 ? ALONE : LAUNCHED;
        assert_error(&(struct result[]){RUN(how, ranks, INPUTS, "--repaet", "3")}[0], 2, "unknown option '--repaet'");
        assert_error(&(struct result[]){RUN(how, ranks, INPUTS, "--repeat", "0")}[0], 2, "--repeat needs");
        assert_error(&(struct result[]){RUN(how, ranks, INPUTS, "--threads")}[0], 2,
                     ranks == 1 ? "--threads needs" : "");
        assert_error(&(struct result[]){RUN(how, ranks, INPUTS, "--kernels", "x")}[0], 2, "unknown kernel set 'x'");
    }
    result = RUN(ALONE, 1, INPUTS, "--repaet", "3");
    assert_non_null(strstr(result.err, "help: did you mean '--repeat'?"));
    assert_error(&(struct result[]){RUN(ALONE, 1, INPUTS, "--threads", "5000")}[0], 2,
                 "--threads needs a whole number from 1 to 4096, not '5000'");
    result = RUN(ALONE, 1, INPUTS, "--bogus"); /* is no '--log' */
    assert_non_null(strstr(result.err, "help: see --help"));
}

TEST(inputs_are_checked) {
    struct result result = RUN(LAUNCHED, 2, "--input", x_option);
    assert_error(&result, 2, "needs --input ids=FILE (i64 [3])");
    result = RUN(LAUNCHED, 2, INPUTS, "--input", bad_option);
    assert_error(&result, 2, "input 'x' is given twice");
    result = RUN(ALONE, 1, "--input", bad_option);
    assert_error(&result, 3, "error[E0915]: input 'x' has shape [3], but the model needs [2, 6]");
    result = RUN(ALONE, 1, "--input", "idz=nothing");
    assert_error(&result, 2, "the model has no input 'idz'");
    assert_non_null(strstr(result.err, "did you mean 'ids'?"));
    result = RUN(ALONE, 1, "--input", "x=/no/such/file.npy");
    assert_error(&result, 6, "cannot open '/no/such/file.npy'");
    result = RUN(ALONE, 1, "--input", "x=/dev/zero");
    assert_error(&result, 6, "not a regular file");
}

TEST(ranks_must_be_what_was_generated) {
    struct result result = RUN(ALONE, 3, INPUTS);
    assert_error(
        &result, 8,
        "error[E0901]: 'tiny' needs a multiple of 3 ranks (plan_ngpus), at most 16384, but was started with 1");
    result = RUN(ALONE, 3, INPUTS, "--rank", "1", "--world", "3");
    assert_error(&result, 2, "start the ranks with `rankc run`");
    setenv("OMPI_COMM_WORLD_RANK", "1", 1), setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    result = RUN(ALONE, 3, INPUTS);
    unsetenv("OMPI_COMM_WORLD_RANK"), unsetenv("OMPI_COMM_WORLD_SIZE");
    assert_error(&result, 8, "started with 4");
}

TEST(results_that_cannot_be_written_are_an_error) {
    struct result result = RUN(LAUNCHED, 2, INPUTS, "--output-dir", "/dev/full/x");
    assert_error(&result, 6, "error[E0611]");
    char out[64];
    in_directory(out, sizeof out, "out"); /* a file */
    result = RUN(ALONE, 1, INPUTS, "--output-dir", out);
    assert_error(&result, 6, "error[E0611]");
}

TEST(nothing_to_start_is_refused) {
    const struct rt_launch nothing = {.ranks = 1};
    const struct rt_launch_command no_words = {.arguments = (const char *const[]){NULL}};
    assert_int_equal(rt_launch(NULL), 2);
    assert_int_equal(rt_launch(&nothing), 2);
    assert_int_equal(rt_launch_command(NULL), 2);
    assert_int_equal(rt_launch_command(&no_words), 2);
    assert_int_equal(rt_watch_open(NULL), -1);
}

int main(void) {
    if (!getenv("TINY_PROGRAM")) return 77;
    return run_all_tests("launch", make_files, remove_files);
}
