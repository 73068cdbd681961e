#!/usr/bin/python3
"""Models, runs and misuse that once gave a wrong result: each folder beside this file holds one with the right values.

    reports.py --rankc RANKC [NAME...]

A folder has a model, in_*.npy and out_*.npy (what PyTorch or ONNX Runtime computes), and `cmd` where options are needed; what a
diagnostic says that an input must be known for is given by --bind. Other folders have a function of their own, which does what
their `cmd` says: tables below. Prints a line for each and the counts; the exit status is 1 if one is not as it should be."""
import concurrent.futures
import functools
import glob
import json
import os
import re
import shlex
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import needed, parser_of  # noqa: E402

with needed():
    import numpy as np
    import onnx
import misuse
import training
from call import HERE, Failed, expect, run

# max|p - ref| <= 2^-18 max|ref| for 32-bit floats: a hundred roundings. The references are computed in the same type. A model with
# weights of 16 bits rounds to them, also where its outputs are of 32.
TOLERANCE = {"f2": 2.0 ** -8, "f4": 2.0 ** -18, "f8": 2.0 ** -40}

# What is right is that rankc refuses, with this exit status and these words.
REFUSED = {
    "a-83-sce-float-target": (3, "probabilities"),
}

# Which core operator the graph becomes.
RECOGNISED = {name: "Attention" for name in (
    "unseen-13-min-attn-mulmask", "unseen-14-min-attn-submask", "unseen-15-min-attn-rowmax", "unseen-16-min-attn-refill", "unseen-17-min-attn-lse",
    "unseen-18-min-attn-rank3x4")}

OWN = {
    "b-58-resume-longer-schedule": training.longer_schedule,
    "b-64-ranks-with-other-options": training.other_options,
    "b-65-zero-times-sum": training.zero_times_sum,
    "b-67-batch-norm-evaluation": training.batch_norm_evaluation,
    "b-68-shared-input-shuffle": training.shared_input,
    "b-69-bf16-accumulation": training.half_accumulation,
    "b-73-reduced-parameter": training.reduced_parameter,
    "rel-01-long-initializer": misuse.long_initializer,
    "rel-02-recompute-replicate-then-split": misuse.recomputed_boundary,
    "rel-03-mpich-sigterm-at-start": misuse.interrupted_start,
    "rel-04-ckpt-partial-out": misuse.full_disk,
    "rel-06-dump-places": misuse.dump_places,
    "rel-07-thread-rank-returns-early": misuse.early_return,
    "rel-08-compile-killed-beside-another": misuse.rival_compiles,
    "rel-09-integer-division-by-zero": misuse.division_by_zero,
    "rel-10-c-api-null": misuse.null_arguments,
}


def compile_options(folder):
    """The options of the folder's cmd, without the model; without cmd, the shapes of the inputs."""
    try:
        with open(os.path.join(folder, "cmd"), encoding="utf-8") as file:
            line = next(line for line in file if "rankc compile" in line)
    except (OSError, StopIteration):
        shapes = {name: np.load(file).shape for name, file in tensors(folder, "in_").items()}
        return [word for name, shape in shapes.items() if shape for word in ("--shape", f"{name}={','.join(map(str, shape))}")]
    words = shlex.split(line, comments=True)
    return words[words.index("compile") + 2:]


def tensors(folder, prefix):
    """name -> file of the folder's .npy files with that prefix."""
    return {os.path.basename(file)[len(prefix):-len(".npy")]: file for file in sorted(glob.glob(os.path.join(folder, prefix + "*.npy")))}


def precision(folder):
    """The numpy type of the least precise floats that the model computes with, whatever the types of its outputs."""
    weights = onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False).graph.initializer
    return "f2" if any(weight.data_type == onnx.TensorProto.FLOAT16 for weight in weights) else None


def compare(name, got, expected, kind=None):
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise Failed(f"{name}: {got.dtype}{list(got.shape)}, not {expected.dtype}{list(expected.shape)}")
    if expected.dtype.kind != "f":
        if not np.array_equal(got, expected):
            raise Failed(f"{name}: {got.ravel()[:8]}, not {expected.ravel()[:8]}")
        return
    got, bound = got.astype("f8"), TOLERANCE[kind or expected.dtype.str[1:]] * np.max(np.abs(expected[np.isfinite(expected)]), initial=0)
    if not np.allclose(got, expected.astype("f8"), rtol=0, atol=bound, equal_nan=True):
        raise Failed(f"{name}: differs by {np.nanmax(np.abs(got - expected)):.3g}, allowed {bound:.3g}")


def compiled(rankc, folder, work):
    """Compiles the model; what a diagnostic asks for is bound. Returns the inputs that are left."""
    inputs, options = tensors(folder, "in_"), compile_options(folder)
    while True:
        words = [rankc, "compile", os.path.join(folder, "model.onnx"), "-o", work, "-q", *options]
        said = run(*words, status=None)
        if "error[E" not in said:
            return inputs
        asked = [name for name in re.findall(r"--bind ([^ =]+)=", said) if name in inputs]
        expect(asked, f"{shlex.join(words)}\n{said}")
        options += ["--bind", f"{asked[0]}={inputs.pop(asked[0])}"]


def values(rankc, folder, work):
    """Compiles and runs the model, and compares all outputs."""
    inputs = compiled(rankc, folder, work)
    out = os.path.join(work, "out")
    run(rankc, "run", work, *(word for name, file in inputs.items() for word in ("--input", f"{name}={file}")), "--output-dir", out, "-q")
    with open(os.path.join(out, "outputs.json"), encoding="utf-8") as file:
        written = {output["name"]: os.path.join(out, output["file"]) for output in json.load(file)["outputs"]}
    for name, file in tensors(folder, "out_").items():
        compare(name, np.load(written[name]), np.load(file), precision(folder))
    operator = RECOGNISED.get(os.path.basename(folder))
    if operator:
        text = run(rankc, "plan", os.path.join(folder, "model.onnx"), "--dump-after", "recognise", "-q")
        expect(re.search(rf"\b\w*{operator}\b", text), f"no core operator {operator}")


def refused(rankc, folder, work):
    status, words = REFUSED[os.path.basename(folder)]
    said = run(rankc, "compile", os.path.join(folder, "model.onnx"), "-o", work, "-q", *compile_options(folder), status=status)
    expect(words in said, f"nothing of {words!r} in:\n{said}")


def check(rankc, name):
    """None, or what is wrong."""
    folder = os.path.join(HERE, name)
    with tempfile.TemporaryDirectory() as work:
        try:
            (refused if name in REFUSED else OWN.get(name, values))(rankc, folder, work)
        except Failed as problem:
            return str(problem)
    return None


def main():
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    rankc = arguments.rankc
    names = arguments.names or sorted(name for name in os.listdir(HERE) if re.match(r"[a-z]+-\d+-", name))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        problems = list(pool.map(functools.partial(check, rankc), names))
    for name, problem in zip(names, problems):
        print(f"{name}: {problem or 'as it should be'}", flush=True)
    failed = sum(problem is not None for problem in problems)
    print(f"{len(names) - failed} of {len(names)} reports are as they should be")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
