/* Sizes that follow from others though the model gives them names of their own, private to the import.
 *
 * Note [Equal sizes]
 * Exporters name what they do not relate: the length of a mask is "total", though it is "past" + "sequence". Such a
 * size is found where an operator meets two extents that have to be equal (open_meet). One of the sizes then is an
 * expression of the others, and the import begins again, with fewer sizes. At run time each input is checked for its
 * shape, so the caller's inputs have to fit. A size that is not given is guessed to be open as long as it may follow
 * from others. If no operator says what it is, positions that index its tensor do: "total" then is the number of the
 * positions.
 * Where extents are equal only up to a limit (Note [Limits] in ir/open.h), the import begins again with it. */
#ifndef FRONTEND_IMPORT_IMPORT_EQUAL_H
#define FRONTEND_IMPORT_IMPORT_EQUAL_H

#include "ir/ir.h"

/* The size `name` is `value`, a number of `from`, whose sizes are found by their names. */
struct equality {
    const char *name;
    struct open_sizes *from;
    int64_t value;
};

/* A limit of a number of `from`. */
struct limited {
    struct open_sizes *from;
    struct open_limit limit;
};

struct equalities {
    bool guess;  /* sizes that are not given are open */
    int guessed; /* sizes of this import: the last ones of the graph */
    VEC(struct equality) all;
    VEC(struct limited) limits;
};

/* That of a name; NULL: it is a size of its own. */
const struct equality *equality_of(const struct equalities *equalities, const char *name, size_t length);

/* The name of the size that an equality says to be the same as its own; NULL: it is another expression. */
const char *equality_other(const struct equality *equality);

/* After an import that failed: adds what follows from its clash. False: nothing. */
bool equality_find(struct equalities *equalities, struct open_sizes *open);
/* After one that did not: adds what follows for a guessed size from positions that index a tensor. */
bool equality_find_indexed(struct equalities *equalities, const struct graph *graph);

#endif
