/* --weights-from: values of initializers from safetensors files, in place of the model's own.
 *
 * FILE is a safetensors file, or the index of a model in several of them (model.safetensors.index.json), whose files
 * lie in the same directory. The tensor of the same name replaces an initializer, or an input that has no initializer.
 * A map file says what names do not:
 *
 *   "onnx::MatMul_12" = "layers.0.fc.weight" transpose   this initializer is that tensor, transposed
 *   prefix "m." = "model."                               initializers "m.*" are tensors "model.*"; the first that fits
 *   keep "val_*"                                         these initializers keep the model's values if no tensor fits
 *   ignore "*.attn.bias"                                 as if the file had no such tensors
 *
 * A weight matrix that the exporter stored transposed is found by its metadata: PyTorch's exporter (dynamo=True) names
 * the parameter that an initializer was computed from, and only matrix products read the initializer.
 *
 * Shapes must agree. A float of any width is converted to the model's float type when it is loaded, as with --dtype;
 * other types must be equal. Every tensor of the file must be used, and every float initializer of more than one
 * element be replaced, unless the exporter declares it as a buffer. */
#ifndef FRONTEND_READ_ONNX_WEIGHTS_H
#define FRONTEND_READ_ONNX_WEIGHTS_H

#include "frontend/read/onnx_model.h"

/* The value of --weights-from: FILE or FILE:map=MAP. */
struct onnx_weights_from {
    const char *path, *map; /* map: NULL if there is none */
};
struct onnx_weights_from onnx_weights_from(struct arena *arena, const char *option);

/* Opens the files, adds them to model->files and finds the tensor of every initializer: 0, or -1 after diagnostics
 * (E0393 a malformed file, E0394 a map file, E0395 names, shapes and types that do not fit, at most one of each kind).
 * Call it when the model's tree is read, before its checks. */
int onnx_weights_open(struct onnx_model *model, const struct onnx_weights_from *from);

#endif
