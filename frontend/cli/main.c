/* rankc: reads the command line, runs the verb, prints the diagnostics, and ends with the exit code. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/cli.h"
#include "frontend/options/help_text.h"
#include "frontend/options/options.h"
#include "runtime/base/io/file.h"

static int (*const verb_functions[VERBS])(struct cli *) = {
#define VERB(ID, NAME, ...) [VERB_##ID] = cli_##NAME,
#include "frontend/options/options.def"
};

struct session {
    struct options options;
    struct arena arena;
    struct diags diags;
};

/* The text for a signal handler, which may only call write(); rendered beforehand in the wanted format of
 * diagnostics. */
static const char *volatile interrupted = "rankc: error: interrupted\n";
static const char interrupted_json[] = "{\"format\": 1, \"severity\": \"error\", \"code\": null, \"text\": "
                                       "\"interrupted\", \"where\": null, \"notes\": []}\n";

static void on_interrupt(int number) {
    ssize_t ignored = write(STDERR_FILENO, interrupted, strlen(interrupted));
    (void)ignored, (void)number;
    _exit(EXIT_INTERRUPTED);
}

/* The write that raised the signal fails. An empty handler instead of SIG_IGN, since exec resets handlers to the
 * default in programs that rankc starts. */
static void on_failed_write(int number) {
    (void)number;
}

static void handle(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    sigemptyset(&action.sa_mask);
    if (!sigaction(number, NULL, &old) && old.sa_handler != SIG_IGN) sigaction(number, &action, NULL);
}

/* Opens /dev/null in the wrong direction for every closed standard stream: writing to it fails and is reported, and no
 * file that rankc opens gets its descriptor. */
static void occupy_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) _exit(EXIT_SYSTEM);
}

/* Memory that one pass gives back is kept for the next one. To return it to the system in between takes longer than
 * some passes. */
static void keep_freed_memory(void) {
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    mallopt(M_MMAP_THRESHOLD, 1 << 25); /* the most that is allowed */
#endif
}

static void prepare_process(void) {
    keep_freed_memory();
    occupy_standard_streams();
    handle(SIGINT, on_interrupt);
    handle(SIGTERM, on_interrupt);
    handle(SIGHUP, on_interrupt);
    handle(SIGPIPE, on_failed_write);
    handle(SIGXFSZ, on_failed_write);
}

/* Prints an error without allocating. */
static void print_plainly(const struct session *session, int code, const char *text) {
    const struct rt_diagnostic item = {.severity = RT_SEVERITY_ERROR, .code = code, .text = text};
    rt_diagnostic_print(&item, stderr, session->options.json ? RT_DIAGNOSTIC_JSON : RT_DIAGNOSTIC_PLAIN);
}

static int print_help(struct cli *cli) {
    struct strbuf text = {.arena = cli->arena};
    if (cli->options->verb == VERB_HELP)
        help_overview(&text);
    else
        help_verb(&text, cli->options->verb);
    return cli_print_text(cli, strbuf_text(&text));
}

static int run(struct session *session, int argc, char **argv) {
    const struct options *options = &session->options;
    struct cli cli = {options, &session->arena, &session->diags};
    diags_init(&session->diags, &session->arena);
    int code = options_parse(&session->options, argc, argv, &session->arena, &session->diags);
    if (options->json) interrupted = interrupted_json;
    if (!code) code = options->help ? print_help(&cli) : verb_functions[options->verb](&cli);
    cli_report(&cli);
    if (code > 0) return code;
    enum exit_code diagnosed = diags_exit(&session->diags);
    if (code && !diagnosed) BUG("%s failed without a diagnostic", verb_rows[options->verb].name);
    return (int)diagnosed;
}

/* A function of its own, so that no local variable changes between setjmp and longjmp. */
static int run_within_memory(struct session *session, int argc, char **argv) {
    jmp_buf failed;
    arena_init(&session->arena, 0, &failed);
    if (!setjmp(failed)) return run(session, argc, argv);
    print_plainly(session, 500, "out of memory");
    return EXIT_LIMIT;
}

/* Fails if results could not be written. */
static int close_output(const struct session *session, int code) {
    if (rt_printed()) return code;
    print_plainly(session, 611,
                  errno == ENOSPC ? "cannot write the results: no space left" : "cannot write the results");
    return code ? code : EXIT_SYSTEM;
}

int main(int argc, char **argv) {
    struct session session = {0};
    prepare_process();
    int code = run_within_memory(&session, argc > 0 ? argc - 1 : 0, argv + 1);
    code = close_output(&session, code);
    arena_free(&session.arena);
    return code;
}
