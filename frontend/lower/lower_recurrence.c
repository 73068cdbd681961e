/* LSTM, GRU and RNN: per direction the product of all inputs with the input weights, and a core operator Recurrence,
 * which makes the steps. ONNX Runtime's DynamicQuantizeLSTM multiplies integers: the inputs of all steps are quantised
 * together, the state in each step. */
#include "frontend/lower/lower_contrib.h"
#include "frontend/lower/lower_quantise.h"

#include <ctype.h>
#include <string.h>

#include "runtime/base/shape/recurrence.h"

enum { X, W, R, B, LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLES, W_SCALE, W_ZERO, R_SCALE, R_ZERO };
enum { MAX_FUNCTIONS = 3 };

/* What a cell of ONNX has, by the operator's name. */
static const struct kind {
    const char *op, *cell;
    int64_t gates;
    int states, nfunctions;
    const char *functions[MAX_FUNCTIONS]; /* if the node gives none */
    bool quantised;
} kinds[] = {{"LSTM", "lstm", 4, 2, 3, {"Sigmoid", "Tanh", "Tanh"}},
             {"GRU", "gru", 3, 1, 2, {"Sigmoid", "Tanh"}},
             {"RNN", "rnn", 1, 1, 1, {"Tanh"}},
             {"DynamicQuantizeLSTM", "lstm", 4, 2, 3, {"Sigmoid", "Tanh", "Tanh"}, true}};

static const struct function {
    const char *name;
    int has_alpha;
    double alpha;
    int has_beta;
    double beta;
} functions[] = {
#define GATE(id, ...) {__VA_ARGS__},
    RT_GATES(GATE)
#undef GATE
};

struct layer {
    const struct kind *kind;
    int64_t t, b, i, h;
    int directions;
    bool reverse, batch_first;
    int x, mask; /* (t, b, i); steps within the sequence's length (t, b, 1), -1: all */
    int lengths; /* (b), -1: all sequences have all steps */
    int levels;  /* x, quantised as `how` says */
    struct quantised how;
    struct attr attrs[2][16];
    int nattrs[2];
};

static const struct function *function_of(const char *name) {
    char lower[24] = "";
    for (size_t i = 0; name[i] && i + 1 < sizeof lower; i++) lower[i] = (char)tolower((unsigned char)name[i]);
    for (size_t i = 1; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, lower) == 0) return &functions[i];
    return NULL;
}

/* The next number of the list. The list has one number for each function that has the parameter, in order; `fallback`
 * is for functions without the parameter and for a list that is too short. */
static double next_of(const float *list, int n, int *used, int has, double fallback) {
    return has && *used < n ? (double)list[(*used)++] : fallback;
}

/* Reads the activation functions of all directions into the attributes of their core operators. */
static int read_functions(struct lower *lower, struct layer *layer) {
    static const char *const keys[][3] = {{"gate", "gate_alpha", "gate_beta"},
                                          {"candidate", "candidate_alpha", "candidate_beta"},
                                          {"output", "output_alpha", "output_beta"}};
    const struct kind *kind = layer->kind;
    const Onnx__AttributeProto *given = lower_attribute(lower, "activations");
    int nalphas, nbetas, alphas = 0, betas = 0;
    const float *alpha = lower_floats(lower, "activation_alpha", &nalphas);
    const float *beta = lower_floats(lower, "activation_beta", &nbetas);
    if (given && (int)given->n_strings != layer->directions * kind->nfunctions)
        return lower_error(lower, 372, "activations has %d name(s), but %d are needed", (int)given->n_strings,
                           layer->directions * kind->nfunctions);
    for (int d = 0; d < layer->directions; d++)
        EACH_VALUE(kind->functions, kind->nfunctions, f, const char *name) {
            if (given) {
                const ProtobufCBinaryData *bytes = &given->strings[d * kind->nfunctions + f];
                name = arena_copy(lower->arena, (const char *)bytes->data, bytes->len);
            }
            const struct function *function = function_of(name);
            if (!function) return lower_unknown(lower, "activation function", name);
            struct attr *attrs = layer->attrs[d] + layer->nattrs[d];
            attrs[0] = attr_of_text(keys[f][0], function->name);
            attrs[1] =
                attr_of_float(keys[f][1], next_of(alpha, nalphas, &alphas, function->has_alpha, function->alpha));
            attrs[2] = attr_of_float(keys[f][2], next_of(beta, nbetas, &betas, function->has_beta, function->beta));
            layer->nattrs[d] += 3;
        }
    return 0;
}

