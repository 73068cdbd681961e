/* Formulas over named integers, as exporters of models write dimensions and rankc writes sizes that follow from others:
 * "past + seq", "(height - 1) // 2 + 1", "Max(2, n)", "12 * \"my size\"".
 *
 *     sum := product (("+" | "-") product)*
 *     product := factor (("*" | "/" | "//" | "%") factor)*            divisions round down
 *     factor := NUMBER | NAME | "NAME" | ("" | "floor") "(" sum ")" | ("max" | "min" | "greater" | "lesser")
 *               "(" sum "," sum ")"                                   functions in any case of letters */
#ifndef RT_BASE_FORMULA_H
#define RT_BASE_FORMULA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rt_formula {
    /* The value of a name of `length` bytes; false: it has none. */
    bool (*value)(void *context, const char *name, size_t length, int64_t *out);
    /* a op b, of "+*" and '/', '%', '<' the lesser, '>' the greater. NULL: as rt_formula_apply. False: no result. */
    bool (*apply)(void *context, char op, int64_t a, int64_t b, int64_t *out);
    void *context;
};

enum rt_formula_status { RT_FORMULA_OK, RT_FORMULA_UNKNOWN /* a name has no value */, RT_FORMULA_BROKEN };

/* Evaluates a text. RT_FORMULA_UNKNOWN: *unknown and *length are the first such name; both may be NULL. */
enum rt_formula_status rt_formula_read(const struct rt_formula *formula, const char *text, int64_t *out,
                                       const char **unknown, size_t *length);

/* False on overflow, and for a division by a number below 1. */
bool rt_formula_apply(char op, int64_t a, int64_t b, int64_t *out);

#endif
