#!/usr/bin/env python3
"""Operators of images under an open batch, height and width: a program that is compiled once gives at every size, bit for
bit, what the program compiled for that size alone gives. A model has all rows of a group, each an output.

    images.py --rankc RANKC"""
import os
import shlex
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, expect, needed, outputs_of, rankc_of, report  # noqa: E402

with needed():
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

BOUNDS = {"batch": "1..3", "height": "9..40", "width": "7..45@20"}
SIZES = [(1, 9, 8), (3, 40, 45), (2, 23, 7)]
CHANNELS = 4
PLANS = {"tensor": "--pas tp --plan-ngpus 2", "pipeline": "--pas pp --plan-ngpus 2", "data": "--pas data --plan-ngpus 2"}
ASYMMETRIC = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
CROP = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -2.0}
CORNERS = {"coordinate_transformation_mode": "align_corners"}
KERNEL, HALVED, POOL = {"kernel_shape": [3, 3]}, {"strides": [2, 2]}, {"kernel_shape": [3, 3], "strides": [2, 2]}

# name: operator, inputs (x: the image; others: constants below, or computed from its shape), attributes
WINDOWS = {
    "conv": ("Conv", "x w", {**KERNEL, "pads": [1, 1, 1, 1]}),
    "conv strided": ("Conv", "x w", {**KERNEL, **HALVED, "pads": [1, 0, 1, 2]}),
    "conv same upper": ("Conv", "x w", {**KERNEL, **HALVED, "auto_pad": "SAME_UPPER"}),
    "conv same lower": ("Conv", "x w", {**KERNEL, "strides": [3, 2], "auto_pad": "SAME_LOWER"}),
    "conv dilated": ("Conv", "x w", {**KERNEL, "dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    "conv grouped": ("Conv", "x depthwise", {**KERNEL, "group": CHANNELS}),
    "conv line": ("Conv", "line wline", {"kernel_shape": [5], "strides": [3]}),
    "conv transposed": ("ConvTranspose", "x wt", {**KERNEL, **HALVED, "pads": [1, 0, 1, 1]}),
    "conv transposed same": ("ConvTranspose", "x wt", {**KERNEL, **HALVED, "auto_pad": "SAME_UPPER"}),
    "max pool": ("MaxPool", "x", {**POOL, "pads": [1, 1, 1, 1]}),
    "max pool ceil": ("MaxPool", "x", {**POOL, "ceil_mode": 1}),
    "average pool": ("AveragePool", "x", {**POOL, "pads": [1, 1, 0, 1]}),
    "average pool padded ceil": ("AveragePool", "x", {**POOL, "pads": [1, 1, 0, 1], "count_include_pad": 1, "ceil_mode": 1}),
    "average pool same": ("AveragePool", "x", {**POOL, "auto_pad": "SAME_UPPER"}),
    "lp pool": ("LpPool", "x", POOL),
    "global average": ("GlobalAveragePool", "x", {}),
    "global max": ("GlobalMaxPool", "x", {}),
}
RESIZES = {
    "resize nearest": ("Resize", "x - doubled", {"mode": "nearest"}),
    "resize nearest floor": ("Resize", "x - halved", {"mode": "nearest", **ASYMMETRIC}),
    "resize nearest ceil": ("Resize", "x - - fixed", {"mode": "nearest", "nearest_mode": "ceil", **CORNERS}),
    "resize prefer ceil": ("Resize", "x - - fixed", {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}),
    "resize linear": ("Resize", "x - - fixed", {"mode": "linear"}),
    "resize linear to shape": ("Resize", "pooled - - whole", {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    "resize corners": ("Resize", "pooled - - whole", {"mode": "linear", **CORNERS}),
    "resize symmetric": ("Resize", "x - halved", {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}),
    "resize to floats": ("Resize", "x - - reduced", {"mode": "linear"}),
    "resize cubic": ("Resize", "x - - fixed", {"mode": "cubic", "cubic_coeff_a": -0.5}),
    "resize cubic inside": ("Resize", "x - doubled", {"mode": "cubic", "exclude_outside": 1}),
    "resize crop": ("Resize", "x region - fixed", {"mode": "linear", **CROP}),
    "resize crop nearest": ("Resize", "x region doubled", {"mode": "nearest", **CROP}),
}
MOVES = {
    "pad": ("Pad", "x pads", {}),
    "pad reflect": ("Pad", "x pads", {"mode": "reflect"}),
    "pad edge": ("Pad", "x pads", {"mode": "edge"}),
    "pad to blocks": ("Pad", "x blocks", {}),
    "depth to space": ("DepthToSpace", "x", {"blocksize": 2}),
    "tile": ("Tile", "x twice", {}),
    "flatten": ("Flatten", "x", {"axis": 2}),
    "mean": ("ReduceMean", "x", {"axes": [2, 3]}),
    "mean of all": ("ReduceMean", "x", {"axes": [0, 2], "keepdims": 0}),
    "norm": ("ReduceL2", "x", {"axes": [3]}),
    "instance norm": ("InstanceNormalization", "x ones zeros", {}),
    "batch norm": ("BatchNormalization", "x ones zeros zeros ones", {}),
    "lp norm": ("LpNormalization", "x", {"axis": 3}),
    "arg max": ("ArgMax", "x", {"axis": 2}),
    "cumulated": ("CumSum", "x axis", {}),
    "lower": ("Trilu", "x", {"upper": 0}),
    "grid": ("GridSample", "x grid", {}),
    "grid aligned": ("GridSample", "x grid", {"align_corners": 1, "mode": "bicubic", "padding_mode": "reflection"}),
    "einsum": ("Einsum", "x x", {"equation": "bchw,bdhw->bcd"}),
}
GROUPS = {"windows": WINDOWS, "resizes": RESIZES, "moves": MOVES}
SHAPES = [  # what exporters compute from shapes: the smaller image, and the sizes of the whole one
    helper.make_node("MaxPool", ["x"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
    helper.make_node("Shape", ["x"], ["whole"]),
    helper.make_node("Reshape", ["x", "as line"], ["line"]),
    helper.make_node("Neg", ["whole"], ["less"]),
    helper.make_node("Mod", ["less", "eight"], ["more"]),  # as many as fill the last block of eight
    helper.make_node("Mul", ["more", "spatial"], ["behind"]),
    helper.make_node("Concat", ["none", "behind"], ["blocks"], axis=0),
    helper.make_node("Transpose", ["x"], ["points"], perm=[0, 2, 3, 1]),
    helper.make_node("Split", ["points"], ["grid", "others"], axis=3),
]


def constants():
    random = numpy.random.default_rng(1)
    weights = {"w": (6, CHANNELS, 3, 3), "wt": (CHANNELS, 3, 3, 3), "depthwise": (CHANNELS, 1, 3, 3), "wline": (2, CHANNELS, 5)}
    return {**{name: random.standard_normal(shape).astype("f4") for name, shape in weights.items()},
            "ones": numpy.ones(CHANNELS, "f4"), "zeros": numpy.zeros(CHANNELS, "f4"), "axis": numpy.array(3),
            "doubled": numpy.array([1, 1, 2, 1.5], "f4"), "halved": numpy.array([1, 1, 0.5, 0.75], "f4"),
            "region": numpy.array([0, 0, 0.25, -0.1, 1, 1, 0.9, 1.1], "f4"), "fixed": None, "pads": numpy.array([0, 0, 1, 2, 0, 0, 3, 0]), "twice": numpy.array([1, 1, 2, 3]),
            "as line": numpy.array([0, CHANNELS, -1]), "eight": numpy.full(4, 8), "spatial": numpy.array([0, 0, 1, 1]),
            "none": numpy.zeros(4, "i8")}


def model(path, rows):
    stored = {name: numpy_helper.from_array(value, name) for name, value in constants().items() if value is not None}
    nodes = list(SHAPES)
    nodes += [helper.make_node("Slice", ["whole", "zero", "two"], ["planes"]),
              helper.make_node("Concat", ["planes", "thirteen"], ["fixed"], axis=0),
              helper.make_node("Slice", ["whole", "two", "four"], ["plane"]),
              helper.make_node("Cast", ["plane"], ["plane of floats"], to=TensorProto.FLOAT),
              helper.make_node("Mul", ["plane of floats", "0.7"], ["more than 0.7"]),
              helper.make_node("Floor", ["more than 0.7"], ["floats"]),
              helper.make_node("Cast", ["floats"], ["rounded"], to=TensorProto.INT64),
              helper.make_node("Concat", ["planes", "rounded"], ["reduced"], axis=0)]
    stored.update({name: numpy_helper.from_array(numpy.array(value), name)
                   for name, value in {"zero": [0], "two": [2], "four": [4], "thirteen": [13, 17]}.items()})
    stored["0.7"] = numpy_helper.from_array(numpy.array([0.7], "f4"), "0.7")
    outputs = []
    for name, (op, inputs, attributes) in rows.items():
        nodes.append(helper.make_node(op, [{"-": ""}.get(i, i) for i in inputs.split()], [f"y {name}"], name, **attributes))
        kind = TensorProto.INT64 if op == "ArgMax" else TensorProto.FLOAT
        outputs.append(helper.make_tensor_value_info(f"y {name}", kind, None))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", CHANNELS, "height", "width"])
    graph = helper.make_graph(nodes, "images", [x], outputs, list(stored.values()))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)


def planned(path):
    """Resizes that keep the ratio of height and width, and that crop, among convolutions."""
    random = numpy.random.default_rng(3)
    stored = {"wide": random.standard_normal((8, CHANNELS, 3, 3)), "narrow": random.standard_normal((CHANNELS, 8, 3, 3)),
              "region": numpy.array([0.25, -0.1, 0.9, 1.1])}
    stored = {name: value.astype("f4") for name, value in stored.items()} | {"fixed": numpy.array([24, 16])}
    kept = {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}
    steps = [("Conv", "x wide", "a", {"pads": [1] * 4}), ("Resize", "a - - fixed", "b", kept), ("Conv", "b narrow", "c", {"pads": [1] * 4}),
             ("Resize", "c region - fixed", "y", {"mode": "linear", "axes": [2, 3], **CROP}),
             ("Resize", "c - - fixed", "z", {"mode": "nearest", "axes": [3, 2], "keep_aspect_ratio_policy": "not_smaller"})]
    nodes = [helper.make_node(op, inputs.replace("-", "").split(" "), [output], **attributes) for op, inputs, output, attributes in steps]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", CHANNELS, "height", "width"])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"]
    graph = helper.make_graph(nodes, "planned", [x], outputs, [numpy_helper.from_array(value, name) for name, value in stored.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8), path)


def detector(path):
    """Boxes on a grid of 8 x 8 pixels, the first 7 of which NonMaxSuppression keeps; there may be one alone."""
    stored = {"kernel": numpy.random.default_rng(2).standard_normal((6, CHANNELS, 8, 8)).astype("f4") * 0.1, "flat": [0, 6, -1],
              "four and two": [4, 2], "two and two": [2, 2], "seven": [7], "overlap": numpy.float32(0.5), "least": numpy.float32(0.4),
              "box": numpy.array(2), "first": [0]}
    steps = [("Conv", "x kernel", "cells", {"kernel_shape": [8, 8], "strides": [8, 8]}), ("Reshape", "cells flat", "flat_cells", {}),
             ("Transpose", "flat_cells", "rows", {"perm": [0, 2, 1]}), ("Split", "rows 'four and two'", "places logits", {"axis": 2}),
             ("Split", "places 'two and two'", "center size", {"axis": 2}), ("Sigmoid", "size", "extent", {}),
             ("Sub", "center extent", "low", {}), ("Add", "center extent", "high", {}), ("Concat", "low high", "boxes", {"axis": 2}),
             ("Sigmoid", "logits", "rated", {}), ("Transpose", "rated", "scores", {"perm": [0, 2, 1]}),
             ("NonMaxSuppression", "boxes scores seven overlap least", "selected", {}), ("Gather", "selected box", "index", {"axis": 1}),
             ("Squeeze", "boxes first", "all", {}), ("Gather", "all index", "picked", {"axis": 0})]
    nodes = [helper.make_node(op, shlex.split(inputs), outputs.split(), **attributes) for op, inputs, outputs, attributes in steps]
    outputs = [helper.make_tensor_value_info("selected", TensorProto.INT64, ["n", 3]),
               helper.make_tensor_value_info("picked", TensorProto.FLOAT, ["n", 4])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, CHANNELS, "height", "width"])
    graph = helper.make_graph(nodes, "detector", [x], outputs,
                              [numpy_helper.from_array(numpy.asarray(value), name) for name, value in stored.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def compiled(rankc, path, out, sizes, pas=()):
    call(rankc, "compile", path, "-o", out, "-q", *pas, *(word for name, size in sizes.items() for word in ("--dim", f"{name}={size}")))
    return out


def results(rankc, program, image, work):
    out = os.path.join(work, "out")
    call(rankc, "run", program, "--input", f"x={image}", "--output-dir", out)
    return outputs_of(out)


def check(rankc, work, make, results_of_model, bounds=BOUNDS, all_sizes=SIZES, pas=()):
    path, image = os.path.join(work, "images.onnx"), os.path.join(work, "x.npy")
    make(path)
    program = compiled(rankc, path, os.path.join(work, "open"), bounds, pas)
    for number, sizes in enumerate(all_sizes):
        batch, height, width = ((1,) + sizes)[-3:]
        numpy.save(image, numpy.random.default_rng(number).standard_normal((batch, CHANNELS, height, width)).astype("f4"))
        alone = compiled(rankc, path, os.path.join(work, f"alone{number}"), dict(zip(bounds, sizes)), pas)
        found, wanted = results(rankc, program, image, work), results(rankc, alone, image, work)
        expect(len(wanted) == results_of_model, f"{len(wanted)} results")
        for name, value in wanted.items():
            expect(found[name].shape == value.shape, f"{name} at {sizes}: {found[name].shape}, not {value.shape}")
            expect(numpy.array_equal(found[name], value, equal_nan=True), f"{name} at {sizes}: other values")
    return f"{results_of_model} results at {len(all_sizes)} sizes"


def main():
    rankc = rankc_of(__doc__)
    groups = [(name, lambda work, rows=rows: check(rankc, work, lambda path: model(path, rows), len(rows)))
              for name, rows in GROUPS.items()]
    grid = {"height": "8..64:8", "width": "8..64:8"}
    even = {**BOUNDS, "batch": "2..4:2"}
    groups += [(f"planned {plan}", lambda work, pas=pas: check(rankc, work, planned, 2, even, [(2, 9, 8), (4, 40, 45), (2, 23, 7)], pas.split()))
               for plan, pas in PLANS.items()]
    return report(groups + [("boxes", lambda work: check(rankc, work, detector, 2, grid, [(8, 8), (8, 64), (40, 24)]))])


if __name__ == "__main__":
    sys.exit(main())