static int read_direction(struct lower *lower, struct layer *layer) {
    const char *text = lower_text(lower, "direction");
    layer->directions = strcmp(text, "bidirectional") == 0 ? 2 : 1;
    layer->reverse = strcmp(text, "reverse") == 0;
    if (layer->directions == 1 && !layer->reverse && strcmp(text, "forward") != 0)
        return lower_unknown(lower, "direction", text);
    return 0;
}

/* E378 unless the input, if given, has that shape. */
static int check_shape(struct lower *lower, int input, int ndim, const int64_t *dims) {
    if (!lower_has(lower, input)) return 0;
    struct tensor tensor = lower_input(lower, input), x = lower_input(lower, X), weights = lower_input(lower, R);
    struct arena *arena = lower->arena;
    bool fits = tensor.ndim == ndim;
    for (int d = 0; d < ndim && fits; d++) fits = tensor.dims[d] == dims[d];
    if (fits) return 0;
    return lower_error(lower, 378, "input %d %s does not fit input %s and recurrent weights %s", input,
                       tensor_type(arena, &tensor), tensor_type(arena, &x), tensor_type(arena, &weights));
}

/* A scale or zero point of each direction, or of each of its columns. */
static int check_scale(struct lower *lower, const struct layer *l, int input) {
    const int64_t dims[] = {l->directions, l->kind->gates * l->h};
    return check_shape(lower, input, lower_ndim(lower, lower->inputs[input]) == 2 ? 2 : 1, dims);
}

static int check_weights(struct lower *lower, const struct layer *l) {
    static const int scales[] = {W_SCALE, W_ZERO, R_SCALE, R_ZERO};
    const int64_t d = l->directions, rows = l->kind->gates * l->h;
    if (!l->kind->quantised)
        return check_shape(lower, W, 3, (int64_t[]){d, rows, l->i}) < 0 ||
                       check_shape(lower, R, 3, (int64_t[]){d, rows, l->h}) < 0
                   ? -1
                   : 0;
    if (check_shape(lower, W, 3, (int64_t[]){d, l->i, rows}) < 0 ||
        check_shape(lower, R, 3, (int64_t[]){d, l->h, rows}) < 0)
        return -1;
    if (contrib_requires(lower, 4, scales) < 0) return -1;
    for (int i = 0; i < 4; i++)
        if (check_scale(lower, l, scales[i]) < 0) return -1;
    return 0;
}

static int check_shapes(struct lower *lower, const struct layer *l) {
    const int64_t d = l->directions, rows = l->kind->gates * l->h;
    const int64_t states[] = {l->batch_first ? l->b : d, l->batch_first ? d : l->b, l->h};
    const bool lstm = l->kind->states > 1;
    if (check_weights(lower, l) < 0 || check_shape(lower, B, 2, (int64_t[]){d, 2 * rows}) < 0 ||
        check_shape(lower, LENGTHS, 1, &l->b) < 0 || check_shape(lower, INITIAL_H, 3, states) < 0)
        return -1;
    if (!lstm) return 0;
    return check_shape(lower, INITIAL_C, 3, states) < 0 ||
                   check_shape(lower, PEEPHOLES, 2, (int64_t[]){d, 3 * l->h}) < 0
               ? -1
               : 0;
}

static int read_layer(struct lower *lower, struct layer *l) {
    struct tensor x = lower_input(lower, X), r = lower_input(lower, R);
    *l = (struct layer){.mask = -1, .lengths = -1};
    for (l->kind = kinds; strcmp(l->kind->op, lower->op->name) != 0;) l->kind++;
    if (x.ndim != 3 || r.ndim != 3)
        return lower_error(lower, 372, "input and recurrent weights have %d and %d dimensions, not 3", x.ndim, r.ndim);
    l->batch_first = lower_given(lower, "layout") && lower_int(lower, "layout") != 0;
    l->t = x.dims[l->batch_first];
    l->b = x.dims[!l->batch_first];
    l->i = x.dims[2];
    l->h = r.dims[l->kind->quantised ? 1 : 2];
    if (lower_given(lower, "hidden_size") && lower_int(lower, "hidden_size") != l->h)
        return lower_error(lower, 378, "hidden_size is %lld, but the recurrent weights are for %lld",
                           (long long)lower_int(lower, "hidden_size"), (long long)l->h);
    return read_direction(lower, l) < 0 || check_shapes(lower, l) < 0 || read_functions(lower, l) < 0 ? -1 : 0;
}

/* The steps that lie within the lengths of their sequences, (t, b, 1). */
static int emit_mask(struct lower *lower, const struct layer *l) {
    const int lengths = emit_reshape(lower, l->lengths, 3, (int64_t[]){1, l->b, 1});
    return emit2(lower, OP_Less, emit_places(lower, 0, l->t, 3, 0), lengths);
}

