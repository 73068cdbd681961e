#!/usr/bin/env python3
"""Sequences whose batch, length and past vary: each model is compiled once with bounds and run at several sizes. Its outputs
are, bit for bit, those of the program compiled for that size alone.

    sequences.py --rankc RANKC

What a size of no bound of its own follows from, and what is refused, is checked too."""
import json
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, expect, needed, rankc_of, report  # noqa: E402

with needed():
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

HEADS, WIDTH, UNITS = 2, 4, 3
BOUNDS = {"batch": "1..3", "sequence": "1..9", "past": "0..8"}
RANDOM = numpy.random.default_rng(5)


def number(name, values, dtype="i8"):
    return numpy_helper.from_array(numpy.array(values, dtype=dtype), name)


def attention(mask, *before):
    """Nodes of attention over past and new keys, which are values too; `before` makes the mask for the scores."""
    return [*before,
            helper.make_node("Concat", ["past_keys", "x"], ["keys"], axis=2),
            helper.make_node("Transpose", ["keys"], ["turned"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["x", "turned"], ["products"]),
            helper.make_node("Mul", ["products", "half"], ["scores"]),
            helper.make_node("Add", ["scores", mask], ["masked"]),
            helper.make_node("Softmax", ["masked"], ["shares"], axis=-1),
            helper.make_node("MatMul", ["shares", "keys"], ["y"])]


def size_of(value, axis, name):
    return [helper.make_node("Shape", [value], [name + ".shape"]), helper.make_node("Gather", [name + ".shape", axis], [name])]


HALF = number("half", 0.5, "f4")
AXES = [number("zero", 0), number("one", 1), number("two", 2), number("axis1", [1]), number("axes12", [1, 2])]
CACHED = {"x": ("f4", ["batch", HEADS, "sequence", WIDTH]), "past_keys": ("f4", ["batch", HEADS, "past", WIDTH])}

# The mask's length is "total", which the Add needs to be past + sequence.
ADDED = dict(nodes=attention("mask"), constants=[HALF], inputs={**CACHED, "mask": ("f4", ["batch", 1, 1, "total"])},
             total="'total' is \"past\" + \"sequence\"")

# The mask is read at positions alone, as exporters do it: keys up to the query's, where the mask is not 0.
POSITIONS = dict(
    nodes=attention("chosen", *size_of("x", "two", "new"), *size_of("past_keys", "two", "old"),
                    helper.make_node("Add", ["old", "new"], ["all"]),
                    helper.make_node("Range", ["zero", "all", "one"], ["key"]),
                    helper.make_node("Range", ["zero", "new", "one"], ["row"]),
                    helper.make_node("Add", ["row", "old"], ["query"]),
                    helper.make_node("Unsqueeze", ["query", "axis1"], ["column"]),
                    helper.make_node("LessOrEqual", ["key", "column"], ["causal"]),
                    helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.BOOL),
                    helper.make_node("Gather", ["kept", "key"], ["read"], axis=1),
                    helper.make_node("Unsqueeze", ["read", "axes12"], ["rows"]),
                    helper.make_node("And", ["causal", "rows"], ["allowed"]),
                    helper.make_node("Where", ["allowed", "nothing", "minus"], ["chosen"])),
    constants=[HALF, *AXES, number("nothing", 0, "f4"), number("minus", -1e9, "f4")],
    inputs={**CACHED, "mask": ("i8", ["batch", "total"])}, total="'total' is \"past\" + \"sequence\"")

# Nothing but the mask tells the past.
SOLVED = dict(nodes=[helper.make_node("Unsqueeze", ["x", "axis2"], ["column"]), helper.make_node("Unsqueeze", ["mask", "axis1"], ["row"]),
                     helper.make_node("Mul", ["column", "row"], ["y"])],
              constants=[number("axis2", [2]), number("axis1", [1])],
              inputs={"x": ("f4", ["batch", "sequence"]), "mask": ("f4", ["batch", "past + sequence"])})

# A layer in both directions: all states, and those of the last step.
RECURRENT = dict(nodes=[helper.make_node("LSTM", ["x", "w", "r", "", "lengths"], ["y", "last"], hidden_size=UNITS, direction="bidirectional")],
                 constants=[number("w", RANDOM.standard_normal((2, 4 * UNITS, WIDTH)), "f4"),
                            number("r", RANDOM.standard_normal((2, 4 * UNITS, UNITS)), "f4")],
                 inputs={"x": ("f4", ["sequence", "batch", WIDTH]), "lengths": ("i4", ["batch"])}, outputs=["y", "last"])

