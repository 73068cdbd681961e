/* rankc compile MODEL.onnx, rankc plan MODEL.onnx. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "frontend/cli/cli.h"
#include "frontend/cli/compiled_model.h"
#include "frontend/cli/format_bytes.h"
#include "frontend/cli/memory.h"
#include "frontend/cli/show/show.h"
#include "frontend/driver/driver.h"
#include "frontend/driver/output/output.h"
#include "frontend/driver/program/build_program.h"
#include "passes/train/lora.h"
#include "runtime/comm/hosts.h"
#include "runtime/base/thread/clock.h"

enum { PIECE = 1 << 20 };

/* The list of files that rank 0 sends, as JSON: {"model", "instance", "trains", "files": [{"path", "bytes", "hash"}]}.
 * Programs, in build/, are in it too. */
struct list {
    struct rt_json_document *document;
    const struct rt_json *root;
};

struct sharing {
    struct cli *cli;
    struct rt_hosts *hosts;
    const char *directory; /* rank 0: of the result */
    struct list list;
    struct output output; /* of a rank that receives */
    bool writes;          /* this rank receives files that its host does not have */
    unsigned char *piece;
};

static int fail_mpi(struct sharing *s) {
    return diag_error(s->cli->diags, 905, EXIT_SYSTEM, "--broadcast", "MPI cannot connect the processes");
}

/* The exit code of the first rank that has failed, 0: none. All ranks get the same. */
static int agree(struct sharing *s, int *exit) {
    return rt_hosts_first(s->hosts, (int)diags_exit(s->cli->diags), exit) ? fail_mpi(s) : 0;
}

/* Rank 0: the list */

static bool is_compilers(const char *path) {
    return strcmp(path, "graph.rir") == 0 || strcmp(path, "plan.json") == 0;
}

static bool is_weights(const char *path) {
    return strncmp(path, "weights/slices-", strlen("weights/slices-")) == 0;
}

static bool is_sent(enum choice broadcast, const char *path) {
    if (broadcast == OPT_BROADCAST_ALL) return true;
    return !is_weights(path) && !(broadcast == OPT_BROADCAST_CODE && is_compilers(path));
}

static int put_file(struct rt_json_writer *writer, struct sharing *s, const char *path) {
    struct rt_reason why;
    struct rt_reader file;
    char hash[RT_HASH_HEX];
    if (!rt_reader_open_below(&file, s->directory, path, &why))
        return diag_refusal(s->cli->diags, 601, EXIT_SYSTEM, NULL, &why);
    const bool hashed = rt_hash_reader(&file, hash, &why);
    rt_json_open(writer, '{', RT_JSON_INLINE);
    rt_json_key_text(writer, "path", path);
    rt_json_key_int(writer, "bytes", file.info.bytes);
    rt_json_key_text(writer, "hash", hashed ? hash : "");
    rt_json_close(writer, '}');
    rt_reader_close(&file);
    return hashed ? 0 : diag_refusal(s->cli->diags, 601, EXIT_SYSTEM, NULL, &why);
}

static int put_files(struct rt_json_writer *writer, struct sharing *s, const struct rt_json *manifest, bool trains) {
    static const char *const others[] = {"manifest.json", "location.json", "build/stamp", "build/run", "build/train"};
    const struct options *options = s->cli->options;
    for (const struct rt_json *file = rt_json_items(manifest, "files"); file; file = file->next) {
        const char *path = rt_json_text(rt_json_member(file, "path"));
        if (path && is_sent(options->broadcast, path) && put_file(writer, s, path)) return -1;
    }
    const int count = options->no_build ? 2 : trains ? 5 : 4;
    for (int i = 0; i < count; i++)
        if (put_file(writer, s, others[i])) return -1;
    return 0;
}

/* The list as text; NULL after diagnostics. */
static const char *list_text(struct sharing *s) {
    struct compiled_model compiled;
    if (compiled_open(&compiled, s->directory, s->cli)) return NULL;
    struct rt_json_writer *writer = own_json_writer(s->cli->arena);
    const bool trains = rt_json_member(compiled.root, "training") != NULL;
    const char *instance = strrchr(s->directory, '/') + 1, *model = instance - 1;
    while (model > s->directory && model[-1] != '/') model--;
    rt_json_open(writer, '{', RT_JSON_LINES);
    rt_json_key(writer, "model");
    rt_json_put_bytes(writer, model, (size_t)(instance - 1 - model));
    rt_json_key_text(writer, "instance", instance);
    rt_json_key_bool(writer, "trains", trains);
    rt_json_key_open(writer, "files", '[', RT_JSON_LINES);
    const int status = put_files(writer, s, compiled.root, trains);
    rt_json_close(writer, ']');
    rt_json_close(writer, '}');
    compiled_close(&compiled);
    return status ? NULL : own_json_end(s->cli->arena, writer);
}

