/* Loop nests of generated kernels: extents, strides of the operands, and the text of the expression for an element. */
#ifndef CODEGEN_LOOPS_H
#define CODEGEN_LOOPS_H

#include "codegen/target/target.h"
#include "codegen/text/tmpl.h"
#include "ir/expr/expr.h"

enum { MAX_OPERANDS = EXPR_INPUTS };

/* A loop nest of a function being generated. */
struct loops {
    const struct graph *graph;
    const struct node *node;
    const struct rank_class *class;
    const struct target *target;
    struct arena *arena;
    int n;     /* loops, outermost first */
    bool open; /* the function takes the rank, for open sizes */
    bool flat; /* one loop over `count` elements, a parameter of the function: slices, and in training */
    bool held; /* the kernel takes a table of parameters */
    int64_t extent[RT_MAX_NDIM], stride[MAX_OPERANDS][RT_MAX_NDIM]; /* in elements; stride[k]: of input k */
    int width;                                                      /* elements of a vector; 1: no vectors */
    const char *vector[MAX_OPERANDS];  /* name of the vector of the input's elements, NULL: none */
    const char *operand[MAX_OPERANDS]; /* spelling of the input in the expression */
    const char *result[EXPR_VALUES];   /* names of the result parameters */
    const char *local[EXPR_NAMED];     /* names of the variables of the chain's named values, NULL: v0, v1 .. */
};

/* Sets the strides of input k in loops over the `ndim` dimensions of the output; 0 where the input is broadcast. */
void loops_strides(struct loops *loops, int k, int ndim);
/* Simplifies the first `count` loops: removes loops of extent 1 and merges two adjacent loops into one where the
 * strides of all inputs allow it. */
void loops_merge(struct loops *loops, int count);
/* The number of elements of a vector (Note [Vectors] in loops.c). */
int loops_width(const struct loops *loops);
/* True if numbers of the loops depend on open sizes (ir/open.h). */
bool loops_are_open(const struct loops *loops);
/* True if indices of that many elements are fewer than 2^31 for all sizes, and there are any. */
bool loops_are_narrow(const struct loops *loops, int64_t elements);
/* Binds how functions of open loops get their extents: "extents_here" reads them from the rank; "extents_parameters"
 * and "extents_arguments" pass them as values, of 32 bits if indices are narrow. */
void loops_bind_open(const struct loops *loops, struct tmpl_env *env, bool narrow);
/* The OpenMP pragma of a loop of `count` iterations that threads may share: `threads` if the elements of the nest are
 * enough for that, with a condition where sizes are open, else `alone`. */
const char *loops_pragma(const struct loops *loops, int64_t elements, const char *count, const char *threads,
                         const char *alone);
/* The index of an element by the loop variables: "i0 * 768 + i1". */
const char *loops_index(const struct loops *loops, const int64_t *stride);

/* The node's expressions; that of an operator is the only value. */
const struct expr_chain *loops_chain(const struct loops *loops);

/* The type that the expression is computed in: the result's, for a comparison that of its operands; f32 for 16-bit
 * floats. */
enum rt_dtype loops_type(const struct loops *loops);
/* The C type of a tensor's elements. */
const char *loops_type_name(const struct loops *loops, int tensor);
/* A literal of a constant of one element. */
const char *loops_literal(const struct loops *loops, int tensor);
/* True for a Cast, whose operand is not converted when it is loaded. */
bool loops_are_cast(const struct loops *loops);
const char *loops_cast(const struct loops *loops, enum rt_dtype from, enum rt_dtype to, const char *value);
/* Conversion between the type in memory and loops_type: of a loaded element of `tensor`; of a value to be stored in
 * output number `result`. */
const char *loops_loaded(const struct loops *loops, int tensor, const char *element);
const char *loops_stored(const struct loops *loops, int result, const char *value);
/* True if expressions of the node read the input in branches alone, where not every element needs it: behind ?, && or
 * ||. */
bool loops_branch_to(const struct loops *loops, int k);
/* The name of the variable of named value `i`. */
const char *loops_local(const struct loops *loops, int i);
/* The text of an expression; inputs are spelled as in loops->operand. */
const char *loops_text(const struct loops *loops, const struct expr *expr);
/* Adds a local variable, "const float v0" = value, to the template's list "named". */
void loops_name_value(const struct loops *loops, struct tmpl_env *env, const char *name, const char *value);

#endif
