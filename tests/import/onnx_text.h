/* Models for tests as text, one statement a line, turned into an ONNX file:
 *
 *     opset 13                             the default domain's; 17 if not said. "opset com.x 1": another's
 *     input x f32 2 n ?                    n: symbolic; ?: of no name
 *     input x opt:seq:f32 2                an optional sequence of tensors
 *     init w i64 3 : 1 2 3                 raw data; without values zeros
 *     value y f32 2 3                      value_info
 *     y z = Split x s axis=1 name="n"      outputs = operator inputs attributes; "_": left out
 *     y = my::F x                          of another domain
 *     output y f32 2 3                     or without a type
 *     graph g i c x > c2 y                 a subgraph for attributes such as body=@g; ends with a line "end"
 *     function my::F a b > y               a local function; ends with "end"
 *
 * Attributes: 1 | 1.5 | "text" | [1,2] | [1.5,2.5] | f32[2]:1,2 (a tensor) | @graph | $name (the function's attribute)
 * Lines that begin with a word not listed are left to the caller (see onnx_text_option). */
#ifndef TESTS_IMPORT_ONNX_TEXT_H
#define TESTS_IMPORT_ONNX_TEXT_H

#include <stdbool.h>

#include "ir/base/arena.h"
#include "runtime/base/npy.h"

/* The file's bytes, in the arena. */
const void *onnx_text_model(struct arena *arena, const char *text, size_t *bytes);

/* The n-th line (from 0) that begins with `word` and a blank: what follows; NULL if there are fewer. */
const char *onnx_text_option(struct arena *arena, const char *text, const char *word, int n);

/* "i64 3 : 1 2 3" as a tensor in the arena. */
struct rt_tensor onnx_text_tensor(struct arena *arena, const char *text);

#endif
