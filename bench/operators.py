#!/usr/bin/env python3
"""Times single operators beside ONNX Runtime, one thread each, and writes docs/measured/operator-speeds.md:

    bench/operators.py compile --rankc RANKC --work DIR [--only PREFIX]...
    bench/operators.py time --rankc RANKC --work DIR [--rounds N] [--only PREFIX]...
    bench/operators.py page --work DIR --page FILE.md

Each model is one operator (opset 21). A round is a run of both, in turns; a run's time is the shortest of several steps, and the
ratio is the median of the rounds'. DIR keeps programs and rounds, so a few cases can be timed at a time; timing a case again
replaces its rounds. Needs numpy, onnx and onnxruntime."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

STEPS = 6
RANDOM = np.random.default_rng(0)


def real(*shape):
    return RANDOM.standard_normal(shape).astype("f4")


def whole(most, *shape, dtype="i8"):
    return RANDOM.integers(0, most, shape).astype(dtype)


def ints(*values):
    return np.array(values, "i8")


IMAGES, ROWS, TOKENS = real(8, 64, 56, 56), real(2048, 512), real(512, 1000)
SCALES = np.array([1, 1, 2, 2], "f4")


def elementwise():
    for op in "Abs Erf Exp Gelu HardSwish LeakyRelu Log Mish Relu Sigmoid Softplus Sqrt Sin Tan Atan Tanh".split():
        yield op, op, {"x": abs(IMAGES) if op in ("Log", "Sqrt") else IMAGES}, {}, {}
    for op in "Add Div Max Pow PRelu Less".split():
        for kind, shape in {"elements": (8, 64, 56, 56), "channels": (64, 1, 1), "columns": (56,)}.items():
            yield f"{op}, {kind}", op, {"x": abs(IMAGES), "z": abs(real(*shape))}, {}, {}
    for kind, shape in {"elements": (8, 64, 56, 56), "channels": (64, 1, 1)}.items():
        yield f"Where, {kind}", "Where", {"c": IMAGES > 0, "x": IMAGES, "z": real(*shape)}, {}, {}
    yield "Clip, computed bounds", "Clip", {"x": IMAGES, "low": np.float32(-1), "high": np.float32(1)}, {}, {}
    yield "Mod of i64", "Mod", {"x": whole(1000, 512, 1000), "z": 1 + whole(50, 512, 1000)}, {}, {}
    for name, to in {"f64": TensorProto.DOUBLE, "fp16": TensorProto.FLOAT16, "i32": TensorProto.INT32}.items():
        yield f"Cast to {name}", "Cast", {"x": IMAGES}, {}, {"to": to}
    scale = {"scale": np.float32(0.02), "zero": np.uint8(128)}
    yield "QuantizeLinear", "QuantizeLinear", {"x": IMAGES}, scale, {}
    yield "DequantizeLinear", "DequantizeLinear", {"x": whole(255, 8, 64, 56, 56, dtype="u1")}, scale, {}


def reductions():
    for op in "ReduceSum ReduceMean ReduceMax ReduceL2 ReduceLogSumExp".split():
        for axes in ((3,), (1,), (2, 3), (0,)):
            yield f"{op} of axes {', '.join(map(str, axes))}", op, {"x": IMAGES}, {"axes": ints(*axes)}, {}
    yield "ArgMax of rows", "ArgMax", {"x": TOKENS}, {}, {"axis": 1}
    yield "ArgMax of channels", "ArgMax", {"x": IMAGES}, {}, {"axis": 1}
    yield "TopK", "TopK", {"x": TOKENS}, {"k": ints(10)}, {}
    yield "CumSum of rows", "CumSum", {"x": TOKENS}, {"axis": np.array(1)}, {}
    yield "CumSum of columns", "CumSum", {"x": TOKENS}, {"axis": np.array(0)}, {}
    yield "NonZero", "NonZero", {"x": TOKENS > 0}, {}, {}
    for op in "Softmax LogSoftmax LpNormalization".split():
        yield op, op, {"x": ROWS}, {}, {}
    yield "Softmax of channels", "Softmax", {"x": IMAGES}, {}, {"axis": 1}
    affine, statistics_of = {"scale": real(64), "bias": real(64)}, {"mean": real(64), "variance": abs(real(64)) + 0.1}
    yield "LayerNormalization", "LayerNormalization", {"x": ROWS}, {"scale": real(512), "bias": real(512)}, {}
    yield "InstanceNormalization", "InstanceNormalization", {"x": IMAGES}, affine, {}
    yield "GroupNormalization", "GroupNormalization", {"x": IMAGES}, affine, {"num_groups": 8}
    yield "BatchNormalization", "BatchNormalization", {"x": IMAGES}, {**affine, **statistics_of}, {}
    yield "LRN", "LRN", {"x": IMAGES}, {}, {"size": 5}


def moves():
    for perm in ((0, 2, 3, 1), (0, 1, 3, 2), (1, 0, 2, 3), (0, 3, 1, 2)):
        yield f"Transpose {', '.join(map(str, perm))}", "Transpose", {"x": IMAGES}, {}, {"perm": perm}
    for axis in (0, 1, 3):
        yield f"Concat of axis {axis}", "Concat", {"x": IMAGES, "z": IMAGES}, {}, {"axis": axis}
    for mode in ("constant", "reflect", "edge"):
        yield f"Pad, {mode}", "Pad", {"x": IMAGES}, {"pads": ints(0, 0, 1, 1, 0, 0, 1, 1)}, {"mode": mode}
    step = {"starts": ints(0), "ends": ints(56), "axes": ints(3), "steps": ints(2)}
    yield "Slice with a step", "Slice", {"x": IMAGES}, step, {}
    yield "Slice of channels", "Slice", {"x": IMAGES}, {"starts": ints(8), "ends": ints(40), "axes": ints(1)}, {}
    yield "Gather of rows", "Gather", {"x": real(5000, 256)}, {"i": whole(5000, 2000)}, {}
    yield "Gather of columns", "Gather", {"x": real(2000, 256)}, {"i": whole(256, 128)}, {"axis": 1}
    yield "GatherElements", "GatherElements", {"x": real(2000, 256)}, {"i": whole(256, 2000, 128)}, {"axis": 1}
    for mode in ("nearest", "linear", "cubic"):
        yield f"Resize, {mode}", "Resize", {"x": IMAGES}, {"": None, "scales": SCALES}, {"mode": mode}
    for op in ("DepthToSpace", "SpaceToDepth"):
        yield op, op, {"x": IMAGES}, {}, {"blocksize": 2}
    yield "Expand", "Expand", {"x": real(8, 64, 1, 1)}, {"shape": ints(8, 64, 56, 56)}, {}
    yield "Tile", "Tile", {"x": real(8, 64, 28, 28)}, {"repeats": ints(1, 1, 2, 2)}, {}
    yield "OneHot", "OneHot", {"x": whole(100, 20000)}, {"depth": np.array(100), "values": np.array([0, 1], "f4")}, {}
    yield "Trilu", "Trilu", {"x": real(16, 512, 512)}, {}, {"upper": 0}
    yield "GridSample", "GridSample", {"x": real(2, 16, 56, 56), "grid": real(2, 56, 56, 2)}, {}, {}


def windows():
    for kernel, stride in ((2, 2), (3, 2), (3, 1)):
        for op in ("MaxPool", "AveragePool"):
            yield f"{op} {kernel}, stride {stride}", op, {"x": IMAGES}, {}, {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield op, op, {"x": IMAGES}, {}, {}
    for name, weights, attributes in (("1 x 1", (64, 64, 1, 1), {}), ("3 x 3", (64, 64, 3, 3), {"pads": [1] * 4}),
                                      ("3 x 3, depthwise", (64, 1, 3, 3), {"pads": [1] * 4, "group": 64}),
                                      ("7 x 7, depthwise", (64, 1, 7, 7), {"pads": [3] * 4, "group": 64}),
                                      ("3 x 3, 8 groups", (64, 8, 3, 3), {"pads": [1] * 4, "group": 8}),
                                      ("3 x 3, dilated", (64, 64, 3, 3), {"pads": [2] * 4, "dilations": [2, 2]})):
        yield f"Conv {name}", "Conv", {"x": IMAGES}, {"w": real(*weights)}, attributes
    yield "Conv 7 x 7, stride 2", "Conv", {"x": real(4, 3, 224, 224)}, {"w": real(64, 3, 7, 7)}, {"pads": [3] * 4, "strides": [2, 2]}
    yield "Conv of rows", "Conv", {"x": real(8, 64, 3136)}, {"w": real(64, 64, 3)}, {"pads": [1, 1]}
    yield "Conv of volumes", "Conv", {"x": real(2, 16, 16, 28, 28)}, {"w": real(16, 16, 3, 3, 3)}, {"pads": [1] * 6}
    yield "ConvTranspose", "ConvTranspose", {"x": IMAGES}, {"w": real(64, 64, 2, 2)}, {"strides": [2, 2]}


def products():
    yield "MatMul", "MatMul", {"x": real(512, 512)}, {"w": real(512, 512)}, {}
    yield "MatMul, batched", "MatMul", {"x": real(96, 128, 64), "z": real(96, 64, 128)}, {}, {}
    yield "MatMul, one row", "MatMul", {"x": real(1, 4096)}, {"w": real(4096, 4096)}, {}
    yield "MatMulInteger", "MatMulInteger", {"x": whole(255, 512, 512, dtype="u1"), "z": whole(127, 512, 512, dtype="i1")}, {}, {}
    yield "Einsum", "Einsum", {"x": real(8, 12, 128, 64), "z": real(8, 12, 128, 64)}, {}, {"equation": "bhid,bhjd->bhij"}
    for op, gates in {"LSTM": 4, "GRU": 3, "RNN": 1}.items():
        weights = {"w": real(1, gates * 256, 128) / 10, "r": real(1, gates * 256, 256) / 10}
        yield op, op, {"x": real(50, 8, 128)}, weights, {"hidden_size": 256}


FAMILIES = {"Elementwise": elementwise, "Reductions and normalizations": reductions, "Moves": moves,
            "Convolutions and pools": windows, "Products and recurrences": products}


def write(path, op, inputs, constants, attributes):
    outputs = ["y", "i"][:2 if op == "TopK" else 1]
    node = helper.make_node(op, [*inputs, *constants], outputs, **attributes)
    given = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    kept = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items() if n]
    graph = helper.make_graph([node], op, given, [helper.make_empty_tensor_value_info(o) for o in outputs], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model, data_prop=True), path)


def step_of_rankc(rankc, work, inputs):
    files = [word for name in inputs for word in ("--input", f"{name}={work}/{name}.npy")]
    command = [rankc, "run", f"{work}/out", *files, "--threads", "1", "--repeat", str(STEPS), "--warmup", "2", "--json", "-q"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(json.loads(line)["step_ms"]["min"] for line in reversed(lines) if '"step_ms"' in line)


def step_of_peer(session, inputs):
    times = []
    for _ in range(STEPS + 2):
        begin = time.perf_counter()
        session.run(None, inputs)
        times.append((time.perf_counter() - begin) * 1e3)
    return min(times)


def compile_case(args, work, op, inputs, constants, attributes):
    os.makedirs(work, exist_ok=True)
    write(f"{work}/model.onnx", op, inputs, constants, attributes)
    for name, array in inputs.items():
        np.save(f"{work}/{name}.npy", array)
    subprocess.run([args.rankc, "compile", f"{work}/model.onnx", "-o", f"{work}/out", "-q", "--reuse", "override"], check=True)


def time_case(args, work, inputs):
    """Writes (rankc, ONNX Runtime) in ms of each round."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(f"{work}/model.onnx", options, providers=["CPUExecutionProvider"])
    rounds = [(step_of_rankc(args.rankc, work, inputs), step_of_peer(session, inputs)) for _ in range(args.rounds)]
    with open(f"{work}/rounds.json", "w", encoding="ascii") as file:
        json.dump(rounds, file)


