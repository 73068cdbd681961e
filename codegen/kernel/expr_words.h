/* Names of functions that compute expressions. */
#ifndef CODEGEN_EXPR_WORDS_H
#define CODEGEN_EXPR_WORDS_H

#include "ir/expr/expr.h"

/* The operators of the chain's expressions, each once, in the order in which they are first computed: "div_where" of
 * "a ? b / 8 : c"; "cast" if there are none. NULL if there are more than a name should have. */
const char *expr_words(struct arena *arena, const struct expr_chain *chain);

#endif
