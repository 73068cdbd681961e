#!/usr/bin/python3
"""Resize with drawn attributes, scales, sizes and regions against exact fractions of ONNX's formulas: which elements a result is
made of is exact, ties included, and weights are rounded once.

    resize.py --rankc RANKC [--cases N] [--seed S] [--open | --reference]

A scale is the fraction that its f32 is; a result has floor(extent x scale) elements, as ONNX's shape inference and reference say
(ONNX Runtime and PyTorch round the product first: 7, not 6, for 10 x .7). align_corners takes the result's whole extent, as both of
those do. --open leaves extents open, and some sizes follow from them, compiles once, and runs at several. --reference compares the
fractions with ONNX's reference, of onnx 1.20 or later, and compiles nothing."""
import math
import os
import random
import sys
from fractions import Fraction

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))
from harness import call, expect, parser_of, report # noqa: E402

PER_MODEL, PER_OPEN_MODEL = 500, 8
MOST_OPEN, RUNS = 9, 5 # of an open extent; of a model with such
COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric", "tf_crop_and_resize",
               "tf_half_pixel_for_nn"]
HALF = Fraction(1, 2)
NEAREST = {"round_prefer_floor": lambda x: math.ceil(x - HALF), "round_prefer_ceil": lambda x: math.floor(x + HALF),
           "floor": math.floor, "ceil": math.ceil}


# Exact values ---------------------------------------------------------------------------------------------------------

def coordinate(mode, o, size, out, scale, part):
    start, end = part
    half_pixel = (o + HALF) / scale - HALF
    if mode == "half_pixel" or mode == "pytorch_half_pixel" and out > 1:
        return half_pixel
    if mode == "half_pixel_symmetric":
        return Fraction(size, 2) * (1 - out / (size * scale)) + half_pixel
    if mode == "tf_crop_and_resize":
        return (start + o * (end - start) / (out - 1) if out > 1 else (start + end) / 2) * (size - 1)
    if mode == "align_corners" and out > 1:
        return Fraction(o * (size - 1), out - 1)
    return {"asymmetric": o / scale, "tf_half_pixel_for_nn": (o + HALF) / scale}.get(mode, Fraction(0))


def keys(a, t):
    return ((a + 2) * t - (a + 3)) * t * t + 1 if t < 1 else (((t - 5) * t + 8) * t - 4) * a if t < 2 else Fraction(0)


def taps(case, x, size, scale):
    """(element, weight) of one result; elements outside of the input are the nearest one."""
    if case["mode"] == "nearest":
        found = [(NEAREST[case.get("nearest_mode", "round_prefer_floor")](x), Fraction(1))]
    else:
        narrow = min(scale, 1) if case.get("antialias") else 1
        reach = (1 if case["mode"] == "linear" else 2) / Fraction(narrow)
        a = Fraction(float(np.float32(case.get("cubic_coeff_a", -0.75))))
        weight = (lambda t: max(1 - t, 0)) if case["mode"] == "linear" else lambda t: keys(a, t)
        found = [(e, weight(abs(e - x) * narrow)) for e in range(math.ceil(x - reach), math.floor(x + reach) + 1)]
    if case.get("exclude_outside"):
        found = [(e, w) for e, w in found if 0 <= e < size]
    total = sum(w for _, w in found) if case.get("exclude_outside") or case.get("antialias") else 1
    return [(min(max(e, 0), size - 1), w / total) for e, w in found if w]


def sizes_and_scales(case, shape):
    axes = case.get("axes", range(len(shape)))
    scale, out = [Fraction(1)] * len(shape), list(shape)
    for i, d in enumerate(axes):
        if "scales" in case:
            scale[d] = Fraction(float(np.float32(case["scales"][i])))
            out[d] = math.floor(shape[d] * scale[d])
        else:
            scale[d], out[d] = Fraction(case["sizes"][i], shape[d]), case["sizes"][i]
    policy = case.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        one = (min if policy == "not_larger" else max)(scale[d] for d in axes)
        for d in axes:
            scale[d], out[d] = one, math.floor(shape[d] * one + HALF)
    return out, scale