# Buckets of relative positions, the logarithm of which grows as the distance does.
BUCKETS = dict(
    nodes=[*size_of("x", "one", "n"), helper.make_node("Range", ["zero", "n", "one"], ["at"]),
           helper.make_node("Unsqueeze", ["at", "axis1"], ["column"]), helper.make_node("Sub", ["at", "column"], ["distance"]),
           helper.make_node("Abs", ["distance"], ["far"]), helper.make_node("Cast", ["far"], ["real"], to=TensorProto.FLOAT),
           helper.make_node("Add", ["real", "unit"], ["shifted"]), helper.make_node("Log", ["shifted"], ["log"]),
           helper.make_node("Mul", ["log", "scale"], ["scaled"]), helper.make_node("Cast", ["scaled"], ["whole"], to=TensorProto.INT64),
           helper.make_node("Min", ["whole", "most"], ["bucket"]), helper.make_node("Gather", ["table", "bucket"], ["bias"], axis=0),
           helper.make_node("Cast", ["n"], ["length"], to=TensorProto.FLOAT), helper.make_node("Sqrt", ["length"], ["root"]),
           helper.make_node("Div", ["bias", "root"], ["part"]), helper.make_node("MatMul", ["part", "x"], ["y"])],
    constants=[*AXES, number("unit", 1, "f4"), number("scale", 1.7, "f4"), number("most", 3), number("table", [.5, -.25, 2, 1], "f4")],
    inputs={"x": ("f4", ["batch", "sequence", WIDTH])})

# Rows of those that an expert computes: chosen from two tables, they are twice as many at most as the sums that they go to.
CHOSEN = dict(
    nodes=[helper.make_node("Reshape", ["x", "all"], ["flat"]), helper.make_node("Neg", ["flat"], ["turned"]),
           helper.make_node("Unsqueeze", ["flat", "front"], ["first"]), helper.make_node("Unsqueeze", ["turned", "front"], ["second"]),
           helper.make_node("Concat", ["first", "second"], ["tables"], axis=0), helper.make_node("Greater", ["tables", "nothing"], ["wanted"]),
           helper.make_node("NonZero", ["wanted"], ["places"]), helper.make_node("Gather", ["places", "one"], ["rows"], axis=0),
           helper.make_node("Gather", ["flat", "rows"], ["picked"], axis=0), helper.make_node("Mul", ["picked", "picked"], ["squares"]),
           helper.make_node("ScatterElements", ["flat", "rows", "squares"], ["y"], axis=0), helper.make_node("ReduceSum", ["cache"], ["z"])],
    constants=[number("all", [-1]), number("front", [0]), number("one", 1), number("nothing", 0, "f4")],
    inputs={"x": ("f4", ["batch", "sequence"]), "cache": ("f4", ["batch", "past"])}, outputs=["y", "z"])

# Sums at indices, as many as there are values.
SCATTERED = dict(
    nodes=[helper.make_node("Concat", ["cache", "x"], ["all"], axis=1), helper.make_node("Mul", ["mask", "zero"], ["first"]),
           helper.make_node("ScatterElements", ["all", "first", "all"], ["y"], axis=1, reduction="add")],
    constants=AXES, inputs={"x": ("f4", ["batch", "sequence"]), "cache": ("f4", ["batch", "past"]), "mask": ("i8", ["batch", "total"])},
    total="'total' is \"past\" + \"sequence\"")

# Three tokens of each step, side by side: three times one size is three times the other.
TRIPLED = dict(
    nodes=[helper.make_node("Concat", ["cache", "x"], ["all"], axis=1), helper.make_node("Unsqueeze", ["mask", "axis2"], ["column"]),
           helper.make_node("Concat", ["column", "column", "column"], ["columns"], axis=2), *size_of("all", "one", "steps"),
           *size_of("all", "zero", "rows"), helper.make_node("Mul", ["steps", "three"], ["tokens"]),
           helper.make_node("Unsqueeze", ["tokens", "axis0"], ["width"]), helper.make_node("Unsqueeze", ["rows", "axis0"], ["height"]),
           helper.make_node("Concat", ["height", "width"], ["shape"], axis=0), helper.make_node("Reshape", ["columns", "shape"], ["flat"]),
           helper.make_node("Cast", ["flat"], ["y"], to=TensorProto.FLOAT)],
    constants=[*AXES, number("three", 3), number("axis0", [0]), number("axis2", [2])],
    inputs={"x": ("f4", ["batch", "sequence"]), "cache": ("f4", ["batch", "past"]), "mask": ("i8", ["batch", "total"])},
    total="'total' is \"past\" + \"sequence\"")

MODELS = {"added": ADDED, "positions": POSITIONS, "solved": SOLVED, "recurrent": RECURRENT, "buckets": BUCKETS, "chosen": CHOSEN, "scattered": SCATTERED,
          "tripled": TRIPLED}
SIZES = [{"batch": 1, "sequence": 1, "past": 0}, {"batch": 3, "sequence": 9, "past": 8}, {"batch": 2, "sequence": 5, "past": 7}]
TYPES = {"f4": TensorProto.FLOAT, "i8": TensorProto.INT64, "i4": TensorProto.INT32}


