#include "program/sampler.h"

#include "base/number/philox.h"

/* Note [Shuffling]
 * A pseudo-random permutation that needs no memory: a Feistel network over 2 * half bits, whose rounds mix one half of
 * the bits into the other with Philox, keyed by seed, epoch and round (Luby and Rackoff 1988). Results outside the
 * range are permuted again until they are inside ("cycle walking", Black and Rogaway 2002). At least a quarter of the
 * numbers is inside. */

enum { ROUNDS = 8 };

static uint64_t permute(const struct rt_sampler *sampler, int64_t epoch, int half, uint64_t number) {
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = number >> half, right = number & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t stream = (uint64_t)epoch * ROUNDS + round;
        const uint64_t mixed = left ^ (rt_philox_at(right, stream, sampler->seed).word[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t rt_sampler_at(const struct rt_sampler *sampler, int64_t position) {
    const int64_t epoch = position / sampler->samples;
    uint64_t number = (uint64_t)(position % sampler->samples);
    int half = 1;
    if (!sampler->shuffle) return (int64_t)number;
    while (half < 31 && (int64_t)1 << 2 * half < sampler->samples) half++;
    do number = permute(sampler, epoch, half, number);
    while (number >= (uint64_t)sampler->samples);
    return (int64_t)number;
}
