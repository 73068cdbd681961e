/* Elements of tensors as decimal text: the shortest that reads back as the same bits. */
#ifndef IR_NUMBER_H
#define IR_NUMBER_H

#include <stdbool.h>

#include "runtime/base/dtype.h"

enum { NUMBER_TEXT = 48 }; /* bytes of the longest text with its NUL */

/* Prints the element at `bits`, which may be unaligned: "-3", "0.1", "1e-05", "inf", "nan", "nan:0x7fc00001". Integral
 * values below a million print without exponent. */
void number_print(char text[NUMBER_TEXT], enum rt_dtype dtype, const void *bits);

/* Parses such a text into the element at `bits`. False if it is no number, or out of the range of the type: a float may
 * not overflow to infinity. Floats round to nearest. */
bool number_parse(const char *text, enum rt_dtype dtype, void *bits);

#endif
