/* Starts the ranks of a compiled program. */
#include "frontend/cli/start.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/cli/ckpt/checkpoint.h"
#include "frontend/driver/output/integrity.h"
#include "passes/plan/machine/machine.h"
#include "runtime/base/io/progress.h"
#include "runtime/base/text/reason.h"
#include "runtime/base/thread/cores.h"
#include "runtime/launch.h"

struct command {
    VEC(char *) words;
};

static void add_word(struct command *command, struct arena *arena, const char *word) {
    VEC_PUSH(arena, &command->words, arena_strdup(arena, word));
}

static void add_option(struct command *command, struct arena *arena, const char *name, const char *value) {
    VEC_PUSH(arena, &command->words, arena_printf(arena, "--%s=%s", name, value));
}

/* The default of --threads: the cores that this process may use, divided by the ranks, which all run on this
 * machine. */
static int64_t default_threads(int64_t ranks) {
    const int64_t cores = rt_cores();
    return cores > ranks ? cores / ranks : 1;
}

static void add_files(struct command *command, struct arena *arena, const char *name,
                      const struct option_files *files) {
    for (int i = 0; i < files->all.n; i++)
        add_option(command, arena, name, arena_printf(arena, "%s=%s", files->all.at[i].name, files->all.at[i].path));
}

/* Adds an option of the program that the user gave. */
static void add_given(struct command *command, const struct options *options, enum option_id id, struct arena *arena) {
    const struct option *row = &option_rows[id];
    const void *field = (const char *)options + row->offset;
    const struct option_texts *texts = field;
    if (row->kind == OPTION_FLAG)
        add_word(command, arena, arena_printf(arena, "--%s", row->name));
    else if (row->kind == OPTION_FILES)
        add_files(command, arena, row->name, field);
    else if (row->kind != OPTION_TEXTS)
        add_option(command, arena, row->name, options_text(options, id, arena));
    for (int i = 0; row->kind == OPTION_TEXTS && i < texts->all.n; i++)
        add_option(command, arena, row->name, texts->all.at[i]);
}

/* Options that the program has under the same names. */
static const enum option_id passed[] = {
#define PROGRAM_OPTION(ID, ...) OPT_##ID,
#include "runtime/base/program_options.def"
    OPT_LR_SCHEDULE,
    OPT_ACCUMULATE,
};

/* What the program is given in other words than rankc, or by default. */
static void add_own(struct command *command, const struct options *options, int64_t ranks, struct arena *arena) {
    const bool is_compiled = is_directory(options->operand);
    add_files(command, arena, "input", &options->inputs);
    add_option(command, arena, "kernels", choice_word(options->kernels));
    if (!options->given[OPT_THREADS])
        add_option(command, arena, "threads", arena_printf(arena, "%" PRId64, default_threads(ranks)));
    if (options->verb == VERB_TRAIN && !options->given[OPT_STEPS]) add_option(command, arena, "steps", "1");
    if (options->profile && *options->profile) add_option(command, arena, "profile", options->profile);
    if (options->profile && !*options->profile) add_word(command, arena, "--profile");
    if (options->adapters.all.n && is_compiled)
        add_option(command, arena, "adapter", options->adapters.all.at[options->adapters.all.n - 1]);
    for (int i = 0; options->verb == VERB_RUN && is_compiled && i < options->dims.all.n; i++)
        add_option(command, arena, "dim",
                   arena_printf(arena, "%s=%s", options->dims.all.at[i].name,
                                open_range_text(arena, &options->dims.all.at[i].range)));
}

static void build_command(struct command *command, const char *program, int64_t ranks, const struct option_texts *more,
                          struct cli *cli) {
    const struct options *options = cli->options;
    add_word(command, cli->arena, program);
    add_own(command, options, ranks, cli->arena);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (options->given[passed[i]] && passed[i] != OPT_STALL_TIMEOUT) /* the launcher's, or mpirun_command's */
            add_given(command, options, passed[i], cli->arena);
    for (int i = 0; more && i < more->all.n; i++) add_word(command, cli->arena, more->all.at[i]);
}

/* Executes a command in place of this process. It inherits the lock. */
static int become(struct command *command, const struct compiled_model *compiled, struct cli *cli) {
    const int lock = compiled->lock;
    VEC_PUSH(cli->arena, &command->words, NULL);
    if (lock >= 0) fcntl(lock, F_SETFD, 0);
    cli_report(cli);
    fflush(NULL);
    execvp(command->words.at[0], command->words.at);
    return diag_error(cli->diags, 601, EXIT_SYSTEM, NULL, "cannot start %s: %s",
                      diag_quote(cli->diags, command->words.at[0]), strerror(errno));
}