/* Part of dimension `dim` of an input that belongs to direction d, the dimension removed. */
static int of_direction(struct lower *lower, int input, int dim, int d) {
    return emit_squeeze(lower, emit_piece(lower, lower->inputs[input], dim, d, 1, 1), dim);
}

/* The initial states of a direction, (s, b, h): zeros where none are given. */
static int emit_initial(struct lower *lower, const struct layer *l, int d) {
    const int64_t shape[] = {1, l->b, l->h};
    int states[2];
    for (int s = 0; s < l->kind->states; s++) {
        const int input = s ? INITIAL_C : INITIAL_H;
        states[s] = lower_has(lower, input) ? emit_unsqueeze(lower, of_direction(lower, input, l->batch_first, d), 0)
                                            : emit_expand(lower, emit_like(lower, lower->inputs[X], 0), 3, shape);
    }
    return emit_concat(lower, 0, l->kind->states, states);
}

static bool resets_after(const struct lower *lower) {
    return lower_given(lower, "linear_before_reset") && lower_int(lower, "linear_before_reset") != 0;
}

/* The bias of a direction that is added to the products of the inputs: the bias of W plus the bias of R. If the reset
 * gate multiplies the candidate's part of R's bias, that part is left out and becomes *last. */
static int emit_bias(struct lower *lower, const struct layer *l, int d, int *last) {
    const int64_t rows = l->kind->gates * l->h;
    const int both = of_direction(lower, B, 0, d), input = emit_piece(lower, both, 0, 0, 1, rows);
    if (!resets_after(lower)) return emit2(lower, OP_Add, input, emit_piece(lower, both, 0, rows, 1, rows));
    const int64_t h = l->h;
    const int gates =
        emit2(lower, OP_Add, emit_piece(lower, input, 0, 0, 1, 2 * h), emit_piece(lower, both, 0, rows, 1, 2 * h));
    *last = emit_piece(lower, both, 0, rows + 2 * h, 1, h);
    return emit_concat(lower, 0, 2, (int[]){gates, emit_piece(lower, input, 0, 2 * h, 1, h)});
}

/* x of all steps, quantised; steps beyond all lengths do not count. */
static int quantise_inputs(struct lower *lower, struct layer *l) {
    int x = l->x;
    if (l->lengths >= 0) {
        const int most = emit_reduce_along(lower, OP_ReduceMax, l->lengths, 0, false);
        const int within = emit2(lower, OP_Less, emit_places(lower, 0, l->t, 3, 0), most);
        x = emit3(lower, OP_Where, within, x, emit_like(lower, x, 0));
    }
    l->levels = emit_dynamically_quantised(lower, x, &l->how);
    return l->levels < 0 ? -1 : 0;
}

/* The products of the inputs of all steps and a direction's input weights. */
static int emit_products(struct lower *lower, const struct layer *l, int d) {
    const int weights = of_direction(lower, W, 0, d);
    if (!l->kind->quantised) return emit_matmul(lower, l->x, weights, false, true);
    const int zero = of_direction(lower, W_ZERO, 0, d), scale = of_direction(lower, W_SCALE, 0, d);
    const int sums = emit_int_matmul(lower, l->levels, l->how.zero, weights, zero, false);
    return emit2(lower, OP_Mul, emit_cast(lower, sums, lower_dtype(lower, l->x)),
                 emit2(lower, OP_Mul, l->how.scale, scale));
}

/* The recurrent weights of a direction (gates h, h). Of a quantised layer they are the levels less the zero point, and
 * *scale (gates h) is what a level counts. */
static int emit_recurrent(struct lower *lower, const struct layer *l, int d, int *scale) {
    static const int64_t turn[] = {1, 0};
    const int weights = of_direction(lower, R, 0, d);
    const enum rt_dtype dtype = lower_dtype(lower, l->x);
    const int64_t rows = l->kind->gates * l->h;
    if (!l->kind->quantised || weights < 0) return weights;
    int zero = emit_cast(lower, of_direction(lower, R_ZERO, 0, d), dtype);
    if (zero >= 0 && lower_ndim(lower, zero)) zero = emit_unsqueeze(lower, zero, 1);
    *scale = emit_cast(lower, of_direction(lower, R_SCALE, 0, d), dtype);
    *scale = emit_expand(lower, *scale, 1, &rows);
    if (*scale < 0) return -1;
    return emit2(lower, OP_Sub, emit_cast(lower, emit_transpose(lower, weights, turn), dtype), zero);
}

