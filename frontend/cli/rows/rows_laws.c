/* The laws by which a run is predicted (frontend/cli/rows/rows.h). */
#include "frontend/cli/rows/rows_laws.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Constants of all systems and devices, fitted to the published runs. */
static const double product_rate = 0.63;              /* of the largest products' rate that a layer's reach */
static const double half_extents[] = {410, 22.1, 37}; /* at which products reach half of that */
static const double misaligned = 5.82;        /* factor of unfused attention if a head is no multiple of 8 elements */
static const double biased_rate = 0.472;      /* factor of the rate of fused attention with ALiBi's bias */
static const double windowed_rate = 0.349;    /* and of attention with windows and sinks (GPT OSS) */
static const double passes_over_rows = 80;    /* bytes per element of the hidden state that other kernels move */
static const double adapters_over_rows = 266; /* and those that apply LoRA's adapters */
static const double hidden_reduction = 0.256, hidden_gather = 0.623; /* beside computing */
static const double contended = 0.339; /* of gathers that are hidden: time that they take from computing */
static const double hidden_tensor = 0.158, hidden_async = 0.363; /* of tensor parallelism's exchanges; pipelined */
static const double latency = 0.000005;
static const double hop = 0.0000125; /* seconds for each rank of a ring that gathers weights */
static const double fp8_rate = 1.34, fp4_rate = 2.7;
static const double quantized_bytes = 3.2, rowwise_bytes = 10.6; /* moved per element of a quantized product */
static const double between_stages = 0.0147; /* the part of the transfers between stages that nothing hides */

/* Constants of mixtures of experts, times a factor of the system: the time of their products against dense ones of
 * equal size, bytes that are moved for each element that a token sends, the part of their exchange that nothing hides
 * (with pipeline stages, Megatron overlaps it with another micro-batch), and the links between nodes that a rank uses
 * for it. */
static const double grouped_products = 2.97, moved_bytes = 1.06, exposed_in_stages = 0.0129, links_of_exchange = 3.27;

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
    const double layer = 8 * s * h * h + 4 * s * s * h, passes = row->adapters ? 2 : 3;
    const struct {
        const char *name;
        double flops;
    } definitions[] = {
        {"atorch_full", L * (layer + 6 * s * h * f) * 4 + 3 * head},
        {"atorch_lora", L * (layer + 6 * s * h * f) * 3 + 2 * head},
        {"tt", 3 * (linear + head + scores)},
        {"mb_causal", passes * (linear + head + scores / 2)},
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
    if (strstr(row->notes, "8*size*tok") && row->params > 0) return 8 * row->params * s;
    return 3 * (linear + head + scores);
}

/* Time ------------------------------------------------------------------------------------------------------------- */

double row_peak(const struct row *row) {
    const double *peak = row->machine.peak, eight = fmax(peak[MACHINE_FP8], 2 * peak[MACHINE_HALF]);
    return strstr(row->precision, "fp4") ? 2 * eight : strstr(row->precision, "fp8") ? eight : peak[MACHINE_HALF];
}

