"""Random ONNX graphs: values that are known while the graph grows.

A graph is built node by node, and ONNX Runtime computes every node as soon as it is there. So a row of operators.py sees the
operands it draws: their shapes, and whether their values are in the operator's domain. What ONNX Runtime refuses, what is not
finite or too large, and what would decide by a rounding error (a comparison of nearly equal values) is rejected, and
another node is drawn. Everything follows from a seed and the version of ONNX Runtime.
"""
import random

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

import reference

LARGEST = 1e4          # of a float; larger ones say little about anything but overflow
LARGEST_INTEGER = 1 << 24
MOST_ELEMENTS = 4096   # of a value
EMPTY = 0.03           # the part of the shapes that have a dimension of 0
MARGIN = 1e-3          # a float that decides something is farther than this from where the decision changes
IR_VERSIONS = {13: 7, 17: 8, 18: 8, 20: 9, 21: 10, 22: 10, 23: 11}  # by opset, as ONNX released them

onnxruntime.set_default_logger_severity(4)


class Rejected(Exception):
    """This node is not to be: another one is drawn."""


def reject_unless(good, why=""):
    if not good:
        raise Rejected(why)


def session(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def names_read(node):
    """Values that a node reads, those that its subgraphs take from outside included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        made = {name for inner in attribute.g.node for name in inner.output}
        names += [name for inner in attribute.g.node for name in names_read(inner) if name not in made]
    return names


def run_node(node, arrays, opset):
    """Outputs of a node alone; its operands by name."""
    graph = helper.make_graph([node], "node", [value_info(n, a.dtype) for n, a in arrays.items()],
                              [helper.make_empty_tensor_value_info(name) for name in node.output])
    return list(onnx_runtime(model_of(graph, opset), arrays).values())


def onnx_runtime(model, inputs):
    """Outputs of the model by name. ONNX Runtime's own exceptions are what it refuses."""
    names = [output.name for output in model.graph.output]
    return dict(zip(names, session(model).run(names, inputs)))


def eps_of(array):
    return float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0


def given(name, array):
    """The value of an input or a constant."""
    exact = array.astype("f8") if array.dtype.kind == "f" else array
    return Value(name, array, exact, True, eps_of(array))


class Value:
    """A tensor of the graph.

    `array` is what ONNX Runtime computes, `exact` the same in f64 (for floats: else it is array). `settled`: computed without
    rounding, so that decisions by it are safe. `eps`: of the least precise type that took part in it; 0: none did.
    """

    def __init__(self, name, array, exact, settled, eps):
        self.name, self.array, self.exact, self.settled, self.eps = name, array, exact, settled, eps
        self.uses = 0

    shape = property(lambda self: self.array.shape)
    ndim = property(lambda self: self.array.ndim)
    dtype = property(lambda self: self.array.dtype)
    is_float = property(lambda self: self.array.dtype.kind == "f")


class Graph:
    """One graph that grows. `prefix` keeps the names of several graphs of one model apart; `many` of the shapes have 5 to 8
    dimensions, and `empty` of them no elements."""

    def __init__(self, seed, opset, prefix="", many=0.0, empty=EMPTY):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(list(seed.encode()))
        self.opset, self.prefix, self.many, self.empty = opset, prefix, many, empty
        self.values, self.nodes = [], []
        self.inputs, self.weights, self.outputs = {}, {}, {}
        self.count = 0
        self.refused = {}  # what ONNX Runtime refused: (operator, type) -> its words

    # names -----------------------------------------------------------------------------------------------------------

    def name(self, kind):
        """A name as exporters and people write them; of initializers also what no identifier may be."""
        self.count += 1
        forms = ["{p}{k}{n}", "{p}/model/layers.{n}/{k}", "{p}{k}.{n}:0"]
        if kind == "w":
            forms += ["{p}{n}", "{p}{n} weight of a layer", "{p}{n}'\"\\`$(id)", "{p}{n}/*int*/", "{p}{n}%s%n", "{p}ä{n}"]
        return self.random.choice(forms).format(p=self.prefix, k=kind, n=self.count)

    # values ----------------------------------------------------------------------------------------------------------

    def add_input(self, array, weight=False):
        name = self.name("w" if weight else "x")
        (self.weights if weight else self.inputs)[name] = array
        value = given(name, array)
        self.values.append(value)
        return value

    def constant(self, array):
        """An operand that must be known: an initializer, or the output of a Constant."""
        array = np.asarray(array)
        if self.random.random() < 0.6:
            name = self.name("w")
            self.weights[name] = array
        else:
            name = self.name("c")
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, "")))
        return given(name, array)

    def extent(self):
        if self.empty > EMPTY and self.random.random() < self.empty / 4:
            return 0
        return self.random.choice([1, 2, 2, 3, 3, 4, 5, 5, 6, 7, 8, 12])

    def shape(self, least=0, most=4):
        if self.many and most == 4 and self.random.random() < self.many:
            return tuple(self.random.choice([1, 1, 2, 2, 3]) for _ in range(self.random.randint(5, 8)))
        ndim = self.random.choice([n for n in (0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5) if least <= n <= most])
        sizes = [self.extent() for _ in range(ndim)]
        if sizes and self.random.random() < self.empty:
            sizes[self.random.randrange(ndim)] = 0
        return tuple(sizes)

    def numbers_of(self, shape, dtype, within=None):
        """Values of a type: floats on a grid of eighths or not, both signs unless `within` says else."""
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return np.asarray(self.numbers.random(shape) < 0.5)
        if dtype.kind in "iu":
            low, high = within or (-9, 10)
            low = max(low, 0) if dtype.kind == "u" else low
            return np.asarray(self.numbers.integers(int(low), int(high) + 1, shape), dtype)
        low, high = within or (-3, 3)
        array = self.numbers.uniform(low, high, shape)
        if self.random.random() < 0.5:
            array = np.clip(np.round(array * 8) / 8, low, high)
        return np.asarray(array, dtype)

    def fresh(self, shape, dtype=np.float32, within=None, weight=None):
        if weight is None:
            weight = self.random.random() < 0.3
        return self.add_input(self.numbers_of(shape, dtype, within), weight)

    def existing(self, accepts):
        """A value that is there already, rather one that nothing reads yet; None if there is none."""
        fitting = [value for value in self.values if accepts(value)]
        unread = [value for value in fitting if not value.uses]
        if unread and self.random.random() < 0.7:
            fitting = unread
        return self.random.choice(fitting) if fitting else None

    def dtype(self, types):
        """One of the types, by weights: a string of one letter each (operators.TYPES)."""
        return np.dtype(self.random.choice(types))

    def operand(self, types, least=0, most=5, within=None, accepts=None, shape=None):
        """A value of one of the types, of `least` to `most` dimensions, in the range `within`; mostly one that is there."""
        def fits(value):
            return (value.dtype in types and least <= value.ndim <= most and (shape is None or value.shape == shape) and
                    (within is None or is_within(value.array, within)) and (accepts is None or accepts(value)))
        found = self.existing(fits) if self.random.random() < 0.8 else None
        if found:
            return found
        made = shape if shape is not None else self.shape(least, most)
        value = self.fresh(made, self.dtype(types), within)
        if accepts is not None and not accepts(value):
            raise Rejected("operand")
        return value

    # nodes -----------------------------------------------------------------------------------------------------------

    def emit(self, op, operands, outputs=1, domain="", settled=None, limit=LARGEST, **attributes):
        """Adds a node and returns its output, or a list of them. An operand None is left out. Rejected: it is not there."""
        while operands and operands[-1] is None:
            operands = operands[:-1]
        names = [value.name if value else "" for value in operands]
        results = [self.name("y") for _ in range(outputs)]
        node = helper.make_node(op, names, results, domain=domain, **{k: v for k, v in attributes.items() if v is not None})
        if self.random.random() < 0.6:
            node.name = self.random.choice(["{}/{}", "{}_{}", "{} '{}'"]).format(self.prefix + op, self.count)
        given_operands = [value for value in operands if value]
        arrays = self.compute(node, {value.name: value.array for value in given_operands})
        for array in arrays:
            check_result(array, limit)
        if settled is None:
            settled = all(value.settled for value in given_operands)
        exact = reference.exact_results(node, given_operands, arrays, self.opset)
        eps = max((value.eps for value in given_operands), default=0)
        made = [Value(name, array, more, settled or array.dtype.kind != "f", max(eps, eps_of(array)))
                for name, array, more in zip(results, arrays, exact)]
        for value in given_operands:
            value.uses += 1
        self.nodes.append(node)
        self.values += made
        return made[0] if outputs == 1 else made

    def compute(self, node, arrays):
        try:
            return run_node(node, arrays, self.opset)
        except Exception as refusal:  # ONNX Runtime has one type of exception for each of its codes
            words = str(refusal).splitlines()[0]
            self.refused.setdefault((node.op_type, *sorted({str(a.dtype) for a in arrays.values()})), words)
            raise Rejected(words) from None

    # the whole -------------------------------------------------------------------------------------------------------

    def choose_outputs(self):
        """Values that nothing reads are outputs, but for some; so are a few that others read."""
        made = {name for node in self.nodes for name in node.output}
        for value in self.values:
            chance = 0.15 if value.uses else 0.93
            if value.name in made and self.random.random() < chance:
                self.outputs[value.name] = value
        if not self.outputs:
            last = next(value for value in reversed(self.values) if value.name in made)
            self.outputs[last.name] = last

    def proto(self):
        """onnx.GraphProto with static shapes."""
        return helper.make_graph(
            self.nodes, "random", [value_info(n, a.dtype, a.shape) for n, a in self.inputs.items()],
            [value_info(n, v.dtype, v.shape) for n, v in self.outputs.items()],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in self.weights.items()])


def value_info(name, dtype, shape=None):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def model_of(graph, opset):
    return helper.make_model(graph, ir_version=IR_VERSIONS[opset], producer_name="rankc-tests",
                             opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])


def is_within(array, within):
    return array.size == 0 or (np.isfinite(array).all() and array.min() >= within[0] and array.max() <= within[1])


def check_result(array, limit, most=MOST_ELEMENTS):
    reject_unless(isinstance(array, np.ndarray), "not a tensor")
    reject_unless(array.size <= most, "too many elements")
    if array.size and array.dtype.kind == "f" and limit:
        reject_unless(np.isfinite(array).all() and np.abs(array).max() <= limit, "not finite, or large")
    if array.size and array.dtype.kind in "iu":
        reject_unless(np.abs(array.astype("f8")).max() <= LARGEST_INTEGER, "large")


def merged(graphs):
    """One model of several graphs, which share nothing."""
    protos = [graph.proto() for graph in graphs]
    return model_of(helper.make_graph([n for p in protos for n in p.node], "random",
                                      [v for p in protos for v in p.input], [v for p in protos for v in p.output],
                                      [t for p in protos for t in p.initializer]), graphs[0].opset)
