/* The files that hold a model's tensor data, and checks that a TensorProto agrees with its data.
 *
 * Files of external data are opened only beneath the model's directory (openat2 with RESOLVE_BENEATH: no "..", no
 * symbolic or magic link) and must be regular files with one hard link. --allow-links permits symbolic links and
 * further hard links; a location that is absolute or leaves the directory by ".." is refused always.
 */
#ifndef FRONTEND_READ_ONNX_DATA_H
#define FRONTEND_READ_ONNX_DATA_H

#include "frontend/read/onnx_model.h"

/* The place of a possible diagnostic. It becomes text only if there is an error. One of `text`, `node` and `what` is
 * set. */
struct onnx_place {
    const char *text;            /* the finished text */
    const Onnx__NodeProto *node; /* a node, at `index` of its graph */
    int64_t index;
    const char *what, *name;    /* kind and name, such as "initializer" and "w" */
    const char *inside, *inner; /* kind and name of the enclosing object, such as "function"; NULL: the main graph */
};
const char *onnx_place_text(struct onnx_model *model, const struct onnx_place *place);

/* Reads or maps (ONNX_IN_MEMORY) the open file `fd` and adds it to model->files. Returns its index, or -1 with an error
 * at `where`. The caller keeps and closes `fd`. */
int onnx_file_add(struct onnx_model *model, int fd, const char *path, const char *location, const char *where);
/* Unmaps or frees a file's bytes. */
void onnx_file_drop(struct onnx_file *file);
/* True if the size or modification time of `fd` is not that of `file`. */
bool onnx_file_changed(const struct onnx_file *file, int fd);

/* The index in model->files of a file of external data, opened at its first use; -1 if it cannot be opened, which is
 * reported once per location. */
int onnx_external_file(struct onnx_model *model, const char *location, const struct onnx_place *place);

/* The SHA-1 of a file in hexadecimal, computed at the first call; NULL: the file was truncated. */
const char *onnx_file_sha1(struct onnx_model *model, int file);

/* Checks shape, type, and place and size of the data of a tensor, not the values of its elements. 0 or -1 after a
 * diagnostic. A valid element type that rankc does not support is not an error here (onnx_tensor: E407). */
int onnx_tensor_check(struct onnx_model *model, const Onnx__TensorProto *proto, const struct onnx_place *place);

/* The name of a TensorProto.DataType, such as "COMPLEX64"; NULL: no such type. */
const char *onnx_type_name(int number);

/* Checks a shape and sets *count, its number of elements: E506 more than ONNX_DIMS dimensions, E352 a negative extent,
 * E351 more elements than an int64_t counts. `name` is that of the tensor or value. */
int onnx_dims_check(struct onnx_model *model, const int64_t *dims, size_t ndim, const char *name,
                    const struct onnx_place *place, int64_t *count);

#endif
