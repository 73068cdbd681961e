/* Open sizes: dimensions whose extent is chosen at run time, in bounds (--dim seq=1..512).
 *
 * Note [Specimens]
 * A graph has numbers only. One with open sizes is a specimen of a family: every open size is a large prime that has
 * nothing to do with the other numbers of the model, so a number that is made from sizes tells by its value how:
 * 12 * 40009 * 50021 is 12 * batch * seq. What a product cannot tell - sums, quotients, the lesser of two - is noted
 * where it is computed. So extents, attributes, strides and counts stay plain int64_t in every pass, and each is an
 * expression over sizes all the same (open_at, open_most, open_text).
 *
 * A program is generated from two specimens of different primes. Their sources must be equal, byte for byte, once every
 * number is written as its expression: a number that is no expression of sizes, or one that a pass took for a fixed
 * number, differs, and the program is refused. Two polynomials of low degree that agree at two points of random primes
 * are the same but for a chance of one in many thousands (Schwartz and Zippel); what they miss would have to be wrong
 * in the same way at both.
 *
 * What a number is follows from its value, the sizes and the atoms alone, whatever was asked before: a product is found
 * again where an atom has been noted since. Atoms have values as they are noted, one after the other, so an imported
 * graph gets those that a reader of its text has (specimens_settle): the plan is made from the text that `rankc verify`
 * reads.
 *
 * Some numbers do not have the value that they have for the specimen's sizes, but a prime of their own, as if they were
 * sizes: quotients that are rounded down, which for the specimen's sizes may be those of other numbers, and the lesser
 * or greater of two, which would be taken for fixed numbers. A rest is what is left: b * (a / b) + a % b is a.
 *
 * Note [Limits]
 * A decoder takes up to 448 tokens that it has seen and up to 448 new ones, but has a table of 448 positions for both:
 * bounds of sizes do not say what sums of them may be. Where extents are equal only as long as the lesser of such a sum
 * and a fixed number is the sum (open_exceeds), the sum is limited to that number: expressions have its bound, and each
 * step checks its sizes.
 *
 * What decides by an extent must ask for the extent at the bound (open_most), at the typical size (open_typical), or
 * whether the answer is the same for all sizes (open_order): the specimen's own number is larger than any of them. */
#ifndef IR_OPEN_H
#define IR_OPEN_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/base/map.h"
#include "ir/base/vec.h"
#include "runtime/base/contract.h"

enum {
    OPEN_SIZES = RT_MAX_SIZES,
    OPEN_SPECIMENS = 16,  /* that a compile tries */
    OPEN_DEPTH = 12,      /* factors of a product */
    OPEN_LEAST_ATOM = 100 /* smaller numbers are not taken for atoms in products */
};

/* least, least + step .. most; plans are decided at `typical`. A fixed size: all of them the same, and step 1. */
struct open_range {
    int64_t least, most, step, typical;
};

struct open_size {
    const char *name;
    struct open_range range;
    int64_t value; /* in this specimen */
    /* What the size is in the next step, of one that the program keeps itself: the rows of a cache so far. 0: the
     * caller chooses it. */
    int64_t next;
};

enum open_kind {
    OPEN_NUMBER,   /* `number` */
    OPEN_SIZE,     /* size a */
    OPEN_UNIT,     /* size a / the largest number that divides all its values */
    OPEN_SUM,      /* a + b */
    OPEN_PRODUCT,  /* a * b */
    OPEN_QUOTIENT, /* a / b, rounded down */
    OPEN_REST,     /* a - a / b * b */
    OPEN_LESSER,
    OPEN_GREATER
};

/* `value` is at most `most` in every step. */
struct open_limit {
    int64_t value, most;
};

/* An expression; a and b are indices of others. */
struct open_term {
    enum open_kind kind;
    int a, b;
    int64_t number, value; /* value: in this specimen */
    int weight;            /* how many sizes and numbers it reads */
    int64_t bound;         /* it is at most that in every step (open_keep, open_limit); 0: not known to be less */
    int atoms;             /* of a product: how many there were when it was found */
    bool tried;            /* least and most are what trying all sizes gave, or no bounds */
    int64_t least, most;
};

/* Two extents that an operator needs to be equal, and that are not. */
struct open_clash {
    bool met;
    int64_t a, b;
};

struct open_sizes {
    struct arena *arena;
    int specimen;
    struct open_clash clash; /* the first one */
    VEC(struct open_size) all;
    VEC(struct open_limit) limits;
    VEC(struct open_term) terms;
    VEC(int) atoms;      /* terms that no product makes, in the order in which they were noted */
    struct map known;    /* value -> index of its atom */
    struct map products; /* value -> index of the product that it was found to be */
    struct map noted;    /* operation and operands -> index of a result */
    VEC(int64_t) results;
    bool spoiled; /* a number is made of too many others to be noted */
};

/* No size yet. Every `specimen`, from 0 on, has other primes. */
struct open_sizes *open_new(struct arena *arena, int specimen);
/* Specimens 2 n and 2 n + 1 are of pair n. */
static inline int open_pair(const struct open_sizes *open) {
    return open->specimen / 2;
}
/* Adds a size and returns its value in the specimen. */
int64_t open_add(struct open_sizes *open, const char *name, const struct open_range *range);

