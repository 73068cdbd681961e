/* Masks that are made of open sizes alone (ir/open.h): what they hide, for all sizes.
 *
 * Exporters write masks in many ways: comparisons of positions, triangles of ones, numbers of packed sequences. Where all
 * that a mask is computed from are sizes and constants, it is computed here for some sizes, small ones and the largest,
 * and compared with what the attributes of attention can say. */
#ifndef PASSES_REWRITE_OPEN_MASK_H
#define PASSES_REWRITE_OPEN_MASK_H

#include "passes/rewrite/known_mask.h"

/* As known_mask; MASK_ANY also if the mask depends on anything else. known.offset is a number of the specimen. */
struct known_mask open_mask(struct graph *graph, int mask, double seen);

#endif