def matrix(case, size, out, scale, part):
    """Weights (out, size), and which results lie outside of the input."""
    weights, outside = np.zeros((out, size)), np.zeros(out, bool)
    for o in range(out):
        x = coordinate(case["coordinate_transformation_mode"], o, size, out, scale, part)
        outside[o] = case["coordinate_transformation_mode"] == "tf_crop_and_resize" and not 0 <= x <= size - 1
        sums = {}
        for e, w in [] if outside[o] else taps(case, x, size, scale):
            sums[e] = sums.get(e, 0) + w
        for e, w in sums.items():
            weights[o, e] = float(w)
    return weights, outside


def expected(case, x):
    """Dimensions that keep their extent are copied, as by ONNX Runtime, also with tf_half_pixel_for_nn."""
    out, scale = sizes_and_scales(case, x.shape)
    axes = list(case.get("axes", range(x.ndim)))
    y, hidden = x, np.zeros([1] * x.ndim, bool)
    for d in range(x.ndim):
        part = (Fraction(0), Fraction(1))
        if "roi" in case and d in axes:
            i = axes.index(d)
            part = tuple(Fraction(float(np.float32(v))) for v in (case["roi"][i], case["roi"][len(axes) + i]))
        elif d not in axes or scale[d] == 1:
            continue
        weights, outside = matrix(case, x.shape[d], out[d], scale[d], part)
        y = np.moveaxis(np.tensordot(weights, y, (1, d)), 0, d)
        hidden = hidden | outside.reshape([-1 if k == d else 1 for k in range(x.ndim)])
    return np.where(hidden, case.get("extrapolation_value", 0.0), y)


# Cases ----------------------------------------------------------------------------------------------------------------

def draw_scale(rng):
    return rng.choice([lambda: rng.randint(1, 32) / 8, lambda: rng.randint(1, 12) / 3, lambda: 1 / rng.randint(1, 9),
                       lambda: rng.randint(1, 30) / 10, lambda: rng.uniform(0.1, 4)])()


def draw(rng):
    ndim = rng.choice([1, 1, 1, 2, 2, 3])
    case = {"shape": [rng.randint(1, 24 if ndim == 1 else 7) for _ in range(ndim)],
            "mode": rng.choice(["nearest", "nearest", "linear", "cubic"]), "coordinate_transformation_mode": rng.choice(COORDINATES)}
    n = ndim
    if rng.random() < 0.3:
        n = rng.randint(1, ndim)
        case["axes"] = rng.sample(range(ndim), n)
    sized = [case["shape"][d] for d in case.get("axes", range(ndim))]
    if rng.random() < 0.5:
        case["scales"] = [max(draw_scale(rng), 1.001 / size) for size in sized]
    else:
        case["sizes"] = [rng.randint(1, 30 if ndim == 1 else 9) for _ in range(n)]
        if rng.random() < 0.3:
            case["keep_aspect_ratio_policy"] = rng.choice(["not_larger", "not_smaller"])
            if case["keep_aspect_ratio_policy"] == "not_larger" and min(s / x for s, x in zip(case["sizes"], sized)) * min(sized) < 1:
                del case["keep_aspect_ratio_policy"]
    if case["coordinate_transformation_mode"] == "tf_crop_and_resize":
        ends = [rng.choice([rng.randint(-2, 10) / 8, rng.uniform(-0.3, 1.3)]) for _ in range(2 * n)]
        case.update(roi=ends, extrapolation_value=rng.choice([0.0, -3.5]))
    if case["mode"] == "nearest":
        case["nearest_mode"] = rng.choice(list(NEAREST))
        return case
    if rng.random() < 0.3:
        case["antialias"] = 1
    if rng.random() < 0.3 and "roi" not in case:
        case["exclude_outside"] = 1
    if case["mode"] == "cubic" and rng.random() < 0.5:
        case["cubic_coeff_a"] = rng.choice([-0.5, -0.6])
    return case


def is_defined(case):
    """Whether no weights sum to 0 or nearly so, which exclude_outside divides by."""
    if not case.get("exclude_outside"):
        return True
    out, scale = sizes_and_scales(case, case["shape"])
    for d, size in enumerate(case["shape"]):
        for o in range(out[d]):
            x = coordinate(case["coordinate_transformation_mode"], o, size, out[d], scale[d], (0, 1))
            inside = [w for e, w in taps({**case, "exclude_outside": 0, "antialias": 0}, x, 1 << 40, scale[d]) if 0 <= e]
            if not -1 <= x <= size or abs(sum(inside, Fraction(0))) < Fraction(1, 4) or case.get("antialias"):
                return False
    return True


