/* Targets and templates.
 *
 *     test_target CC RUNTIME_INCLUDE
 *
 * A target is one struct: a second one, with spellings of its own, must give a program in them. And every file of
 * templates/ must be one that a C compiler takes, whatever is bound in it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/text/embedded.h"
#include "codegen/program.h"
#include "codegen/text/layout.h"
#include "ir/text.h"
#include "passes/pipeline.h"
#include "tests/ir/pool.h"

static const char *compiler, *runtime_include;

/* A program with whatever templates distinguish: layers that repeat, uneven parts, communication, weights, constants, a
 * loop long enough for threads, an update. */
static const char sample[] = "rankc-ir 1\n"
                             "graph \"sample\" level=TRAINING train\n"
                             "mesh tensor=2\n"
                             "input %0 \"x\" f32[300,5]\n"
                             "weight %1 \"w\" f32[5,5] @0+16 as f32\n"
                             "const %2 \"table\" f32[5] = [0, 1, 2, 3, 4]\n"
                             "%3 \"a\" = MatMul(%0, %1) node=\"0/product\" split(tensor:n/1/1)\n"
                             "%4 \"b\" = MatMul(%3, %1) node=\"0/product2\" split(tensor:k/1/1)\n"
                             "%5 \"c\" = Exp(%4) node=\"0/exp\"\n"
                             "%6 \"d\" = Softmax(%5) axis=1 node=\"0/softmax\"\n"
                             "%7 \"a\" = MatMul(%6, %1) node=\"1/product\" split(tensor:n/1/1)\n"
                             "%8 \"b\" = MatMul(%7, %1) node=\"1/product2\" split(tensor:k/1/1)\n"
                             "%9 \"c\" = Exp(%8) node=\"1/exp\"\n"
                             "%10 \"d\" = Softmax(%9) axis=1 node=\"1/softmax\"\n"
                             "%11 \"a\" = MatMul(%10, %1) node=\"2/product\" split(tensor:n/1/1)\n"
                             "%12 \"b\" = MatMul(%11, %1) node=\"2/product2\" split(tensor:k/1/1)\n"
                             "%13 \"c\" = Exp(%12) node=\"2/exp\"\n"
                             "%14 \"d\" = Softmax(%13) axis=1 node=\"2/softmax\"\n"
                             "%15 \"e\" = Expand(%14) shape=[30,300,5]\n"
                             "%16 \"f\" = Mul(%15, %2)\n"
                             "%17 \"next\" = Tanh(%1)\n"
                             "output %16 \"f\"\n"
                             "update %1 <- %17\n";

static struct program make_program(struct arena *arena, const struct target *target) {
    struct program program;
    struct rankplan plan;
    struct sources sources;
    struct diags diags;
    struct graph *graph;
    struct pass_context context = {.policy = "dp", .diags = &diags};
    const struct program_info info = {.model = "sample",
                                      .instance = "_",
                                      .version = "0",
                                      .pas = "dp",
                                      .decisions = &context.decisions,
                                      .key = "00000000000000000000000000000000",
                                      .work = "00000000000000000000000000000000",
                                      .model_hash = "00000000000000000000000000000000",
                                      .nfiles = 1};
    diags_init(&diags, arena);
    int status = text_parse(arena, &diags, "sample", sample, strlen(sample), &graph);
    if (!status) status = pipeline_run(graph, &context, NULL);
    if (!status) {
        rankplan_make(&plan, graph, &target->kernels);
        status = sources_find(&sources, &plan, target, &diags);
        if (!status) program_make(&program, &plan, &sources, target, &info);
    }
    diags_print(&diags, stderr, RT_DIAGNOSTIC_PLAIN, RT_SEVERITY_ERROR);
    assert_int_equal(status, 0);
    return program;
}

static const char *text_of(struct arena *arena, const struct program *program, const char *path) {
    for (int i = 0; i < program->files.n; i++)
        if (strcmp(program->files.at[i].path, path) == 0)
            return arena_copy(arena, program->files.at[i].bytes, program->files.at[i].count);
    fail_msg("the program has no %s", path);
    return NULL;
}

/* ---- another target ---- */

static const struct target_function my_functions[] = {
    {"exp", "my_exponential_%", NULL}, {"tanh", "single_tanh", "double_tanh"}, {NULL, NULL, NULL}};