static inline struct open_range open_fixed(int64_t size) {
    return (struct open_range){size, size, 1, size};
}
/* As it is written for --dim: 8, 1..512, 32..640:32@224. */
const char *open_range_text(struct arena *arena, const struct open_range *range);
/* Reads it. *rest is the text behind it. */
bool open_range_parse(const char *text, struct open_range *range, const char **rest);
/* The largest number that divides all values of the range. */
int64_t open_range_unit(const struct open_range *range);
static inline bool open_is_range(const struct open_range *range) {
    return range->least != range->most;
}

/* In all that follows `open` may be NULL: nothing is open, and every number is fixed. */

/* The index of the number's term; -1: it is fixed. */
int open_term(struct open_sizes *open, int64_t value);
/* True if the number depends on open sizes. */
bool open_is(struct open_sizes *open, int64_t value);
/* The number for sizes[], by their order. */
int64_t open_at(struct open_sizes *open, int64_t value, const int64_t *sizes);
/* Its bounds over all sizes, and its value at the typical sizes. The bounds are exact where the expression reads each
 * size once, or few sizes; else they are those of parts as if these were independent. */
int64_t open_least(struct open_sizes *open, int64_t value);
int64_t open_most(struct open_sizes *open, int64_t value);
int64_t open_typical(struct open_sizes *open, int64_t value);

/* The program keeps size s, which is `next` in the next step. That never exceeds the size's bound: who runs a step
 * checks it. */
void open_keep(struct open_sizes *open, int s, int64_t next);
/* Note [Limits]. The value depends on sizes. */
void open_limit(struct open_sizes *open, int64_t value, int64_t most);
/* Lowers the sizes that the program keeps to those from which a step with the other sizes[] can go on, and sizes that
 * have a limit to such that keep it. */
void open_fit(struct open_sizes *open, int64_t *sizes);

/* a + b, a / b rounded down (b > 0), a modulo b, the lesser and the greater of both: numbers that stand for them, and
 * are known from then on, where they depend on sizes. */
int64_t open_sum(struct open_sizes *open, int64_t a, int64_t b);
int64_t open_quotient(struct open_sizes *open, int64_t a, int64_t b);
int64_t open_rest(struct open_sizes *open, int64_t a, int64_t b);
int64_t open_lesser(struct open_sizes *open, int64_t a, int64_t b);
int64_t open_greater(struct open_sizes *open, int64_t a, int64_t b);

/* How a compares to b: for all sizes the same, or not. */
enum open_order { OPEN_LESS, OPEN_LESS_OR_EQUAL, OPEN_EQUAL, OPEN_GREATER_OR_EQUAL, OPEN_MORE, OPEN_EITHER };
enum open_order open_order(struct open_sizes *open, int64_t a, int64_t b);
/* a <= b for all sizes. */
static inline bool open_at_most(struct open_sizes *open, int64_t a, int64_t b) {
    return open_order(open, a, b) <= OPEN_EQUAL;
}

/* Finds out what a number is that was computed from n others by an operator: their sum, or that of one and a fixed
 * number that is less than OPEN_NEAR and much less than it. */
enum { OPEN_NEAR = 1 << 13 };
void open_note(struct open_sizes *open, int64_t value, int n, const int64_t *from);

/* a == b; what differs for open sizes is noted as the clash, unless one is. */
bool open_meet(struct open_sizes *open, int64_t a, int64_t b);

/* The index of a size that must follow from the others for the extents of the clash to be equal, and what it then is:
 * the one that was added last, if possible one that is alone on its side. -1: there is none. Fixed numbers are no
 * answer: where elements are repeated, an extent may be 1 as well. */
int open_solve(struct open_sizes *open, int64_t *value);

/* The limit with which the extents of the clash are equal. False: there is none. */
bool open_exceeds(struct open_sizes *open, struct open_limit *limit);

/* A number of `from` as it is for other sizes, which are numbers of `to`. */
int64_t open_again(struct open_sizes *to, struct open_sizes *from, int64_t value, const int64_t *sizes);
bool open_reads(struct open_sizes *open, int64_t value, int size);

/* The number with the names of sizes as they are, for messages; and a message in which the numbers of a specimen become
 * such expressions. */
const char *open_plain(struct open_sizes *open, struct arena *arena, int64_t value);
const char *open_said(struct open_sizes *open, struct arena *arena, const char *text);

/* True for a term that generated code has a name for: a size, or what no product makes. */
bool open_is_atom(const struct open_sizes *open, int term);
/* True if the number is such a term. */
bool open_names_alone(struct open_sizes *open, int64_t value);

/* A number by which it can be divided for all sizes, the largest that is known; the quotient is then an expression too.
 * Not the value's own divisors: that of a prime and 1 can be divided by 2. */
int64_t open_divisor(struct open_sizes *open, int64_t value);

/* The first size that an open number is made of: its index. */
int open_first_size(struct open_sizes *open, int64_t value);

/* The number as an expression in C: digits where it is fixed. name(context, atom) spells an atom; NULL: as it is
 * written in text IR, with the names of sizes quoted. `loose`: in parentheses unless it is a number or a name. */
struct open_names {
    const char *(*name)(const void *context, int atom);
    const void *context;
};
const char *open_text(struct open_sizes *open, struct arena *arena, int64_t value, const struct open_names *names,
                      bool loose);
/* The same, and of an atom what it stands for. */
const char *open_meaning(struct open_sizes *open, struct arena *arena, int64_t value, const struct open_names *names);

#endif
