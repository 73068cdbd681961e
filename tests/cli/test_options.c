/* The command line, parsed: what is accepted, how it is typed, and what is refused with which code. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/options/options.h"
#include "tests/test.h"

struct parsed {
    struct arena arena;
    struct diags diags;
    struct options options;
    int status;
};

static void parse_list(struct parsed *p, int argc, char **argv) {
    arena_init(&p->arena, 0, NULL);
    diags_init(&p->diags, &p->arena);
    p->status = options_parse(&p->options, argc, argv, &p->arena, &p->diags);
}

#define PARSE(p, ...)                                                                                                  \
    char *p##_words[] = {__VA_ARGS__};                                                                                 \
    struct parsed p;                                                                                                   \
    parse_list(&p, (int)(sizeof p##_words / sizeof *p##_words), p##_words)

static void release(struct parsed *p) {
    arena_free(&p->arena);
}

/* The command line has exactly one error, of this code and exit code, and its text contains `text`. */
static void assert_refused(struct parsed *p, int code, enum exit_code exit, const char *text) {
    assert_int_equal(p->status, -1);
    assert_int_equal(p->diags.errors, 1);
    assert_int_equal(p->diags.all.at[0].code, code);
    assert_int_equal(p->diags.all.at[0].exit, exit);
    if (!strstr(p->diags.all.at[0].text, text)) fail_msg("'%s' lacks '%s'", p->diags.all.at[0].text, text);
    release(p);
}

#define REFUSES(code, exit, text, ...)                                                                                 \
    do {                                                                                                               \
        PARSE(p, __VA_ARGS__);                                                                                         \
        assert_refused(&p, code, exit, text);                                                                          \
    } while (0)

TEST(defaults_are_those_of_the_table) {
    PARSE(p, "compile", "m.onnx");
    assert_int_equal(p.status, 0);
    assert_int_equal(p.options.verb, VERB_COMPILE);
    assert_string_equal(p.options.operand, "m.onnx");
    assert_string_equal(p.options.output, "./.rankc");
    assert_string_equal(p.options.instance_name, "_");
    assert_int_equal(p.options.target, OPT_TARGET_C);
    assert_int_equal(p.options.dtype, CHOICE_NONE);
    assert_int_equal(p.options.pas.word, OPT_POLICY_DP);
    assert_int_equal(p.options.plan_ngpus, 1);
    assert_int_equal(p.options.runtime_ngpus, 1);
    assert_int_equal(p.options.decisions.mesh.naxes, 0);
    assert_int_equal(p.options.lock_timeout, 600);
    assert_false(p.options.given[OPT_OUTPUT]);
    release(&p);
}

TEST(values_are_attached_or_follow) {
    PARSE(p, "compile", "-oA", "--instance-name=b=c", "--plan-ngpus", "4", "--pas", "tp", "-v", "--", "--odd.onnx");
    assert_int_equal(p.status, 0);
    assert_string_equal(p.options.output, "A");
    assert_string_equal(p.options.instance_name, "b=c");
    assert_int_equal(p.options.plan_ngpus, 4);
    assert_true(p.options.verbose);
    assert_string_equal(p.options.operand, "--odd.onnx");
    release(&p);
}

TEST(a_policy_of_one_axis_takes_all_devices_of_a_unit) {
    PARSE(p, "plan", "m.onnx", "--pas", "tp", "--plan-ngpus=2", "--runtime-ngpus=6");
    assert_int_equal(p.status, 0);
    assert_int_equal(p.options.decisions.mesh.naxes, 1);
    assert_string_equal(p.options.decisions.mesh.axis[0].name, "tensor");
    assert_int_equal(p.options.decisions.mesh.axis[0].size, 2);
    assert_int_equal(p.options.runtime_ngpus, 6);
    release(&p);
}

TEST(a_named_mesh_gives_the_devices) {
    PARSE(p, "compile", "m.onnx", "--pas=data:data=3");
    assert_int_equal(p.status, 0);
    assert_int_equal(p.options.plan_ngpus, 3);
    assert_int_equal(p.options.runtime_ngpus, 3);
    release(&p);
}

