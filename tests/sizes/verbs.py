#!/usr/bin/env python3
"""The verbs of a program with open sizes: verify --numeric at sizes that are given, dumps that are compared at sizes of a
run, and a model that is run by its file name, whose program in the cache serves calls of other sizes. Plans that divide a
sequence of open length are run at several, and their sums are ONNX Runtime's.

    verbs.py --rankc RANKC"""
import os
import shutil
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import SAMPLES, call, expect, json_of, needed, outputs_of, rankc_of, report  # noqa: E402

from embedded import FOURS, SUMS, VOCABULARY, tokens  # noqa: E402

with needed():
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

MODEL = os.path.join(SAMPLES, "llama_any.onnx")
# plan, bounds of the batch, sizes of --dim: those that are checked
PLANS = {
    "tensor, data": (["--pas", "hybrid:tensor=2,data=2"], "2..4:2", ["seq=1", "seq=33", "batch=2"]),
    "pipeline, micro-batches": (["--pas", "pp", "--plan-ngpus", "2", "--accumulate", "2"], "1..4", ["batch=3", "seq=7"]),
    "copied weights": (["--pas", "tp", "--plan-ngpus", "2", "--weights", "copy"], "1..2", ["batch=2", "seq=5"]),
}


def compiled(rankc, out, pas, *sizes):
    call(rankc, "compile", MODEL, *pas, "-o", out, "-q", *(word for size in sizes for word in ("--dim", size)))
    return out


def check_plan(rankc, work, name):
    pas, batch, sizes = PLANS[name]
    out = compiled(rankc, os.path.join(work, name.replace(", ", "-")), pas, f"batch={batch}", "seq=1..64@16")
    said = call(rankc, "verify", out, "--numeric", "-v", *(word for size in sizes for word in ("--dim", size))).stderr
    sets = [line for line in said.split("\n") if "sizes 'batch'=" in line]
    repeated = max(sum(size.startswith(name) for size in sizes) for name in ("batch", "seq"))
    expect(len(sets) == repeated, f"{len(sets)} sets of sizes: {said}")
    for size in sizes:
        name, value = size.split("=")
        expect(any(f"'{name}'={value}" in line for line in sets), f"not checked at {size}: {said}")
    return f"{len(sets)} sets of sizes"


# plans whose ranks have equal parts of the sequence at all its lengths
DIVIDED = {
    "context, mirrored": ["--pas", "hybrid:context=2,cut=mirrored"],
    "heads": ["--pas", "hybrid:context=2,attention=heads"],
    "ring": ["--pas", "hybrid:context=2,attention=ring", "--attention", "flash"],
    "ring, mirrored": ["--pas", "hybrid:context=2,attention=ring,cut=mirrored", "--attention", "flash"],
    "ring, tensor": ["--pas", "hybrid:tensor=2,context=2,attention=ring", "--attention", "flash", "--sequence-parallel"],
}


def check_divided(rankc, work, name):
    out = compiled(rankc, os.path.join(work, name.replace(", ", "-")), DIVIDED[name], "batch=1..4", "seq=4..64:4")
    for sizes, total in FOURS.items():
        results = os.path.join(work, "out")
        call(rankc, "run", out, "--input", f"input_ids={saved(work, *sizes)}", "--output-dir", results)
        found = float(outputs_of(results)["logits"].astype("f8").sum())
        expect(abs(found - total) <= 1e-4 * max(abs(total), 1), f"{name}, {sizes}: {found}, not {total}")
    call(rankc, "verify", out, "--numeric", "--dim", "batch=3", "--dim", "seq=20")
    expect(("ring" in name) == (" ring " in call(rankc, "show", out).stdout), f"{name}: keys are gathered, or stay divided")
    return f"{len(FOURS)} sizes"


def saved(work, batch, seq):
    path = os.path.join(work, f"{batch}x{seq}.npy")
    numpy.save(path, tokens(batch, seq))
    return path


