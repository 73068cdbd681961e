/* What stands behind the policy of --pas: the axes of the mesh, and settings. */
#include "frontend/options/parser.h"

#include "frontend/options/help_text.h"
#include "runtime/base/shape/mesh.h"

#include <string.h>

/* The keys that the policy takes, NULL-terminated: axes, and behind them settings. *naxes: of the axes. */
static const char **keys_of(enum choice policy, int *naxes, struct arena *arena) {
    const char *axes = choice_rows[policy].keys;
    const char **keys = ARENA_ARRAY(arena, const char *, RT_MAX_AXES + DECISIONS + 1),
               **listed = parser_split_list(arena, strcmp(axes, "FILE") ? axes : "");
    int n = 0;
    for (; listed[n]; n++) keys[n] = listed[n];
    *naxes = n;
    for (int i = 0; i < DECISIONS; i++)
        if (decision_is_setting(&decision_rows[i], choice_word(policy))) keys[n++] = decision_rows[i].name;
    return keys;
}

const char *help_policy_settings(enum choice policy, struct arena *arena) {
    int naxes;
    const char **keys = keys_of(policy, &naxes, arena);
    for (int i = 0; keys[i]; i++) keys[i] = arena_printf(arena, "%s=", keys[i]);
    return parser_joined(arena, keys);
}

/* Reads "2", or "2@0-1" if pipeline stages 0 and 1 alone have the axis. */
static int take_axis(struct parser *parser, const char *name, const char *value) {
    const size_t digits = strcspn(value, "@");
    struct rt_mesh_axis axis = {0};
    int64_t size;
    if (!parser_count(arena_copy(parser->arena, value, digits), 1, RT_MAX_RANKS, &size))
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "axis '%s' of --pas must be a whole number from 1 to %d, not %s", name, RT_MAX_RANKS,
                          parser_quote(parser, value));
    if (!rt_mesh_parse_stages(value + digits, &axis.first, &axis.end))
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "axis '%s' of --pas: pipeline stages are @FIRST or @FIRST-LAST, not %s", name,
                          parser_quote(parser, value + digits));
    axis.size = (int)size;
    mesh_add_axis(&parser->options->decisions.mesh, name, &axis);
    return 0;
}

static int take_setting(struct parser *parser, const struct decision *row, const char *value) {
    char *words = arena_strdup(parser->arena, row->words);
    if (decision_parse(row, value, &parser->options->decisions)) return 0;
    if (row->kind == DECISION_PARTS)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "%s of --pas must be a number from 0.001 to %lld, not %s", row->name,
                          (long long)row->most / 1000, parser_quote(parser, value));
    for (char *bar; (bar = strchr(words, '|'));) *bar = ' ';
    return diag_error(parser->diags, 202, EXIT_USAGE, NULL, "unknown setting %s=%s of --pas (%s)", row->name,
                      parser_quote(parser, value), words);
}

int parser_add_setting(struct parser *parser, const char *text) {
    struct options *options = parser->options;
    const char *equals = strchr(text, '='), *policy = choice_word(options->pas.word);
    const char *key = arena_copy(parser->arena, text, equals ? (size_t)(equals - text) : strlen(text));
    int naxes, found = 0;
    const char **keys = keys_of(options->pas.word, &naxes, parser->arena);
    while (keys[found] && strcmp(keys[found], key)) found++;
    if (!keys[found]) {
        const char *axes = choice_rows[options->pas.word].keys;
        diag_error(parser->diags, 202, EXIT_USAGE, NULL, "--pas %s has no setting %s%s%s%s", policy,
                   parser_quote(parser, key), naxes ? " (" : "",
                   parser_joined(parser->arena, parser_split_list(parser->arena, axes)), naxes ? ")" : "");
        parser_suggest(parser, "", key, keys);
        return -1;
    }
    if (!equals || !equals[1])
        return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "setting '%s' of --pas %s needs a value", key, policy);
    if (parser->taken[found])
        return diag_error(parser->diags, 200, EXIT_USAGE, NULL, "setting '%s' of --pas %s is given twice", key, policy);
    parser->taken[found] = true;
    const char *value = arena_strdup(parser->arena, equals + 1);
    if (found < naxes) return take_axis(parser, key, value);
    for (int i = 0; i < DECISIONS; i++)
        if (!strcmp(decision_rows[i].name, key)) return take_setting(parser, &decision_rows[i], value);
    BUG("no row of setting %s", key);
}

