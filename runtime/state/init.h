/* Initial values of weights that are generated instead of read from the model.
 *
 * An element's value depends only on the weight's key and the element's index in the complete tensor: it is the same on
 * every rank and under every plan. */
#ifndef RT_INIT_H
#define RT_INIT_H

#include "generated.h"

/* Generates elements [first, first + count) of the complete tensor, row-major, as `dtype`. */
void rt_init_fill(const struct rt_init *init, int64_t first, int64_t count, void *dst, enum rt_dtype dtype);

#endif
