/* `rankc verify --numeric`: runs the compiled model and the same graph on one rank with the same random inputs, and
 * compares their outputs. */
#ifndef FRONTEND_CLI_NUMERIC_H
#define FRONTEND_CLI_NUMERIC_H

#include "frontend/cli/compiled_model.h"

/* Inputs: floats are uniform in [-1, 1), integers 0 or 1, which are valid as indices. Float outputs may differ by 1024
 * epsilon times the largest element of the one-rank result; others must be equal. 0, -1 with E1104 or another
 * diagnostic, or the exit code of a program that failed. */
int numeric_compare(const struct compiled_model *compiled, struct cli *cli);

#endif