TEST(a_preference_is_no_axis) {
    PARSE(a, "compile", "m.onnx", "--pas=tp:prefer=memory", "--plan-ngpus=2");
    PARSE(b, "compile", "m.onnx", "--pas=tp:prefer=memory,tensor=2");
    PARSE(c, "compile", "m.onnx", "--pas=tp:tensor=2,prefer=speed");
    assert_int_equal(a.status + b.status + c.status, 0);
    assert_true(a.options.decisions.prefer && b.options.decisions.prefer == PREFER_MEMORY &&
                !c.options.decisions.prefer);
    assert_int_equal(a.options.decisions.mesh.naxes, 1);
    assert_int_equal(b.options.plan_ngpus, 2);
    assert_string_equal(options_text(&a.options, OPT_PAS, &a.arena), "tp:tensor=2,prefer=memory");
    assert_string_equal(options_text(&b.options, OPT_PAS, &b.arena), "tp:tensor=2,prefer=memory");
    assert_string_equal(options_text(&c.options, OPT_PAS, &c.arena), "tp:tensor=2");
    release(&a);
    release(&b);
    release(&c);
    REFUSES(202, EXIT_USAGE, "unknown setting prefer='size'", "compile", "m", "--pas=pp:prefer=size");
    REFUSES(202, EXIT_USAGE, "has no setting 'prefer'", "compile", "m", "--pas=data:prefer=memory");
    REFUSES(202, EXIT_USAGE, "unknown setting cut='sideways'", "compile", "m", "--pas=context:context=2,cut=sideways");
    REFUSES(202, EXIT_USAGE, "has no setting 'cut'", "compile", "m", "--pas=tp:tensor=2,cut=mirrored");
    PARSE(d, "compile", "m.onnx", "--pas=context:context=2,attention=ring,cut=mirrored");
    assert_true(d.options.decisions.attention == ATTENTION_RING && d.options.decisions.cut == CUT_MIRRORED);
    assert_int_equal(d.options.attention, OPT_ATTENTION_FLASH);
    assert_string_equal(options_text(&d.options, OPT_PAS, &d.arena), "context:context=2,attention=ring,cut=mirrored");
    release(&d);
    REFUSES(202, EXIT_USAGE, "attention='rows' of --pas (gather heads ring)", "compile", "m",
            "--pas=context:context=2,attention=rows");
    REFUSES(204, EXIT_USAGE, "attention=ring of --pas is flash attention", "compile", "m",
            "--pas=context:context=2,attention=ring", "--attention=products");
    REFUSES(204, EXIT_USAGE, "cut=mirrored of --pas balances attention=gather", "compile", "m",
            "--pas=context:context=2,attention=heads,cut=mirrored");
    REFUSES(204, EXIT_USAGE, "ONNX annotations cannot say cut=mirrored", "compile", "m",
            "--pas=context:context=2,cut=mirrored", "--onnx-out=x.onnx");
}

TEST(equal_settings_have_equal_text) {
    PARSE(a, "compile", "m.onnx", "--pas=tp:tensor=2", "--dim", "s=8", "--dim=b=02");
    PARSE(b, "compile", "m.onnx", "--pas=tp", "--plan-ngpus=2", "--dim", "b=2", "--dim", "s=8");
    assert_string_equal(options_text(&a.options, OPT_PAS, &a.arena), options_text(&b.options, OPT_PAS, &b.arena));
    assert_string_equal(options_text(&a.options, OPT_DIM, &a.arena), "b=2,s=8");
    assert_string_equal(options_text(&b.options, OPT_DIM, &b.arena), "b=2,s=8");
    release(&a);
    release(&b);
}

TEST(names_may_contain_equals_signs_where_values_cannot) {
    PARSE(p, "run", "d", "--dim", "a=b=3", "--input", "x=y=z.npy");
    assert_int_equal(p.status, 0);
    assert_string_equal(p.options.dims.all.at[0].name, "a=b");
    assert_string_equal(p.options.inputs.all.at[0].name, "x");
    assert_string_equal(p.options.inputs.all.at[0].path, "y=z.npy");
    release(&p);
}