static double rate_of(const struct row *row) {
    const double *rate = row->machine.rate;
    const char *precision = row->precision;
    double products = rate[MACHINE_HALF];
    if (strstr(precision, "fp8")) products = (rate[MACHINE_FP8] > 0 ? rate[MACHINE_FP8] : 1.7 * products) * fp8_rate;
    if (strstr(precision, "fp4")) products = rate[MACHINE_FP8] * fp4_rate;
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
static double reached_of(const struct row *row, double m, double n, double k, double count) {
    return machine_filled(&row->machine, m, n, count) * m / (m + half_extents[0]) * n / (n + half_extents[1]) * k /
           (k + half_extents[2]);
}

/* (m, k) by (k, n), one of `count` that run at the same time. */
static double one_product(const struct row *row, double m, double n, double k, double count) {
    return 2 * m * n * k / (rate_of(row) * product_rate * reached_of(row, m, n, k, count)) + quantizing(row, m, n, k);
}

/* Seconds of a product, forward and in the backward phase: the gradients of the operands. */
struct product_time {
    double forward, gradients;
};

/* (m, k) by (k, n), with weights (k, n). */
static struct product_time product_of(const struct row *row, double m, double n, double k, double count) {
    const double rows = one_product(row, m, k, n, count);
    const double weights = row->adapters ? 0 : one_product(row, k, n, m, count);
    return (struct product_time){one_product(row, m, n, k, count), rows + weights};
}

static void add(struct product_time *sum, double times, struct product_time product) {
    sum->forward += times * product.forward;
    sum->gradients += times * product.gradients;
}

/* (tokens of a micro-batch on a rank, k) by (k, n). */
static struct product_time product(const struct row *row, double n, double k) {
    return product_of(row, row->microbatch * row->seq / row->cp, n, k, 1);
}

/* An all-gather or a reduce-scatter of `bytes` among ranks. Without a switch, a device uses the links to its group. */
static double exchange(const struct row *row, double bytes, double ranks, double stride) {
    if (ranks <= 1) return 0;
    const struct machine_group group = {&row->machine, ranks, stride};
    struct machine_link link = machine_link(&group, COLLECTIVE_ALL_GATHER);
    const double *links = row->links;
    if (ranks * stride <= row->machine.level[0].devices && links[2] > 0)
        link.bandwidth *= links[ranks > 4 ? 2 : ranks > 2 ? 1 : 0] / links[2];
    return bytes * (ranks - 1) / ranks / link.bandwidth + latency * log2(ranks);
}

/* `rows` rows in each of `experts` experts on a rank. */
static void add_experts(struct product_time *sum, const struct row *row, double rows, double experts, double factor) {
    const double times = factor * experts, h = row->hidden, f = row->ffn;
    add(sum, 2 * times, product_of(row, rows, f, h, experts));
    add(sum, times, product_of(row, rows, h, f, experts));
}

/* All-to-all of the tokens' elements to their experts, or back. */
static double dispatch(const struct row *row, double bytes) {
    const struct machine *machine = &row->machine;
    const double group = fmin(row->ep * row->tp, row->ngpus / row->pp); /* experts are not divided by tp */
    const bool inside = group <= machine->level[0].devices || machine->nlevels == 1;
    const double bandwidth = inside ? machine->level[0].link.bandwidth
                                    : machine->level[machine->nlevels - 1].link.bandwidth * links_of_exchange;
    return row->ep > 1 ? bytes * (row->ep - 1) / row->ep / bandwidth * (row->pp > 1 ? exposed_in_stages : 1) : 0;
}

/* A layer's forward, in parts. */
struct layer_time {
    struct product_time products;
    double attention, others, exchanges;
};

static struct layer_time forward_of(const struct row *row) {
    const double h = row->hidden, tp = row->tp, tokens = row->microbatch * row->seq / row->cp;
    const double size = row->head, grouped = row->kv_heads * size, bandwidth = row->machine.bandwidth;
    const double scores = row->microbatch * row->heads / tp * row->seq / row->cp * row->seq;
    const bool fused = row->fused;
    struct layer_time time = {0};
    if (row->experts > 0) {
        const double sent = tokens * (row->chosen - row->shared), owned = fmax(row->experts / row->ep, 1);
        const double half = row->attention / 2 / h / tp, factor = row->system->experts;
        add(&time.products, 1, product(row, half, h));
        add(&time.products, 1, product(row, h, half));
        add_experts(&time.products, row, sent * row->ep / row->experts, owned, grouped_products * factor);
        if (row->shared > 0) add_experts(&time.products, row, tokens, row->shared, 1);
        time.others = (factor * moved_bytes * sent * h + 10 * tokens * row->chosen * row->ffn) / bandwidth;
        time.exchanges = 2 * factor * dispatch(row, 2 * sent * h);
    } else {
        add(&time.products, 1, product(row, (h + 2 * grouped) / tp, h));
        add(&time.products, 1, product(row, h, h / tp));
        add(&time.products, row->projections - 1, product(row, row->ffn / tp, h));
        add(&time.products, 1, product(row, h, row->ffn / tp));
        time.others = 10 * tokens * row->ffn / tp / bandwidth;
    }
    time.attention = 4 * scores * row->scored * size * (fused ? 0.5 : 1) /
                     (row->machine.rate[MACHINE_HALF] * row->device * row->fused_rate * (128 + row->machine.half_head) /
                      128 * size / (size + row->machine.half_head));
    if (fused && row->biased) time.attention /= biased_rate;
    if (fused && row->scored < 1) time.attention /= windowed_rate;
    if (!fused) time.attention += scores * 16 / bandwidth; /* scores are written and read four times */
    if (!fused && fmod(size, 8) > 0) time.attention *= misaligned;
    time.others += tokens * passes_over_rows * h / (row->sequence ? tp : 1) / bandwidth;
    if (row->adapters) time.others += tokens * adapters_over_rows * h / bandwidth;
    time.exchanges += 4 * exchange(row, 2 * tokens * h, tp, 1) *
                      (1 - (!row->system->overlaps ? 0
                            : row->overlapped      ? hidden_async
                                                   : hidden_tensor));
    return time;
}

bool row_divides_head(const struct row *row) {
    return strstr(row->schedule, "interlaced") || strstr(row->schedule, "vocab");
}

/* A layer's forward, backward and what recomputation repeats, for a micro-batch. */
static double layer_seconds(const struct row *row) {
    const struct layer_time f = forward_of(row);
    const double once = f.products.forward + f.attention + f.others + f.exchanges;
    const double again = row->recomputes         ? once
                         : row->selects_layers   ? once / 2
                         : row->selects_products ? f.products.forward / 2 + f.others
                         : row->selects          ? f.attention * (row->fused ? 0.9 : 0) + 0.3 * f.others
                                                 : 0;
    const double device = once + f.products.gradients + 2.5 * f.attention + 2 * f.others + f.exchanges + again +
                          (row->recomputes ? 4 : 3) * row->system->gaps;
    return row->experts > 0 ? fmax(device, 3 * row->system->host * row->host) : device;
}

/* The head and the loss, for a micro-batch. */
static double head_seconds(const struct row *row) {
    const double tokens = row->microbatch * row->seq / row->cp, columns = row->vocab / row->tp;
    const struct product_time logits = product(row, columns, row->hidden);
    return logits.forward + logits.gradients + 24 * tokens * columns / row->machine.bandwidth;
}

/* Transfers between two stages that nothing hides, for a micro-batch. */
static double between_seconds(const struct row *row) {
    if (row->pp == 1) return 0;
    const double tokens = row->microbatch * row->seq / row->cp, tp = row->tp;
    const struct machine *machine = &row->machine;
    const bool inside = row->ngpus <= machine->level[0].devices;
    const double bandwidth =
        inside ? machine->level[0].link.bandwidth
               : machine->level[machine->nlevels - 1].link.bandwidth * fmin(8, machine->level[0].devices / tp) / 8;
    return between_stages * 8 * tokens * row->hidden / tp / bandwidth;
}

/* The stage that works longest, for a micro-batch: an inner one, or the last one with the head. */
static double longest_seconds(const struct row *row, double layer, double head) {
    const double layers = row->longest * layer;
    if (row->pp == 1) return layers + head;
    if (strstr(row->schedule, "redis")) return fmax(layers + head / row->pp, head); /* layers are moved */
    if (row_divides_head(row)) return layers + head / row->pp;
    return fmax(layers, layers - row->outer * layer + head);
}

/* All micro-batches: the longest stage works on each of them, and the first one passes all the other stages. */
static double stages_seconds(const struct row *row) {
    const double layer = layer_seconds(row), head = head_seconds(row), between = between_seconds(row);
    const double longest = longest_seconds(row, layer, head) + between;
    const double all = row->layers * layer + head + row->pp * between;
    return row->micro_batches * longest + fmax(0, all - longest) / row->chunks * row->bubble;
}

double row_owned_mlp(const struct row *row) {
    return row->experts > 0 ? row->tp * row->mlp * fmax(1 / row->ep, 1 / row->experts) : row->mlp;
}

/* Weights on a rank. */
static double weights_of(const struct row *row) {
    return (row->layers / row->pp * (row->attention + row_owned_mlp(row)) + row->vocab * row->hidden) / row->tp;
}

/* Collectives of a micro-batch under ZeRO 3: FSDP gathers a layer at once, DeepSpeed each of its weights, both of them
 * twice, and gradients are summed. */
static double gathers_of(const struct row *row) {
    return 3 * row->layers / row->pp * (row->stage == 3 ? row->projections + 2 : 1);
}

double row_seconds(const struct row *row) {
    const double weights = weights_of(row), replicas = row->dp * row->cp, micro = row->micro_batches;
    const double gradient = row->system->wide ? 4 : 2, hidden = row->system->overlaps ? 1 : 0;
    double seconds = stages_seconds(row);
    if (row->sharded) {
        const double times = row->pp > 1 ? 1 : micro;
        const double sum =
            times * (2 * exchange(row, 2 * weights, replicas, row->tp) +
                     exchange(row, gradient * weights, replicas, row->tp) + gathers_of(row) * hop * (replicas - 1));
        const double room = hidden * hidden_gather * seconds;
        seconds += fmax(0, sum - room) + hidden * contended * fmin(sum, seconds);
    } else {
        seconds +=
            (exchange(row, 2 * weights, replicas, row->tp) + exchange(row, gradient * weights, replicas, row->tp)) *
            (1 - hidden * hidden_reduction);
    }
    seconds += 16 * weights / (row->divided ? replicas : 1) / row->machine.bandwidth;
    return seconds * row->system->time;
}
