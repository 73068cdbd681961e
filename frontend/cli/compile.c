/* rankc compile MODEL.onnx, rankc plan MODEL.onnx. */
#include <inttypes.h>
#include <stdio.h>

#include "frontend/cli/cli.h"
#include "frontend/cli/compiled_model.h"
#include "frontend/cli/format_bytes.h"
#include "frontend/cli/memory.h"
#include "frontend/cli/show/show.h"
#include "frontend/driver/driver.h"
#include "runtime/base/thread/clock.h"

/* Texts for enum driver_made: in JSON, and for people. */
static const struct {
    const char *word, *text;
} kept[] = {
    [MADE_ALL] = {"nothing", ""}, [MADE_CODE] = {"graph", " (graph kept)"}, [MADE_NOTHING] = {"all", " (reused)"}};

/* {"graph": {"key", "parts"}, "plan": ..}, as in manifest.json. */
static void put_keys(struct rt_json_writer *writer, const struct rt_json *keys) {
    static const char *const names[] = {"graph", "plan"};
    rt_json_open(writer, '{', RT_JSON_LINES);
    for (int i = 0; i < 2; i++) {
        const struct rt_json *key = rt_json_member(keys, names[i]), *parts = rt_json_member(key, "parts");
        const char *hex = rt_json_text(rt_json_member(key, "key"));
        rt_json_key_open(writer, names[i], '{', RT_JSON_LINES);
        rt_json_key_text(writer, "key", hex ? hex : "");
        rt_json_key_open(writer, "parts", '{', RT_JSON_LINES);
        bool listed = parts && parts->kind == RT_JSON_OBJECT;
        for (const struct rt_json *part = listed ? parts->first : NULL; part; part = part->next) {
            const char *value = rt_json_text(part);
            rt_json_key_bytes(writer, part->key, part->key_bytes), rt_json_put_text(writer, value ? value : "");
        }
        rt_json_close(writer, '}');
        rt_json_close(writer, '}');
    }
    rt_json_close(writer, '}');
}

static int print_json(const struct compiled_model *compiled, const char *program, enum driver_made made,
                      struct cli *cli) {
    struct rt_json_writer *writer = own_json_writer(cli->arena);
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key_int(writer, "format", 1);
    rt_json_key_text(writer, "directory", compiled->directory);
    rt_json_key_int(writer, "plan_ngpus", compiled->plan_ngpus);
    rt_json_key_int(writer, "runtime_ngpus", compiled->runtime_ngpus);
    rt_json_key_text(writer, "reused", kept[made].word);
    rt_json_key(writer, "keys"), put_keys(writer, rt_json_member(compiled->root, "keys"));
    rt_json_key_text(writer, "program", program);
    rt_json_close(writer, '}');
    return cli_print_json(cli, writer);
}

/* Prints the command that starts the program, with a file for every input; only a program of the user runs a module. */
static void print_command(const struct compiled_model *compiled, const char *directory, struct cli *cli) {
    const struct rt_json *inputs = rt_json_member(compiled->root, "inputs");
    const struct rt_json *trains = rt_json_member(compiled->root, "training");
    if (rt_json_member(trains, "module")) {
        printf("call it from a program: %s/model.h declares its functions\n", directory);
        return;
    }
    printf("%s it with: rankc %s %s", trains ? "train" : "run", trains ? "train" : "run", directory);
    for (const struct rt_json *input = inputs ? inputs->first : NULL; input; input = input->next) {
        const char *name = rt_json_text(rt_json_member(input, "name"));
        if (name) printf(" --%s %s=FILE", trains ? "data" : "input", str_escape(cli->arena, name, strlen(name), 0));
    }
    printf("%s\n", trains ? " --steps S" : "");
}

