#!/usr/bin/env python3
"""`rankc verify --numeric` accepts what two ranks compute in every float type, and refuses the same outputs with one element off.

    numeric.py --rankc RANKC --small MODEL_DIR [--trained MODEL.onnx] MODEL_DIR[=DTYPE,..]...    directories of tests/models; default: every type

Likewise for a program that trains in pipeline stages, of which the last one alone computes the loss."""
import os
import stat
import sys
import tempfile
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import call, dims_of, needed, outputs_of, parser_of  # noqa: E402

with needed():
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

DTYPES = ["f32", "f64", "bf16", "fp16"]

# Takes the program's place: runs it, then negates the largest element of the first output that rank 0 wrote.
SPOILER = """#!{python} -B
import json, os, subprocess, sys
import numpy as np
real = os.path.join(os.path.dirname(os.path.abspath(__file__)), "real")
code = subprocess.run([real, *sys.argv[1:]], close_fds=False).returncode
out = sys.argv[sys.argv.index("--output-dir") + 1]
if code == 0 and sys.argv[sys.argv.index("--rank") + 1] == "0":
    path = os.path.join(out, json.load(open(os.path.join(out, "outputs.json")))["outputs"][0]["file"])
    value = np.load(path)
    flat = value.reshape(-1)
    if value.dtype.kind == "f":
        flat[np.argmax(np.abs(flat))] *= -1
    else:  # bf16: its sign is the highest bit
        bits = flat.view(np.uint16)
        bits[np.argmax(bits & 0x7FFF)] ^= 0x8000
    np.save(path, value)
sys.exit(code)
"""


def inference(model, dtype):
    """Arguments of compile."""
    return [str(model / "model.onnx"), "--pas", "tp:tensor=2", "--dtype", dtype, *dims_of(model)]


def small(model, weights):
    """With weights of that --weight-dtype."""
    return [*inference(model, "f32"), "--weight-dtype", weights]


def training(model):
    return [model, "--train", "--optimizer", "sgd:lr=0.1", "--pas", "pp:pipeline=2", "--accumulate", "2"]


def verify(rankc, out):
    return call(rankc, "verify", out, "--numeric", "-q", status=None)


def spoil(out):
    program = next(Path(out).glob("*/*/build/run"))
    program.rename(program.parent / "real")
    program.write_text(SPOILER.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def loss(rankc, model, weights, out):
    """What verify says that small weights change, against the outputs of both programs on the same inputs."""
    inputs = [f"--input={path.stem}={path}" for path in sorted((model / "inputs").glob("*.npy"))]
    own, small = os.path.join(out, "own"), os.path.join(out, "small")
    call(rankc, "compile", model / "model.onnx", *dims_of(model), "-o", own, "-q")
    call(rankc, "compile", model / "model.onnx", *dims_of(model), "-o", small, "-q", "--weight-dtype", weights)
    values = []
    for program in own, small:
        call(rankc, "run", program, "--output-dir", os.path.join(program, "out"), *inputs)
        values.append(next(iter(outputs_of(os.path.join(program, "out")).values())).astype("f8"))
    away = np.abs(values[1] - values[0])
    same = np.sum(values[0].argmax(-1) == values[1].argmax(-1))
    expected = [f"change elements by {away.mean():.3g} on average and {away.max():.3g} at most",
                f"is the same in {same} of {values[0].size // values[0].shape[-1]} rows"]
    said = call(rankc, "verify", small, "--numeric", *inputs).stdout
    for text in expected:
        if text not in said or not away.any():
            yield f"{text!r} is not said: {said}"


def faults(rankc, arguments, out):
    call(rankc, "compile", *arguments, "-o", out, "-q")
    done = verify(rankc, out)
    if done.returncode:
        yield f"refused, exit {done.returncode}: {done.stderr}"
    spoil(out)
    done = verify(rankc, out)
    if done.returncode != 8 or "[E1104]" not in done.stderr:
        yield f"an output that is off: exit {done.returncode}: {done.stderr}"


def conditioned(rankc, out):
    """Sums of two products that cancel: on one rank some happen to be exact, and the plan, which rounds both products, is right."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2])
    model, own, plan = (os.path.join(out, name) for name in ("model.onnx", "own", "plan"))

    def compile(to, weights, *options):
        outputs = [f"y{i}" for i in range(len(weights))] + ["copy"]
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(len(weights))] + [helper.make_node("Identity", ["x"], ["copy"])],
            "net", [x], [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
        call(rankc, "compile", model, "-o", to, "-q", *options)

    compile(own, [])
    call(rankc, "run", own, "--random-inputs", "--output-dir", os.path.join(own, "out"), "-q")
    first, second = outputs_of(os.path.join(own, "out"))["copy"].reshape(-1).astype("f8")
    some = np.random.default_rng(1).uniform(1, 2, 24)
    rules = os.path.join(out, "sums.rules")
    Path(rules).write_text('mesh tensor=2\nmatch "y*" split in0.1\n')
    compile(plan, [np.array([[a], [-a * first / second]], "f4") for a in some], "--pas", f"manual:{rules}")
    done = call(rankc, "verify", plan, "--numeric", status=None)
    if done.returncode:
        yield f"refused, exit {done.returncode}: {done.stderr}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--trained", metavar="MODEL.onnx")
    parser.add_argument("--small", required=True, metavar="MODEL_DIR", help="with small weights; what they change is told")
    parser.add_argument("models", nargs="+")
    args, losses = parser.parse_args(), []
    cases = {f"{Path(model).name}, {dtype}": inference(Path(model), dtype)
             for model, _, dtypes in (word.partition("=") for word in args.models) for dtype in (dtypes.split(",") if dtypes else DTYPES)}
    for weights in "bf16", "int8:group=16":
        cases[f"weights in {weights}"] = [*inference(Path(args.small), "f32"), "--weight-dtype", weights]
        with tempfile.TemporaryDirectory() as directory:
            losses += [f"{weights}: {fault}" for fault in loss(args.rankc, Path(args.small), weights, directory)]
    if args.trained:
        cases["training in stages"] = training(args.trained)
    bad = len(losses)
    print("".join(f"{fault}\n" for fault in losses), end="")
    for name, arguments in cases.items():
        with tempfile.TemporaryDirectory() as directory:
            for fault in faults(args.rankc, arguments, directory):
                bad += 1
                print(f"{name}: {fault}")
    with tempfile.TemporaryDirectory() as directory:
        for fault in conditioned(args.rankc, directory):
            bad += 1
            print(f"ill-conditioned: {fault}")
    print(f"{len(cases) + 1} cases, {bad} faults")
    sys.exit(1 if bad else 0)


main()
