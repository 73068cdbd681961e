/* Kernels in the making: loops over elements, where each operand has them, and how the expression of an element is
 * written. */
#ifndef CODEGEN_LOOPS_H
#define CODEGEN_LOOPS_H

#include "codegen/target/target.h"
#include "codegen/tmpl.h"
#include "ir/expr/expr.h"

enum { MAX_OPERANDS = EXPR_INPUTS };

/* One function in the making: loops over merged dimensions, each input with a stride per loop. */
struct loops {
    const struct graph *graph;
    const struct node *node;
    const struct plan_class *class;
    const struct target *target;
    struct arena *arena;
    int n;
    int64_t extent[MAX_NDIM], stride[MAX_OPERANDS][MAX_NDIM];
    int width;                         /* elements at a time; 1: no vectors */
    const char *vector[MAX_OPERANDS];  /* which vector has the input's elements, NULL: none */
    const char *operand[MAX_OPERANDS]; /* as it is spelled in the expression */
    const char *result[EXPR_VALUES];   /* parameters */
};

/* Strides of input k in loops over `ndim` dimensions; 0 where it is repeated. */
void loops_strides(struct loops *loops, int k, int ndim);
/* Of the first `loops` of them: leaves out those of one index, and makes one of two where the inner continues the outer
 * in all inputs. */
void loops_merge(struct loops *loops, int count);
/* Elements at a time (Note [Vectors]). */
int loops_width(const struct loops *loops);
/* "i0 * 768 + i1" */
const char *loops_index(const struct loops *loops, const int64_t *stride);

/* The type the expression is computed in. */
enum rt_dtype loops_type(const struct loops *loops);
const char *loops_type_name(const struct loops *loops, int tensor);
/* A constant of one element. */
const char *loops_literal(const struct loops *loops, int tensor);
/* A Cast takes elements as they are stored. */
bool loops_are_cast(const struct loops *loops);
const char *loops_cast(const struct loops *loops, enum rt_dtype from, enum rt_dtype to, const char *value);
/* An element as an operand of the expression; the value of the expression as an element of a result. */
const char *loops_loaded(const struct loops *loops, int tensor, const char *element);
const char *loops_stored(const struct loops *loops, int result, const char *value);
/* The expression of operands, which are spelled as l->operand says. */
const char *loops_text(const struct loops *loops, const struct expr *expr);
/* Adds "const float v0" = value to the list "named". */
void loops_name_value(const struct loops *loops, struct tmpl_env *env, const char *name, const char *value);

#endif
