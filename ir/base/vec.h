/* Typed growable arrays in an arena, and loops over these and other arrays. Growth copies the array: a push invalidates
 * pointers into it; indices stay valid. */
#ifndef IR_BASE_VEC_H
#define IR_BASE_VEC_H

#include <string.h>

#include "ir/base/arena.h"

#define VEC(type)                                                                                                      \
    struct {                                                                                                           \
        type *at;                                                                                                      \
        int n, capacity;                                                                                               \
    }

/* Appends a value, which may be a compound literal. `vec` is evaluated several times. */
#define VEC_PUSH(arena, vec, ...)                                                                                      \
    do {                                                                                                               \
        if ((vec)->n == (vec)->capacity)                                                                               \
            (vec)->at = vec_grow(arena, (vec)->at, (vec)->n, &(vec)->capacity, sizeof *(vec)->at);                     \
        (vec)->at[(vec)->n++] = (__VA_ARGS__);                                                                         \
    } while (0)

/* Bisection: raises the int `low` to the first index below `high` for which `before` is false, or to `high`. `before`
 * is an expression of the index `middle`, true up to some index and false from there on. */
#define BISECT(low, high, middle, before)                                                                              \
    for (int bisect_high = (high); (low) < bisect_high;) {                                                             \
        const int middle = (low) + (bisect_high - (low)) / 2;                                                          \
        if (before)                                                                                                    \
            (low) = middle + 1;                                                                                        \
        else                                                                                                           \
            bisect_high = middle;                                                                                      \
    }

/* Makes the vector, whose struct was copied from another one, independent of it. */
#define VEC_UNSHARE(arena, vec)                                                                                        \
    do {                                                                                                               \
        (vec)->at = arena_copy(arena, (vec)->at, (size_t)(vec)->n * sizeof *(vec)->at);                                \
        (vec)->capacity = (vec)->n;                                                                                    \
    } while (0)

/* A loop of one variable that each round declares anew: going_i is false in a round's body, unless that breaks off. */
#define EACH_ROUND(i, first, more, step, ...)                                                                          \
    for (int i = first, going_##i = 1; going_##i && (more); going_##i = !going_##i, i += (step))                       \
        for (__VA_ARGS__; going_##i; going_##i = 0)

/* for (int i = 0; i < n; i++) with the element declared: EACH(plan->classes, plan->nclasses, i, const struct class *c)
 * and, of a vector, VEC_EACH(&plan->files, i, const struct file *file). */
#define EACH(array, n, i, ...)       EACH_ROUND(i, 0, i < (n), 1, __VA_ARGS__ = &(array)[i])
#define EACH_VALUE(array, n, i, ...) EACH_ROUND(i, 0, i < (n), 1, __VA_ARGS__ = (array)[i])
#define VEC_EACH(vec, i, ...)        EACH_ROUND(i, 0, i < (vec)->n, 1, __VA_ARGS__ = &(vec)->at[i])
#define VEC_EACH_VALUE(vec, i, ...)  EACH_ROUND(i, 0, i < (vec)->n, 1, __VA_ARGS__ = (vec)->at[i])

static inline void *vec_grow(struct arena *arena, const void *old, int n, int *capacity, size_t size) {
    *capacity = *capacity ? *capacity * 2 : 8;
    void *grown = arena_alloc(arena, (size_t)*capacity, size);
    if (n) memcpy(grown, old, (size_t)n * size);
    return grown;
}

#endif
