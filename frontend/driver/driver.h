/* The compiler as a library: compile, plan, dump and verify. Nothing here prints or ends the process.
 *
 * All functions return 0, or -1 after diagnostics. Options must be those of options_parse (frontend/options/options.h).
 * Results lie in the arena.
 */
#ifndef FRONTEND_DRIVER_DRIVER_H
#define FRONTEND_DRIVER_DRIVER_H

#include "frontend/options/options.h"
#include "ir/ir.h"

/* How much driver_compile had to do: everything, everything after the import, or nothing (--reuse). */
enum driver_made { MADE_ALL, MADE_CODE, MADE_NOTHING };

struct driver_result {
    enum driver_made made;
    const char *key;       /* the plan key, as in the manifest */
    const char *directory; /* <output>/<model>/<instance> */
};

/* Compiles the model options->operand into a directory below options->output and builds its programs unless
 * options->no_build. */
int driver_compile(const struct options *options, struct arena *arena, struct diags *diags,
                   struct driver_result *result);

/* The symbolic dimensions of the model options->operand that no option gives a size, with those that the files of
 * options->inputs have. Dimensions that are expressions of others are left out. -1: the model cannot be opened. */
int driver_sizes_of_inputs(const struct options *options, struct arena *arena, struct option_sizes *out);

/* Bounds for the symbolic dimensions of the decoder options->operand that no option gives a size: of token ids and of
 * caches, from the configuration beside the model. rows: of the batch; tokens: of a prompt with what is to be written.
 * within: the caches and the columns of a step together have no more tokens than the model was made for, as a table of
 * positions has rows. -1: the model or the configuration cannot be read. */
int driver_sizes_of_decoder(const struct options *options, int64_t rows, int64_t tokens, bool within,
                            struct arena *arena, struct option_sizes *out);

/* Plans options->operand as driver_compile does; *manifest_json is the manifest that it would write, without "files",
 * and *ranks the number of ranks that it would write to location.json. Writes only the file of --save-plan. */
int driver_plan(const struct options *options, struct arena *arena, struct diags *diags, const char **manifest_json,
                int *ranks);

/* The graph of options->operand after the pass options->dump_after, as text IR. */
int driver_dump(const struct options *options, struct arena *arena, struct diags *diags, const char **text);

/* The graph of options->operand in which --lora finds products (passes/train/lora.h). */
int driver_adaptable(const struct options *options, struct arena *arena, struct diags *diags, struct graph **graph);

/* Compiles the graph of the compiled model in `dir` for one rank, with the same weights, into out/graph/<instance>.
 * micro_batches: of a step. `dtype`: floats are computed in the type of that name; NULL: in the model's types.
 * weight_dtype, cache_dtype: as the options say; NULL, CHOICE_NONE: the model's. adapter: its number; -1: none. silent:
 * no progress is shown. */
int driver_compile_whole(const char *dir, const char *out, const char *instance, enum choice dtype,
                         const char *weight_dtype, enum choice cache_dtype, int micro_batches, int adapter, bool silent,
                         struct arena *arena, struct diags *diags);

/* The manifest of the compiled model in `dir`, whose sizes are open, with "touched" at the sizes of options->dims. */
int driver_show_at(const char *dir, const struct options *options, struct arena *arena, struct diags *diags,
                   const char **manifest_json);

/* Verifies the compiled model in `dir`: applies plan.json to graph.rir, verifies that the result computes the same as
 * the one-device graph at every level, and compares all files with what this plan generates (verify_directory.c). */
int driver_verify(const char *dir, const struct options *options, struct arena *arena, struct diags *diags);

#endif
