#include "frontend/cli/generate_encoders.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/generate_ports.h"
#include "frontend/cli/start.h"
#include "frontend/config/generation.h"
#include "ir/base/own.h"
#include "runtime/base/npy.h"

/* An input and its value, by its index: values move as more are added. */
struct link {
    const char *input;
    int value;
};

struct links {
    VEC(struct link) all;
};

struct encoder {
    struct compiled_model compiled;
    struct ports ports;
    bool decodes;     /* it reads what an encoder has computed: its token ids are the decoder's */
    bool decoder_ids; /* by that name */
    struct links links;
    int first, end; /* its outputs among the values */
};

struct encoders {
    struct cli *cli;
    VEC(struct encoder) all;
    VEC(struct value) values;
    const char *ids, *mask;
    struct encoded encoded;
    int64_t width;     /* columns of the source; 0: there is none */
    struct links last; /* of the decoder */
};

static const struct rt_json *input_named(const struct encoder *encoder, const char *name) {
    for (const struct rt_json *input = encoder->ports.inputs ? encoder->ports.inputs->first : NULL; input;
         input = input->next)
        if (strcmp(port_name(input), name) == 0) return input;
    return NULL;
}

static const struct rt_json *input_with(const struct encoder *encoder, enum rt_role role) {
    for (const struct rt_json *input = encoder->ports.inputs ? encoder->ports.inputs->first : NULL; input;
         input = input->next)
        if (generation_role(port_name(input), encoder->decoder_ids) == role) return input;
    return NULL;
}

static int open_encoder(struct encoders *encoders, const char *directory) {
    struct cli cli = *encoders->cli;
    struct options options = *cli.options;
    struct encoder encoder = {0};
    options.given[OPT_RUNTIME_NGPUS] = false; /* it is the decoder's */
    cli.options = &options;
    if (compiled_open(&encoder.compiled, directory, &cli) < 0) return -1;
    ports_read(&encoder.ports, &encoder.compiled, diag_quote(cli.diags, directory), &cli);
    encoder.decodes = input_with(&encoder, RT_ROLE_ENCODER_STATES) != NULL;
    encoder.decoder_ids = input_named(&encoder, "decoder_input_ids") != NULL;
    VEC_PUSH(cli.arena, &encoders->all, encoder);
    if (!rt_json_member(encoder.compiled.root, "generation")) return 0;
    diag_error(cli.diags, 200, EXIT_USAGE, NULL, "--encoder %s keeps state from step to step: it is a decoder",
               encoder.ports.name);
    return diag_help(cli.diags, "the operand of generate is the decoder; compile encoders without --state");
}

int encoders_open(struct encoders **out, const struct option_texts *directories, struct cli *cli) {
    *out = NULL;
    if (!directories->all.n) return 0;
    struct encoders *encoders = *out = ARENA_NEW(cli->arena, struct encoders);
    *encoders = (struct encoders){.cli = cli};
    for (int i = 0; i < directories->all.n; i++)
        if (open_encoder(encoders, directories->all.at[i]) < 0) return -1;
    return 0;
}

void encoders_close(struct encoders *encoders) {
    for (int i = 0; encoders && i < encoders->all.n; i++) compiled_close(&encoders->all.at[i].compiled);
}

bool encoders_read_ids(const struct encoders *encoders) {
    for (int i = 0; i < encoders->all.n; i++)
        if (!encoders->all.at[i].decodes && input_with(&encoders->all.at[i], RT_ROLE_IDS)) return true;
    return false;
}

const char *encoders_ids(const struct encoders *encoders) {
    return encoders->ids;
}

const char *encoders_mask(const struct encoders *encoders) {
    return encoders->mask;
}

static int add_value(struct encoders *encoders, struct value value) {
    VEC_PUSH(encoders->cli->arena, &encoders->values, value);
    return encoders->values.n - 1;
}

/* A tensor of --input. A file that is no .npy has a shape that is not known; the program that reads it says what is
 * wrong. */
