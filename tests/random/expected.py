"""What a graph must give, and how far from it a right result may be.

Integers and booleans are equal. A float result p of a tensor with exact values `ref` is right if

    max|p - ref| <= 2 max|one - ref| + 8 eps max|ref|

as in DESIGN 8, eps being that of the least precise type on the way to the tensor. `one` is the worst of some runs: ONNX Runtime's,
which may be right by luck, and RUNS runs in which every result that is rounded is moved at random by as much as another correct
implementation may differ: 2 units in the last place, which elementary functions are within, and for a sum of K terms, taken
in any order, sqrt(K) eps of the tensor's root mean square.
"""
import math

import numpy as np

import graphs

RUNS = 3
LOOSEST = 1e-3  # a bound above this share of the largest value says nothing

SUMS = {"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "FusedMatMul", "Attention", "CumSum", "ReduceMean", "ReduceSum", "ReduceL1",
        "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "Softmax", "LogSoftmax", "LayerNormalization",
        "RMSNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization", "LpNormalization", "LpPool",
        "GlobalLpPool", "AveragePool", "GlobalAveragePool", "LRN", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
        "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}


def moved(node, value, array, terms, numbers):
    """The result of a node as another implementation may have it."""
    if value is None or value.settled or array.dtype.kind != "f" or not array.size:
        return array
    size = 2 * np.abs(array)
    if node.op_type in SUMS:
        size = size + math.sqrt(terms) * np.sqrt(np.mean(np.square(array, dtype="f8")))
    return (array + numbers.uniform(-1, 1, array.shape) * size * value.eps).astype(array.dtype)


def moved_run(graph, numbers):
    """All values by name, from a run in which rounding errors differ."""
    known = {value.name: value for value in graph.values}
    arrays = {**graph.inputs, **graph.weights}
    for node in graph.nodes:
        operands = {name: arrays[name] for name in graphs.names_read(node)}
        terms = max((array.size for array in operands.values()), default=1)
        for name, array in zip(node.output, graphs.run_node(node, operands, graph.opset)):
            arrays[name] = moved(node, known.get(name), array, terms, numbers)
    return arrays


def largest_error(value, runs):
    finite = np.isfinite(value.exact)
    return max(np.abs(run[value.name].astype("f8") - value.exact)[finite].max(initial=0) for run in runs)


def agree(value, runs):
    """Whether all runs give the same integers, and finite numbers in the same places."""
    if value.dtype.kind != "f":
        return all(np.array_equal(run[value.name], value.array) for run in runs)
    return all(np.array_equal(np.isfinite(run[value.name]), np.isfinite(value.exact)) for run in runs)


def outputs_of(graph):
    """(expected, type, bound) by name; None if results hang on rounding errors, or ONNX Runtime has none for the whole."""
    numbers = np.random.default_rng(1)
    try:
        one = graphs.onnx_runtime(graphs.merged([graph]), graph.inputs)
        runs = [one] + [moved_run(graph, numbers) for _ in range(RUNS)]
    except Exception:  # ONNX Runtime's; a moved value may have left an operator's domain
        return None
    outputs = {}
    for name, value in graph.outputs.items():
        if not agree(value, runs):
            return None
        if value.dtype.kind != "f":
            outputs[name] = (value.array, value.dtype.name, 0)
            continue
        largest = np.abs(value.exact[np.isfinite(value.exact)]).max(initial=0)
        bound = 2 * largest_error(value, runs) + 8 * value.eps * largest
        if bound > LOOSEST * largest + 1e-9:
            return None
        outputs[name] = (value.exact, value.dtype.name, bound)
    return outputs
