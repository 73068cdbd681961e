/* Compiles models into the cache. */
#include "frontend/cli/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/driver/driver.h"
#include "runtime/base/number/hash.h"

/* Creates a directory that only the user can access, unless it exists. */
static int make_directory(const char *path, struct cli *cli) {
    if (!mkdir(path, 0700) || errno == EEXIST) return 0;
    return diag_errno(cli->diags, 611, NULL, "create", path);
}

/* $XDG_CACHE_HOME/rankc or $HOME/.cache/rankc; NULL with a diagnostic. A relative XDG_CACHE_HOME is to be ignored
 * (XDG Base Directory Specification). */
static const char *cache_directory(struct cli *cli) {
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (!base || *base != '/') base = home && *home ? arena_printf(cli->arena, "%s/.cache", home) : NULL;
    if (!base) {
        diag_error(cli->diags, 606, EXIT_SYSTEM, NULL,
                   "no cache directory for the compiled model: neither XDG_CACHE_HOME nor HOME is set");
        diag_help(cli->diags, "'rankc compile -o DIR' writes to any directory");
        return NULL;
    }
    const char *path = arena_printf(cli->arena, "%s/rankc", base);
    return make_directory(base, cli) || make_directory(path, cli) ? NULL : path;
}

/* The instance name in the cache: a hash of the model's path and the options, so that two files called model.onnx do
 * not replace each other. */
static const char *cache_instance(const char *model, struct cli *cli) {
    struct rt_hash hash;
    char hex[RT_HASH_HEX];
    rt_hash_start(&hash);
    rt_hash_text(&hash, model);
    for (int i = 0; i < OPTIONS; i++)
        if (option_rows[i].key != KEY_NONE)
            rt_hash_text(&hash, options_text(cli->options, (enum option_id)i, cli->arena));
    rt_hash_hex(&hash, hex);
    return arena_copy(cli->arena, hex, 16);
}

/* Compiles the operand into the cache unless it is there; returns its directory, NULL after diagnostics. */
static const char *compile_into_cache(cache_bound *bound, struct cli *cli, struct driver_result *result) {
    struct options options = *cli->options;
    char *model = realpath(options.operand, NULL);
    if (!model) {
        diag_errno(cli->diags, 601, NULL, "open", options.operand);
        return NULL;
    }
    options.verb = VERB_COMPILE;
    options.output = cache_directory(cli);
    options.instance_name = cache_instance(model, cli);
    options.reuse = OPT_REUSE_MOO;
    /* the default of a program in the cache is one scale unit: runs with other numbers of ranks share it */
    if (options.pas.word != OPT_POLICY_AUTODIST) {
        options.given[OPT_RUNTIME_NGPUS] = false;
        options.runtime_ngpus = options.plan_ngpus;
    }
    free(model);
    if (!options.output) return NULL;
    const char *directory = arena_printf(cli->arena, "%s/%s/%s", options.output, options_model(&options, cli->arena),
                                         options.instance_name);
    return bound(&options, directory, cli, result) ? NULL : result->directory;
}

static bool has_key(const struct compiled_model *compiled, const char *wanted) {
    const struct rt_json *keys = rt_json_member(compiled->root, "keys");
    const char *key = rt_json_text(rt_json_member(rt_json_member(keys, "plan"), "key"));
    return key && strcmp(key, wanted) == 0;
}

int cache_open(struct compiled_model *compiled, cache_bound *bound, struct cli *cli) {
    for (;;) {
        struct driver_result result;
        const char *directory = compile_into_cache(bound, cli, &result);
        if (!directory || compiled_open(compiled, directory, cli)) return -1;
        if (has_key(compiled, result.key)) return 0;
        compiled_close(compiled);
    }
}
