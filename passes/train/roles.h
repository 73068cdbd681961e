/* Which weights of a graph that trains are parameters, and which are constants that only look like them.
 *
 * ONNX has one kind of initializer for both. What is known of each is a set of evidence: what the model says of it
 * (enum mark), its name, how it is read, its first values. Rows of roles.def draw a verdict from it; --param GLOB:train
 * and GLOB:frozen decide otherwise. A weight that is found to be constant is marked so, or becomes a CONST if it has
 * one element. */
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

/* What was decided on a weight, of those that are no plain parameters. */
struct decision {
    const char *name, *type;      /* type: text such as f32[8,8] */
    const char *sources;          /* names of what the exporter computed it from, or NULL */
    const struct role_rule *rule; /* that holds */
    enum role role;               /* what it is at last: --param may decide otherwise */
};

struct decisions {
    VEC(struct decision) all;
};

/* The decision on the weight of that name; NULL if there is none. */
const struct decision *decision_of(const struct decisions *decisions, const char *name);

/* Kinds of names (roles.def). */
enum name_kind { KIND_OTHER, KIND_OPERAND, KIND_FUSED, KIND_NUMBER, KIND_BUFFER, KIND_MOVED, KIND_COMPUTED };
enum name_kind name_kind_of(const char *name);

/* What all weights of a graph are looked at with. */
struct evidence {
    const struct graph *graph;
    struct arena *arena;
    struct uses uses; /* by nodes on which an output or update depends */
    const bool *live; /* per node */
    bool *scores;     /* per tensor: elementwise operators take it to a Softmax */
    /* per tensor: all that is made of it ends in conditions; in sines and cosines of positions */
    bool *condition, *angle;
};

void evidence_begin(struct evidence *evidence, const struct graph *graph);
bool evidence_is_read(const struct evidence *evidence, int tensor);
/* The bits that hold of a weight. */
unsigned evidence_of(const struct evidence *evidence, int weight);

/* The names of members of modules among a weight's sources. */
const char *evidence_members(const struct evidence *evidence, int weight);

/* The first rule that holds; NULL: it is a parameter. */
const struct role_rule *role_rule_for(unsigned evidence);

#endif