static void take_file(struct encoders *encoders, const struct option_file *input) {
    struct value value = {.name = input->name, .from = "--input", .path = input->path, .ndim = -1};
    struct rt_tensor tensor;
    struct rt_reason why;
    if (rt_npy_read(&tensor, input->path, &why)) {
        value.ndim = tensor.ndim;
        memcpy(value.dims, tensor.dims, sizeof value.dims);
        rt_tensor_free(&tensor);
    }
    add_value(encoders, value);
}

bool encoders_take(struct encoders *encoders, const struct option_file *input) {
    VEC_EACH(&encoders->all, i, const struct encoder *encoder) {
        const enum rt_role role = generation_role(input->name, encoder->decoder_ids);
        if (!input_named(encoder, input->name) || (encoder->decodes && role == RT_ROLE_IDS)) continue;
        if (!encoder->decodes && role == RT_ROLE_IDS)
            encoders->ids = input->path;
        else if (!encoder->decodes && role == RT_ROLE_MASK)
            encoders->mask = input->path;
        else
            take_file(encoders, input);
        return true;
    }
    return false;
}

int64_t encoders_rows(const struct encoders *encoders, const struct token_rows *source) {
    if (source->all.n) return source->all.n;
    for (int i = 0; i < encoders->values.n; i++)
        if (encoders->values.at[i].ndim > 0) return encoders->values.at[i].dims[0];
    return -1;
}

/* Writes rows of token ids, or with `ones` their mask: [rows, width] of the input's type. The index of the value, or -1
 * after a diagnostic. */
static int write_tokens(struct encoders *encoders, const struct rt_json *input, const struct token_rows *rows,
                        int64_t width, bool ones) {
    struct cli *cli = encoders->cli;
    const enum rt_dtype dtype = port_dtype(input);
    const size_t count = (size_t)rows->all.n * (size_t)width, bytes = rt_dtype_bytes(dtype);
    const char *path = arena_printf(cli->arena, "%s/tokens-%d.npy", encoders->encoded.directory, encoders->values.n);
    int64_t *wide = ARENA_ARRAY(cli->arena, int64_t, count);
    unsigned char *data = arena_alloc(cli->arena, count, bytes);
    struct rt_reason why;
    for (size_t i = 0; i < count; i++) {
        const struct token_row *row = &rows->all.at[i / (size_t)width];
        const int at = (int)(i % (size_t)width);
        wide[i] = ones ? at < row->ids.n : at < row->ids.n ? row->ids.at[at] : encoders->encoded.pad;
    }
    rt_convert(data, dtype, wide, RT_I64, count);
    const struct value value = {.name = ones ? "mask" : "token ids",
                                .from = "the prompts",
                                .path = path,
                                .ndim = 2,
                                .dims = {rows->all.n, width}};
    if (!rt_npy_write(path, dtype, 2, value.dims, data, &why))
        return diag_refusal(cli->diags, 611, EXIT_SYSTEM, diag_quote(cli->diags, path), &why);
    return add_value(encoders, value);
}

static int value_named(const struct encoders *encoders, const char *name) {
    for (int i = encoders->values.n - 1; i >= 0; i--)
        if (generation_carries(encoders->values.at[i].name, name)) return i;
    return -1;
}

/* What the encoder has computed: of that name, else of any with three dimensions. */
static int encoder_states(const struct encoders *encoders) {
    static const char *const patterns[] = {"*last_hidden_state", "*hidden_state*", "*"};
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
        for (int e = 0; e < encoders->all.n; e++)
            for (int i = encoders->all.at[e].first; i < encoders->all.at[e].end && !encoders->all.at[e].decodes; i++)
                if (encoders->values.at[i].ndim == 3 && !fnmatch(patterns[p], encoders->values.at[i].name, 0)) return i;
    return -1;
}

/* The first tokens of the decoder, one of each row, in as many columns as the program needs. */
static struct token_rows first_tokens(const struct encoders *encoders) {
    struct token_rows rows = {0};
    for (int i = 0; i < encoders->encoded.starts->all.n; i++) {
        struct token_row row = {0};
        VEC_PUSH(encoders->cli->arena, &row.ids, encoders->encoded.starts->all.at[i].ids.at[0]);
        VEC_PUSH(encoders->cli->arena, &rows.all, row);
    }
    return rows;
}

