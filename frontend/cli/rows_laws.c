/* The laws by which a run is predicted (frontend/cli/rows.h). */
#include "frontend/cli/rows_laws.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Constants of all systems and devices, fitted to the published runs. */
static const double product_rate = 0.819;   /* of the largest products' rate that a layer's reach */
static const double attention_rate = 0.336; /* the same for attention */
static const double passes_over_rows = 60;  /* bytes per element of the hidden state that other kernels move */
static const double hidden_reduction = 0.378, hidden_gather = 0.771, hidden_tensor = 0.092; /* beside computing */
static const double latency = 40e-6;
static const double fp8_rate = 0.962, fp4_rate = 1.753;

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
    if (strncmp(precision, "fp32", 4) == 0) products /= 2;
    return products * row->device;
}

/* Forward, of (tokens of a micro-batch on a rank, k) by (k, n). */
static double product(const struct row *row, double n, double k) {
    const double m = row->microbatch * row->seq / row->cp;
    return 2 * m * n * k / (rate_of(row) * product_rate * machine_reached(&row->machine, m, n, k));
}

/* An all-gather or a reduce-scatter of `bytes` among ranks. */
static double exchange(const struct row *row, double bytes, double ranks, double stride) {
    if (ranks <= 1) return 0;
    const struct machine_level link = machine_link(&row->machine, ranks, stride);
    return bytes * (ranks - 1) / ranks / link.bandwidth + latency * log2(ranks);
}

/* Constants of mixtures of experts: the time of their products against dense ones of equal size, bytes that are moved
 * for each element that a token sends, the part of their exchange that nothing hides, the links between nodes that a
 * rank uses for it, seconds of a layer for routing, and a factor of the whole. Fitted to the published runs. */
static const double grouped_products = 1.41, moved_bytes = 17.3, exposed_exchange = 0.235, links_of_exchange = 10.36,
                    routing = 64e-6, of_experts = 1.243;

/* Forward, of `rows` rows in each of `experts` experts on a rank. */
static double experts_products(const struct row *row, double rows, double experts) {
    const double h = row->hidden, f = row->ffn, work = 2 * rows * h * f / (rate_of(row) * product_rate);
    return experts * work *
           (2 / machine_reached(&row->machine, rows, f, h) + 1 / machine_reached(&row->machine, rows, h, f));
}

/* All-to-all of the tokens' elements to their experts, or back. */
static double dispatch(const struct row *row, double bytes) {
    const struct machine *machine = &row->machine;
    const bool inside = row->ep * row->tp <= machine->level[0].devices || machine->nlevels == 1;
    const double bandwidth =
        inside ? machine->level[0].bandwidth : machine->level[machine->nlevels - 1].bandwidth * links_of_exchange;
    return row->ep > 1 ? bytes * (row->ep - 1) / row->ep / bandwidth * exposed_exchange : 0;
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
        time.others = moved_bytes * sent * h / bandwidth + routing;
        time.exchanges = 2 * dispatch(row, 2 * sent * h);
    } else {
        time.products = product(row, (h + 2 * grouped) / tp, h) + product(row, h, h / tp) +
                        (row->projections - 1) * product(row, row->ffn / tp, h) + product(row, h, row->ffn / tp);
        time.others = 10 * tokens * row->ffn / tp / bandwidth;
    }
    time.attention = 4 * scores * row->scored * size * (fused ? 0.5 : 1) /
                     (row->machine.rate[MACHINE_HALF] * row->device * attention_rate);
    if (!fused) time.attention += scores * 16 / bandwidth; /* scores are written and read four times */
    time.others += tokens * passes_over_rows * h / (row->system->sequence ? tp : 1) / bandwidth;
    time.exchanges += 4 * exchange(row, 2 * tokens * h, tp, 1) * (1 - hidden_tensor);
    return time;
}

/* True if the stages divide the embeddings and the head among them (arXiv 2411.05288). */
static bool divides_head(const struct row *row) {
    return strstr(row->schedule, "interlaced") || strstr(row->schedule, "vocab");
}

/* The stage that works longest, for a micro-batch. */
static double stage_seconds(const struct row *row) {
    const struct layer_time f = forward_of(row);
    const double once = f.products + f.attention + f.others + f.exchanges;
    const double again = row->recomputes ? once
                         : row->selects  ? f.attention * (row->system->fused ? 0.9 : 0) + 0.3 * f.others
                                         : 0;
    const double layer = once + 2 * f.products + 2.5 * f.attention + 2 * f.others + f.exchanges + again;
    const double tokens = row->microbatch * row->seq / row->cp, tp = row->tp, layers = row->layers / row->pp;
    const double head =
        3 * product(row, row->vocab / tp, row->hidden) + 24 * tokens * row->vocab / tp / row->machine.bandwidth;
    const bool shares = divides_head(row);
    double seconds = layers * layer + head * (row->pp == 1                                             ? 1
                                              : shares                                                 ? 1 / row->pp
                                              : row->system->once || strstr(row->source, "torchtitan") ? 0.6
                                                                                                       : 0.8);
    if (strstr(row->source, "Zero-bubble")) seconds = layers * layer * 0.98 + head * 0.4; /* stages were balanced */
    if (row->pp > 1) {
        const struct machine_level *between = &row->machine.level[row->machine.nlevels - 1];
        const double devices = row->machine.level[0].devices / tp;
        seconds += 0.3 * 8 * tokens * row->hidden / tp / (between->bandwidth * fmin(8, devices) / 8);
    }
    return seconds;
}

