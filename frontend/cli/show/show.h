/* Printing plans from their manifests. */
#ifndef FRONTEND_CLI_SHOW_H
#define FRONTEND_CLI_SHOW_H

#include "frontend/cli/show/ranks.h"

/* Plans the model cli->options->operand and prints the plan. Returns as cli_show() does. */
int show_model(struct cli *cli);

/* Appends the tree of a plan's nodes in the order of execution. A scope is a part of node names between slashes.
 * Repeated layers are folded into the first (Note [Folding] in show_tree.c). A scope in which all nodes are replicated
 * is one line unless `verbose`. */
void show_tree(struct strbuf *out, const struct compiled_model *compiled, bool verbose);

/* Appends the parameters of a model that is trained and the number of constants, all by name if `verbose`. Nothing for
 * other models. */
void show_parameters(struct strbuf *out, const struct compiled_model *compiled, bool verbose);

/* The text with every number replaced by "#". */
const char *show_pattern(struct arena *arena, const char *text);

/* A string of the manifest, escaped for printing; "?" if the value is not a string. */
const char *show_text(const struct rt_json *value, struct arena *arena);

#endif
