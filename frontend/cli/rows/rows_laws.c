/* The laws by which a run is predicted (frontend/cli/rows/rows.h). */
#include "frontend/cli/rows/rows_laws.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Constants of all systems and devices, fitted to the published runs. */
static const double product_rate = 0.827;              /* of the largest products' rate that a layer's reach */
static const double half_extents[] = {500, 91.7, 144}; /* at which products reach half of that */
static const double half_head = 20.4;      /* elements of a head at which attention reaches half of its rate */
static const double misaligned = 3.33;     /* factor of unfused attention if a head is no multiple of 8 elements */
static const double passes_over_rows = 60; /* bytes per element of the hidden state that other kernels move */
static const double hidden_reduction = 0.13, hidden_gather = 0.581; /* beside computing */
static const double hidden_tensor = 0.409, hidden_async = 0.536;    /* of tensor parallelism's exchanges; pipelined */
static const double latency = 0.000034;
static const double fp8_rate = 1.1, fp4_rate = 2.03, rowwise_rate = 0.779;
static const double quantized_bytes = 1, rowwise_bytes = 4.64; /* moved per element of a quantized product */
static const double between_stages = 0.59; /* the part of the transfers between stages that nothing hides */

/* Constants of mixtures of experts: the time of their products against dense ones of equal size, bytes that are moved
 * for each element that a token sends, the part of their exchange that nothing hides (with pipeline stages, Megatron
 * overlaps it with another micro-batch), and the links between nodes that a rank uses for it. */
static const double grouped_products = 2.25, moved_bytes = 6, exposed_alone = 0.77, exposed_in_stages = 0.05,
                    links_of_exchange = 8;

bool row_note(const struct row *row, const char *key, char *value, size_t bytes) {
    const size_t length = strlen(key);
    for (const char *at = row->notes; at; at = strchr(at, ';') ? strchr(at, ';') + 1 : NULL) {
        if (strncmp(at, key, length) || at[length] != '=') continue;
        snprintf(value, bytes, "%.*s", (int)strcspn(at + length + 1, ";("), at + length + 1);
        return true;
    }
    return false;
}

/* Operations ------------------------------------------------------------------------------------------------------- */

double row_flops(const struct row *row) {
    const double L = row->layers, h = row->hidden, s = row->seq, V = row->vocab, f = row->ffn;
    const double active = row->experts > 0 ? row->mlp * row->chosen / row->experts : row->mlp;
    const double dense = row->dense_layers * (3 * h * row->dense_ffn - active);
    const double linear = 2 * s * ((row->attention + active) * L + dense), head = 2 * s * h * V;
    const double scores = 4 * s * s * row->head * row->heads * L * row->scored;
    const double layer = 8 * s * h * h + 4 * s * s * h;
    const struct {
        const char *name;
        double flops;
    } definitions[] = {
        {"atorch_full", L * (layer + 6 * s * h * f) * 4 + 3 * head},
        {"atorch_lora", L * (layer + 6 * s * h * f) * 3 + 2 * head},
        {"tt", 3 * (linear + head + scores)},
        {"mb_causal", 3 * (linear + head + scores / 2)},
        {"hw_megatron", 96 * s * L * h * h * (1 + s / (6 * h) + V / (16 * L * h))},
        {"model_megatron", 72 * s * L * h * h * (1 + s / (6 * h) + V / (12 * L * h))},
        {"bs_old", 8 * s * L * (12 * h * h + 13 * h)},
        {"mpt", 6 * row->params * s + 3 * scores},
        {"alpa_hw", 96 * s * L * h * h * (1 + s / (6 * h)) + 3 * head},
        {"vp", 3 * (head + L * (layer + 4 * s * h * f))},
    };
    char name[64];
    if (row_note(row, "flops_def", name, sizeof name))
        for (size_t i = 0; i < sizeof definitions / sizeof *definitions; i++)
            if (strcmp(definitions[i].name, name) == 0) return definitions[i].flops;
    return 3 * (linear + head + scores);
}

/* Time ------------------------------------------------------------------------------------------------------------- */

