/* How matrices lie that are only ever the right side of products.
 *
 * Note [Panels]
 * A packed matrix (k,n) is cut into panels of RT_PANEL columns. A panel is (k,RT_PANEL), row-major, with zeros in the
 * columns beyond n; panels lie one after the other. A product walks down a panel once, from its first byte to its
 * last, and panels begin where RT_PANEL columns of any part of the matrix begin: ranks and threads that share out n at
 * multiples of RT_PANEL share out memory.
 *
 * The format is the same on every processor, so that the compiler knows its size and programs can read it. */
#ifndef RT_BASE_PANEL_H
#define RT_BASE_PANEL_H

#include <stdint.h>

enum { RT_PANEL = 32 };

static inline int64_t rt_panels(int64_t n) {
    return n / RT_PANEL + (n % RT_PANEL != 0);
}

/* Size of a packed matrix in elements. */
static inline int64_t rt_panel_elements(int64_t k, int64_t n) {
    return rt_panels(n) * RT_PANEL * k;
}

/* Where element (p, j) of a packed matrix of k rows lies, in elements. */
static inline int64_t rt_panel_place(int64_t k, int64_t p, int64_t j) {
    return j / RT_PANEL * k * RT_PANEL + p * RT_PANEL + j % RT_PANEL;
}

#endif
