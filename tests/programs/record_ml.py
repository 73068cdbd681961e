#!/usr/bin/python3
"""Records tests/programs/recorded/ml: the operators of domain ai.onnx.ml on numbers, with ONNX Runtime's results.

    record_ml.py DIR          (with the newest onnx and onnxruntime; tests/programs/backend.py runs the result)

All nodes are in one graph with one input of 12 samples of 4 features; labels are outputs as well as scores. Where ONNX Runtime and
ONNX's reference differ, nothing is recorded: two classes that both have weights in trees, whose label ONNX Runtime takes from the
sign of the second; base values of two classes of which one has weights; PROBIT of one score."""
import os
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(23)
SAMPLES, FEATURES = 12, 4
NODES, OUTPUTS = [], []
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def f(*shape):
    return RNG.standard_normal(shape).astype("f4")


def floats(n, scale=1.0, offset=0.0):
    return [float(value) for value in f(n) * np.float32(scale) + np.float32(offset)]


def node(op, inputs, types, domain="ai.onnx.ml", **attributes):
    """Adds a node; its results of these types are outputs. Returns the first."""
    names = [f"y{len(OUTPUTS) + k}" for k in range(len(types))]
    NODES.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
    OUTPUTS.extend(helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, types))
    return names[0]


def tree(depth, modes):
    """Nodes of a random tree: mode, feature, limit, children."""
    nodes = []

    def grow(left):
        at = len(nodes)
        nodes.append(["LEAF", 0, 0.0, 0, 0])
        if left and (left == depth or RNG.random() < 0.8):
            mode, feature, limit = str(RNG.choice(modes)), int(RNG.integers(FEATURES)), float(np.round(RNG.normal(), 1))
            nodes[at] = [mode, feature, float(np.float32(limit)), grow(left - 1), grow(left - 1)]
        return at
    grow(depth)
    return nodes


def forest(prefix, trees, depth, targets, modes, missing=False, positive=False):
    """Attributes of trees whose leaves have a weight for each of the targets."""
    nodes = {"treeids": [], "nodeids": [], "modes": [], "featureids": [], "values": [], "truenodeids": [], "falsenodeids": []}
    weights = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    for t in range(trees):
        for n, row in enumerate(tree(depth, modes)):
            for key, value in zip(nodes, [t, n, *row]):
                nodes[key].append(value)
            for target in targets if row[0] == "LEAF" else []:
                weight = abs(floats(1)[0]) * 0.1 if positive else floats(1)[0]
                for key, value in zip(weights, [t, n, target, float(np.float32(weight))]):
                    weights[key].append(value)
    attributes = {f"nodes_{key}": value for key, value in nodes.items()} | {f"{prefix}_{key}": value for key, value in weights.items()}
    if missing:
        attributes["nodes_missing_value_tracks_true"] = [int(value) for value in RNG.integers(0, 2, len(nodes["treeids"]))]
    return attributes


def numbers():
    node("Binarizer", ["x"], [TensorProto.FLOAT], threshold=0.25)
    node("Scaler", ["x"], [TensorProto.FLOAT], offset=floats(FEATURES), scale=floats(FEATURES))
    node("Scaler", ["x"], [TensorProto.FLOAT], offset=[0.5], scale=[3.0])
    node("Imputer", ["missing"], [TensorProto.FLOAT], imputed_value_floats=floats(FEATURES), replaced_value_float=float("nan"))
    node("Imputer", ["codes"], [TensorProto.INT64], imputed_value_int64s=[50], replaced_value_int64=2)
    node("FeatureVectorizer", ["x", "rounded"], [TensorProto.FLOAT], inputdimensions=[3, FEATURES + 2])
    for norm in ("MAX", "L1", "L2"):
        node("Normalizer", ["rows_of_0"], [TensorProto.FLOAT], norm=norm)
    node("ArrayFeatureExtractor", ["x", "picked"], [TensorProto.FLOAT])
    node("LabelEncoder", ["codes"], [TensorProto.FLOAT], keys_int64s=[3, 1, 2], values_floats=floats(3), default_float=-4.5)
    node("LabelEncoder", ["rounded"], [TensorProto.INT64], keys_floats=[0.0, 1.0], values_int64s=[7, 8], default_int64=-1)
    node("OneHotEncoder", ["codes"], [TensorProto.FLOAT], cats_int64s=[3, 0, 2], zeros=1)


