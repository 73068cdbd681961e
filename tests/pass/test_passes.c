/* Passes by example: graphs in, graphs out, as text.
 *
 *     test_passes [--bless] [ROOT]
 *
 * tests/pass/PASS.txt and tests/pass/PASS_WHAT.txt have cases of one pass (tests/ir/golden.h). The input of a case is
 * the statements of a graph of the pass's level, without the first two ("rankc-ir", "graph"). Comments before them say
 * what the pass is told:
 *
 *     # --train --optimizer sgd:lr=0.1      options, as `rankc compile` takes them
 *     #| match "up" split in1.1             a line of the file that options and statements know as FILE
 *
 * The driver reads options and graph as it does those of a user (frontend/driver/job/job.h), so a case can ask for
 * whatever the command line can: a target, a policy with its mesh, --pas manual:FILE, --load-plan FILE, weights of
 * known bytes (file "FILE", Note [Weights of letters]). The result is the statements after the pass, without controls
 * that none of them reads, and what the pass remarked; or the diagnostics of the options, of the pass, or of the
 * verifier after it. Statements that are printed must be read back as the same text.
 *
 * In plan.txt the result is not the graph after pass policy but the plan that was applied, as plan.json. For every case
 * of pass policy, the plan's text must be read back as the same plan, and applied to the graph give the same graph.
 *
 * Note [Weights of letters]
 * Passes tie and unrepeat compare the bytes of weights. The four letters of "abcd" are an f32 like any other, so a
 * weight `@1+0 as f32` of two elements has the bytes of the first eight letters of FILE. */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/driver/job/job.h"
#include "ir/base/own.h"
#include "ir/base/str.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/plan/file/annotations.h"
#include "passes/plan/file/plan_text.h"
#include "passes/plan/policy/policy.h"
#include "tests/ir/golden.h"
#include "tests/test.h"

enum { MAX_FILES = 100, MAX_WORDS = 64 };

static struct golden golden;
static const struct pass *pass;
static bool shows_plan;        /* the file is plan.txt */
static char *files[MAX_FILES]; /* tests/pass/NAME.txt, by name */
static int nfiles;

/* What the pass is told -------------------------------------------------------------------------------------------- */

struct told {
    char *words[MAX_WORDS];
    int nwords;
    struct strbuf file;
    struct annotations annotations; /* of lines "#@" (take_annotation) */
};

static void take_words(struct told *told, struct arena *arena, const char *at, const char *end) {
    for (at += strspn(at, " "); at < end; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " \n");
        if (told->nwords == MAX_WORDS) fail_msg("more than %d words", MAX_WORDS);
        told->words[told->nwords++] = arena_copy(arena, at, length);
        at += length;
    }
}

/* "NODE TENSOR DIM AXIS [BLOCKS PIECES]", "NODE TENSOR whole" or "NODE stage STAGE COORDINATE"; AXIS is an index. */
static void take_annotation(struct annotations *annotations, struct arena *arena, const char *line) {
    char node[64], tensor[64], word[64];
    int a = 0, b = 1, c = 0, axis;
    if (sscanf(line, "%63s %63s %63s %d %d %d", node, tensor, word, &a, &b, &c) < 3)
        fail_msg("no annotation: %s", line);
    struct annotated_node *entry = annotations_node(annotations, arena_strdup(arena, node), arena);
    if (strcmp(tensor, "stage") == 0) {
        entry->stage = atoi(word), entry->coordinate = a;
        return;
    }
    struct annotated_tensor *of = annotated_tensor(entry, tensor);
    if (!of) {
        VEC_PUSH(arena, &entry->tensors, (struct annotated_tensor){.name = arena_strdup(arena, tensor)});
        of = annotated_tensor(entry, tensor);
    }
    axis = a;
    if (strcmp(word, "whole") != 0) of->cut[of->ncuts++] = (struct annotated_cut){axis, atoi(word), b, c, 1};
}

