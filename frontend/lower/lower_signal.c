/* Fourier transforms and causal convolution. */
#include "frontend/lower/onnx_lower.h"

#include <math.h>
#include <string.h>

#include "runtime/base/number/checked.h"

/* Note [Fourier transforms]
 * A transform of n = a b numbers is computed as a transforms of b, a multiplication by twiddle factors, and b
 * transforms of a (Cooley and Tukey 1965). Transforms of prime length, and short ones, are products with a constant
 * matrix: complex numbers (.., n, 2) are rows of 2 n numbers, which a matrix (2 n, 2 n) multiplies. A packed product
 * makes about 100 multiply-adds in the time in which the steps between the transforms of a split move one number, so it
 * is faster up to PLAIN of them for each number; for fewer than MANY rows reading the matrix takes the time, and it is
 * faster up to PLAIN_ROW. Of an open length, up to MOST_OPEN, the matrix is computed by each step. */
enum { PLAIN = 1100, PLAIN_ROW = 256, MANY = 16, MOST = 1 << 22, MOST_OPEN = 1 << 12 };
static const double PI = 3.14159265358979323846;

/* The matrix (n in, out 2) that multiplies rows of n numbers of `in` parts: 1 real, 2 complex; the first `out` results.
 * sign: of the exponent. */
static int emit_matrix(struct lower *lower, int x, int64_t n, int in, int64_t out, int sign, double factor) {
    const int64_t dims[] = {n * in, out * 2};
    double *values = ARENA_ARRAY(lower->arena, double, n *in *out * 2 + 1);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < out; k++) {
            const double angle = sign * 2 * PI * (double)(i * k % n) / (double)n;
            const double re = cos(angle) * factor, im = sin(angle) * factor;
            double *row = values + (i * in * out + k) * 2;
            row[0] = re;
            row[1] = im;
            if (in == 1) continue;
            row[out * 2] = -im;
            row[out * 2 + 1] = re;
        }
    return emit_floats(lower, lower_dtype(lower, x), 2, dims, values);
}

/* The same where the length is open, computed in f64 by each step. It is multiplied by 1 / n if `inverse`. */
static int emit_open_matrix(struct lower *lower, int x, int64_t n, int in, int64_t out, int sign, bool inverse) {
    const int64_t dims[] = {n * in, out * 2};
    const int products = emit2(lower, OP_Mul, emit_places(lower, 0, n, 4, 0), emit_places(lower, 0, out, 4, 2));
    const int places = emit_cast(lower, emit2(lower, OP_Mod, products, emit_number(lower, RT_I64, n)), RT_F64);
    const int turns = emit2(lower, OP_Div, places, emit_number(lower, RT_F64, n));
    const int angle = emit_with(lower, OP_Mul, turns, sign * 2 * PI);
    int re = emit1(lower, OP_Cos, angle), im = emit1(lower, OP_Sin, angle);
    if (inverse) {
        const int share = emit_reciprocal(lower, RT_F64, n);
        re = emit2(lower, OP_Mul, re, share), im = emit2(lower, OP_Mul, im, share);
    }
    int rows = emit_concat(lower, 3, 2, (int[]){re, im});
    if (in == 2) {
        const int turned = emit_concat(lower, 3, 2, (int[]){emit1(lower, OP_Neg, im), re});
        rows = emit_concat(lower, 1, 2, (int[]){rows, turned});
    }
    return emit_reshape(lower, emit_cast(lower, rows, lower_dtype(lower, x)), 2, dims);
}

/* The factor of n that is nearest to its root from below; 1 for primes. */
static int64_t factor_of(int64_t n) {
    int64_t best = 1;
    for (int64_t f = 2; f * f <= n; f++)
        if (n % f == 0) best = f;
    return best;
}

/* x (rows, n, in) to (rows, out, 2), out <= n. */
static int emit_transform(struct lower *lower, int x, int64_t rows, int64_t n, int in, int64_t out, int sign,
                          double factor);

/* x (rows, a b, in), element i = i1 b + i2: transforms over i1, twiddle factors, and transforms over i2. The result is
 * k = k1 + k2 a. */
