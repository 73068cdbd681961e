/* Decides which float initializers of a model that is trained are parameters and which are constants.
 *
 * ONNX has one kind of initializer for both. The decision uses evidence about each initializer: the mark that the model
 * gives it (enum mark in ir/ir.h), its name, the nodes that read it, and its values. The rules of roles.def map
 * evidence to a role; --param GLOB:train and GLOB:frozen override them. A constant of one element becomes a CONST
 * tensor; others are flagged (struct tensor, constant). */
#ifndef PASSES_TRAIN_ROLES_H
#define PASSES_TRAIN_ROLES_H

#include "passes/train/training.h"

enum role { ROLE_PARAMETER, ROLE_DOUBTFUL, ROLE_CONSTANT };

struct role_rule {
    const char *name;
    enum role role;
    unsigned needs, excludes; /* sets of evidence, one bit per EVIDENCE row of roles.def */
    const char *reason;
};

/* The decision on a weight to which a rule applied. Weights to which none applied are parameters and are not listed,
 * nor are those that a rule finds to be a parameter. */
struct weight_role {
    const char *name, *type;      /* type: as text, "f32[8,8]" */
    const char *sources;          /* names of the values that the exporter computed it from, or NULL */
    const struct role_rule *rule; /* the rule that applied */
    enum role role;               /* final role, after --param */
};

struct weight_roles {
    VEC(struct weight_role) all;
};

/* The decision on the weight of that name; NULL if there is none. */
const struct weight_role *weight_role_of(const struct weight_roles *roles, const char *name);

/* What a name tells about a weight: the kinds are explained at NAME in roles.def. */
enum name_kind { KIND_OTHER, KIND_OPERAND, KIND_FUSED, KIND_NUMBER, KIND_BUFFER, KIND_MOVED, KIND_COMPUTED };
enum name_kind name_kind_of(const char *name);

/* Facts about the whole graph from which the evidence of its weights is computed. Memory is of `arena`. */
struct evidence {
    const struct graph *graph;
    struct arena *arena;
    struct uses uses; /* by nodes on which an output or update depends */
    const bool *live; /* per node: an output or update depends on it */
    bool *scores;     /* per tensor: it reaches a Softmax through elementwise operators */
    /* per tensor: all its uses end in conditions; all end in sines and cosines of positions */
    bool *condition, *angle;
    int *searches; /* how many searches for the uses of a tensor there were */
    int *reached;  /* per tensor: the number of the last search that reached it */
};

void evidence_begin(struct evidence *evidence, const struct graph *graph);
bool evidence_is_read(const struct evidence *evidence, int tensor);
/* The evidence that holds for a weight: a set of bits, one per EVIDENCE row of roles.def. */
unsigned evidence_of(const struct evidence *evidence, int weight);

/* The names of module members among the weight's sources, separated by ", "; NULL: none. */
const char *evidence_members(const struct evidence *evidence, int weight);

#endif
