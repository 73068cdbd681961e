/* The law of a run's memory. */
#include <math.h>
#include <string.h>

#include "frontend/cli/rows/rows_laws.h"

/* Fitted to the published runs: the part of a layer's activations that selective recomputation keeps, and bytes of a
 * weight that stay gathered, with its gradient, in pipeline stages. */
static const double kept_products = 0.221, kept_gathered = 4.06;

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
    if (row->divided) return 2 + (f32_sums ? 2 + 4 : row->system->keeps ? 4 : 2) + 12 / replicas;
    return strncmp(row->precision, "fp32", 4) == 0 ? 16 : 18;
}

/* Bytes of a micro-batch on a rank: what a layer keeps for its gradient, what it needs while it is computed (where
 * recomputation keeps less), and the logits. */
struct activations {
    double kept, working, logits;
};

static struct activations activations_of(const struct row *row) {
    const double h = row->hidden, tp = row->tp, s = row->seq / row->cp, tokens = row->microbatch * s;
    const double vocab = row_divides_head(row) ? row->vocab / row->pp : row->vocab;
    const bool f32 = strncmp(row->precision, "fp32", 4) == 0, gated = row->projections == 3;
    const double sequence = row->sequence ? tp : 1;
    const double scores = f32 || !row->fused ? 5 * row->heads * s * row->seq * row->microbatch / tp : 0;
    /* Korthikanti et al., arXiv 2205.05198, equation 2 */
    const double layer =
        (f32 ? 2 : 1) *
        (tokens * h * (10 / sequence + (gated ? 10.4 * row->ffn * fmax(row->chosen, 1) / h : 24) / tp) + scores);
    const double kept = row->recomputes ? 2 * tokens * h / sequence
                        : row->selects  ? (row->selects_attention ? 1 : kept_products) * (layer - scores)
                                        : layer;
    return (struct activations){kept, row->recomputes ? layer : 0, row->system->logits * tokens * vocab / tp};
}

/* Bytes of the weights of `layers` layers and `tables` tables of the vocabulary, with all that belongs to them. */
static double states_of(const struct row *row, double layers, double tables) {
    const double h = row->hidden, tp = row->tp, layer = row->attention + row_owned_mlp(row);
    const double vocab = row_divides_head(row) ? row->vocab / row->pp : row->vocab;
    const double weights = (layers * layer + tables * vocab * h) / tp + (2 * layers + 1) * h;
    /* gathered: the weights and gradients of two layers; in stages, all of a stage's weights between micro-batches */
    const double whole = 2 * (2 + (row->system->wide ? 4 : 2)) * layer / tp;
    const double gathered = !row->sharded ? 0 : row->pp > 1 ? kept_gathered * weights : whole;
    return weights * state_bytes(row) + gathered;
}

double row_memory(const struct row *row) {
    const struct activations a = activations_of(row);
    const double pp = row->pp, inner = row->longest, outer = inner - row->outer;
    const double flying = row->flying * (row->chunks > 1 ? 1 + (pp - 1) / (pp * row->chunks) : 1);
    double bytes;
    if (pp == 1) {
        bytes = states_of(row, outer, row->projections == 3 ? 2 : 1) + outer * a.kept + a.working + a.logits;
    } else {
        const double ends = states_of(row, outer, 1) + a.working;
        bytes = ends + fmax(outer * a.kept * flying, outer * a.kept + a.logits);
        if (pp > 2) bytes = fmax(bytes, states_of(row, inner, 0) + inner * a.kept * (flying - 1) + a.working);
    }
    return bytes * row->system->memory + row->system->reserve * 0x1p30;
}