static int emit_split(struct lower *lower, int x, int64_t rows, int64_t a, int64_t b, int in, int sign, double factor) {
    static const int64_t turn[] = {0, 2, 1, 3};
    const int64_t split[] = {rows, a, b, in}, first[] = {rows * b, a, in}, whole[] = {rows, b, a, 2},
                  second[] = {rows * a, b, 2}, turned[] = {rows, a, b, 2}, joined[] = {rows, a * b, 2};
    const int64_t factors[] = {b, a, 1};
    double *twiddles = ARENA_ARRAY(lower->arena, double, 2 * a * b);
    for (int64_t i = 0; i < b; i++)
        for (int64_t k = 0; k < a; k++) {
            const double angle = sign * 2 * PI * (double)(i * k) / (double)(a * b);
            twiddles[i * a + k] = cos(angle);
            twiddles[(b + i) * a + k] = sin(angle);
        }
    int y = emit_reshape(lower, emit_transpose(lower, emit_reshape(lower, x, 4, split), turn), 3, first);
    y = emit_reshape(lower, emit_transform(lower, y, rows * b, a, in, a, sign, factor), 4, whole);
    if (y < 0) return -1;
    const int re = emit_piece(lower, y, 3, 0, 1, 1), im = emit_piece(lower, y, 3, 1, 1, 1);
    const int c = emit_floats(lower, lower_dtype(lower, x), 3, factors, twiddles),
              s = emit_floats(lower, lower_dtype(lower, x), 3, factors, twiddles + a * b);
    const int parts[] = {emit2(lower, OP_Sub, emit2(lower, OP_Mul, re, c), emit2(lower, OP_Mul, im, s)),
                         emit2(lower, OP_Add, emit2(lower, OP_Mul, re, s), emit2(lower, OP_Mul, im, c))};
    if (parts[0] < 0 || parts[1] < 0) return -1;
    y = emit_transpose(lower, emit_concat(lower, 3, 2, parts), turn);
    y = emit_transform(lower, emit_reshape(lower, y, 3, second), rows * a, b, 2, b, sign, 1);
    return emit_reshape(lower, emit_transpose(lower, emit_reshape(lower, y, 4, turned), turn), 3, joined);
}

static int emit_transform(struct lower *lower, int x, int64_t rows, int64_t n, int in, int64_t out, int sign,
                          double factor) {
    struct open_sizes *open = lower_open(lower);
    const bool few = open_typical(open, rows) < MANY;
    const bool plain = open_is(open, n) || in * out * 2 <= (few ? PLAIN_ROW : PLAIN);
    const int64_t a = plain ? 1 : factor_of(n), flat[] = {rows, n * in}, shape[] = {rows, out, 2};
    if (x < 0) return -1;
    if (a > 1) {
        const int y = emit_split(lower, x, rows, a, n / a, in, sign, factor);
        return y < 0 || out == n ? y : emit_piece(lower, y, 1, 0, 1, out);
    }
    const int matrix = open_is(open, n) ? emit_open_matrix(lower, x, n, in, out, sign, factor != 1)
                                        : emit_matrix(lower, x, n, in, out, sign, factor);
    return emit_reshape(lower, emit_matmul(lower, emit_reshape(lower, x, 2, flat), matrix, false, false), 3, shape);
}

/* x with `n` elements along dimension `axis`: cut, or zeros behind it. */
static int emit_length(struct lower *lower, int x, int axis, int64_t n) {
    if (x < 0) return -1;
    const struct tensor t = lower_tensor(lower, x);
    const enum open_order order = open_order(lower_open(lower), n, t.dims[axis]);
    if (order == OPEN_EQUAL) return x;
    if (order <= OPEN_EQUAL) return emit_piece(lower, x, axis, 0, 1, n);
    if (order == OPEN_EITHER)
        return lower_error(lower, 439, "a transform is longer than dimension %d for some open sizes only", axis);
    return emit_padded(lower, x, axis, 0, open_sum(lower_open(lower), n, -t.dims[axis]), 0);
}

/* How many numbers of a real signal's spectrum are not conjugates of others. */
static int64_t half_of(struct open_sizes *open, int64_t n) {
    return open_sum(open, open_quotient(open, n, 2), 1);
}

/* The complex numbers of a real signal's spectrum beyond its first half, which are conjugates: (rows, n / 2 + 1, 2) to
 * (rows, n, 2). */
static int emit_conjugates(struct lower *lower, int x, int64_t n) {
    static const double signs[] = {1, -1};
    struct open_sizes *open = lower_open(lower);
    const int64_t two[] = {2}, half = half_of(open, n), more = open_sum(open, n, -half);
    if (x < 0 || !more) return x;
    const int rest = emit_piece(lower, x, 1, more, -1, more);
    return emit_concat(
        lower, 1, 2, (int[]){x, emit2(lower, OP_Mul, rest, emit_floats(lower, lower_dtype(lower, x), 1, two, signs))});
}

struct dft {
    int64_t n;
    int axis;
    bool inverse, onesided;
};

