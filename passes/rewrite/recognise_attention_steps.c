/* Note [Scores]
 * Between the product of q and k and the softmax, exporters scale and mask the scores in many orders. So the operators
 * are followed back from the softmax one step at a time (table attention_steps). The steps are then applied, from the
 * product on, to struct attention, which describes what the operator can compute: scale q k, at most one replacement of
 * some scores by a value (`fill`), and sums of biases before or after it. Scores beyond that are no match. A constant
 * mask that hides from row i exactly the keys after i + offset becomes attribute `causal`, and the hidden half of the
 * products is not computed. */
#include "passes/rewrite/recognise_attention.h"

#include <math.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one table have the parameters of all */

const struct tensor *attention_tensor(const struct attention *a, int id) {
    return &a->recognition->builder.graph->tensors.at[id];
}

struct lead lead_of(const struct tensor *t) {
    struct lead lead = {.n = t->ndim - 2, .count = 1};
    for (int d = 0; d < lead.n; d++) lead.count *= lead.dims[d] = t->dims[d];
    return lead;
}

bool lead_equal(const struct lead *a, const struct lead *b) {
    return a->n == b->n && (a->n <= 0 || memcmp(a->dims, b->dims, (size_t)a->n * sizeof *a->dims) == 0);
}

int unrepeated_mask(const struct attention *a, int mask) {
    const struct node *node;
    while ((node = made_by(a->recognition->builder.graph, mask, OP_Expand))) mask = node->inputs[0];
    return mask;
}

/* A factor, or of an inverse step a divisor. */
static double factor_of(const struct match *match, const struct attention_step *step) {
    const double n = match_number(match, "n");
    return step->inverse ? 1 / n : n;
}

/* Biases that were added before the factor have it too. */
static bool scale_biases(struct attention *a, double factor) {
    struct build *builder = &a->recognition->builder;
    for (int i = 0; i < a->nbias; i++) {
        const int number = build_scalar(builder, attention_tensor(a, a->bias[i].tensor)->dtype, factor);
        a->bias[i].tensor = number < 0 ? -1 : build2(builder, OP_Mul, a->bias[i].tensor, number);
        if (a->bias[i].tensor < 0) return false;
    }
    return true;
}

static bool take_scale_by(struct attention *a, double factor) {
    if (!(factor > 0) || isinf(factor) || a->clamp || a->cap > 0) return false;
    a->scale *= factor;
    if (a->masked) a->fill *= factor;
    return factor == 1 || scale_biases(a, factor);
}

static bool take_scale(struct attention *a, const struct match *match, const struct attention_step *step) {
    return take_scale_by(a, factor_of(match, step));
}

/* Soft cap: cap tanh(score factor). */
static bool take_cap(struct attention *a, const struct match *match, const struct attention_step *step) {
    const double cap = match_number(match, "cap");
    if (!(cap > 0) || a->masked || a->nbias || a->shifted || !take_scale_by(a, factor_of(match, step) * cap))
        return false;
    a->cap = cap;
    return true;
}

/* A factor that is equal for all keys, such as one per head, is multiplied with q. */
static bool take_factors(struct attention *a, const struct match *match, const struct attention_step *step) {
    int factor = match_tensor(match, "factor");
    const struct tensor *t = attention_tensor(a, factor);
    if (a->nbias || a->masked || a->clamp || a->cap > 0 || a->factor.tensor >= 0 || t->ndim < 1 ||
        t->dims[t->ndim - 1] != 1)
        return false;
    a->factor = (struct mask){factor, lead_of(attention_tensor(a, match_tensor(match, "score")))};
    return true;
}

bool attention_fill_hides(const struct attention *a, double fill) {
    const enum rt_dtype dtype = attention_tensor(a, a->q)->dtype;
    return fill <= (dtype == RT_F16 ? -65504 : dtype == RT_BF16 ? -0x1.dcp29 : -1e9);
}

/* Replaces some scores by fill. A second replacement must have the same fill and no bias between both. */
static bool take_fill(struct attention *a, double fill) {
    if (a->shifted && !attention_fill_hides(a, fill))
        return false; /* hidden scores are not shifted, and have no weight in any case */
    if (a->clamp || isnan(fill) || (a->masked && (a->fill != fill || a->nbias > a->before))) return false;
    if (!a->masked) a->before = a->nbias;
    a->masked = true;
    a->fill = fill;
    return true;
}

