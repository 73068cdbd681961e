/* Elements of tensors as text: shortest decimal text that reads back as the same bits. */
#ifndef IR_NUMBER_H
#define IR_NUMBER_H

#include <stdbool.h>

#include "runtime/base/dtype.h"

enum { NUMBER_TEXT = 48 }; /* bytes that hold any number's text and its 0 */

/* The element at `bits` (unaligned): "-3", "0.1", "1e-05", "inf", "nan", "nan:0x7fc00001". Integral values below a
 * million print without exponent. */
void number_print(char text[NUMBER_TEXT], enum rt_dtype dtype, const void *bits);

/* Reads such a text; false where it is none, or the type does not hold the value: an integer out of range, a float
 * that overflows. Floats round to nearest. */
bool number_parse(const char *text, enum rt_dtype dtype, void *bits);

#endif
