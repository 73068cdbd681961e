/* Initial values of weights that are not read from the model.
 *
 * An element's value follows from the weight's key and from the element's index in the complete tensor: it is the same
 * whichever rank holds it, under every plan. */
#ifndef RT_INIT_H
#define RT_INIT_H

#include "rt.h"

/* Elements [first, first + count) of the complete tensor, in order, as `dtype`. */
void rt_init_fill(const struct rt_init *init, int64_t first, int64_t count, void *dst, enum rt_dtype dtype);

#endif
