/* Runs an imported graph on given inputs, slowly, with the compiler's own evaluator: what an import means can be
 * checked before there is any code generation. */
#ifndef TESTS_IMPORT_EVALUATE_H
#define TESTS_IMPORT_EVALUATE_H

#include "ir/ir.h"
#include "runtime/base/npy.h"

struct given {
    const char *name;
    struct rt_tensor tensor;
};

/* Computes the graph's outputs: their tensors become CONSTs. Each input is taken from `given` by its name, and
 * converted to the input's type. NULL, or what is wrong. */
const char *evaluate(struct graph *graph, int n, const struct given *given);

/* Nodes that the outputs depend on. */
int count_live(const struct graph *graph);

/* NULL if the tensor has the type, the shape and, within atol + rtol |expected|, the values of `expected`. A float
 * type may differ. Else a text in the arena. */
const char *compare(struct arena *arena, const struct tensor *tensor, const struct rt_tensor *expected, double rtol,
                    double atol);

#endif