static double rate_of(const struct row *row) {
    const double *rate = row->machine.rate;
    const char *precision = row->precision;
    double products = rate[MACHINE_HALF];
    if (strstr(precision, "fp8")) products = (rate[MACHINE_FP8] > 0 ? rate[MACHINE_FP8] : 1.7 * products) * fp8_rate;
    if (strstr(precision, "fp4")) products = rate[MACHINE_FP8] * fp4_rate;
    if (strstr(precision, "rowwise")) products *= rowwise_rate;
    if (strncmp(precision, "fp32", 4) == 0) products /= 2;
    return products * row->device;
}

/* Forward, seconds in which the operands of a product are quantized. */
static double quantizing(const struct row *row, double m, double n, double k) {
    if (!strstr(row->precision, "fp8") && !strstr(row->precision, "fp4")) return 0;
    const double bytes = strstr(row->precision, "rowwise") ? rowwise_bytes : quantized_bytes;
    return bytes * (m * k + n * k + m * n) / row->machine.bandwidth;
}

/* The part of the rate that a product reaches. */
static double reached_of(double m, double n, double k) {
    return m / (m + half_extents[0]) * n / (n + half_extents[1]) * k / (k + half_extents[2]);
}

/* Forward, of (m, k) by (k, n). */
static double product_of(const struct row *row, double m, double n, double k) {
    return 2 * m * n * k / (rate_of(row) * product_rate * reached_of(m, n, k)) + quantizing(row, m, n, k);
}

/* Forward, of (tokens of a micro-batch on a rank, k) by (k, n). */
static double product(const struct row *row, double n, double k) {
    return product_of(row, row->microbatch * row->seq / row->cp, n, k);
}

/* An all-gather or a reduce-scatter of `bytes` among ranks. */
static double exchange(const struct row *row, double bytes, double ranks, double stride) {
    if (ranks <= 1) return 0;
    const struct machine_level link = machine_link(&row->machine, ranks, stride);
    return bytes * (ranks - 1) / ranks / link.bandwidth + latency * log2(ranks);
}

/* Forward, of `rows` rows in each of `experts` experts on a rank. */
static double experts_products(const struct row *row, double rows, double experts) {
    const double h = row->hidden, f = row->ffn;
    return experts * (2 * product_of(row, rows, f, h) + product_of(row, rows, h, f));
}

/* All-to-all of the tokens' elements to their experts, or back. */
static double dispatch(const struct row *row, double bytes) {
    const struct machine *machine = &row->machine;
    const bool inside = row->ep * row->tp <= machine->level[0].devices || machine->nlevels == 1;
    const double bandwidth =
        inside ? machine->level[0].bandwidth : machine->level[machine->nlevels - 1].bandwidth * links_of_exchange;
    return row->ep > 1 ? bytes * (row->ep - 1) / row->ep / bandwidth * (row->pp > 1 ? exposed_in_stages : exposed_alone)
                       : 0;
}

/* A layer's forward, in parts. */
struct layer_time {
    double products, attention, others, exchanges;
};

static struct layer_time forward_of(const struct row *row) {
    const double h = row->hidden, tp = row->tp, tokens = row->microbatch * row->seq / row->cp;
    const double size = row->head, grouped = row->kv_heads * size, bandwidth = row->machine.bandwidth;
    const double scores = row->microbatch * row->heads / tp * row->seq / row->cp * row->seq;
    const bool fused = row->system->fused;
    struct layer_time time = {0};
    if (row->experts > 0) {
        const double sent = tokens * (row->chosen - row->shared), owned = fmax(row->experts / row->ep, 1);
        const double half = row->attention / 2 / h / tp;
        time.products = product(row, half, h) + product(row, h, half) +
                        grouped_products * experts_products(row, sent * row->ep / row->experts, owned) +
                        experts_products(row, tokens, row->shared);
        time.others = moved_bytes * sent * h / bandwidth;
        time.exchanges = 2 * dispatch(row, 2 * sent * h);
    } else {
        time.products = product(row, (h + 2 * grouped) / tp, h) + product(row, h, h / tp) +
                        (row->projections - 1) * product(row, row->ffn / tp, h) + product(row, h, row->ffn / tp);
        time.others = 10 * tokens * row->ffn / tp / bandwidth;
    }
    time.attention = 4 * scores * row->scored * size * (fused ? 0.5 : 1) /
                     (row->machine.rate[MACHINE_HALF] * row->device * row->fused_rate * (128 + half_head) / 128 * size /
                      (size + half_head));
    if (!fused) time.attention += scores * 16 / bandwidth; /* scores are written and read four times */
    if (!fused && fmod(size, 8) > 0) time.attention *= misaligned;
    time.others += tokens * passes_over_rows * h / (row->sequence ? tp : 1) / bandwidth;
    time.exchanges += 4 * exchange(row, 2 * tokens * h, tp, 1) * (1 - (row->overlapped ? hidden_async : hidden_tensor));
    return time;
}

