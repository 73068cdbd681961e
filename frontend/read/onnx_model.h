/* An ONNX model in memory: the protobuf tree without tensor data, the files of the model, and the place of each
 * tensor's data in them. Shared by the reader, its checks and the import. onnx_read.h opens a model. */
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

/* The exit status of an error in a model, by the code's hundred; where another is meant, callers say so. */
static inline enum exit_code onnx_exit(int code) {
    return code < 400 ? EXIT_MALFORMED : code < 500 ? EXIT_UNSUPPORTED : EXIT_LIMIT;
}

/* A file of the model. location.json records path, size and time. */
struct onnx_file {
    const char *path;     /* as opened: the model's directory and the location */
    const char *location; /* of external data: as the model spells it; NULL for the model itself */
    int64_t bytes, mtime_ns;
    const unsigned char *data;
    struct mapping *mapped; /* the mapping that `data` points into; NULL: `data` is a copy of the file */
    const char *sha1;       /* in hexadecimal; NULL until a checksum is compared with it */
};

/* A part of the model file with data of a tensor: one data field, or several fields of one element each. */
struct onnx_span {
    uint64_t offset, bytes;
    uint32_t field; /* of TensorProto: 9 raw_data, 4 float_data, ... */
    bool tagged;    /* a repeated field that is not packed: a tag precedes each element */
};

struct onnx_spans {
    VEC(struct onnx_span) all;
};

/* The serialised model without tensor data (onnx_scan in onnx_read.c), until it is unpacked. */
struct onnx_stripped {
    unsigned char *bytes; /* malloc'ed */
    size_t length, capacity;
};

/* Where the value of an initializer lies that --weights-from replaces (onnx_weights.h). */
struct onnx_elsewhere {
    int file; /* in files */
    uint64_t offset;
    enum rt_dtype dtype;
    bool transposed;
};

struct onnx_model {
    const char *path;  /* as given */
    const char *place; /* the path with control characters escaped; begins the place of every diagnostic */
    Onnx__ModelProto *proto;
    VEC(struct onnx_file) files; /* [0] is the model file, the others external data in the order of first use */

    /* used by frontend/read only */
    struct arena *arena;
    struct diags *diags;
    struct onnx_spans spans;
    struct onnx_stripped stripped;
    struct arena scratch; /* of the checks */
    struct map locations; /* location of external data -> index in files */
    struct map copies;    /* (file, offset, bytes) of copied tensors -> index in copied */
    VEC(const void *) copied;
    VEC(struct onnx_elsewhere) elsewhere;
    struct map elsewhere_index; /* address of an initializer -> index in elsewhere */
    struct map moved;           /* address of a node of a graph that was sorted -> index in the file's graph */
    int64_t densified;          /* bytes of sparse tensors that onnx_sparse has stored densely */
    int fd, directory;          /* -1 unless open */
    bool allow_links;
};

/* A TensorProto with its data found and checked. */
struct onnx_tensor {
    enum rt_dtype dtype, declared; /* of the data; in the model, equal unless --weights-from replaces the data */
    bool transposed;               /* the data has the two dimensions exchanged */
    int ndim;                      /* 0: a scalar */
    int64_t dims[ONNX_DIMS];
    const char *name; /* "" if it has none */
    int64_t count;    /* elements: the product of dims */
    int bits;         /* of an element in `data`: below 8, the elements are packed (rt_unpack) */
    uint64_t bytes;   /* of `data` */
    /* The elements, row-major, little endian, unaligned; NULL only if bytes is 0. Owned by the model: valid until
     * onnx_close. */
    const void *data;
    bool in_file;    /* the data lies as it is at `offset` of files[file]; false: decoded from int32_data or the like */
    int file;        /* 0: the model itself */
    uint64_t offset; /* 0 unless in_file */
};

/* Finds, checks and decodes the data of `proto`, any TensorProto of the model. 0, or -1 with a diagnostic at `where`
 * (NULL: the tensor's name): E351-E358, E506, E407 (a type that rankc does not support), E361-E368 (external data),
 * E604 (the file changed). onnx_open has checked sizes and places of all tensors already; only values of elements
 * (E355, E358) are checked first here. */
int onnx_tensor(struct onnx_model *model, const Onnx__TensorProto *proto, const char *where, struct onnx_tensor *out);

/* The same of a sparse tensor, which becomes a dense one, in the arena. E359 values or indices that are not as ONNX
 * describes them, E505 if all sparse tensors of the model would take too much memory. Other errors as of onnx_tensor,
 * also for values and indices. */
int onnx_sparse(struct onnx_model *model, const Onnx__SparseTensorProto *proto, const char *where,
                struct onnx_tensor *out);

/* Copies `bytes` bytes at `offset` of files[file] to `to`. False if the file does not have them or was truncated. */
bool onnx_copy(const struct onnx_model *model, int file, uint64_t offset, void *to, uint64_t bytes);

/* Call this after all tensor data has been read and before results are written: 0, or -1 with E0604 if a mapped file
 * was truncated or written to meanwhile. */
int onnx_check_files(const struct onnx_model *model);

/* Reports E0604, the file changed while it was read. Returns -1. */
int onnx_file_refuse(const struct onnx_model *model, const struct onnx_file *file);

/* The position of a node in the file, where graphs may not be in topological order; `index` is that in the tree. */
int64_t onnx_node_index(const struct onnx_model *model, const Onnx__NodeProto *node, int64_t index);

/* Places for diagnostics: "model.onnx: node 17 'layer0/attn' (MatMul)", "model.onnx: initializer 'w'". `index` is
 * the node's position in its graph in the tree; the file's is printed. */
const char *onnx_where_node(struct onnx_model *model, const Onnx__NodeProto *node, int64_t index);
const char *onnx_where(struct onnx_model *model, const char *what, const char *name);

/* The kind of a TypeProto for diagnostics: "tensor", "sequence(tensor)", "map", ...; "none" for NULL. */
const char *onnx_type_text(struct onnx_model *model, const Onnx__TypeProto *type);

/* A string field of the tree, "" if it is absent. */
static inline const char *onnx_text(const char *text) {
    return text ? text : "";
}
/* The value of a key of metadata_props, "" if there is none. The keys below are of a value's declaration and written by
 * PyTorch's exporter (dynamo=True): the torch.export.graph_signature.InputKind of an initializer, and, by onnxscript's
 * optimizer, a Python list of the names of all values that an initializer was computed from. */
const char *onnx_property(Onnx__StringStringEntryProto *const *all, size_t n, const char *key);
#define ONNX_INPUT_KIND  "pkg.torch.export.graph_signature.InputSpec.kind"
#define ONNX_FOLDED_FROM "pkg.onnxscript.optimizer.folded_from"
/* The number of nodes of each name in the graph, for onnx_node_name. */
void onnx_count_names(const Onnx__GraphProto *graph, struct arena *arena, struct map *count);
/* What rankc calls a node of the graph: by its name if no other node has it, else by its first output. `count` NULL:
 * all names are unique. */
const char *onnx_node_name(const Onnx__NodeProto *node, const struct map *count);
/* The canonical spelling of an operator set's domain: "" for NULL and "ai.onnx". */
const char *onnx_domain(const char *domain);

#endif
