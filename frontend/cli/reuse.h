/* Reuse of an earlier result: keys, and what `--reuse` makes of them (nnScaler's ReuseType matrix).
 *
 *             | empty    | all keys equal, files intact | only graph key equal | else
 *   match     | generate | reuse                        | error                | error
 *   override  | generate | regenerate                   | regenerate           | regenerate
 *   moo       | generate | reuse                        | regenerate           | regenerate
 *   graph     | generate | regenerate                   | regenerate           | regenerate
 *
 * Keys are hashes of content, never of names or times: the graph key of the model's bytes and the options that shape the
 * graph, the plan key of the rest. */
#ifndef FRONTEND_CLI_REUSE_H
#define FRONTEND_CLI_REUSE_H

#include "codegen/manifest.h"
#include "codegen/output.h"
#include "frontend/options.h"
#include "frontend/cli/side_files.h"
#include "runtime/base/hash.h"
#include "runtime/base/json.h"

struct reuse_file {
    const char *path; /* absolute, or below the instance directory */
    int64_t bytes, mtime_ns;
    char hash[RT_HASH_HEX];
};

struct reuse_keys {
    struct key graph, plan;
    VEC(struct reuse_file) files; /* of the model */
};

/* Hashes the model's files, the model itself first, and the options. */
int reuse_make_keys(struct reuse_keys *keys, const struct options *options, const struct side_files *side, int nfiles,
                    const char *const *files, struct arena *arena, struct diags *diags);

/* 1: what is in `directory` stays; 0: generate; -1: error E0801 or E0802 that says what differs. */
int reuse_decide(const char *directory, const struct options *options, const struct reuse_keys *keys, struct arena *arena,
                 struct diags *diags);

/* Rewrites location.json of a result that stays: the model may lie elsewhere now. */
int reuse_relocate(struct output *output, const struct reuse_keys *keys, struct arena *arena);

/* An entry of location.json. */
void reuse_put_file(struct rt_json_writer *w, const struct reuse_file *file);

#endif
