/* C functions for nodes Rows and Columns: row programs (ir/expr/row_program.h), such as the gradient of a norm with its
 * neighbours, become one function each. It has the bits of the calls that it replaces: every value of a row is rounded
 * to its type, and rows and columns are summed in Note [Order of sums] of runtime/kernels/c/kernels.h. */
#ifndef CODEGEN_ROW_BUFFERS_H
#define CODEGEN_ROW_BUFFERS_H

#include "codegen/target/target.h"

extern const struct row_writer row_buffers;

#endif