/* The states after all steps of a direction, (s, t, b, h); the initial ones, (s, 1, b, h), if there are no steps. */
static int emit_direction(struct lower *lower, struct layer *l, int d) {
    int vector = -1, scale = -1;
    int sums = emit_products(lower, l, d);
    if (lower_has(lower, B)) {
        const int bias = emit_bias(lower, l, d, &vector);
        sums = emit2(lower, OP_Add, sums, bias);
    }
    if (l->kind->states > 1 && lower_has(lower, PEEPHOLES)) vector = of_direction(lower, PEEPHOLES, 0, d);
    const int weights = emit_recurrent(lower, l, d, &scale), initial = emit_initial(lower, l, d);
    if (sums < 0 || weights < 0 || initial < 0) return -1;
    if (!l->t) return emit_unsqueeze(lower, initial, 1);
    struct attr *attrs = l->attrs[d];
    int n = l->nattrs[d];
    attrs[n++] = attr_of_text("cell", l->kind->cell);
    if (l->reverse || d) attrs[n++] = attr_of_int("reverse", 1);
    if (resets_after(lower)) attrs[n++] = attr_of_int("reset_after", 1);
    if (lower_given(lower, "input_forget") && lower_int(lower, "input_forget")) attrs[n++] = attr_of_int("coupled", 1);
    if (lower_given(lower, "clip")) attrs[n++] = attr_of_float("clip", lower_float(lower, "clip"));
    return build(&lower->builder, OP_Recurrence, scale < 0 ? 5 : 6,
                 (int[]){sums, weights, initial, vector, l->lengths, scale}, n, attrs);
}

/* State number `state` after every step, (t, 1, b, h) or batch first (b, t, 1, h); zeros beyond the lengths. */
static int all_states(struct lower *lower, const struct layer *l, int states, int64_t state) {
    static const int64_t turn[] = {1, 0, 2};
    const int64_t shape[] = {l->t, l->b, l->h};
    if (!l->t) states = emit_piece(lower, states, 1, 0, 1, 0);
    int y = emit_reshape(lower, emit_piece(lower, states, 0, state, 1, 1), 3, shape);
    if (l->mask >= 0) y = emit3(lower, OP_Where, l->mask, y, emit_like(lower, lower->inputs[X], 0));
    return l->batch_first ? emit_unsqueeze(lower, emit_transpose(lower, y, turn), 2) : emit_unsqueeze(lower, y, 1);
}

/* State number `state` after the last step or before any, (1, b, h) or (b, 1, h). */
static int last_state(struct lower *lower, const struct layer *l, int d, int states, int64_t state) {
    const bool reverse = l->reverse || d;
    const int all = emit_piece(lower, states, 0, state, 1, 1);
    const int64_t at = reverse || !l->t ? 0 : open_sum(lower->builder.graph->open, l->t, -1);
    const int last = emit_squeeze(lower, emit_piece(lower, all, 1, at, 1, 1), 1);
    return l->batch_first ? emit_unsqueeze(lower, emit_squeeze(lower, last, 0), 1) : last;
}

/* ONNX LSTM-22, GRU-22, RNN-22; com.microsoft DynamicQuantizeLSTM. */
int lower_recurrent(struct lower *lower) {
    static const int64_t turn[] = {1, 0, 2};
    struct layer l;
    int parts[3][2];
    if (read_layer(lower, &l) < 0) return -1;
    l.x = l.batch_first ? emit_transpose(lower, lower->inputs[X], turn) : lower->inputs[X];
    if (lower_has(lower, LENGTHS)) {
        l.lengths = emit_cast(lower, lower->inputs[LENGTHS], RT_I64);
        if (l.lengths < 0 || (l.mask = emit_mask(lower, &l)) < 0) return -1;
    }
    if (l.kind->quantised && (lower_refuse_rounding(lower) < 0 || quantise_inputs(lower, &l) < 0)) return -1;
    for (int d = 0; d < l.directions; d++) {
        const int states = emit_direction(lower, &l, d);
        if (states < 0) return -1;
        parts[0][d] = lower_wants(lower, 0) ? all_states(lower, &l, states, 0) : -1;
        for (int s = 0; s < l.kind->states; s++)
            parts[1 + s][d] = lower_wants(lower, 1 + s) ? last_state(lower, &l, d, states, s) : -1;
    }
    for (int o = 0; o < 1 + l.kind->states; o++) {
        if (!lower_wants(lower, o)) continue;
        lower->outputs[o] = emit_concat(lower, o == 0 ? 1 + l.batch_first : l.batch_first, l.directions, parts[o]);
        if (lower->outputs[o] < 0) return -1;
    }
    return 0;
}
