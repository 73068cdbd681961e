/* The search for patterns of operators (ir/pattern.h) in a graph. */
#ifndef PASSES_REWRITE_MATCHER_H
#define PASSES_REWRITE_MATCHER_H

#include "ir/pattern.h"

struct matcher {
    struct graph *graph;
    struct uses uses;
    bool *kept;  /* graph_kept */
    int tensors; /* how many there were at matcher_init; later ones are never inside of a match */
};

/* Looks at the graph as it is now. Nodes may be added while patterns are searched. */
void matcher_init(struct matcher *matcher, struct graph *graph);

enum { MATCH_NAMES = 12, MATCH_NODES = 40 };

/* Where a search that found no match went furthest. */
struct near_miss {
    int nodes;            /* that fitted; 0: none */
    int tensor;           /* the first that did not */
    const char *expected; /* an operator, or a number; NULL: the tensor's node fits, but others read its result */
    double number;        /* if expected is "" */
};

/* One way in which a pattern fits. */
struct match {
    const struct matcher *matcher;
    int nnames, nnodes;
    struct {
        const char *name;
        int tensor; /* -1: the name is that of a number */
        double number;
    } name[MATCH_NAMES];
    int node[MATCH_NODES]; /* node[0] is the root */
    bool shared[MATCH_NODES];
    bool (*accept)(void *env, const struct match *match);
    void *env;
    struct near_miss *near_miss;
};

/* Matches the pattern with the node that computes `tensor`, and calls accept(env, match) for each way until it returns
 * true. Returns whether it did. *near_miss, which begins as zeros (NULL: not wanted), says why there is no match if no
 * way got as far as accept. */
bool matcher_find(const struct matcher *matcher, const struct pattern *pattern, int tensor,
                  bool (*accept)(void *env, const struct match *match), void *env, struct near_miss *near_miss);
/* "'sqrt' is computed by Exp, not by Sqrt", in the graph's arena. */
const char *near_miss_text(const struct graph *graph, const struct near_miss *near_miss);

/* True if only nodes of the match read the tensor, and it is no output or update. */
bool match_encloses(const struct match *match, int tensor);

/* True if the pattern that was found gives the name or label a value. */
bool match_has(const struct match *match, const char *name);
/* The tensor of a name or label; -1 if the match has no such name. */
int match_tensor(const struct match *match, const char *name);
/* The value of "name#"; BUG if the match has no such name. */
double match_number(const struct match *match, const char *name);

#endif