bool attention_causal(struct attention *a, const struct known_mask *known, double fill) {
    bool same = a->offset == known->offset && a->window == known->window;
    if ((a->causal && !same) || !take_fill(a, fill)) return false;
    a->causal = true;
    a->offset = known->offset;
    a->window = known->window;
    a->sees = known->sees;
    return true;
}

/* Adds a condition to those under which a score stays, or with a->drop is replaced. */
static bool take_condition(struct attention *a, int mask, const struct tensor *score, bool drop) {
    struct lead lead = lead_of(score);
    if (attention_tensor(a, mask)->dtype != RT_BOOL) mask = build_cast(&a->recognition->builder, mask, RT_BOOL);
    if (a->keep.tensor < 0) {
        a->keep = (struct mask){mask, lead};
        a->drop = drop;
        return true;
    }
    if (a->drop != drop || !lead_equal(&a->keep.lead, &lead)) return false;
    a->keep.tensor = build2(&a->recognition->builder, drop ? OP_Or : OP_And, a->keep.tensor, mask);
    return a->keep.tensor >= 0;
}

bool attention_mask(struct attention *a, int mask, const struct tensor *score, double fill, bool drop) {
    struct graph *graph = a->recognition->builder.graph;
    const struct node *node;
    mask = unrepeated_mask(a, mask);
    if ((node = made_by(graph, mask, OP_Not))) return attention_mask(a, node->inputs[0], score, fill, !drop);
    if ((node = made_by(graph, mask, drop ? OP_Or : OP_And))) {
        struct attention before = *a;
        const int parts[] = {node->inputs[0], node->inputs[1]};
        if (attention_mask(a, parts[0], score, fill, drop) && attention_mask(a, parts[1], score, fill, drop))
            return true;
        *a = before;
    }
    struct known_mask known = known_mask(graph, &a->patterns->known, mask, score, !drop);
    if (known.kind == MASK_NOTHING) return true;
    if (known.kind == MASK_CAUSAL && attention_causal(a, &known, fill)) return true;
    return take_fill(a, fill) && take_condition(a, mask, score, drop);
}

bool attention_hides(const struct attention *a, int mask, const struct tensor *score, bool drop) {
    struct graph *graph = a->recognition->builder.graph;
    const struct node *node;
    mask = unrepeated_mask(a, mask);
    if ((node = made_by(graph, mask, OP_Not))) return attention_hides(a, node->inputs[0], score, !drop);
    if (a->keep.tensor >= 0 && a->drop == drop && mask == a->keep.tensor) return true;
    if ((node = made_by(graph, mask, drop ? OP_Or : OP_And)) && attention_hides(a, node->inputs[0], score, drop) &&
        attention_hides(a, node->inputs[1], score, drop))
        return true;
    const struct known_mask known = known_mask(graph, &a->patterns->known, mask, score, !drop);
    const bool same = a->causal && known.offset == a->offset && known.window == a->window;
    if (known.kind == MASK_NOTHING || (known.kind == MASK_CAUSAL && same)) return true;
    /* one of several conditions */
    node = a->keep.tensor < 0 || a->drop != drop ? NULL : made_by(graph, a->keep.tensor, drop ? OP_Or : OP_And);
    return node && (node->inputs[0] == mask || node->inputs[1] == mask);
}

int attention_bools(const struct attention *a, int mask) {
    struct graph *graph = a->recognition->builder.graph;
    const struct node *cast = made_by(graph, unrepeated_mask(a, mask), OP_Cast);
    return cast && graph->tensors.at[cast->inputs[0]].dtype == RT_BOOL ? cast->inputs[0] : -1;
}

static bool take_where(struct attention *a, const struct match *match, const struct attention_step *step) {
    const struct tensor *score = attention_tensor(a, match_tensor(match, "score"));
    return attention_mask(a, match_tensor(match, "mask"), score, match_number(match, "n"), step->inverse);
}

/* True if adding the value to a score is the same as replacing the score: the sum rounds to the value. */
static bool replaces(double value) {
    return value <= -1e30;
}

static bool take_where_added(struct attention *a, const struct match *match, const struct attention_step *step) {
    return replaces(match_number(match, "n")) && take_where(a, match, step);
}

bool attention_bias(struct attention *a, int bias, const struct tensor *score) {
    bias = unrepeated_mask(a, bias);
    struct known_mask known = known_mask(a->recognition->builder.graph, &a->patterns->known, bias, score, 0);
    if (known.kind == MASK_NOTHING) return true;
    if (a->clamp || a->nbias == MAX_MASKS) return false;
    if (known.kind == MASK_CAUSAL && replaces(known.fill)) {
        struct attention before = *a;
        if (attention_causal(a, &known, known.fill)) return true;
        *a = before;
    }
    a->bias[a->nbias++] = (struct mask){bias, lead_of(score)};
    return true;
}

