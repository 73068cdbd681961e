/* Window functions and mel filters: constants, since their sizes are known at compile time. */
#include "frontend/lower/lowering_state.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

enum { MOST_VALUES = 1 << 28 };

/* Adds doubles as a constant of the type that attribute output_datatype names. */
static int emit_values(struct lower *lower, int ndim, const int64_t *dims, const double *values) {
    const int64_t number = lower_int(lower, "output_datatype");
    const enum rt_dtype dtype = number == (int)number ? rt_dtype_by_onnx((int)number) : RT_DTYPE_NONE;
    if (dtype == RT_DTYPE_NONE) return lower_error(lower, 407, "the result's type is not supported");
    return lowering_constant(lower->shared, lower->builder.node, dtype, ndim, dims, values, RT_F64);
}

/* Cosine windows: constant + first cos(2 pi i / N) + second cos(4 pi i / N), where N is the size if attribute periodic
 * is set, else one less. */
static const struct window {
    const char *name;
    double constant, first, second;
} windows[] = {
    {"HannWindow", 0.5, -0.5, 0}, {"HammingWindow", 25.0 / 46, -21.0 / 46, 0}, {"BlackmanWindow", 0.42, -0.5, 0.08}};

int lower_window(struct lower *lower) {
    const struct window *window = windows;
    int64_t size;
    while (strcmp(window->name, lower->op->name) != 0) window++;
    if (lower_known_int(lower, 0, "size", &size) < 0) return -1;
    if (size < 0) return lower_error(lower, 384, "size is %lld", (long long)size);
    if (size > MOST_VALUES) return lower_too_large(lower);
    const double period = (double)(lower_int(lower, "periodic") ? size : size - 1);
    double *values = ARENA_ARRAY(lower->arena, double, size + 1);
    for (int64_t i = 0; i < size; i++) {
        const double angle = period > 0 ? 2 * pi * (double)i / period : 0;
        values[i] = window->constant + window->first * cos(angle) + window->second * cos(2 * angle);
    }
    return lower_result(lower, emit_values(lower, 1, &size, values));
}

/* The spectrogram bin of the lower edge of mel band `band`: ONNX MelWeightMatrix-17. */
static int64_t mel_edge(double low, double high, int64_t band, int64_t bands, int64_t dft_length, int64_t rate) {
    const double low_mel = 2595 * log10(1 + low / 700), high_mel = 2595 * log10(1 + high / 700);
    const double mel = low_mel + (double)band * (high_mel - low_mel) / (double)(bands + 2);
    return (int64_t)floor((double)(dft_length + 1) * 700 * expm1(mel / 2595 * log(10)) / (double)rate);
}

/* Column `band` of (bins, bands): a triangle that rises from its left edge to its centre and falls to its right
 * edge. */
static void mel_band(double *values, int64_t bands, int64_t band, const int64_t *edge) {
    const int64_t left = edge[0], centre = edge[1], right = edge[2];
    if (centre == left) values[centre * bands + band] = 1;
    for (int64_t i = left; i <= centre && centre > left; i++)
        values[i * bands + band] = (double)(i - left) / (double)(centre - left);
    for (int64_t i = centre; i < right; i++) values[i * bands + band] = (double)(right - i) / (double)(right - centre);
}

int lower_mel_weights(struct lower *lower) {
    int64_t bands, dft_length, rate;
    double low, high;
    if (lower_known_int(lower, 0, "num_mel_bins", &bands) < 0 ||
        lower_known_int(lower, 1, "dft_length", &dft_length) < 0 ||
        lower_known_int(lower, 2, "sample_rate", &rate) < 0 ||
        lower_known_float(lower, 3, "lower_edge_hertz", &low) < 0 ||
        lower_known_float(lower, 4, "upper_edge_hertz", &high) < 0)
        return -1;
    if (bands < 0 || dft_length < 0 || rate <= 0 || !(low >= 0) || !(high >= low))
        return lower_error(lower, 384, "invalid mel bands, DFT length, sample rate or edges");
    const int64_t bins = dft_length / 2 + 1, dims[] = {bins, bands};
    if (bands > MOST_VALUES || bins > MOST_VALUES || bins * bands > MOST_VALUES) return lower_too_large(lower);
    if (mel_edge(low, high, bands + 1, bands, dft_length, rate) > bins)
        return lower_error(lower, 384, "upper_edge_hertz %g is beyond half the sample rate", high);
    double *values = ARENA_ARRAY(lower->arena, double, bins *bands + 1);
    for (int64_t band = 0; band < bands; band++) {
        int64_t edge[3];
        for (int i = 0; i < 3; i++) edge[i] = mel_edge(low, high, band + i, bands, dft_length, rate);
        if (edge[1] >= bins) return lower_error(lower, 384, "upper_edge_hertz %g is beyond half the sample rate", high);
        mel_band(values, bands, band, edge);
    }
    return lower_result(lower, emit_values(lower, 2, dims, values));
}
