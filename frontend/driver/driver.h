/* What the verbs do with a model, without a terminal: nothing here prints or ends the process.
 *
 * All return 0, or -1 with diagnostics. Options are complete and checked (frontend/cli/options.h).
 */
#ifndef FRONTEND_DRIVER_DRIVER_H
#define FRONTEND_DRIVER_DRIVER_H

#include "frontend/cli/options.h"

/* What a compile had to do: all of it, the code for a graph that was kept, or nothing since all was there. */
enum driver_made { MADE_ALL, MADE_CODE, MADE_NOTHING };

struct driver_result {
    enum driver_made made;
    const char *key;       /* the plan key, as in the manifest */
    const char *directory; /* <output>/<model>/<instance> */
};

/* Compiles options->operand into a directory below options->output, and builds it unless no_build. */
int driver_compile(const struct options *options, struct arena *arena, struct diags *diags,
                   struct driver_result *result);

/* Plans options->operand as driver_compile would; *manifest_json, in the arena, is the manifest it would write,
 * without "files". Writes nothing but --save-plan. */
int driver_plan(const struct options *options, struct arena *arena, struct diags *diags, const char **manifest_json);

/* The graph of options->operand after the pass options->dump_after, as text. */
int driver_dump(const struct options *options, struct arena *arena, struct diags *diags, const char **text);

/* Compiles the graph of the compiled model in `dir` for one rank, as out/graph/<instance>, from the same weights;
 * computing in the type of that name, NULL: the model's. */
int driver_compile_whole(const char *dir, const char *out, const char *instance, const char *dtype, struct arena *arena,
                         struct diags *diags);

/* Proves the plan in `dir` (of manifest.json) equal to the one-device graph it was made from: reads graph.rir, applies
 * plan.json, checks every level, and compares the files with their hashes. */
int driver_verify(const char *dir, const struct options *options, struct arena *arena, struct diags *diags);

#endif