def models():
    both = [TensorProto.INT64, TensorProto.FLOAT]
    for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        for classes in (1, 3):
            node("LinearClassifier", ["x"], both, coefficients=floats(classes * FEATURES), intercepts=floats(classes),
                 classlabels_ints=[4, 2, 9][:max(classes, 2)], post_transform=transform)
            node("LinearRegressor", ["x"], [TensorProto.FLOAT], coefficients=floats(classes * FEATURES), intercepts=floats(classes),
                 targets=classes, post_transform=transform)
        node("TreeEnsembleClassifier", ["x"], both, classlabels_int64s=[4, 2, 9], post_transform=transform,
             base_values=floats(3), **forest("class", 3, 3, [0, 1, 2], ["BRANCH_LEQ"]))
        for positive in (False, True):
            node("TreeEnsembleClassifier", ["x"], both, classlabels_int64s=[4, 2], post_transform=transform,
                 **forest("class", 3, 3, [0], ["BRANCH_LT"], positive=positive))
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        support = {"kernel_type": kernel, "kernel_params": [0.2, 0.3, 3.0]}
        node("SVMRegressor", ["x"], [TensorProto.FLOAT], coefficients=floats(5), support_vectors=floats(5 * FEATURES), n_supports=5,
             rho=[0.25], **support)
        for classes in (2, 3):
            pairs, vectors = classes * (classes - 1) // 2, [2, 1, 3][:classes]
            machine = dict(coefficients=floats((classes - 1) * sum(vectors)), support_vectors=floats(sum(vectors) * FEATURES),
                           vectors_per_class=vectors, rho=floats(pairs), classlabels_ints=[4, 2, 9][:classes], **support)
            node("SVMClassifier", ["x"], both, **machine)
            node("SVMClassifier", ["x"], both, prob_a=floats(pairs, 0.5, -1.5), prob_b=floats(pairs), **machine)
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        node("TreeEnsembleRegressor", ["x"], [TensorProto.FLOAT], n_targets=2, aggregate_function=how,
             **forest("target", 4, 3, [0, 1], MODES))
    node("TreeEnsembleRegressor", ["missing"], [TensorProto.FLOAT], n_targets=1,
         **forest("target", 4, 4, [0], ["BRANCH_LEQ"], missing=True))


def main():
    x = f(SAMPLES, FEATURES)
    x[3] = np.round(x[3])
    mask = (RNG.random(x.shape) < 0.2) * np.float32(1)
    constants = {"hidden": np.where(mask != 0, np.float32("nan"), np.float32(0)), "alive": np.array([[1.0]] * 3 + [[0.0]] + [[1.0]] * 8, "f4"),
                 "picked": np.array([2, 0, 3])}
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    NODES.extend([helper.make_node("Add", ["x", "hidden"], ["missing"]), helper.make_node("Mul", ["x", "alive"], ["rows_of_0"]),
                  helper.make_node("Round", ["x"], ["rounded"]), helper.make_node("Abs", ["rounded"], ["whole"]),
                  helper.make_node("Cast", ["whole"], ["codes"], to=TensorProto.INT64)])
    numbers()
    models()
    graph = helper.make_graph(NODES, "ml", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], OUTPUTS, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)
    expected = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    folder = os.path.join(sys.argv[1], "ml", "test_data_set_0")
    os.makedirs(folder, exist_ok=True)
    onnx.save(model, os.path.join(sys.argv[1], "ml", "model.onnx"))
    for name, value in [("input_0", x), *((f"output_{i}", value) for i, value in enumerate(expected))]:
        with open(os.path.join(folder, name + ".pb"), "wb") as file:
            file.write(numpy_helper.from_array(value).SerializeToString())


if __name__ == "__main__":
    main()
