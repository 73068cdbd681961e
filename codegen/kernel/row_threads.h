/* CUDA kernels for nodes Rows and Columns: row programs (ir/expr/row_program.h), such as a norm or a softmax with its
 * neighbours, become one kernel each. */
#ifndef CODEGEN_ROW_THREADS_H
#define CODEGEN_ROW_THREADS_H

#include "codegen/target/target.h"

extern const struct row_writer row_threads;

/* Bytes of scratch memory that a node Columns needs. */
int64_t row_threads_scratch(const struct graph *graph, const struct rank_class *class, const struct node *node);

#endif