/* --comm loopback: the program runs all ranks as threads, so that a debugger sees one process. */
static void add_loopback(struct command *command, const struct compiled_model *compiled, struct cli *cli) {
    add_option(command, cli->arena, "comm", "loopback");
    add_option(command, cli->arena, "world", arena_printf(cli->arena, "%" PRId64, compiled->runtime_ngpus));
}

/* --comm mpi: MPI's launcher starts the ranks. */
static struct command mpirun_command(const struct command *program, const struct compiled_model *compiled,
                                     struct cli *cli) {
    struct command command = {0};
    rt_progress_pass_on();
    add_word(&command, cli->arena, "mpirun");
    add_word(&command, cli->arena, "-n");
    add_word(&command, cli->arena, arena_printf(cli->arena, "%" PRId64, compiled->runtime_ngpus));
    for (int i = 0; i < program->words.n; i++) add_word(&command, cli->arena, program->words.at[i]);
    add_option(&command, cli->arena, "comm", "mpi");
    add_option(&command, cli->arena, "stall-timeout",
               arena_printf(cli->arena, "%" PRId64, cli->options->stall_timeout));
    return command;
}

/* Runs a command as a child process. *lost: see struct rt_launch_command. */
static int launch_command(struct command *command, bool *lost, struct cli *cli) {
    VEC_PUSH(cli->arena, &command->words, NULL);
    const struct rt_launch_command launch = {
        .arguments = (const char *const *)command->words.at, .json = cli->options->json, .lost = lost};
    return rt_launch_command(&launch);
}

static int launch_mpirun(struct command *program, const struct compiled_model *compiled, bool *lost, struct cli *cli) {
    struct command command = mpirun_command(program, compiled, cli);
    return launch_command(&command, lost, cli);
}

static int launch_loopback(struct command *program, const struct compiled_model *compiled, bool *lost,
                           struct cli *cli) {
    add_loopback(program, compiled, cli);
    return launch_command(program, lost, cli);
}

/* Names of instructions for the launcher's reports. */
struct names {
    const struct compiled_model *compiled;
    struct cli *cli;
};

static const char *instruction_name(void *context, int number) {
    const struct names *names = context;
    const struct rt_json *entry = rt_json_item(names->compiled->root, "instructions", number);
    const char *node = rt_json_text(rt_json_member(entry, "node")), *op = rt_json_text(rt_json_member(entry, "op"));
    const char *from = rt_json_text(rt_json_member(entry, "from"));
    if (!node || !op) return NULL;
    return arena_printf(names->cli->arena, "node %s (%s)%s%s", diag_quote(names->cli->diags, node), op, from ? " " : "",
                        from ? rt_quote_text(from).text : "");
}

/* Starts one process per rank. The launcher and the ranks print errors themselves. *lost: see struct rt_launch. */
static int launch_ranks(struct command *command, const struct compiled_model *compiled, bool *lost, struct cli *cli) {
    struct names names = {compiled, cli};
    VEC_PUSH(cli->arena, &command->words, NULL);
    const struct rt_launch launch = {.program = command->words.at[0],
                                     .arguments = (const char *const *)command->words.at + 1,
                                     .ranks = (int)compiled->runtime_ngpus,
                                     .stall_ms = cli->options->stall_timeout * 1000,
                                     .instruction = instruction_name,
                                     .context = &names,
                                     .json = cli->options->json,
                                     .ranks_stop = cli->options->verb != VERB_RUN,
                                     .lost = lost};
    return rt_launch(&launch);
}

/* What the next start resumes from: the newest checkpoint, which this run or an earlier one has written; where there is
 * none, it starts as the first one did. */
static const char *resume_after(int64_t restart, struct cli *cli) {
    const char *newest = checkpoint_newest(cli->options->checkpoint_dir, cli);
    const char *from = newest ? newest : cli->options->resume;
    struct diags diags; /* printed now and not at the end */
    struct cli now = *cli;
    diags_init(&diags, cli->arena);
    diag_remark(&diags, "--restarts", "restart %" PRId64 " of %" PRId64 ", from %s", restart, cli->options->restarts,
                from ? diag_quote(&diags, from) : "the beginning");
    now.diags = &diags;
    cli_report(&now);
    return newest ? "latest" : from;
}

/* Starts the ranks, and again after a rank was lost, up to --restarts times. */
static int launch_again(const char *program, const struct compiled_model *compiled, const struct option_texts *more,
                        struct options *options, struct cli *cli) {
    int (*const launch)(struct command *, const struct compiled_model *, bool *, struct cli *) =
        options->comm == OPT_COMM_MPI        ? launch_mpirun
        : options->comm == OPT_COMM_LOOPBACK ? launch_loopback
                                             : launch_ranks;
    for (int64_t restart = 1;; restart++) {
        struct command command = {0};
        bool lost = false;
        build_command(&command, program, compiled->runtime_ngpus, more, cli);
        const int status = launch(&command, compiled, &lost, cli);
        if (!lost || restart > options->restarts) return status;
        options->resume = resume_after(restart, cli);
        options->given[OPT_RESUME] = options->resume != NULL;
    }
}

