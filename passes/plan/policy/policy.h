/* Parallel policies (rows of policies.def): a policy decides how the nodes of a graph are split among ranks. It reads
 * the graph and returns a plan; plan_apply changes the graph. */
#ifndef PASSES_PLAN_POLICY_H
#define PASSES_PLAN_POLICY_H

#include "passes/pipeline.h"
#include "passes/plan/machine/machine.h"
#include "passes/plan/propagation.h"

struct schedule_choice; /* passes/plan/schedule/schedules.h */

struct policy {
    const char *name;
    const char *axes; /* names of the mesh axes that it uses, separated by blanks; "FILE": those of a rule file */
    int (*decide)(struct draft *draft, const struct pass_context *context);
    const char *help;
};

extern const struct policy policies[];
extern const int npolicies;

/* Tensor parallelism in two steps, between which policy hybrid decides context: policy_products splits products and
 * what follows from them. policy_sequence, with --sequence-parallel, splits the nodes between them along the sequence.
 */
void policy_products(struct draft *draft, const struct pass_context *context);
int policy_sequence(struct draft *draft, const struct pass_context *context);

/* The number of groups of samples that experts' buffers keep apart (Note [Buffers of experts]); 1: there are none. */
int64_t policy_groups(const struct graph *graph);

/* Splits dimension 0 of every input, in units of such groups where they divide it, and propagates. Remarks which inputs
 * have too few samples. 0, or -1 after E0420 where an open number of samples cannot be divided. */
int policy_split_batch(struct propagation *propagation, int64_t groups, const char *policy, struct diags *diags);

/* Splits the node by the positions of its operand (batch, positions, features), and propagates up to the nodes that are
 * split already. False if the node cannot be split so. */
bool policy_split_positions(struct propagation *propagation, int node, int operand);

/* In training: where a node of the forward phase reads parts of parameters, splits their updates likewise. */
void policy_divide_updates(struct propagation *propagation, int node);

/* Remarks how much of the work every rank of the axis does in full, if that is more than a hundredth of it. */
void policy_report_replicated(struct propagation *propagation, const char *policy, struct diags *diags);

/* Propagates the splits of the draft that are fixed, along all axes. */
void policy_propagate_fixed(struct draft *draft);

/* Applies the constraints and rules of the context to a draft in which nothing is decided: sets limits, fixed, stages
 * that are given, and the splits of nodes that they give, with those to which these propagate. 0, or -1 after the
 * errors of constraints_check, E0438 for a pin and E0420 for a rule that cannot be, or those of plan_refine. Of axes
 * that only some stages have, policy_constrain_stages does, when the nodes' stages are decided, what splits propagate
 * and pins give. */
int policy_constrain(struct draft *draft, const struct pass_context *context);
int policy_constrain_stages(struct draft *draft, const struct pass_context *context);

/* The functions of the rows: each sets the splits of the draft's nodes, and their pipeline stages. 0, or -1 after
 * diagnostics. */
#define POLICY(name, axes, decide, help) int decide(struct draft *draft, const struct pass_context *context);
#include "passes/plan/policy/policies.def"
#undef POLICY

/* Seconds of all nodes with the splits that the draft has so far, the redistributions between them included, on the
 * slowest rank. of_node, unless NULL: those of each node id are added there; of nodes that one kernel will compute, the
 * one with the kernel's first result has all. */
double plan_seconds(const struct draft *draft, const struct pass_context *context, double *of_node);

/* Seconds of the slowest rank of a pipeline, as policy pp divides a model of equal layers, of which one takes
 * seconds[stage], and of what takes as long as `rest` of them, in the last stage. Stages have whole layers if that is
 * nearly as fast as what can be had with parts of layers. For predictions: no graph is needed. */
double policy_pp_of_layers(const double *seconds, double rest, int layers, int ranks,
                           const struct schedule_choice *schedule, struct arena *arena);

/* Bytes of weights that the plan leaves whole on every rank of the axis; *divided: of those that ranks divide. */
int64_t plan_whole_weights(struct propagation *propagation, int64_t *divided);
/* True if a reader of the stored tensor needs it whole. */
bool plan_needs_whole(struct propagation *propagation, int tensor);

#endif