def draw_cases(seed, count):
    rng, cases = random.Random(seed), []
    while len(cases) < count:
        case = draw(rng)
        if is_defined(case):
            cases.append(case)
    return cases


def node_of(case, k, constants):
    """The node, whose constants are added to the list."""
    inputs = [f"x{k}", "", ""]
    for place, key, dtype in ((1, "roi", "f4"), (2, "scales", "f4"), (3, "sizes", "i8")):
        if key in case:
            if not any(isinstance(value, str) for value in case[key]):
                constants.append(numpy_helper.from_array(np.array(case[key], dtype), f"{key}{k}"))
            inputs[place:place + 1] = [f"{key}{k}"]
    attributes = {key: value for key, value in case.items() if key not in ("shape", "roi", "scales", "sizes")}
    return helper.make_node("Resize", inputs, [f"y{k}"], **attributes)


def model_of(cases):
    constants = []
    nodes = [node_of(case, k, constants) for k, case in enumerate(cases)]
    inputs = [helper.make_tensor_value_info(f"x{k}", TensorProto.DOUBLE, case["shape"]) for k, case in enumerate(cases)]
    outputs = [helper.make_tensor_value_info(f"y{k}", TensorProto.DOUBLE, None) for k in range(len(cases))]
    graph = helper.make_graph(nodes, "resize", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


# Open extents ---------------------------------------------------------------------------------------------------------

def opened(rng, case):
    """The case with names instead of some extents, "sN" of dimension N, and instead of some sizes."""
    shape = [f"s{d}" if rng.random() < 0.7 else extent for d, extent in enumerate(case["shape"])]
    sizes = case.get("sizes")
    if sizes and rng.random() < 0.4:
        sizes = [f"t{i}" if rng.random() < 0.7 else size for i, size in enumerate(sizes)]
    return {**case, "shape": shape, **({"sizes": sizes} if sizes else {})}


def closed(case, extents):
    """The case with these extents."""
    values = {key: [extents.get(v, v) for v in case[key]] for key in ("shape", "sizes") if key in case}
    return {**case, **values}


def draw_runs(rng):
    names = [f"{kind}{d}" for kind in "st" for d in range(3)]
    drawn = [{name: rng.randint(1, MOST_OPEN) for name in names} for _ in range(RUNS - 2)]
    return [dict.fromkeys(names, 1), dict.fromkeys(names, MOST_OPEN), *drawn]


def draw_open(seed, count):
    """(cases, runs) of each model."""
    rng, models = random.Random(seed), []
    for first in range(0, count, PER_OPEN_MODEL):
        runs, cases = draw_runs(rng), []
        while len(cases) < min(PER_OPEN_MODEL, count - first):
            case = opened(rng, draw(rng))
            if all(is_defined(closed(case, run)) for run in runs):
                cases.append(case)
        models.append((cases, runs))
    return models


def open_model_of(cases):
    """The model; input "like" has the extents that sizes are."""
    model = model_of(cases)
    graph, like = model.graph, [f"t{i}" for i in range(3)]
    graph.input.append(helper.make_tensor_value_info("like", TensorProto.FLOAT, like))
    for k, case in enumerate(cases):
        if not any(size in like for size in case.get("sizes", [])):
            continue
        pieces = [f"size {size}" for size in case["sizes"]]
        graph.node.insert(0, helper.make_node("Concat", pieces, [f"sizes{k}"], axis=0))
    fixed = sorted({size for case in cases for size in case.get("sizes", []) if size not in like})
    graph.initializer.extend(numpy_helper.from_array(np.array([size], "i8"), f"size {size}") for size in fixed)
    nodes = [helper.make_node("Shape", ["like"], [f"size {name}"], start=i, end=i + 1) for i, name in enumerate(like)]
    for node in reversed(nodes):
        graph.node.insert(0, node)
    return model


def check_open(rankc, work, cases, runs):
    rng = np.random.default_rng(len(cases))
    onnx.save(open_model_of(cases), f"{work}/resize.onnx")
    names = {name for case in cases for name in case["shape"]} | {f"t{i}" for i in range(3)}
    dims = [f"--dim={name}=1..{MOST_OPEN}" for name in runs[0] if name in names]
    call(rankc, "compile", f"{work}/resize.onnx", "-o", f"{work}/out", "-q", *dims, timeout=600)
    wrong = []
    for run in runs:
        here = [closed(case, run) for case in cases]
        inputs = [rng.standard_normal(case["shape"]) for case in here]
        results = results_of(rankc, work, inputs, like=np.zeros([run[f"t{i}"] for i in range(3)], "f4"))
        wrong += [f"{run}: {said}" for said in wrong_cases(here, inputs, results)]
    expect(not wrong, "\n".join([f"{len(wrong)} of {len(runs) * len(cases)} are not"] + wrong[:20]))
    return f"{len(cases)} are exact at {len(runs)} sizes each"


def wrong_cases(cases, inputs, results, tolerance=256 * np.finfo("f8").eps): # of up to 64 addends a dimension
    wrong = []
    for k, case in enumerate(cases):
        y = expected(case, inputs[k])
        bound = 0 if case["mode"] == "nearest" else tolerance * abs(inputs[k]).max()
        if results[k].shape != y.shape or (abs(results[k] - y) > bound).any():
            wrong.append(f"{case}: {results[k].ravel()[:12]}, not {y.ravel()[:12]}")
    return wrong


def results_of(rankc, work, inputs, **others):
    given = []
    for name, x in [*((f"x{k}", x) for k, x in enumerate(inputs)), *others.items()]:
        np.save(f"{work}/{name}.npy", x)
        given += ["--input", f"{name}={work}/{name}.npy"]
    call(rankc, "run", f"{work}/out", *given, "--output-dir", f"{work}/got", "-q")
    return [np.load(f"{work}/got/y{k}.npy") for k in range(len(inputs))]


def check(rankc, work, cases):
    rng = np.random.default_rng(len(cases))
    inputs = [rng.standard_normal(case["shape"]) for case in cases]
    onnx.save(model_of(cases), f"{work}/resize.onnx")
    call(rankc, "compile", f"{work}/resize.onnx", "-o", f"{work}/out", "-q", timeout=600)
    wrong = wrong_cases(cases, inputs, results_of(rankc, work, inputs))
    expect(not wrong, "\n".join([f"{len(wrong)} of {len(cases)} are not"] + wrong[:20]))
    return f"{len(cases)} are exact"


def takes_rounded(case):
    """Whether ONNX's reference reads the formula so: it uses extent x scale, not rounded, as the result's extent."""
    out, scale = sizes_and_scales(case, case["shape"])
    mode = case["coordinate_transformation_mode"] # tf_half_pixel_for_nn is of opset 11
    return mode in ("half_pixel", "half_pixel_symmetric", "asymmetric") or mode != "tf_half_pixel_for_nn" and all(
        size * s == o and o > 1 for size, s, o in zip(case["shape"], scale, out))


def compare_reference(cases):
    from onnx.reference import ReferenceEvaluator
    wrong, cases = [], [case for case in cases if takes_rounded(case)]
    for case in cases:
        x = np.random.default_rng(0).standard_normal(case["shape"])
        wrong += wrong_cases([case], [x], ReferenceEvaluator(model_of([case])).run(None, {"x0": x}), 1e-5) # of weights in f32
    print("\n".join(wrong))
    print(f"ONNX's reference has {len(wrong)} of {len(cases)} otherwise")


def main():
    parser = parser_of(__doc__, rankc=None)
    parser.add_argument("--cases", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--reference", action="store_true")
    args = parser.parse_args()
    if args.open:
        models = draw_open(args.seed, args.cases)
        return report((f"open model {i}", lambda work, model=model: check_open(args.rankc, work, *model)) for i, model in enumerate(models))
    cases = draw_cases(args.seed, args.cases)
    if args.reference:
        return compare_reference(cases)
    rankc = args.rankc
    parts = [cases[i:i + PER_MODEL] for i in range(0, len(cases), PER_MODEL)]
    return report((f"cases {i * PER_MODEL} to {i * PER_MODEL + len(part) - 1}", lambda work, part=part: check(args.rankc, work, part))
                  for i, part in enumerate(parts))


if __name__ == "__main__":
    sys.exit(main())
