/* What the lowerings of one model share: the graph that they add nodes to, and what is known of its values. The import
 * has one, and every struct lower points to it. */
#ifndef FRONTEND_LOWER_LOWERING_STATE_H
#define FRONTEND_LOWER_LOWERING_STATE_H

#include "frontend/lower/amounts.h"
#include "frontend/lower/onnx_lower.h"

/* Ids of values: a tensor's id from 0 on, SEQUENCES + index for a sequence, or a negative constant. */
enum {
    LEFT_OUT = -1,   /* an optional input or output that the node does not have */
    POISONED = -2,   /* not computed because of an error that was reported */
    UNDEFINED = -3,  /* no value has that name */
    NO_ID_BELOW = 2, /* added to ids in a struct map, whose values must not be negative */
    SEQUENCES = 1 << 30
};

struct sequence {
    int n;
    const int *items;
    bool nothing; /* an optional without a value */
};

struct lowering {
    struct arena *arena;
    struct diags *diags;
    struct onnx_model *model;
    struct graph *graph;
    const struct graph *operators; /* --ops: declares operators of the user; NULL: none */
    enum rt_dtype float_dtype;     /* --dtype */
    bool sync_batch_norm;          /* in training, batches of all scale units are normalised together */
    int random_operators;          /* so far */
    int nchwc_block;               /* channels of a block of an image (lower_nchwc.c), once it is known; else 0 */
    VEC(struct sequence) sequences;
    struct map counts; /* ids of values: Note [Counted values] in counts.c */
    VEC(struct counted) counted;
    int passed; /* nodes whose results are known to be counted or not */
    /* Note [Amounts] in amounts.h: */
    struct map amount_index;            /* tensor -> index in amounts */
    VEC(const struct amount *) amounts; /* one per element of the tensor */
    struct map bounds;                  /* root -> index in bound */
    VEC(int64_t) bound;                 /* the most that a root can be */
    VEC(struct amount_sum) sums;        /* that are known */
    struct map equal;                   /* text of a node's computation -> the first tensor of it */
    VEC(int) first_equal;               /* tensor -> the first tensor of equal value */
    int numbered;                       /* nodes in `equal` */
};

/* Sets up what is not set yet: the pointers and options are. */
void lowering_init(struct lowering *lowering);

/* The type that float type `dtype` of the model has in the graph: that of --dtype, if given. */
enum rt_dtype lowering_type(const struct lowering *lowering, enum rt_dtype dtype);
/* Adds values, which are of type `from`, to the graph as a constant of type `dtype` of the model; POISONED if there are
 * too many. */
int lowering_constant(struct lowering *lowering, const char *name, enum rt_dtype dtype, int ndim, const int64_t *dims,
                      const void *values, enum rt_dtype from);
/* The same of a tensor of the model, in the type that the model declares; codes of fewer than 8 bits, one per byte. */
int lowering_tensor(struct lowering *lowering, const char *name, const struct onnx_tensor *tensor);

/* Adds a sequence, or an optional without a value, and returns its id. */
int lowering_sequence(struct lowering *lowering, int n, const int *items, bool nothing);

/* NULL: the size of the tensor does not depend on data (counts.c). */
const struct counted *lowering_counted(const struct lowering *lowering, int tensor);
/* A constant in place of an integer tensor or bool whose elements are known (amounts.c), other tensors as they are. */
int amounts_fold(struct lowering *lowering, int tensor);

#endif
