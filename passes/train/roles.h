/* Decides which float initializers of a trained model are parameters and which are constants.
 *
 * ONNX has one kind of initializer for both. So evidence is collected of each: how the model marks it (enum mark), its
 * name, the nodes that read it, its values. The rules of roles.def decide from the evidence; --param GLOB:train and
 * GLOB:frozen override them. A constant is marked as such, or becomes a CONST if it has one element. */
#ifndef PASSES_TRAIN_ROLES_H
#define PASSES_TRAIN_ROLES_H

#include "passes/train/training.h"

enum role { ROLE_PARAMETER, ROLE_DOUBTFUL, ROLE_CONSTANT };

struct role_rule {
    const char *name;
    enum role role;
    unsigned needs, excludes; /* bits of evidence */
    const char *reason;
};

/* The decision on a weight for which a rule holds; weights without one are parameters. */
struct decision {
    const char *name, *type;      /* type: text such as f32[8,8] */
    const char *sources;          /* names of what the exporter computed it from, or NULL */
    const struct role_rule *rule; /* that holds */
    enum role role;               /* after --param, which overrides the rule */
};

struct decisions {
    VEC(struct decision) all;
};

/* The decision on the weight of that name; NULL if there is none. */
const struct decision *decision_of(const struct decisions *decisions, const char *name);

/* Kinds of names (roles.def). */
enum name_kind { KIND_OTHER, KIND_OPERAND, KIND_FUSED, KIND_NUMBER, KIND_BUFFER, KIND_MOVED, KIND_COMPUTED };
enum name_kind name_kind_of(const char *name);

/* Tables for the evidence of all weights of a graph. */
struct evidence {
    const struct graph *graph;
    struct arena *arena;
    struct uses uses; /* by nodes on which an output or update depends */
    const bool *live; /* per node */
    bool *scores;     /* per tensor: elementwise operators lead from it to a Softmax */
    /* per tensor: all its uses end in conditions; in sines and cosines of positions */
    bool *condition, *angle;
};

void evidence_begin(struct evidence *evidence, const struct graph *graph);
bool evidence_is_read(const struct evidence *evidence, int tensor);
/* The evidence for a weight, a set of bits (EVIDENCE in roles.def). */
unsigned evidence_of(const struct evidence *evidence, int weight);

/* The names of members of modules among a weight's sources. */
const char *evidence_members(const struct evidence *evidence, int weight);

/* The first rule that holds; NULL: it is a parameter. */
const struct role_rule *role_rule_for(unsigned evidence);

#endif
