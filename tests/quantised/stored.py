#!/usr/bin/python3
"""Where the small weights of --weight-dtype lie, and that ranks make the same ones.

    stored.py --rankc RANKC

A model of two products, a transposed one and a table, of 1.7 MB. With --weights reference the result has no file of weights: each rank
makes its own part as it loads the model, and never holds the model's. With --weights copy it has that part alone, and is run and verified
when the model is gone; a weight that is also read as it is stays whole. Both give the same bits, on one rank and two. Weights
that are not finite. Stacks of experts in copies of the model and in parts of it. Exit status 77 without NumPy or onnx."""
import json
import os
import pathlib
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, json_of, needed, outputs_of, parser_of  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

BITS = {"int4": 4 + 32 / 32, "int8:group=64": 8 + 32 / 64, "bf16": 16, "fp16": 16}  # of a weight, with its part of a scale
ROWS, K, N = 512, 256, 384
SHAPES = {"table": (ROWS, K), "a": (K, N), "b": (N, K), "c": (N, K), "whole": (N, N)}


def model(path, rows=ROWS):
    """y = relu(table[ids] a) b c' whole, and a sum over `whole` itself."""
    random, node = np.random.default_rng(1), helper.make_node
    weights = {name: random.standard_normal((rows,) + shape[1:] if name == "table" else shape).astype("f4") for name, shape in SHAPES.items()}
    nodes = [node("Gather", ["table", "ids"], ["x"]), node("MatMul", ["x", "a"], ["u"]), node("Relu", ["u"], ["v"]),
             node("MatMul", ["v", "b"], ["w"]), node("Transpose", ["c"], ["turned"], perm=[1, 0]), node("MatMul", ["w", "turned"], ["z"]),
             node("MatMul", ["z", "whole"], ["p"]), node("Add", ["whole", "one"], ["shifted"]), node("ReduceSum", ["shifted"], ["s"], keepdims=0),
             node("Add", ["p", "s"], ["y"])]
    values = [numpy_helper.from_array(value, name) for name, value in {**weights, "one": np.float32(1)}.items()]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 7])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 7, N])], values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def bytes_of(place):
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file() and "build" not in path.relative_to(place).parts)


def run(rankc, place, ids):
    call(rankc, "run", place, "--threads", 1, "--output-dir", place / "out", f"--input=ids={ids}")
    return outputs_of(place / "out")["y"]


def failures(rankc, kind, ranks, work):
    source, ids = work / "net.onnx", work / "ids.npy"
    model(source)
    np.save(ids, np.random.default_rng(2).integers(0, ROWS, (2, 7)))
    places = {weights: work / f"{weights}-{ranks}" for weights in ("reference", "copy")}
    for weights, place in places.items():
        call(rankc, "compile", source, "-o", place, "-q", "--weight-dtype", kind, "--weights", weights, "--pas", "tp", "--plan-ngpus", ranks)
    small = sum(rows * columns for rows, columns in SHAPES.values()) * BITS[kind] / 8
    size = bytes_of(places["reference"])
    if size > 64 << 10:
        yield f"the result refers to the model, and has {size} bytes"
    size = sum(path.stat().st_size for path in places["copy"].glob("*/*/weights/*"))
    if not 0 <= size - small - 4 * N * N <= 16 << 10:
        yield f"{size} bytes of weights are stored; smaller ones have {small}, beside one that stays"
    call(rankc, "verify", places["reference"])
    expected = run(rankc, places["reference"], ids)
    source.unlink()
    if not np.array_equal(run(rankc, places["copy"], ids), expected):
        yield "weights that are copied give other bits than those that are made at load"
    numeric = ["--numeric", f"--input=ids={ids}"] if ranks == 2 and kind in ("int4", "bf16") else []
    said = call(rankc, "verify", places["copy"], *numeric).stdout
    if numeric and "stored these alone" not in said:
        yield f"verify says: {said}"
    again = call(rankc, "compile", next(places["copy"].glob("*/*/graph.rir")), "-o", work / "again", "-q", status=None)
    if again.returncode != 3 or "[E0345]" not in again.stderr:
        yield f"the graph is compiled again without the weights: exit {again.returncode}: {again.stderr}"


def memory_failures(rankc, work):
    """The model's floats are not held while codes are made of them."""
    source, ids, rows = work / "large.onnx", work / "large.npy", 1 << 16
    model(source, rows)
    np.save(ids, np.zeros((2, 7), "i8"))
    call(rankc, "compile", source, "-o", work / "large", "-q", "--weight-dtype", "int4")
    held = json_of(rankc, "show", "--json", work / "large")["ranks"][0]["memory"]["peak"]
    most = json_of(rankc, "run", work / "large", "--threads", 1, "--json", f"--input=ids={ids}")["peak_rss"][0]
    if most - held > rows * K * 4 // 2:
        yield f"{most} bytes are resident, of which the plan has {held}; the table alone has {rows * K * 4} in the model"