/* x (.., n, .., in) along `axis`, which is moved before the last dimension. */
static int emit_dft(struct lower *lower, int x, const struct dft *dft) {
    const struct tensor t = lower_tensor(lower, x);
    const int in = (int)t.dims[t.ndim - 1];
    struct open_sizes *open = lower_open(lower);
    int64_t perm[RT_MAX_NDIM], rows = 1, out = dft->onesided && !dft->inverse ? half_of(open, dft->n) : dft->n;
    const int64_t given = dft->onesided && dft->inverse ? half_of(open, dft->n) : dft->n;
    for (int d = 0; d < t.ndim; d++) perm[d] = d;
    perm[dft->axis] = t.ndim - 2;
    perm[t.ndim - 2] = dft->axis;
    x = emit_transpose(lower, emit_length(lower, x, dft->axis, given), perm);
    if (x < 0) return -1;
    struct tensor moved = lower_tensor(lower, x);
    for (int d = 0; d < t.ndim - 2; d++) rows *= moved.dims[d];
    x = emit_reshape(lower, x, 3, (int64_t[]){rows, given, in});
    if (dft->onesided && dft->inverse) x = emit_conjugates(lower, x, dft->n);
    int y =
        emit_transform(lower, x, rows, dft->n, in, out, dft->inverse ? 1 : -1, dft->inverse ? 1 / (double)dft->n : 1);
    if (y < 0) return -1;
    moved.dims[t.ndim - 2] = out;
    moved.dims[t.ndim - 1] = 2;
    if (dft->onesided && dft->inverse) { /* real */
        y = emit_piece(lower, y, 2, 0, 1, 1);
        moved.dims[t.ndim - 1] = 1;
    }
    return emit_transpose(lower, emit_reshape(lower, y, t.ndim, moved.dims), perm);
}

/* Refuses frames of an open length. */
static bool is_open(struct lower *lower, int64_t n) {
    struct open_sizes *open = lower->builder.graph->open;
    if (!open_is(open, n)) return false;
    const char *text = open_text(open, lower->arena, n, NULL, false);
    lower_error(lower, 439, "a Fourier transform has the open length %s", text);
    diag_help(lower->builder.diags, "give each size of it a program of its own: --dim NAME=SIZE");
    return true;
}

/* ONNX DFT-20; up to opset 19 the axis is an attribute. */
int lower_dft(struct lower *lower) {
    const struct tensor x = lower_input(lower, 0);
    struct dft dft = {.inverse = lower_int(lower, "inverse") != 0, .onesided = lower_int(lower, "onesided") != 0};
    int64_t axis = -2;
    if (lower->op->since < 20)
        axis = lower_int(lower, "axis");
    else if (lower_has(lower, 2) && lower_known_int(lower, 2, "axis", &axis) < 0)
        return -1;
    if (x.ndim < 2 || x.dims[x.ndim - 1] < 1 || x.dims[x.ndim - 1] > 2)
        return lower_error(lower, 378, "the last dimension of %s is not 1 or 2", lower_type(lower, &x));
    if (lower_axis(lower, axis, x.ndim, &dft.axis) < 0) return -1;
    if (dft.axis == x.ndim - 1)
        return lower_error(lower, 375, "axis %lld is that of real and imaginary parts", (long long)axis);
    if (dft.onesided && !dft.inverse && x.dims[x.ndim - 1] != 1)
        return lower_error(lower, 378, "a one-sided transform needs real numbers");
    struct open_sizes *open = lower_open(lower);
    dft.n = dft.onesided && dft.inverse ? 2 * open_sum(open, x.dims[dft.axis], -1) : x.dims[dft.axis];
    if (lower_has(lower, 1) && lower_known_int(lower, 1, "dft_length", &dft.n) < 0) return -1;
    if (open_is(open, dft.n) && open_most(open, dft.n) > MOST_OPEN) return lower_too_large(lower);
    if (open_least(open, dft.n) < 1 || open_most(open, dft.n) > MOST)
        return lower_error(lower, 374, "a transform of %lld numbers", (long long)dft.n);
    return lower_result(lower, emit_dft(lower, lower->inputs[0], &dft));
}

/* Element i of frame f is element f step + i of the signal: (frames length), in row-major order. */
static int emit_frames(struct lower *lower, int64_t frames, int64_t length, int64_t step) {
    const int64_t elements = frames * length;
    if (open_is(lower->builder.graph->open, frames)) {
        const int first = emit_with(lower, OP_Mul, emit_places(lower, 0, frames, 2, 0), (double)step);
        const int places = emit2(lower, OP_Add, first, emit_places(lower, 0, length, 2, 1));
        return emit_reshape(lower, places, 1, &elements);
    }
    int64_t *places = ARENA_ARRAY(lower->arena, int64_t, elements + 1);
    for (int64_t i = 0; i < elements; i++) places[i] = i / length * step + i % length;
    return emit_ints(lower, (int)elements, places, 1, &elements);
}

