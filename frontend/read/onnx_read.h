/* Reading an ONNX file: untrusted bytes in, a bounded and checked protobuf tree out.
 *
 * onnx_open scans the wire format (onnx_scan: depth, lengths, counts, memory), lets protobuf-c unpack a copy without
 * tensor data, and checks the structure (onnx_check). Tensor data stays in the file: the data fields of every
 * TensorProto in `proto` are empty; onnx_tensor finds, checks and decodes the data. No function recurses over the
 * model.
 *
 * A file that is truncated or overwritten while it is read does not end the process. Files up to ONNX_IN_MEMORY in all
 * are read into memory. Of a larger file the structure is read with pread, tensors up to ONNX_COPIED bytes are copied
 * by onnx_copy, which reports a truncated file, and larger tensors are read from a mapping (Note [Lost pages] in
 * onnx_mapping.h); onnx_check_files tells afterwards whether the mapping was intact.
 */
#ifndef FRONTEND_READ_ONNX_READ_H
#define FRONTEND_READ_ONNX_READ_H

#include "frontend/read/onnx_model.h"
#include "frontend/read/onnx_weights.h"

/* Opens and checks the model file `path`. Returns -1 with diagnostics if it is malformed, too large or cannot be read.
 * Returns 0 if it is well-formed; there may still be errors of EXIT_UNSUPPORTED in `diags` (E312 ir_version, E401
 * opset), so that the caller can add unsupported operators and types (E404, E344, E407) and
 * report all of them at once. The arena owns the model: arena_free closes it; onnx_close does so earlier. allow_links:
 * external data may be a symbolic link, as in the model caches of HuggingFace, or have several hard links. */
int onnx_open(struct arena *arena, struct diags *diags, const char *path, bool allow_links, struct onnx_model **out);

/* The same; `weights`: files that the values of initializers come from (onnx_weights.h); NULL: none. */
int onnx_open_with(struct arena *arena, struct diags *diags, const char *path, bool allow_links,
                   const struct onnx_weights_from *weights, struct onnx_model **out);

/* Unmaps and closes the files; tensor data is invalid afterwards. The tree and copied tensors belong to the arena. NULL
 * and a closed model are allowed. */
void onnx_close(struct onnx_model *model);

#endif
