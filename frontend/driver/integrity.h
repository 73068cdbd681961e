/* Whether a result is as it was generated. */
#ifndef FRONTEND_DRIVER_INTEGRITY_H
#define FRONTEND_DRIVER_INTEGRITY_H

#include "ir/base/diag.h"
#include "runtime/base/json.h"

/* Whether the result is as the manifest says: 1; 0 where *fault is the first file that is not, or that it does not
 * know;
 * -1 where memory or the system failed before that was known, after a diagnostic. location.json and build/ may be
 * anything. */
int integrity_check_directory(const char *directory, const struct rt_json *manifest, const char **fault,
                              struct diags *diags);

/* The same of one file that the manifest names. */
int integrity_check_file(const char *directory, const struct rt_json *manifest, const char *name, struct diags *diags);

/* The manifest's entry for a file; NULL: none. */
const struct rt_json *integrity_entry(const struct rt_json *manifest, const char *name);

#endif
