/* Policies that are shared libraries: --pas plugin:FILE. Their interface is rankc_policy.h. */
#ifndef PASSES_PLAN_POLICY_PLUGIN_H
#define PASSES_PLAN_POLICY_PLUGIN_H

#include "passes/plan/policy/rules.h"

struct policy_plugin;

/* *mesh, in the arena, has the library's mesh for that many ranks and no rules. 0, or -1 after a diagnostic: E0428 if
 * it is no such library, or crashes, E0429 if it is of another version of the interface. */
int policy_plugin_open(struct arena *arena, struct diags *diags, const char *path, int plan_ngpus,
                       struct policy_plugin **out, struct rules **mesh);

/* The rules for the graph, in its arena. 0, or -1 after a diagnostic: E0428 if the policy refuses the graph or
 * crashes, E0424 for a rule that is none. */
int policy_plugin_rules(const struct policy_plugin *plugin, const struct graph *graph, struct diags *diags,
                        struct rules **out);

#endif
