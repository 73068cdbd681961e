/* Tensors of a dense mixture of experts, for the experts that each token chose (Note [Dense experts] in
 * recognise_dense_experts.c). They are those of the operators between the tokens and the sum over experts, and of
 * those that compute the weights of this sum. */
#ifndef PASSES_REWRITE_CHOOSE_EXPERTS_H
#define PASSES_REWRITE_CHOOSE_EXPERTS_H

#include "passes/rewrite/recognise.h"

enum kind { EXPERT, TOKEN, CHANNEL, KINDS, UNIT = KINDS };

/* Which kind of dimension comes first, second and third, and the extents by kind. */
struct order {
    enum kind at[KINDS];
    int64_t extent[KINDS];
};

/* A chosen tensor: (T or 1, K or 1, C or 1). A dimension of extent 1 is broadcast. */
struct chosen {
    int tensor; /* -1: the tensor cannot be chosen */
    bool has[KINDS];
    double rest; /* NAN: not known */
};

/* A tensor that was chosen before. */
struct memo {
    int tensor;
    enum kind at[KINDS];
    struct chosen chosen;
};

enum { MEMOS = 96, CHOOSE_DEPTH = 64 };

/* What TopK or ArgMax decides for the tokens, and the search for chosen tensors. */
struct routing {
    struct recognition *recognition;
    int topk, index; /* the result of TopK or ArgMax, and the same as (T, K) */
    int64_t tokens, experts, choices;
    int products, depth; /* products of experts that were built; depth of the recursion */
    int nmemos;
    struct memo memos[MEMOS];
};

/* Chooses a tensor of E T C elements in that order. Nodes that compute it are built; they remain unused if its readers
 * cannot be chosen. */
struct chosen choose(struct routing *routing, int tensor, const struct order *order);

/* Sets the channels of the order from the elements of the tensor; false if the tensor has a part of a token. */
bool order_fits(const struct routing *routing, const struct tensor *t, struct order *order);

/* True if dimensions of kind `a` come before those of kind `b`, or one of them has extent 1. */
bool order_has_before(const struct order *order, enum kind a, enum kind b);

/* The number that a scalar constant holds; NAN for other tensors. */
double scalar_of(const struct routing *routing, int tensor);

/* The chosen tensor with all its dimensions, (T, K, channels). */
int expanded(struct routing *routing, const struct chosen *chosen, int64_t channels);

static const struct chosen not_chosen = {.tensor = -1};

static inline struct build *builder_of(struct routing *routing) {
    return &routing->recognition->builder;
}

static inline const struct tensor *tensor_of(const struct routing *routing, int tensor) {
    return &routing->recognition->builder.graph->tensors.at[tensor];
}

static inline const struct node *producer_of(const struct routing *routing, int tensor) {
    return graph_producer(routing->recognition->builder.graph, tensor);
}

/* The node that computes the tensor; NULL if its operator is another one. */
static inline const struct node *node_of(const struct routing *routing, int tensor, enum op_id op) {
    return made_by(routing->recognition->builder.graph, tensor, op);
}

#endif
