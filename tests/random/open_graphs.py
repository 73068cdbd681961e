"""Random graphs with open dimensions: which may be open, what the graph gives at other sizes, and the model that says so.

All dimensions of a graph's inputs that have the same extent are one open dimension, if ONNX Runtime runs the graph at other sizes
of it: a run of sizes around the graph's own, the sizes of the others being the graph's. A graph has at most MOST_OPEN."""
import os
import random

import numpy as np
from onnx import helper, numpy_helper

import expected
import graphs
import reference

SIZES = range(1, 14)
MOST_OPEN, LEAST_SIZES = 2, 4
MOST_ELEMENTS = 1 << 16  # of a value, at the largest sizes
LENIENT = {"Compress"}  # rows that ONNX Runtime runs at sizes which ONNX excludes: a condition longer than the dimension


def resized(array, dims, sizes, numbers):
    """An array of values that it has, with other extents where `dims` has the name of an open dimension."""
    shape = tuple(sizes[dims[axis]] if axis in dims else extent for axis, extent in enumerate(array.shape))
    if shape == array.shape:
        return array
    return np.asarray(numbers.choice(array.ravel(), shape), array.dtype) if array.size else np.zeros(shape, array.dtype)


class Replay:
    """The graph's nodes with other inputs, as expected.outputs_of needs them. graphs.Rejected: a node is ill conditioned there."""

    def __init__(self, graph, inputs):
        self.inputs, self.weights, self.nodes, self.opset = inputs, graph.weights, graph.nodes, graph.opset
        settled = {value.name: (value.settled, value.eps) for value in graph.values}
        known = {name: graphs.given(name, array) for name, array in {**inputs, **graph.weights}.items()}
        for node in graph.nodes:
            operands = [known[name] for name in graphs.names_read(node)]
            arrays = graphs.run_node(node, {value.name: value.array for value in operands}, self.opset)
            exact = reference.exact_results(node, operands, arrays, self.opset)
            for name, array, more in zip(node.output, arrays, exact):
                graphs.check_result(array, graphs.LARGEST, MOST_ELEMENTS)
                flags = settled.get(name, (True, graphs.eps_of(array)))
                known[name] = graphs.Value(name, array, more, *flags)
        self.values = list(known.values())
        self.outputs = {name: known[name] for name in graph.outputs}

    def proto(self):
        return proto_of(self, lambda name, array: array.shape)


def proto_of(graph, shape):
    """onnx.GraphProto with shapes of inputs alone."""
    return helper.make_graph(
        graph.nodes, "random", [graphs.value_info(n, a.dtype, shape(n, a)) for n, a in graph.inputs.items()],
        [graphs.value_info(n, v.dtype) for n, v in graph.outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in graph.weights.items()])


class OpenGraph:
    """A graph, its open dimensions, and what is expected at each of the chosen sizes."""

    def __init__(self, graph):
        self.graph, self.opset, self.rows, self.nodes = graph, graph.opset, graph.rows, graph.nodes
        self.random, self.numbers = random.Random(graph.prefix), np.random.default_rng(list(graph.prefix.encode()))
        self.names = self.candidates()
        self.own = {name: int(name.rsplit("_", 1)[1]) for dims in self.names.values() for name in dims.values()}
        self.spans = self.open_spans()
        self.names = {name: {axis: dim for axis, dim in dims.items() if dim in self.spans} for name, dims in self.names.items()}
        self.outputs = graph.outputs

    def candidates(self):
        """input -> axis -> name of the dimension."""
        return {name: {axis: f"{self.graph.prefix}size_{extent}" for axis, extent in enumerate(array.shape) if extent > 1}
                for name, array in self.graph.inputs.items()}

    def inputs_at(self, sizes):
        return {name: resized(array, self.names[name], {**self.own, **sizes}, self.numbers) for name, array in self.graph.inputs.items()}

    def runs(self, sizes):
        try:
            graphs.onnx_runtime(graphs.model_of(self.proto(), self.opset), self.inputs_at(sizes))
            return True
        except Exception:  # ONNX Runtime's own
            return False

    def works(self, **sizes):
        """Whether ONNX Runtime runs the graph: tried in a process of its own, which some operators end at sizes that do not fit."""
        child = os.fork()
        if not child:
            os._exit(0 if self.runs(sizes) else 1)
        return os.waitpid(child, 0)[1] == 0

    def span(self, dim):
        """The least and the most of the sizes around the graph's own that work."""
        own = self.own[dim]
        least = next((size for size in range(own - 1, SIZES.start - 1, -1) if not self.works(**{dim: size})), SIZES.start - 1) + 1
        most = next((size for size in range(own + 1, SIZES.stop) if not self.works(**{dim: size})), SIZES.stop) - 1
        return least, most

    def open_spans(self):
        spans = {}
        for dim in self.random.sample(sorted(self.own), len(self.own)):
            least, most = self.span(dim)
            if most - least + 1 < LEAST_SIZES or len(spans) == MOST_OPEN:
                continue
            further = {**spans, dim: (least, most)}
            if all(self.works(**{name: span[end] for name, span in further.items()}) for end in (0, 1)):
                spans = further
        return spans

    def five_sizes(self):
        """Five choices of sizes: all least, all most, the graph's own, and two at random."""
        drawn = lambda: {dim: self.random.randint(*span) for dim, span in self.spans.items()}
        return [{dim: span[0] for dim, span in self.spans.items()}, {dim: span[1] for dim, span in self.spans.items()},
                {dim: self.own[dim] for dim in self.spans}, drawn(), drawn()]

    def members(self):
        """(sizes, inputs, outputs as of expected.outputs_of) of each choice; None: one of them has no certain results."""
        found = []
        for sizes in self.five_sizes():
            try:
                replay = Replay(self.graph, self.inputs_at(sizes))
            except Exception:  # ONNX Runtime's own, and Rejected
                return None
            outputs = expected.outputs_of(replay)
            if outputs is None:
                return None
            found.append((sizes, replay.inputs, outputs))
        return found

    def proto(self):
        """onnx.GraphProto with the names of open dimensions."""
        return proto_of(self.graph, lambda name, array: [self.names[name].get(axis, extent) for axis, extent in enumerate(array.shape)])


def with_input(graph):
    """The graph, which has no inputs, with its first weight that is an operand like any other as one."""
    free = [value.name for value in graph.values if value.name in graph.weights and max(value.shape, default=0) > 1]
    if free and not graph.inputs:
        graph.inputs[free[0]] = graph.weights.pop(free[0])
    return graph


def opened(graph):
    """The graph with open dimensions, and what is expected of it; None: none of its dimensions can be open."""
    if not graph.nodes or not with_input(graph).inputs or LENIENT & {*graph.rows}:
        return None
    whole = OpenGraph(graph)
    whole.choices = whole.members() if whole.spans else None
    return whole if whole.choices else None


def together(chosen):
    """For compare.write_open_case: bounds of all graphs, and choice k of each."""
    joined = [({}, {}, {}) for _ in chosen[0].choices]
    for graph in chosen:
        for whole, part in zip(joined, graph.choices):
            for known, more in zip(whole, part):
                known.update(more)
    return {dim: span for graph in chosen for dim, span in graph.spans.items()}, joined
