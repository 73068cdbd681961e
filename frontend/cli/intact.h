/* Whether a result is as it was generated. */
#ifndef FRONTEND_CLI_INTACT_H
#define FRONTEND_CLI_INTACT_H

#include <stdbool.h>

#include "ir/base/arena.h"
#include "runtime/base/json.h"

/* The first file of the result that is not as the manifest says, or that it does not know; NULL if there is none.
 * location.json and build/ may be anything. */
const char *intact_fault(const char *directory, const struct rt_json *manifest, struct arena *arena);

/* The named file of the manifest's is as it was generated. */
bool intact_file(const char *directory, const struct rt_json *manifest, const char *name, struct arena *arena);

/* The manifest's entry for a file; NULL: none. */
const struct rt_json *intact_entry(const struct rt_json *manifest, const char *name);

#endif
