#!/usr/bin/python3
"""Repeated layers as generated code: functions called with offsets, and sources that stages share, against NumPy.

    layers.py --rankc RANKC

Eight layers y = softmax(tanh(x w) + x + s), each with a weight and an input s of its own, so that a layer's function must
read both from its table. On a pipeline of four the two stages in the middle are of equal layers: they share a source."""
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_plans import plan_of  # noqa: E402
from rankc_test import bound_of, call, manifest_of, needed, rankc_of  # noqa: E402

with needed():
    import numpy as np

LAYERS, ROWS, WIDTH = 8, 30, 16
# Plan: how many sources the ranks have.
PLANS = {"one": 1, "pp2": 2, "pp4": 3, "tp2pp4": 3}


def write_model(path, rng):
    """IR text, the weights beside it; returns inputs and weights."""
    inputs = rng.standard_normal((1 + LAYERS, ROWS, WIDTH)).astype("f4")
    weights = rng.standard_normal((LAYERS, WIDTH, WIDTH)).astype("f4")
    weights.tofile(os.path.join(path, "layers.bin"))
    lines = ["rankc-ir 1", 'graph "layers" level=TYPED', 'file "layers.bin"']
    lines += [f'input %{i} "x{i}" f32[{ROWS},{WIDTH}]' for i in range(1 + LAYERS)]
    first_weight = 1 + LAYERS
    lines += [f'weight %{first_weight + l} "w{l}" f32[{WIDTH},{WIDTH}] @1+{l * WIDTH * WIDTH * 4} as f32' for l in range(LAYERS)]
    value, last = first_weight + LAYERS, 0
    for l in range(LAYERS):
        for text in (f"MatMul(%{last}, %{first_weight + l})", f"Tanh(%{value})", f"Add(%{value + 1}, %{last})",
                     f"Add(%{value + 2}, %{l + 1})", f"Softmax(%{value + 3}) axis=1"):
            lines.append(f'%{value} "v{value}" = {text} node="{l}/{text.split("(")[0]}{value}"')
            value += 1
        last = value - 1
    lines.append(f'output %{last} "y"')
    with open(os.path.join(path, "layers.rir"), "w") as file:
        file.write("\n".join(lines) + "\n")
    return inputs, weights


def forward(inputs, weights):
    x = inputs[0].astype("f8")
    for s, w in zip(inputs[1:].astype("f8"), weights.astype("f8")):
        z = np.tanh(x @ w) + x + s
        e = np.exp(z - z.max(1, keepdims=True))
        x = e / e.sum(1, keepdims=True)
    return x


def check(rankc, work):
    inputs, weights = write_model(work, np.random.default_rng(5))
    reference = forward(inputs, weights)
    given = []
    for i, x in enumerate(inputs):
        np.save(f"{work}/x{i}.npy", x)
        given += ["--input", f"x{i}={work}/x{i}.npy"]
    one = None
    for number, (plan, sources) in enumerate(PLANS.items()):
        out = f"{work}/out{number}"
        call(rankc, "compile", f"{work}/layers.rir", *plan_of(plan).options, "-o", out, "-q")
        call(rankc, "verify", out, "-q")
        manifest = manifest_of(out)
        names = {rank["source"] for rank in manifest["classes"]}
        if len(names) != sources:
            raise SystemExit(f"{plan}: {len(names)} sources, expected {sources}")
        call(rankc, "run", out, *given, "--kernels", "reference", "--threads", "1", "--output-dir", out + "/y")
        y = np.load(out + "/y/y.npy")
        one = y if one is None else one
        error = np.abs(y - reference).max()
        bound = bound_of(np.abs(one - reference).max(), np.abs(reference).max())
        if error > bound or error > 1e-5:
            raise SystemExit(f"{plan}: off by {error:g}, bound {bound:g}")
    print(f"{len(PLANS)} plans")
    return 0


def main():
    rankc = rankc_of(__doc__)
    with tempfile.TemporaryDirectory(prefix="rankc-layers-") as work:
        return check(rankc, work)


if __name__ == "__main__":
    sys.exit(main())
