#!/usr/bin/env python3
"""Writes the random graphs that the tests run: tests/random/recorded/<opset>/, a model of TOGETHER graphs for each of OPSETS, and
tests/random/recorded/open/, one of OPEN graphs with open dimensions.

    record.py

Needs onnx and onnxruntime (1.23 and 1.31 wrote what is here). Values are small, so that all stay within some 300 KB.
"""
import os
import shutil

import compare
import expected
import generate
import graphs
import open_graphs

SEED, OPSETS, TOGETHER = 14, [13, 18, 21, 23], 20
OPEN_SEED, OPEN_OPSET, OPEN = 2, 18, 8
MOST_BYTES = 12000  # of the arrays of a graph


def bytes_of(graph, outputs):
    arrays = [*graph.inputs.values(), *graph.weights.values(), *(array for array, _, _ in outputs.values())]
    return sum(array.nbytes for array in arrays)


def chosen(opset):
    """Graphs of few bytes, and their outputs."""
    found, number = [], 0
    while len(found) < TOGETHER:
        graph = generate.random_graph(f"{SEED} {opset}", number, opset)
        outputs = expected.outputs_of(graph) if graph.nodes else None
        if outputs and bytes_of(graph, outputs) <= MOST_BYTES:
            found.append((graph, outputs))
        number += 1
    return found


def chosen_open():
    """Graphs of few bytes with open dimensions."""
    found, number = [], 0
    while len(found) < OPEN:
        graph = open_graphs.opened(generate.random_graph(f"open {OPEN_SEED}", number, OPEN_OPSET, empty=0))
        if graph and sum(bytes_of(graph.graph, outputs) for _, _, outputs in graph.choices) <= MOST_BYTES:
            found.append(graph)
        number += 1
    return found


def main():
    directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")
    shutil.rmtree(directory, ignore_errors=True)
    for opset in OPSETS:
        together = chosen(opset)
        inputs = {name: array for graph, _ in together for name, array in graph.inputs.items()}
        outputs = {name: entry for _, entries in together for name, entry in entries.items()}
        model = graphs.merged([graph for graph, _ in together]).SerializeToString()
        compare.write_case(os.path.join(directory, f"opset{opset}"), model, inputs, outputs)
    together = chosen_open()
    compare.write_open_case(os.path.join(directory, "open"), graphs.merged(together).SerializeToString(), *open_graphs.together(together))


if __name__ == "__main__":
    main()