/* ONNX STFT-17: transforms of overlapping frames, each multiplied by the window. */
int lower_stft(struct lower *lower) {
    struct open_sizes *open = lower->builder.graph->open;
    struct tensor x = lower_input(lower, 0);
    int64_t step, length, elements;
    if (x.ndim == 2) x.dims[x.ndim++] = 1; /* real, without the last dimension */
    if (x.ndim != 3 || x.dims[2] < 1 || x.dims[2] > 2)
        return lower_error(lower, 378, "the signal %s is not (batch, length, 1 or 2)", lower_type(lower, &x));
    length = lower_has(lower, 2) && lower_input(lower, 2).ndim == 1 ? lower_input(lower, 2).dims[0] : x.dims[1];
    if (lower_known_int(lower, 1, "frame_step", &step) < 0 ||
        (lower_has(lower, 3) && lower_known_int(lower, 3, "frame_length", &length) < 0))
        return -1;
    if (is_open(lower, length)) return -1;
    if (step < 1 || length < 1 || length > open_least(open, x.dims[1]) || length > MOST ||
        (lower_has(lower, 2) && (lower_input(lower, 2).ndim != 1 || lower_input(lower, 2).dims[0] != length)))
        return lower_error(lower, 374, "frames of %lld, %lld apart, do not fit the signal or the window",
                           (long long)length, (long long)step);
    const int64_t frames = open_sum(open, open_quotient(open, open_sum(open, x.dims[1], -length), step), 1);
    const int64_t in = x.dims[2], b = x.dims[0];
    if (!rt_mul(open_most(open, frames), length, &elements) || elements > INT32_MAX / 2) return lower_too_large(lower);
    int y = emit_reshape(lower, lower->inputs[0], 3, x.dims);
    y = emit_gather(lower, y, emit_frames(lower, frames, length, step), 1);
    y = emit_reshape(lower, y, 3, (int64_t[]){b * frames, length, in});
    if (lower_has(lower, 2))
        y = emit2(lower, OP_Mul, y, emit_reshape(lower, lower->inputs[2], 2, (int64_t[]){length, 1}));
    const bool onesided = lower_int(lower, "onesided") && in == 1;
    const int64_t out = onesided ? length / 2 + 1 : length;
    y = emit_transform(lower, y, b * frames, length, (int)in, out, -1, 1);
    return lower_result(lower, emit_reshape(lower, y, 4, (int64_t[]){b, frames, out, 2}));
}

/* ONNX CausalConvWithState-27: the state, or zeros, before the input; a convolution of each channel; SiLU. */
int lower_causal_conv(struct lower *lower) {
    const struct tensor x = lower_input(lower, 0), w = lower_input(lower, 1);
    const char *activation = lower_text(lower, "activation");
    if (x.ndim != 3 || w.ndim != 3 || w.dims[0] != x.dims[1] || w.dims[1] != 1 || w.dims[2] < 1 || x.dims[2] < 1)
        return lower_misfit(lower, lower->inputs[0], lower->inputs[1]);
    const int64_t carried = w.dims[2] - 1, state[] = {x.dims[0], x.dims[1], carried};
    int parts[] = {-1, lower->inputs[0]};
    if (lower_has(lower, 3)) {
        const struct tensor past = lower_input(lower, 3);
        if (past.ndim != 3 || past.dims[0] != state[0] || past.dims[1] != state[1] || past.dims[2] != carried)
            return lower_misfit(lower, lower->inputs[0], lower->inputs[3]);
        parts[0] = lower->inputs[3];
    } else
        parts[0] = emit_expand(lower, emit_like(lower, lower->inputs[0], 0), 3, state);
    const int all = carried && parts[0] >= 0 ? emit_concat(lower, 2, 2, parts) : lower->inputs[0];
    int y = emit_conv(lower, all, lower->inputs[1], x.dims[1]);
    if (lower_has(lower, 2)) y = emit2(lower, OP_Add, y, emit_per_channel(lower, lower->inputs[2], 3));
    if (strcmp(activation, "silu") == 0 || strcmp(activation, "swish") == 0)
        y = emit1(lower, OP_Silu, y);
    else if (strcmp(activation, "none") != 0)
        return lower_unknown(lower, "activation", activation);
    if (lower_wants(lower, 1) && (lower->outputs[1] = emit_piece(lower, all, 2, x.dims[2], 1, carried)) < 0) return -1;
    return lower_result(lower, y);
}
