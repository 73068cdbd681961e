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
 * The format is the same on every processor, so that the compiler can compute sizes. */
#ifndef RT_BASE_PANEL_H
#define RT_BASE_PANEL_H

#include <stdint.h>

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

#endif
