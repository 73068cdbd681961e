/* Fuzz target: configurations of models (--model-config FILE).
 *
 * A file is refused with diagnostics, or it gives a graph for training and one for inference, which pass the verifier
 * after the passes that come before a plan. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "frontend/config/config.h"
#include "passes/pipeline.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_LAYERS = 8 };

static char link_path[64]; /* a name that ends with .json, as those of configurations do */

static void remove_link(void) {
    unlink(link_path);
}

static const char *json_file(const unsigned char *data, size_t size) {
    const char *file = fuzz_file(data, size);
    if (*link_path) return link_path;
    snprintf(link_path, sizeof link_path, "/tmp/rankc-fuzz-%ld.json", (long)getpid());
    fuzz_check(symlink(file, link_path) == 0 && atexit(remove_link) == 0);
    return link_path;
}

static void build(struct arena *arena, struct diags *diags, const struct model_config *config, bool train) {
    struct graph *graph;
    struct pass_context context = {.policy = "dp", .diags = diags};
    bool good = model_config_graph(arena, diags, config, RT_DTYPE_NONE, 1, train, &graph) == 0;
    if (good) good = pipeline_run(graph, &context, pass_find("dce")) == 0;
    fuzz_check(good == (diags->errors == 0));
}

static void run(struct arena *arena, const unsigned char *data, size_t size) {
    struct diags diags;
    struct model_config config;
    diags_init(&diags, arena);
    bool good = model_config_read(arena, &diags, json_file(data, size), &config) == 0;
    fuzz_check(good == (diags.errors == 0));
    fuzz_passed = good;
    if (!good) return;
    if (config.layers > MOST_LAYERS) config.layers = MOST_LAYERS; /* all are alike */
    build(arena, &diags, &config, true);
    if (!diags.errors) build(arena, &diags, &config, false);
}

const struct fuzz_target fuzz_target = {64 << 20, run, NULL};
