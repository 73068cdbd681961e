/* rankc ops --check FILE: tries the operators that a file declares (docs/user-operators.md), in compiled programs.
 *
 * For every type that an operator has kernels for, and every alternative of its annotation, with small random inputs:
 *
 *   splits     each dimension that can be divided, among 2 and among 3 ranks: the result is that of one rank
 *   types      the result is that of the kernel for f64
 *   gradient   along random directions, the gradient is the finite difference of results, in f64 or f32 */
#ifndef FRONTEND_CLI_OPS_CHECK_H
#define FRONTEND_CLI_OPS_CHECK_H

#include "frontend/cli/cli.h"

/* Prints a line per operator: 0, or -1 with E1105 for a wrong operator or another diagnostic. */
int ops_check(const char *path, struct cli *cli);

#endif