def odd_failures(rankc, work):
    """Of a weight that is not finite no result is finite, and others are as they were, also of the largest f32."""
    a = np.random.default_rng(3).standard_normal((64, 6)).astype("f4")
    a[3, 2], a[40, 4] = np.inf, np.nan
    a[5, 0], a[9, 5] = np.finfo("f4").max, np.finfo("f4").min
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "a"], ["y"])], "net",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 6])], [numpy_helper.from_array(a, "a")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), work / "odd.onnx")
    np.save(work / "x.npy", np.ones((2, 64), "f4"))
    for kind in ("int4", "int8"):
        call(rankc, "compile", work / "odd.onnx", "-o", work / kind, "-q", "--weight-dtype", kind)
        call(rankc, "run", work / kind, "--output-dir", work / "out", f"--input=x={work / 'x.npy'}")
        finite = np.isfinite(outputs_of(work / "out")["y"])
        if not np.array_equal(finite, [[True, True, False, True, False, True]] * 2):
            yield f"{kind}: finite are {finite.tolist()}"
        said = call(rankc, "verify", work / kind, "--numeric", f"--input=x={work / 'x.npy'}").stdout
        if "nan" in said or "of 12 elements 4 are not finite" not in said:
            yield f"{kind}: verify says: {said}"


EXPERTS = {"dp": ["--runtime-ngpus", 2], "data": ["--pas", "data:data=2", "--plan-ngpus", 2], "tp": ["--pas", "tp", "--plan-ngpus", 2],
           "expert": ["--pas", "hybrid:expert=2", "--plan-ngpus", 2],
           "expert and tensor": ["--pas", "hybrid:expert=2,tensor=2", "--plan-ngpus", 4]}


def parts_of(place):
    """Of each rank the tensors that it dumped: name, values, and where they are in the whole."""
    for lines in sorted((place / "dump").glob("rank_*.jsonl")):
        for entry in map(json.loads, lines.read_text().splitlines()):
            at = tuple(slice(*ranges[0]) for ranges in entry["ranges"])
            yield lines.stem, entry["name"], np.load(place / "dump" / entry["file"]), at


def experts_failures(rankc, work):
    """Codes and scales of a stack of experts: every rank has those of the whole, in copies and in parts, read or received."""
    random, source = np.random.default_rng(5), work / "experts.onnx"
    weights = {"up": random.standard_normal((4, 96, 64)).astype("f4"), "down": random.standard_normal((4, 64, 96)).astype("f4")}
    inputs = {"x": random.standard_normal((8, 64)).astype("f4"), "scores": random.standard_normal((8, 4)).astype("f4")}
    node = helper.make_node("MoE", ["x", "scores", "up", "", "down"], ["y"], domain="com.microsoft", activation_type="silu", k=2)
    graph = helper.make_graph([node], "net", [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in inputs.items()],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 64])],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8), source)
    given = [f"--input={name}={work / name}.npy" for name in inputs]
    for name, value in inputs.items():
        np.save(work / f"{name}.npy", value)
    for kind in ("int4", "int8"):
        whole = {}
        for plan, options in {"one": [], **EXPERTS}.items():
            place = work / f"experts-{kind}-{plan.replace(' ', '-')}"
            call(rankc, "compile", source, "-o", place, "-q", "--weight-dtype", kind, *options)
            for more in ([], ["--broadcast-weights"]) if plan == "dp" else ([],):
                call(rankc, "run", place, *given, "--dump-tensors", "*.*", "--dump-dir", place / "dump", *more)
                found = [part for part in parts_of(place) if part[1].startswith(("up.", "down."))]
                whole = whole or {name: values for _, name, values, _ in found}
                if len(found) != 4 * (options[-1] if options else 1) or len(whole) != 4:
                    yield f"experts in {kind}, {plan}: tensors are {[part[:2] for part in found]}"
                if "expert" in plan and any(len(values) == len(whole[name]) for _, name, values, _ in found):
                    yield f"experts in {kind}, {plan}: ranks have all experts"
                yield from (f"experts in {kind}, {plan} {more}: {rank} has another part of {name}"
                            for rank, name, values, at in found if not np.array_equal(values, whole[name][at]))


def main():
    args, failed = parser_of(__doc__).parse_args(), []
    os.environ["CFLAGS"] = "-O1"
    with tempfile.TemporaryDirectory(prefix="rankc-stored-") as directory:
        for kind in BITS:
            for ranks in (1, 2) if kind == "int4" else (2,):
                work = pathlib.Path(directory, f"{kind.partition(':')[0]}-{ranks}")
                work.mkdir()
                failed += [f"{kind}, ranks {ranks}: {failure}" for failure in failures(args.rankc, kind, ranks, work)]
        failed += memory_failures(args.rankc, pathlib.Path(directory))
        failed += odd_failures(args.rankc, pathlib.Path(directory))
        failed += experts_failures(args.rankc, pathlib.Path(directory))
    print("\n".join(failed) or f"{len(BITS)} types")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
