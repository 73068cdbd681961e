/* Reading an ONNX file: untrusted bytes in, a bounded and checked protobuf tree out.
 *
 * onnx_open scans the wire format first (onnx_scan: depth, lengths, counts, memory), unpacks what is left after
 * taking tensor data out, and checks the structure (onnx_check). Tensor data stays in the file: the data fields of
 * every TensorProto in `proto` are empty, onnx_tensor finds, checks and decodes them. Nothing here recurses over
 * the model.
 *
 * A file that changes while it is read does not end the process: small files are read into memory; large ones are
 * mapped (Note [Lost pages] in onnx_mapping.h), but their structure is read with pread, and tensors of at most
 * ONNX_COPIED bytes are copied by onnx_copy, which says so if the file was cut. Larger data is read in the mapping;
 * onnx_check_files tells, once everything was read, whether it was the file's.
 */
#ifndef FRONTEND_READ_ONNX_READ_H
#define FRONTEND_READ_ONNX_READ_H

#include "frontend/read/onnx_model.h"

/* Opens and checks a model. Returns -1 when the model is malformed, too large or cannot be read, with the reasons
 * in `diags`. Returns 0 when it is sound; then diags->errors may still have grown, by errors of EXIT_UNSUPPORTED
 * (E312 ir_version, E401 opset, E406 sparse_initializer), so that the caller can add the operators and types (E404,
 * E344, E407) that it does not know and report all at once.
 * The arena owns the model: arena_free closes it; onnx_close does so earlier. `allow_links`: external data may be a
 * symbolic link (model caches are made of them) or have several hard links. */
int onnx_open(struct arena *arena, struct diags *diags, const char *path, bool allow_links, struct onnx_model **out);

/* Unmaps and closes; the tree and copied tensors belong to the arena. NULL is fine. Twice is fine. */
void onnx_close(struct onnx_model *model);

#endif
