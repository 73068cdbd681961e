/* The table of ONNX operators, onnx_ops.def: a row for every version of an operator that differs from the one
 * before. */
#ifndef FRONTEND_LOWER_ONNX_OPS_H
#define FRONTEND_LOWER_ONNX_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/base/arena.h"
#include "ir/base/map.h"
#include "ir/op.h"

struct lower;

enum { ONNX_MANY = 1 << 24 }; /* for in_max and out_max: variadic */

/* What the lowering does with operands whose size depends on data (Note [Counted values] in counts.c): it is not
 * given any; it takes them, and knows that extents are bounds; or its operands broadcast, and are brought to the same
 * bounds first. */
enum counted_operands { COUNTED_NO, COUNTED_TAKES, COUNTED_BROADCAST };

/* A row of onnx_ops.def: an operator as it is from version `since` of its domain's operator set on. */
struct onnx_op {
    const char *domain, *name;
    int since;
    int in_min, in_max, out_max;
    /* Attributes: "name:kind" separated by spaces, with "=value" if there is a default and "!" if it must be given.
     * Kinds: i INT, f FLOAT, s STRING, t TENSOR, g GRAPH, I INTS, F FLOATS, S STRINGS, y TYPE_PROTO. */
    const char *attrs;
    const struct op *core; /* the elementwise core operator with the same inputs and attributes; NULL: none */
    int (*lower)(struct lower *lower); /* else the lowering */
    enum counted_operands counted;
    bool sequences;       /* inputs and outputs may be sequences */
    int refused;          /* error code if rankc does not support the operator (onnx_refusal), else 0 */
    const char *remedy;   /* of a refused operator, for a line of help; may be NULL */
    struct user_op *user; /* the operator of the user that this row is made for (lower_user); else NULL */
};

extern const struct onnx_op onnx_ops[];
extern const int onnx_nops;

/* One attribute parsed from onnx_op.attrs; texts are not terminated and point into it. */
struct onnx_attr {
    const char *name;
    size_t length;
    char kind;
    bool required;
    const char *fallback; /* the default, NULL: none */
    size_t fallback_length;
};

/* Parses the first attribute of `text`. Returns the text behind it, NULL if there is no attribute. */
const char *onnx_next_attr(const char *text, struct onnx_attr *attr);
/* The name of an attribute's kind in ONNX: "INT", "FLOATS", ... */
const char *onnx_attr_kind(char kind);

/* The row that holds for an operator in version `version` of its domain's operator set; NULL if there is none. *first:
 * the oldest row of the name, even if it is of a later version; NULL: no such name. */
const struct onnx_op *onnx_op_find(const struct map *rows, const char *domain, const char *name, int64_t version,
                                   const struct onnx_op **first);
/* Fills `rows` with name -> index of its oldest row. Rows of one name are adjacent, oldest first. */
void onnx_op_index(struct map *rows, struct arena *arena);

/* The lowering of rows made for operators of the user. */
int lower_user(struct lower *lower);

/* Declarations of the lowerings that onnx_ops.def names. */
#define MAP(name, since, inputs, core, attrs)
#define OP(name, since, min, max, outputs, lower_, ...)        int lower_(struct lower *lower);
#define SEQ(name, since, min, max, outputs, lower_, ...)       int lower_(struct lower *lower);
#define MS(name, min, max, outputs, lower_, attrs)             int lower_(struct lower *lower);
#define NCHWC(name, min, max, outputs, lower_, attrs)          int lower_(struct lower *lower);
#define PREVIEW(name, since, min, max, outputs, lower_, attrs) int lower_(struct lower *lower);
#define ML(name, since, min, max, outputs, lower_, attrs)      int lower_(struct lower *lower);
#define NOT(name, since, code)
#define NOT_ML(name, since, code, remedy)
#include "frontend/lower/onnx_ops.def"
#undef MAP
#undef OP
#undef SEQ
#undef MS
#undef NCHWC
#undef PREVIEW
#undef ML
#undef NOT
#undef NOT_ML

#endif
