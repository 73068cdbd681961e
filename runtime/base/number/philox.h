/* Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers:
 * as easy as 1, 2, 3"; Random123). It has no state: the random number of element i of a tensor does not depend on which
 * rank computes it, or in which order. */
#ifndef RT_BASE_PHILOX_H
#define RT_BASE_PHILOX_H

#include <stdint.h>

#include "../inline.h"

struct rt_philox {
    uint32_t word[4];
};

RT_INLINE struct rt_philox rt_philox(struct rt_philox counter, uint64_t key) {
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53 * counter.word[0], b = (uint64_t)0xCD9E8D57 * counter.word[2];
        const struct rt_philox next = {{(uint32_t)(b >> 32) ^ counter.word[1] ^ low, (uint32_t)b,
                                        (uint32_t)(a >> 32) ^ counter.word[3] ^ high, (uint32_t)a}};
        counter = next;
        low += 0x9E3779B9;
        high += 0xBB67AE85;
    }
    return counter;
}

/* Block number `index` of one of 2^64 streams. */
RT_INLINE struct rt_philox rt_philox_at(uint64_t index, uint64_t stream, uint64_t key) {
    const struct rt_philox counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    return rt_philox(counter, key);
}

/* A double in the open interval (0, 1) from 64 bits: the middle of one of 2^52 equal parts. */
RT_INLINE double rt_philox_open(uint32_t low, uint32_t high) {
    const uint64_t bits = ((uint64_t)high << 32 | low) >> 12;
    return ((double)bits + 0.5) * 0x1p-52;
}

#endif
