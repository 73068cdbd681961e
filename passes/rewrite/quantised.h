/* Quantised tensors in a graph after import, in which DequantizeLinear is (Cast(codes) - zero) * scale and
 * QuantizeLinear is Cast(Min(Max(Round(x / scale) + zero, least), most)). */
#ifndef PASSES_REWRITE_QUANTISED_H
#define PASSES_REWRITE_QUANTISED_H

#include "ir/op.h"

/* A dequantised tensor: (codes - zero) * scale. */
struct dequantised {
    int codes;  /* tensor of the same shape */
    int packed; /* the bytes that codes is unpacked from, -1: none */
    int scale;  /* broadcasts to the shape, or to one with a dimension divided into blocks */
    int zero;   /* the same; of the type of codes, or a float; -1: 0 */
    int ndim;   /* of the shape in which scale and zero broadcast */
    int64_t dims[RT_MAX_NDIM];
};

/* Reads how `tensor` is dequantised; false if it is not. codes has its shape, or both scale and zero are scalars. */
bool read_dequantised(const struct graph *graph, int tensor, struct dequantised *out);

/* A quantised tensor: x / scale, rounded, plus zero. */
struct requantised {
    int x, scale, zero; /* zero: -1: none */
};

/* Reads how the node, a Cast to codes, quantises; false if it does not. */
bool read_requantised(const struct graph *graph, const struct node *node, struct requantised *out);

/* True if `q`, read from `node`, quantises what was dequantised by `d` back to the same codes: with the same scalar
 * scale, zero point and type. */
bool requantises(const struct graph *graph, const struct node *node, const struct requantised *q,
                 const struct dequantised *d);

/* Types of codes: i8, u8 and those of fewer bits. */
bool is_code(enum rt_dtype dtype);
/* True for tensors of one element, and for none (-1). */
bool is_scalar(const struct graph *graph, int tensor);
/* The tensor before reshapes and casts of codes. */
int before_views(const struct graph *graph, int tensor);

#endif
