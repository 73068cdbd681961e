/* A compiled model on disk, as verbs find and read it. */
#ifndef FRONTEND_CLI_COMPILED_MODEL_H
#define FRONTEND_CLI_COMPILED_MODEL_H

#include "codegen/manifest.h"
#include "frontend/cli/cli.h"
#include "runtime/base/json.h"

struct compiled_model {
    const char *directory;             /* of manifest.json */
    const struct rt_json *root;        /* of the manifest, an object of format MANIFEST_FORMAT */
    int64_t plan_ngpus, runtime_ngpus; /* at least 1 */
    struct arena *arena;               /* owns what follows */
    struct rt_json_document *document;
    int lock; /* shared, against a compile that replaces it meanwhile; -1: none needed */
};

/* True if `path` is a directory, so not a model file. */
bool is_directory(const char *path);

/* Opens the compiled model at `path`: <output>/<model>/<instance>, or a directory above it while only one is below.
 * 0, or -1 with diagnostics and nothing to close. */
int compiled_open(struct compiled_model *out, const char *path, struct cli *cli);
void compiled_close(struct compiled_model *compiled);

/* The operand is a compiled model: -1 with a diagnostic if options were given that only a model file can obey. */
int compiled_refuses_options(struct cli *cli);

/* A manifest's text, of driver_plan; compiled->directory is NULL. */
int compiled_parse(struct compiled_model *out, const char *text, struct cli *cli);

#endif
