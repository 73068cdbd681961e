/* What holds between options, checked after all of them have been parsed. */
#include "frontend/options/parser.h"

#include <stdlib.h>
#include <string.h>

/* --model-config takes the place of the operand, and of what a model file says. It is for training on GPUs unless the
 * options say otherwise. */
static int take_configuration(struct parser *parser) {
    static const enum option_id of_files[] = {OPT_SHAPE,        OPT_BIND,  OPT_LOSS,   OPT_OPS,
                                              OPT_WEIGHTS_FROM, OPT_TRAIN, OPT_SHARED, OPT_SYNC_BATCH_NORM};
    struct options *options = parser->options;
    if (!options->model_config)
        return parser_usage_error(parser, arena_printf(parser->arena, "--%s needs --model-config",
                                                       options->inference ? "inference" : "decode"));
    if (options->operand) return parser_usage_error(parser, "MODEL.onnx and --model-config exclude each other");
    if (options->decode && !options->inference) return parser_usage_error(parser, "--decode needs --inference");
    for (size_t i = 0; i < sizeof of_files / sizeof *of_files; i++)
        if (options->given[of_files[i]])
            return parser_usage_error(parser,
                                      arena_printf(parser->arena, "--%s is for a model file, not for --model-config",
                                                   option_rows[of_files[i]].name));
    options->operand = options->model_config;
    options->train = !options->inference;
    options->batch_dim = "batch";
    if (!options->given[OPT_TARGET]) options->target = OPT_TARGET_CUDA;
    if (options->train && options->attention == OPT_ATTENTION_PRODUCTS)
        return parser_usage_error(parser, "without flash attention, --model-config needs --inference");
    return 0;
}

/* True of steps that write a token of each text: such a step has one micro-batch, whose texts have caches in memory. */
static bool generates(const struct options *options) {
    return options->decode || (options->state && strcmp(options->state, "none") != 0);
}

/* The size that --dim gives the batch; NULL: none. */
static const struct option_size *given_batch(const struct options *options) {
    for (int i = 0; i < options->dims.all.n; i++)
        if (strcmp(options->dims.all.at[i].name, options->batch_dim) == 0) return &options->dims.all.at[i];
    return NULL;
}

bool options_micro_batches(const struct options *options, int64_t units, int64_t *micro_batches) {
    *micro_batches = options->decisions.micro_batches;
    if (!options->global_batch) return true;
    const struct option_size *batch = given_batch(options);
    if (batch) units *= batch->range.typical;
    *micro_batches = generates(options) ? 1 : units ? options->global_batch / units : 0;
    return *micro_batches && options->global_batch == *micro_batches * units;
}

bool options_divide_batch(struct options *options) {
    return options_micro_batches(options, options->runtime_ngpus / options->plan_ngpus,
                                 &options->decisions.micro_batches);
}

/* E0205 where a step of generation has another number of texts. The search chooses among numbers of scale units. */
static int check_texts(const struct options *options, int64_t units, struct diags *diags) {
    const struct option_size *batch = given_batch(options);
    const int64_t all = options->global_batch, texts = batch ? batch->range.typical : 0;
    const bool searched = options->pas.word == OPT_POLICY_AUTODIST && !options->given[OPT_PLAN_NGPUS];
    if (searched && texts && all % texts == 0 && options->runtime_ngpus % (all / texts) == 0) return 0;
    if (!batch || texts * units == all) return 0;
    diag_error(diags, 205, EXIT_USAGE, "--global-batch",
               "a step of generation has one micro-batch, and --dim %s=%lld is not %lld text(s) on %lld scale unit(s)",
               batch->name, (long long)texts, (long long)all, (long long)units);
    return diag_help(diags, "leave out --dim %s: --global-batch says what it is", batch->name);
}

int options_take_batch(struct options *options, struct arena *arena, struct diags *diags) {
    const int64_t units = options->runtime_ngpus / options->plan_ngpus;
    if (generates(options) && check_texts(options, units, diags) < 0) return -1;
    if (options->pas.word == OPT_POLICY_AUTODIST) return 0;
    if (generates(options) && !given_batch(options)) {
        VEC_UNSHARE(arena, &options->dims.all);
        VEC_PUSH(arena, &options->dims.all,
                 (struct option_size){options->batch_dim, open_fixed(options->global_batch / units)});
    }
    if (options_divide_batch(options)) return 0;
    return diag_error(diags, 205, EXIT_USAGE, "--global-batch",
                      "%lld is no multiple of the samples that all %lld scale unit(s) have in a micro-batch",
                      (long long)options->global_batch, (long long)units);
}

