/* A model that was read: the protobuf tree without tensor data, the files it consists of, and where in them each tensor
 * lies. What the reader, its checks and the import share; onnx_read.h opens one. */
#ifndef FRONTEND_READ_ONNX_MODEL_H
#define FRONTEND_READ_ONNX_MODEL_H

#include <stdbool.h>

#include "frontend/read/onnx.pb-c.h"
#include "frontend/read/onnx_mapping.h"
#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/map.h"
#include "ir/base/vec.h"
#include "runtime/base/dtype.h"

enum {
    ONNX_DIMS = 8,             /* largest number of dimensions of a tensor */
    ONNX_NODES = 1 << 20,      /* largest number of nodes, also after functions are expanded */
    ONNX_TENSORS = 1 << 19,    /* largest number of tensors in a model */
    ONNX_SUBGRAPHS = 64,       /* deepest nesting of graphs in attributes */
    ONNX_IN_MEMORY = 64 << 20, /* files are read into memory while their sizes sum up to at most this, else mapped */
    ONNX_COPIED = 64 << 10     /* tensors of a mapped file up to this size are copied */
};

/* A file that the model consists of. Path, size and time are what location.json records. */
struct onnx_file {
    const char *path;     /* as opened: the model's directory and the location */
    const char *location; /* of external data: as the model spells it; NULL for the model itself */
    int64_t bytes, mtime_ns;
    const unsigned char *data;
    struct mapping *mapped; /* what `data` is in, as a mapping of the file; NULL: it is a copy of it */
    const char *sha1;       /* in hexadecimal; NULL until a checksum asked for it */
};

/* Data of a tensor where it lies in the model file: a data field, or a run of elements written one by one. */
struct onnx_span {
    uint64_t offset, bytes;
    uint32_t field; /* of TensorProto: 9 raw_data, 4 float_data, ... */
    bool tagged;    /* every element has a tag of its own: a repeated field that is not packed */
};

struct onnx_spans {
    VEC(struct onnx_span) all;
};

/* The model without tensor data, while it is unpacked. */
struct onnx_slim {
    unsigned char *bytes; /* malloc'ed */
    size_t length, capacity;
};

struct onnx_model {
    const char *path;  /* as given */
    const char *place; /* the same, printable: the start of every `where` */
    Onnx__ModelProto *proto;
    VEC(struct onnx_file) files; /* [0] is the model file, the rest external data in the order of first use */

    /* the reader's own */
    struct arena *arena;
    struct diags *diags;
    struct onnx_spans spans;
    struct onnx_slim slim;
    struct arena scratch; /* of the checks */
    struct map locations;
    struct map copies; /* (file, offset, bytes) of copied tensors -> index in copied */
    VEC(const void *) copied;
    int fd, directory; /* -1 unless open */
    bool allow_links;
};

struct onnx_tensor {
    enum rt_dtype dtype;
    int ndim; /* 0: a scalar */
    int64_t dims[ONNX_DIMS];
    const char *name; /* "" if it has none */
    int64_t count;    /* elements: the product of dims */
    uint64_t bytes;   /* count x element size */
    /* The elements, unaligned, little endian; NULL only if bytes is 0. In a file that is mapped or read, or in the
     * arena; valid until onnx_close. */
    const void *data;
    bool in_file;    /* the same bytes lie at `offset` of files[file]; false: decoded from int32_data and the like */
    int file;        /* 0: the model itself */
    uint64_t offset; /* 0 unless in_file */
};

/* The tensor that `proto`, any TensorProto of the model, describes. Errors: E351-E358, E506, E407 (a type
 * that rankc does not support), E361-E368 (external data), E604. -1, and reported at `where` (NULL: the tensor's
 * name). onnx_open has already checked sizes and places of all tensors; element values (E355, E358) are checked
 * here. */
int onnx_tensor(struct onnx_model *model, const Onnx__TensorProto *proto, const char *where, struct onnx_tensor *out);

/* Copies `bytes` bytes at `offset` of files[file]: false when they are not there or the file was cut off meanwhile.
 */
bool onnx_copy(const struct onnx_model *model, int file, uint64_t offset, void *to, uint64_t bytes);

/* After what was made of the model has read its tensors: 0, or -1 with E0604 where a mapped file was cut or written
 * to. */
int onnx_check_files(const struct onnx_model *model);

/* E0604 at the file: it was cut or written to while it was read. -1. */
int onnx_file_refuse(const struct onnx_model *model, const struct onnx_file *file);

/* Places for diagnostics: "model.onnx: node 17 'layer0/attn' (MatMul)", "model.onnx: initializer 'w'". `index` is
 * the node's position in its graph. */
const char *onnx_where_node(struct onnx_model *model, const Onnx__NodeProto *node, int64_t index);
const char *onnx_where(struct onnx_model *model, const char *what, const char *name);

/* A value's type for messages: "tensor", "sequence(tensor)", "map", ... NULL: "none". */
const char *onnx_type_text(struct onnx_model *model, const Onnx__TypeProto *type);

/* A string of the tree: "" where it is absent. */
static inline const char *onnx_text(const char *text) {
    return text ? text : "";
}
/* A domain in the one spelling: "" for "ai.onnx". */
const char *onnx_domain(const char *domain);

#endif