static void read_comments(struct told *told, struct arena *arena, const char *input) {
    *told = (struct told){.words = {arena_strdup(arena, "compile"), arena_strdup(arena, "case.rir")},
                          .nwords = 2,
                          .annotations = {.place = "case.onnx"}};
    strbuf_init(&told->file, arena);
    for (const char *line = input, *end; *line == '#'; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        const char *text = line + 2 + (line[1] == '|' && line[2] == ' ');
        if (strncmp(line, "#@", 2) == 0)
            take_annotation(&told->annotations, arena, text);
        else if (strncmp(line, "# --", 4) == 0)
            take_words(told, arena, text, end);
        else if (strncmp(line, "#|", 2) == 0)
            strbuf_add(&told->file, text, (size_t)(end + 1 - text));
        else
            fail_msg("neither options nor a line of FILE: %.*s", (int)(end - line), line);
    }
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(name, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) fail_msg("%s cannot be written", name);
}

/* Reads options and graph into the job. -1 after diagnostics. */
static int tell(struct job *job, struct options *options, const char *input) {
    struct told told;
    read_comments(&told, job->arena, input);
    if (options_parse(options, told.nwords, told.words, job->arena, job->diags) < 0) return -1;
    write_file("FILE", strbuf_text(&told.file));
    write_file("case.rir", arena_printf(job->arena, "rankc-ir 1\ngraph \"case\" level=%s%s\n%s",
                                        level_names[pass->from], options->train ? " train" : "", input));
    job->options = options;
    if (job_read(job) < 0 || job_read_training(job) < 0) return -1;
    if (told.annotations.nodes.n) {
        job->side.annotations = ARENA_NEW(job->arena, struct annotations);
        *job->side.annotations = told.annotations;
    }
    if (!job->graph->files.n) return 0;
    return job_list_text_files(job) < 0 || job_attach_text_weights(job) < 0 ? -1 : 0;
}

/* One case --------------------------------------------------------------------------------------------------------- */

/* given: takes the place of the plan that the options ask for; NULL: none does. */
static int run_pass(struct job *job, struct options *options, const char *input, const struct plan *given) {
    if (tell(job, options, input) < 0) return -1;
    struct pass_context context = job_pass_context(job);
    if (given) context.given = given;
    if (pass->run(job->graph, &context) < 0) return -1;
    job->graph->level = pass->to;
    return verify_graph(job->graph, job->diags);
}

/* The text behind the two statements that open it. */
static const char *body(const char *text) {
    return strchr(strchr(text, '\n') + 1, '\n') + 1;
}

static bool is_read(const char *text, const char *number, size_t length) {
    int found = 0;
    for (const char *at = text; (at = strchr(at, '%')); at++)
        found += strncmp(at, number, length) == 0 && !isdigit((unsigned char)at[length]);
    return found > 1; /* its definition is one */
}

/* A graph that trains lists all controls; those that no statement reads are left out. */
static const char *without_idle_controls(struct arena *arena, const char *text) {
    struct strbuf kept;
    strbuf_init(&kept, arena);
    for (const char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        const char *number = strchr(line, '%');
        if (strncmp(line, "control ", 8) == 0 && !is_read(text, number, strcspn(number, " "))) continue;
        strbuf_add(&kept, line, (size_t)(end + 1 - line));
    }
    return strbuf_text(&kept);
}

/* The text of the plan that the pass has applied to the job's graph, after checks that it says all of it. */
static const char *check_plan(const struct job *job, const char *input) {
    struct options options;
    struct diags diags;
    struct plan plan;
    struct rt_reason why;
    struct job again = {.arena = job->arena, .diags = &diags};
    const char *text = plan_print(job->arena, &job->decided, "case");
    diags_init(&diags, job->arena);
    const struct rt_json_document *document = own_json_text(job->arena, text, &why);
    assert_non_null(document);
    assert_int_equal(plan_parse(&plan, false, job->arena, &diags, "plan.json", rt_json_root(document)), 0);
    assert_string_equal(plan_print(job->arena, &plan, "case"), text);
    assert_int_equal(run_pass(&again, &options, input, &plan), 0);
    assert_string_equal(text_print(job->arena, again.graph), text_print(job->arena, job->graph));
    return text;
}

