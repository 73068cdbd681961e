/* Quantisation as compositions of core operators, for the lowerings of quantised ONNX operators. All return a tensor
 * id, -1 if an operand is -1 or after a diagnostic. */
#ifndef FRONTEND_LOWER_LOWER_QUANTISE_H
#define FRONTEND_LOWER_LOWER_QUANTISE_H

#include "frontend/lower/onnx_lower.h"

/* How a tensor is quantised: the ids of its scale and zero point (-1: 0), per tensor, along `axis`, or in blocks along
 * it (block > 0). */
struct quantised {
    int scale, zero;
    int64_t axis, block;
};

/* (x - zero) * scale in f32, or in f64 if the scale is of f64; cast to `dtype` unless that is RT_DTYPE_NONE. */
int emit_dequantised(struct lower *lower, int x, const struct quantised *how, enum rt_dtype dtype);

/* ONNX Cast: to a float of 8 bits with its attribute saturate, to a power of two with round_mode. */
int emit_converted(struct lower *lower, int x, enum rt_dtype dtype, bool saturate, const char *round_mode);

/* ONNX DynamicQuantizeLinear-11: x as u8, with scale and zero point of all of its elements in *how. Where all are 0 the
 * scale is 1, as in ONNX Runtime. */
int emit_dynamically_quantised(struct lower *lower, int x, struct quantised *how);

/* E402 in training: the gradient of rounding is 0 everywhere. 0 or -1. */
int lower_refuse_rounding(struct lower *lower);

/* A scalar or a vector of one element as a scalar; others as they are. */
int emit_scalar(struct lower *lower, int x);

/* The sum over k of (a - a_zero) (b - b_zero) as i32, for integers of 8 bits; zero points are -1 for 0. The last two
 * dimensions are multiplied, as by MatMul. */
int emit_int_matmul(struct lower *lower, int a, int a_zero, int b, int b_zero, bool trans_b);

#endif
