/* location.json: the default number of ranks (runtime/base/io/location.h reads it), and paths, sizes, times and hashes
 * of the files from which a program loads its weights; with --weights copy there are none. It may differ between equal
 * results, when a model was moved for example, so neither keys nor the manifest's hashes cover it. */
#ifndef FRONTEND_DRIVER_LOCATION_H
#define FRONTEND_DRIVER_LOCATION_H

#include "frontend/driver/reuse/reuse_keys.h"

/* The file of constants in a result; its entry in location.json follows those of the model's files. */
#define CONSTANTS_FILE "weights/constants.bin"

struct location {
    int runtime_ngpus;
    const struct reuse_keys *keys;       /* with the model's files; NULL: programs read none */
    const struct hashed_file *constants; /* NULL: there are none */
    const char *tokenizer;               /* tokenizer.json of a decoder; NULL: none, or it was copied */
};

/* The text of location.json, in the arena; NULL: out of memory. */
const char *location_text(const struct location *location, struct arena *arena);

#endif
