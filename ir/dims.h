/* Dimension annotations: which index of each operand an operator reads or writes, as in einsum.
 *
 *   "* m k+, k+ n -> * m n"      MatMul
 *   "* c^ -> * c^"               Softmax
 *
 * An annotation names the factors (Shardy's term: loop indices of the iteration space) of every dimension of every
 * operand. Bound to the shapes of a node it gives the shapes of the outputs, the factors that ranks can divide among
 * them, the reduction that a divided factor requires, and the floating-point operations.
 *
 *   dims        := alternative ("|" alternative)*        the first that fits the operands' shapes is taken
 *   alternative := tensor ("," tensor)* "->" tensor ("," tensor)*
 *   tensor      := dim*
 *   dim         := name kind? | "(" name+ ")" | "*" | "*=" | "1"
 *   kind        := "+" reduced by addition | "+max" | "+min" | "^" cannot be divided
 *                | "~" read through a sliding window (convolution, pooling)
 *
 * Equal names have equal extents. "*" stands for any number of dimensions, the same ones in every operand that has it:
 * they are aligned at the right and broadcast (the extent is 1 or the dimension is missing where an operand is
 * repeated). Operands with "*=" are not broadcast: they have all of these dimensions in full. "(h d)" is one dimension
 * of extent h * d, h the slowest. A kind is written at one occurrence of the name at least. In printed annotations,
 * "i~o" is a windowed factor i and the factor o of the output positions that read it.
 * The grammar follows nnScaler (dimops.py), the kinds follow Shardy. */
#ifndef IR_DIMS_H
#define IR_DIMS_H

#include "ir/ir.h"

enum { MAX_FACTORS = 32, FEW_OPERANDS = 6 };

enum factor_kind { FACTOR_PASS, FACTOR_SUM, FACTOR_MAX, FACTOR_MIN, FACTOR_WHOLE, FACTOR_HALO };

/* A HALO factor is an input dimension that is read through a sliding window. It is never divided itself: dividing the
 * output positions, factor `over`, gives each rank a window of it (Note [Windows] in ops/conv.c). */
struct factor {
    char name[8];
    int64_t extent;
    enum factor_kind kind;
    int over; /* HALO: the factor of the output positions; -1: none, and the dimension stays whole */
    struct reach reach;
};

/* A dimension of an operand: the product of n factors, the first slowest. n = 0: extent 1, broadcast. */
struct dim_factors {
    signed char n, factor[RT_MAX_NDIM];
};

struct operand {
    int ndim;
    struct dim_factors dim[RT_MAX_NDIM];
    enum factor_kind
        reduced; /* of an output whose reduction is another than the factors' kind; FACTOR_PASS: it is not */
};

/* An annotation bound to a node. Operands are the inputs, then the outputs; an omitted input has ndim 0. Not to be
 * copied by value: `operand` may be `few`. */
struct dims {
    struct arena *arena;
    int alternative; /* which of the annotation's alternatives fits */
    int nfactors;
    int ninputs, noutputs;
    struct operand *operand, few[FEW_OPERANDS]; /* more are in the arena */
    double points;                              /* size of the iteration space; 0: the product of all factors */
    struct factor factor[MAX_FACTORS];
};

/* Binds the annotation of the node's operator to the shapes of its inputs (the outputs need none): 0, or -1 with the
 * reason in *why unless it is NULL. */
int dims_bind(struct arena *arena, const struct graph *graph, const struct node *node, struct dims *dims,
              const char **why);

/* The same for a node whose shapes fit: a BUG if they do not. */
void dims_bind_checked(struct arena *arena, const struct graph *graph, const struct node *node, struct dims *dims);

/* Binds an annotation given as text; for dims_fn hooks that choose among annotations. Returns as dims_bind. */
int dims_bind_text(struct dims *dims, const char *text, const struct graph *graph, const struct node *node,
                   const char **why);

/* The reason why an untrusted text is no annotation of an operator with so many inputs and outputs, or one that would
 * give wrong results when a factor is divided; NULL: it is one. Bind it only then. */
const char *dims_text_fault(struct arena *arena, const char *text, int ninputs, int noutputs);

/* A shape of input `input` for alternative `alternative` of the annotation, to try it: distinct extents from 3 to 9,
 * and two dimensions for "*". Returns the number of dimensions; -1 if there is no such alternative. */
int dims_sample(const char *text, int alternative, int input, int64_t dims[RT_MAX_NDIM]);

/* For dims_fn hooks. dims_factor: adds a factor called `name`, followed by `index` if that is not negative, and returns
 * its id, or -1 if there are MAX_FACTORS already. dims_set: makes the dimension this one factor. */