static const char *compile_here(struct sharing *s, struct driver_result *result) {
    const struct options *options = s->cli->options;
    if (options->broadcast == OPT_BROADCAST_ALL && options->weights == OPT_WEIGHTS_REFERENCE)
        diag_remark(s->cli->diags, "--broadcast",
                    "the weights are in the model's files, which are not sent; --weights=copy puts them into DIR");
    if (driver_compile(options, s->cli->arena, s->cli->diags, result)) return NULL;
    s->directory = result->directory;
    return list_text(s);
}

/* All ranks get the list; *exit: of rank 0, if it has failed. */
static int send_list(struct sharing *s, const char *text, int *exit) {
    struct rt_reason why;
    size_t bytes = text ? strlen(text) : 0;
    if (rt_hosts_wait(s->hosts) || agree(s, exit)) return fail_mpi(s);
    if (*exit) return 0;
    if (rt_hosts_broadcast(s->hosts, &bytes, sizeof bytes)) return fail_mpi(s);
    char *copy = text ? arena_strdup(s->cli->arena, text) : ARENA_ARRAY(s->cli->arena, char, bytes + 1);
    if (rt_hosts_broadcast(s->hosts, copy, bytes)) return fail_mpi(s);
    s->list.document = own_json_text(s->cli->arena, copy, &why);
    if (!s->list.document) return diag_refusal(s->cli->diags, 803, EXIT_MALFORMED, "--broadcast", &why);
    s->list.root = rt_json_root(s->list.document);
    return 0;
}

static const struct rt_json *first_file(const struct sharing *s) {
    return rt_json_items(s->list.root, "files");
}

static const char *path_of(const struct rt_json *file) {
    return rt_json_text(rt_json_member(file, "path"));
}

static bool is_program(const char *path) {
    return strncmp(path, "build/", strlen("build/")) == 0;
}

/* True if the host's result has the files already. Its programs may have been built for this processor. */
static bool has_files(const struct sharing *s) {
    char hash[RT_HASH_HEX];
    struct rt_reason why;
    for (const struct rt_json *file = first_file(s); file; file = file->next)
        if (!is_program(path_of(file)) && (!rt_hash_file_below(s->output.directory, path_of(file), hash, &why) ||
                                           strcmp(hash, rt_json_text(rt_json_member(file, "hash"))) != 0))
            return false;
    return true;
}

static bool is_built(const struct sharing *s, const char *directory) {
    bool trains = false;
    rt_json_bool(rt_json_member(s->list.root, "trains"), &trains);
    return s->cli->options->no_build || build_is_current(s->cli->arena, directory, trains);
}

static int open_output(struct sharing *s) {
    const struct options *options = s->cli->options;
    const char *model = rt_json_text(rt_json_member(s->list.root, "model")),
               *instance = rt_json_text(rt_json_member(s->list.root, "instance"));
    if (output_open(&s->output, s->cli->arena, s->cli->diags, options->output, model, instance,
                    (long)options->lock_timeout))
        return -1;
    s->writes = !has_files(s) || !is_built(s, s->output.directory);
    if (!s->writes) return 0;
    return output_own(&s->output) || output_begin(&s->output) ? -1 : 0;
}

/* Sends a file from rank 0, where `from` is open, to the ranks where `to` is. */
static int send_bytes(struct sharing *s, const struct rt_json *file, const struct rt_reader *from,
                      struct output_stream *to) {
    struct rt_hash hash;
    struct rt_reason why;
    char found[RT_HASH_HEX];
    const int64_t bytes = rt_json_number(file, "bytes", 0);
    rt_hash_start(&hash);
    for (int64_t done = 0, piece; done < bytes; done += piece) {
        piece = bytes - done < PIECE ? bytes - done : PIECE;
        if (from && !rt_reader_get(from, done, s->piece, (size_t)piece, &why)) /* goes on: others wait for the bytes */
            diag_refusal(s->cli->diags, 604, EXIT_SYSTEM, NULL, &why), from = NULL;
        if (rt_hosts_broadcast(s->hosts, s->piece, (size_t)piece)) return fail_mpi(s);
        rt_hash_add(&hash, s->piece, (size_t)piece);
        if (to) output_put(to, s->piece, (size_t)piece);
    }
    rt_hash_hex(&hash, found);
    if (!to || strcmp(found, rt_json_text(rt_json_member(file, "hash"))) == 0) return 0;
    return diag_error(s->cli->diags, 604, EXIT_SYSTEM, path_of(file), "file changed while it was sent");
}

