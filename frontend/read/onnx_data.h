/* Where tensor data lies: the files of a model, external data, and the checks between a TensorProto and its bytes.
 *
 * External data is opened beneath the model's directory only (openat2: no "..", no symbolic or magic link), and
 * must be a regular file with one hard link; --allow-links lifts both link rules, never the rule on the spelling of
 * the location.
 */
#ifndef FRONTEND_READ_ONNX_DATA_H
#define FRONTEND_READ_ONNX_DATA_H

#include "frontend/read/onnx_model.h"

/* What a diagnostic is about; put into words only when there is one. */
struct onnx_place {
    const char *text;            /* in words already, else NULL */
    const Onnx__NodeProto *node; /* the node at `index` of its graph, or */
    int64_t index;
    const char *what, *name;    /* such as "initializer" and its name */
    const char *inside, *inner; /* what holds it and its name, such as "function"; NULL: the main graph */
};
const char *onnx_place_text(struct onnx_model *model, const struct onnx_place *place);

/* Adds the open file `fd` to model->files, in memory or mapped (ONNX_IN_MEMORY); its index, or -1 with an error at
 * `where`. `fd` stays open and the caller's. */
int onnx_file_add(struct onnx_model *model, int fd, const char *path, const char *location, const char *where);
/* Unmaps or frees a file's bytes. */
void onnx_file_drop(struct onnx_file *file);
/* Size and time are no longer those of `file`. */
bool onnx_file_changed(const struct onnx_file *file, int fd);

/* The file of an external tensor, opened at its first use; its index, or -1. A location that failed once is
 * reported once. */
int onnx_external_file(struct onnx_model *model, const char *location, const struct onnx_place *place);

/* The SHA-1 of a file in hexadecimal, computed once; NULL: the file was cut off. */
const char *onnx_file_sha1(struct onnx_model *model, int file);

/* Checks everything of a tensor but its element values; an unsupported element type is no error here. */
int onnx_tensor_check(struct onnx_model *model, const Onnx__TensorProto *proto, const struct onnx_place *place);

/* The name of an ONNX element type, such as COMPLEX64; NULL: no such type. */
const char *onnx_type_name(int number);

/* Checks the extents of a shape: E506 more than ONNX_DIMS, E352 negative, E351 too many elements for an int64.
 * `name` is the tensor's or value's. */
int onnx_dims_check(struct onnx_model *model, const int64_t *dims, size_t ndim, const char *name,
                    const struct onnx_place *place, int64_t *count);

#endif
