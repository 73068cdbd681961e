/* Patterns of operators, as text, and where a graph has them.
 *
 *     "Add(Mul(normed(c:Sub(x, mean(x))), scale), bias)"
 *
 *   pattern  := label ":" term | term
 *   term     := Op "[" test "]" "(" pattern, .. ")"   a node of that operator that passes the test; "[..]" may be left
 *            out
 *             | name                                  any tensor
 *             | number                                a constant of one element, about that
 *             | "#" | name "#"                        a constant of one element, any; a name keeps its value
 *             | "{" pattern "|" .. "}"                one of them, the first that leads to a match
 *             | macro "(" pattern ")"                 match.c's table; "@" in its text is the argument
 *
 * Operators begin with a capital, everything else does not. Equal names and labels are one tensor. Operators that
 * commute take their operands in either order. What is matched between the root and the named tensors may be read by
 * nothing else: it disappears. All ways of matching are tried until one is accepted. */
#ifndef PASSES_REWRITE_MATCH_H
#define PASSES_REWRITE_MATCH_H

#include "ir/op.h"

struct pattern;

/* A text of this program: BUG where it is malformed. */
const struct pattern *pattern_parse(struct arena *arena, const char *text);

struct matcher {
    struct graph *graph;
    struct uses uses;
    bool *kept;  /* per tensor: an output of the graph or an update */
    int tensors; /* made later are read by what is made later */
};

void matcher_init(struct matcher *matcher, struct graph *graph);

/* True if one node reads the tensor, once, and nothing else does. */
bool matcher_sole(const struct matcher *matcher, int tensor);

enum { MATCH_NAMES = 12, MATCH_NODES = 40 };

struct match {
    const struct matcher *matcher;
    int nnames, nnodes;
    struct {
        const char *name;
        int tensor; /* -1: a number */
        double number;
    } name[MATCH_NAMES];
    int node[MATCH_NODES]; /* the first is the root */
    bool (*accept)(void *env, const struct match *match);
    void *env;
};

/* True if the expression that makes `tensor` matches in a way that `accept` accepts. */
bool matcher_find(const struct matcher *matcher, const struct pattern *pattern, int tensor,
                  bool (*accept)(void *env, const struct match *match), void *env);

/* What a name stands for: -1 where the pattern has no such name. */
int match_tensor(const struct match *match, const char *name);
double match_number(const struct match *match, const char *name);

/* The node that makes the tensor, if it is of that operator; else NULL. */
const struct node *made_by(const struct graph *graph, int tensor, enum op_id op);

/* The value of a constant of one element; false if the tensor is none. */
bool constant_number(const struct graph *graph, int tensor, double *value);

/* Equal but for the rounding of f32. */
bool about(double a, double b);

#endif
