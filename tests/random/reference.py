"""What a node computes in f64.

Tried in this order: ONNX Runtime with f64 in place of f32, the definitions below for operators of ONNX Runtime's own, ONNX's
reference evaluator in f64; and where none of them has it, ONNX Runtime in f32. Where a result in f64 is farther from ONNX Runtime's
in f32 than rounding errors of a well conditioned computation are, the node is ill conditioned or ONNX Runtime inexact, and it is
rejected; where it is another result altogether, that is a defect of the evaluator, and the next source is asked.
"""
import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphs

# Of an operator's largest result:
ROUNDING = 1e-5  # most that rounding errors of f32 are in a well conditioned operator
ANOTHER = 0.05   # more is another result

erf = np.vectorize(math.erf, otypes=["f8"])


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def fast_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def fused_matmul(attributes, a, b):
    flip = lambda x, name: np.swapaxes(x, -1, -2) if attributes.get(name) else x
    return attributes.get("alpha", 1.0) * np.matmul(flip(a, "transA"), flip(b, "transB"))


def skip_layer_norm(attributes, x, skip, scale, shift=0.0, bias=0.0):
    x = x + skip + bias
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + attributes["epsilon"]) * scale + shift


def skip_rms_norm(attributes, x, skip, scale):
    x = x + skip
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + attributes["epsilon"]) * scale


CONTRIBUTED = {
    "BiasGelu": lambda attributes, x, bias: gelu(x + bias),
    "FastGelu": lambda attributes, x, bias: fast_gelu(x + bias),
    "FusedMatMul": fused_matmul,
    "Gelu": lambda attributes, x: gelu(x),
    "QuickGelu": lambda attributes, x: x / (1 + np.exp(-attributes.get("alpha", 1.702) * x)),
    "SkipLayerNormalization": skip_layer_norm,
    "SkipSimplifiedLayerNormalization": skip_rms_norm,
}


def widen_tensor(tensor):
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("f8"), tensor.name))


def widened(node):
    """The node with f64 in place of f32 in its attributes."""
    wide = onnx.NodeProto()
    wide.CopyFrom(node)
    for attribute in wide.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            widen_tensor(attribute.t)
        elif attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE
    return wide


def by_onnx_runtime(node, arrays, opset):
    wide = widened(node)
    if node.op_type == "GroupNormalization" and opset >= 21:  # else it computes E[x^2] - E[x]^2 in f32
        wide.attribute.append(helper.make_attribute("stash_type", TensorProto.DOUBLE))
    return graphs.run_node(wide, arrays, opset)


def by_definition(node, arrays, opset):
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return [CONTRIBUTED[node.op_type](attributes, *(arrays[name] for name in node.input))]


def by_evaluator(node, arrays, opset):
    infos = lambda names: [graphs.value_info(name, np.float64) for name in names]
    graph = helper.make_graph([widened(node)], "node", infos(arrays), infos(node.output))
    return ReferenceEvaluator(graphs.model_of(graph, opset)).run(None, arrays)


def by_onnx_runtime_in_f32(node, arrays, opset):
    narrow = {name: array.astype("f4") if array.dtype == np.float64 else array for name, array in arrays.items()}
    return graphs.run_node(node, narrow, opset)


def sources(node):
    yield by_onnx_runtime
    yield by_definition if node.domain else by_evaluator
    yield by_onnx_runtime_in_f32


def distance(array, exact):
    """How far the results of ONNX Runtime are from those in f64, of the largest of them."""
    if array.shape != exact.shape:
        return np.inf
    if array.dtype.kind != "f":
        return 0.0 if np.array_equal(array, exact) else np.inf
    finite = np.isfinite(exact)
    if not np.array_equal(np.isfinite(array), finite):
        return np.inf
    error = np.abs(array.astype("f8") - exact)[finite].max(initial=0)
    return error / max(np.abs(exact[finite]).max(initial=0), 0.1)


def exact_results(node, operands, arrays, opset):
    """Results of a node in f64 from its operands' exact values; `arrays`: ONNX Runtime's. graphs.Rejected: they are far apart."""
    if not any(array.dtype.kind == "f" for array in arrays) and not any(value.is_float for value in operands):
        return arrays
    wide = {value.name: value.exact for value in operands}
    for compute in sources(node):
        try:
            with np.errstate(all="ignore"):
                exact = [np.asarray(e, "f8" if a.dtype.kind == "f" else a.dtype) for a, e in
                         zip(arrays, compute(node, wide, opset))]
        except Exception:  # it has no such operator; every one of them has exceptions of its own
            continue
        farthest = max(map(distance, arrays, exact))
        if farthest <= ROUNDING:
            return exact
        graphs.reject_unless(farthest > ANOTHER, "ill conditioned")
    raise graphs.Rejected("no reference")