static bool is_newer(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* The first source that was edited after the program was built from it; NULL: none. Only files that are newer than the
 * program are read, so that it costs nothing to ask. */
static const char *find_edited(const struct compiled_model *compiled, const char *program, struct cli *cli) {
    const struct rt_json *files = rt_json_member(compiled->root, "files");
    struct stat built, about;
    if (stat(program, &built)) return NULL;
    for (const struct rt_json *file = rt_json_first(files); file; file = file->next) {
        const char *name = rt_json_text(rt_json_member(file, "path"));
        if (!name || strchr(name, '/') || (fnmatch("*.[ch]", name, 0) && fnmatch("*.cu", name, 0))) continue;
        const char *path = arena_printf(cli->arena, "%s/%s", compiled->directory, name);
        if (stat(path, &about) || !is_newer(&about.st_mtim, &built.st_mtim)) continue;
        if (!integrity_check_file(compiled->directory, compiled->root, name, cli->diags)) return path;
    }
    return NULL;
}

/* Warns, before the program starts, that it does not have an edit of its sources. */
static void warn_of_edit(const struct compiled_model *compiled, const char *program, struct cli *cli) {
    const char *path = find_edited(compiled, program, cli);
    struct cli now = *cli;
    if (!path) return;
    struct diags diags = {.arena = cli->arena};
    diag_warning(&diags, 806, path, "the file was edited after the program was built: the edit is not in the program");
    diag_help(&diags, "'make -C %s' builds it", compiled->directory);
    now.diags = &diags;
    cli_report(&now);
}

/* --profile=h100: sets *profile to the text of its machine file, since programs know no machines by name. Other values
 * stay: files, which the program reads, and "". */
static int find_machine(const char **profile, struct cli *cli) {
    struct machine machine;
    if (!*profile || !**profile || strchr(*profile, '/') || strchr(*profile, '.') || access(*profile, F_OK) == 0)
        return 0;
    if (machine_read_of(cli->arena, cli->diags, "--profile", *profile, &machine)) return -1;
    *profile = machine_text(cli->arena, &machine);
    return *profile ? 0 : diag_error(cli->diags, 500, EXIT_LIMIT, NULL, "out of memory");
}

/* E0901 in one of several processes of an MPI launcher: each would start all the ranks. */
static int check_alone(const char *program, struct cli *cli) {
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *size = getenv(sizes[i]);
        if (!size || strtol(size, NULL, 10) < 2) continue;
        diag_error(cli->diags, 901, EXIT_USAGE, NULL, "mpirun started rankc %s times, and each would start all ranks",
                   diag_quote(cli->diags, size));
        return diag_help(cli->diags,
                         "mpirun -n N %s, where N is a multiple of the plan's ranks, or rankc without mpirun", program);
    }
    return 0;
}

int start_program(const struct compiled_model *compiled, const struct option_texts *more, struct cli *all) {
    struct options options = *all->options;
    struct cli here = *all, *cli = &here;
    struct command command = {0};
    here.options = &options;
    if (is_directory(options.operand) && options.adapters.all.n > 1)
        return diag_error(cli->diags, 200, EXIT_USAGE, "--adapter", "one adapter at a time takes part in a program");
    if (find_machine(&options.profile, cli)) return -1;
    const char *program = arena_printf(cli->arena, "%s/build/run", compiled->directory);
    if (check_alone(program, cli)) return -1;
    if (access(program, X_OK)) {
        diag_error(cli->diags, 607, EXIT_SYSTEM, NULL, "cannot find the program %s: %s",
                   diag_quote(cli->diags, program), strerror(errno));
        return diag_help(cli->diags, "build it with 'make -C %s', or run 'rankc compile' again", compiled->directory);
    }
    warn_of_edit(compiled, program, cli);
    const bool one_process = cli->options->comm == OPT_COMM_LOOPBACK;
    if (more || (!one_process && (cli->options->comm != OPT_COMM_MPI || cli->options->restarts)))
        return launch_again(program, compiled, more, &options, cli);
    build_command(&command, program, compiled->runtime_ngpus, NULL, cli);
    if (one_process)
        add_loopback(&command, compiled, cli);
    else
        command = mpirun_command(&command, compiled, cli);
    return become(&command, compiled, cli);
}
