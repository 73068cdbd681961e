/* Reuse of an earlier result, by --reuse (the matrix of nnScaler's ReuseType) and what the output directory holds:
 *
 *             | empty    | all keys equal, files intact | only graph key equal | else
 *   match     | generate | reuse                        | error                | error
 *   override  | generate | generate                     | generate             | generate
 *   moo       | generate | reuse                        | keep graph           | generate
 *   graph     | generate | keep graph                   | keep graph           | generate
 *
 * "keep graph": graph.rir, which must be intact, is parsed instead of importing the model. */
#ifndef FRONTEND_DRIVER_REUSE_H
#define FRONTEND_DRIVER_REUSE_H

#include "frontend/options/options.h"
#include "frontend/driver/output/location.h"
#include "frontend/driver/reuse/reuse_keys.h"

enum reuse_action { REUSE_NOTHING, REUSE_GRAPH, REUSE_ALL, REUSE_REFUSE };

/* A callback before a refusal: -1 if the command itself is in error, which it has reported; then nothing else is. */
struct reuse_check {
    int (*command)(void *context);
    void *context;
};

/* Decides by the result in `directory`. REUSE_REFUSE after an error: of `check`, or E0801 another model, options or
 * rankc (notes list the differences), E0802 a changed file, E0803 another format of manifest. */
enum reuse_action reuse_decide(const char *directory, const struct options *options, const struct reuse_keys *keys,
                               const struct reuse_check *check, struct arena *arena, struct diags *diags);

/* The text that location.json of an intact result must have now; NULL after a diagnostic. `location`: without
 * constants. */
const char *reuse_location(const char *directory, const struct location *location, struct diags *diags);

#endif
