#!/usr/bin/python3
"""Dummy micro-batches under ZeRO: a step some of whose micro-batches are dummies is the step of the others alone (dummies.c).

    dummies.py --rankc RANKC [MODEL...]

Norms and losses of scale units with dummies are compared with those of one rank without ZeRO that is given the other micro-batches
only. Both add the same gradients in another order: 1e-5, as tests/training/train.py allows. What a dummy holds would be seen: it is
NaN where the model takes floats, and other tokens where it takes tokens. A step of dummies alone has the norm 0."""
import functools
import math
import os
import sys
import tempfile

from harness import HERE, call, expect, model_of, needed, parser_of, plan_of, recorded, report
from nonfinite import flags

with needed():
    import numpy as np

BOUND = 1e-5
ROOT = os.path.dirname(os.path.dirname(HERE))
# Micro-batches of the units of each step. In the second row, units 1 and 3 have dummies alone in some step.
STEPS = {1: "rdrr,dddr,rrrd,drdr,dddd", 2: "rdrrdrrr,rdrdrdrd,drrrrrdd,rrrrrrrr,dddddddd"}
GROUPS = ["--zero-ngroups", "2"]
# Model, plan, micro-batches of a unit, ZeRO stage, options.
CASES = [*(("gpt2", "dp4", accumulate, stage, options) for accumulate in STEPS for stage in range(4)
           for options in ([], GROUPS)[:2 if stage else 1]),
         *(("gpt2", "data2dp4", 2, stage, []) for stage in (2, 3)),
         *(("mlp", "dp4", accumulate, stage, []) for accumulate in STEPS for stage in (0, 3))]


def without_dummies(steps):
    """The steps of one rank that is given the other micro-batches only."""
    return ",".join(filter(None, steps.replace("d", "").split(",")))


class Bench:
    source = "dummies.c"

    def __init__(self, rankc, work):
        self.rankc, self.work, self.built = rankc, work, 0
        self.data = {model: self.make_data(model) for model in ("gpt2", "mlp")}

    def make_data(self, model):
        """Files of 32 micro-batches, the last of which nobody is to read but as a dummy."""
        files = []
        for name in recorded(model)["inputs"]:
            values = np.load(os.path.join(HERE, model, f"{name}.npy"))
            shape = (32 * (3 if model == "mlp" else 2), *values.shape[1:])
            random = np.random.default_rng(7)
            made = random.integers(0, 97, shape) if values.dtype.kind == "i" else random.standard_normal(shape)
            if values.dtype.kind == "f":
                made[-3:] = np.nan
            files.append(os.path.join(self.work, f"{model}.{name}.npy"))
            np.save(files[-1], made.astype(values.dtype))
        return files

    def build(self, model, plan, accumulate, stage, options):
        """A program of the compiled model; its directory and path."""
        self.built += 1
        out, program = os.path.join(self.work, f"{self.built}"), os.path.join(self.work, f"{self.built}.program")
        call(self.rankc, "compile", model_of(model), "-o", out, "-q", "--no-build", "--train", *plan_of(plan).options, "--accumulate", accumulate,
             "--use-zero", stage, "--optimizer", "sgd:lr=0.1,momentum=0.9", "--clip-grad-norm", "1", *options)
        code = os.path.join(out, "model", "_")
        call("cc", "-O0", "-I", code, "-I", ROOT, os.path.join(HERE, self.source), os.path.join(code, "model.c"),
             os.path.join(code, "rank_0.c"), *flags(self.rankc), "-o", program)
        return code, program

    def run(self, built, model, units, steps):
        """Of each step, the norm and the losses."""
        said = call(built[1], built[0], str(units), steps, *self.data[model]).stdout
        return [[float(word) for word in line.split()] for line in said.splitlines()]

    @functools.cached_property
    def alone(self):
        """By model, a program of one rank."""
        return {model: self.build(model, "one", 2, 0, []) for model in self.data}


def near(value, other):
    return abs(value - other) <= BOUND * abs(other)


def check(bench, case, _work):
    model, plan, accumulate, stage, options = case
    units, steps = plan_of(plan).units, STEPS[accumulate]
    built = bench.build(*case)
    found = bench.run(built, model, units, steps)
    one = bench.run(bench.alone[model], model, 1, without_dummies(steps))
    for step, letters in enumerate(steps.split(",")):
        norm, *losses = found[step]
        if "r" not in letters:
            expect(norm == 0, f"dummies alone have a gradient: {norm}")
            continue
        real = [loss for loss, letter in zip(losses, letters) if letter == "r"]
        expect(near(norm, one[step][0]), f"step {step}: norm {norm}, without dummies {one[step][0]}")
        expect(len(real) == len(one[step]) - 1 and all(map(near, real, one[step][1:])), f"step {step}: losses {real}, {one[step][1:]}")
        expect(all(loss == 0 for loss, letter in zip(losses, letters) if letter == "d"), f"step {step}: a dummy has a loss: {losses}")
    counted = bench.run(built, model, units, steps.split(",")[0].replace("d", "x"))[0][0]
    expect(math.isnan(counted) or not near(counted, one[0][0]), "what is in a dummy makes no difference")
    return "ok"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("models", nargs="*", default=["gpt2", "mlp"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rankc-dummies-") as work:
        bench = Bench(options.rankc, work)
        return report((" ".join(map(str, [*case[:4], *case[4]])), functools.partial(check, bench, case))
                      for case in CASES if case[0] in options.models)


if __name__ == "__main__":
    sys.exit(main())