TEST(usage_errors_end_with_2) {
    REFUSES(200, EXIT_USAGE, "unknown verb 'compil'", "compil");
    REFUSES(200, EXIT_USAGE, "MODEL.onnx is missing", "compile");
    REFUSES(200, EXIT_USAGE, "unexpected argument 'b'", "compile", "a", "b");
    REFUSES(200, EXIT_USAGE, "unknown option '--pass'", "compile", "m", "--pass=dp");
    REFUSES(200, EXIT_USAGE, "unknown option '-x'", "compile", "m", "-x");
    REFUSES(200, EXIT_USAGE, "--pas needs a value", "compile", "m", "--pas");
    REFUSES(200, EXIT_USAGE, "--pas needs a value", "compile", "m", "--pas", "--no-build");
    REFUSES(200, EXIT_USAGE, "-o needs a value", "compile", "m", "-o", "");
    REFUSES(200, EXIT_USAGE, "--no-build takes no value", "compile", "m", "--no-build=1");
    REFUSES(200, EXIT_USAGE, "--no-build is given twice", "compile", "m", "--no-build", "--no-build");
    REFUSES(200, EXIT_USAGE, "-o is given twice", "compile", "m", "-oa", "-o", "b");
    REFUSES(200, EXIT_USAGE, "contradict", "compile", "m", "-vq");
    REFUSES(203, EXIT_USAGE, "line break", "compile", "m", "-o", "a\nb");
    REFUSES(205, EXIT_USAGE, "--threads must be", "run", "d", "--threads=two");
    REFUSES(200, EXIT_USAGE, "given twice for 'x'", "run", "d", "--input=x=1", "--input=x=2");
    REFUSES(205, EXIT_USAGE, "must be NAME=FILE", "run", "d", "--input=x");
}

