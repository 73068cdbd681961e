/* Reuse keys: hashes of content, never of directories or times.
 *
 * The graph key is made of the bytes of the model and its external data, the model's file name (the graph carries
 * it), the options that shape the graph, bound inputs and this build of rankc (which holds the templates); the plan
 * key of the graph key, all other options that reach what is generated, the content of a rule or plan file, and the
 * names of the instance and its directory (generated code carries them). Both keep their parts, so that a
 * difference can be named. */
#ifndef FRONTEND_DRIVER_REUSE_KEYS_H
#define FRONTEND_DRIVER_REUSE_KEYS_H

#include "codegen/manifest.h"
#include "frontend/cli/options.h"
#include "frontend/driver/directory_names.h"
#include "frontend/driver/side_files.h"
#include "runtime/base/hash.h"
#include "runtime/base/json.h"

struct hashed_file {
    const char *path;  /* absolute, or below the instance directory */
    const char *given; /* as the user or the model names it; only for diagnostics */
    int64_t bytes, mtime_ns, ctime_ns;
    char hash[RT_HASH_HEX];
};

struct reuse_keys {
    struct key graph, plan;
    const char *work; /* hash of the parts of both but for the build: what programs compute, whoever compiled them */
    VEC(struct hashed_file) files; /* of the model */
};

/* Hashes the model's files, the model itself first, and the options. `names` are of the directories. */
int reuse_keys_make(struct reuse_keys *keys, const struct options *options, const struct directory_names *names,
                    const struct side_files *side, int nfiles, const char *const *files, struct arena *arena,
                    struct diags *diags);

/* The keys as manifest.json has them ("keys"), and `work`; `nfiles` is how many files the model had. False where a key
 * is not the hash of its parts. */
bool reuse_keys_read(struct reuse_keys *keys, const struct rt_json *stored, int *nfiles, struct arena *arena);

/* The value of a part; NULL: there is none. */
const char *reuse_keys_part(const struct key *key, const char *name);

/* E0604 where a file of the model is not what it was when it was hashed: what was read from it may be of two kinds. */
int reuse_keys_check_files(const struct reuse_keys *keys, struct diags *diags);

#endif
