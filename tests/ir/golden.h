/* Tests by example: files of cases, each an input text and the text it must give.
 *
 *   === name
 *   input, any number of lines
 *   ---
 *   what the function under test makes of it
 *
 * Cases are separated by blank lines. What comes before the first one is a comment. A test program run as
 * `test --bless [ROOT]` writes what it got into the files instead of comparing; ROOT is the source tree, by default
 * ".".
 */
#ifndef TESTS_IR_GOLDEN_H
#define TESTS_IR_GOLDEN_H

#include <stdbool.h>

#include "ir/base/arena.h"
#include "ir/ir.h"

struct golden {
    const char *root;
    bool bless;
};

struct golden golden_options(int argc, char **argv);

/* Text made of a case's input, in the arena. */
typedef const char *(*golden_fn)(struct arena *arena, const char *input);

/* Runs all cases of root/path; the number of those that differ, each of which is printed, and named in a line FAILED.
 * The file as a whole must be what --bless would write. */
int golden_run(const struct golden *golden, const char *path, golden_fn fn);

/* Calls `visit` with each case's name and input; for tests that have no text to compare. */
void golden_each(const struct golden *golden, const char *path, void (*visit)(const char *name, const char *input));

/* The graph of statements without the first two ("rankc-ir", "graph"); NULL with diagnostics on stderr. */
struct graph *golden_graph(struct arena *arena, const char *statements);

/* Diagnostics as the user sees them. */
const char *golden_diags(struct arena *arena, const struct diags *diags);

#endif
