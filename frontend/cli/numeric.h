/* `rankc verify --numeric`: the compiled model and the same graph on one rank, run on the same random inputs. */
#ifndef FRONTEND_CLI_NUMERIC_H
#define FRONTEND_CLI_NUMERIC_H

#include "frontend/cli/compiled_model.h"

/* Floats are uniform in [-1, 1), integers 0 or 1, which every index may be. Outputs of floats may differ by 1024 eps of
 * the largest element of the one-rank result, others not at all. 0; -1 with E1104, or what went wrong; or an exit
 * code. */
int numeric_compare(const struct compiled_model *compiled, struct cli *cli);

#endif
