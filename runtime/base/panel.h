/* Packed layout of matrices that are only used as the right operand of matrix products.
 *
 * Note [Panels]
 * A packed matrix (k,n) is divided into panels of RT_PANEL columns. A panel is a row-major (k,RT_PANEL), padded with
 * zeros beyond column n; panels are contiguous, in order. A product reads each panel once, sequentially. Column j
 * begins a panel if it is a multiple of RT_PANEL: ranks and threads that divide n at such multiples access disjoint
 * memory.
 *
 * The format is the same on every processor, so that the compiler can compute sizes. */
#ifndef RT_BASE_PANEL_H
#define RT_BASE_PANEL_H

#include <stdint.h>

enum { RT_PANEL = 32 };

static inline int64_t rt_panels(int64_t n) {
    return n / RT_PANEL + (n % RT_PANEL != 0);
}

/* Size of a packed matrix with its padding, in elements. */
static inline int64_t rt_panel_elements(int64_t k, int64_t n) {
    return rt_panels(n) * RT_PANEL * k;
}

/* Offset of element (p, j) of a packed matrix with k rows, in elements. */
static inline int64_t rt_panel_place(int64_t k, int64_t p, int64_t j) {
    return j / RT_PANEL * k * RT_PANEL + p * RT_PANEL + j % RT_PANEL;
}

#endif
