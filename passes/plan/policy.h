/* Policies: who computes which part of each node. See policies.def. */
#ifndef PASSES_PLAN_POLICY_H
#define PASSES_PLAN_POLICY_H

#include "passes/pipeline.h"
#include "passes/plan/flood.h"

struct policy {
    const char *name;
    const char *axes; /* names of mesh axes it uses, separated by blanks */
    int (*decide)(struct graph *graph, const struct pass_context *context);
    const char *help;
};

extern const struct policy policies[];
extern const int npolicies;

const struct policy *policy_find(const char *name);

/* Sets the splits of nodes, and with pipelines their stages. Returns -1 after diagnostics. */
#define POLICY(name, axes, decide, help) int decide(struct graph *graph, const struct pass_context *context);
#include "passes/plan/policies.def"
#undef POLICY

#endif
