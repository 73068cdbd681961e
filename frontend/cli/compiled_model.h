/* Finding, locking and reading the manifest of a compiled model on disk. */
#ifndef FRONTEND_CLI_COMPILED_MODEL_H
#define FRONTEND_CLI_COMPILED_MODEL_H

#include "codegen/manifest/manifest.h"
#include "frontend/cli/cli.h"
#include "ir/ir.h"
#include "runtime/base/text/json.h"

struct compiled_model {
    const char *directory;      /* that has manifest.json */
    const struct rt_json *root; /* of the manifest, an object of format RT_MANIFEST_FORMAT */
    int64_t plan_ngpus;         /* at least 1 */
    int64_t runtime_ngpus;      /* --runtime-ngpus, else the default of location.json: a multiple of plan_ngpus */
    struct mesh mesh;           /* of plan_ngpus shards */
    struct arena *arena;        /* owns document and lock */
    struct rt_json_document *document;
    int lock; /* shared, so that no compile replaces the model meanwhile; -1: none needed */
};

/* True if `path` is a directory, and so a compiled model rather than a model file. */
bool is_directory(const char *path);

/* Opens the compiled model at `path`: <output>/<model>/<instance>, or a directory above it that contains only one. 0,
 * or -1 after diagnostics, with nothing to close. */
int compiled_open(struct compiled_model *out, const char *path, struct cli *cli);
void compiled_close(struct compiled_model *compiled);

/* For an operand that is a compiled model: -1 with a diagnostic if options of compiling were given, else 0.
 * --runtime-ngpus is none of them. */
int compiled_refuses_options(struct cli *cli);

/* Reads a manifest from its text, for a job of that many ranks (driver_plan); compiled->directory is NULL. */
int compiled_parse(struct compiled_model *out, const char *text, int ranks, struct cli *cli);

#endif
