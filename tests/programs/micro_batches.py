#!/usr/bin/python3
"""Inference of several micro-batches (--accumulate), on one rank and on several, against NumPy: micro_batches.py --rankc RANKC [--target c|cuda]

Stage by stage, the model has what a pipeline must handle: an output of an early stage, an input that a late stage reads, a value that
skips a stage, an input without dimensions, and an output that is an input."""
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from rankc_plans import plan_of  # noqa: E402
from rankc_test import call, needed, parser_of  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

BATCH, WIDTH, LAYERS, MOST = 4, 24, 6, 9
# policy, micro-batches, further options
PLANS = [("one", 3), ("pp2", 1), ("pp2", 2), ("pp2", 8), ("pp3", 4, "--schedule", "inference"), ("tp2", 3), ("tp2pp2", 4), ("data2pp2", MOST),
         ("pp4", MOST), ("pp2dp2", 3)]
VERIFIED = [("tp2pp2", 4)]
WRONG = [(("--schedule", "1f1b"), 2, "--schedule needs --train"), (("--accumulate", "0"), 2, "--accumulate")]


def make(path):
    """A chain of layers y = tanh(y W + late), whose third layer is added to the last; gives the weights."""
    rng = np.random.default_rng(0)
    weights = [(rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32) for _ in range(LAYERS)]
    value = lambda name, *shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    nodes, y = [], "x"
    for i in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [y, f"w{i}"], [f"p{i}"]))
        if i == LAYERS - 1:
            nodes += [helper.make_node("Add", ["p5", "late"], ["q"]), helper.make_node("Add", ["q", "t2"], ["r"]),
                      helper.make_node("Mul", ["r", "scale"], ["y"])]
        else:
            nodes.append(helper.make_node("Tanh", [f"p{i}"], [f"t{i}"]))
            y = f"t{i}"
    graph = helper.make_graph(nodes, "chain", [value("x", BATCH, WIDTH), value("late", BATCH, WIDTH), value("scale")],
                              [value("y", BATCH, WIDTH), value("t0", BATCH, WIDTH), value("late", BATCH, WIDTH)],
                              [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return weights


def reference(weights, inputs):
    y, kept = inputs["x"].astype(np.float64), []
    for w in weights:
        y = y @ w
        kept.append(np.tanh(y))
        y = kept[-1] if len(kept) < LAYERS else y
    return {"y": (y + inputs["late"] + kept[2]) * inputs["scale"], "t0": kept[0], "late": inputs["late"]}


class Check:
    def __init__(self, rankc, target, work):
        self.rankc, self.target, self.work, self.failed = rankc, target, work, 0

    def call(self, *command):
        return call(self.rankc, *command, status=None, cwd=self.work)

    def expect(self, right, what):
        self.failed += not right
        if not right:
            print(f"FAILED: {what}")

    def run(self, weights, inputs, plan, micro, *options):
        """Compiles, verifies and runs the plan; a step is repeated, since slots are used again."""
        name = f"{plan}, {micro} micro-batches"
        done = self.call("compile", "chain.onnx", *plan_of(plan).options, "--accumulate", micro, *options, "-o", "out", "-q", "--reuse=override",
                         "--target", self.target)
        self.expect(not done.returncode, f"{name}: compile\n{done.stderr[:600]}")
        if done.returncode:
            return
        for given, values in inputs.items():
            np.save(self.work / f"{given}.npy", values[:BATCH * micro] if values.ndim else values)
        done = self.call("run", "out", *(word for given in inputs for word in ("--input", f"{given}={given}.npy")), "--output-dir", "result",
                         "--threads", "1", "--repeat", "3", *(["--comm", "loopback"] if self.target == "c" else []))
        self.expect(not done.returncode, f"{name}: run\n{done.stderr[:600]}")
        if done.returncode:
            return
        for output, wanted in reference(weights, {k: v[:BATCH * micro] if v.ndim else v for k, v in inputs.items()}).items():
            got = np.load(self.work / "result" / f"{output}.npy")
            near = got.shape == wanted.shape and np.abs(got - wanted).max() < 1e-5 * max(1, np.abs(wanted).max())
            self.expect(near, f"{name}: output {output} {got.shape}")
        for options in [[], ["--numeric"]] if (plan, micro) in VERIFIED else []:
            done = self.call("verify", "out", *options)
            self.expect(not done.returncode, f"{name}: verify {options}\n{done.stderr[:600]}")
        print(f"{name}: {plan_of(plan).world} ranks")

    def schedule(self):
        """`show` and the formula: of m micro-batches on p stages, p - 1 of m + p - 1 are waited for if stages take equally long."""
        done = self.call("show", "chain.onnx", "--pas", "pp:pipeline=2", "--plan-ngpus", "2", "--accumulate", "4")
        self.expect("schedule inference, 4 micro-batches" in done.stdout, f"show\n{done.stdout}{done.stderr}")
        lines = [line.partition("| ")[2] for line in done.stdout.splitlines() if " | 0  1  2  3" in line or " |    0  1  2  3" in line]
        self.expect(len(lines) == 2, f"timeline\n{done.stdout}")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--target", default="c")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        check = Check(args.rankc, args.target, Path(scratch))
        weights = make(check.work / "chain.onnx")
        rng = np.random.default_rng(1)
        inputs = {name: rng.standard_normal((BATCH * MOST, WIDTH)).astype(np.float32) for name in ("x", "late")}
        inputs["scale"] = np.float32(1.5).reshape(())
        for plan in PLANS:
            check.run(weights, inputs, *plan)
        check.schedule()
        for options, code, text in WRONG:
            done = check.call("compile", "chain.onnx", *options, "-o", "wrong")
            check.expect(done.returncode == code and text in done.stderr, f"{options}: exit {done.returncode}\n{done.stderr}")
    return check.failed > 0


sys.exit(main())
