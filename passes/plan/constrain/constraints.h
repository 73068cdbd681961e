/* Constraints on the splits of single nodes, which hold for every policy and for the search of autodist.
 *
 * They come from rules (policy/rules.h), from patterns of node names (--require and --forbid GLOB:TENSOR.DIM), and from
 * a constraint file (--constraints FILE.yaml), with the keys and the meaning of nnScaler's partition constraints:
 *
 *   - name: MatMul                   operator, as `rankc plan --json` names it; a glob
 *     parent_module: attn            the part of the node's name before its last component; a glob
 *     allowed_partition_dims:        INPUT,DIM: a node may be split in these dimensions and in no others
 *       - 1,1
 *     replica_allowed: false         the node must be split; true unless it is given
 *
 * A constraint concerns nodes of the forward phase, whose gradients follow them; a rule nodes of every phase. Of the
 * entries of a file the one with the longest parent_module that fits decides a node, of rules the last one, separately
 * for its split and for its stage. A node is only whole, as replica_allowed means it, if it is split along no mesh
 * axis; on a stage of one rank every constraint of a file holds, as in nnScaler. */
#ifndef PASSES_PLAN_CONSTRAINTS_H
#define PASSES_PLAN_CONSTRAINTS_H

#include "passes/plan/plan.h"

enum constraint_kind {
    CONSTRAINT_ALLOW,  /* the node is split in the listed dimensions and in no others */
    CONSTRAINT_FORBID, /* the node is not split in the listed dimensions */
    CONSTRAINT_PIN,    /* the node is split in the one listed dimension, in `stride` blocks, along `axis` */
    CONSTRAINT_STAGE   /* the node is of pipeline stage `stage` */
};

enum constraint_source { FROM_OPTION, FROM_FILE, FROM_RULES };

/* Dimension `dim` of a tensor of a node, whose name is one of split_operand. */
struct constraint_dim {
    const char *tensor;
    int dim;
};

struct constraint {
    enum constraint_kind kind;
    enum constraint_source source;
    const char *place;              /* where it was given, for messages */
    const char *op, *module, *node; /* globs, NULL: any */
    VEC(struct constraint_dim) dims;
    const char *axis[RT_MAX_AXES]; /* of a PIN: of nested cuts that of the outermost first */
    int naxes;
    int64_t stride, stage;
    bool replica; /* the node may be whole */
};

struct constraints {
    const char *file; /* NULL: none */
    struct mesh mesh; /* of rules; naxes 0: none given */
    VEC(struct constraint) all;
    const struct plan *refine; /* a partial plan (--refine); NULL: none */
    bool checked; /* constraints_check was done, with a graph from which this one was made by leaving out layers */
};

/* Adds the entries of a constraint file. 0, or -1 after diagnostics (E0437 with line and column). */
int constraints_parse_file(struct constraints *constraints, struct arena *arena, struct diags *diags, const char *file,
                           const char *bytes, size_t length);

/* True if a word of --require or --forbid is for nodes: it has a colon, and none of the form
 * NAME=VALUE before it, as schedule=interleaved:v=2 has. */
bool constraint_is_of_nodes(const char *word);

/* Adds GLOB:TENSOR.DIM[@AXIS] or GLOB:replicate; TENSOR as in split_operand. 0, or -1 after E0205. */
int constraints_parse_word(struct constraints *constraints, struct arena *arena, struct diags *diags,
                           const char *option, const char *word, bool forbids);

/* 0, or -1 after E0437, of rules E0424, for each constraint that concerns no node of the graph, no dimension of its
 * nodes, or an axis that the mesh does not have. */
int constraints_check(const struct constraints *constraints, const struct graph *graph, struct diags *diags);

/* Which constraints concern each node of a graph. */
struct limits {
    const struct graph *graph;
    struct {
        VEC(const struct constraint *) all;
    } * of;    /* by node id */
    int ranks; /* of a stage: those among which nodes can be split */
};

/* Finds them, and checks them as constraints_check does unless `checked`; NULL after errors. In the graph's arena. */
struct limits *limits_find(const struct graph *graph, const struct constraints *constraints, struct diags *diags);

/* The rule that decides the node's stage or, if not `stage`, its split; NULL: there is none. */
const struct constraint *limits_rule(const struct limits *limits, int node, bool stage);

/* The number of the listed dimension's operand in a node's annotation; -1: the node has no such dimension. */
int constraint_operand(const struct graph *graph, int node, const struct dims *dims,
                       const struct constraint_dim *listed);

/* The axis of the mesh along which cut number `level` of a pin divides nodes; -1: the mesh has no such axis. */
int constraint_axis(const struct graph *graph, const struct constraint *pin, int level);

/* True if the draft splits the node along axis number `level` of the pin in the dimension that it lists. */
bool limits_pinned(const struct draft *draft, int node, const struct dims *dims, const struct constraint *pin,
                   int level);

/* True if the constraints allow the node this split. */
bool limits_allow(const struct limits *limits, int node, const struct dims *dims, const struct node_split *split);

/* Checks what a policy has decided. 0, or -1 after E0438 for a node that is whole or split otherwise. */
int limits_check(const struct draft *draft, struct diags *diags);

#endif
