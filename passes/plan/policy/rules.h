/* Rule files (--pas manual:FILE): splits and stages that the user chooses, by node name.
 *
 *   mesh tensor=2 pipeline=2                     optional, first; else --plan-ngpus devices along "tensor"
 *   match "*.c_attn*" split in1.1 stride=3       split dimension 1 of the node's second input in three blocks
 *   match "*.c_proj*" split "*.weight".0 axis=tensor
 *   match "*ln*" split in0.0 axis=data,tensor     nested cuts: the ranks along "tensor" divide each part along "data"
 *   match "*lm_head*" replicate
 *   match "h.6*" stage 1                         for all nodes from here to the next rule with a stage, but for
 *                                                those of Note [Results that gradients share] in stages.h
 *
 * The pattern is a glob over node names (* ? []). The tensor is in0 in1 .. out0, or a glob over the names of the node's
 * tensors. The last rule that matches a node decides, separately for its split and for its stage. Splits propagate to
 * nodes that no rule matches (Note [Propagation]). A rule that matches no node is an error. # begins a comment. */
#ifndef PASSES_PLAN_RULES_H
#define PASSES_PLAN_RULES_H

#include "passes/plan/constrain/constraints.h"

/* Parses a file's bytes, which need not be well-formed. *out lies in the arena and keeps `file`. 0, or -1 after
 * diagnostics (E0424 with line and column). */
int rules_parse(struct arena *arena, struct diags *diags, const char *file, const char *bytes, size_t length,
                struct constraints **out);

/* Policies that are shared libraries: --pas plugin:FILE. Their interface is rankc_policy.h. */

struct policy_plugin;

/* *mesh, in the arena, has the library's mesh for that many ranks and no rules. 0, or -1 after a diagnostic: E0428 if
 * it is no such library, or crashes, E0429 if it is of another version of the interface. */
int policy_plugin_open(struct arena *arena, struct diags *diags, const char *path, int plan_ngpus,
                       struct policy_plugin **out, struct constraints **mesh);

/* The rules for the graph, in its arena. 0, or -1 after a diagnostic: E0428 if the policy refuses the graph or
 * crashes, E0424 for a rule that is none. */
int policy_plugin_rules(const struct policy_plugin *plugin, const struct graph *graph, struct diags *diags,
                        struct constraints **out);

#endif
