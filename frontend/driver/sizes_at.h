/* Sizes at which a program with open sizes (ir/open.h) is looked at: --dim of `show DIR` and `verify --numeric`. */
#ifndef FRONTEND_DRIVER_SIZES_AT_H
#define FRONTEND_DRIVER_SIZES_AT_H

#include "frontend/options/options.h"
#include "ir/base/diag.h"
#include "ir/open.h"

/* Sets sizes[], which has values for all open sizes, to those that are given. 0, or -1 after E0201: for a name that is
 * no open size, or a size that is not one of its range. */
int sizes_at(struct open_sizes *open, const struct option_size *given, int n, struct diags *diags, int64_t *sizes);

#endif