/* The value of an input with the role. -1: there is none; -2: after a diagnostic. encoder: NULL: the decoder's. */
static int find_value(struct encoders *encoders, const struct encoder *encoder, const struct rt_json *input,
                      enum rt_role role) {
    const bool of_source = role == RT_ROLE_ENCODER_MASK || (encoder && !encoder->decodes);
    int found = value_named(encoders, port_name(input));
    if (found >= 0) return found;
    if (role == RT_ROLE_ENCODER_STATES) return encoder_states(encoders);
    if (role != RT_ROLE_IDS && role != RT_ROLE_MASK && role != RT_ROLE_ENCODER_MASK) return -1;
    if (of_source) {
        if (!encoders->width) return -1;
        found = write_tokens(encoders, input, encoders->encoded.source, encoders->width, role != RT_ROLE_IDS);
    } else {
        const struct token_rows rows = first_tokens(encoders);
        const int64_t width = ports_extent(&encoder->ports, input, 1, 1);
        found = write_tokens(encoders, input, &rows, width, role != RT_ROLE_IDS);
    }
    return found < 0 ? -2 : found;
}

static int link_input(struct encoders *encoders, struct links *links, struct ports *ports, const struct rt_json *input,
                      int value) {
    struct cli *cli = encoders->cli;
    if (value < 0) return -1;
    VEC_PUSH(cli->arena, &links->all, ((struct link){port_name(input), value}));
    return ports_give(ports, input, &encoders->values.at[value], cli);
}

static int prepare_encoder(struct encoders *encoders, struct encoder *encoder) {
    struct cli *cli = encoders->cli;
    for (const struct rt_json *input = encoder->ports.inputs ? encoder->ports.inputs->first : NULL; input;
         input = input->next) {
        const char *name = port_name(input);
        const int value = find_value(encoders, encoder, input, generation_role(name, encoder->decoder_ids));
        if (value == -1) {
            diag_error(cli->diags, 915, EXIT_MALFORMED, encoder->ports.name, "input %s of the encoder has no value",
                       diag_quote(cli->diags, name));
            diag_help(cli->diags, "--input %s=FILE.npy", name);
        }
        if (link_input(encoders, &encoder->links, &encoder->ports, input, value) < 0) return -1;
    }
    encoder->first = encoders->values.n;
    for (const struct rt_json *output = encoder->ports.outputs ? encoder->ports.outputs->first : NULL; output;
         output = output->next) {
        struct value value = {.name = port_name(output), .from = encoder->ports.name};
        ports_shape(&encoder->ports, output, &value);
        add_value(encoders, value);
    }
    encoder->end = encoders->values.n;
    return 0;
}

/* Columns of the source: those of the longest row, or more where the encoder needs that and is told by a mask. */
static int64_t source_width(const struct encoders *encoders) {
    int64_t width = 0;
    for (int i = 0; i < encoders->encoded.source->all.n; i++)
        if (encoders->encoded.source->all.at[i].ids.n > width) width = encoders->encoded.source->all.at[i].ids.n;
    VEC_EACH(&encoders->all, i, const struct encoder *encoder) {
        const struct rt_json *ids = encoder->decodes ? NULL : input_with(encoder, RT_ROLE_IDS);
        if (ids && input_with(encoder, RT_ROLE_MASK)) return ports_extent(&encoder->ports, ids, 1, width);
    }
    return width;
}

int encoders_prepare(struct encoders *encoders, const struct encoded *encoded) {
    encoders->encoded = *encoded;
    encoders->width = source_width(encoders);
    for (int i = 0; i < encoders->all.n; i++)
        if (prepare_encoder(encoders, &encoders->all.at[i]) < 0) return -1;
    return 0;
}

/* An input of the decoder that nothing gives. */
static int refuse_missing(const struct encoders *encoders, const struct ports *decoder, const char *name) {
    struct cli *cli = encoders->cli;
    bool decodes = false;
    for (int i = 0; i < encoders->all.n; i++) decodes = decodes || encoders->all.at[i].decodes;
    diag_error(cli->diags, 915, EXIT_MALFORMED, decoder->name, "input %s of the decoder is computed by no --encoder",
               diag_quote(cli->diags, name));
    if (decodes)
        diag_help(cli->diags, "--input %s=FILE.npy gives it, --role %s=ROLE says what it is for", name, name);
    else
        diag_help(
            cli->diags,
            "give the compiled decoder without caches too, behind the encoder: --encoder ENCODER --encoder FIRST");
    return -1;
}

