#include "frontend/cli/rows/rows.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "frontend/cli/rows/rows_laws.h"
#include "frontend/cli/rows/rows_text.h"
#include "ir/base/own.h"

static const struct system systems[] = {
#define SYSTEM(...) {__VA_ARGS__},
#include "frontend/cli/rows/rows_systems.def"
#undef SYSTEM
};

static const struct {
    const char *gpu, *machine;
    double rate, host, attention;
    double links[3];
} devices[] = {
#define DEVICE(...) {__VA_ARGS__},
#include "frontend/cli/rows/rows_devices.def"
#undef DEVICE
};

/* Columns ---------------------------------------------------------------------------------------------------------- */

static const struct column {
    const char *name;
    size_t field;
    bool text, needed; /* without a needed one, no row can be predicted */
} columns[] = {
#define TEXT(name, field)                                                                                              \
    { name, offsetof(struct row, field), true, false }
#define NUMBER(field)                                                                                                  \
    { #field, offsetof(struct row, field), false, false }
#define NEEDED(field)                                                                                                  \
    { #field, offsetof(struct row, field), false, true }
    TEXT("source", source),
    TEXT("model", model),
    {"gpu", offsetof(struct row, gpu), true, true},
    TEXT("zero/fsdp", zero),
    TEXT("schedule", schedule),
    TEXT("recompute", recompute),
    TEXT("precision", precision),
    TEXT("notes", notes),
    NEEDED(layers),
    NEEDED(hidden),
    NEEDED(heads),
    NUMBER(kv_heads),
    NUMBER(ffn),
    NUMBER(vocab),
    NEEDED(seq),
    NEEDED(ngpus),
    NUMBER(tp),
    NUMBER(pp),
    NUMBER(dp),
    NUMBER(cp),
    NUMBER(ep),
    NEEDED(microbatch),
    NEEDED(global_batch),
#undef TEXT
#undef NUMBER
#undef NEEDED
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int find_field(const struct fields *names, const char *name) {
    for (int i = 0; i < names->all.n; i++)
        if (strcasecmp(names->all.at[i], name) == 0) return i;
    return -1;
}

/* Rows ------------------------------------------------------------------------------------------------------------- */

/* A family with gated MLPs, which was trained with fused attention. */
static bool is_llama(const struct row *row) {
    return rows_names_one(row->model, "llama|Llama|LLaMA|LLAMA");
}

/* The weights of a layer. The MLP is gated, or embeddings are tied, as it comes nearest to the published number. */
static void find_weights(struct row *row) {
    const double h = row->hidden, grouped = row->kv_heads * h / row->heads;
    double nearest = INFINITY;
    row->attention = 2 * h * h + 2 * h * grouped;
    row->projections = 2;
    for (int projections = 2; projections <= 3 && row->params > 0; projections++)
        for (int tables = 1; tables <= 2; tables++) {
            const double all = row->layers * (row->attention + projections * h * row->ffn) + tables * row->vocab * h;
            if (fabs(all - row->params) >= nearest) continue;
            nearest = fabs(all - row->params);
            row->projections = projections;
        }
    if (is_llama(row)) row->projections = 3;
    row->mlp = row->projections * h * row->ffn;
}

/* Reads "MoE 256e top8 +1 shared MLA;first 3 layers dense" and "hd64;alternating sliding window 128" in notes. */
static bool find_experts(struct row *row) {
    const char *moe = strstr(row->notes, "MoE "), *head = strstr(row->notes, " hd");
    int experts = 0, chosen = 0, shared = 0, dense = 0, window = 0;
    row->scored = 1;
    if (!moe || sscanf(moe, "MoE %de top%d +%d shared", &experts, &chosen, &shared) < 2) return false;
    if (experts < 1 || chosen < 1 || chosen > experts || shared < 0) return false;
    row->experts = experts, row->chosen = chosen + shared, row->shared = shared;
    row->head = head && atof(head + 3) > 0 ? atof(head + 3) : 128;
    const char *first = strstr(moe, "first "), *sliding = strstr(moe, "alternating sliding window ");
    if (first && sscanf(first, "first %d layers dense", &dense) == 1 && dense > 0)
        row->dense_layers = dense, row->dense_ffn = 9 * row->ffn; /* DeepSeek V3: 18432 and 2048 */
    if (sliding && sscanf(sliding, "alternating sliding window %d", &window) == 1 && window > 0)
        row->scored = 0.5 + fmin(0.5, window / row->seq);
    return true;
}

/* The weights of a layer with experts. Multi-head latent attention is DeepSeek V3's (arXiv 2412.19437, section 4.2). */
static void find_expert_weights(struct row *row) {
    const double h = row->hidden, heads = row->heads;
    row->projections = 3;
    row->mlp = 3 * h * row->ffn * row->experts;
    row->attention = 2 * h * row->head * (heads + row->kv_heads);
    if (!strstr(row->notes, "MLA")) return;
    row->attention = h * 1536 + 1536 * heads * 192 + h * 576 + 512 * heads * 256 + heads * 128 * h;
    row->head = (192 + 128) / 2.0;
}

/* Layers of the longest stage: each chunk has whole ones. Where that leaves places free, the first and the last stage,
 * which have the embedding and the head, have fewer. Some publications count these tables as a layer each. */
static void find_stages(struct row *row) {
    const bool counted = strstr(row->notes, "(L+2)/pp") || strstr(row->notes, "first/last stage one layer fewer");
    const double tables = row->pp > 1 && counted ? 2 : 0;
    row->longest = ceil((row->layers + tables) / row->pp / row->chunks) * row->chunks;
    row->outer = fmin(ceil((row->longest * row->pp - row->layers) / 2), row->longest);
}

/* Chunks of a rank with `layers` layers where an interleaved schedule does not say: the smallest number that divides
 * them. */
static double unstated_chunks(double layers) {
    for (int chunks = 2; chunks <= 8; chunks++)
        if (fmod(layers, chunks) == 0) return chunks;
    return layers;
}

/* The number of chunks behind "v=" or "vpp=", in the schedule or in notes; 0: it is not stated. */
static double stated_chunks(const struct row *row) {
    static const char *const keys[] = {"v=", "vp=", "vpp="};
    char note[64];
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(row->schedule, keys[i]);
        if (at) return atof(at + strlen(keys[i]));
    }
    return row_note(row, "VP", note, sizeof note) ? atof(note) : 0;
}

/* Schedules: the part of 1F1B's bubble, and micro-batches whose activations the first stage holds. */
static void find_schedule(struct row *row) {
    const char *text = row->schedule;
    const bool interleaved = rows_mentions(text, "interleaved");
    const bool short_form = rows_mentions(text, "1f1bi") && !interleaved && !rows_mentions(text, "interlaced");
    const double each = ceil(row->layers / row->pp), unstated = short_form ? each : unstated_chunks(each);
    const double stated = interleaved || short_form ? stated_chunks(row) : 1;
    row->chunks = row->pp == 1 ? 1 : stated >= 1 ? fmin(stated, each) : unstated;
    row->flying = row->pp == 1 ? 1 : fmin(row->pp, row->micro_batches);
    row->bubble = 1;
    if (rows_mentions(text, "zb1p") || rows_mentions(text, "zbh1")) row->bubble = 1 / 3.0;
    if (rows_mentions(text, "zb2p") || rows_mentions(text, "zbh2")) row->bubble = 0, row->flying = 2 * row->pp;
    if (rows_mentions(text, "zerobubble") || rows_mentions(text, "zbv")) row->bubble = 0;
    /* arXiv 2411.05288, section 5: what each way of dividing the head among the stages adds */
    if (rows_mentions(text, "interlaced")) row->flying *= 1.5;
    if (rows_mentions(text, "vocab1")) row->flying += 2;
    if (rows_mentions(text, "vocab2")) row->flying += 1;
    if ((rows_mentions(text, "gpipe") || rows_mentions(text, "afab")) && row->pp > 1) row->flying = row->micro_batches;
}

/* What the backward phase computes again. */
static void find_recomputation(struct row *row) {
    static const char *const whole[] = {"full", "checkpoint", "uniform", "block", "true", "yes", "every"};
    const char *text = row->recompute;
    row->selects = rows_mentions(text, "select") || rows_mentions(text, "sac");
    row->selects_attention = rows_mentions(text, "selectiveattention");
    row->selects_products = rows_mentions(text, "selectiveop") || (row->selects && rows_mentions(text, "perop"));
    row->selects_layers = rows_mentions(text, "selectivelayer");
    row->recomputes = false;
    if (row->selects || strncmp(text, "no", 2) == 0) return;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (rows_mentions(text, whole[i])) row->recomputes = true;
}

static int find_device(const char *gpu) {
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (rows_same_device(devices[i].gpu, gpu)) return (int)i;
    return -1;
}

static bool is_of_system(const struct row *row, const struct system *system) {
    if (!rows_names_one(row->source, system->word)) return false;
    return strstr(row->zero, system->division) || strcmp(row->precision, system->division) == 0;
}

/* What a device reaches of its part of the network between nodes: of a stated one, large messages reach four fifths. */
static void find_network(struct row *row) {
    struct machine *machine = &row->machine;
    double *bandwidth = &machine->level[machine->nlevels - 1].link.bandwidth;
    const double stated = rows_node_network(row->notes) * 1e9 / 8;
    if (stated > 0) *bandwidth = 0.8 * stated / machine->level[0].devices;
    *bandwidth *= row->system->network;
}

/* True if the row shows that attention is a fused kernel: it says so, or scores of such a sequence fit nowhere. */
static bool says_fused(const struct row *row) {
    return rows_names_one(row->notes, "flash|Flash|FA2|FA3|FA4") || is_llama(row) || row->seq >= 8192;
}

/* Ways of tp, pp, dp, cp and ep. Of the first four, one that is missing is what the others leave of ngpus. */
static void find_ways(struct row *row, double *const ways[5]) {
    static const int order[] = {2, 0, 1, 3};
    double rest = row->ngpus;
    for (int i = 0; i < 4; i++) rest /= fmax(*ways[i], 1);
    for (int i = 0; i < 4; i++) {
        double *way = ways[order[i]];
        if (!(*way >= 1) && rest >= 1) *way = floor(rest), rest = 1;
    }
    for (int i = 0; i < 5; i++) *ways[i] = fmax(*ways[i], 1);
}

/* The size of a micro-batch and their number in a step; one that is not stated, from the other. Why not, or NULL. */
static const char *find_micro_batches(struct row *row) {
    char note[64];
    const double stated = row_note(row, "n_micro", note, sizeof note) ? atof(note) : 0;
    const bool known = row->microbatch > 0;
    row->tuned = !known && rows_names_one(row->notes, "microbatch tuned|best of a sweep");
    if (!known) row->microbatch = row->tuned ? 1 : stated > 0 ? row->global_batch / (row->dp * stated) : 0;
    if (!(row->microbatch > 0)) return "the size of a micro-batch is missing";
    row->micro_batches = stated > 0 ? stated : row->global_batch / (row->dp * row->microbatch);
    if (!(row->micro_batches > 0)) return "the global batch is missing";
    return row->micro_batches < 0.5 ? "the global batch is smaller than dp micro-batches" : NULL;
}

static bool says_offload(const struct row *row) {
    if (rows_names_one(row->notes, "no offload|without offload|w/o offload")) return false;
    return strstr(row->zero, "offload") || strstr(row->notes, "offload");
}

/* Why there is nothing to compute from; NULL: there is. */
static const char *find_sizes(struct row *row) {
    double *const ways[] = {&row->tp, &row->pp, &row->dp, &row->cp, &row->ep};
    if (!(row->layers >= 1 && row->hidden >= 1 && row->heads >= 1 && row->seq >= 1 && row->ngpus >= 1))
        return "sizes of the model are missing";
    if (!find_experts(row) && (row->ep > 1 || strstr(row->notes, "MoE")))
        return "notes do not say how many experts there are (MoE 128e top8)";
    if (says_offload(row)) return "offload is not simulated";
    find_ways(row, ways);
    if (row->tp * row->pp > row->ngpus) return "tp and pp need more devices than ngpus says";
    if (row->pp > row->layers) return "there are more pipeline stages than layers";
    if (row->heads > row->hidden) return "there are more heads than elements of the hidden state";
    if (!(row->kv_heads >= 1)) row->kv_heads = row->heads;
    if (!(row->ffn > 0)) row->ffn = 4 * row->hidden;
    return find_micro_batches(row);
}

/* Completes the row; why it cannot be simulated, or NULL. */
static const char *complete(struct arena *arena, struct row *row) {
    const int device = find_device(row->gpu);
    struct diags none;
    const char **const spelled[] = {&row->zero, &row->precision, &row->schedule, &row->recompute};
    for (int i = 0; i < 4; i++) *spelled[i] = rows_lower(arena, *spelled[i]);
    row->precision = rows_spell_precision(arena, row->precision);
    if (device < 0) return "the device is unknown";
    const char *missing = find_sizes(row);
    if (missing) return missing;
    for (const struct system *system = systems; !row->system; system++)
        if (is_of_system(row, system)) row->system = system;
    diags_init(&none, arena);
    if (machine_read(arena, &none, devices[device].machine, &row->machine) < 0) BUG("a device without a machine");
    for (int l = 0; l < row->machine.nlevels; l++) /* constants were fitted to the links themselves */
        for (int k = 0; k < COLLECTIVES; k++) row->machine.level[l].own[k] = (struct machine_link){0};
    memcpy(row->links, devices[device].links, sizeof row->links);
    const bool recent = row->machine.rate[MACHINE_FP8] > 0; /* a device of after 2022, when all systems had both */
    row->fused = row->system->fused || recent || says_fused(row);
    row->adapters = strstr(row->model, "LoRA");
    row->device = devices[device].rate;
    row->host = devices[device].host;
    row->fused_rate = devices[device].attention;
    row->biased = strstr(row->notes, "ALiBi");
    find_network(row);
    row->stage = rows_zero_stage(row->zero);
    const bool fsdp =
        (strstr(row->zero, "fsdp") || rows_mentions(row->zero, "fullshard") || strstr(row->zero, "hsdp")) &&
        !rows_mentions(row->zero, "noshard");
    row->sharded = row->stage == 3 || (fsdp && !rows_mentions(row->zero, "gradop"));
    row->divided = row->sharded || fsdp || row->system->divides || strstr(row->zero, "optimizer") ||
                   (strstr(row->zero, "zero") && row->stage != 0);
    row->overlapped = strstr(row->notes, "async TP") || strstr(row->notes, "asyncTP");
    find_recomputation(row);
    row->sequence = (row->system->sequence || recent || strstr(row->recompute, "sequence parallel")) &&
                    !strstr(row->recompute, "no sp");
    find_schedule(row);
    find_stages(row);
    if (!(row->head > 0)) row->head = row->hidden / row->heads;
    if (row->experts > 0)
        find_expert_weights(row);
    else
        find_weights(row);
    return NULL;
}

/* The number at the begin of "235B-A22B": parameters of experts that a token does not use count. */
static double leading_number(struct arena *arena, const char *text) {
    char *copy = arena_strdup(arena, text);
    double number = 0;
    copy[strspn(copy, "0123456789.KMBT")] = 0;
    return rows_read_number(copy, &number) ? number : 0;
}

/* A number of tokens: "8K" are 8192, as any power of two with a K. */
static double tokens_of(const char *text, double number) {
    int exponent;
    return strpbrk(text, "kK") && frexp(number / 1000, &exponent) == 0.5 ? number / 1000 * 1024 : number;
}

/* The columns of a line; why they make no row, or NULL. */
static const char *read_row(struct arena *arena, const struct fields *names, const struct fields *fields,
                            struct row *row) {
    *row = (struct row){0};
    for (int c = 0; c < COLUMNS; c++) {
        const int i = find_field(names, columns[c].name);
        const char *text = i >= 0 && i < fields->all.n ? rows_trim(arena, fields->all.at[i]) : "";
        if (columns[c].text)
            *(const char **)((char *)row + columns[c].field) = text;
        else if (!rows_read_number(text, (double *)((char *)row + columns[c].field)))
            return arena_printf(arena, "%s is no number of at least 0: '%.40s'", columns[c].name, text);
        else if (strcmp(columns[c].name, "seq") == 0)
            row->seq = tokens_of(text, row->seq);
    }
    const int params = find_field(names, "params");
    row->params = params >= 0 && params < fields->all.n ? leading_number(arena, fields->all.at[params]) : 0;
    return NULL;
}

struct prediction {
    double tflops, bytes;
};

static struct prediction predict_row(const struct row *row) {
    const double sequences = row->micro_batches * row->microbatch * row->dp;
    return (struct prediction){row_flops(row) * sequences / row_seconds(row) / row->ngpus / 1e12, row_memory(row)};
}

/* Completes the row and predicts it; why it cannot be simulated, or NULL. */
static const char *predict_complete(struct arena *arena, struct row *row, struct prediction *prediction) {
    const struct row given = *row;
    const char *missing = complete(arena, row);
    if (missing) return missing;
    *prediction = predict_row(row);
    for (double size = 2; row->tuned && size <= given.global_batch / row->dp; size *= 2) {
        struct row other = given;
        other.microbatch = size;
        if (complete(arena, &other)) continue;
        const struct prediction larger = predict_row(&other);
        if (larger.bytes <= other.machine.memory && larger.tflops > prediction->tflops) *prediction = larger;
    }
    return NULL;
}

static void predict(struct arena *arena, struct diags *diags, const struct fields *names, const struct fields *fields,
                    int number, struct strbuf *out) {
    struct row row;
    struct prediction prediction;
    const char *missing = read_row(arena, names, fields, &row);
    if (!missing) missing = predict_complete(arena, &row, &prediction);
    if (!missing) {
        const double bytes = prediction.bytes, tflops = prediction.tflops;
        if (isfinite(bytes) && isfinite(tflops) && tflops > 0 && tflops * 1e12 <= row_peak(&row)) {
            strbuf_printf(out, "%d,%.4g,%.4g,%d\n", number, tflops, bytes / 0x1p30, bytes <= row.machine.memory);
            return;
        }
        missing = isfinite(bytes) && isfinite(tflops) ? "more operations than the device computes in that time"
                                                      : "the sizes are too large";
    }
    diag_warning(diags, 398, arena_printf(arena, "row %d", number), "%s", missing);
    strbuf_printf(out, "%d,,,\n", number);
}

static int fail_at(struct diags *diags, const char *path, int line, const char *what) {
    return diag_error(diags, 397, EXIT_MALFORMED, diag_quote(diags, path), "line %d: %s", line, what);
}

int rows_predict(struct arena *arena, struct diags *diags, const char *path, struct strbuf *out) {
    struct rt_reason why;
    struct fields names;
    void *bytes;
    size_t count;
    int line = 1;
    if (!own_file(arena, path, (size_t)1 << 26, &bytes, &count, &why))
        return diag_refusal(diags, 397, EXIT_MALFORMED, diag_quote(diags, path), &why);
    const char *at = arena_copy(arena, bytes, count);
    arena_release(arena, bytes);
    if (memchr(at, 0, count)) return fail_at(diags, path, 1, "the file has a zero byte: it is no text");
    if (strncmp(at, "\xef\xbb\xbf", 3) == 0) at += 3; /* the byte order mark of UTF-8 */
    if (!rows_read_line(arena, &at, &line, &names)) return fail_at(diags, path, 1, "a quoted field does not end");
    for (int i = 0; i < names.all.n; i++) names.all.at[i] = rows_trim(arena, names.all.at[i]);
    for (int c = 0; c < COLUMNS; c++) {
        if (find_field(&names, columns[c].name) >= 0) continue;
        if (columns[c].needed)
            return fail_at(diags, path, 1, arena_printf(arena, "there is no column %s", columns[c].name));
        diag_warning(diags, 398, diag_quote(diags, path), "there is no column %s: it counts as empty", columns[c].name);
    }
    strbuf_puts(out, "row,tflops_per_gpu,mem_gb,fits\n");
    for (int number = 0; *at;) {
        const int begin = line;
        struct fields fields;
        if (!rows_read_line(arena, &at, &line, &fields))
            return fail_at(diags, path, begin, "a quoted field does not end");
        const bool blank = fields.all.n == 1 && !*fields.all.at[0];
        if (!blank) predict(arena, diags, &names, &fields, number++, out);
    }
    return 0;
}
