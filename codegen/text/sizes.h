/* Names of sizes in generated code: an enum of a source's sizes, so that 22 reads B * T.
 *
 * Dimensions of tensors that an operator's annotation gives one factor are the same size; what a size is called follows
 * from where it occurs, as in `roles` of sizes.c. Sizes that only have the same value are not mixed up. Of a dimension
 * that mesh axes cut, the size of a rank's part is called after them: NH_TENSOR. */
#ifndef CODEGEN_SIZES_H
#define CODEGEN_SIZES_H

#include "passes/rank/rankplan.h"

struct sizes;

/* The sizes of the graph. */
struct sizes *sizes_find(const struct graph *graph);

/* A name that a source uses. */
struct size_name {
    const char *name, *what;
    int64_t value;
};
struct size_names {
    VEC(struct size_name) all;
};

/* The extent of dimension `dim` of the class' part of a tensor, as a marked text: it contains name and value, so that
 * texts are equal only if both are. A number where no name is known. Adds the names to `names`. */
const char *sizes_extent(const struct sizes *sizes, struct size_names *names, const struct rank_class *class,
                         int tensor, int dim);
/* The extent of the whole tensor. */
const char *sizes_whole(const struct sizes *sizes, struct size_names *names, int tensor, int dim);
/* The product of the extents of dimensions [from, to) of the part; a number if it exceeds int. */
const char *sizes_product(const struct sizes *sizes, struct size_names *names, const struct rank_class *class,
                          int tensor, int from, int to);

/* The name of a dimension that has this extent; NULL: none has a name. */
const char *sizes_letter(const struct sizes *sizes, int64_t extent);

/* The product of sizes, each a number, a marked text, or a product of one and the other. */
const char *sizes_times(struct arena *arena, int n, const char *const *texts);

/* The marked text as C code: names alone, or numbers alone. */
const char *sizes_shown(struct arena *arena, const char *marked);
const char *sizes_valued(struct arena *arena, const char *marked);
/* The length of the name that begins at `marked` (a mark), and through *end what follows its value. */
size_t sizes_name(const char *marked, const char **name, const char **end);
enum { SIZE_MARK = 3, SIZE_END = 4 }; /* the first and the last byte of a name with its value */

#endif