/* --global-batch. The batch of a model file is known when the file has been read. */
static int check_batch(struct parser *parser) {
    struct options *options = parser->options;
    if (options->given[OPT_ACCUMULATE])
        return parser_usage_error(parser, "--global-batch determines --accumulate: give one of them");
    return options->batch_dim ? options_take_batch(options, parser->arena, parser->diags) : 0;
}

/* E0200 for an option of the search with another policy. */
static int check_search(struct parser *parser) {
    static const enum option_id of_search[] = {OPT_SEARCH_TIME, OPT_FORBID, OPT_REQUIRE, OPT_MEASURE_TOPK};
    if (parser->options->measure_topk && parser->options->model_config)
        return parser_usage_error(parser, "--measure-topk runs the model, and --model-config gives no weights to run");
    if (parser->options->save_machine && !parser->options->measure_topk)
        return parser_usage_error(parser, "--save-machine is for --measure-topk");
    if (parser->options->pas.word == OPT_POLICY_AUTODIST) return 0;
    for (size_t i = 0; i < sizeof of_search / sizeof *of_search; i++)
        if (parser->options->given[of_search[i]])
            return parser_usage_error(
                parser, arena_printf(parser->arena, "--%s is for --pas autodist", option_rows[of_search[i]].name));
    return 0;
}

/* Without --attention: on GPUs 16-bit floats take flash attention (measured in docs/measured/gpu-results.md), and so
 * do decoders with caches, of whose steps graphs then hold (Note [Growing sizes] in runtime/cuda/grow.cuh), and what
 * --model-config plans; on CPUs training in f32 does, where it is faster. */
static void choose_attention(struct options *options) {
    const bool half = options->amp || options->dtype == OPT_DTYPE_BF16 || options->dtype == OPT_DTYPE_FP16;
    const bool cuda = options->target == OPT_TARGET_CUDA;
    const bool flash = options->model_config ? options->train || cuda : options->train && !cuda && !half;
    if (options->attention != CHOICE_NONE) return;
    if (half && cuda)
        options->attention = OPT_ATTENTION_CUDNN;
    else if (flash || (options->state && cuda))
        options->attention = OPT_ATTENTION_FLASH;
    else
        options->attention = OPT_ATTENTION_PRODUCTS;
}

int options_finish(struct options *options, struct arena *arena, struct diags *diags) {
    return parser_finish(&(struct parser){.options = options, .arena = arena, .diags = diags});
}

int parser_finish(struct parser *parser) {
    struct options *options = parser->options;
    const char *operand = verb_rows[options->verb].operand;
    if (parser->diags->errors) return -1;
    if (options->verbose && options->quiet) return parser_usage_error(parser, "-v and -q contradict each other");
    if (options->given[OPT_STALL_TIMEOUT] && options->comm == OPT_COMM_LOOPBACK)
        return parser_usage_error(parser, "--stall-timeout needs ranks that are processes; with "
                                          "--comm loopback they are threads of one process");
    if (options->restarts && options->comm == OPT_COMM_LOOPBACK)
        return parser_usage_error(parser, "--restarts needs ranks that are processes; with "
                                          "--comm loopback they are threads of one process");
    if (options->dump_dir && !options->dump_tensors)
        return parser_usage_error(parser, "--dump-dir needs --dump-tensors");
    if (options->restarts && !options->checkpoint_dir)
        return parser_usage_error(parser, "--restarts needs --checkpoint-dir");
    if (options->restarts && options->reset_optimizer)
        return parser_usage_error(parser, "--restarts resumes optimizer state, and --reset-optimizer drops it");
    if (options->help) return 0;
    if (!strcmp(options->instance_name, ".") || !strcmp(options->instance_name, ".."))
        return diag_error(parser->diags, 205, EXIT_USAGE, NULL,
                          "--instance-name must be usable as the name of a directory, not '%s'",
                          options->instance_name);
    if (options->model_config || options->inference || options->decode) take_configuration(parser);
    choose_attention(options);
    if (parser->diags->errors) return -1;
    if (options->verb == VERB_PLAN && !options->operand)
        return parser_usage_error(parser, "MODEL.onnx or --model-config is missing");
    if (*operand && *operand != '[' && !options->operand)
        return parser_usage_error(parser, arena_printf(parser->arena, "%s is missing", operand));
    for (int i = 0; options->action && i < OPERANDS_MAX; i++) {
        const char *wanted = parser_operand_name(options->action, i, parser->arena);
        if (wanted && !options->operands[i])
            return parser_usage_error(parser, arena_printf(parser->arena, "%s is missing", wanted));
    }
    if (parser_finish_mesh(parser) || check_search(parser)) return -1;
    return options->global_batch ? check_batch(parser) : 0;
}
