/* The settings of --pas: the axes of the mesh, and what else a policy takes. */
#include "frontend/options/parser.h"

#include "frontend/options/help_text.h"
#include "ir/base/axes.h"
#include "runtime/base/shape/mesh.h"

#include <stdlib.h>
#include <string.h>

/* The settings of --pas that are no axes of the mesh: a choice of words, the first of which is the default. A row for
 * each of the others. */
static const struct preference {
    const char *key, *usual, *other;
    size_t field; /* of struct options, a bool: `other` was chosen */
    enum choice policies[3];
} preferences[] = {
    {"prefer",
     "speed",
     "memory",
     offsetof(struct options, prefer_memory),
     {OPT_POLICY_TP, OPT_POLICY_PP, OPT_POLICY_HYBRID}},
    {"attention",
     "gather",
     "heads",
     offsetof(struct options, attention_heads),
     {OPT_POLICY_CONTEXT, OPT_POLICY_HYBRID}},
    {"attention", "gather", "ring", offsetof(struct options, attention_ring), {OPT_POLICY_CONTEXT, OPT_POLICY_HYBRID}},
    {"cut", "ordered", "mirrored", offsetof(struct options, mirrored_cut), {OPT_POLICY_CONTEXT, OPT_POLICY_HYBRID}},
};
enum { PREFERENCES = sizeof preferences / sizeof *preferences };

static const struct preference *find_preference(const char *key) {
    for (int i = 0; i < PREFERENCES; i++)
        if (!strcmp(preferences[i].key, key)) return &preferences[i];
    return NULL;
}

/* The setting of --pas that is a number and no axis: the capacity of experts' buffers. */
static bool is_capacity(enum choice word, const char *key) {
    return strcmp(key, "capacity") == 0 &&
           (word == OPT_POLICY_EXPERT || word == OPT_POLICY_HYBRID || word == OPT_POLICY_AUTODIST);
}

/* The setting of --pas that is a text: the device configuration of the model's annotations. */
static bool is_configuration(enum choice word, const char *key) {
    return strcmp(key, "config") == 0 && word == OPT_POLICY_ANNOTATED;
}

bool parser_takes_setting(enum choice word, const char *key) {
    if (is_capacity(word, key) || is_configuration(word, key)) return true;
    const struct preference *preference = find_preference(key);
    for (int i = 0; preference && i < 3; i++)
        if (preference->policies[i] == word && word) return true;
    return false;
}

const char *help_policy_settings(enum choice policy, struct arena *arena) {
    static const char *const others[] = {"capacity", "config"};
    const char *keys = choice_rows[policy].keys;
    struct strbuf text;
    strbuf_init(&text, arena);
    if (!strcmp(keys, "FILE")) return "";
    for (size_t length; *keys; keys += length + (keys[length] == ',')) {
        length = strcspn(keys, ",");
        strbuf_printf(&text, "%.*s= ", (int)length, keys);
    }
    for (int i = 0; i < PREFERENCES; i++)
        if ((!i || strcmp(preferences[i].key, preferences[i - 1].key)) &&
            parser_takes_setting(policy, preferences[i].key))
            strbuf_printf(&text, "%s= ", preferences[i].key);
    for (int i = 0; i < 2; i++)
        if (parser_takes_setting(policy, others[i])) strbuf_printf(&text, "%s= ", others[i]);
    if (text.length) text.text[text.length - 1] = 0; /* the last blank */
    return strbuf_text(&text);
}

static bool *preference_field(struct options *options, const struct preference *preference) {
    return (bool *)((char *)options + preference->field);
}

/* True for --pas manual:FILE and the like, where the file determines the mesh. */
static bool takes_file(const struct options *options) {
    return strcmp(choice_rows[options->pas.word].keys, "FILE") == 0;
}

static int take_capacity(struct parser *parser, const char *text) {
    char *end;
    const double factor = strtod(text, &end);
    const bool number = end > text && !*end && factor >= 0.001 && factor <= 1e6;
    if (!number)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "capacity of --pas must be a number from 0.001 to 1000000, not %s",
                          parser_quote(parser, text));
    parser->options->expert_capacity = (int64_t)(factor * 1000 + 0.5);
    return 0;
}

/* Chooses the word of the setting; false if it has no such word. */
static bool choose(struct options *options, const struct preference *usual, const char *word) {
    bool found = !strcmp(usual->usual, word);
    for (int i = 0; i < PREFERENCES; i++) {
        if (strcmp(preferences[i].key, usual->key)) continue;
        const bool other = !strcmp(preferences[i].other, word);
        *preference_field(options, &preferences[i]) = other;
        found = found || other;
    }
    return found;
}

