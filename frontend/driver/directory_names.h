/* Names of directories. A model or an instance may have any name, but DIR/<model>/<instance> has only bytes of
 * [A-Za-z0-9_.-], so `a b` and `a"b` would share a_b. The manifest of a result says for which names it was made (parts
 * of its keys). A directory that was made for others is left alone, and the first free of a_b-2, a_b-3 .. is taken. A
 * directory without a readable manifest belongs to nobody. */
#ifndef FRONTEND_DRIVER_DIRECTORY_NAMES_H
#define FRONTEND_DRIVER_DIRECTORY_NAMES_H

#include <stdbool.h>

#include "frontend/cli/options.h"

/* Parts of keys that say for whom a result was made. */
#define NAMES_FILE     "file name"     /* of the model, in the graph key */
#define NAMES_INSTANCE "instance name" /* as given, in the plan key */

struct directory_names {
    const char *model, *instance; /* directories below options->output */
};

/* Where the compile that `options` ask for goes, or has gone before. -1: a diagnostic says why none can be found. */
int directory_names_find(struct directory_names *names, const struct options *options, struct arena *arena,
                         struct diags *diags);

/* False if what is in `directory` was made for another model's or instance's name. Under its lock that stays so. */
bool directory_names_own(const struct options *options, const char *directory, struct arena *arena);

#endif
