/* location.json: paths, sizes, times and hashes of the files from which a program loads its weights. It may differ
 * between equal results, when a model was moved for example, so neither keys nor the manifest's hashes cover it. */
#ifndef FRONTEND_DRIVER_LOCATION_H
#define FRONTEND_DRIVER_LOCATION_H

#include "frontend/driver/reuse_keys.h"

/* The file of constants in a result; its entry in location.json follows those of the model's files. */
#define CONSTANTS_FILE "weights/constants.bin"

/* The text of location.json, in the arena; NULL: out of memory. `constants`: NULL if there are none. */
const char *location_text(const struct reuse_keys *keys, const struct hashed_file *constants, struct arena *arena);

#endif
