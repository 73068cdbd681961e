/* Printing expressions of elementwise operators in a target's language. */
#ifndef CODEGEN_EXPR_PRINT_H
#define CODEGEN_EXPR_PRINT_H

#include "codegen/target/target.h"
#include "ir/base/str.h"
#include "ir/expr/expr.h"

/* Returns the text that replaces `name` in the printed expression. */
typedef const char *(*expr_spell)(const void *env, const char *name);

/* Appends `expr`, computed in `dtype`. Integer overflow wraps and division by zero does not trap: such operations are
 * printed as calls of functions of the runtime. */
void expr_print(struct strbuf *out, const struct target *target, const struct expr *expr, enum rt_dtype dtype,
                expr_spell spell, const void *env);

/* A literal of type `dtype`: `number` for floats, else `integer`. Floats have the fewest digits that read back as the
 * same bits. */
const char *expr_literal(struct arena *arena, enum rt_dtype dtype, double number, int64_t integer);

/* The operators of the chain's expressions, each once, in the order in which they are first computed: "div_where" of
 * "a ? b / 8 : c"; "cast" if there are none. NULL if there are more than a name should have. */
const char *expr_words(struct arena *arena, const struct expr_chain *chain);

#endif