PAGE = """# Single operators beside ONNX Runtime

Written by `bench/operators.py`; do not edit. One thread each, f32 unless the operator says otherwise; {rounds} rounds in turns. The
ratio is ONNX Runtime's time to rankc's, so more is better: the median of the rounds, and the least and the most. ONNX Runtime
{version}; machine: {machine}. Images are [8, 64, 56, 56]. Geometric mean of the ratios: {mean:.2f}.
"""


SUMS = ("f32 is summed in f64 and rounded once, in an order that no cut among ranks or threads changes (`Note [Order of sums]` in "
        "`runtime/kernels/c/kernels.h`); ONNX Runtime adds in f32. With sums in f32 the ratio is ")
LOW = 0.8
# Why rows are below LOW: what was measured on an EPYC of the Zen 4 generation, one thread.
REASONS = {
    "Exp": "a second factor 2^n and a comparison give what is below 2^-126 or infinite, to 1.0 units in the last place (ONNX Runtime: "
           "0.9). Without them it takes 0.29 ms instead of 0.35.",
    "ReduceSum of axes 1": SUMS + "0.91.",
    "ReduceSum of axes 3": SUMS + "1.01.",
    "ReduceMean of axes 1": SUMS + "0.93.",
    "ReduceMean of axes 3": "as ReduceSum of axes 3.",
    "CumSum of columns": SUMS + "0.90.",
    "InstanceNormalization": "reductions over several dimensions are not fused with their neighbours: the tensor is read five times "
                             "and written three times. As rows of a view it is 0.79, but views keep convolutions around it from "
                             "storing channels last.",
    "AveragePool 3, stride 2": "53 % of the time goes into dealing rows into elements of even and of odd index, so that vectors of "
                               "windows can be added.",
}