/* Checks the mesh that is given, and sets plan_ngpus to its size. */
static int check_mesh(struct parser *parser) {
    struct options *options = parser->options;
    const struct mesh *mesh = &options->decisions.mesh;
    const char *why = mesh_refused(mesh);
    if (mesh_product(mesh) > RT_MAX_RANKS)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL, "the mesh of --pas %s has %lld device(s), more than %d",
                          options_text(options, OPT_PAS, parser->arena), (long long)mesh_product(mesh), RT_MAX_RANKS);
    if (why)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL, "the mesh of --pas %s: %s",
                          options_text(options, OPT_PAS, parser->arena), why);
    const int devices = mesh_size(mesh);
    if (!options->given[OPT_PLAN_NGPUS])
        options->plan_ngpus = devices;
    else if (mesh->naxes && options->plan_ngpus != devices)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "the mesh of --pas %s has %d device(s), but --plan-ngpus is %lld",
                          options_text(options, OPT_PAS, parser->arena), devices, (long long)options->plan_ngpus);
    return 0;
}

/* The mesh of a policy with one axis, if none is given: all --plan-ngpus devices on that axis. */
static void default_mesh(struct options *options) {
    const char *axis = choice_rows[options->pas.word].keys;
    if (!*axis || strchr(axis, ',') || options->pas.file) return;
    mesh_add_axis(&options->decisions.mesh, axis, &(struct rt_mesh_axis){.size = (int)options->plan_ngpus});
}

static int check_dp(struct parser *parser) {
    if (parser->options->pas.word != OPT_POLICY_DP || parser->options->plan_ngpus == 1) return 0;
    if (parser->options->load_plan) return 0; /* the plan file says what each rank computes */
    diag_error(parser->diags, 204, EXIT_USAGE, NULL,
               "--pas dp replicates the whole model on every device: --plan-ngpus must be 1, not %lld",
               (long long)parser->options->plan_ngpus);
    return diag_help(
        parser->diags,
        "--runtime-ngpus sets the number of data-parallel devices; --pas data splits the batch within a scale unit");
}

static int check_sequence_parallel(struct parser *parser) {
    const struct options *options = parser->options;
    return options->decisions.sequence_parallel && mesh_axis(&options->decisions.mesh, AXIS_TENSOR) < 0
               ? diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                            "--sequence-parallel goes with tensor parallelism, and --pas %s has no axis tensor",
                            options_text(options, OPT_PAS, parser->arena))
               : 0;
}

/* An attention by heads has all positions on every rank: there is no work to balance. Annotations have no word for
 * mirrored cuts. */
static int check_mirrored(struct parser *parser) {
    const struct options *options = parser->options;
    if (options->decisions.cut == CUT_ORDERED) return 0;
    if (options->onnx_out)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "--onnx-out: ONNX annotations cannot say cut=mirrored of --pas");
    return options->decisions.attention == ATTENTION_HEADS
               ? diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                            "cut=mirrored of --pas balances attention=gather and ring; with attention=heads every rank "
                            "computes "
                            "all positions")
               : 0;
}

/* Ring attention is flash attention. */
static int take_ring(struct parser *parser) {
    struct options *options = parser->options;
    if (options->decisions.attention != ATTENTION_RING || options->attention != OPT_ATTENTION_PRODUCTS) return 0;
    options->attention = OPT_ATTENTION_FLASH;
    return options->given[OPT_ATTENTION]
               ? diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                            "attention=ring of --pas is flash attention, and --attention is products")
               : 0;
}

int parser_finish_mesh(struct parser *parser) {
    struct options *options = parser->options;
    if (check_mesh(parser) || check_dp(parser)) return -1;
    if (!options->decisions.mesh.naxes) default_mesh(options);
    if (take_ring(parser) || check_sequence_parallel(parser) || check_mirrored(parser)) return -1;
    if (!options->given[OPT_RUNTIME_NGPUS]) options->runtime_ngpus = options->plan_ngpus;
    if (options->runtime_ngpus % options->plan_ngpus == 0) return 0;
    return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                      "--runtime-ngpus must be a multiple of --plan-ngpus: %lld is not a multiple of %lld",
                      (long long)options->runtime_ngpus, (long long)options->plan_ngpus);
}
