/* Sources: rank classes whose code is the same share one.
 *
 * Note [Sources]
 * Two classes are alike if they run alike instructions (Note [Layers] in layers.h) one for one, with sites at equal
 * distances (those of what all stages run together are the same anyway): stages of equal layers do, and differ in
 * addresses, weights and peers. Peers are said as distances along the mesh axis; addresses and the first site that
 * differ stand in a table, a row per class. */
#ifndef CODEGEN_SOURCE_H
#define CODEGEN_SOURCE_H

#include "codegen/kernel.h"
#include "ir/base/str.h"

struct source {
    int nclasses, *classes;            /* that share it: indices into the plan's */
    int n;                             /* instructions of each class */
    int phase_end[PHASES];             /* instructions up to the end of each phase */
    struct instruction **instructions; /* per class of the source */
    struct kernels *kernels;
};

struct sources {
    int n;
    struct source *at;
    int *of_class; /* per class of the plan: its source */
    int *row;      /* per class of the plan: its place in the source */
};

/* In order of their first classes, all in the graph's arena. */
void sources_find(struct sources *sources, const struct rankplan *plan, const struct target *target);

/* "rank_0.c" */
const char *source_name(struct arena *arena, const struct target *target, int source);

/* Adds what makes instructions alike: the call's text and its tensors' types. */
void instruction_kind(struct strbuf *out, const struct rankplan *plan, const struct plan_class *class,
                      const struct instruction *instruction);

#endif
