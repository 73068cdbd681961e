/* Sources: rank classes with the same code share one source file.
 *
 * Note [Sources]
 * Two classes are alike if their instructions are alike one by one (Note [Layers] in rank.c) and their numbers are at
 * equal distances. Pipeline stages of equal layers are: they differ in addresses, weights and peers only. Peers are
 * given as distances along the mesh axis; addresses that differ, and the first number, are in a table with a row per
 * class. */
#ifndef CODEGEN_SOURCE_H
#define CODEGEN_SOURCE_H

#include "codegen/call/instruction.h"
#include "codegen/text/extents.h"
#include "codegen/text/tmpl.h"
#include "ir/base/str.h"

struct source {
    int nclasses, *classes;            /* the classes that share it: indices into plan->classes */
    int n;                             /* instructions of each class */
    int *segment_end;                  /* by segment of the class: number of instructions up to its end */
    struct instruction **instructions; /* by class of the source */
    struct kernels *kernels;
};

struct sources {
    int n;
    struct source *at;
    int *of_class;      /* by class of the plan: its source */
    int *row;           /* by class of the plan: its index in source.classes */
    const int *numbers; /* by position of the order: number of the instruction there */
};

/* Finds the sources of all classes, in order of their first classes. All memory is in the graph's arena. 0, or -1 after
 * E0407 for each node for which the target has no kernel. */
int sources_find(struct sources *sources, const struct rankplan *plan, const struct target *target,
                 struct diags *diags);

/* For a plan from which no sources are generated: sets `n` and `of_class`, and only where classes may differ the
 * rest. */
int sources_number(struct sources *sources, const struct rankplan *plan, const struct target *target,
                   struct diags *diags);

/* The file name of a source: "rank_0.c". */
const char *source_name(struct arena *arena, const struct target *target, int source);

/* The name of the function that executes a segment, without the program's prefix: "forward_0"; where ranks have several
 * chunks "forward_chunk1_0", that of the second one. */
const char *source_function(const struct graph *graph, const struct segment *segment, int source);

/* Appends a text that is equal for alike instructions: the text of the call and the types of its tensors. */
void instruction_kind(struct strbuf *out, const struct rankplan *plan, const struct rank_class *class,
                      const struct instruction *instruction);

/* The text of source `number`: its kernels, a function for each distinct layer, and the functions of the step.
 * `program` has the bindings that all files of the program share;
 * extents: open sizes, or NULL. */
const char *rank_source(const struct rankplan *plan, const struct source *source, int number,
                        const struct target *target, struct extents *extents, const struct tmpl_env *program);

#endif