def written(model, work, name):
    """The file, and the sizes of which bounds are given."""
    inputs = [helper.make_tensor_value_info(i, TYPES[t], dims) for i, (t, dims) in model["inputs"].items()]
    outputs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in model.get("outputs", ["y"])]
    graph = helper.make_graph(model["nodes"], name, inputs, outputs, model["constants"])
    path = os.path.join(work, name + ".onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    used = {word for _, dims in model["inputs"].values() for dim in dims for word in str(dim).split(" + ")}
    return path, [dim for dim in BOUNDS if dim in used]


def values_of(model, sizes):
    known = {**sizes, "total": sizes["past"] + sizes["sequence"], "past + sequence": sizes["past"] + sizes["sequence"]}
    values = {}
    for name, (dtype, dims) in model["inputs"].items():
        shape = [known.get(dim, dim) for dim in dims]
        if name == "lengths":
            values[name] = (1 + numpy.arange(shape[0]) * 3 % sizes["sequence"]).astype(dtype)
        elif dtype == "i8":
            values[name] = numpy.ones(shape, dtype)
            values[name][-1, :shape[1] // 3] = 0
        else:
            values[name] = RANDOM.standard_normal(shape).astype(dtype)
    return values


def run(rankc, program, work, values, status=0):
    """The outputs by name; of a refusal the message."""
    given = []
    for name, value in values.items():
        numpy.save(os.path.join(work, name + ".npy"), value)
        given += ["--input", f"{name}={work}/{name}.npy"]
    done = call(rankc, "run", program, "--output-dir", work + "/out", *given, status=status)
    if status:
        return done.stderr
    with open(work + "/out/outputs.json", encoding="utf-8") as file:
        return {o["name"]: numpy.load(os.path.join(work, "out", o["file"])) for o in json.load(file)["outputs"]}


def compiled(rankc, path, out, dims, *more):
    done = call(rankc, "compile", path, "-o", out, *more, *(word for dim in dims.items() for word in ("--dim", "%s=%s" % dim)))
    return done.stderr


def check_model(rankc, work, name):
    model, program = MODELS[name], os.path.join(work, name)
    path, dims = written(model, work, name)
    said = compiled(rankc, path, program, {dim: BOUNDS[dim] for dim in dims}, "-v")
    expect(model.get("total", "") in said, f"{name}: not said what total is: {said}")
    for i, sizes in enumerate(SIZES):
        values, fixed = values_of(model, sizes), f"{program}-{i}"
        known = {dim: sizes[dim] for dim in dims} | ({"total": sizes["past"] + sizes["sequence"]} if "total" in model else {})
        compiled(rankc, path, fixed, known, "-q")
        mine, alone = run(rankc, program, work, values), run(rankc, fixed, work, values)
        for output, value in alone.items():
            expect(mine[output].shape == value.shape and mine[output].tobytes() == value.tobytes(),
                   f"{name} at {sizes}: {output} differs")
    return f"{len(SIZES)} sizes"


def check_bounds(rankc, work):
    """The length of the mask has bounds of its own, and contradicts the other inputs."""
    path, dims = written(ADDED, work, "bounded")
    program, given = os.path.join(work, "bounded"), {dim: BOUNDS[dim] for dim in dims}
    compiled(rankc, path, program, {**given, "total": "1..17"}, "-q")
    values = values_of(ADDED, SIZES[2])
    values["mask"] = values["mask"][..., 1:]
    expect("'mask'" in run(rankc, program, work, values, 3), "a mask that is too short is not refused")
    refused = call(rankc, "compile", path, "-o", program, "--dim", "total=40..50",
                   *(word for dim in given.items() for word in ("--dim", "%s=%s" % dim)), status=2).stderr
    expect("--dim total=40..50 contradicts" in refused, f"bounds that cannot be: {refused}")
    refused = call(rankc, "compile", path, "-o", program, "--dim", "batch=1..3", "--dim", "sequence=1..9", status=2).stderr
    expect("'past'" in refused and "'total'" not in refused, f"a size that is missing: {refused}")
    return "3 refusals"


def check_vectors(rankc, work):
    """Loops that are too short for threads are vectorised all the same: in a pragma of `parallel for simd` an `if` without
    the name of a construct is that of both."""
    wide = dict(nodes=[helper.make_node("Sigmoid", ["x"], ["y"])], constants=[], inputs={"x": ("f4", ["batch", 4096])})
    path, _ = written(wide, work, "wide")
    program = os.path.join(work, "wide")
    compiled(rankc, path, program, {"batch": "1..64"}, "-q", "--no-build")
    with open(os.path.join(program, "wide/_/rank_0.c"), encoding="utf-8") as file:
        pragmas = [line for line in file if "parallel for simd" in line]
    expect(pragmas and all(" if (parallel : " in line for line in pragmas), f"pragmas: {pragmas}")
    return f"{len(pragmas)} loops"


def main():
    rankc = rankc_of(__doc__)
    checks = [(name, lambda work, name=name: check_model(rankc, work, name)) for name in MODELS]
    return report([*checks, ("bounds", lambda work: check_bounds(rankc, work)), ("vectors", lambda work: check_vectors(rankc, work))])


if __name__ == "__main__":
    sys.exit(main())