int dims_factor(struct dims *dims, const char *name, int index, int64_t extent, enum factor_kind kind);
void dims_set(struct operand *operand, int dim, int factor);

/* The extent of a dimension of an operand: the product of its factors. */
int64_t dims_extent(const struct dims *dims, int operand, int dim);

/* True if the tensor has the shape of the operand. */
bool dims_fits(const struct dims *dims, int operand, const struct tensor *tensor);

/* The factor of that name, or -1. */
int dims_find(const struct dims *dims, const char *name);

/* Dividing a factor divides every dimension that contains it. Returns the dimension of `operand` that contains the
 * split factor, and in *blocks and *grain the cut of that dimension; -1 if none does. */
int dims_dim_cut(const struct dims *dims, int operand, const struct node_split *split, int64_t *blocks, int64_t *grain);

/* The dimension of `operand` that is read through windows by the positions of `factor`; -1 if there is none. */
int dims_window_dim(const struct dims *dims, int operand, int factor);

/* A split of a factor that divides a given dimension in (blocks * more_blocks, grain * more_grain). */
struct cut_option {
    struct node_split split;
    int64_t more_blocks, more_grain; /* 1, 1: exactly the cut that was asked for */
};

/* All splits that divide dimension `dim` of `operand` in (blocks, grain): those that match exactly first, then in order
 * of the factors. Returns how many. A dimension that is read through windows is divided by an even split of the output
 * positions; the ranks' windows are then not equal to the parts asked for. */
int dims_cut_options(const struct dims *dims, int operand, int dim, int64_t blocks, int64_t grain,
                     struct cut_option options[RT_MAX_NDIM]);

/* True if `ways` ranks can divide the factor so: its kind allows it, and no rank's part or window is empty. */
bool dims_can_split(const struct dims *dims, const struct node_split *split, int ways);

/* True if a dimension of an operand is read through windows by the positions of the factor. */
bool dims_has_windows(const struct dims *dims, int factor);

/* True if both splits divide the same factor, or the same dimension of an operand. */
bool dims_splits_meet(const struct dims *dims, const struct node_split *a, const struct node_split *b);
/* The same for a node that other axes split already: along `axis`, each rank's part of the factor is divided further
 * (Note [Nested cuts] in
 * runtime/base/shape/part.h). A dimension that is read through windows, or of which another axis divides another
 * factor, cannot be. */
bool dims_can_nest(const struct dims *dims, const struct mesh *mesh, const struct node_split *splits, int axis,
                   const struct node_split *split);
/* splits[axis] becomes `split`, the innermost of the splits of its factor. */
void dims_nest(struct node_split *splits, int naxes, int axis, const struct node_split *split);
/* Lists the axes so that those which split one factor follow each other from the outermost to the innermost. */
void dims_outermost_first(const struct node_split *splits, int naxes, int axes[RT_LAYOUT_AXES]);

/* False if the cut is strided (blocks is not 1) and the operator's kernel takes the start of its part ($start), which
 * assumes one contiguous run. Kernels that also take the distance between two runs ($gap, $jump) can have those of a
 * mirrored cut (blocks -2). */
bool op_can_split(const struct op *op, const struct dims *dims, const struct node_split *split);

/* True if an output is the result of a reduction over the factor; *reduce is then how. */
bool dims_reduces(const struct dims *dims, int output, int factor, enum rt_reduce *reduce);

/* The placement of an operand on one mesh axis under a split: PART if the operand contains the factor, WINDOW if it is
 * read through windows by the factor, PARTIAL for outputs of a reduced factor, else WHOLE. */
struct placement dims_placement(const struct dims *dims, int operand, const struct node_split *split);

/* The layout that the node requires of its input `operand`, and the one that its output `output` has. With
 * SPLIT_PARTIAL, linear inputs and the outputs are partial sums. The list of cuts is allocated in graph->arena. */
struct layout dims_layout_wanted(const struct graph *graph, const struct dims *dims, const struct node *node,
                                 int operand);
struct layout dims_layout_given(const struct graph *graph, const struct dims *dims, const struct node *node,
                                int output);
/* The placement of a partial sum: every rank of the axis has one addend. */
struct placement placement_partial_sum(void);

/* Floating-point operations of the node: `per_point` (struct op, flops) times the number of combinations of
 * factors. HALO factors are not counted: the indices that a window reads follow from its position. */
double dims_flops(const struct dims *dims, double per_point);

/* The bound annotation as text, such as "a+ b, b c -> a c {a=2, b=3, c=4}". */
const char *dims_print(struct arena *arena, const struct dims *dims);

#endif
