/* Integers that are known at compile time up to sizes that depend on data.
 *
 * Note [Amounts]
 * Exported models compute with shapes: Shape of a counted value, Gather, Concat with constants, a minimum, Add; the
 * result is an operand of Reshape, Slice or TopK. An amount says what is known of one element of such a tensor: it is
 * offset + the sum of its terms, and lies in [least, most]. A term is a factor times a root, an element of a tensor.
 * Amounts follow from the nodes that compute the tensor (amounts.c); an element that they do not explain is a
 * root itself. Two sizes are equal if the difference of their amounts is 0. */
#ifndef FRONTEND_LOWER_AMOUNTS_H
#define FRONTEND_LOWER_AMOUNTS_H

#include <stdbool.h>
#include <stdint.h>

struct lowering;

struct amount_term {
    int tensor, element;
    int64_t factor; /* not 0 */
};

struct amount {
    int64_t least, most; /* within AMOUNT_LIMIT */
    int64_t offset;
    int n; /* terms, in ascending order of tensor and element; 0: it is the number `offset` */
    const struct amount_term *terms;
};

struct amount_sum {
    struct amount parts, total;
};

#define AMOUNT_LIMIT ((int64_t)1 << 62)
enum { AMOUNTS = 1024 /* elements of a tensor whose amounts are found */ };

/* The amounts of the tensor's elements, in row-major order; NULL for a tensor of more than AMOUNTS elements. */
const struct amount *amounts_of(struct lowering *lowering, int tensor);

/* Records the amount of a tensor of one element that was built from it. */
void amounts_set(struct lowering *lowering, int tensor, const struct amount *amount);

struct amount amount_of_number(int64_t number);
/* a + factor * b */
struct amount amount_plus(struct lowering *lowering, const struct amount *a, int64_t factor, const struct amount *b);
/* True if a <= b is certain. */
bool amount_at_most(struct lowering *lowering, const struct amount *a, const struct amount *b);
bool amount_equal(struct lowering *lowering, const struct amount *a, const struct amount *b);

/* Records that the element of the tensor lies in [0, most]. */
void amounts_bound(struct lowering *lowering, int tensor, int element, int64_t most);
/* Records that the n parts add up to `total`. */
void amounts_sum(struct lowering *lowering, int n, const struct amount *parts, const struct amount *total);

#endif
