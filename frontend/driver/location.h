/* location.json: where the files lie that a program reads its weights from, and what they looked like. It may differ
 * between equal results (DESIGN 5), so it is outside of hashes. */
#ifndef FRONTEND_DRIVER_LOCATION_H
#define FRONTEND_DRIVER_LOCATION_H

#include "frontend/driver/reuse_keys.h"

/* The file of the result that holds constants; its entry comes after the model's files. */
#define CONSTANTS_FILE "weights/constants.bin"

/* The text, in the arena; `constants` is NULL where there are none. NULL: out of memory. */
const char *location_text(const struct reuse_keys *keys, const struct hashed_file *constants, struct arena *arena);

#endif