static const struct target_file my_files[] = {{"model.h.in", "interface.hh"}, {NULL, NULL}};
static const struct target mine = {.name = "mine",
                                   .source_suffix = ".mine",
                                   .head_template = "c/head.c.in",
                                   .elementwise_template = "c/elementwise.c.in",
                                   .epilogue_template = "c/epilogue.c.in",
                                   .files = my_files,
                                   .functions = my_functions,
                                   .call_prefix = "my_",
                                   .arguments = &target_c_arguments,
                                   .copy = "my_copy(",
                                   .device = "my_device"};

TEST(test_a_target_is_one_struct) {
    struct program program = make_program(&pool, &mine);
    const char *source = text_of(&pool, &program, "rank_1.mine");
    text_of(&pool, &program, "rank_0.mine");
    text_of(&pool, &program, "interface.hh");
    static const char *const has[] = {"my_matmul_f32(", "my_all_reduce(", "my_exponential_f32(", "single_tanh("};
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if (!strstr(source, has[i])) fail_msg("rank_1.mine has no %s", has[i]);
    assert_null(strstr(source, "rt_matmul"));
    assert_null(strstr(source, "rt_exp"));
    for (int i = 0; i < program.files.n; i++) assert_null(strstr(program.files.at[i].path, ".c"));
}

/* ---- the templates ---- */

static void write_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void write_program(struct arena *arena, const struct program *program, const char *dir) {
    assert_int_equal(mkdir(arena_printf(arena, "%s/weights", dir), 0700), 0);
    for (int i = 0; i < program->files.n; i++)
        write_file(arena_printf(arena, "%s/%s", dir, program->files.at[i].path), program->files.at[i].bytes,
                   program->files.at[i].count);
}

static bool names_template(const struct target *target, const char *path) {
    const char *const own[] = {target->head_template,     target->elementwise_template, target->vector_template,
                               target->epilogue_template, target->rows_template,        target->columns_template};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] && strcmp(path, own[i]) == 0) return true;
    for (const struct target_file *file = target->files; file->template; file++)
        if (strcmp(file->template, path) == 0) return true;
    return false;
}

TEST(test_every_template_has_a_target) {
    for (const struct embedded *template = embedded; template->path; template ++) {
        bool named = !strcmp(template->path, "page/plan.html.in") || /* frontend/cli/show/show.c */
                     !strcmp(template->path, "rank.in");             /* codegen/rank.c */
        for (int i = 0; targets[i]; i++) named |= names_template(targets[i], template->path);
        if (!named) fail_msg("no target uses templates/%s", template->path);
    }
}

/* Lines that can be broken are, and members that are zero are left out. */
TEST(test_layout) {
    for (int t = 0; targets[t]; t++) {
        const struct program program = make_program(&pool, targets[t]);
        for (int i = 0; i < program.files.n; i++) {
            const struct program_file *file = &program.files.at[i];
            const char *text = arena_copy(&pool, file->bytes, file->count), *dot = strrchr(file->path, '.');
            if (!dot || !strstr(".c .h .cu", dot)) continue;
            for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line != 0)
                if (strcspn(line, "\n") > LAYOUT_COLUMNS) fail_msg("%s: %.*s", file->path, LAYOUT_COLUMNS, line);
            if (strstr(text, " = 0,") || strstr(text, " = NULL,")) fail_msg("%s has members that are zero", file->path);
        }
    }
}

TEST(test_templates_are_c) {
    char dir[] = "/tmp/rankc-templates-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct program program = make_program(&pool, &target_c);
    write_program(&pool, &program, dir);
    const char *source = text_of(&pool, &program, "rank_0.c");
    assert_non_null(strstr(source, "#pragma omp parallel for"));
    assert_non_null(strstr(source, "static int layer_forward("));
    assert_non_null(strstr(source, "// update"));
    const char *check =
        arena_printf(&pool,
                     "cd %s && %s -std=gnu11 -fsyntax-only -fopenmp -Wall -Wextra -Wshadow -Wvla -Werror "
                     "-I'%s' *.c && make -s -n build/run RANKC_CFLAGS= RANKC_LIBS= >make.log",
                     dir, compiler, runtime_include);
    int status = system(check); /* of our own words and the build's paths */
    assert_int_equal(system(arena_printf(&pool, "rm -r %s", dir)), 0);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    compiler = argv[1];
    runtime_include = argv[2];
    return run_all_tests("target", open_pool, close_pool);
}
