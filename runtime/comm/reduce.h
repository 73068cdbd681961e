/* Reduction arithmetic, shared by the transports. */
#ifndef RT_REDUCE_H
#define RT_REDUCE_H

#include "comm.h"

/* dst = src[0] op src[1] op .. op src[nsrc-1], elementwise and in this order, stored to each of `ndst` buffers. A dst
 * may be one of the sources; otherwise nothing overlaps. `count` in elements. */
void rt_reduce_ordered(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, enum rt_dtype dtype,
                       enum rt_reduce reduce);

#endif
