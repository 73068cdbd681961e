/* The verbs of the command line: cli_<verb>() for every VERB row of frontend/options/options.def, each in a file of
 * that name. They print results to stdout; diagnostics go to cli->diags, which main prints. */
#ifndef FRONTEND_CLI_CLI_H
#define FRONTEND_CLI_CLI_H

#include "frontend/options/options.h"
#include "ir/base/own.h"
#include "ir/base/str.h"

struct cli {
    const struct options *options;
    struct arena *arena;
    struct diags *diags;
};

/* Each returns an exit code, or -1 for the exit code of its diagnostics. */
#define VERB(ID, NAME, ...) int cli_##NAME(struct cli *cli);
#include "frontend/options/options.def"
#include "frontend/driver/driver.h"

/* Prints the diagnostics. main calls it after the verb; a verb calls it only before it executes another program. */
void cli_report(struct cli *cli);

/* Completes the JSON text and prints it to stdout: 0, or -1 after a diagnostic. */
int cli_print_json(struct cli *cli, struct rt_json_writer *writer);

/* Prints a text as the result; with --json as {"format": 1, "text": ".."}. 0, or -1 after a diagnostic. */
int cli_print_text(struct cli *cli, const char *text);

/* Prints what a verb has done; with -q nothing, unless --json asks for it. 0, or -1 after a diagnostic. */
int cli_confirm(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a part of the result to stdout, as rt_plurals leaves it: names in it are quoted. */
void cli_print(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* -v: prints a detail, "rankc: ..", as a line on stderr; without -v, and with --json, nothing. */
void cli_tell(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parts of verbs that have files of their own */

/* rankc ops --check FILE: tries the operators that a file declares (docs/user-operators.md), in compiled programs.
 *
 * For every type that an operator has kernels for, and every alternative of its annotation, with small random inputs:
 *
 *   splits     each dimension that can be divided, among 2 and among 3 ranks: the result is that of one rank
 *   types      the result is that of the kernel for f64
 *   gradient   along random directions, the gradient is the finite difference of results, in f64 or f32
 *
 * Prints a line per operator: 0, or -1 with E1105 for a wrong operator or another diagnostic. */
int ops_check(const char *path, struct cli *cli);

#endif
