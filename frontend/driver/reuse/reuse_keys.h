/* Reuse keys: hashes of content, never of paths or times.
 *
 * The graph key covers everything that the imported graph depends on: the bytes of the model and its external data, the
 * model's file name (graph.rir contains it), the options that affect the import, bound inputs, and this build of rankc.
 * The plan key covers everything that generated files depend on: the graph key, all other options that affect them, the
 * content of a rule or plan file, and the names of the instance and its directories (generated code contains them).
 * Both keep a list of their parts, so that a diagnostic can name the difference. */
#ifndef FRONTEND_DRIVER_REUSE_KEYS_H
#define FRONTEND_DRIVER_REUSE_KEYS_H

#include "codegen/manifest/manifest.h"
#include "frontend/options/options.h"
#include "frontend/driver/output/directory_names.h"
#include "frontend/driver/files/side_files.h"
#include "runtime/base/number/hash.h"
#include "runtime/base/text/json.h"

/* A file and its state when it was hashed. */
struct hashed_file {
    const char *path;  /* absolute, or relative to the instance directory */
    const char *given; /* as the user or the model spells it, for diagnostics */
    int64_t bytes, mtime_ns, ctime_ns;
    char hash[RT_HASH_HEX];
};

struct reuse_keys {
    struct key graph, plan;
    struct key work; /* parts of both without the build and options of KEY_MEANS: equal if programs compute the same */
    VEC(struct hashed_file) files; /* of the model */
};

/* Hashes the model's files (files[0] is the model) and the options. `names`: the result's directories. 0, or -1 after a
 * diagnostic. */
int reuse_keys_make(struct reuse_keys *keys, const struct options *options, const struct directory_names *names,
                    const struct side_files *side, int nfiles, const char *const *files, struct arena *arena,
                    struct diags *diags);

/* Reads the keys from "keys" of a manifest and computes `work`; *nfiles: how many files the model had. False if a key
 * is not the hash of its parts. */
bool reuse_keys_read(struct reuse_keys *keys, const struct rt_json *stored, int *nfiles, struct arena *arena);

/* The value of a part of a key; NULL: it has no such part. */
const char *reuse_keys_part(const struct key *key, const char *name);

/* Call it after the last read of the model: 0, or -1 with E0604 if a file has changed since it was hashed. */
int reuse_keys_check_files(const struct reuse_keys *keys, struct diags *diags);

#endif