bool row_divides_head(const struct row *row) {
    return strstr(row->schedule, "interlaced") || strstr(row->schedule, "vocab");
}

/* The stage that works longest, for a micro-batch. */
static double stage_seconds(const struct row *row) {
    const struct layer_time f = forward_of(row);
    const double once = f.products + f.attention + f.others + f.exchanges;
    const double again = row->recomputes ? once
                         : row->selects  ? f.attention * (row->system->fused ? 0.9 : 0) + 0.3 * f.others
                                         : 0;
    const double device = once + 2 * f.products + 2.5 * f.attention + 2 * f.others + f.exchanges + again;
    const double layer = row->experts > 0 ? fmax(device, 3 * row->system->host) : device;
    const double tokens = row->microbatch * row->seq / row->cp, tp = row->tp, layers = row->layers / row->pp;
    const double head =
        3 * product(row, row->vocab / tp, row->hidden) + 24 * tokens * row->vocab / tp / row->machine.bandwidth;
    double seconds = layers * layer + head * (row->pp == 1            ? 1
                                              : row_divides_head(row) ? 1 / row->pp
                                                                      : row->system->head);
    if (strstr(row->schedule, "redis")) seconds = fmax(layers * layer + head / row->pp, head); /* layers are moved */
    if (row->pp > 1) {
        const struct machine_level *between = &row->machine.level[row->machine.nlevels - 1];
        const double devices = row->machine.level[0].devices / tp;
        seconds += between_stages * 8 * tokens * row->hidden / tp / (between->bandwidth * fmin(8, devices) / 8);
    }
    return seconds;
}

static double bubble_of(const struct row *row) {
    return (row->pp - 1) / row->chunks * row->bubble;
}

double row_owned_mlp(const struct row *row) {
    return row->experts > 0 ? row->tp * row->mlp * fmax(1 / row->ep, 1 / row->experts) : row->mlp;
}

/* Weights on a rank. */
static double weights_of(const struct row *row) {
    return (row->layers / row->pp * (row->attention + row_owned_mlp(row)) + row->vocab * row->hidden) / row->tp;
}

double row_seconds(const struct row *row) {
    const double weights = weights_of(row), replicas = row->dp * row->cp, micro = row->micro_batches;
    const double gradient = row->system->wide ? 4 : 2;
    double seconds = (micro + bubble_of(row)) * stage_seconds(row);
    if (row->sharded) {
        const double times = row->pp > 1 ? 1 : micro;
        const double sum = times * (2 * exchange(row, 2 * weights, replicas, row->tp) +
                                    exchange(row, gradient * weights, replicas, row->tp));
        const double room = hidden_gather * seconds;
        seconds += fmax(0, sum - room) + (1 - hidden_gather) * 0.3 * fmin(sum, seconds);
    } else {
        seconds +=
            (exchange(row, 2 * weights, replicas, row->tp) + exchange(row, gradient * weights, replicas, row->tp)) *
            (1 - hidden_reduction);
    }
    seconds += 16 * weights / (row->divided ? replicas : 1) / row->machine.bandwidth;
    return seconds * row->system->time * (row->experts > 0 ? row->system->experts * row->on_device : 1);
}
