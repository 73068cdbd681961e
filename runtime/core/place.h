/* Names of manifest.json, for errors: the node of an instruction, and inputs. */
#ifndef RT_CORE_PLACE_H
#define RT_CORE_PLACE_H

#include "core/private.h"

struct rt_json;

/* "node 'layer0/attn' (MatMul)" of an instruction, and the module and source line that it was exported from if they are
 * known: " in layers.0.attn (model.py:41 in forward)". `root` is that of manifest.json. False: it lists none of that
 * number. */
bool rt_place_of(const struct rt_json *root, int instruction, char *text, size_t room);

/* Appends the node of the step that failed to the text of the error, once. */
void rt_place_error(struct rt_private *private);

/* Where manifest.json says that a value lies ("values" and "dump", base/manifest.h): an arena, RT_CALLER or
 * MANIFEST_FLAT; the offset there, or the index of an input or flat; the bytes between the slots of a set. */
struct rt_value_place {
    int64_t arena, offset, stride, set;
};

/* The address of `bytes` bytes from `start` on behind that place, in the current slot. NULL: the rank has no such
 * memory, or not so much of it. */
const unsigned char *rt_value_at(const struct rt *rt, const struct rt_value_place *place, int64_t start, int64_t bytes);

/* Records that the pointer of an input is NULL, which the error names; returns RT_ERROR_USAGE. */
int rt_fail_input(struct rt *rt, int input);

#endif
