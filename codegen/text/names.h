/* Identifiers of generated variables, from the names of ONNX values.
 *
 * "/transformer/h.0/attn/c_attn/Gemm_output_0" is called attn_c_attn in the function of a layer, and
 * transformer.h.0.ln_1.weight is ln_1_weight: a name's components up to the last that differs between the layers are
 * left out, and words that only say the operator or the exporter's number of an output.
 *
 * Names are untrusted. An identifier consists of [a-z0-9_], begins with a letter, has at most NAME_MOST bytes, is no
 * keyword of C or C++ and no macro, and differs from all names that the generated code uses itself. */
#ifndef CODEGEN_NAMES_H
#define CODEGEN_NAMES_H

#include <stdbool.h>

#include "ir/base/map.h"

enum { NAME_MOST = 40 };

/* The identifiers of one scope. */
struct names {
    struct arena *arena;
    struct map taken;
};

void names_begin(struct names *names, struct arena *arena);
/* The identifier is not given to a variable. */
void names_reserve(struct names *names, const char *identifier);

/* What two names of corresponding values, in the first and the last layer, say: words joined by "_"; "" if nothing. The
 * two are the same where there is one layer. */
const char *names_words(struct arena *arena, const char *first, const char *last);
/* True if an exporter generated the name, and it says nothing: "val_56", "onnx::MatMul_123". */
bool names_says_nothing(const char *name);
/* The same of a stored tensor: also if it is called after an operator whose result was computed before: "add_43". */
bool names_says_no_member(const char *name);

/* An identifier with these words that is not taken yet, else `otherwise`, with a number if that is taken too. */
const char *names_take(struct names *names, const char *words, const char *otherwise);

#endif
