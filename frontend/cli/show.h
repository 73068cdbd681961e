/* Prints plans, from their manifests. */
#ifndef FRONTEND_CLI_SHOW_H
#define FRONTEND_CLI_SHOW_H

#include "frontend/cli/compiled_model.h"

/* Plans the model cli->options->operand and prints the plan. As cli_*(). */
int show_model(struct cli *cli);

/* The tree of a plan's nodes: scopes are the parts of node names between slashes, in the order of execution, and
 * repeated layers are folded into the first of them. Scopes that are replicated altogether are one line unless
 * `verbose`. `nodes` is the manifest's array. */
void show_tree(struct strbuf *out, const struct compiled_model *compiled, bool verbose);

/* The parameters of a model that is trained, and how many constants there are; all by name if `verbose`. Of other
 * models nothing. */
void show_parameters(struct strbuf *out, const struct compiled_model *compiled, bool verbose);

/* The text with every number as "#". */
const char *show_pattern(struct arena *arena, const char *text);

/* The value as text, "?" if it is not a string, printable. */
const char *show_text(const struct rt_json *value, struct arena *arena);

/* Ranks as text: "0-3,8", "0,2..14". */
struct rank_list {
    VEC(int64_t) all;
};
const char *rank_list_text(const struct rank_list *list, struct arena *arena);
const char *show_ranks(const struct rt_json *ranks, struct arena *arena); /* of an array; "?" if it is none */

#endif
