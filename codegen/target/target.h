/* Targets: the languages of generated programs. All differences between targets are in one struct: file names,
 * templates, and the spelling of expressions and arguments. The calls of a rank, their order and their addresses are
 * the same for all targets. */
#ifndef CODEGEN_TARGET_TARGET_H
#define CODEGEN_TARGET_TARGET_H

#include "ir/user.h"
#include "passes/pipeline.h"
#include "passes/rank/rankplan.h"

/* The spelling of a function of ir/expr/expr.h, for f32 and for other types (NULL: the same). % stands for the name of
 * the type. */
struct target_function {
    const char *name, *f32, *other;
};

/* The spelling of arguments of calls. */
struct target_arguments {
    bool names_rank;        /* all kernels take the rank as first argument, for its stream */
    bool sized_heads;       /* names of flash attention's kernels end in a size of heads */
    const char *array;      /* opens an array; % stands for its type */
    const char *no_array;   /* an array that is left out */
    const char *structure;  /* opens a struct; % stands for its name */
    const char *restricted; /* the qualifier of a pointer without aliases */
    const char *later;      /* opens a statement as an argument, which the kernel executes if it must */
};

struct pass_context;

struct target_file {
    const char *template, *name; /* in templates/; in the output */
};

/* Files for the host, which are C for every target. */
#define TARGET_HOST_FILES                                                                                              \
    {"model.h.in", "model.h"}, {"c/model.c.in", "model.c"}, {                                                          \
        "c/main.c.in", "main.c"                                                                                        \
    }

struct row_kernel;
struct tmpl_env;

/* Binds the holes of the templates of nodes Rows and Columns. */
struct row_writer {
    void (*rows)(struct row_kernel *kernel, struct tmpl_env *env);
    void (*columns)(struct row_kernel *kernel, struct tmpl_env *env);
};

struct target {
    const char *name, *help;
    const char *source_suffix;        /* of a rank's source */
    const char *head_template;        /* what a rank's source includes */
    const char *linkage;              /* of a rank's functions that the host calls; NULL: that of C */
    const char *elementwise_template; /* an elementwise kernel */
    const char *vector_template;      /* one with vectors (Note [Vectors] in loops.c); NULL: none */
    const struct row_writer *rows;    /* kernels of nodes Rows and Columns; NULL: none */
    const char *rows_template, *columns_template;
    const char *epilogue_template;           /* the epilogue of a packed product; NULL: not supported */
    const struct target_file *files;         /* other files, once each; ends with NULLs */
    const struct target_function *functions; /* ends with NULLs */
    const char *call_prefix;                 /* of calls of the runtime: "rt_" */
    const struct target_arguments *arguments;
    const char *cast_to_half;          /* the call before the type's name that casts arrays of f32; NULL: none */
    const char *copy;                  /* opens a call that copies bytes in arenas: (to, from, bytes */
    const char *unsafe_in_paths;       /* bytes that its compiler interprets in the path of its working directory;
                                                NULL: none */
    enum user_target user_kernel;      /* the kernels that operators of the user have for it */
    const char *device;                /* the struct rt_device of its programs */
    bool library_products, exact_rows; /* of pass_context */
    bool holds_launches;               /* Note [Held launches] in runtime/cuda/held.cuh */
    struct plan_kernels kernels;
};

extern const struct target target_c, target_cuda;
/* Of target c, also used by targets whose language includes C. */
extern const struct target_function target_c_functions[];
extern const struct target_arguments target_c_arguments;
extern const struct target_kernel target_c_kernels[];
/* Workspace of kernels of several targets (kernels.def): of ring attention, beside what the kernel of flash attention
 * needs; of a recurrent layer's states, in elements, and with packed weights. */
int64_t target_ring_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node);
int64_t target_det_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node);
int64_t target_linear_attention_bytes(const struct graph *graph, const struct rank_class *class,
                                      const struct node *node);
int64_t target_recurrence_states(const struct rank_class *class, const struct node *node);
int64_t target_recurrence_bytes(const struct graph *graph, const struct rank_class *class, const struct node *node);
int64_t target_dtype_bytes(const struct graph *graph, int tensor);
extern const struct target *const targets[]; /* ends with NULL */
const struct target *target_find(const char *name);

/* The members of struct pass_context that depend on the target; the caller sets the others. */
struct pass_context target_pass_context(const struct target *target);

#endif