/* A bias that is subtracted. A constant causal mask becomes attribute `causal`; any other bias is negated and added. */
static bool take_minus(struct attention *a, const struct match *match, const struct attention_step *step) {
    int bias = unrepeated_mask(a, match_tensor(match, "bias"));
    const struct tensor *score = attention_tensor(a, match_tensor(match, "score"));
    struct known_mask known = known_mask(a->recognition->builder.graph, &a->patterns->known, bias, score, 0);
    if (known.kind == MASK_NOTHING) return true;
    if (known.kind == MASK_CAUSAL && replaces(-known.fill) && !a->clamp)
        return attention_causal(a, &known, -known.fill);
    bias = build1(&a->recognition->builder, OP_Neg, bias);
    return bias >= 0 && attention_bias(a, bias, score);
}

/* score keep + (1 - keep) n, keep being 0 or 1, is n where keep is 0. */
static bool take_gate_of(struct attention *a, const struct match *match, const struct attention_step *step) {
    const double n = match_number(match, "n");
    int bools = attention_bools(a, match_tensor(match, "keep"));
    return bools >= 0 &&
           attention_mask(a, bools, attention_tensor(a, match_tensor(match, "score")), step->inverse ? -n : n, false);
}

/* The same of constants: keep of 0 and 1, and a bias of 0 where keep is 1. */
static bool take_known_gate(struct attention *a, const struct match *match, const struct attention_step *step) {
    double fill;
    int keep = match_tensor(match, "keep");
    if (!known_gate(a->recognition->builder.graph, keep, match_tensor(match, "bias"), &fill)) return false;
    return isnan(fill) || attention_mask(a, keep, attention_tensor(a, match_tensor(match, "score")),
                                         step->inverse ? -fill : fill, false);
}

/* What is equal for all keys of a row does not change the softmax. */
static bool take_shift(struct attention *a, const struct match *match, const struct attention_step *step) {
    a->shifted = true;
    return a->sink.tensor < 0;
}

static bool take_bias(struct attention *a, const struct match *match, const struct attention_step *step) {
    return attention_bias(a, match_tensor(match, "bias"), attention_tensor(a, match_tensor(match, "score")));
}

/* Max(score, least finite number): OPT's exporter writes it because two masks may add up to -inf. */
static bool take_clamp(struct attention *a, const struct match *match, const struct attention_step *step) {
    a->clamp = true;
    return !a->shifted && about(match_number(match, "n"), -(double)3.402823466e+38f);
}

static bool take_product(struct attention *a, const struct match *match, const struct attention_step *step) {
    const struct node *node = &a->recognition->builder.graph->nodes.at[match->node[0]];
    a->q = match_tensor(match, "q");
    a->k = match_tensor(match, "k");
    a->k_upright = attr_int(node, "trans_b", 0);
    return !attr_int(node, "trans_a", 0);
}

/* Applied from the product on. The first that fits is tried first. */
const struct attention_step attention_steps[ATTENTION_STEPS] = {
    {"MatMul(q, k)", take_product, false, false},
    {"Add(score, &Where(mask, 0, n#))", take_where_added, false, false},
    {"Add(score, &Where(mask, n#, 0))", take_where_added, true, false},
    {"Add(Mul(score, keep), &Mul(&Sub(1, keep), n#))", take_gate_of, false, false},
    {"Sub(Mul(score, keep), &Mul(&Sub(1, keep), n#))", take_gate_of, true, false},
    {"Add(Mul(score, keep), bias)", take_known_gate, false, false},
    {"Sub(Mul(score, keep), bias)", take_known_gate, true, false},
    {"Add(score, bias)", take_bias, false, false},
    {"Sub(score, ReduceMax[row](score))", take_shift, false, false},
    {"Sub(score, bias)", take_minus, false, false},
    {"Mul(Tanh(Mul(score, n#)), cap#)", take_cap, false, false},
    {"Mul(Tanh(Div(score, n#)), cap#)", take_cap, true, false},
    {"Mul(score, n#)", take_scale, false, false},
    {"Div(score, n#)", take_scale, true, false},
    {"Where(mask, score, n#)", take_where, false, false},
    {"Where(mask, n#, score)", take_where, true, false},
    {"Max(score, n#)", take_clamp, false, false},
    {"Mul(score, factor)", take_factors, false, false},
    {"Reshape(score)", NULL, false, true},
};