/* Prints the result's directory, the memory of a rank, and the command to run. */
static void print_text(const struct compiled_model *compiled, const char *program, enum driver_made made,
                       struct cli *cli) {
    int64_t ranks = compiled->runtime_ngpus, largest = 0;
    const struct rt_json *all = rt_json_member(compiled->root, "classes");
    for (const struct rt_json *class = all ? all->first : NULL; class; class = class->next) {
        int64_t bytes[MEMORY_KINDS];
        memory_of_class(compiled, class, bytes);
        if (bytes[MEMORY_PEAK] > largest) largest = bytes[MEMORY_PEAK];
    }
    const char *directory = str_escape(cli->arena, compiled->directory, strlen(compiled->directory), 0);
    printf("%s: %" PRId64 " rank%s, %s each%s\n", directory, ranks, ranks == 1 ? "" : "s", format_bytes(largest).text,
           kept[made].text);
    if (program) print_command(compiled, directory, cli);
}

static void print_parameters(const struct compiled_model *compiled, struct cli *cli) {
    struct strbuf out;
    strbuf_init(&out, cli->arena);
    show_parameters(&out, compiled, false);
    fputs(strbuf_text(&out), stdout);
}

static int length_of(const struct rt_json *list) {
    int n = 0;
    for (const struct rt_json *at = list && list->kind == RT_JSON_ARRAY ? list->first : NULL; at; at = at->next) n++;
    return n;
}

/* -v: what was made, in which time, and the memory of each kind of rank. */
static void tell_details(const struct compiled_model *compiled, int64_t started, struct cli *cli) {
    const struct rt_json *root = compiled->root, *classes = rt_json_member(root, "classes");
    const char *key = rt_json_text(rt_json_member(rt_json_member(rt_json_member(root, "keys"), "plan"), "key"));
    int number = 0;
    cli_tell(cli, "%d nodes, %d instructions, %d files, plan key %s; %.1f s", length_of(rt_json_member(root, "nodes")),
             length_of(rt_json_member(root, "instructions")), length_of(rt_json_member(root, "files")), key ? key : "?",
             (double)(rt_now_ms() - started) / 1000);
    for (const struct rt_json *class = classes ? classes->first : NULL; class; class = class->next, number++) {
        int64_t bytes[MEMORY_KINDS];
        struct strbuf text;
        strbuf_init(&text, cli->arena);
        memory_of_class(compiled, class, bytes);
        for (int i = 0; i < MEMORY_KINDS; i++)
            if (bytes[i])
                strbuf_printf(&text, "%s%s %s", text.length ? ", " : "", memory_kinds[i], format_bytes(bytes[i]).text);
        cli_tell(cli, "program %d of %d: %s", number + 1, length_of(classes), strbuf_text(&text));
    }
}

/* --dump-after: prints the graph after that pass as text IR. 0, or -1 after diagnostics. */
static int cli_dump(struct cli *cli) {
    const char *text;
    if (driver_dump(cli->options, cli->arena, cli->diags, &text)) return -1;
    return cli_print_text(cli, text);
}

int cli_compile(struct cli *cli) {
    const struct options *options = cli->options;
    struct compiled_model compiled;
    struct driver_result result;
    const int64_t started = rt_now_ms();
    if (options->dump_after) return cli_dump(cli);
    bool first = true;
    int status = options->broadcast == OPT_BROADCAST_NONE ? driver_compile(options, cli->arena, cli->diags, &result)
                                                          : broadcast_compile(cli, &result, &first);
    if (status || !first) return status;
    if (options->quiet && !options->json) return 0;
    const char *directory = result.directory;
    if (compiled_open(&compiled, directory, cli)) return -1;
    const char *program = options->no_build ? NULL : arena_printf(cli->arena, "%s/build/run", directory);
    if (options->json)
        status = print_json(&compiled, program, result.made, cli);
    else
        print_text(&compiled, program, result.made, cli);
    if (!status && options->verbose && !options->json) print_parameters(&compiled, cli);
    if (!status) tell_details(&compiled, started, cli);
    compiled_close(&compiled);
    return status;
}

int cli_plan(struct cli *cli) {
    return cli->options->dump_after ? cli_dump(cli) : show_model(cli);
}
