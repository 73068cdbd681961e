/* A language that programs are written in. All that differs between targets is in one struct: file names and
 * templates, and how expressions are spelled. Which calls a rank makes, in which order, on which addresses, is the
 * same for all. */
#ifndef CODEGEN_TARGET_TARGET_H
#define CODEGEN_TARGET_TARGET_H

#include "passes/rank/rankplan.h"

/* How a function of ir/expr/expr.h is written. `spelling` has one % for the dtype's name, or none. */
struct target_function {
    const char *name, *f32, *other;
};

/* How arguments of calls are written. */
struct target_arguments {
    bool names_rank;        /* all kernels take the rank first, for its stream */
    const char *array;      /* opens an array, % being its type */
    const char *no_array;   /* one that is left out */
    const char *structure;  /* opens a struct, % being its name */
    const char *restricted; /* of a pointer: nothing else points there */
    const char *later;      /* opens a statement as an argument, to be made by the kernel */
};

struct pass_context;

struct target_file {
    const char *template, *name; /* in templates/; in the output */
};

/* What the host does is C for every target. */
#define TARGET_HOST_FILES                                                                                              \
    {"model.h.in", "model.h"}, {"c/model.c.in", "model.c"}, {                                                          \
        "c/main.c.in", "main.c"                                                                                        \
    }

struct target {
    const char *name, *help;
    const char *source_suffix;                    /* of a rank's source */
    const char *rank_template;                    /* a rank class' source */
    const char *elementwise_template;             /* one elementwise kernel in it */
    const char *vector_template;                  /* one that takes several elements at a time; NULL: none does */
    const char *rows_template, *columns_template; /* of programs over rows, and over columns; NULL: there are none */
    /* what finishes a packed product in it; NULL: loops after the product do */
    const char *epilogue_template;
    const struct target_file *files;         /* other files, once each; ends with NULLs */
    const struct target_function *functions; /* ends with NULLs */
    const char *call_prefix;                 /* of kernels and redistributions: "rt_" */
    const struct target_arguments *arguments;
    const char *copy;                    /* opens a copy (to, from, bytes) of bytes in arenas */
    const char *unsafe_in_paths;         /* bytes that its compiler interprets in the path of its working directory;
                                                NULL: none */
    const char *device;                  /* the struct rt_device of its programs */
    bool library_products, row_programs; /* of pass_context */
    const enum op_id *missing;           /* operators without a kernel here; ends with OP_NONE. NULL: all have one */
    const enum op_id *halves;            /* of pass_context */
    struct plan_kernels kernels;
};

extern const struct target target_c, target_cuda;
/* For targets that are C too. */
extern const struct target_function target_c_functions[];
extern const struct target_arguments target_c_arguments;
extern const enum op_id target_c_missing[];
extern const struct target *const targets[]; /* ends with NULL */
const struct target *target_find(const char *name);

/* What passes are told of the target; the caller sets the other members. */
struct pass_context target_pass_context(const struct target *target);

#endif
