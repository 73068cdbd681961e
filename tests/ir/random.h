/* Random numbers of tests: the same on every machine (splitmix64). */
#ifndef TESTS_IR_RANDOM_H
#define TESTS_IR_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_bits(struct random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline int64_t random_below(struct random *random, int64_t n) {
    return (int64_t)(random_bits(random) % (uint64_t)n);
}

#endif
