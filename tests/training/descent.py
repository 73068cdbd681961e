#!/usr/bin/python3
"""The gradients of whole models against differences, in f64.

    descent.py --rankc RANKC [--plans PLAN;...] MODEL_DIR...

A model directory is one of tests/models: model.onnx, inputs/<name>.npy, outputs/<name>.npy, dims. The loss is the mean squared
error of the first output. A step of plain gradient descent with rate r lowers it by r |g|^2 - r^2 g'Hg / 2 + .., with g the
gradient, the norm of which the step reports: so twice the slope of a step half as long less that of the step is |g|^2, but
for terms of r^2. The step lowers the loss by a millionth, so these, and rounding, are below 1e-9; the bound is 1e-6."""
import functools
import glob
import os
import sys

from harness import Failed, call, dims_of, lines_of, names_of, needed, parser_of, plan_of, report

with needed():
    import numpy as np

STEP, BOUND = 1e-6, 1e-6


def compile_model(rankc, model, plan, work):
    """Compiles the model with a loss of its own; the options that give its data."""
    output = sorted(glob.glob(os.path.join(model, "outputs", "*.npy")))[0]
    values, noise = np.load(output), np.random.default_rng(0)
    np.save(os.path.join(work, "target.npy"),
            (values + values.std() * noise.standard_normal(values.shape)).astype(values.dtype))
    call(rankc, "compile", os.path.join(model, "model.onnx"), "-o", os.path.join(work, "out"), "-q", "--train", "--dtype", "f64",
         "--loss", f"mse:input={os.path.basename(output)[:-4]},target=target", "--optimizer", "sgd:lr=0", *plan_of(plan).options,
         *dims_of(model))
    inputs = {os.path.basename(path)[:-4]: path for path in glob.glob(os.path.join(model, "inputs", "*.npy"))}
    return [word for name, path in {**inputs, "target": os.path.join(work, "target.npy")}.items()
            for word in ("--data", f"{name}={path}")]


def step(rankc, work, data, rate):
    """Loss and norm of the gradient, and how much a step of that rate lowers the loss."""
    log = os.path.join(work, "log.jsonl")
    call(rankc, "train", os.path.join(work, "out"), *data, "--steps", "2", "--lr", repr(rate), "--log", log, "--threads", "1",
         "--kernels", "reference")
    first, second = lines_of(log)
    return first["loss"], first["grad_norm"], first["loss"] - second["loss"]


def check(rankc, model, plan, work):
    data = compile_model(rankc, model, plan, work)
    loss, norm, _ = step(rankc, work, data, 0.0)
    rate = STEP * loss / norm ** 2
    whole, half = (step(rankc, work, data, r)[2] / r for r in (rate, rate / 2))
    difference = abs(2 * half - whole - norm ** 2) / norm ** 2
    if not difference <= BOUND:
        raise Failed(f"|g|^2 is {norm ** 2}, the slope {2 * half - whole}")
    return f"{difference:.1e}"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--plans", default="one tp2 data2", help="their names: rankc_plans.py")
    parser.add_argument("models", metavar="MODEL_DIR", nargs="+")
    options = parser.parse_args()
    return report((f"{os.path.basename(model.rstrip('/'))} {plan}", functools.partial(check, options.rankc, model, plan))
                  for model in options.models for plan in names_of(options.plans))


if __name__ == "__main__":
    sys.exit(main())
