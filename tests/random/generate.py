"""A random graph from its number."""
import random

import operators
from graphs import EMPTY, Graph, Rejected

OPSETS = [13, 17, 18, 20, 21, 22, 23, 23]
SHALLOW, DEEP = (1, 5), (10, 25)  # how many rows of operators.py a graph is made of
ATTEMPTS = 40                     # at one node, before the graph is left as it is


def opset_of(seed, group):
    return OPSETS[random.Random(f"opset {seed} {group}").randrange(len(OPSETS))]


def grow(graph, rows):
    weights = [row.weight for row in rows]
    for _ in range(ATTEMPTS):
        row = graph.random.choices(rows, weights)[0]
        kept = len(graph.values), len(graph.nodes), dict(graph.inputs), dict(graph.weights)
        try:
            row.make(graph, row)
            return row.op
        except (Rejected, ValueError, IndexError, ZeroDivisionError):
            # what the row had drawn before it was rejected goes
            del graph.values[kept[0]:], graph.nodes[kept[1]:]
            graph.inputs, graph.weights = kept[2:]
    return None


def random_graph(seed, number, opset, only=None, many=0.0, empty=EMPTY):
    """Graph `number` of a seed: one in five is deep. `only`: names of rows."""
    graph = Graph(f"{seed} {number}", opset, f"g{number}_", many, empty)
    rows = [row for row in operators.rows_of(opset) if not only or row.op in only]
    least, most = DEEP if graph.random.random() < 0.2 else SHALLOW
    grown = [grow(graph, rows) for _ in range(graph.random.randint(least, most))]
    graph.rows = [op for op in grown if op]
    if graph.nodes:
        graph.choose_outputs()
    return graph
