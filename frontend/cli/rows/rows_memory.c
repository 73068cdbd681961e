/* The law of a run's memory. */
#include <math.h>
#include <string.h>

#include "frontend/cli/rows/rows_laws.h"

/* Fitted to the published runs: the part of a layer's activations that selective recomputation keeps, and bytes of a
 * weight that stay gathered, with its gradient, in pipeline stages. */
static const double kept_products = 0.257, kept_gathered = 6.18;

/* Bytes of a weight with its gradient and the optimizer's states, in bytes for each weight of a rank. */
static double state_bytes(const struct row *row) {
    const double replicas = row->dp * row->cp;
    const bool narrow = strstr(row->precision, "pure"), f32_sums = strstr(row->precision, "fp32 grad");
    const double weight = narrow ? 2 : 4;
    if (strstr(row->model, "LoRA")) return row->sharded ? 4 / replicas : 4;
    if (row->sharded) return row->system->states / 4 * weight / replicas;
    if (row->system->divides) return 4 + 12 / replicas;
    if (row->stage == 2 && strstr(row->precision, "amp")) return 4 + 2 + 12 / replicas;
    if (row->stage == 2) return 2 + 14 / replicas;
    if (row->divided && strstr(row->precision, "amp")) return 4 + 4 + 2 + 8 / replicas;
    if (row->divided) return 2 + (f32_sums || row->system->keeps ? 4 : 2) + 12 / replicas;
    return strncmp(row->precision, "fp32", 4) == 0 ? 16 : 18;
}

double row_memory(const struct row *row) {
    const double h = row->hidden, tp = row->tp, pp = row->pp, s = row->seq / row->cp;
    const double vocab = row_divides_head(row) ? row->vocab / pp : row->vocab;
    const double tokens = row->microbatch * s, layers = ceil(row->layers / pp), gated = row->projections == 3;
    const bool f32 = strncmp(row->precision, "fp32", 4) == 0;
    const bool stores = f32 || !row->system->fused;
    const double sequence = row->sequence ? tp : 1, norms = (2 * layers + 1) * h;
    const double weights =
        (layers * (row->attention + row_owned_mlp(row)) + vocab * h * (pp == 1 && gated ? 2 : 1)) / tp + norms;
    const double scores = stores ? 5 * row->heads * s * row->seq * row->microbatch / tp : 0;
    /* Korthikanti et al., arXiv 2205.05198, equation 2 */
    const double layer =
        (f32 ? 2 : 1) *
        (tokens * h * (10 / sequence + (gated ? 10.4 * row->ffn * fmax(row->chosen, 1) / h : 24) / tp) + scores);
    const double kept = row->recomputes ? 2 * tokens * h / sequence
                        : row->selects  ? (row->selects_attention ? 1 : kept_products) * (layer - scores)
                                        : layer;
    const double flying = row->flying * (row->chunks > 1 ? 1 + (pp - 1) / (pp * row->chunks) : 1);
    /* gathered: two layers; in stages, all of a stage's weights between micro-batches */
    const double gathered = !row->sharded ? 0
                            : pp > 1      ? kept_gathered * weights
                                          : 12 * (row->attention + row_owned_mlp(row)) / tp;
    const double state = weights * state_bytes(row) + gathered, working = row->recomputes ? layer : 0;
    const double logits = row->system->logits * tokens * vocab / tp;
    const double first = layers * kept * flying + working, last = layers * kept + working + logits;
    const double activations = pp == 1 ? first + logits : fmax(first, last);
    return (state + activations) * row->system->memory + row->system->reserve * 0x1p30;
}