static int send_file(struct sharing *s, const struct rt_json *file) {
    const char *path = path_of(file);
    struct rt_reason why;
    struct rt_reader from;
    const bool sends = s->directory && rt_reader_open_below(&from, s->directory, path, &why);
    if (s->directory && !sends) diag_refusal(s->cli->diags, 601, EXIT_SYSTEM, NULL, &why);
    struct output_stream *to = s->writes && !s->cli->diags->errors ? output_stream_open(&s->output, path) : NULL;
    const int status = send_bytes(s, file, sends ? &from : NULL, to);
    if (sends) rt_reader_close(&from);
    if (!to || output_stream_close(to)) return status;
    const char *full = arena_printf(s->cli->arena, "%s/%s", s->output.staging, path);
    return is_program(path) && chmod(full, 0755) ? diag_errno(s->cli->diags, 611, NULL, "write", full) : status;
}

/* Builds what rank 0 has built for another processor or with another runtime, and puts the result in its place. */
static int finish(struct sharing *s) {
    struct cli *cli = s->cli;
    if (!s->writes) return 0;
    if (!cli->options->no_build && build_link_runtime(cli->arena, cli->diags, s->output.staging)) return -1;
    if (!is_built(s, s->output.staging) &&
        build_program(cli->arena, cli->diags, s->output.staging, cli->options->quiet || cli->options->json))
        return -1;
    return 0;
}

static int send_files(struct sharing *s, int *exit) {
    int needed;
    if (rt_hosts_receives(s->hosts)) open_output(s);
    if (agree(s, exit) || *exit) return *exit ? 0 : -1;
    if (rt_hosts_first(s->hosts, s->writes, &needed)) return fail_mpi(s);
    if (!needed) return 0;
    s->piece = ARENA_ARRAY(s->cli->arena, unsigned char, PIECE);
    for (const struct rt_json *file = first_file(s); file; file = file->next) send_file(s, file);
    if (!s->cli->diags->errors) finish(s);
    if (agree(s, exit) || *exit) return *exit ? 0 : -1;
    if (s->writes) output_commit(&s->output);
    return agree(s, exit);
}

/* Prints the diagnostics while the other ranks wait in MPI_Finalize: mpirun ends all processes when the first one ends
 * with an error. Returns the exit code. */
static int report_now(struct cli *cli) {
    const int exit = (int)diags_exit(cli->diags);
    cli_report(cli);
    diags_init(cli->diags, cli->arena);
    return exit;
}

/* rankc compile --broadcast: rank 0 of an MPI job compiles as driver_compile does, and sends the files of --broadcast.
 * The lowest rank of each other host writes them below options->output as an atomic replacement, and builds the
 * programs if rank 0's are not for its processor. No host writes anything unless all have received everything. *first:
 * this is rank 0, and *result is set.
 *
 * 0; the exit code of the first rank that failed, whose diagnostics are printed already; or -1 after diagnostics. */
static int broadcast_compile(struct cli *cli, struct driver_result *result, bool *first) {
    struct sharing *s = ARENA_NEW(cli->arena, struct sharing); /* the arena closes its output if memory is exhausted */
    char why[320];
    int exit = 0;
    *s = (struct sharing){.cli = cli, .output = {.lock = -1}};
    if (rt_hosts_open(&s->hosts, why, sizeof why)) {
        diag_error(cli->diags, 905, EXIT_USAGE, "--broadcast", "%s", why);
        return diag_help(cli->diags, "start it as 'mpirun -n PROCESSES rankc compile ..', with a process on each host");
    }
    *first = rt_hosts_rank(s->hosts) == 0;
    const char *text = *first ? compile_here(s, result) : NULL;
    int status = send_list(s, text, &exit);
    if (!status && !exit) status = send_files(s, &exit);
    output_close(&s->output);
    if (status || cli->diags->errors) exit = report_now(cli);
    rt_hosts_close(s->hosts);
    return exit;
}

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

/* True for a shape without elements, whose input needs no data. */
static bool is_empty(const struct rt_json *shape) {
    int64_t extent;
    for (const struct rt_json *dim = rt_json_first(shape); dim; dim = dim->next)
        if (rt_json_int(dim, &extent) && !extent) return true;
    return false;
}