def check_by_name(rankc, work):
    """A second call has other sizes and the same program; a third is beyond its bounds, and what it gets serves both."""
    cache, out = os.path.join(work, "cache"), os.path.join(work, "out")
    os.mkdir(cache)
    for sizes, made in (((2, 5), "batch=1..8, seq=1..8"), ((1, 2), None), ((3, 17), "batch=1..8, seq=1..32"), ((2, 5), None)):
        said = call(rankc, "run", MODEL, "--input", f"input_ids={saved(work, *sizes)}", "--output-dir", out,
                    env={"XDG_CACHE_HOME": cache}).stderr
        expect(f"compiled for all sizes of {made}" in said if made else "compiled" not in said, f"{sizes}: {said}")
        found = outputs_of(out)["logits"]
        expect(found.shape == (*sizes, VOCABULARY), f"{sizes}: {found.shape}")
        total = float(found.astype("f8").sum())
        expect(abs(total - SUMS[sizes]) <= 1e-4 * max(abs(SUMS[sizes]), 1), f"{sizes}: {total}, not {SUMS[sizes]}")
    return "4 calls, 2 compiles"


def check_dumps(rankc, work):
    """Values of one rank and of two are compared at the sizes of a run, which are not those of the bound. Inputs are made of
    the sizes of --dim."""
    dumps = []
    for name, pas in (("one", []), ("two", ["--pas", "tp", "--plan-ngpus", "2"])):
        out = compiled(rankc, os.path.join(work, f"dump-{name}"), pas, "batch=1..4", "seq=1..64")
        dumps.append(os.path.join(work, f"values-{name}"))
        call(rankc, "run", out, "--input", f"input_ids={saved(work, 3, 5)}", "--dump-tensors=*", "--dump-dir", dumps[-1],
             "--output-dir", os.path.join(work, "out"))
    made = os.path.join(work, "made")
    call(rankc, "run", os.path.join(work, "dump-two"), "--random-inputs=1", "--dim", "seq=7", "--output-dir", made)
    expect(outputs_of(made)["logits"].shape == (4, 7, VOCABULARY), "inputs are made of other sizes than --dim says")
    numpy.save(os.path.join(work, "flat.npy"), tokens(1, 5)[0])
    for words, status in ([f"--input=input_ids={work}/flat.npy"], 3), ([], 2):
        said = call(rankc, "run", os.path.join(work, "dump-two"), *words, status=status).stderr
        expect("[batch, seq]" in said, said)
    said = call(rankc, "run", os.path.join(work, "dump-two"), "--random-inputs=1", "--dim", "seq=65", status=2).stderr
    expect("seq is 1 to 64, not '65'" in said, said)
    said = call(rankc, "compare", *dumps).stdout
    expect("0 of " in said and "tensors differ" in said, said)
    return said.strip().split("\n")[-1]


def check_touched(rankc, work):
    """A run of smaller sizes touches less, and none more than is planned: of the smallest hardly anything, at the bound nearly all."""
    out = os.path.join(work, "shown")
    call(rankc, "compile", MODEL, "--dim", "batch=1..4", "--dim", "seq=1..2048", "--pas", "tp", "--plan-ngpus", "2", "-o", out,
         "-q", "--no-build")
    before = None
    for sizes in (["batch=4", "seq=2048"], ["seq=1024"], ["batch=1", "seq=1024"], ["batch=1", "seq=1"]):
        for rank in json_of(rankc, "show", out, "--json", *(word for size in sizes for word in ("--dim", size)))["ranks"]:
            planned, touched = rank["memory"], rank["touched"]
            expect(touched["weights"] == planned["weights"], f"{sizes}: {rank}")
            expect(all(touched[kind] <= planned[kind] for kind in planned), f"{sizes}: {rank}")
        if before is None:
            expect(touched["activations"] > 0.9 * planned["activations"], f"at the bound: {rank}")
        else:
            expect(touched["activations"] < 0.8 * before, f"{sizes}: {touched['activations']} of {before}")
        before = touched["activations"]
    expect(before < 0.01 * planned["activations"], f"at the least sizes: {rank}")
    return f"{before} bytes of {planned['activations']} at the least sizes"


