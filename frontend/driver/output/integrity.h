/* Checks that a result on disk is unchanged since it was generated. */
#ifndef FRONTEND_DRIVER_INTEGRITY_H
#define FRONTEND_DRIVER_INTEGRITY_H

#include "ir/base/diag.h"
#include "runtime/base/text/json.h"

/* Compares every file of the result with its hash in the manifest, and looks for files that it does not list, but for
 * copies of edited files: 1 if all agree; 0 with *fault the first file that was changed, is missing or is not listed;
 * -1 after a diagnostic if a file cannot be read. location.json and build/ are not compared. */
int integrity_check_directory(const char *directory, const struct rt_json *manifest, const char **fault,
                              struct diags *diags);

/* The same for one file of the manifest. */
int integrity_check_file(const char *directory, const struct rt_json *manifest, const char *name, struct diags *diags);

/* True for "NAME.edited-N", a file that frontend/driver/output/output.h has kept. It belongs to no result. */
bool integrity_is_copy(const char *name);
#define INTEGRITY_COPY ".edited-"

/* The entry of a file in the manifest's "files"; NULL: none. */
const struct rt_json *integrity_entry(const struct rt_json *manifest, const char *name);

#endif
