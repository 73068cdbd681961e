"""dump_onnx.py MODEL.onnx DIR INPUT=FILE.npy...: writes what ONNX Runtime computes at every node, as DIR/NAME.npy.

Bytes of names other than letters, digits, '.', '_' and '-' are %XX. `rankc compare DUMP DIR` compares."""
import pathlib
import string
import sys

import numpy as np
import onnx
import onnxruntime

PLAIN = set((string.ascii_letters + string.digits + "._-").encode())


def encode(name):
    return "".join(chr(b) if b in PLAIN else f"%{b:02X}" for b in name.encode())


path, directory, *inputs = sys.argv[1:]
model = onnx.load(path)
given = {v.name for v in model.graph.output}
names = [name for node in model.graph.node for name in node.output if name]
model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in given)

options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # fused nodes have no values
session = onnxruntime.InferenceSession(model.SerializeToString(), options)
values = session.run(names, {name: np.load(file) for name, file in (word.split("=", 1) for word in inputs)})

pathlib.Path(directory).mkdir(exist_ok=True)
for name, value in zip(names, values):
    np.save(pathlib.Path(directory) / (encode(name) + ".npy"), value)
print(f"{len(names)} tensors in {directory}")
