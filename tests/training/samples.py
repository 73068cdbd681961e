#!/usr/bin/python3
"""Inputs that are the same for all samples: found in the graph, read once, and never shuffled.

    samples.py --rankc RANKC [CHECK...]

  found      by what runs along the batch, not by sizes that happen to be equal; --shared decides otherwise
  trained    losses are those of the samples, whatever the order, the plan, and the number of copies in the file
  single     of a batch of one sample, a file of one sample is that of all
  refused    files that have not the shape, or tensors that differ; names of no input
  inferred   --accumulate takes the input once
  empty      an input without elements needs no file"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import harness
from harness import call, expect, lines_of, manifest_of, parser_of, report

BATCH, WIDTH, SAMPLES = 2, 8, 16
RANDOM = np.random.default_rng(1)
WEIGHT = RANDOM.standard_normal((WIDTH, WIDTH)).astype("f4")


def write_model(path, inputs, nodes, result="mean"):
    """Inputs: (name, shape); weight w."""
    graph = helper.make_graph(
        [helper.make_node(op, names[1:], names[:1], **attributes) for op, names, attributes in nodes], "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)], [numpy_helper.from_array(WEIGHT, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)


MEAN = [("Mul", ["square", "y", "y"], {}), ("ReduceMean", ["mean", "square"], {"keepdims": 0})]
PRODUCT = [("MatMul", ["h", "x", "w"], {}), ("MatMul", ["y", "h", "m"], {}), *MEAN]
ADDED = [("MatMul", ["h", "x", "w"], {}), ("Add", ["y", "h", "m"], {}), *MEAN]
SCORES = [("MatMul", ["k", "x", "w"], {}), ("Transpose", ["t", "k"], {"perm": [0, 2, 1]}), ("MatMul", ["s", "x", "t"], {}),
          ("Add", ["y", "s", "m"], {}), *MEAN]
X = ("x", [BATCH, WIDTH])
SEQUENCES = ("x", [4, 4, WIDTH])
# Inputs, nodes, and the inputs that are the same for all samples.
FOUND = {
    "matrix": ([X, ("m", [WIDTH, WIDTH])], PRODUCT, ["m"]),
    "matrix first": ([("m", [WIDTH, WIDTH]), X], PRODUCT, ["m"]),
    "matrix of the batch's size": ([("x", [WIDTH, WIDTH]), ("m", [WIDTH, WIDTH])], PRODUCT, ["m"]),
    "positions": ([X, ("m", [1, WIDTH])], ADDED, ["m"]),
    "row": ([X, ("m", [WIDTH])], ADDED, ["m"]),
    "scalar": ([X, ("m", [])], ADDED, ["m"]),
    "of each sample": ([X, ("m", [BATCH, WIDTH])], ADDED, []),
    "number of each sample": ([X, ("m", [BATCH, 1])], ADDED, []),
    "mask": ([SEQUENCES, ("m", [4, 4])], SCORES, ["m"]),
    "mask of each sample": ([SEQUENCES, ("m", [4, 4, 4])], SCORES, []),
    "two rows of a sample": ([X, ("z", [2 * BATCH, WIDTH])],
                             [("ReduceMean", ["a", "x"], {"keepdims": 0}), ("MatMul", ["y", "z", "w"], {}), *MEAN[:1],
                              ("ReduceMean", ["b", "square"], {"keepdims": 0}), ("Add", ["mean", "a", "b"], {})], []),
}


class Bench(harness.Bench):
    def array(self, name, values):
        np.save(self.path(name), values)
        return self.path(name)

    def compile(self, case, *options, status=0):
        write_model(self.path("net.onnx"), *FOUND[case][:2])
        return call(self.rankc, "compile", self.path("net.onnx"), "-o", self.path("out"), "--reuse", "override", *options,
                    status=status).stderr

    def shared(self):
        return [port["name"] for port in manifest_of(self.path("out"))["inputs"] if port.get("shared")]

    def train(self, x, m, *options, status=0):
        """The losses of an epoch, or the error."""
        log = self.path("log.jsonl")
        done = call(self.rankc, "train", self.path("out"), "--data", f"x={x}", "--data", f"m={m}", "--steps", str(SAMPLES // BATCH),
                    "--threads", "1", "--log", log, *options, status=status)
        return done.stderr if status else [line["loss"] for line in lines_of(log) if "loss" in line]


def check_found(bench):
    for name, (_, _, shared) in FOUND.items():
        said = bench.compile(name, "--train", "--no-build")
        expect(bench.shared() == shared, f"{name}: {bench.shared()}")
        expect(("the same for all samples: 'm'" in said) == bool(shared), f"{name}: {said}")
    for given, expected in (("none", []), ("x", ["x"])):
        said = bench.compile("matrix", "--train", "--no-build", "--shared", given)
        expect(bench.shared() == expected and "same for all" not in said, f"--shared {given}: {bench.shared()} {said}")
    return f"{len(FOUND)} graphs"


def check_trained(bench):
    x, m = RANDOM.standard_normal((SAMPLES, WIDTH)).astype("f4"), RANDOM.standard_normal((WIDTH, WIDTH)).astype("f4")
    of_sample = ((x.astype("f8") @ WEIGHT @ m) ** 2).mean(1)
    files = bench.array("x.npy", x), [bench.array("once.npy", m), bench.array("copies.npy", np.tile(m, (5, 1)))]
    for plan in (["--pas", "dp"], ["--pas", "data", "--plan-ngpus", "2"]):
        bench.compile("matrix", "-q", "--train", "--optimizer", "sgd:lr=0", *plan)
        for file in files[1]:
            plain = bench.train(files[0], file)
            expect(np.allclose(plain, of_sample.reshape(-1, BATCH).mean(1), rtol=1e-5), f"{plan} {file}: {plain}")
            shuffled = bench.train(files[0], file, "--shuffle", "3")
            expect(np.isclose(np.mean(shuffled), of_sample.mean(), rtol=1e-5) and shuffled != plain, f"{plan} {file}: {shuffled}")
        evaluated = [*files, "--eval-data", f"x={files[0]}", "--eval-data", f"m={files[1][0]}", "--shuffle", "3"]
        bench.train(files[0], files[1][0], *evaluated[2:])
        loss = lines_of(bench.path("log.jsonl"))[-1]["eval_loss"]
        expect(np.isclose(loss, of_sample.mean(), rtol=1e-5), f"{plan}: evaluation {loss}")
    return "the samples' losses"


def check_single(bench):
    x, m = RANDOM.standard_normal((SAMPLES, WIDTH)).astype("f4"), RANDOM.standard_normal((1, WIDTH)).astype("f4")
    FOUND["single"] = ([("x", [1, WIDTH]), ("m", [1, WIDTH])], ADDED, [])
    bench.compile("single", "-q", "--train", "--optimizer", "sgd:lr=0")
    files = bench.array("x.npy", x), bench.array("m.npy", m)
    losses = bench.train(*files, "--shuffle", "3")
    of_sample = ((x.astype("f8") @ WEIGHT + m) ** 2).mean(1)
    expect(all(np.isclose(of_sample, loss, rtol=1e-5).any() for loss in losses), f"{losses}")
    said = call(bench.rankc, "train", bench.path("out"), "--data", f"x={files[0]}", "--data", f"m={files[1]}", "--threads", "1").stderr
    expect("'m' has one sample, which is taken for all 16" in said, said)
    return "taken for all"


def check_refused(bench):
    x, m = RANDOM.standard_normal((SAMPLES, WIDTH)).astype("f4"), RANDOM.standard_normal((WIDTH, WIDTH)).astype("f4")
    bench.compile("matrix", "-q", "--train")
    file = bench.array("x.npy", x)
    for values, text in ((np.concatenate([m, m + 1]), "several tensors that differ"), (m[:4], "has the shape [4, 8], but the input, the same for all samples, has [8, 8]"),
                         (m[None], "has the shape [1, 8, 8], but")):
        said = bench.train(file, bench.array("m.npy", values), status=3)
        expect(text in said, said)
    said = bench.train(bench.array("narrow.npy", x[:, :5]), bench.array("m.npy", m), status=3)
    expect("has samples of the shape [5], but those of the input have [8]" in said, said)
    FOUND["uneven"] = ([X, ("m", [BATCH + 1, WIDTH])], [(op, [n.replace("z", "m") for n in names], a) for op, names, a in
                                                       FOUND["two rows of a sample"][1]], [])
    bench.compile("uneven", "-q", "--train", "--shared", "none")
    said = bench.train(file, file, status=2)
    expect("E0200" in said and "input 'm' has no batch dimension: compile with --bind m=FILE" in said, said)
    bench.compile("row", "-q", "--train")
    said = call(bench.rankc, "train", bench.path("out"), "--data", f"x={file}", "--threads", "1", status=2).stderr
    expect("needs --data m=FILE (f32 [8]), or --bind of compile" in said, said)
    said = bench.compile("matrix", "-q", "--train", "--shared", "mask", status=2)
    expect("the model has no input 'mask'" in said, said)
    return "as said"


def check_inferred(bench):
    x, m = RANDOM.standard_normal((2 * BATCH, WIDTH)).astype("f4"), RANDOM.standard_normal((WIDTH, WIDTH)).astype("f4")
    FOUND["inferred"] = ([X, ("m", [WIDTH, WIDTH])], PRODUCT[:2], ["m"])
    write_model(bench.path("net.onnx"), *FOUND["inferred"][:2], result="y")
    call(bench.rankc, "compile", bench.path("net.onnx"), "-o", bench.path("out"), "-q", "--accumulate", "2")
    call(bench.rankc, "run", bench.path("out"), "--input", f"x={bench.array('x.npy', x)}", "--input",
         f"m={bench.array('m.npy', m)}", "--output-dir", bench.path("y"), "-q")
    found = np.load(bench.path("y/y.npy"))
    expect(np.allclose(found, x @ WEIGHT @ m, rtol=1e-4, atol=1e-5), f"{found}")
    return "once"


def check_empty(bench):
    x = RANDOM.standard_normal((SAMPLES, WIDTH)).astype("f4")
    FOUND["empty"] = ([X, ("m", [BATCH, 0])], [("Concat", ["h", "m", "x"], {"axis": 1}), ("MatMul", ["y", "h", "w"], {}), *MEAN], [])
    bench.compile("empty", "-q", "--train", "--optimizer", "sgd:lr=0")
    log, own, given = bench.path("log.jsonl"), f"x={bench.array('x.npy', x)}", f"m={bench.array('m.npy', np.zeros((SAMPLES, 0), 'f4'))}"
    for words in ((), ("--data", given)):
        call(bench.rankc, "train", bench.path("out"), "--data", own, *words, "--steps", SAMPLES // BATCH, "--threads", "1", "--log", log,
             "--eval-data", own)
        losses = [line["loss"] for line in lines_of(log) if "loss" in line]
        expect(np.allclose(losses, ((x.astype("f8") @ WEIGHT) ** 2).mean(1).reshape(-1, BATCH).mean(1), rtol=1e-5), f"{words}: {losses}")
    return "no file"


CHECKS = {name[6:]: check for name, check in list(globals().items()) if name.startswith("check_")}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("checks", nargs="*", default=list(CHECKS))
    options = parser.parse_args()
    return report((name, lambda work, name=name: CHECKS[name](Bench(options.rankc, work))) for name in options.checks)


if __name__ == "__main__":
    sys.exit(main())
