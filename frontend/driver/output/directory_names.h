/* Names of the result's directories. Models and instances may have any name, directories <output>/<model>/<instance>
 * only bytes of [A-Za-z0-9_.-]: both `a b` and `a"b` map to a_b. The manifest of a result records the original names,
 * as parts of its keys. If a_b belongs to another name, the first free of a_b-2, a_b-3 .. is used. A directory without
 * a readable manifest belongs to nobody. */
#ifndef FRONTEND_DRIVER_DIRECTORY_NAMES_H
#define FRONTEND_DRIVER_DIRECTORY_NAMES_H

#include <stdbool.h>

#include "frontend/options/options.h"

/* Parts of the reuse keys with the original names. */
#define NAMES_FILE     "file name"     /* of the model, in the graph key */
#define NAMES_INSTANCE "instance name" /* as given, in the plan key */

struct directory_names {
    const char *model, *instance; /* directories below options->output */
};

/* Chooses the directories of the compile that `options` ask for: those of an earlier one, or free ones. 0, or -1 after
 * a diagnostic. */
int directory_names_find(struct directory_names *names, const struct options *options, struct arena *arena,
                         struct diags *diags);

/* False if the result in `directory` belongs to another model or instance. The answer holds while its lock is held. */
bool directory_names_own(const struct options *options, const char *directory, struct arena *arena);

#endif