static const char *words_of(const struct preference *usual, struct arena *arena) {
    const char *words = usual->usual;
    for (int i = 0; i < PREFERENCES; i++)
        if (!strcmp(preferences[i].key, usual->key)) words = arena_printf(arena, "%s %s", words, preferences[i].other);
    return words;
}

/* Takes the settings that are no axes out of those of the policy. */
static int take_preferences(struct parser *parser) {
    struct options *options = parser->options;
    struct option_setting *settings = options->pas.settings.at;
    int kept = 0;
    for (int i = 0; i < options->pas.settings.n; i++) {
        const struct preference *preference = find_preference(settings[i].key);
        if (is_capacity(options->pas.word, settings[i].key)) {
            if (take_capacity(parser, settings[i].value)) return -1;
            continue;
        }
        if (is_configuration(options->pas.word, settings[i].key)) options->annotated_config = settings[i].value;
        if (is_configuration(options->pas.word, settings[i].key)) continue;
        if (!preference) {
            settings[kept++] = settings[i];
            continue;
        }
        if (!choose(options, preference, settings[i].value))
            return diag_error(parser->diags, 202, EXIT_USAGE, NULL, "unknown setting %s=%s of --pas (%s)",
                              preference->key, parser_quote(parser, settings[i].value),
                              words_of(preference, parser->arena));
    }
    options->pas.settings.n = kept;
    return 0;
}

/* Reads "2", or "2@0-1" if pipeline stages 0 and 1 alone have the axis. */
static int take_axis(struct parser *parser, const struct option_setting *setting, struct mesh_axis *axis) {
    const size_t digits = strcspn(setting->value, "@");
    const char *stages = setting->value + digits;
    int64_t size;
    *axis = (struct mesh_axis){.name = setting->key};
    if (!parser_count(arena_copy(parser->arena, setting->value, digits), 1, RT_MAX_RANKS, &size))
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "axis '%s' of --pas must be a whole number from 1 to %d, not %s", setting->key, RT_MAX_RANKS,
                          parser_quote(parser, setting->value));
    if (!rt_mesh_parse_stages(stages, &axis->first, &axis->end))
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "axis '%s' of --pas: pipeline stages are @FIRST or @FIRST-LAST, not %s", setting->key,
                          parser_quote(parser, stages));
    axis->size = (int)size;
    return 0;
}

static int named_mesh(struct parser *parser, int64_t *devices) {
    struct options *options = parser->options;
    struct rt_mesh mesh = {.stages = -1};
    int64_t product = 1;
    *devices = 1;
    if (takes_file(options)) return 0;
    for (int i = 0; i < options->pas.settings.n; i++) {
        struct mesh_axis *axis = &options->mesh[mesh.naxes];
        if (take_axis(parser, &options->pas.settings.at[i], axis)) return -1;
        product *= axis->size; /* at most RT_MAX_RANKS ** RT_MAX_AXES */
        if (axis_role_of(axis->name) == AXIS_PIPELINE) mesh.stages = mesh.naxes;
        mesh.axis[mesh.naxes++] = (struct rt_mesh_axis){axis->size, axis->first, axis->end};
    }
    options->naxes = mesh.naxes;
    if (product > RT_MAX_RANKS)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL, "the mesh of --pas %s has %lld devices, more than %d",
                          options_text(options, OPT_PAS, parser->arena), (long long)product, RT_MAX_RANKS);
    const char *why = rt_mesh_refused(&mesh);
    if (why)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL, "the mesh of --pas %s: %s",
                          options_text(options, OPT_PAS, parser->arena), why);
    *devices = rt_mesh_shards(&mesh);
    return 0;
}

/* The mesh of a policy with one axis, if none is given: all --plan-ngpus devices on that axis. */
static void default_mesh(struct parser *parser) {
    struct options *options = parser->options;
    const char *axis = choice_rows[options->pas.word].keys;
    if (!*axis || strchr(axis, ',') || takes_file(options)) return;
    options->mesh[options->naxes++] = (struct mesh_axis){.name = axis, .size = (int)options->plan_ngpus};
    const char *size = arena_printf(parser->arena, "%lld", (long long)options->plan_ngpus);
    VEC_PUSH(parser->arena, &options->pas.settings, (struct option_setting){axis, size});
}

