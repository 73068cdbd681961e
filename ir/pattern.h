/* Patterns of operators as text; passes/rewrite/matcher.h searches a graph for them.
 *
 *     "Add(Mul(normed(c:Sub(x, mean(x))), scale), bias)"
 *
 *   pattern  := label ":" term | term
 *   term     := Op "[" test "]" "(" pattern, .. ")"   a node of that operator that passes the test, if there is one
 *             | name                                  any tensor
 *             | number                                a constant of one element with about this value
 *             | "#" | name "#"                        a constant of one element with any value; the name refers to it
 *             | "{" pattern "|" .. "}"                one of the alternatives: the first that leads to a match
 *             | "&" pattern                           its nodes may be shared: nodes outside of the match may read them
 *             | macro "(" pattern ")"                 a row of `macros` in pattern.c; "@" in its text is the argument
 *
 * Operators begin with a capital letter, names, labels and macros with a small one. A name or label that occurs
 * twice is the same tensor. Operands of commutative operators match in either order. Nodes inside of a match
 * disappear when it is replaced, so no node outside of it may read their results, except for those of shared nodes. All
 * ways of matching are tried until one is accepted. */
#ifndef IR_PATTERN_H
#define IR_PATTERN_H

#include "ir/op.h"

enum { PATTERN_CHILDREN = 4 };

struct pattern {
    enum { PATTERN_OP, PATTERN_TENSOR, PATTERN_NUMBER, PATTERN_SCALAR, PATTERN_EITHER } kind;
    const char *name; /* label of OP or EITHER; of TENSOR, SCALAR; or NULL */
    bool shared;
    const struct op *op;
    bool (*test)(const struct graph *graph, const struct node *node);
    double number;
    int n;
    const struct pattern *child[PATTERN_CHILDREN];
};

/* What is wrong with a text, and how many bytes before it. */
struct pattern_fault {
    const char *why;
    size_t at;
};

/* In the arena, as the text must be. pattern_parse: the text belongs to the compiler, BUG if it is malformed.
 * pattern_read: it is a user's; NULL with *fault if it is malformed. */
const struct pattern *pattern_parse(struct arena *arena, const char *text);
const struct pattern *pattern_read(struct arena *arena, const char *text, struct pattern_fault *fault);

/* Sets *value to the value of a float constant of one element; false if the tensor is none. */
bool constant_number(const struct graph *graph, int tensor, double *value);

/* True if a and b differ by at most 1e-6 |b|, which is more than the rounding of f32. */
bool about(double a, double b);
/* True if tensor `id` is a constant of one element with about that value, or with that value rounded to its type. */
bool is_constant_number(const struct graph *graph, int id, double number);

#endif