/* Prints the command that starts the program, with a file for every input; only a program of the user runs a module. */
static void print_command(const struct compiled_model *compiled, const char *directory, struct cli *cli) {
    const struct rt_json *trains = rt_json_member(compiled->root, "training");
    if (rt_json_member(trains, "module")) {
        printf("call it from a program: %s/model.h declares its functions\n", directory);
        return;
    }
    if (rt_json_member(compiled->root, "generation")) {
        printf("write with it: rankc generate %s --prompt TEXT\n", directory);
        return;
    }
    printf("%s it with: rankc %s %s", trains ? "train" : "run", trains ? "train" : "run", directory);
    for (const struct rt_json *input = rt_json_items(compiled->root, "inputs"); input; input = input->next) {
        const char *name = rt_json_text(rt_json_member(input, "name"));
        if (name && !(trains && is_empty(rt_json_member(input, "shape"))))
            printf(" --%s %s=FILE", trains ? "data" : "input", str_escape(cli->arena, name, strlen(name), 0));
    }
    printf("%s\n", trains ? " --steps S" : "");
}

/* Prints the result's directory, the memory of a rank, and the command to run. */
static void print_text(const struct compiled_model *compiled, const char *program, enum driver_made made,
                       struct cli *cli) {
    int64_t ranks = compiled->runtime_ngpus, largest = 0;
    for (const struct rt_json *class = rt_json_items(compiled->root, "classes"); class; class = class->next) {
        int64_t bytes[MEMORY_KINDS];
        memory_of_class(compiled, class, "memory", bytes);
        if (bytes[MEMORY_PEAK] > largest) largest = bytes[MEMORY_PEAK];
    }
    const char *directory = str_escape(cli->arena, compiled->directory, strlen(compiled->directory), 0);
    printf("%s: %" PRId64 " rank%s, %s each%s\n", directory, ranks, ranks == 1 ? "" : "s", format_bytes(largest).text,
           kept[made].text);
    if (program) print_command(compiled, directory, cli);
}

static void print_parameters(const struct compiled_model *compiled, struct cli *cli) {
    struct strbuf out = {.arena = cli->arena};
    show_parameters(&out, compiled, false);
    fputs(strbuf_text(&out), stdout);
}

static int length_of(const struct rt_json *list) {
    int n = 0;
    for (const struct rt_json *at = rt_json_first(list); at; at = at->next) n++;
    return n;
}

/* -v: what was made, in which time, and the memory of each kind of rank. */
static void tell_details(const struct compiled_model *compiled, int64_t started, struct cli *cli) {
    const struct rt_json *root = compiled->root, *classes = rt_json_member(root, "classes");
    const char *key = rt_json_text(rt_json_member(rt_json_member(rt_json_member(root, "keys"), "plan"), "key"));
    int number = 0;
    cli_tell(cli, "%d node(s), %d instruction(s), %d file(s), plan key %s; %.1f s",
             length_of(rt_json_member(root, "nodes")), length_of(rt_json_member(root, "instructions")),
             length_of(rt_json_member(root, "files")), key ? key : "?", (double)(rt_now_ms() - started) / 1000);
    for (const struct rt_json *class = rt_json_first(classes); class; class = class->next, number++) {
        int64_t bytes[MEMORY_KINDS];
        struct strbuf text = {.arena = cli->arena};
        memory_of_class(compiled, class, "memory", bytes);
        for (int i = 0; i < MEMORY_KINDS; i++)
            if (bytes[i])
                strbuf_printf(&text, "%s%s %s", text.length ? ", " : "", memory_kinds[i], format_bytes(bytes[i]).text);
        cli_tell(cli, "program %d of %d: %s", number + 1, length_of(classes), strbuf_text(&text));
    }
}

/* --dump-after: prints the graph after that pass as text IR. 0, or -1 after diagnostics. */
/* --dump-after and --lora list, which take the place of what the verb does. */
static bool only_prints(const struct options *options) {
    return options->dump_after || (options->loras.all.n == 1 && strcmp(options->loras.all.at[0], "list") == 0);
}

static int cli_dump(struct cli *cli) {
    const char *text;
    struct graph *graph;
    if (cli->options->dump_after)
        return driver_dump(cli->options, cli->arena, cli->diags, &text) ? -1 : cli_print_text(cli, text);
    if (driver_adaptable(cli->options, cli->arena, cli->diags, &graph)) return -1;
    return cli_print_text(cli, lora_list(graph, cli->arena));
}

int cli_compile(struct cli *cli) {
    const struct options *options = cli->options;
    struct compiled_model compiled;
    struct driver_result result;
    const int64_t started = rt_now_ms();
    if (only_prints(options)) return cli_dump(cli);
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
    return only_prints(cli->options) ? cli_dump(cli) : show_model(cli);
}
