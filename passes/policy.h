/* Policies: who computes which part of each node. See policies.def. */
#ifndef PASSES_POLICY_H
#define PASSES_POLICY_H

#include "passes/flood.h"
#include "passes/pipeline.h"

struct policy {
    const char *name;
    const char *axes; /* names of mesh axes it uses, separated by blanks */
    int (*decide)(struct graph *graph, const struct pass_context *context);
    const char *help;
};

extern const struct policy policies[];
extern const int npolicies;

const struct policy *policy_find(const char *name);

int policy_dp(struct graph *graph, const struct pass_context *context);
int policy_data(struct graph *graph, const struct pass_context *context);
int policy_tp(struct graph *graph, const struct pass_context *context);
int policy_pp(struct graph *graph, const struct pass_context *context);
int policy_manual(struct graph *graph, const struct pass_context *context);
int policy_hybrid(struct graph *graph, const struct pass_context *context);

#endif