TEST(bad_dimensions_are_E0201) {
    static char *const bad[] = {"b=-1", "b=1e30", "b=abc", "b=", "b", "=3", "b= 3", "b=9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSES(201, EXIT_USAGE, "--dim must be", "compile", "m", "--dim", bad[i]);
    REFUSES(201, EXIT_USAGE, "given twice", "compile", "m", "--dim=b=1", "--dim=b=1");
}

TEST(shapes_are_lists_of_sizes) {
    PARSE(p, "compile", "m.onnx", "--shape", "y=1", "--shape=a=b=4,0");
    assert_int_equal(p.status, 0);
    assert_string_equal(options_text(&p.options, OPT_SHAPE, &p.arena), "a=b=4,0,y=1");
    assert_string_equal(p.options.command, "rankc compile m.onnx --shape y=1 --shape=a=b=4,0");
    release(&p);
}

TEST(bad_shapes_are_E0201) {
    static char *const bad[] = {"x", "=4", "x=", "x=4,", "x=,4", "x=4x16", "x=-1", "x=1,1,1,1,1,1,1,1,1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSES(201, EXIT_USAGE, "--shape must be", "compile", "m", "--shape", bad[i]);
    REFUSES(201, EXIT_USAGE, "given twice for 'x'", "compile", "m", "--shape=x=1", "--shape=x=1");
    REFUSES(200, EXIT_USAGE, "unknown option '--shape'", "train", "d", "--shape=x=1");
}

TEST(bad_policies_are_E0202) {
    REFUSES(202, EXIT_USAGE, "unknown policy 'foo' (dp tp pp data", "compile", "m", "--pas", "foo");
    REFUSES(202, EXIT_USAGE, "has no setting 'tensr' (tensor)", "compile", "m", "--pas=tp:tensr=2");
    REFUSES(202, EXIT_USAGE, "has no setting 'x'", "compile", "m", "--pas=dp:x=2");
    REFUSES(202, EXIT_USAGE, "has no setting ''", "compile", "m", "--pas=tp:tensor=2,");
    REFUSES(200, EXIT_USAGE, "needs a value", "compile", "m", "--pas=tp:tensor=");
    REFUSES(200, EXIT_USAGE, "given twice", "compile", "m", "--pas=tp:tensor=2,tensor=2");
    REFUSES(200, EXIT_USAGE, "nothing follows the colon", "compile", "m", "--pas=tp:");
}

TEST(bad_rank_counts_are_E0204) {
    static char *const bad[] = {"0", "-1", "4000000000", "8x", "", "+1", " 1", "0x4", "1.0", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REFUSES(204, EXIT_USAGE, "--plan-ngpus must be", "compile", "m", "--pas=tp", "--plan-ngpus", bad[i]);
    REFUSES(204, EXIT_USAGE, "multiple", "compile", "m", "--pas=tp", "--plan-ngpus=7", "--runtime-ngpus=4");
    REFUSES(204, EXIT_USAGE, "--plan-ngpus is 4", "compile", "m", "--pas=tp:tensor=2", "--plan-ngpus=4");
    REFUSES(204, EXIT_USAGE, "axis 'tensor'", "compile", "m", "--pas=tp:tensor=2x");
    REFUSES(204, EXIT_USAGE, "--plan-ngpus must be 1, not 2", "compile", "m", "--pas=dp", "--plan-ngpus=2");
}

TEST(what_is_not_there_yet_is_refused_with_4) {
    REFUSES(400, EXIT_UNSUPPORTED, "not supported yet: --comm nccl", "run", "m", "--comm", "nccl");
}

/* Every option of every verb: it has a field and a setter that takes some value. */
TEST(no_option_is_accepted_and_ignored) {
    for (int i = 0; i < OPTIONS; i++) {
        const struct option *row = &option_rows[i];
        int verb = 0;
        while (!option_of_verb(row, (enum verb)verb)) verb++;
        char name[64];
        snprintf(name, sizeof name, "--%s", row->name);
        char *words[] = {(char *)verb_rows[verb].name, name, row->kind == OPTION_FLAG ? NULL : "value"};
        struct parsed p;
        parse_list(&p, words[2] ? 3 : 2, words);
        assert_true(p.options.given[i]);
        release(&p);
    }
}

/* Help lists every option and verb, each once. */
TEST(sections_have_all) {
    int options[OPTIONS] = {0}, verbs[VERBS] = {0}, listed = 0;
    for (int i = 0; i < OPTIONS; i++) options[option_order[i]]++;
    for (int i = 0; i < VERBS; i++) verbs[verb_order[i]]++;
    for (int i = 0; i < OPTIONS; i++)
        if (options[i] != 1) fail_msg("--%s is in %d sections", option_rows[i].name, options[i]);
    for (int i = 0; i < VERBS; i++)
        if (verbs[i] != 1) fail_msg("%s is in %d sections", verb_rows[i].name, verbs[i]);
    for (int i = 0; option_sections[i].n; i++) listed += option_sections[i].n;
    for (int i = 0; verb_sections[i].n; i++) listed += verb_sections[i].n;
    assert_int_equal(listed, OPTIONS + VERBS);
}

TEST(help_needs_nothing_else) {
    PARSE(p, "compile", "--help");
    assert_int_equal(p.status, 0);
    assert_true(p.options.help);
    release(&p);
}

TEST(how_to_print_is_known_after_an_error) {
    PARSE(p, "compile", "--bogus", "--json", "--color=never");
    assert_int_equal(p.status, -1);
    assert_true(p.options.json);
    assert_int_equal(p.options.color, OPT_COLOR_NEVER);
    release(&p);
}

TEST(names_from_the_user_are_printable_in_errors) {
    REFUSES(200, EXIT_USAGE, "unknown option '--\\x1b]0;x\\x07'", "compile", "m", "--\033]0;x\007");
}

TEST(directories_are_safe_names) {
    static const struct {
        char *model, *instance;
        const char *directory;
    } cases[] = {
        {"a/b/gpt2.onnx", "_", "gpt2/_"}, {"m", "x y", "m/x_y"},
        {"...onnx", "...", "_./_.."},     {".onnx", ".lock-a", "_onnx/_lock-a"},
        {"a.b.onnx", "$(x)", "a.b/__x_"}, {"dir/", "/", "_/_"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PARSE(p, "compile", cases[i].model, "-oout", "--instance-name", cases[i].instance);
        assert_int_equal(p.status, 0);
        const char *model = options_model(&p.options, &p.arena), *instance = options_instance(&p.options, &p.arena);
        assert_string_equal(arena_printf(&p.arena, "%s/%s", model, instance), cases[i].directory);
        release(&p);
    }
}

TEST(what_concerns_compiling_is_known) {
    PARSE(p, "run", "d", "--json", "--threads=2");
    assert_null(options_compiling(&p.options, &p.arena));
    PARSE(q, "run", "d", "--json", "--dim=a=1", "--shape=a=1");
    assert_string_equal(options_compiling(&q.options, &q.arena), "--shape");
    release(&p);
    release(&q);
}

/* passes/plan/policy/policies.def says what policies do; the command line must know the same ones, and their axes.
 * autodist and plugin are none of them: the driver replaces them by the policy that it finds, and by manual. */
TEST(the_policies_are_those_of_the_passes) {
    static const struct {
        const char *name, *axes;
    } policies[] = {
#define POLICY(NAME, AXES, ...) {#NAME, AXES},
#include "passes/plan/policy/policies.def"
    };
    size_t implemented = 0;
    for (int i = 1; i < CHOICES; i++)
        implemented += choice_rows[i].group == GROUP_POLICY && i != OPT_POLICY_AUTODIST && i != OPT_POLICY_PLUGIN;
    assert_int_equal(implemented, sizeof policies / sizeof *policies);
    for (size_t p = 0; p < implemented; p++) {
        int i = OPT_POLICY_DP;
        while (strcmp(choice_rows[i].word, policies[p].name) || choice_rows[i].later) assert_true(++i < CHOICES);
        char *axes = strdup(choice_rows[i].keys);
        for (char *comma; (comma = strchr(axes, ','));) *comma = ' ';
        assert_string_equal(axes, policies[p].axes);
        free(axes);
    }
}

/* ---- response files ---- */

static void write_bytes(const char *path, const char *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void write_text(const char *path, const char *text) {
    write_bytes(path, text, strlen(text));
}

static int enter_temporary_directory(void **state) {
    char *path = strdup("/tmp/rankc-options-XXXXXX");
    *state = path;
    return mkdtemp(path) && !chdir(path) ? 0 : -1;
}

static int leave_temporary_directory(void **state) {
    static const char *const names[] = {"a", "b", "self", "big", "many", "pipe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(names[i]);
    int status = chdir("/") || rmdir(*state);
    free(*state);
    return status;
}

TEST(response_files_hold_arguments) {
    write_text("a", "compile \t 'my model.onnx'\n\"-o\" out\\ put @b\r\n");
    write_text("b", "# a comment with 'one quote, @absent and \\\n--dim=\"b\"=2 #\n --dim c#=3 # no newline");
    PARSE(p, "@a", "--", "@b");
    assert_refused(&p, 200, EXIT_USAGE, "unexpected argument '@b'");
    PARSE(q, "@a");
    assert_int_equal(q.status, 0);
    assert_string_equal(q.options.operand, "my model.onnx");
    assert_string_equal(q.options.output, "out put");
    assert_int_equal(q.options.dims.all.n, 2);
    assert_int_equal(q.options.dims.all.at[0].range.most, 2);
    assert_string_equal(q.options.dims.all.at[1].name, "c#");
    release(&q);
}

static void assert_place(struct parsed *p, const char *where, const char *text) {
    assert_string_equal(p->diags.all.at[0].where, where);
    assert_refused(p, 206, EXIT_USAGE, text);
}

TEST(malformed_response_files_are_E0206_with_their_place) {
    write_text("a", "compile\n  m 'x");
    PARSE(quote, "@a");
    assert_place(&quote, "a:2:5", "quote");
    write_text("a", "compile \\");
    PARSE(backslash, "@a");
    assert_place(&backslash, "a:1:10", "backslash");
    write_bytes("a", "compile\nm\0x", 11);
    PARSE(nul, "@a");
    assert_place(&nul, "a:2:2", "NUL");
}

TEST(hostile_response_files_end_soon) {
    write_text("self", "@self @self @self");
    REFUSES(206, EXIT_USAGE, "nest deeper than 8", "@self");
    write_text("a",
               "@b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b @b");
    write_text("b", "x");
    REFUSES(206, EXIT_USAGE, "more than 64 response files", "@a", "@a");
    enum { BIG = (1 << 20) + 1 };
    char *big = malloc(BIG);
    for (int i = 0; i < BIG; i++) big[i] = i % 2 ? ' ' : 'x';
    write_bytes("big", big, BIG);
    write_bytes("many", big, BIG - 1);
    free(big);
    REFUSES(206, EXIT_USAGE, "more than the limit of 1048576", "@big");
    REFUSES(206, EXIT_USAGE, "more than 65536 arguments", "@many");
}

TEST(only_regular_response_files_are_read) {
    assert_int_equal(mkfifo("pipe", 0600), 0);
    REFUSES(601, EXIT_SYSTEM, "cannot open 'absent'", "@absent");
    REFUSES(601, EXIT_SYSTEM, "not a regular file", "@pipe");
    REFUSES(601, EXIT_SYSTEM, "not a regular file", "@.");
}

int main(void) {
    return run_all_tests("options", enter_temporary_directory, leave_temporary_directory);
}
