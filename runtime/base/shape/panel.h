/* Packed layout of matrices that are only used as the right operand of matrix products.
 *
 * Note [Panels]
 * A packed matrix (k,n) is divided into panels of RT_PANEL columns. A panel is a row-major (k,RT_PANEL), padded with
 * zeros beyond column n; panels are contiguous, in order. A product reads each panel once, sequentially. Column j
 * begins a panel if it is a multiple of RT_PANEL: ranks and threads that divide n at such multiples access disjoint
 * memory.
 *
 * Panels of 16-bit floats hold pairs of rows: rows 2i and 2i + 1 alternate element by element, as the instructions that
 * multiply pairs read them, and rows are padded with zeros to a multiple of RT_PANEL_DEPTH. oneDNN names this format
 * BA16a32b2a.
 *
 * Panels of 8-bit integers hold quads of rows: of each column, the elements of rows 4i to 4i + 3 follow each other, as
 * the instructions that multiply four pairs read them. Rows are padded with zeros to a multiple of 4. Behind them lie
 * the sums of the panel's columns, RT_PANEL numbers of i32. Elements are signed: unsigned ones are stored less 128.
 *
 * The format is the same on every processor, so that the compiler can compute sizes. */
#ifndef RT_BASE_PANEL_H
#define RT_BASE_PANEL_H

#include <stdint.h>

#include "../contract.h"
#include "../dtype.h"
#include "winograd.h"

enum { RT_PANEL = 32, RT_PANEL_DEPTH = 32 };

static inline int64_t rt_panels(int64_t n) {
    return n / RT_PANEL + (n % RT_PANEL != 0);
}

/* Size of a packed matrix with its padding, in elements. */
static inline int64_t rt_panel_elements(int64_t k, int64_t n) {
    return rt_panels(n) * RT_PANEL * k;
}

/* Rows of a panel of 16-bit floats for a matrix of k rows. */
static inline int64_t rt_pair_rows(int64_t k) {
    return (k + RT_PANEL_DEPTH - 1) / RT_PANEL_DEPTH * RT_PANEL_DEPTH;
}

/* Size of a packed matrix of 16-bit floats with its padding, in elements. */
static inline int64_t rt_pair_elements(int64_t k, int64_t n) {
    return rt_panel_elements(rt_pair_rows(k), n);
}

/* Offset of element (p, j) of a packed matrix with k rows, in elements. */
static inline int64_t rt_panel_place(int64_t k, int64_t p, int64_t j) {
    return j / RT_PANEL * k * RT_PANEL + p * RT_PANEL + j % RT_PANEL;
}

/* The same for 16-bit floats. */
static inline int64_t rt_pair_place(int64_t k, int64_t p, int64_t j) {
    return j / RT_PANEL * rt_pair_rows(k) * RT_PANEL + p / 2 * 2 * RT_PANEL + j % RT_PANEL * 2 + p % 2;
}

enum { RT_QUAD = 4 };

/* Indices of k, at most, whose products with quantised weights are summed before they are scaled. */
enum { RT_GROUP_PIECE = 256 };

/* Rows of a panel of 8-bit integers for a matrix of k rows, without those that the sums take. */
static inline int64_t rt_quad_rows(int64_t k) {
    return (k + RT_QUAD - 1) / RT_QUAD * RT_QUAD;
}

/* Bytes of a panel of 8-bit integers. */
static inline int64_t rt_quad_panel(int64_t k) {
    return (rt_quad_rows(k) + (int64_t)sizeof(int32_t)) * RT_PANEL;
}

/* Size of a packed matrix of 8-bit integers with its padding and sums, in bytes. */
static inline int64_t rt_quad_elements(int64_t k, int64_t n) {
    return rt_panels(n) * rt_quad_panel(k);
}

/* The same for 8-bit integers. */
static inline int64_t rt_quad_place(int64_t k, int64_t p, int64_t j) {
    return j / RT_PANEL * rt_quad_panel(k) + p / RT_QUAD * RT_QUAD * RT_PANEL + j % RT_PANEL * RT_QUAD + p % RT_QUAD;
}

/* Types of which there are panels. */
static inline bool rt_is_packable(enum rt_dtype dtype) {
    return dtype == RT_F32 || rt_dtypes[dtype].kind == RT_KIND_HALF || dtype == RT_I8 || dtype == RT_U8;
}

/* A packed part of a stored tensor: panels of a matrix (k,n). The tensor is that matrix or its transpose, or has the
 * windows of a convolution, elements (c, taps) in a row, which are packed in the order (taps, c). */
struct rt_packed {
    enum rt_packing packing;
    int64_t k, n, channels, taps;
};

static inline struct rt_packed rt_packed_of(enum rt_packing packing, int ndim, const int64_t *dims) {
    struct rt_packed panels = {packing, 1, dims[0], dims[1], 1};
    for (int d = 1; d < ndim; d++) panels.k *= dims[d];
    for (int d = 2; d < ndim; d++) panels.taps *= dims[d];
    if (packing == RT_PACK_WINOGRAD) panels.k = panels.channels * RT_WINOGRAD_PRODUCTS;
    if (packing == RT_PACK_ROWS) panels.k = dims[0], panels.n = dims[1];
    return panels;
}

/* Where the element of a row of the stored tensor is, of type `dtype`: its index in the panels. */
static inline int64_t rt_packed_place(const struct rt_packed *panels, enum rt_dtype dtype, int64_t row,
                                      int64_t column) {
    const int64_t p = panels->packing == RT_PACK_ROWS
                          ? row
                          : column % panels->taps * panels->channels + column / panels->taps,
                  j = panels->packing == RT_PACK_ROWS ? column : row;
    if (rt_dtype_bytes(dtype) == 1) return rt_quad_place(panels->k, p, j);
    return dtype == RT_F32 ? rt_panel_place(panels->k, p, j) : rt_pair_place(panels->k, p, j);
}

/* Size with the padding, in elements. */
static inline int64_t rt_packed_elements(const struct rt_packed *panels, enum rt_dtype dtype) {
    if (rt_dtype_bytes(dtype) == 1) return rt_quad_elements(panels->k, panels->n);
    return dtype == RT_F32 ? rt_panel_elements(panels->k, panels->n) : rt_pair_elements(panels->k, panels->n);
}

#endif
