/* What the fuzz targets share.
 *
 * A target is a function of any bytes that returns or finds a bug: a signal, a sanitizer's report, a leak, a check that
 * fails, BUG(). tests/fuzz/run.sh drives it by libFuzzer; replay.c, linked instead, gives it the corpus and seeded
 * mutations of it, with any compiler. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>

#include "ir/ir.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* Provided by libFuzzer, or by replay.c: changes `size` bytes in place to at most `most`, and returns how many. */
size_t LLVMFuzzerMutate(unsigned char *data, size_t size, size_t most);

/* What a target does with an input: run(arena, data, size) in an arena of `budget` bytes, then after(), if it has one.
 * Running out of the arena is no finding: memory is bounded. */
struct fuzz_target {
    size_t budget;
    void (*run)(struct arena *arena, const unsigned char *data, size_t size);
    void (*after)(void);
};
extern const struct fuzz_target fuzz_target;

/* Set by a target whose inputs may be refused: the last one was not. replay.c counts them. */
extern bool fuzz_passed;

/* A finding unless `good`. */
void fuzz_check(bool good);

/* A regular file that holds the bytes, until the next call. */
const char *fuzz_file(const unsigned char *data, size_t size);

/* The graph that plans and rules are for (graph.rir), made anew. */
struct graph *fuzz_graph(struct arena *arena);

#endif
