/* Reads an ONNX TensorProto from a file of its own, as the ONNX test suite stores inputs (input_0.pb). The bytes are
 * untrusted and parsed by a bounded walk over the protobuf wire format. Source: onnx.proto, message TensorProto, all
 * versions. */
#ifndef RT_BASE_TENSOR_PB_H
#define RT_BASE_TENSOR_PB_H

#include "../npy.h"

/* Parses a message; the tensor's data is a copy in native layout: release with rt_tensor_free. */
bool rt_tensor_pb_parse(struct rt_tensor *out, const void *file, size_t bytes, struct rt_reason *why);
bool rt_tensor_pb_read(struct rt_tensor *out, const char *path, struct rt_reason *why);

#endif