static double bubble_of(const struct row *row) {
    if (strstr(row->schedule, "ZB-2p") || strstr(row->schedule, "ZeroBubble")) return 0;
    return (row->pp - 1) / row->chunks / (strstr(row->schedule, "ZB-1p") ? 3 : 1);
}

/* Weights of a layer's MLP, or of the experts of a rank, as if tensor parallelism divided them too. */
static double owned_mlp(const struct row *row) {
    return row->experts > 0 ? row->tp * row->mlp * fmax(1 / row->ep, 1 / row->experts) : row->mlp;
}

/* Weights on a rank. */
static double weights_of(const struct row *row) {
    return (row->layers / row->pp * (row->attention + owned_mlp(row)) + row->vocab * row->hidden) / row->tp;
}

double row_seconds(const struct row *row) {
    const double weights = weights_of(row), replicas = row->dp * row->cp, micro = row->micro_batches;
    const double gradient = row->system->wide ? 4 : 2;
    double seconds = (micro + bubble_of(row)) * stage_seconds(row);
    if (row->sharded) {
        const double sum = micro * (2 * exchange(row, 2 * weights, replicas, row->tp) +
                                    exchange(row, gradient * weights, replicas, row->tp));
        const double room = hidden_gather * seconds;
        seconds += fmax(0, sum - room) + (1 - hidden_gather) * 0.3 * fmin(sum, seconds);
    } else {
        seconds +=
            (exchange(row, 2 * weights, replicas, row->tp) + exchange(row, gradient * weights, replicas, row->tp)) *
            (1 - hidden_reduction);
    }
    seconds += 16 * weights / (row->divided ? replicas : 1) / row->machine.bandwidth;
    return seconds * row->system->time * (row->experts > 0 ? of_experts * row->on_device : 1);
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

/* Bytes of a weight with its gradient and the optimizer's states, in bytes for each weight of a rank. */
static double state_bytes(const struct row *row) {
    const double replicas = row->dp * row->cp;
    const bool narrow = strstr(row->precision, "pure"), f32_sums = strstr(row->precision, "fp32 grad");
    const double weight = narrow ? 2 : 4;
    if (strstr(row->model, "LoRA")) return row->sharded ? 4 / replicas : 4;
    if (row->sharded) return (strstr(row->source, "ATorch") ? 12 : 4 * weight) / replicas;
    if (strstr(row->zero, "zero-2") && strstr(row->precision, "amp")) return 4 + 2 + 12 / replicas;
    if (strstr(row->zero, "zero-2")) return 2 + 14 / replicas;
    if (row->divided && strstr(row->precision, "amp")) return 4 + 4 + 2 + 8 / replicas;
    if (row->divided) return 2 + (f32_sums || row->system->once ? 4 : 2) + 12 / replicas;
    return strncmp(row->precision, "fp32", 4) == 0 ? 16 : 18;
}

double row_memory(const struct row *row) {
    const double h = row->hidden, tp = row->tp, pp = row->pp, s = row->seq / row->cp;
    const double vocab = divides_head(row) ? row->vocab / pp : row->vocab;
    const double tokens = row->microbatch * s, layers = ceil(row->layers / pp), gated = row->projections == 3;
    const bool f32 = strncmp(row->precision, "fp32", 4) == 0;
    const bool stores = f32 || (!row->system->fused && !strstr(row->source, "Vocab"));
    const double sequence = row->system->sequence ? tp : 1;
    const double weights = (layers * (row->attention + owned_mlp(row)) + vocab * h * (pp == 1 && gated ? 2 : 1)) / tp;
    const double scores = stores ? 5 * row->heads * s * row->seq * row->microbatch / tp : 0;
    /* Korthikanti et al., arXiv 2205.05198, equation 2 */
    const double layer =
        (f32 ? 2 : 1) *
        (tokens * h * (10 / sequence + (gated ? 10.4 * row->ffn * fmax(row->chosen, 1) / h : 24) / tp) + scores);
    const double kept = row->recomputes ? 2 * tokens * h / sequence : row->selects ? 0.45 * (layer - scores) : layer;
    double flying = pp == 1 ? 1 : fmin(pp, row->micro_batches);
    if (row->chunks > 1) flying *= 1 + (pp - 1) / (pp * row->chunks);
    if (strstr(row->schedule, "ZB-2p")) flying = 2 * pp;
    const double state = weights * state_bytes(row) +
                         (row->sharded ? 12 * (row->attention + owned_mlp(row)) / tp : 0); /* gathered layers */
    const double logits = 10 * tokens * vocab / tp, working = row->recomputes ? layer : 0;
    const double first = state + layers * kept * flying + working, last = state + layers * kept + working + logits;
    return (pp == 1 ? first + logits : fmax(first, last)) * row->system->memory + row->system->reserve * 0x1p30;
}
