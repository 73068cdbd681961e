"""Records the folders foreign-NN-* beside this file: small models like those that exporters make of other people's modules, their
inputs and what ONNX Runtime makes of them. It needs numpy, onnx and onnxruntime from pip.

    record_foreign.py [NAME...]"""
import os
import sys

import numpy as np
import onnx
import onnxruntime

HERE = os.path.dirname(os.path.abspath(__file__))


def floats(*shape):
    return np.random.default_rng(list(shape)).standard_normal(shape).astype("f4")


# Name -> a model as text of onnx.parser, without its version, and its inputs.
MODELS = {
    # torch.nn.EmbeddingBag with offsets as an input: rows from one offset to the next. Bounds may count from the end, or be beyond it.
    "foreign-01-slices-from-data": ("""
        (float[7, 3] x, int64[4] offsets, int32[1] start, int32[1] end) => (float[1, 3] first, float[3] mean, float[rows, 3] tail, float[7, n] part)
        {
            zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>() three = Constant<value_ints = [3]>()
            o0 = Slice(offsets, zero, one) o1 = Slice(offsets, one, two) o2 = Slice(offsets, two, three)
            bag0 = Slice(x, o0, o1) first = ReduceSum(bag0, zero)
            bag1 = Slice(x, o1, o2) mean = ReduceMean<keepdims = 0>(bag1, zero)
            axis = Cast<to = 6>(zero) last = Cast<to = 6>(one)
            tail = Slice(x, start, end, axis)
            doubled = Add(x, x) part = Slice(doubled, last, end, last)
        }""", {"x": floats(7, 3), "offsets": np.array([0, 2, 6, 6]), "start": np.array([-4], "i4"), "end": np.array([2 ** 31 - 1], "i4")}),
    # y[mask] = layer(x[mask]): PyTorch's exporter computes the number of rows, and of their elements, as sums of the mask.
    "foreign-02-masked-assignment": ("""
        (float[7, 6] x, float[6, 6] w, float[6] gate) => (float[7, 6] y)
        {
            zero = Constant<value_float = 0.0>() zeros = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
            all = Constant<value_ints = [-1]>() many = Constant<value_ints = [9223372036854775807]>()
            score = MatMul(x, gate) mask = Greater(score, zero)
            places = NonZero(mask) places_turned = Transpose<perm = [1, 0]>(places) rows = GatherND(x, places_turned)
            product = MatMul(rows, w) made = Relu(product)
            shape = Shape(x) nothing = Expand(zero, shape)
            column = Unsqueeze(mask, all) wide = Expand(column, shape) elements = NonZero(wide) at = Transpose<perm = [1, 0]>(elements)
            flat = Reshape(mask, all) ones = Cast<to = 7>(flat) count = ReduceSum(ones, zeros)
            others = Slice(shape, one, many, zeros) target = Concat<axis = 0>(count, others)
            expanded = Expand(made, target) values = Reshape(expanded, all)
            y = ScatterND(nothing, at, values)
        }""", {"x": floats(7, 6), "w": floats(6, 6), "gate": floats(6)}),
}


def record(name):
    text, inputs = MODELS[name]
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {name.replace("-", "_")} {text}')
    onnx.checker.check_model(model)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), providers=["CPUExecutionProvider"])
    outputs = dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs)))
    for prefix, arrays in (("in_", inputs), ("out_", outputs)):
        for key, value in arrays.items():
            np.save(os.path.join(folder, f"{prefix}{key}.npy"), value)


for wanted in sys.argv[1:] or MODELS:
    record(wanted)
