#include "frontend/cli/rows/rows.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    double rate, experts, attention, multiprocessors;
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
    bool text;
} columns[] = {
#define TEXT(name, field)                                                                                              \
    { name, offsetof(struct row, field), true }
#define NUMBER(field)                                                                                                  \
    { #field, offsetof(struct row, field), false }
    TEXT("source", source),
    TEXT("model", model),
    TEXT("gpu", gpu),
    TEXT("zero/fsdp", zero),
    TEXT("schedule", schedule),
    TEXT("recompute", recompute),
    TEXT("precision", precision),
    TEXT("notes", notes),
    NUMBER(layers),
    NUMBER(hidden),
    NUMBER(heads),
    NUMBER(kv_heads),
    NUMBER(ffn),
    NUMBER(vocab),
    NUMBER(seq),
    NUMBER(ngpus),
    NUMBER(tp),
    NUMBER(pp),
    NUMBER(dp),
    NUMBER(cp),
    NUMBER(ep),
    NUMBER(microbatch),
    NUMBER(global_batch),
#undef TEXT
#undef NUMBER
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int find_field(const struct fields *names, const char *name) {
    for (int i = 0; i < names->all.n; i++)
        if (strcmp(names->all.at[i], name) == 0) return i;
    return -1;
}

/* Rows ------------------------------------------------------------------------------------------------------------- */

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
    if (strstr(row->model, "llama") || strstr(row->model, "Llama")) row->projections = 3;
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

/* Schedules: the part of 1F1B's bubble, and micro-batches whose activations the first stage holds. */
static void find_schedule(struct row *row) {
    const char *v = strstr(row->schedule, "v="), *pp = strstr(row->schedule, "vpp=");
    const bool interleaved = strstr(row->schedule, "interleaved"), short_form = strstr(row->schedule, "1f1b-i");
    const double stated = pp ? atof(pp + 4) : v ? atof(v + 2) : 0;
    const double each = ceil(row->layers / row->pp), unstated = short_form ? each : unstated_chunks(each);
    row->chunks = row->pp == 1 ? 1 : interleaved || short_form ? (stated >= 1 ? fmin(stated, each) : unstated) : 1;
    row->flying = row->pp == 1 ? 1 : fmin(row->pp, row->micro_batches);
    row->bubble = 1;
    if (strstr(row->schedule, "zb-1p") || strstr(row->schedule, "zb-h1")) row->bubble = 1 / 3.0;
    if (strstr(row->schedule, "zb-2p") || strstr(row->schedule, "zb-h2")) row->bubble = 0, row->flying = 2 * row->pp;
    if (strstr(row->schedule, "zerobubble") || strstr(row->schedule, "zb-v")) row->bubble = 0;
    /* arXiv 2411.05288, section 5: what each way of dividing the head among the stages adds */
    if (strstr(row->schedule, "interlaced")) row->flying *= 1.5;
    if (strstr(row->schedule, "vocab-1")) row->flying += 2;
    if (strstr(row->schedule, "vocab-2")) row->flying += 1;
    if (strstr(row->schedule, "gpipe") && row->pp > 1) row->flying = row->micro_batches;
}

static int find_device(const char *gpu) {
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (rows_same_device(devices[i].gpu, gpu)) return (int)i;
    return -1;
}

/* Why there is nothing to compute from; NULL: there is. */
static const char *find_sizes(struct row *row) {
    char note[64];
    double *const ways[] = {&row->tp, &row->pp, &row->dp, &row->cp, &row->ep};
    if (!(row->layers > 0 && row->hidden > 0 && row->heads > 0 && row->seq > 0 && row->ngpus > 0))
        return "sizes of the model are missing";
    if (!find_experts(row) && (row->ep > 1 || strstr(row->notes, "MoE")))
        return "notes do not say how many experts there are (MoE 128e top8)";
    if (strstr(row->zero, "offload") || strstr(row->notes, "offload")) return "offload is not simulated";
    row->tuned =
        !(row->microbatch > 0) && (strstr(row->notes, "microbatch tuned") || strstr(row->notes, "best of a sweep"));
    if (row->tuned) row->microbatch = 1;
    if (!(row->microbatch > 0)) return "the size of a micro-batch is missing";
    for (int i = 0; i < 5; i++)
        if (!(*ways[i] >= 1)) *ways[i] = 1;
    if (row->tp * row->pp > row->ngpus) return "tp and pp need more devices than ngpus says";
    if (!(row->kv_heads > 0)) row->kv_heads = row->heads;
    if (!(row->ffn > 0)) row->ffn = 4 * row->hidden;
    row->micro_batches = row_note(row, "n_micro", note, sizeof note) ? atof(note) : 0;
    if (!(row->micro_batches > 0)) row->micro_batches = row->global_batch / (row->dp * row->microbatch);
    return row->micro_batches > 0 ? NULL : "the global batch is missing";
}

/* Completes the row; why it cannot be simulated, or NULL. */
static const char *complete(struct arena *arena, struct row *row) {
    const int device = find_device(row->gpu);
    struct diags none;
    const char **const spelled[] = {&row->zero, &row->precision, &row->schedule, &row->recompute};
    for (int i = 0; i < 4; i++) *spelled[i] = rows_lower(arena, *spelled[i]);
    if (device < 0) return "the device is unknown";
    const char *missing = find_sizes(row);
    if (missing) return missing;
    for (const struct system *system = systems; !row->system; system++)
        if (strstr(row->source, system->word) && strstr(row->zero, system->division)) row->system = system;
    diags_init(&none, arena);
    if (machine_read(arena, &none, devices[device].machine, &row->machine) < 0) BUG("a device without a machine");
    memcpy(row->links, devices[device].links, sizeof row->links);
    row->multiprocessors = devices[device].multiprocessors;
    const bool recent = row->machine.rate[MACHINE_FP8] > 0; /* a device of after 2022, when all systems had both */
    row->fused = row->system->fused || recent;
    row->adapters = strstr(row->model, "LoRA");
    row->device = devices[device].rate;
    row->on_device = devices[device].experts;
    row->fused_rate = devices[device].attention;
    row->machine.level[row->machine.nlevels - 1].bandwidth *= row->system->network;
    row->stage = rows_zero_stage(row->zero);
    const bool fsdp = strstr(row->zero, "fsdp") || strstr(row->zero, "full_shard") || strstr(row->zero, "hsdp");
    row->sharded = row->stage == 3 || (fsdp && !strstr(row->zero, "grad_op"));
    row->divided = row->sharded || fsdp || row->system->divides || strstr(row->zero, "optimizer") ||
                   (strstr(row->zero, "zero") && row->stage != 0);
    row->overlapped = strstr(row->notes, "async TP") || strstr(row->notes, "asyncTP");
    row->recomputes = strncmp(row->recompute, "full", 4) == 0;
    row->selects = strstr(row->recompute, "selective");
    row->selects_attention = strstr(row->recompute, "selective attention");
    row->selects_products = strstr(row->recompute, "selective op");
    row->selects_layers = strstr(row->recompute, "selective layer");
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

/* The columns of a line; why they make no row, or NULL. */
static const char *read_row(struct arena *arena, const struct fields *names, const struct fields *fields,
                            struct row *row) {
    *row = (struct row){0};
    for (int c = 0; c < COLUMNS; c++) {
        const int i = find_field(names, columns[c].name);
        const char *text = i < fields->all.n ? fields->all.at[i] : "";
        if (columns[c].text)
            *(const char **)((char *)row + columns[c].field) = text;
        else if (!rows_read_number(text, (double *)((char *)row + columns[c].field)))
            return arena_printf(arena, "%s is no number of at least 0: '%.40s'", columns[c].name, text);
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
        if (isfinite(bytes) && isfinite(tflops)) {
            strbuf_printf(out, "%d,%.4g,%.4g,%d\n", number, tflops, bytes / 0x1p30, bytes <= row.machine.memory);
            return;
        }
        missing = "the sizes are too large";
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
    for (int c = 0; c < COLUMNS; c++)
        if (find_field(&names, columns[c].name) < 0)
            return fail_at(diags, path, 1, arena_printf(arena, "there is no column %s", columns[c].name));
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
