/* Reuse of an earlier result: what `--reuse` makes of it (nnScaler's ReuseType matrix).
 *
 *             | empty    | all keys equal, files intact | only graph key equal | else
 *   match     | generate | reuse                        | error                | error
 *   override  | generate | generate                     | generate             | generate
 *   moo       | generate | reuse                        | keep graph           | generate
 *   graph     | generate | keep graph                   | keep graph           | generate
 *
 * A graph is kept by reading graph.rir in the model's place; that file must be intact. */
#ifndef FRONTEND_DRIVER_REUSE_H
#define FRONTEND_DRIVER_REUSE_H

#include "frontend/cli/options.h"
#include "frontend/driver/reuse_keys.h"

enum reuse_action { REUSE_NOTHING, REUSE_GRAPH, REUSE_ALL, REUSE_REFUSE };

/* Called before a refusal. -1: the command is wrong in itself, and has been said to be. */
struct reuse_check {
    int (*command)(void *context);
    void *context;
};

/* What to do about what is in `directory`. REUSE_REFUSE comes with an error: of the check, or one that says what
 * differs: E0801 another model, options or rankc, E0802 a file is not as it was generated, E0803 another format. */
enum reuse_action reuse_decide(const char *directory, const struct options *options, const struct reuse_keys *keys,
                               const struct reuse_check *check, struct arena *arena, struct diags *diags);

/* What location.json of an intact result must say now; NULL after a diagnostic. */
const char *reuse_location(const char *directory, const struct reuse_keys *keys, struct diags *diags);

#endif