def saved_model(work, nodes, inputs, outputs):
    """A model without weights; inputs: name -> (type, shape)."""
    path = os.path.join(work, "model.onnx")
    ports = [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    constants = [numpy_helper.from_array(numpy.ones(8, "f4"), "eight")]
    graph = helper.make_graph([helper.make_node(*node, **more) for node, more in nodes], "model", ports, results, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    return path


def check_parts(rankc, work):
    """Three parts of an open dimension, the last of which may have no element, and a loss over open classes, by NumPy."""
    nodes = [(("Split", ["x"], ["a", "b", "c"]), {"axis": 0, "num_outputs": 3}),
             (("NegativeLogLikelihoodLoss", ["x", "t"], ["loss"]), {"reduction": "mean"})]
    inputs = {"x": (TensorProto.FLOAT, ["n", "classes"]), "t": (TensorProto.INT64, ["n"])}
    path, out = saved_model(work, nodes, inputs, ["a", "b", "c", "loss"]), os.path.join(work, "parts")
    call(rankc, "compile", path, "-o", out, "-q", "--dim", "n=2..13", "--dim", "classes=1..9")
    for n, classes in ((2, 1), (13, 9), (7, 4), (4, 9)):
        random = numpy.random.default_rng(n)
        x, t = random.integers(-8, 9, (n, classes)).astype("f4"), random.integers(0, classes, n)
        numpy.save(os.path.join(work, "x.npy"), x)
        numpy.save(os.path.join(work, "t.npy"), t)
        call(rankc, "run", out, *(word for name in "xt" for word in ("--input", f"{name}={work}/{name}.npy")), "--output-dir", f"{work}/got")
        found, share = outputs_of(f"{work}/got"), -(-n // 3)
        for name, part in zip("abc", (x[:share], x[share:2 * share], x[2 * share:])):
            expect(numpy.array_equal(found[name], part), f"{name} at {n}: {found[name]}")
        wanted = -x[numpy.arange(n), t].astype("f8").sum() / n
        expect(abs(found["loss"] - wanted) <= 4 * numpy.finfo("f4").eps * abs(wanted), f"loss at {n}: {found['loss']}, not {wanted}")
    return "at 4 sizes"


def constant(name, values):
    return ("Constant", [], [name]), {"value": numpy_helper.from_array(numpy.array(values), "")}


def check_slice(rankc, work):
    """Elements before the eleventh, from the last one on: none of up to eleven; by NumPy."""
    nodes = [constant("start", [2 ** 31 - 1]), constant("end", [10]), constant("axis", [0]), constant("step", [-1]),
             (("Slice", ["x", "start", "end", "axis", "step"], ["y"]), {})]
    path, out = saved_model(work, nodes, {"x": (TensorProto.FLOAT, ["n"])}, ["y"]), os.path.join(work, "slice")
    call(rankc, "compile", path, "-o", out, "-q", "--dim", "n=1..13")
    for n in (1, 11, 12, 13):
        x = numpy.arange(n, dtype="f4")
        numpy.save(os.path.join(work, "x.npy"), x)
        call(rankc, "run", out, "--input", f"x={work}/x.npy", "--output-dir", f"{work}/got")
        found = outputs_of(f"{work}/got")["y"]
        expect(numpy.array_equal(found, x[:10:-1]), f"at {n}: {found}")
    return "at 4 sizes"


TABLE = numpy.arange(32, dtype="f4").reshape(16, 2)


def rows_of_table():
    """Rows past .. past + seq of the table, added to x."""
    sizes = [(("Shape", [of], [name]), {"start": 0, "end": 1}) for name, of in (("past", "cache"), ("seq", "x"))]
    return [*sizes, (("Add", ["past", "seq"], ["end"]), {}), constant("table", TABLE),
            (("Slice", ["table", "past", "end"], ["added"]), {}), (("Add", ["x", "added"], ["y"]), {})]


def check_limit(rankc, work):
    """As many rows that are there and new ones as a table has, for both: each may be all of them, their sum may not be more; by
    NumPy."""
    ports = {"x": (TensorProto.FLOAT, ["seq", 2]), "cache": (TensorProto.FLOAT, ["past", 2])}
    path, out, got = saved_model(work, rows_of_table(), ports, ["y"]), os.path.join(work, "limit"), os.path.join(work, "got")
    said = call(rankc, "compile", path, "-o", out, "-v", "--dim", "past=0..16", "--dim", "seq=1..16").stderr
    expect("past + seq is at most 16" in said, said)
    call(rankc, "verify", out)
    for past, seq, fits in ((0, 16, True), (12, 4, True), (15, 1, True), (3, 7, True), (10, 7, False), (16, 16, False)):
        shutil.rmtree(got, ignore_errors=True)
        x = numpy.arange(2 * seq, dtype="f4").reshape(seq, 2)
        numpy.save(os.path.join(work, "x.npy"), x)
        numpy.save(os.path.join(work, "cache.npy"), numpy.zeros((past, 2), "f4"))
        words = [word for name in ("x", "cache") for word in ("--input", f"{name}={work}/{name}.npy")]
        said = call(rankc, "run", out, *words, "--output-dir", got, status=0 if fits else 3).stderr
        if fits:
            expect(numpy.array_equal(outputs_of(got)["y"], x + TABLE[past:past + seq]), f"at {past}, {seq}")
        else:
            expect(f"past + seq is {past + seq}, but may be at most 16" in said and not os.path.exists(got), said)
    found = call(rankc, "run", out, "--random-inputs=1", "--output-dir", got)
    expect(outputs_of(got)["y"].shape == (16, 2), f"inputs that are made exceed the limit: {found.stderr}")
    return "at 6 sizes"


def check_refusals(rankc, work):
    """What fits for some sizes alone is refused, and for which it does."""
    number = (TensorProto.FLOAT, ["n"])
    batches = constant("index", numpy.zeros((3, 4, 1), "i8"))
    cases = {"Add": ([(("Add", ["x", "eight"], ["y"]), {})], {"x": number}, ["n=1..13"], "n=8"),
             "Reshape": ([(("Shape", ["eight"], ["shape"]), {}), (("Reshape", ["x", "shape"], ["y"]), {})], {"x": number}, ["n=1..13"], "n=8"),
             "Squeeze": ([(("Squeeze", ["x"], ["y"]), {})], {"x": number}, ["n=1..13"], "n=2..13"),
             "GatherND": ([batches, (("GatherND", ["x", "index"], ["y"]), {"batch_dims": 1})], {"x": (TensorProto.FLOAT, ["n", 2])}, ["n=1..13"],
                          "n=3"),
             "table": (rows_of_table(), {"x": (TensorProto.FLOAT, ["seq", 2]), "cache": (TensorProto.FLOAT, [4, 2])}, ["seq=1..32"], "seq=1..12"),
             "MaxPool": ([(("MaxPool", ["x"], ["y"]), {"kernel_shape": [3]})], {"x": (TensorProto.FLOAT, [1, 1, "n"])}, ["n=1..13"],
                         "n=3..13")}
    for name, (nodes, inputs, dims, wanted) in cases.items():
        path = saved_model(work, nodes, inputs, ["y"])
        options = [word for dim in dims for word in ("--dim", dim)]
        said = call(rankc, "compile", path, "-o", f"{work}/refused", "-q", *options, status=4).stderr
        expect("E0439" in said and said.strip().endswith(f"for --dim {wanted}"), f"{name}: {said}")
        others = [dim for dim in dims if dim.split("=")[0] != wanted.split("=")[0]]
        call(rankc, "compile", path, "-o", f"{work}/{name}", "-q", *(word for dim in [*others, wanted] for word in ("--dim", dim)))
    return f"{len(cases)} cases"


def main():
    rankc = rankc_of(__doc__)
    return report([(f"verify --numeric, {name}", lambda work, name=name: check_plan(rankc, work, name)) for name in PLANS] +
                  [(f"a divided sequence, {name}", lambda work, name=name: check_divided(rankc, work, name)) for name in DIVIDED] +
                  [("run by file name", lambda work: check_by_name(rankc, work)), ("dumps", lambda work: check_dumps(rankc, work)), ("touched", lambda work: check_touched(rankc, work)),
                   ("parts", lambda work: check_parts(rankc, work)), ("limit", lambda work: check_limit(rankc, work)), ("slice", lambda work: check_slice(rankc, work)), ("refusals", lambda work: check_refusals(rankc, work))])


if __name__ == "__main__":
    sys.exit(main())
