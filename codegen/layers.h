/* Repeated layers: finds runs of instructions that repeat, so that each is written once.
 *
 * Note [Layers]
 * Two instructions are alike if their calls have the same text and their tensors the same types: they differ only
 * in addresses. A run of `period` instructions followed by alike runs becomes a function, called `times` times. A
 * role is a pointer of that function: what it points to in each of the calls. A role with one address in all calls
 * is a constant of the function, others are read from a table of offsets, a row per call. */
#ifndef CODEGEN_LAYERS_H
#define CODEGEN_LAYERS_H

#include "codegen/source.h"

struct stretch {
    int first, period, times; /* instructions [first, first + period * times); times = 1: written in place */
};

struct stretches {
    VEC(struct stretch) all;
};

/* In instructions [first, end) of the source. */
void layers_find(const struct rankplan *plan, const struct source *source, int first, int end, struct stretches *out);

#endif
