/* What the writers of row kernels share: the loops of the kernel of a node Rows or Columns, and the text of its parts.
 * A target names its writer in struct target: row_threads.c is that of GPUs, row_buffers.c that of C. */
#ifndef CODEGEN_ROW_KERNEL_OF_H
#define CODEGEN_ROW_KERNEL_OF_H

#include "codegen/kernel/loops.h"
#include "codegen/text/tmpl.h"
#include "ir/expr/row_program.h"

/* A kernel being generated. The last of its loops is over the columns, the others are over the rows. */
struct row_kernel {
    struct loops loops;
    struct row_program program;
    int64_t rows, columns;
    /* by pass: inputs that it reads, named values that it computes */
    bool read[EXPR_NAMED + 1][EXPR_INPUTS], made[EXPR_NAMED + 1][EXPR_NAMED];
};

static inline int64_t at_least_one(int64_t n) {
    return n > 0 ? n : 1;
}

struct row_kernel row_kernel_new(const struct target *target, struct arena *arena, const struct graph *graph,
                                 const struct rank_class *class, const struct node *node);

/* True if input k differs between columns; between rows. */
bool row_kernel_varies(const struct row_kernel *kernel, int k);
bool row_kernel_differs(const struct row_kernel *kernel, int k);

/* The names of results: "y", "y1" .. */
extern const char *const row_kernel_results[EXPR_VALUES];
/* The name of input k, "a", "b" .., and the index of its element by the loop variables. */
const char *row_kernel_input(const struct row_kernel *kernel, int k);
const char *row_kernel_index(const struct row_kernel *kernel, int k);
/* The variable of the loop over columns, "i1", and the index of loop d over rows by the variable `row`. */
const char *row_kernel_column(const struct row_kernel *kernel);
const char *row_kernel_of_row(const struct row_kernel *kernel, int d);
/* The C type that the program is computed in. */
const char *row_kernel_type(const struct row_kernel *kernel);

/* Binds "rows", "columns", "type", "column" (the variable of the loop over columns) and "loops": the indices that
 * follow from the variable `row`. */
void row_kernel_bind_loops(const struct row_kernel *kernel, struct tmpl_env *env);
/* Binds the results that are known in the pass: "stores", those of rows, and "writes", those of elements. True if there
 * are any of elements. */
bool row_kernel_bind_results(const struct row_kernel *kernel, struct tmpl_env *env, int pass);
/* True if an earlier pass reads input k. */
bool row_kernel_was_read(const struct row_kernel *kernel, int pass, int k);
/* Adds the local variable `name` of a list's entry. */
void row_kernel_bind_value(struct tmpl_env *entry, const char *name, const char *type, const char *value);
/* Appends the inputs to the parameters, "const float *a, const uint16_t *b". */
void row_kernel_put_inputs(const struct row_kernel *kernel, struct strbuf *parameters);
/* Appends result number `o`, an array of `type`, to the parameters. */
void row_kernel_put_result(const struct row_kernel *kernel, struct strbuf *parameters, const char *type, int o);

#endif
