/* The table of ONNX operators that can be imported: onnx_ops.def, a row per form of an operator. */
#ifndef FRONTEND_LOWER_ONNX_OPS_H
#define FRONTEND_LOWER_ONNX_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/base/arena.h"
#include "ir/base/map.h"
#include "ir/op.h"

struct lower;

enum { ONNX_MANY = 1 << 24 }; /* as many inputs or outputs as the node has */

/* A row of onnx_ops.def: the form that an operator has from version `since` of its domain's operator set on. */
struct onnx_op {
    const char *domain, *name;
    int since;
    int in_min, in_max, out_max;
    /* Attributes: "name:kind" separated by spaces, with "=value" if there is a default and "!" if it must be given.
     * Kinds: i INT, f FLOAT, s STRING, t TENSOR, g GRAPH, I INTS, F FLOATS, S STRINGS. */
    const char *attrs;
    const struct op *core; /* elementwise operator with the same inputs and attributes; NULL: `lower` makes several */
    int (*lower)(struct lower *l);
    bool sequences; /* inputs and outputs may be sequences */
    int refused;    /* code of the reason why rankc has no such operator; 0: it has */
};

extern const struct onnx_op onnx_ops[];
extern const int onnx_nops;

/* One attribute in the text of a row. */
struct onnx_attr {
    const char *name;
    size_t length;
    char kind;
    bool required;
    const char *fallback; /* NULL: none */
    size_t fallback_length;
};

/* Takes the first attribute off `text`; what follows it, NULL if there was none. */
const char *onnx_next_attr(const char *text, struct onnx_attr *attr);
/* What an attribute's kind is called: "INT", "FLOATS", ... */
const char *onnx_attr_kind(char kind);

/* The row for an operator in a version of its domain's set; NULL if there is none. *first: the name's first row, also
 * where all are newer. */
const struct onnx_op *onnx_op_find(const struct map *rows, const char *domain, const char *name, int64_t version,
                                   const struct onnx_op **first);
/* Name -> its first row; the rows of one name lie together, oldest first. */
void onnx_op_index(struct map *rows, struct arena *arena);

/* The lowerings, as onnx_ops.def names them. */
#define MAP(name, since, inputs, core, attrs)
#define OP(name, since, min, max, outputs, lower_, attrs)  int lower_(struct lower *l);
#define SEQ(name, since, min, max, outputs, lower_, attrs) int lower_(struct lower *l);
#define MS(name, min, max, outputs, lower_, attrs)         int lower_(struct lower *l);
#define NOT(name, since, code)
#include "frontend/lower/onnx_ops.def"
#undef MAP
#undef OP
#undef SEQ
#undef MS
#undef NOT

#endif