static const char *apply(struct arena *arena, const char *input) {
    struct options options;
    struct diags diags;
    struct graph *again;
    struct job job = {.arena = arena, .diags = &diags};
    diags_init(&diags, arena);
    if (run_pass(&job, &options, input, NULL) < 0) return golden_diags(arena, &diags);
    const char *plan = pass->run == pass_policy ? check_plan(&job, input) : NULL;
    if (shows_plan) return arena_printf(arena, "%s%s", plan, golden_diags(arena, &diags));
    const char *text = text_print(arena, job.graph);
    if (text_parse(arena, &diags, "case", text, strlen(text), &again) < 0) return golden_diags(arena, &diags);
    assert_string_equal(text_print(arena, again), text);
    return arena_printf(arena, "%s%s", without_idle_controls(arena, body(text)), golden_diags(arena, &diags));
}

/* The files -------------------------------------------------------------------------------------------------------- */

/* The pass with the longest name that the file's begins with. */
static const struct pass *pass_of(const char *file) {
    const struct pass *found = NULL;
    for (int i = 0; i < npasses; i++) {
        const size_t length = strlen(passes[i].name);
        if (strncmp(passes[i].name, file, length) != 0 || (file[length] && file[length] != '_')) continue;
        if (!found || length > strlen(found->name)) found = &passes[i];
    }
    return found;
}

static void test_file(void **state) {
    struct arena arena;
    shows_plan = strcmp(*state, "plan") == 0;
    pass = shows_plan ? pass_find("policy") : pass_of(*state);
    if (!pass) fail_msg("no pass is called as tests/pass/%s.txt begins", (const char *)*state);
    arena_init(&arena, 0, NULL);
    assert_int_equal(golden_run(&golden, arena_printf(&arena, "tests/pass/%s.txt", (const char *)*state), apply), 0);
    arena_free(&arena);
}

static bool has_cases(int (*run)(struct graph *graph, const struct pass_context *context)) {
    for (int f = 0; f < nfiles; f++)
        if (pass_of(files[f]) && pass_of(files[f])->run == run) return true;
    return false;
}

static bool has_file(const char *prefix, const char *name) {
    bool found = false;
    for (int f = 0; f < nfiles; f++)
        found =
            found || (strncmp(files[f], prefix, strlen(prefix)) == 0 && strcmp(files[f] + strlen(prefix), name) == 0);
    return found;
}

static void test_every_pass_and_policy_has_cases(void **state) {
    for (int i = 0; i < npasses; i++)
        if (!has_cases(passes[i].run)) fail_msg("tests/pass has no cases of pass %s", passes[i].name);
    for (int i = 0; i < npolicies; i++)
        if (!has_file("policy_", policies[i].name)) fail_msg("tests/pass has no policy_%s.txt", policies[i].name);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_files(const char *root) {
    char path[PATH_MAX + sizeof "/tests/pass"];
    snprintf(path, sizeof path, "%s/tests/pass", root);
    DIR *directory = opendir(path);
    if (!directory) exit((perror(path), 1));
    for (struct dirent *entry; (entry = readdir(directory)) && nfiles < MAX_FILES;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && strcmp(dot, ".txt") == 0) files[nfiles++] = strndup(entry->d_name, (size_t)(dot - entry->d_name));
    }
    closedir(directory);
    qsort(files, (size_t)nfiles, sizeof *files, compare_names);
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[MAX_FILES + 1] = {cmocka_unit_test(test_every_pass_and_policy_has_cases)};
    char root[PATH_MAX], scratch[] = "/tmp/rankc-passes-XXXXXX";
    golden = golden_options(argc, argv);
    if (!realpath(golden.root, root) || !mkdtemp(scratch) || chdir(scratch) != 0) exit((perror(golden.root), 1));
    golden.root = root;
    list_files(root);
    for (int f = 0; f < nfiles; f++)
        tests[f + 1] = (struct CMUnitTest){.name = files[f], .test_func = test_file, .initial_state = files[f]};
    const int failed = _cmocka_run_group_tests("passes", tests, (size_t)nfiles + 1, NULL, NULL);
    unlink("case.rir");
    unlink("FILE");
    return rmdir(scratch) < 0 ? 1 : failed;
}
