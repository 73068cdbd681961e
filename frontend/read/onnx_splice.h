/* Writes a model file again with changes to single fields; every other byte stays as it is. (onnx.proto leaves out
 * fields that the compiler does not read, so that packing its messages would lose them.) */
#ifndef FRONTEND_READ_ONNX_SPLICE_H
#define FRONTEND_READ_ONNX_SPLICE_H

#include "frontend/read/onnx_model.h"

/* A serialised message; count 0: none. */
struct onnx_message {
    const unsigned char *bytes;
    size_t count;
};

struct onnx_splice {
    const char *configuration;        /* messages of this name or key are removed from the model and its nodes */
    int64_t ir_version;               /* at least */
    struct onnx_message added;        /* to ModelProto.configuration */
    const struct onnx_message *nodes; /* to NodeProto.device_configurations, by index in the file's main graph */
    const struct onnx_message *notes; /* to NodeProto.metadata_props, with the key `configuration` */
};

/* Writes the opened model to the file `path`: 0, or -1 after a diagnostic (E0611 it cannot be written, E0604 the model
 * changed while it was read). */
int onnx_splice(struct onnx_model *model, const struct onnx_splice *splice, const char *path);

#endif
