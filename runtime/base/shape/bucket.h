/* Gradient buckets: which gradients one sum covers during the backward phase (Note [Buckets] in core/sums.c).
 *
 * A bucket is a range of memory filled by complete gradients of one type that are adjacent except for alignment. It is
 * handed to the transport when it holds `limit` bytes, when the next gradient is not adjacent, and at the end. The
 * runtime fills buckets by this rule, and the compiler counts them with it. */
#ifndef RT_BASE_BUCKET_H
#define RT_BASE_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "../contract.h"
#include "../dtype.h"

struct rt_bucket {
    int64_t first; /* address of the first gradient, or its offset in an arena */
    int64_t bytes; /* from there to the end of the last gradient; 0: empty */
    enum rt_dtype dtype;
};

/* True if the bucket must be handed over before the gradient at `at` is added: it is not adjacent. */
static inline bool rt_bucket_ends_before(const struct rt_bucket *bucket, int64_t at, enum rt_dtype dtype) {
    const int64_t end = bucket->first + bucket->bytes;
    return bucket->bytes && (dtype != bucket->dtype || at < end || at >= end + RT_ALIGNMENT);
}

/* Adds a gradient, the first one of an empty bucket. True if the bucket is full and must be handed over. */
static inline bool rt_bucket_add(struct rt_bucket *bucket, int64_t at, enum rt_dtype dtype, int64_t bytes,
                                 int64_t limit) {
    if (!bucket->bytes) {
        bucket->first = at;
        bucket->dtype = dtype;
    }
    bucket->bytes = at - bucket->first + bytes;
    return bucket->bytes >= limit;
}

#endif