def reasons(timed):
    low = [name for name, rounds in timed.items() if statistics.median(b / a for a, b in rounds) < LOW]
    return [f"## Below {LOW}\n", *(f"- {name}: {REASONS.get(name, 'not known')}" for name in low), ""] if low else []


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")


def row(name, rounds):
    own, peer = (min(times) for times in zip(*rounds))
    ratios = sorted(b / a for a, b in rounds)
    return f"| {name} | {own:.3f} | {peer:.3f} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"


def directory(args, name):
    return os.path.join(args.work, re.sub("[^A-Za-z0-9]+", "_", name))


def rounds_of(args, name):
    """None where the case was not timed."""
    try:
        with open(f"{directory(args, name)}/rounds.json", encoding="ascii") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def run_cases(args):
    for cases in FAMILIES.values():
        for name, op, inputs, constants, attributes in cases():
            if args.only and not any(name.startswith(prefix) for prefix in args.only):
                continue
            inputs = {key: np.asarray(array) for key, array in inputs.items()}
            if args.step == "compile":
                compile_case(args, directory(args, name), op, inputs, constants, attributes)
            else:
                time_case(args, directory(args, name), inputs)
                print(row(name, rounds_of(args, name)), flush=True)


def write_page(args):
    names = {family: [name for name, *_ in cases()] for family, cases in FAMILIES.items()}
    timed = {name: rounds_of(args, name) for name in sum(names.values(), [])}
    if missing := [name for name, rounds in timed.items() if not rounds]:
        sys.exit(f"not timed: {'; '.join(missing)}")
    mean = statistics.geometric_mean(statistics.median(b / a for a, b in rounds) for rounds in timed.values())
    lines = [PAGE.format(rounds=min(map(len, timed.values())), version=onnxruntime.__version__, machine=processor(), mean=mean)]
    for family in FAMILIES:
        lines += [f"## {family}\n", "| operator | rankc, ms | ONNX Runtime, ms | ratio |", "| --- | ---: | ---: | ---: |"]
        lines += [row(name, timed[name]) for name in names[family]] + [""]
    lines += reasons(timed)
    with open(args.page, "w", encoding="ascii") as file:
        file.write("\n".join(lines).rstrip() + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("compile", "time", "page"))
    parser.add_argument("--rankc")
    parser.add_argument("--work", required=True, help="where programs and rounds are kept")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="a prefix of the names of cases")
    parser.add_argument("--page")
    args = parser.parse_args()
    if (args.page if args.step == "page" else args.rankc) is None:
        parser.error(f"{args.step} needs {'--page' if args.step == 'page' else '--rankc'}")
    args.rankc = args.rankc and os.path.abspath(args.rankc)
    if args.step == "page":
        write_page(args)
    else:
        run_cases(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
