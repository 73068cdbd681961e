/* Dimension annotations: what an operator does to indices, as data.
 *
 *     "* m k+, k+ n -> * m n"      MatMul       "* c^ -> * c^"      Softmax
 *
 * An annotation names the factors of every dimension of every operand. From it, bound to the shapes of a node,
 * follow the shapes of the outputs, the ways in which ranks can share the node, the reduction a cut needs, and its
 * flops.
 *
 *   dims    := alternative ("|" alternative)*        the first that fits the operands' shapes is taken
 *   alternative := tensor ("," tensor)* "->" tensor ("," tensor)*
 *   tensor  := dim*
 *   dim     := name kind? | "(" name+ ")" | "*" | "1"
 *   kind    := "+" summed | "+max" | "+min" | "^" stays whole | "~" needs neighbours (convolution; bound, "i~o": those
 *              that positions o reach)
 *
 * Equal names have equal extents. "*" stands for all other dimensions, the same ones in every operand that has it,
 * aligned at the right and broadcast (extent 1 or missing where an operand repeats). "(h d)" is a dimension that is
 * the product of factors, first slowest. A kind need be written once. Grammar: nnScaler's (dimops.py) with Shardy's
 * kinds.
 */
#ifndef IR_DIMS_H
#define IR_DIMS_H

#include "ir/ir.h"

enum { MAX_FACTORS = 32 };

enum factor_kind { FACTOR_PASS, FACTOR_SUM, FACTOR_MAX, FACTOR_MIN, FACTOR_WHOLE, FACTOR_HALO };

/* A HALO factor is not cut itself; a cut of the factor `over` makes a window of it (Note [Windows] in ops/conv.c). */
struct factor {
    char name[8];
    int64_t extent;
    enum factor_kind kind;
    int over; /* of HALO: the factor of the positions, -1 if there is none and it stays whole */
    struct reach reach;
};

/* A dimension of an operand: the product of n factors, the first slowest; n = 0: extent 1, or repeated (broadcast).
 */
struct dim_factors {
    int n;
    signed char factor[MAX_NDIM];
};

struct operand {
    int ndim;
    struct dim_factors dim[MAX_NDIM];
};

/* An annotation bound to a node. Operands are the inputs, then the outputs; left-out inputs have ndim 0. */
struct dims {
    struct arena *arena;
    int alternative; /* which of the annotation's alternatives fits */
    int nfactors;
    struct factor factor[MAX_FACTORS];
    int ninputs, noutputs;
    struct operand *operand;
    double points; /* of the iteration space; 0: all factors' product */
};

/* Binds the node's operator to its input shapes (outputs need none yet): 0, or -1 with the reason in *why. */
int dims_bind(struct arena *arena, const struct graph *graph, const struct node *node, struct dims *dims,
              const char **why);

/* Binds the text of an annotation to shapes; dims_fn hooks use it for operators with a choice of annotations. */
int dims_bind_text(struct dims *dims, const char *text, const struct graph *graph, const struct node *node,
                   const char **why);

/* For dims_fn hooks: an empty table of operands; a new factor (its id, or -1 when there are too many); and a
 * dimension that is one factor. */
void dims_init(struct dims *dims, struct arena *arena, int ninputs, int noutputs);
int dims_factor(struct dims *dims, const char *name, int index, int64_t extent, enum factor_kind kind);
void dims_set(struct operand *operand, int dim, int factor);

/* The extent of a dimension of an operand: the product of its factors. */
int64_t dims_extent(const struct dims *dims, int operand, int dim);

/* "k" -> its factor, or -1. */
int dims_find(const struct dims *dims, const char *name);

/* A cut of a factor is a cut of every dimension it is in, and the other way round.
 * dims_dim_cut: the dimension of `operand` that holds the factor, *blocks and *unit of its cut there; -1 if none
 * does. */
int dims_dim_cut(const struct dims *dims, int operand, const struct node_split *split, int64_t *blocks, int64_t *unit);

/* The dimension of `operand` of which positions of the factor read windows; -1 if there is none. */
int dims_window_dim(const struct dims *dims, int operand, int factor);

/* A factor of which cutting dimension `dim` of `operand` in (blocks * more_blocks, unit * more_unit) is a cut. */
struct cut_option {
    struct node_split split;
    int64_t more_blocks, more_unit; /* 1, 1: the cut as asked for */
};

/* The options for that dimension, those that need no change first, else in order of the factors; returns how many. To
 * cut a dimension that windows read is to cut their positions, evenly: the windows are not the parts asked for. */
int dims_cut_options(const struct dims *dims, int operand, int dim, int64_t blocks, int64_t unit,
                     struct cut_option options[MAX_NDIM]);

/* True if `ways` ranks can share the factor so cut: it may be cut, and no part or window is empty. */
bool dims_can_split(const struct dims *dims, const struct node_split *split, int ways);

/* False where the operator's kernel needs the start of its part of that factor and the cut is strided. */
bool op_can_split(const struct op *op, const struct dims *dims, const struct node_split *split);

/* The layout an operand has on one mesh axis when the node is split so: a part where it has the factor, a window where
 * positions of the factor read one; for outputs of a reduced factor, a partial value; else whole. */
struct holding dims_holding(const struct dims *dims, int operand, const struct node_split *split);

/* The holding along `axis` that the node needs of its input `operand`, and the one in which it leaves its output
 * `output`. A node whose split is SPLIT_PARTIAL adds partial sums to partial sums. */
struct holding dims_holding_wanted(const struct graph *graph, const struct dims *dims, const struct node *node,
                                   int operand, int axis);
struct holding dims_holding_given(const struct dims *dims, const struct node *node, int output, int axis);
/* A tensor whose ranks along an axis each hold one addend of it. */
struct holding holding_partial_sum(void);

/* Floating-point operations of the node: `per_point` for each combination of all factors, without halos: what a window
 * reads follows from where it is. */
double dims_flops(const struct dims *dims, double per_point);

/* "a+ b, b c -> a c {a=2, b=3, c=4}" */
const char *dims_print(struct arena *arena, const struct dims *dims);

#endif
