#include "frontend/cli/rows.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/rows_laws.h"
#include "ir/base/own.h"

static const struct system systems[] = {
#define SYSTEM(...) {__VA_ARGS__},
#include "frontend/cli/rows_systems.def"
#undef SYSTEM
};

static const struct {
    const char *gpu, *machine;
    double rate, experts;
} devices[] = {
#define DEVICE(...) {__VA_ARGS__},
#include "frontend/cli/rows_devices.def"
#undef DEVICE
};

/* CSV -------------------------------------------------------------------------------------------------------------- */

struct fields {
    VEC(const char *) all;
};

/* The fields of the line at *at, which is moved behind it (RFC 4180). */
static struct fields read_line(struct arena *arena, const char **at) {
    struct fields fields = {0};
    const char *p = *at;
    for (bool more = true; more;) {
        struct strbuf field;
        strbuf_init(&field, arena);
        const bool quoted = *p == '"';
        for (p += quoted; *p && (quoted ? !(*p == '"' && p[1] != '"') : *p != ',' && *p != '\n'); p++) {
            if (quoted && *p == '"') p++;
            if (*p != '\r') strbuf_putc(&field, *p);
        }
        p += quoted && *p == '"';
        VEC_PUSH(arena, &fields.all, strbuf_text(&field));
        while (*p && *p != ',' && *p != '\n') p++;
        more = *p == ',';
        p += more;
    }
    *at = *p ? p + 1 : p;
    return fields;
}

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

/* "6.74B" */
static double count_of(const char *text) {
    char *end;
    const double number = strtod(text, &end);
    return number * (*end == 'T' ? 1e12 : *end == 'B' ? 1e9 : *end == 'M' ? 1e6 : 1);
}

static const char *lower(struct arena *arena, const char *text) {
    char *copy = arena_strdup(arena, text);
    for (char *c = copy; *c; c++) *c = (char)tolower((unsigned char)*c);
    return copy;
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

static double chunks_of(const struct row *row) {
    const char *v = strstr(row->schedule, "v=");
    if (strstr(row->schedule, "1F1B-I")) return 3;
    if (row->pp == 1 || !strstr(row->schedule, "Interleaved")) return 1;
    return v && atof(v + 2) >= 1 ? atof(v + 2) : 2;
}

/* Completes the row; why it cannot be simulated, or NULL. */
static const char *complete(struct arena *arena, struct row *row) {
    char note[64];
    int device = -1;
    row->zero = lower(arena, row->zero);
    row->precision = lower(arena, row->precision);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i].gpu, row->gpu) == 0) device = (int)i;
    if (device < 0) return "the device is unknown";
    if (!(row->layers > 0 && row->hidden > 0 && row->heads > 0 && row->seq > 0 && row->ngpus > 0))
        return "sizes of the model are missing";
    if (!find_experts(row) && (row->ep > 1 || strstr(row->notes, "MoE")))
        return "notes do not say how many experts there are (MoE 128e top8)";
    if (strstr(row->zero, "offload") || strstr(row->notes, "offload")) return "offload is not simulated";
    if (!(row->microbatch > 0)) return "the size of a micro-batch is missing";
    double *const ways[] = {&row->tp, &row->pp, &row->dp, &row->cp};
    for (int i = 0; i < 4; i++)
        if (!(*ways[i] >= 1)) *ways[i] = 1;
    if (!(row->kv_heads > 0)) row->kv_heads = row->heads;
    if (!(row->ffn > 0)) row->ffn = 4 * row->hidden;
    row->micro_batches = row_note(row, "n_micro", note, sizeof note) ? atof(note) : 0;
    if (!(row->micro_batches > 0)) row->micro_batches = row->global_batch / (row->dp * row->microbatch);
    if (!(row->micro_batches > 0)) return "the global batch is missing";
    for (const struct system *system = systems; !row->system; system++)
        if (!*system->word || strstr(row->source, system->word)) row->system = system;
    struct diags none;
    diags_init(&none, arena);
    if (machine_read(arena, &none, devices[device].machine, &row->machine) < 0) BUG("a device without a machine");
    row->device = devices[device].rate;
    row->on_device = devices[device].experts;
    row->machine.level[row->machine.nlevels - 1].bandwidth *= row->system->network;
    row->chunks = chunks_of(row);
    row->sharded = strstr(row->zero, "fsdp") || strstr(row->zero, "zero-3") || strstr(row->zero, "full_shard");
    row->divided = row->sharded || strstr(row->zero, "zero") || strstr(row->zero, "optimizer");
    row->recomputes = strncmp(row->recompute, "full", 4) == 0;
    row->selects = strstr(row->recompute, "selective");
    if (!(row->head > 0)) row->head = row->hidden / row->heads;
    if (row->experts > 0)
        find_expert_weights(row);
    else
        find_weights(row);
    return NULL;
}

static struct row row_of(const struct fields *names, const struct fields *fields) {
    struct row row = {0};
    for (int c = 0; c < COLUMNS; c++) {
        const int i = find_field(names, columns[c].name);
        const char *text = i < fields->all.n ? fields->all.at[i] : "";
        if (columns[c].text)
            *(const char **)((char *)&row + columns[c].field) = text;
        else
            *(double *)((char *)&row + columns[c].field) = strtod(text, NULL);
    }
    const int params = find_field(names, "params");
    row.params = params >= 0 && params < fields->all.n ? count_of(fields->all.at[params]) : 0;
    return row;
}

static void predict(struct arena *arena, struct diags *diags, struct row *row, int number, struct strbuf *out) {
    const char *missing = complete(arena, row);
    if (missing) {
        diag_warning(diags, 398, arena_printf(arena, "row %d", number), "%s", missing);
        strbuf_printf(out, "%d,,,\n", number);
        return;
    }
    const double bytes = row_memory(row), sequences = row->micro_batches * row->microbatch * row->dp;
    const double tflops = row_flops(row) * sequences / row_seconds(row) / row->ngpus / 1e12;
    strbuf_printf(out, "%d,%.4g,%.4g,%d\n", number, tflops, bytes / 0x1p30, bytes <= row->machine.memory);
}

int rows_predict(struct arena *arena, struct diags *diags, const char *path, struct strbuf *out) {
    struct rt_reason why;
    void *bytes;
    size_t count;
    if (!own_file(arena, path, (size_t)1 << 26, &bytes, &count, &why))
        return diag_refusal(diags, 397, EXIT_MALFORMED, diag_quote(diags, path), &why);
    const char *at = arena_copy(arena, bytes, count);
    arena_release(arena, bytes);
    const struct fields names = read_line(arena, &at);
    for (int c = 0; c < COLUMNS; c++)
        if (find_field(&names, columns[c].name) < 0)
            return diag_error(diags, 397, EXIT_MALFORMED, diag_quote(diags, path), "line 1: there is no column %s",
                              columns[c].name);
    strbuf_puts(out, "row,tflops_per_gpu,mem_gb,fits\n");
    for (int number = 0; *at; number++) {
        const struct fields fields = read_line(arena, &at);
        struct row row = row_of(&names, &fields);
        predict(arena, diags, &row, number, out);
    }
    return 0;
}