int encoders_link(struct encoders *encoders, const struct compiled_model *decoder, role_of_input *role_of,
                  const void *context) {
    struct cli *cli = encoders->cli;
    struct ports ports;
    ports_read(&ports, decoder, diag_quote(cli->diags, cli->options->operand), cli);
    for (const struct rt_json *input = ports.inputs ? ports.inputs->first : NULL; input; input = input->next) {
        const enum rt_role role = role_of(context, port_name(input));
        const bool filled = *rt_role_row(role)->shapes != 0;
        const struct value starts = {.name = "token ids",
                                     .from = "the decoder's prompt",
                                     .ndim = 2,
                                     .dims = {encoders->encoded.starts->all.n, -1}};
        if (role == RT_ROLE_IDS && ports_give(&ports, input, &starts, cli) < 0) return -1;
        if (filled || role == RT_ROLE_GIVEN) continue;
        const int value = find_value(encoders, NULL, input, role);
        if (value == -1) return refuse_missing(encoders, &ports, port_name(input));
        if (link_input(encoders, &encoders->last, &ports, input, value) < 0) return -1;
    }
    return 0;
}

static void add_files(const struct encoders *encoders, const struct links *links, struct option_files *files) {
    VEC_EACH(&links->all, i, const struct link *link) {
        const struct option_file file = {link->input, encoders->values.at[link->value].path};
        VEC_PUSH(encoders->cli->arena, &files->all, file);
    }
}

/* The files of the outputs that a program has written. */
static int take_outputs(struct encoders *encoders, const struct encoder *encoder, const char *directory) {
    struct cli *cli = encoders->cli;
    struct rt_reason why;
    const char *path = arena_printf(cli->arena, "%s/outputs.json", directory);
    struct rt_json_document *document = own_json(cli->arena, path, &why);
    if (!document) return diag_refusal(cli->diags, 601, EXIT_SYSTEM, diag_quote(cli->diags, path), &why);
    const struct rt_json *outputs = rt_json_member(rt_json_root(document), "outputs");
    for (const struct rt_json *output = outputs ? outputs->first : NULL; output; output = output->next) {
        const char *file = rt_json_text(rt_json_member(output, "file"));
        for (int i = encoder->first; file && i < encoder->end; i++)
            if (strcmp(encoders->values.at[i].name, port_name(output)) == 0)
                encoders->values.at[i].path = arena_printf(cli->arena, "%s/%s", directory, file);
    }
    return 0;
}

static int run_encoder(struct encoders *encoders, int index) {
    const struct encoder *encoder = &encoders->all.at[index];
    struct cli cli = *encoders->cli;
    struct options options = *cli.options;
    struct option_texts words = {0};
    const char *directory = arena_printf(cli.arena, "%s/encoded-%d", encoders->encoded.directory, index);
    options.inputs = (struct option_files){0};
    add_files(encoders, &encoder->links, &options.inputs);
    const bool given[OPTIONS] = {[OPT_QUIET] = true, /* what generate prints is the decoder's */
                                 [OPT_THREADS] = options.given[OPT_THREADS],
                                 [OPT_VERBOSE] = options.verbose,
                                 [OPT_BROADCAST_WEIGHTS] = options.broadcast_weights};
    memcpy(options.given, given, sizeof given);
    options.json = false;
    options.profile = NULL;
    cli.options = &options;
    VEC_PUSH(cli.arena, &words.all, arena_printf(cli.arena, "--output-dir=%s", directory));
    const int status = start_program(&encoder->compiled, &words, &cli);
    return status ? status : take_outputs(encoders, encoder, directory);
}

int encoders_run(struct encoders *encoders, struct option_files *inputs) {
    for (int i = 0; i < encoders->all.n; i++) {
        const int status = run_encoder(encoders, i);
        if (status) return status;
    }
    add_files(encoders, &encoders->last, inputs);
    return 0;
}