static int check_dp(struct parser *parser) {
    if (parser->options->pas.word != OPT_POLICY_DP || parser->options->plan_ngpus == 1) return 0;
    if (parser->options->load_plan) return 0; /* the plan file says what each rank computes */
    diag_error(parser->diags, 204, EXIT_USAGE, NULL,
               "--pas dp replicates the whole model on every device: --plan-ngpus must be 1, not %lld",
               (long long)parser->options->plan_ngpus);
    diag_help(
        parser->diags,
        "--runtime-ngpus sets the number of data-parallel devices; --pas data splits the batch within a scale unit");
    return -1;
}

static int check_sequence_parallel(struct parser *parser) {
    const struct options *options = parser->options;
    for (int i = 0; i < options->naxes; i++)
        if (axis_role_of(options->mesh[i].name) == AXIS_TENSOR) return 0;
    return options->sequence_parallel
               ? diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                            "--sequence-parallel goes with tensor parallelism, and --pas %s has no axis tensor",
                            options_text(options, OPT_PAS, parser->arena))
               : 0;
}

static int check_async_tp(struct parser *parser) {
    enum { MOST_RUNS = 64 };
    struct options *options = parser->options;
    options->product_runs = -1;
    if (!options->async_tp) options->product_runs = 0;
    if (!options->async_tp || !strcmp(options->async_tp, "auto")) return 0;
    return parser_count(options->async_tp, 1, MOST_RUNS, &options->product_runs)
               ? 0
               : diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                            "--async-tp must be auto or a whole number from 1 to %d, not %s", MOST_RUNS,
                            parser_quote(parser, options->async_tp));
}

/* An attention by heads has all positions on every rank: there is no work to balance. Annotations have no word for
 * mirrored cuts. */
static int check_mirrored(struct parser *parser) {
    const struct options *options = parser->options;
    if (options->mirrored_cut && options->onnx_out)
        return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                          "--onnx-out: ONNX annotations cannot say cut=mirrored of --pas");
    return options->mirrored_cut && options->attention_heads
               ? diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                            "cut=mirrored of --pas balances attention=gather and ring; with attention=heads every rank "
                            "computes "
                            "all positions")
               : 0;
}

/* Ring attention is flash attention. */
static int take_ring(struct parser *parser) {
    struct options *options = parser->options;
    if (!options->attention_ring || options->attention != OPT_ATTENTION_PRODUCTS) return 0;
    options->attention = OPT_ATTENTION_FLASH;
    return options->given[OPT_ATTENTION]
               ? diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                            "attention=ring of --pas is flash attention, and --attention is products")
               : 0;
}

int parser_finish_mesh(struct parser *parser) {
    struct options *options = parser->options;
    int64_t product;
    if (take_preferences(parser)) return -1;
    if (named_mesh(parser, &product)) return -1;
    if (!options->given[OPT_PLAN_NGPUS])
        options->plan_ngpus = product;
    else if (options->naxes && options->plan_ngpus != product)
        return diag_error(
            parser->diags, 204, EXIT_USAGE, NULL, "the mesh of --pas %s has %lld devices, but --plan-ngpus is %lld",
            options_text(options, OPT_PAS, parser->arena), (long long)product, (long long)options->plan_ngpus);
    if (check_dp(parser)) return -1;
    if (!options->naxes) default_mesh(parser);
    if (take_ring(parser) || check_sequence_parallel(parser) || check_mirrored(parser) || check_async_tp(parser))
        return -1;
    for (int i = 0; i < PREFERENCES; i++)
        if (*preference_field(options, &preferences[i]))
            VEC_PUSH(parser->arena, &options->pas.settings,
                     ((struct option_setting){preferences[i].key, preferences[i].other}));
    if (options->annotated_config)
        VEC_PUSH(parser->arena, &options->pas.settings, ((struct option_setting){"config", options->annotated_config}));
    if (options->expert_capacity)
        VEC_PUSH(parser->arena, &options->pas.settings,
                 ((struct option_setting){"capacity",
                                          arena_printf(parser->arena, "%g", (double)options->expert_capacity / 1000)}));
    if (!options->given[OPT_RUNTIME_NGPUS]) options->runtime_ngpus = options->plan_ngpus;
    if (options->runtime_ngpus % options->plan_ngpus == 0) return 0;
    return diag_error(parser->diags, 204, EXIT_USAGE, NULL,
                      "--runtime-ngpus must be a multiple of --plan-ngpus: %lld is not a multiple of %lld",
                      (long long)options->runtime_ngpus, (long long)options->plan_ngpus);
}
